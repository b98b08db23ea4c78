"""Predicates as JSON: round trips preserve equality and meaning."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from predicate_strategies import numbers, points, scopes, strings

from mudkit.predicates import Point, Predicate
from mudkit.predicates.exchange import from_json, to_json

TEXT = (
    "a = :x OR b IN :l OR NOT receiver.a IN (1, 'x', NULL, TRUE, -0.5) OR c = sender.x OR sender.y IS NULL"
    " OR p = :p OR p IN :ps OR within_km(receiver.p, sender.p, 5) OR auth.s = sender.home.s OR s LIKE 'a%'"
)
constants = st.one_of(st.none(), st.booleans(), numbers, strings, points)
json_structs = st.dictionaries(
    strings, st.one_of(st.none(), st.booleans(), numbers, strings, st.lists(numbers, max_size=3)), max_size=3
)


def pass_json(sent: Any) -> Any:
    return json.loads(json.dumps(sent, allow_nan=False))


def pass_msgspec(sent: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(sent))


def pass_msgpack(sent: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(sent))


def check_round_trip(predicate: Predicate) -> Predicate:
    """Check that a predicate is equal after a round trip in each encoding; return a copy."""
    result = []
    for transfer in (pass_json, pass_msgspec, pass_msgpack):
        received = from_json(transfer(to_json(predicate)))
        assert received == predicate
        assert received.text == predicate.text
        assert [type(constant) for constant in received.constants] == [
            type(constant) for constant in predicate.constants
        ]
        result.append(received)
    return result[0]


@given(
    x=constants, items=st.lists(constants, max_size=6), p=points, ps=st.lists(points, max_size=3),
    sender=st.fixed_dictionaries({}, optional={
        "x": constants | json_structs, "y": constants | json_structs, "p": points, "home": json_structs,
    }),
    data=st.lists(scopes, min_size=1, max_size=3),
)  # fmt: skip
def test_round_trip_of_constants(x, items, p, ps, sender, data):
    predicate = Predicate(TEXT, x=x, l=items, p=p, ps=ps).bind(sender=sender)
    received = check_round_trip(predicate)
    for row in data:
        expected, value = (
            evaluate(row["record"], receiver=row["receiver"], auth=row["auth"])
            for evaluate in (predicate, received)
        )
        assert expected is value


def test_points_and_structs_are_distinguished():
    text = "sender.a IS NOT NULL AND receiver.x = sender.a"
    for place in ((1, 2), {"lat": 1, "lon": 2}):
        received = check_round_trip(Predicate(text).bind(sender={"a": place}))
        assert received.constants == (Point(1, 2), Point(1, 2)) or received.constants == (Point(1, 2),)
        assert received({}, receiver={"x": [1, 2]}) is True
    received = check_round_trip(Predicate(text).bind(sender={"a": {"point": [1, 2], "in": [3]}}))
    assert received({}, receiver={"x": (1, 2)}) is None


def test_tuples_in_structs_become_lists():
    bound = Predicate("sender.home IS NOT NULL").bind(sender={"home": {"loc": (1, 2)}})
    assert pass_json(to_json(bound)) == to_json(bound)


def test_none_stays_none():
    assert to_json(None) is None
    assert from_json(None) is None


def test_round_trip_without_a_value_of_the_sender():
    assert (
        check_round_trip(Predicate("a = sender.x AND b = sender.y").bind(sender={"x": 1}))({"a": 1}) is None
    )


def test_equal_lists_have_equal_encodings():
    one, other = (to_json(Predicate("a IN :l", l=items)) for items in ([0, 8, "b", "a"], ["a", "b", 8, 0]))
    assert json.dumps(one) == json.dumps(other)


def test_changing_the_encoding_does_not_change_the_predicate():
    predicate = Predicate("a IN :l AND p = :p", l=[1, 2], p=(1, 2))
    sent = to_json(predicate)
    sent["constants"].clear()
    assert predicate({"a": 1, "p": (1, 2)}) is True
