"""Contexts and their encoding."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from mudkit.errors import ParameterError
from mudkit.systems.radiator import Context, pack, unpack


def test_get_returns_the_default_for_a_missing_attribute():
    assert Context({"ann"}).get("loc", 3) == 3


def test_attributes_are_any_mapping_and_nothing_else():
    assert Context({"ann"}, MappingProxyType({"loc": 3}))["loc"] == 3
    with pytest.raises(ParameterError, match="a mapping of names to values"):
        Context({"ann"}, [("loc", 3)])


def test_context_survives_a_round_trip_through_encoding():
    context = Context({"b", "a"}, {"loc": [1.5, 2.5], "text": "á"}, (1, 2))
    for compress in (False, True):
        assert Context.from_dict(unpack(pack(context.to_dict(), compress))) == context
    assert Context.from_dict(unpack(pack(Context().to_dict(), True))) == Context()
    assert pack(context.to_dict(), True) == pack(context.to_dict(), True), "no time of day in it"
