"""Solutions that a judge is tried with, the most telling in `make test` and all in the soak; and its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mudkit.exercises import judge

KEPT = 3


def most_telling(cases: Mapping[str, Any] | Sequence[Any], *telling: str) -> list[Any]:
    """List cases for `parametrize`, all but the most telling marked `soak`.

    Parameters
    ----------
    cases : mapping or sequence
        Arguments of a test, in a mapping by the name of the case.
    telling : str
        The names of the most telling. In a sequence they are the first three.
    """
    if isinstance(cases, Mapping):
        assert set(telling) <= set(cases)
        named = [(name, case, name in telling) for name, case in cases.items()]
    else:
        named = [(None, case, place < KEPT) for place, case in enumerate(cases)]
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=name,
            marks=() if is_kept else pytest.mark.soak,
        )
        for name, case, is_kept in named
    ]


def accepted(chapter: str, piece: Any) -> None:
    """Check that a solution passes in all scenarios."""
    verdict = judge(chapter, piece)
    assert verdict.passed, str(verdict)
    assert verdict.scenarios == 200
    assert verdict.diagram() is None


def rejected(chapter: str, piece: Any, problem: str, scenario: str = "") -> Any:
    """Check that a solution does not pass, and what is said of it; return the verdict."""
    verdict = judge(chapter, piece)
    assert not verdict.passed
    assert problem in verdict.failure.problem, str(verdict)
    assert scenario in verdict.failure.scenario, str(verdict)
    return verdict
