"""Checks of the arguments of public calls against their annotations."""

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


def test_valid_arguments_are_passed_on():
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
def test_error_names_the_first_invalid_argument(args, kwargs, where):
    with pytest.raises(ParameterError) as caught:
        call(*args, **kwargs)
    assert caught.value.where == where


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1,), {"a": 1}), ((), {"b": "x"})])
def test_arguments_outside_the_signature_are_refused(args, kwargs):
    with pytest.raises(ParameterError, match="call takes other arguments"):
        call(*args, **kwargs)


def test_type_error_inside_the_call_is_not_hidden():
    @check_arguments
    def fail(a: int) -> int:
        return a + "x"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        fail(1)


@check_arguments
def draw(kind: Literal["lognormal", "fixed"], colour: str | Literal["red"] | None = None) -> str:
    return kind


def test_unknown_option_gets_a_suggestion():
    with pytest.raises(ParameterError) as caught:
        draw("fixed", color="red")
    assert caught.value.remedy == "did you mean 'colour'?"


def test_unknown_literal_gets_a_suggestion():
    with pytest.raises(ParameterError) as caught:
        draw("log-normal")
    assert caught.value.expected == "'lognormal' or 'fixed'"
    assert caught.value.remedy == "did you mean 'lognormal'?"
