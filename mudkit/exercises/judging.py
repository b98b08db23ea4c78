"""Judging of a reader's function: Hypothesis draws scenarios and shrinks the one that fails."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import monotonic, process_time
from types import FrameType
from typing import Any, Final

import plotly.graph_objects as go
import plotly.io as pio
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from mudkit import figures, words
from mudkit.checks import check_arguments
from mudkit.display import Cell, Displayed, Table, View
from mudkit.errors import brief
from mudkit.files import work_folder
from mudkit.fleet.kernel import raise_failure
from mudkit.fleet.link import Transfer
from mudkit.lab import Lab
from mudkit.progress import bar

WITHIN_S: Final = 120.0
"""Default time limit of all scenarios of a solution."""
_SCENARIO_S: Final = 10.0
"""Time limit of one scenario."""
WAIT_FACTOR: Final = 6
"""Limits are of processor time, so that a busy computer does not decide a verdict. This many times as long
may pass on the clock: then the function waits for something that does not come."""
_AGAIN_S: Final = 0.1
"""Time after which a solution that has caught the interruption, or is called again, is interrupted again."""
_GRACE_S: Final = 5.0
"""Time after which the judge itself is interrupted as well, such as a lab that the solution keeps busy."""
_MAX_WORDS_CHARS: Final = 400
"""Maximum length of a scenario in words, where the exercise does not describe it."""
_SCENARIOS = 200
_SEED = 0
"""Fixed, so that all solutions meet the same scenarios."""
_NOT_REPEATABLE = (
    "(This does not happen each time: the function gives different answers to the same arguments. Does it "
    "keep something from one call to the next?)"
)
FAILURE_TITLE: Final = "The smallest scenario that fails"


@check_arguments(types=False)
@dataclass(frozen=True)
class PlayedScenario:
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


@check_arguments(types=False)
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
    play: Callable[[Callable[..., Any], Any], PlayedScenario]
    returns: str = ""

    def piece(self) -> str:
        """Return the name of the function to write."""
        return self.signature.partition("(")[0]


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class Judgement(Displayed):
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
    failure : PlayedScenario or None
        Smallest scenario that fails. None: all pass.
    is_smallest : bool
        False if time was over before smaller scenarios were tried.
    """

    chapter: str
    property: str
    passed: bool
    scenarios: int
    failure: PlayedScenario | None
    is_smallest: bool = True

    def __str__(self) -> str:
        if self.failure is None:
            return f"Passed. {self.property}\nHeld in all of {self.scenarios} scenarios."
        return (
            f"Not yet. {self.property}\n"
            f"{'The smallest' if self.is_smallest else 'A'} scenario in which it does not hold: "
            f"{self.failure.scenario}\n"
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
                ("Smallest scenario" if self.is_smallest else "Scenario", self.failure.scenario),
                ("What happened", self.failure.problem or ""),
            ]
        passed = "✔ Passed" if self.passed else "✘ Not yet"
        cells = [(name, Cell(words.capitalise(text))) for name, text in rows]
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
        lab = self.failure.lab
        if self.failure.picture is not None:
            figure = self.failure.picture()
        elif lab is not None:
            figure = figures.message_diagram(lab, lanes=self.failure.lanes, title=FAILURE_TITLE)
        else:
            return None
        if not self.is_smallest:
            figure.layout.title.text = "A scenario that fails"
        return _Diagram(figure)


class _Diagram(go.Figure):  # type: ignore[misc]
    """Figure that disappears from its cell when the next judgement begins."""

    def _ipython_display_(self) -> None:
        from IPython.display import display  # who displays a figure has it loaded

        if pio.renderers.render_on_display and pio.renderers.default:
            _shown.append(display(self._repr_mimebundle_(), raw=True, display_id=True))  # type: ignore[no-untyped-call]
        else:
            super()._ipython_display_()


_shown: Final[list[Any]] = []
"""Handles of the diagrams that are shown in a notebook."""


def clear_diagrams() -> None:
    """Remove the diagrams of older verdicts from their cells."""
    while _shown:
        _shown.pop().update({"text/plain": "", "text/html": ""}, raw=True)


