"""Contexts, and how they are sent."""

from __future__ import annotations

import pytest

from mudkit.errors import ContextProblem, ParameterError
from mudkit.systems.radiator import Context, pack, unpack


@pytest.mark.parametrize(
    "given",
    [
        {"people": "ann"},
        {"people": [1]},
        {"people": 3},
        {"attributes": [1]},
        {"span_us": (5, 1)},
        {"span_us": 3},
        {"span_us": (0.5, 1)},
    ],
)
def test_what_is_no_context(given):
    with pytest.raises(ParameterError, match=next(iter(given))):
        Context(**given)


def test_a_missing_attribute_says_what_there_is():
    with pytest.raises(ContextProblem, match=r"'loc'[\s\S]*ann[\s\S]*'speed'"):
        Context({"ann"}, {"speed": 1})["loc"]
    assert Context({"ann"}).get("loc", 3) == 3


def test_it_comes_back_from_the_network():
    context = Context({"b", "a"}, {"loc": [1.5, 2.5], "text": "á"}, (1, 2))
    for compress in (False, True):
        assert Context.from_dict(unpack(pack(context.to_dict(), compress))) == context
    assert Context.from_dict(unpack(pack(Context().to_dict(), True))) == Context()
    assert pack(context.to_dict(), True) == pack(context.to_dict(), True), "no time of day in it"
