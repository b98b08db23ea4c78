"""How a piece is judged: Hypothesis draws scenarios and shrinks the one that fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.strategies import SearchStrategy

from mudkit.figures import messages
from mudkit.files import work_folder
from mudkit.lab import Lab

__all__ = ["Exercise", "PieceError", "Played", "Verdict", "judged"]

_SCENARIOS = 200


@dataclass(frozen=True)
class Played:
    """A scenario that was played with a piece.

    Parameters
    ----------
    scenario : str
        What happened, in words.
    problem : str or None
        Which property does not hold, in words; None: all do.
    lab : Lab
        In which it was played.
    lanes : tuple of str
        Devices and servers in the order of the diagram.
    """

    scenario: str
    problem: str | None
    lab: Lab
    lanes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exercise:
    """Something to write, and how it is judged.

    Parameters
    ----------
    asks_for : str
        The piece's signature and meaning, in one sentence.
    property : str
        What must hold, in one sentence.
    scenarios : SearchStrategy
        Of Hypothesis; simple ones first, so that failures shrink to them.
    play : callable
        Plays a scenario with a piece.
    """

    asks_for: str
    property: str
    scenarios: SearchStrategy[Any]
    play: Callable[[Callable[..., Any], Any], Played]


@dataclass(frozen=True)
class Verdict:
    """What came out.

    Parameters
    ----------
    chapter : str
    property : str
        What must hold.
    passed : bool
    scenarios : int
        How many were played until this was known, those that made the failing one smaller included.
    failure : Played or None
        The smallest scenario that fails.
    """

    chapter: str
    property: str
    passed: bool
    scenarios: int
    failure: Played | None

    def __str__(self) -> str:
        if self.failure is None:
            return f"Passed. {self.property}\nHeld in all of {self.scenarios} scenarios."
        return (
            f"Not yet. {self.property}\n"
            f"The smallest scenario in which it does not hold: {self.failure.scenario}\n"
            f"What came of it: {self.failure.problem}"
        )

    def diagram(self) -> go.Figure | None:
        """Draw the messages of the smallest scenario that fails; None when there is none."""
        if self.failure is None:
            return None
        lab = self.failure.lab
        return messages.diagram(
            lab.frame("messages"), lab.frame("incidents"), lanes=self.failure.lanes,
            title="The smallest scenario that fails",
        )  # fmt: skip


@cache
def _home() -> Path:
    return work_folder()


class PieceError(Exception):
    """What a reader's piece raised."""


class _FailedError(Exception):
    """A property does not hold."""


def judged(chapter: str, exercise: Exercise, piece: Callable[..., Any]) -> Verdict:
    """Judge a piece; an error that it raises is a failure like any other.

    Parameters
    ----------
    chapter : str
    exercise : Exercise
    piece : callable
    """
    set_hypothesis_home_dir(_home())  # it would leave a folder where the reader works
    count = 0
    failure: Played | None = None

    def guarded(*arguments: Any) -> Any:
        try:
            return piece(*arguments)
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            raise PieceError(f"it raises {type(error).__name__}: {error} (line {line})") from error

    @settings(
        max_examples=_SCENARIOS, derandomize=True, database=None, deadline=None, print_blob=False,
        phases=(Phase.generate, Phase.shrink), verbosity=Verbosity.quiet, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(exercise.scenarios)
    def holds(scenario: Any) -> None:
        nonlocal count, failure
        count += 1
        played = exercise.play(guarded, scenario)
        if played.problem is not None:
            failure = played
            raise _FailedError

    try:
        holds()
    except _FailedError:
        return Verdict(chapter, exercise.property, False, count, failure)
    return Verdict(chapter, exercise.property, True, count, None)
