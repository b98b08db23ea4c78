"""Contexts, and how they are sent."""

from __future__ import annotations

from mudkit.systems.radiator import Context, pack, unpack


def test_a_missing_attribute_may_have_a_value_all_the_same():
    assert Context({"ann"}).get("loc", 3) == 3


def test_it_comes_back_from_the_network():
    context = Context({"b", "a"}, {"loc": [1.5, 2.5], "text": "á"}, (1, 2))
    for compress in (False, True):
        assert Context.from_dict(unpack(pack(context.to_dict(), compress))) == context
    assert Context.from_dict(unpack(pack(Context().to_dict(), True))) == Context()
    assert pack(context.to_dict(), True) == pack(context.to_dict(), True), "no time of day in it"
