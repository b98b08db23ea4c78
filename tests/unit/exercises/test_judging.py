"""Judge: mistakes are detected, minimized and drawn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import strategies as st
from judged import check_rejected

from mudkit import exercises
from mudkit.errors import ParameterError
from mudkit.exercises import EXERCISES, Exercise, Judgement, PlayedScenario, judge, judging
from mudkit.exercises.judging import Clock, Overtime, Stopped, error_text

STORAGE = "HYPOTHESIS_STORAGE_DIRECTORY"
IDLE = Exercise("same(x) -> x", "It is x.", st.integers(0, 9), lambda piece, number: PlayedScenario("", None))


@pytest.fixture
def few_scenarios(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(judging, "_SCENARIOS", 20)


def solution(seen: int, message: Any) -> bool:
    return message["after"] == seen


def test_solution_passes():
    verdict = judge("00_start_here", solution)
    assert (verdict.passed, verdict.scenarios, verdict.failure) == (True, 200, None)
    assert verdict.diagram() is None
    assert str(verdict).startswith("Passed.")


def test_exception_is_shown_with_the_line_of_the_reader_not_of_a_library():
    def decide():
        return json.loads("{")  # raises in json's own files

    with pytest.raises(ValueError, match="Expecting") as raised:
        decide()
    line = decide.__code__.co_firstlineno + 1
    assert f"(line {line})" in error_text(raised.value, "caller.py")


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize(
    ("piece", "smallest", "problem"),
    [
        (lambda seen, message: True, "one message to bob; delivery 1 comes twice", "more than once"),
        (lambda seen, message: message["number"] > seen, "to bob, then bob; delivery 1 is lost", "message 1 never entered"),
        (lambda seen, message: message["number"] == seen + 1, "to cy, then bob; nothing goes wrong", "message 2 never entered"),
        (lambda seen, message: False, "one message to bob; nothing goes wrong", "never entered"),
        (lambda seen, message: message["nummer"], "one message to bob; nothing", "it raises KeyError: 'nummer' (line"),
        (lambda: True, "one message to bob; nothing", "it raises TypeError"),
        (lambda seen, message: None, "one message to bob; nothing", "Your function returned None; expected True or False."),
    ],
)  # fmt: skip
def test_failure_is_the_smallest_scenario(piece: Any, smallest: str, problem: str):
    verdict = check_rejected("00_start_here", piece, problem, smallest)
    assert "Not yet." in str(verdict)
    assert problem in str(verdict)
    figure = verdict.diagram()
    assert len(figure.data) > 1
    assert str(judge("00_start_here", piece)) == str(verdict)


def make_doubling(least: int) -> Exercise:
    """Return an exercise that no chapter has."""

    def play(double: Any, number: int) -> PlayedScenario:
        doubled = double(number)
        return PlayedScenario(f"double({number})", None if doubled == 2 * number else f"it is {doubled}")

    return Exercise("double(x) -> twice x", "It is twice as much.", st.integers(least, 9), play)


def test_own_exercise_reports_exceptions():
    assert not judge(make_doubling(0), lambda x: 6 / (x - 3)).passed
    verdict = judge(make_doubling(5), lambda x: [][x])
    assert verdict.failure.scenario == "5"
    assert "it raises IndexError" in verdict.failure.problem


def test_verdict_mentions_results_that_are_not_repeatable():
    numbers = set()

    def remember_numbers(seen: int, message: Any) -> bool:
        is_new = message["number"] not in numbers
        numbers.add(message["number"])
        return is_new

    calls = []

    def fail_on_ninth_call(seen: int, message: Any) -> bool:
        calls.append(message)
        if len(calls) == 9:
            raise ValueError("tired")
        return message["after"] == seen

    for piece in (remember_numbers, fail_on_ninth_call):
        verdict = judge("00_start_here", piece)
        assert not verdict.passed
        assert "keep something from one call to the next" in verdict.failure.problem


def test_lab_error_is_not_a_failure_of_the_solution(monkeypatch: pytest.MonkeyPatch):
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("the lab is broken")

    monkeypatch.setattr("mudkit.exercises.start_here.Relay", broken)
    with pytest.raises(RuntimeError, match="the lab is broken"):
        judge("00_start_here", solution)


@pytest.mark.soak
@pytest.mark.process
def test_judging_leaves_no_files(tmp_path: Any):
    code = (
        "from mudkit.exercises import judge\n"
        "assert judge('00_start_here', lambda seen, message: message['after'] == seen).passed"
    )
    environment = {name: value for name, value in os.environ.items() if name != STORAGE}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=environment)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chosen", [None, "kept"])
def test_folder_that_is_chosen_for_hypothesis_is_kept(chosen: str | None, monkeypatch: pytest.MonkeyPatch):
    """Hypothesis reads this variable; without it, it would write to the working folder of the reader."""
    monkeypatch.delenv(STORAGE, raising=False)
    if chosen is not None:
        monkeypatch.setenv(STORAGE, chosen)
    folders: list[Any] = []
    monkeypatch.setattr(judging, "set_hypothesis_home_dir", folders.append)
    assert judge(IDLE, lambda number: number).passed
    assert len(folders) == (chosen is None)


def test_every_exercise_states_signature_and_property():
    for exercise in EXERCISES.values():
        assert exercise.property.endswith(".")
        assert "->" in exercise.signature


def test_own_exercise_is_judged_like_those_of_the_chapters():
    assert judge(make_doubling(0), lambda x: x + x).passed
    verdict = judge(make_doubling(0), lambda x: x + 1)
    result = verdict.chapter, verdict.failure.scenario, verdict.failure.problem
    assert result == ("double", "double(0)", "it is 1")


def never_end(*arguments: Any) -> bool:
    while True:
        try:
            time.sleep(1000)
        except Exception:
            continue


def loop(*arguments: Any) -> bool:
    while True:
        pass


@pytest.mark.parametrize(
    ("chapter", "piece", "within_s"),
    [("00_start_here", never_end, 1.2), ("00_start_here", loop, 0.2), ("06_context_propagation", loop, 0.2)],
)
def test_function_that_does_not_end_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, chapter: str, piece: Any, within_s: float
):
    monkeypatch.setattr("mudkit.exercises.judging._SCENARIO_S", 0.2)
    monkeypatch.setattr("mudkit.exercises.judging.WAIT_FACTOR", 6 if piece is never_end else 1e6)
    verdict = judge(chapter, piece)
    assert (verdict.passed, verdict.scenarios, verdict.is_smallest) == (False, 0, False)
    assert verdict.failure.problem == f"it did not end within {within_s:g} s"
    assert "ann" in str(verdict)
    assert "✘ Not yet" in verdict._repr_html_()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_time_of_all_scenarios_is_limited():
    clock = Clock(0.0)
    with pytest.raises(Overtime), clock.limit(1.0):
        pytest.fail("there is no time left")
    assert clock.is_over
    assert clock.reason(57, 200) == "only 57 of 200 scenarios ended within 0 s"
    with pytest.raises(ParameterError, match="time limit is not positive"):
        judge("00_start_here", solution, within_s=0.0)


@pytest.mark.parametrize("stopped_by", [SystemExit(3), GeneratorExit()])
def test_function_that_exits_has_failed(stopped_by: BaseException):
    def leave(seen: int, message: Any) -> bool:
        raise stopped_by

    assert f"it raises {type(stopped_by).__name__}" in str(judge("00_start_here", leave))


def test_stopped_judging_shows_no_traceback():
    def interrupt(seen: int, message: Any) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(Stopped) as caught:
        judge("00_start_here", interrupt)
    scenario = "ann sends one message to bob; nothing goes wrong."
    assert caught.value._render_traceback_() == [f"Stopped after 0 scenarios, in this one: {scenario}"]


ODD = [np.arange(3), object(), [[]], {}, "x", float("nan"), [object()], {1: 2}.items(), print, int]


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("chapter", EXERCISES)
def test_odd_answers_get_a_verdict(chapter: str):
    """No answer makes the judge raise an exception of its own."""
    for answer in ODD:
        assert isinstance(judge(chapter, lambda *arguments, answer=answer: answer), Judgement)


def test_answer_that_the_judge_cannot_use_is_a_failure():
    verdict = judge("00_start_here", lambda seen, message: np.arange(2))
    assert "it returned array([0, 1]), which the judge cannot use (ValueError" in verdict.failure.problem
    assert "expected True or False" in verdict.failure.problem


@pytest.mark.usefixtures("few_scenarios")
def test_older_diagrams_disappear(monkeypatch: pytest.MonkeyPatch):
    shown: list[Any] = []

    class Handle:
        def update(self, data: Any, raw: bool) -> None:
            shown.append(data)

    def display(data: Any, raw: bool, display_id: bool) -> Handle:
        shown.append(data)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("plotly.io.renderers.default", "plotly_mimetype")
    monkeypatch.setattr("plotly.io.renderers.render_on_display", True)
    judge("00_start_here", lambda seen, message: True).diagram()._ipython_display_()
    assert [*shown.pop()] == ["application/vnd.plotly.v1+json"]
    judge("00_start_here", solution)
    assert shown == [{"text/plain": "", "text/html": ""}]
    judge("00_start_here", solution)
    assert len(shown) == 1


@pytest.mark.usefixtures("few_scenarios")
def test_verdict_shows_result_rule_and_scenario():
    passed, failed = judge("00_start_here", solution), judge("00_start_here", lambda seen, message: True)
    assert "✔ Passed" in passed._repr_html_()
    html = failed._repr_html_()
    for part in ("✘ Not yet", "Broken rule", "in order.", "comes twice", "more than once"):
        assert part in html
    assert repr(failed) == str(failed)


@pytest.mark.parametrize(("before", "now"), [("Played", "PlayedScenario"), ("Verdict", "Judgement")])
def test_files_of_judges_for_version_0_2_find_the_names_of_then(before, now):
    """Their authors wrote ``from mudkit.exercises import Exercise, Played``; the table of names is in CHANGELOG."""
    assert getattr(exercises, before) is getattr(exercises, now)
    assert before not in dir(exercises)


@pytest.mark.parametrize(
    ("is_smallest", "title"), [(True, "smallest scenario"), (False, "A scenario that fails")]
)
def test_title_of_a_diagram_says_whether_the_scenario_is_the_smallest(is_smallest: bool, title: str):
    """See :attr:`Judgement.is_smallest`: time may be over before smaller ones are tried."""

    def picture() -> go.Figure:
        return go.Figure(layout={"title": {"text": judging.FAILURE_TITLE}})

    failure = PlayedScenario("one", "it is wrong", picture=picture)
    figure = Judgement("chapter", "It is right.", False, 1, failure, is_smallest).diagram()
    assert title in figure.layout.title.text


def test_shown_diagram_is_removed_by_the_next_judgement(monkeypatch: pytest.MonkeyPatch):
    updates: list[Any] = []
    handle = SimpleNamespace(update=lambda data, raw: updates.append(data))
    monkeypatch.setattr("IPython.display.display", lambda *arguments, **options: handle)
    monkeypatch.setattr("plotly.io.renderers.default", "plotly_mimetype")
    monkeypatch.setattr("plotly.io.renderers.render_on_display", True)
    judging._Diagram()._ipython_display_()
    assert updates == []
    judging.clear_diagrams()
    judging.clear_diagrams()
    assert updates == [{"text/plain": "", "text/html": ""}]


@pytest.mark.parametrize(("all_s", "most_s"), [(0.5, 100.0), (100.0, 0.5)])
def test_body_is_interrupted_at_the_earlier_of_two_limits(all_s: float, most_s: float):
    """See :meth:`Clock.limit`: after its own time, or at the end of the time of all."""
    clock = Clock(all_s, lambda: 0.0)
    with clock.limit(most_s):
        assert 0.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.5


def test_judge_itself_is_interrupted_only_after_a_while(monkeypatch: pytest.MonkeyPatch):
    """See ``_GRACE_S``: a lab that is interrupted between two of its steps could be left half changed."""
    now_s = 0.0
    monkeypatch.setattr(judging, "monotonic", lambda: now_s)
    clock = Clock(0.0, lambda: 0.0)
    clock._interrupt(signal.SIGALRM, sys._getframe())
    now_s = judging._GRACE_S + 0.1
    with pytest.raises(Overtime):
        clock._interrupt(signal.SIGALRM, sys._getframe())
