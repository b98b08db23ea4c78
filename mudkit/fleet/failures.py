"""Failures of machines: those of which no warning was emitted yet, and effects that cannot be carried out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mudkit.errors import FailureWarning, SimulationProblem, brief
from mudkit.events import Effect

if TYPE_CHECKING:
    from mudkit.fleet.host import Process

_MAX_KEPT: Final = 100
"""Maximum number of errors kept for the warning; a machine may fail at each of a million events."""


class UnwarnedFailures:
    """Failures since the last warning; ``count`` includes those whose errors are not kept."""

    __slots__ = ("_kept", "count")

    def __init__(self) -> None:
        self._kept: list[Exception] = []
        self.count = 0

    def add(self, error: Exception) -> None:
        """Count a failure, and keep its error up to a limit."""
        self.count += 1
        if len(self._kept) < _MAX_KEPT:
            self._kept.append(error)

    def pop_warning(self) -> FailureWarning:
        """Return a warning of all failures since the last one, and forget them."""
        warning = FailureWarning(self._kept, self.count)
        self._kept, self.count = [], 0
        return warning


def effects_of(process: Process, effects: Any) -> Sequence[Effect]:
    """Return the effects that a machine yields as a tuple, or raise SimulationProblem."""
    try:
        sequence = iter(effects)
    except TypeError as error:
        raise effect_error(process, effects, error) from error
    return tuple(sequence)


def effect_error(process: Process, effects: Any, error: Exception) -> Exception:
    """Return the error to record for effects that could not be carried out."""
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
