"""Judging of a reader's function: Hypothesis draws scenarios and shrinks the one that fails."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from mudkit import figures
from mudkit.arguments import check_options
from mudkit.display import Cell, Displayed, Table, View
from mudkit.files import work_folder
from mudkit.fleet.kernel import raise_failure
from mudkit.fleet.link import Transfer
from mudkit.lab import Lab
from mudkit.progress import bar

__all__ = [
    "FAILURE_TITLE", "DeliveryFaults", "Exercise", "PieceError", "Played", "Verdict", "judged", "new_lab",
]  # fmt: skip

_SCENARIOS = 200
_SEED = 0
"""Fixed, so that all solutions meet the same scenarios."""
_NOT_REPEATABLE = (
    "(This does not happen each time: the function gives different answers to the same arguments. Does it "
    "keep something from one call to the next?)"
)
FAILURE_TITLE: Final = "The smallest scenario that fails"


@check_options
@dataclass(frozen=True)
class Played:
    """Outcome of one scenario.

    Parameters
    ----------
    scenario : str
        What happened, in words.
    problem : str or None
        The property that does not hold, in words. None: all hold.
    lab : Lab or None
        The lab in which the scenario ran. None: it needed none.
    lanes : tuple of str
        Devices and servers, in their order in the message diagram.
    picture : callable or None
        Draws the scenario. None: the message diagram of the lab is drawn.
    """

    scenario: str
    problem: str | None
    lab: Lab | None = None
    lanes: tuple[str, ...] = ()
    picture: Callable[[], go.Figure] | None = None


@check_options
@dataclass(frozen=True)
class Exercise:
    """Function to write, the property it must have, and scenarios that test it.

    Parameters
    ----------
    signature : str
        Signature and meaning of the function, in one sentence that begins with its name.
    property : str
        The property that must hold, in one sentence.
    scenarios : SearchStrategy
        Hypothesis strategy that draws scenarios; simple ones come first, because failures shrink to them.
    play : callable
        Runs a scenario with the function under test and returns its outcome.
    returns : str
        Description of a return value, such as "a list". Empty: None is a valid answer.
    """

    signature: str
    property: str
    scenarios: SearchStrategy[Any]
    play: Callable[[Callable[..., Any], Any], Played]
    returns: str = ""

    def piece(self) -> str:
        """Name of the function to write."""
        return self.signature.partition("(")[0]


@check_options
@dataclass(frozen=True, repr=False)
class Verdict(Displayed):
    """Result of judging a solution.

    Parameters
    ----------
    chapter : str
        Chapter of the exercise.
    property : str
        The property that must hold, in one sentence.
    passed : bool
        Whether all scenarios passed.
    scenarios : int
        Number of scenarios run, including those that shrank the failing one.
    failure : Played or None
        Smallest scenario that fails. None: all pass.
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
            f"What happened: {self.failure.problem}"
        )

    def _view(self) -> View:
        if self.failure is None:
            rows = [
                ("Rule", self.property),
                ("Tried", f"It held in all {self.scenarios} random scenarios; there is none to draw."),
            ]
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
        """Draw the smallest scenario that fails, usually its messages; None if there is nothing to draw."""
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
            title=FAILURE_TITLE,
        )


@cache
def _home() -> Path:
    return work_folder()


class PieceError(Exception):
    """Failure of the reader's function, such as an exception that it raised."""


class _FailedError(Exception):
    """Signal to Hypothesis that the property does not hold."""


def new_lab() -> Lab:
    """Return a lab in which an exception in the reader's function ends the scenario."""
    lab = Lab(seed=1)
    lab.world.on_failure = raise_failure
    return lab


class DeliveryFaults:
    """Faults of selected deliveries, one after the other: lost, repeated or late.

    Parameters
    ----------
    delays_us : mapping of str to sequence of int
        The delays after which a delivery arrives, by the name of the fault; none: it is lost.
    faults : sequence of str
        The fault of each selected delivery; other names, and later deliveries, are without fault.
    selects : callable
        Whether a transfer is counted.
    """

    def __init__(
        self,
        delays_us: Mapping[str, Sequence[int]],
        faults: Sequence[str],
        selects: Callable[[Transfer], bool],
    ) -> None:
        self._delays_us, self._selects = delays_us, selects
        self._faults = iter(faults)

    def __call__(self, transfer: Transfer) -> Sequence[int]:
        """Return the delays, in µs, after which a transfer is delivered."""
        fault = next(self._faults, "") if self._selects(transfer) else ""
        return self._delays_us.get(fault, (0,))


def judged(chapter: str, exercise: Exercise, piece: Callable[..., Any]) -> Verdict:
    """Judge a function; an exception that it raises is a failure like any other."""
    set_hypothesis_home_dir(_home())  # the default is the reader's working folder
    count = 0
    failure: Played | None = None
    outcomes: dict[str, set[str | None]] = defaultdict(set)
    expected = exercise.returns  # a machine's closure may refer to values only, not to an exercise

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
        done(min(count, _SCENARIOS))  # shrinking runs more
        try:
            played = exercise.play(guarded, scenario)
        except PieceError as error:  # a play function need not catch it
            played = Played(str(scenario)[:400], str(error))
        outcomes[played.scenario].add(played.problem)
        if played.problem is not None:
            failure = played
            raise _FailedError

    try:
        with bar(_SCENARIOS, "scenarios", "") as done:  # labs inside show no bar of their own
            holds()
    except (_FailedError, Flaky) as error:
        assert failure is not None
        shown = failure
        if isinstance(error, Flaky) or len(outcomes[failure.scenario]) > 1:
            shown = replace(failure, problem=f"{failure.problem} {_NOT_REPEATABLE}")
        return Verdict(chapter, exercise.property, False, count, shown)
    return Verdict(chapter, exercise.property, True, count, None)
