import json
from dataclasses import asdict, dataclass, fields

import numpy as np
import pytest

from mudkit.errors import ParameterError
from mudkit.sources.city import CommuterTown
from mudkit.sources.parameters import check_ranges, number, of_kind, rate, split_rates, whole_number
from mudkit.sources.phones import PhoneUse


@dataclass(frozen=True)
class Tea:
    cups: int = rate(2, 1, 10)
    heat_c: float = rate(80.0, 60.0, 100.0)
    shares: tuple[float, ...] = rate((0.5, 0.25), 0.0, 1.0)
    name: str = "assam"

    def __post_init__(self):
        check_ranges(self)


@dataclass(frozen=True)
class Cake:
    slices: int = rate(1, 0, 8)


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


@pytest.mark.parametrize(
    ("kind", "field"),
    [(kind, field) for kind in (CommuterTown, PhoneUse) for field in fields(kind)],
    ids=lambda value: getattr(value, "name", None),
)
def test_every_rate_has_a_range(kind, field):
    def build(value):
        return kind(**{field.name: (value,) * 3 if isinstance(field.default, tuple) else value})

    for wrong in (None, "much"):
        with pytest.raises(ParameterError) as caught:
            kind(**{field.name: wrong})
        assert caught.value.where == field.name
    low, high = field.metadata["low"], field.metadata["high"]
    if kind is CommuterTown:
        assert build(low) != build(high), "the ends belong to the range"
    for outside in (low - 1, high + 1):
        with pytest.raises(ParameterError, match=field.name):
            build(outside)
