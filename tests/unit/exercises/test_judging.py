"""The judge finds what is wrong, makes it small, and draws it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import strategies as st

from mudkit.errors import ParameterError
from mudkit.exercises import EXERCISES, Exercise, Played, judge


def solution(seen: int, message: Any) -> bool:
    return message["after"] == seen


def test_the_solution_passes():
    verdict = judge("00_start_here", solution)
    assert verdict.passed
    assert verdict.failure is None
    assert verdict.diagram() is None
    assert verdict.scenarios == 200
    assert str(verdict).startswith("Passed.")


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize(
    ("piece", "smallest", "problem"),
    [
        (lambda seen, message: True, "one message to bob; delivery 1 comes twice", "more than once"),
        (lambda seen, message: message["number"] > seen, "to bob, bob; delivery 1 is lost", "message 1 never entered"),
        (lambda seen, message: message["number"] == seen + 1, "to cy, bob; nothing goes wrong", "message 2 never entered"),
        (lambda seen, message: False, "one message to bob; nothing goes wrong", "never entered"),
        (lambda seen, message: message["nummer"], "one message to bob; nothing", "it raises KeyError: 'nummer' (line"),
        (lambda: True, "one message to bob; nothing", "it raises TypeError"),
    ],
)  # fmt: skip
def test_failure_is_the_smallest_scenario(piece: Any, smallest: str, problem: str):
    verdict = judge("00_start_here", piece)
    assert not verdict.passed
    assert smallest in verdict.failure.scenario
    assert problem in verdict.failure.problem
    assert "Not yet." in str(verdict)
    assert problem in str(verdict)
    figure = verdict.diagram()
    assert len(figure.data) > 1
    assert str(judge("00_start_here", piece)) == str(verdict)


def test_own_exercise_reports_exceptions():
    def play(double: Any, number: int) -> Played:
        return Played(f"double({number})", None if double(number) == 2 * number else "no")

    verdict = judge(
        Exercise("double(x) -> twice x", "It is twice as much.", st.integers(0, 9), play),
        lambda x: 6 / (x - 3),
    )
    assert not verdict.passed
    fails = Exercise("double(x) -> twice x", "It is twice as much.", st.integers(5, 9), play)
    verdict = judge(fails, lambda x: [][x])
    assert verdict.failure.scenario == "5"
    assert "it raises IndexError" in verdict.failure.problem


def test_verdict_mentions_results_that_are_not_repeatable():
    known = set()

    def remembers(seen: int, message: Any) -> bool:
        is_new = message["number"] not in known
        known.add(message["number"])
        return is_new

    calls = []

    def moody(seen: int, message: Any) -> bool:
        calls.append(message)
        if len(calls) == 9:
            raise ValueError("tired")
        return message["after"] == seen

    for piece in (remembers, moody):
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
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("chapter", "piece", "problem"),
    [("00_start", solution, "00_start_here"), ("00_start_here", 3, "take\\(seen, message\\)")],
)
def test_judge_refuses(chapter: str, piece: Any, problem: str):
    with pytest.raises(ParameterError, match=problem):
        judge(chapter, piece)


def test_every_exercise_states_signature_and_property():
    for exercise in EXERCISES.values():
        assert exercise.property.endswith(".")
        assert "->" in exercise.asks_for


def test_own_exercise_is_judged_like_those_of_the_chapters():
    def play(double: Any, number: int) -> Played:
        doubled = double(number)
        return Played(f"double({number})", None if doubled == 2 * number else f"it is {doubled}")

    doubling = Exercise("double(x) -> twice x", "It is twice as much.", st.integers(0, 9), play)
    assert judge(doubling, lambda x: x + x).passed
    verdict = judge(doubling, lambda x: x + 1)
    assert (verdict.chapter, verdict.failure.scenario, verdict.failure.problem) == (
        "double",
        "double(0)",
        "it is 1",
    )


def test_verdict_on_none_states_the_expected_value():
    verdict = judge("00_start_here", lambda seen, message: None)
    assert "Your function returned None; expected True or False." in str(verdict)


def test_verdict_shows_result_rule_and_scenario():
    passed, failed = judge("00_start_here", solution), judge("00_start_here", lambda seen, message: True)
    assert "✔ Passed" in passed._repr_html_()
    html = failed._repr_html_()
    for part in ("✘ Not yet", "Broken rule", "in order.", "comes twice", "more than once"):
        assert part in html
    assert repr(failed) == str(failed)
