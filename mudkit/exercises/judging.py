"""How a piece is judged: Hypothesis draws scenarios and shrinks the one that fails."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from mudkit import figures
from mudkit.display import Cell, Displayed, Table, View
from mudkit.files import work_folder
from mudkit.lab import Lab
from mudkit.progress import bar

__all__ = ["Exercise", "PieceError", "Played", "Verdict", "judged"]

_SCENARIOS = 200
_SEED = 0
"""Everybody's piece meets the same scenarios."""
_NOT_THE_SAME = (
    "(But not each time: the piece does not answer the same when it is asked the same. Does it keep "
    "something from one call to the next?)"
)


@dataclass(frozen=True)
class Played:
    """A scenario that was played with a piece.

    Parameters
    ----------
    scenario : str
        What happened, in words.
    problem : str or None
        The property that does not hold, in words. None: all hold.
    lab : Lab or None
        The lab in which it was played. None: it needed none.
    lanes : tuple of str
        Devices and servers in the order of the diagram of its messages.
    picture : callable or None
        Draws what happened. None: the diagram of the lab's messages is drawn.
    """

    scenario: str
    problem: str | None
    lab: Lab | None = None
    lanes: tuple[str, ...] = ()
    picture: Callable[[], go.Figure] | None = None


@dataclass(frozen=True)
class Exercise:
    """Something to write, and how it is judged.

    Parameters
    ----------
    signature : str
        The piece's signature and meaning, in one sentence that begins with its name.
    property : str
        The property that must hold, in one sentence.
    scenarios : SearchStrategy
        A strategy of Hypothesis that draws scenarios; simple ones come first, so that failures shrink to
        them.
    play : callable
        Plays a scenario with the piece that is judged, and says what happened.
    returns : str
        What the function returns, in words, such as "a list". Empty: None is an answer, too.
    """

    signature: str
    property: str
    scenarios: SearchStrategy[Any]
    play: Callable[[Callable[..., Any], Any], Played]
    returns: str = ""

    def piece(self) -> str:
        """Name of the function to write."""
        return self.signature.partition("(")[0]


@dataclass(frozen=True, repr=False)
class Verdict(Displayed):
    """Result of judging a solution.

    Parameters
    ----------
    chapter : str
        The chapter that the exercise belongs to.
    property : str
        The property that must hold, in one sentence.
    passed : bool
        Whether all scenarios passed.
    scenarios : int
        How many were played until this was known, those that made the failing one smaller included.
    failure : Played or None
        The smallest scenario that fails. None: all pass.
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

    def _view(self) -> View:
        if self.failure is None:
            rows = [("Rule", self.property), ("Tried", f"It held in all {self.scenarios} random scenarios.")]
        else:
            rows = [
                ("Broken rule", self.property),
                ("Smallest scenario", self.failure.scenario),
                ("What happened", self.failure.problem or ""),
            ]
        passed = "✔ Passed" if self.passed else "✘ Not yet"
        cells = [(name, Cell(text[:1].upper() + text[1:])) for name, text in rows]
        return View("Verdict", {"chapter": self.chapter}, [Table(("Verdict", passed), cells)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        (table,) = self._view().tables
        return table.html()

    def diagram(self) -> go.Figure | None:
        """Draw the smallest scenario that fails, as a rule its messages; None when there is none."""
        if self.failure is None:
            return None
        if self.failure.picture is not None:
            return self.failure.picture()
        lab = self.failure.lab
        if lab is None:
            return None
        return figures.message_diagram(
            lab,
            lanes=self.failure.lanes,
            title="The smallest scenario that fails",
        )


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
        The function that the reader has written.
    """
    set_hypothesis_home_dir(_home())  # it would leave a folder where the reader works
    count = 0
    failure: Played | None = None
    outcomes: dict[str, set[str | None]] = defaultdict(set)
    expected = exercise.returns  # a lab that runs the piece looks at what it refers to

    expected = exercise.returns  # a machine may keep nothing but values, so this has to be a text

    def guarded(*arguments: Any) -> Any:
        try:
            answer = piece(*arguments)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            line = f" (line {last.lineno})" if last.filename != __file__ else ""
            raise PieceError(f"it raises {type(error).__name__}: {error}{line}") from error
        if answer is None and expected:
            raise PieceError(f"Your function returned None; expected {expected}.")
        return answer

    @seed(_SEED)
    @settings(
        max_examples=_SCENARIOS,
        database=None,
        deadline=None,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(exercise.scenarios)
    def holds(scenario: Any) -> None:
        nonlocal count, failure
        count += 1
        done(min(count, _SCENARIOS))  # making a failure small plays more
        try:
            played = exercise.play(guarded, scenario)
        except PieceError as error:  # a judge need not see to it
            played = Played(str(scenario)[:400], str(error))
        outcomes[played.scenario].add(played.problem)
        if played.problem is not None:
            failure = played
            raise _FailedError

    try:
        with bar(_SCENARIOS, "scenarios", "") as done:  # in which a lab shows no bar of its own
            holds()
    except (_FailedError, Flaky) as error:
        assert failure is not None
        shown = failure
        if isinstance(error, Flaky) or len(outcomes[failure.scenario]) > 1:
            shown = replace(failure, problem=f"{failure.problem} {_NOT_THE_SAME}")
        return Verdict(chapter, exercise.property, False, count, shown)
    return Verdict(chapter, exercise.property, True, count, None)
