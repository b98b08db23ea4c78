"""Plans of experiments: each number is checked against its declared range."""

from dataclasses import fields

import pytest

from mudkit.checks import annotations_of
from mudkit.errors import ParameterError
from mudkit.experiment import Afternoon
from mudkit.worlds import (
    Audience,
    Commuters,
    Crew,
    Journal,
    NewsReader,
    PhoneApps,
    Traffic,
    Ward,
)

PLANS = (Afternoon, Audience, Commuters, Crew, Journal, NewsReader, PhoneApps, Traffic, Ward)
NUMBERS = [
    pytest.param(plan, declared, id=f"{plan.__name__}.{declared.name}")
    for plan in PLANS
    for declared in fields(plan)
    if isinstance(declared.default, int | float)
]


@pytest.mark.parametrize(("plan", "declared"), NUMBERS)
def test_numbers_are_checked_against_their_declared_range(plan, declared):
    (limits,) = annotations_of(plan.__init__)[declared.name].__metadata__
    low, high = limits.low, limits.high
    for limit in (low, high):
        assert getattr(plan(**{declared.name: limit}), declared.name) == limit
    for wrong in (low - 1, high + 1, "many", None, True, float("nan")):
        with pytest.raises(ParameterError) as info:
            plan(**{declared.name: wrong})
        assert info.value.where == declared.name
        assert "from" in info.value.expected


@pytest.mark.parametrize("plan", PLANS)
def test_integers_are_converted_to_declared_floats(plan):
    for declared in fields(plan):
        if type(declared.default) is float:
            (limits,) = annotations_of(plan.__init__)[declared.name].__metadata__
            value = getattr(plan(**{declared.name: int(limits.high)}), declared.name)
            assert type(value) is float