@cache
def _home() -> Path:
    """Return the folder in which Hypothesis stores its files, the same one at each call."""
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


class Overtime(BaseException):
    """A solution has run for too long. Not an Exception, so ``except Exception`` does not catch it."""


class _Limit:
    """Limit of processor time, and of time on the clock, from its creation on."""

    def __init__(self, limit_s: float, used_s: Callable[[], float]) -> None:
        self.limit_s, self._used_s = limit_s, used_s
        self._used_before_s, self._began_s = used_s(), monotonic()

    def left_s(self) -> float:
        """Return the time in which the limit cannot be exceeded yet."""
        passed_s = (monotonic() - self._began_s) / WAIT_FACTOR
        return self.limit_s - max(self._used_s() - self._used_before_s, passed_s)

    def exceeded_s(self) -> float:
        """Return the limit that was exceeded: of processor time or on the clock."""
        is_used = self._used_s() - self._used_before_s >= self.limit_s
        return self.limit_s if is_used else WAIT_FACTOR * self.limit_s


class Clock:
    """Time limits, which interrupt the reader's function in the main thread and in no other.

    Parameters
    ----------
    within_s : float
        Limit of all that is timed, in seconds of processor time.
    used_s : callable
        Returns the processor time of the function.
    """

    def __init__(self, within_s: float, used_s: Callable[[], float] = process_time) -> None:
        self._used_s = used_s
        self._all = _Limit(within_s, used_s)
        self._current = self._all
        self._over_since_s = 0.0
        self._exceeded: tuple[bool, float] | None = None
        """The limit that was exceeded: whether it is that of all, and its length in seconds."""

    @property
    def is_over(self) -> bool:
        """True once a limit was exceeded."""
        return self._exceeded is not None

    @contextmanager
    def limit(self, most_s: float) -> Iterator[None]:
        """Interrupt the body after ``most_s`` seconds, or at the end of the time of all."""
        self._current = _Limit(most_s, self._used_s)
        if self._is_exceeded():
            raise Overtime
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGALRM, self._interrupt)
        first_s = max(min(self._current.left_s(), self._all.left_s()), _AGAIN_S)
        signal.setitimer(signal.ITIMER_REAL, first_s, _AGAIN_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    def reason(self, ended: int, of: int) -> str:
        """Describe the limit that was exceeded, after a number of scenarios that ended."""
        is_all, limit_s = self._exceeded or (False, 0.0)
        if is_all and ended:
            return f"only {ended} of {of} scenarios ended within {limit_s:g} s"
        return f"it did not end within {limit_s:g} s"

    def _is_exceeded(self) -> bool:
        """Return whether a limit was exceeded; the first one that was stays recorded."""
        for limit in (self._current, self._all):
            if self._exceeded is None and limit.left_s() <= 0:
                self._exceeded = limit is self._all, limit.exceeded_s()
                self._over_since_s = monotonic()
        return self._exceeded is not None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise Overtime on the timer's signal, outside of the reader's function only after a while."""
        if self._is_exceeded() and (monotonic() > self._over_since_s + _GRACE_S or _is_in_piece(frame)):
            raise Overtime


def _is_in_piece(frame: FrameType | None) -> bool:
    """Return whether a frame runs the reader's function."""
    while frame is not None:
        if frame.f_code.co_name == "guarded" and frame.f_code.co_filename == __file__:
            return True
        frame = frame.f_back
    return False


class Stopped(KeyboardInterrupt):
    """Ctrl-C, or the notebook's stop button, while a solution was judged."""

    def _render_traceback_(self) -> list[str]:
        # What IPython shows in place of a traceback, which would be of Hypothesis and of mudkit.
        return [str(self)]


def error_text(error: BaseException, file: str) -> str:
    """Describe an exception of the reader's function, with the last line of the reader's own on its way.

    ``file`` has the caller of that function.
    """
    calls = [call for call in traceback.extract_tb(error.__traceback__) if call.filename != file]
    own = [call.lineno for call in calls if call.filename == calls[0].filename]
    line = f" (line {own[-1]})" if own else ""
    try:
        text = str(error)
    except Exception:  # the reader's own exception may fail in str
        text = "…"
    return f"it raises {type(error).__name__}: {text}{line}"


_answered: Final[list[Any]] = []
"""Last answer of the function in the current scenario; empty: none yet."""


def _record_answer(answer: Any) -> None:
    """Record the last answer of the reader's function, for the verdict on what cannot be used."""
    _answered[:] = [answer]


def _guard(piece: Callable[..., Any], expected: str) -> Callable[..., Any]:
    """Return a function that turns what goes wrong in another into a PieceError.

    A machine is copied together with its closure, which may therefore refer to values only.
    """

    def guarded(*arguments: Any) -> Any:
        try:
            answer = piece(*arguments)
        except PieceError:  # the function runs in another process
            raise
        except Overtime:
            raise PieceError("it did not end.") from None
        except (Exception, SystemExit, GeneratorExit) as error:
            raise PieceError(error_text(error, __file__)) from error
        if answer is None and expected:
            raise PieceError(f"Your function returned None; expected {expected}.")
        _record_answer(answer)
        return answer

    return guarded


def _play(exercise: Exercise, guarded: Callable[..., Any], scenario: Any, clock: Clock) -> PlayedScenario:
    """Run a scenario; an answer that ``play`` cannot use is a failure of the function, too."""
    words = str(scenario)[:_MAX_WORDS_CHARS]
    _answered.clear()
    try:
        with clock.limit(_SCENARIO_S):
            return exercise.play(guarded, scenario)
    except PieceError as error:  # a play function need not catch it
        return PlayedScenario(words, str(error))
    except Overtime:
        return PlayedScenario(words, "it did not end.")
    except Exception as error:
        if not _answered:  # it is not about an answer
            raise
        expected = f"; expected {exercise.returns}" if exercise.returns else ""
        return PlayedScenario(
            words,
            f"it returned {brief(_answered[0], 80)}, which the judge cannot use "
            f"({type(error).__name__}: {error}){expected}.",
        )


def judged(
    chapter: str,
    exercise: Exercise,
    piece: Callable[..., Any],
    within_s: float = WITHIN_S,
    used_s: Callable[[], float] = process_time,
) -> Judgement:
    """Judge a function; an exception that it raises, or that it does not end, is a failure like any other."""
    if "HYPOTHESIS_STORAGE_DIRECTORY" not in os.environ:
        set_hypothesis_home_dir(_home())  # the default is the reader's working folder
    count = 0
    running = ""
    failure: PlayedScenario | None = None
    outcomes: dict[str, set[str | None]] = defaultdict(set)
    guarded = _guard(piece, exercise.returns)
    clock = Clock(within_s, used_s)

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
        nonlocal count, failure, running
        running = str(scenario)[:_MAX_WORDS_CHARS]
        done(min(count + 1, _SCENARIOS))  # shrinking runs more
        played = _play(exercise, guarded, scenario, clock)
        if clock.is_over:
            if failure is None:
                failure = replace(played, problem=clock.reason(count, _SCENARIOS))
            raise Overtime
        count += 1
        outcomes[played.scenario].add(played.problem)
        if played.problem is not None:
            failure = played
            raise _FailedError

    try:
        with bar(_SCENARIOS, "scenarios", "") as done:  # labs inside show no bar of their own
            holds()
    except KeyboardInterrupt:
        raise Stopped(f"Stopped after {count} scenarios, in this one: {running}") from None
    except Overtime:
        assert failure is not None
        return Judgement(chapter, exercise.property, False, count, failure, is_smallest=False)
    except (_FailedError, Flaky) as error:
        assert failure is not None
        shown = failure
        if isinstance(error, Flaky) or len(outcomes[failure.scenario]) > 1:
            shown = replace(failure, problem=f"{failure.problem} {_NOT_REPEATABLE}")
        return Judgement(chapter, exercise.property, False, count, shown)
    return Judgement(chapter, exercise.property, True, count, None)
