"""Arguments of public calls fit their annotations, or are refused in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from mudkit.arguments import check_arguments, fits
from mudkit.errors import ParameterError

NAN = float("nan")
HINTS = [
    (int, [0, -1, np.int64(3)], [None, True, 1.0, NAN, "1"]),
    (float, [0, 1.5, np.float32(2)], [None, True, NAN, "1.5", 1j]),
    (bool, [True, np.bool_(False)], [0, None, "True"]),
    (str, ["", "é"], [None, 3, b"a", ["a"], "\ud800"]),
    (int | None, [None, 3], [NAN, "3", True]),
    (int | str | None, [None, 3, "3"], [NAN, 1.5]),
    (Literal["a", 1], ["a", 1], ["b", True, 1.0, None]),
    (Annotated[float, "a share"], [0.5], [NAN, "x"]),
    (Callable[[int], int], [len], [None, 5, "len"]),
    (Sequence[int], [[1], (1, 2), np.array([1])], [None, "12", b"12", {1: 2}, ["a"], [True]]),
    (Iterable[str], [["a"], {"a"}, iter(["a"])], ["a", 3, [3]]),
    (tuple[float, float], [(1, 2), [1.0, 2.0]], [(1,), (1, 2, 3), ("a", "b"), None, 1]),
    (tuple[int, ...], [(), (1, 2)], [(1.5,), 3]),
    (Mapping[str, Any], [{}, {"a": None}], [None, [], {1: 2}, "a"]),
    (Mapping[str, int], [{"a": 1}], [{"a": "1"}]),
    (Any, [None, 3, NAN], []),
]


@pytest.mark.parametrize(("hint", "good", "bad"), HINTS, ids=lambda value: str(value)[:40])
def test_values_fit_annotations(hint, good, bad):
    assert [value for value in good if not fits(value, hint)] == []
    assert [value for value in bad if fits(value, hint)] == []


@check_arguments
def call(a: int, b: str = "x", *more: int, c: float | None = None, **rest: str) -> tuple[Any, ...]:
    return a, b, more, c, rest


def test_arguments_that_fit_are_handed_over():
    assert call(1) == (1, "x", (), None, {})
    assert call(1, "y", 2, 3, c=0.5, d="z") == (1, "y", (2, 3), 0.5, {"d": "z"})


@pytest.mark.parametrize(
    ("args", "kwargs", "where"),
    [
        (("1",), {}, "a"),
        ((1, 2), {}, "b"),
        ((1, "x", 2, "3"), {}, "more[1]"),
        ((1,), {"c": "1"}, "c"),
        ((1,), {"d": 1}, "d"),
        ((), {"a": None}, "a"),
    ],
)
def test_the_first_argument_that_does_not_fit_is_named(args, kwargs, where):
    with pytest.raises(ParameterError) as refused:
        call(*args, **kwargs)
    assert refused.value.where == where


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1,), {"a": 1}), ((), {"b": "x"})])
def test_arguments_that_do_not_fit_the_signature_are_refused(args, kwargs):
    with pytest.raises(ParameterError, match="call takes other arguments"):
        call(*args, **kwargs)


def test_a_type_error_of_the_call_itself_is_not_hidden():
    @check_arguments
    def fails(a: int) -> int:
        return a + "x"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        fails(1)


@check_arguments
def draw(kind: Literal["lognormal", "fixed"], colour: str | Literal["red"] | None = None) -> str:
    return kind


def test_an_unknown_option_gets_a_suggestion():
    with pytest.raises(ParameterError) as refused:
        draw("fixed", color="red")
    assert refused.value.remedy == "did you mean 'colour'?"


def test_an_unknown_text_of_a_fixed_set_gets_a_suggestion():
    with pytest.raises(ParameterError) as refused:
        draw("log-normal")
    assert refused.value.expected == "'lognormal' or 'fixed'"
    assert refused.value.remedy == "did you mean 'lognormal'?"
