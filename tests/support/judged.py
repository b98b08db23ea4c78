"""Selection of the solutions for tests of a judge, and checks of its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings

from mudkit.exercises import EXERCISES, PlayedScenario, judge, judging
from mudkit.exercises.judging import judged

DEFAULT_KEPT = 3


def mark_soak(cases: Mapping[str, Any] | Sequence[Any], *telling: str) -> list[Any]:
    """Return cases for `parametrize`; all but the most significant are marked `soak`.

    Parameters
    ----------
    cases : mapping or sequence
        Arguments of a test, in a mapping by the name of the case.
    telling : str
        Names of the most significant cases. In a sequence these are the first three.
    """
    if isinstance(cases, Mapping):
        assert set(telling) <= set(cases)
        named = [(name, case, name in telling) for name, case in cases.items()]
    else:
        named = [(None, case, place < DEFAULT_KEPT) for place, case in enumerate(cases)]
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=name,
            marks=() if is_kept else pytest.mark.soak,
        )
        for name, case, is_kept in named
    ]


def check_accepted(chapter: str, piece: Any, scenarios: int | None = None) -> None:
    """Check that a solution passes in a number of scenarios: by default 50, in the soak as many as users have."""
    scenarios = scenarios or min(judging._SCENARIOS, 2 * settings.default.max_examples)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "_SCENARIOS", scenarios)
        verdict = judge(chapter, piece)
    assert verdict.passed, str(verdict)
    assert verdict.scenarios == scenarios
    assert verdict.diagram() is None


def check_rejected(chapter: str, piece: Any, problem: str, scenario: str = "") -> Any:
    """Check that a solution fails with a given problem; return the verdict."""
    verdict = judge(chapter, piece)
    assert not verdict.passed
    assert problem in verdict.failure.problem, str(verdict)
    assert scenario in verdict.failure.scenario, str(verdict)
    return verdict


def draw_scenarios(chapter: str) -> list[Any]:
    """Return the scenarios in which a judge tries a solution that has no mistake."""
    scenarios: list[Any] = []

    def record(piece: Any, scenario: Any) -> PlayedScenario:
        scenarios.append(scenario)
        return PlayedScenario("", None)

    judged(chapter, replace(EXERCISES[chapter], play=record), lambda: None)
    return scenarios


def count_failures(chapter: str, piece: Any, scenarios: Sequence[Any]) -> int:
    """Return how many scenarios show a mistake."""
    exercise = EXERCISES[chapter]
    failed = 0
    for scenario in scenarios:
        try:
            failed += exercise.play(piece, scenario).problem is not None
        except Exception:  # the judge counts an exception of a solution as a failure
            failed += 1
    return failed
