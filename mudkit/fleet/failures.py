"""Failures of machines and callbacks: what is kept of them until somebody can be warned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mudkit.errors import FailureWarning, SimulationProblem, brief
from mudkit.events import Effect
from mudkit.fleet.process import Process
from mudkit.fleet.runtime import Site

__all__ = ["Failures", "effects_of", "not_carried_out", "raise_failure"]

_MOST_KEPT: Final = 100
"""Errors that are kept for the warning; a machine may fail at each of a million events."""


class Failures:
    """The failures since the last warning.

    Attributes
    ----------
    count : int
        How many there were, those included that are not kept.
    """

    __slots__ = ("_kept", "count")

    def __init__(self) -> None:
        self._kept: list[Exception] = []
        self.count = 0

    def add(self, error: Exception) -> None:
        """Keep a failure, if there are not too many already."""
        self.count += 1
        if len(self._kept) < _MOST_KEPT:
            self._kept.append(error)

    def take(self) -> FailureWarning:
        """Give the warning of all failures since the last one, and begin anew."""
        warning = FailureWarning(self._kept, self.count)
        self._kept, self.count = [], 0
        return warning


def raise_failure(host: Site, system: str, error: Exception) -> None:
    """Let a failure end the run: give it to :attr:`mudkit.fleet.kernel.World.on_failure`."""
    raise error


def effects_of(process: Process, effects: Any) -> Sequence[Effect]:
    """Give effects that are given one after the other as a sequence.

    Raises
    ------
    SimulationProblem
        They are none.
    """
    try:
        each = iter(effects)
    except TypeError as error:
        raise not_carried_out(process, effects, error) from error
    return tuple(each)


def not_carried_out(process: Process, effects: Any, error: Exception) -> Exception:
    """Give the error of an effect that could not be carried out."""
    if not isinstance(error, TypeError | KeyError):
        return error
    problem = SimulationProblem(
        "A machine has answered with something that cannot be carried out.",
        where=f"{process.system} on {process.host.name}",
        found=brief(effects, 300) + f" ({type(error).__name__}: {error})",
        expected="a sequence of Send (of what JSON can hold), SetTimer, CancelTimer, Complete, "
        "Notify and Record",
    )
    problem.__cause__ = error
    return problem
