"""Checks of arguments against annotations, and of values."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Protocol, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from references import import_all

from mudkit.checks import (
    OneOf,
    Range,
    annotations_of,
    check_arguments,
    described,
    fits,
    is_storable,
    number,
    of_kind,
    split_rates,
    whole_number,
)
from mudkit.errors import ParameterError
from mudkit.sources.city import CommuterTown
from mudkit.sources.phones import PhoneUse

NAN = float("nan")


class Indexed(Protocol):
    """Protocol with two methods, of which a set has one."""

    def index(self, value: Any) -> int: ...

    def copy(self) -> Any: ...


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
    (Indexed, [[1]], [None, {1}, "a", (1,)]),
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


@check_arguments(types=False)
@dataclass(frozen=True)
class Tea:
    cups: Annotated[int, Range(1, 10)] = 2
    heat_c: Annotated[float, Range(60.0, 100.0)] = 80.0
    shares: Annotated[tuple[float, float], Range(0.0, 1.0)] = (0.5, 0.25)
    name: str = "assam"


@check_arguments(types=False)
@dataclass(frozen=True)
class Cake:
    slices: Annotated[int, Range(0, 8)] = 1


@pytest.mark.parametrize(
    ("given", "where", "expected"),
    [
        ({"cups": 0}, "cups", "a whole number from 1 to 10"),
        ({"cups": 11}, "cups", "a whole number from 1 to 10"),
        ({"cups": 2.0}, "cups", "a whole number from 1 to 10"),
        ({"cups": True}, "cups", "a whole number from 1 to 10"),
        ({"cups": "2"}, "cups", "a whole number from 1 to 10"),
        ({"heat_c": 59.999}, "heat_c", "a number from 60 to 100"),
        ({"heat_c": float("nan")}, "heat_c", "a number from 60 to 100"),
        ({"heat_c": float("inf")}, "heat_c", "a number from 60 to 100"),
        ({"heat_c": None}, "heat_c", "a number from 60 to 100"),
        ({"heat_c": False}, "heat_c", "a number from 60 to 100"),
        ({"shares": 0.5}, "shares", "2 numbers, each from 0 to 1"),
        ({"shares": (0.5, 0.5, 0.5)}, "shares", "2 numbers, each from 0 to 1"),
        ({"shares": (0.5, 1.5)}, "shares[1]", "a number from 0 to 1"),
    ],
)
def test_invalid_value_error_names_field_and_range(given, where, expected):
    with pytest.raises(ParameterError) as caught:
        Tea(**given)
    assert caught.value.where == where
    assert caught.value.expected == expected
    assert caught.value.found is not None


def test_bounds_are_inclusive_and_values_are_converted():
    tea = Tea(cups=np.int64(10), heat_c=100, shares=[0, np.float32(1.0)])
    assert tea == Tea(10, 100.0, (0.0, 1.0))
    assert json.dumps(asdict(tea)) == '{"cups": 10, "heat_c": 100.0, "shares": [0.0, 1.0], "name": "assam"}'


def test_whole_number():
    assert whole_number("n", np.int32(3), 1, 3) == 3
    with pytest.raises(ParameterError, match="The parameter n is not usable"):
        whole_number("n", 4, 1, 3)


def test_limits_are_written_in_full():
    with pytest.raises(ParameterError, match=r"from 1 to 9,223,372,036,854,775,807$"):
        whole_number("n", 0, 1, (1 << 63) - 1)
    with pytest.raises(ParameterError, match=r"from 0\.000001 to 1,000,000,000$"):
        number("n", -1, 1e-6, 1e9)


def test_of_kind():
    of_kind("tea", Tea(), Tea, Cake, expected="a Tea")
    for given, result in ((["a"], "['a']"), (Cake(), "a Cake"), (Tea, "Tea"), (len, "len")):
        with pytest.raises(ParameterError, match="a Tea, such as") as caught:
            of_kind("tea", given, Tea, expected="a Tea, such as Tea()")
        assert (caught.value.where, caught.value.found) == ("tea", result)


def test_rates_are_split_by_class():
    assert split_rates({"slices": 2, "cups": 3}, Tea, Cake) == [{"cups": 3}, {"slices": 2}]


def test_unknown_rate_error_suggests_the_nearest():
    with pytest.raises(ParameterError, match="did you mean 'heat_c'") as caught:
        split_rates({"heat": 90}, Tea, Cake)
    assert caught.value.where == "heat"
    assert "slices" in caught.value.expected


RANGES = [
    pytest.param(kind, name, hint, id=f"{kind.__name__}.{name}")
    for kind in (CommuterTown, PhoneUse)
    for name, hint in get_type_hints(kind, include_extras=True).items()
]


@pytest.mark.parametrize(("kind", "name", "hint"), RANGES)
def test_every_rate_has_a_range(kind, name, hint):
    def build(value):
        return kind(**{name: (value,) * 3 if get_origin(get_args(hint)[0]) is tuple else value})

    for wrong in (None, "much"):
        with pytest.raises(ParameterError) as caught:
            kind(**{name: wrong})
        assert caught.value.where == name
    (limits,) = hint.__metadata__
    if kind is CommuterTown:
        assert build(limits.low) != build(limits.high), "the ends belong to the range"
    for outside in (limits.low - 1, limits.high + 1):
        with pytest.raises(ParameterError, match=name):
            build(outside)


class Cup:
    """Class with a method that refuses in words of its own."""

    @check_arguments
    def __init__(self, size_ml: Annotated[float, Range(50.0, 500.0)]) -> None:
        self.size_ml = size_ml

    def fill(self, share: Annotated[float, Range(0.0, 1.0)] | None = None, *more: float) -> float | None:
        return share

    @classmethod
    def of(cls, kind: Annotated[str, OneOf(SIZES, "There is no such cup.")]) -> Cup:
        return cls(SIZES[kind])

    @check_arguments(types=False)
    def describe(self, language: str) -> Any:
        return language

    def _hidden(self, share: float) -> Any:
        return share


SIZES = {"mug": 300.0, "espresso": 60.0}
Cup = check_arguments(Cup)


def test_class_decorates_constructor_and_public_methods_but_none_twice():
    cup = Cup.of("mug")
    assert (cup.fill(), cup.fill(None), cup.fill(1), cup.fill(0.5, 1.0)) == (None, None, 1.0, 0.5)
    assert type(cup.fill(1)) is float
    assert cup._hidden("x") == "x"
    assert cup.describe(3) == 3, "the method takes values of other types"
    with pytest.raises(ParameterError, match=r"Cup.describe takes other arguments"):
        cup.describe(languge="de")


@pytest.mark.parametrize(
    ("call", "summary", "where", "expected"),
    [
        (lambda: Cup("a"), "The parameter size_ml of Cup is not usable.", "size_ml", "a number"),
        (lambda: Cup(49), "The parameter size_ml is not usable.", "size_ml", "a number from 50 to 500"),
        (lambda: Cup(60).fill(2), "The parameter share is not usable.", "share", "a number from 0 to 1"),
        (
            lambda: Cup(60).fill(share=-1),
            "The parameter share is not usable.",
            "share",
            "a number from 0 to 1",
        ),
        (lambda: Cup.of("mugg"), "There is no such cup.", "kind", "mug, espresso"),
        (lambda: Cup.of(3), "The parameter kind of Cup.of is not usable.", "kind", "a text"),
        (
            lambda: Cup(60).fill(shares=1),
            "Cup.fill takes other arguments.",
            None,
            "fill(self, share: 'float | None' = None, *more: 'float') -> 'float | None'",
        ),
    ],
)
def test_types_are_refused_before_marks(call, summary, where, expected):
    with pytest.raises(ParameterError) as caught:
        call()
    assert (caught.value.summary, caught.value.where, caught.value.expected) == (summary, where, expected)


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (list[int], "a sequence, each a whole number"),
        (tuple[str, ...], "a sequence, each a text"),
        (tuple[int, str] | None, "(a whole number, a text) or None"),
        (list, "a list"),
    ],
)
def test_annotations_of_sequences_are_described_with_their_items(hint, expected):
    def drink(given):
        return given

    drink.__annotations__["given"] = hint
    with pytest.raises(ParameterError) as caught:
        check_arguments(drink)(3)
    assert caught.value.expected == expected


def test_described_class_is_named_in_these_words():
    @described("a pot, such as lab.pot()")
    class Pot:
        pass

    @check_arguments
    def pour(pot: Any) -> None: ...

    pour.__wrapped__.__annotations__["pot"] = Pot
    with pytest.raises(ParameterError) as caught:
        pour(3)
    assert caught.value.expected == "a pot, such as lab.pot()"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("é", True), ("\ud800", False), ((1 << 63) - 1, True), (1 << 63, False), (0.5, True), (float("nan"), False),
        (None, True), (b"a", False), ({"a": [1]}, True), ({1: 1}, False), ((1,), False), ([[[1]]], False),
        ([1, b"a"], False), ({"a": 1, "b": b"a"}, False),
    ],
)  # fmt: skip
def test_is_storable(value, expected):
    assert is_storable(value, deepest=2) is expected
    assert is_storable(b"a", has_bytes=True)


def marked_parameters():
    """Yield what has a mark in the annotation of a parameter: the function, whether it is decorated, the name."""
    for module in import_all():
        for kind in [module, *filter(inspect.isclass, vars(module).values())]:
            for member in vars(kind).values():
                function = getattr(member, "__func__", member)
                if inspect.isfunction(function) and function.__module__ == module.__name__:
                    for name, text in function.__annotations__.items():
                        if isinstance(text, str) and re.search(r"\b(Range|OneOf)\(", text):
                            yield function, name


def test_every_mark_is_compiled_and_checked():
    """A name that cannot be resolved makes an annotation Any, which would drop its mark without a word."""
    marked = list(marked_parameters())
    assert len(marked) > 200
    hidden = [
        f"{function.__module__}.{function.__qualname__}({name})"
        for function, name in marked
        if not hasattr(function, "__wrapped__") or annotations_of(function)[name] is Any
    ]
    assert hidden == []


def test_limits_have_the_type_of_the_number():
    for function, name in marked_parameters():
        hint = annotations_of(function)[name]
        for part in (hint, *get_args(hint)):
            for mark in getattr(part, "__metadata__", ()):
                if isinstance(mark, Range):
                    assert mark.low < mark.high, f"{function.__qualname__}({name})"
                    if get_args(part)[0] is int:
                        assert (type(mark.low), type(mark.high)) == (int, int), (
                            f"{function.__qualname__}({name})"
                        )
