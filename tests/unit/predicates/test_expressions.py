"""Expressions of one record and aggregates of many."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicate_strategies import values

from mudkit.predicates import Aggregates, Language, Point
from mudkit.predicates.expressions import Expression

ALL = "count(*), count(x), sum(x), avg(x), min(x), max(x), sum(x * 2), min(coalesce(y, 'none'))"

SUBLIM = Language(("message", "state"), bound=(), schema={"message": {"pulse": "number"}})


def test_aggregates_of_records() -> None:
    a = Aggregates("count(*), avg(speed), max(name)")
    assert a.names == ["count(*)", "avg(speed)", "max(name)"]
    assert a.result(a.of([{"speed": 1, "name": "a"}, {"speed": "fast", "name": "b"}, {"speed": 4}])) == {
        "count(*)": 3,
        "avg(speed)": 2.5,
        "max(name)": "b",
    }
    assert a.result(a.of([])) == {"count(*)": 0, "avg(speed)": None, "max(name)": None}


def test_sums_are_exact_and_overflow_is_null() -> None:
    a = Aggregates("sum(x), avg(x)")
    assert a.result(a.of([{"x": 1e300}, {"x": 1.0}, {"x": -1e300}])) == {"sum(x)": 1.0, "avg(x)": 1 / 3}
    assert a.result(a.of([{"x": 1.7e308}] * 2)) == {"sum(x)": None, "avg(x)": 1.7e308}
    assert a.result(a.of([{"x": 5e-324}] * 3)) == {"sum(x)": 1.5e-323, "avg(x)": 5e-324}
    assert a.result(a.of([{"x": 0.1}] * 10))["sum(x)"] == 1.0


@given(
    st.lists(
        st.tuples(st.fixed_dictionaries({}, optional={"x": values, "y": values}), st.integers(0, 3)),
        max_size=12,
    ),
    st.permutations(range(4)),
)
def test_partial_results_combine_in_any_order(
    records: list[tuple[dict[str, Any], int]], order: list[int]
) -> None:
    a = Aggregates(ALL)
    parts = [a.of(record for record, group in records if group == part) for part in order]
    sent = [tuple(json.loads(json.dumps(part))) for part in parts]
    whole = a.result(a.of(record for record, _ in records))
    assert a.result(a.combine(sent)) == whole
    assert a.result(a.combine([a.combine(sent[:2]), a.combine(sent[2:])])) == whole


def test_each_part_of_a_state_has_its_form() -> None:
    """`Aggregates.is_state` is asked about data from another machine."""
    a = Aggregates("count(*), sum(x), max(x)")
    good = json.loads(json.dumps(a.of([{"x": 2}])))
    assert a.is_state(good)
    for place, wrong in ((0, -1), (0, True), (1, [1]), (1, [-1, 2]), (1, None), (2, {})):
        assert not a.is_state([*good[:place], wrong, *good[place + 1 :]])
    assert not any(map(a.is_state, (good[:2], [*good, 0], None, "abc")))


def test_arguments_read_other_scopes() -> None:
    a = Aggregates("sum(price * receiver.quantity)")
    assert a.result(a.of([{"price": 2}, {"price": 3}], receiver={"quantity": 10})) == {
        "sum(price * receiver.quantity)": 50.0
    }


@pytest.mark.parametrize(
    ("text", "message", "state", "expected"),
    [
        ("message.pulse + state.x", {"pulse": 2}, {"x": 3}, 5.0),
        ("message.pulse / 0", {"pulse": 2}, {}, None),
        ("state.x", {}, {"x": "text"}, "text"),
        ("state.x", {}, {"x": True}, True),
        ("state.x", {}, {"x": [1, 2]}, Point(1.0, 2.0)),
        ("state.x", {}, {"x": b"bytes"}, None),
        ("'a text'", {}, {}, "a text"),
        ("coalesce(state.x, -1)", {}, {}, -1.0),
        ("message.pulse < 50", {"pulse": 2}, {}, True),
        ("state.x IN (1, 2)", {}, {"x": 2}, True),
        ("lookup('t', message.pulse, 'a')", {"pulse": 2}, {}, 7.0),
    ],
)
def test_expression_values(text, message, state, expected):
    assert Expression(text, language=SUBLIM)(message, state, tables={"t": {2: {"a": 7}}}) == expected


def test_missing_scopes_are_empty():
    assert Expression("coalesce(state.x, message.pulse, 3)", language=SUBLIM)() == 3.0
    assert Expression("coalesce(state.x, message.pulse, 3)", language=SUBLIM)({"pulse": 4}) == 4.0


def test_names_are_listed_by_scope():
    assert Expression("message.pulse + state.x.y", language=SUBLIM).names() == {
        "message": {"pulse"},
        "state": {"x.y"},
    }
