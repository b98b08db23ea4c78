"""Solutions that a judge is tried with: the most telling in `make test`, all in the soak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

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
