"""Columns, order and number of the records that a read returns, against a plain sort."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import ParameterError
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.table import Table

VALUES = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, "a", "b", True, False, None, (1, 2)]))
RECORDS = st.dictionaries(st.sampled_from("abcdefgh"), st.fixed_dictionaries({}, optional={"n": VALUES}))


def place(key, value, *, is_descending):
    """Return the place of a record: numbers, texts, booleans, then what has no value; equals by key."""
    kind = (
        2
        if isinstance(value, bool)
        else 0
        if isinstance(value, int | float)
        else 1
        if isinstance(value, str)
        else 3
    )
    if kind == 3:
        return (1, key)
    codes = [kind, *(map(ord, value) if isinstance(value, str) else [value])]
    return (0, [-code for code in codes] if is_descending else codes, key)


@given(RECORDS, st.sampled_from(["n", "n ASC", "n DESC", "  n   desc "]), st.integers(1, 9))
def test_records_are_cut_in_their_order(records, order, limit):
    selection = Selection.parse(None, order, limit)
    is_descending = "desc" in order.lower()
    assert selection.is_descending == is_descending
    expected = sorted(records, key=lambda key: place(key, records[key].get("n"), is_descending=is_descending))
    assert list(selection.cut({key: (record, key) for key, record in records.items()})) == expected[:limit]


def test_without_an_order_the_key_orders():
    records = {key: ({}, key) for key in "bca"}
    assert list(Selection.parse(None, None, 2).cut(records)) == ["a", "b"]
    assert list(Selection.parse(None, "key DESC", 2).cut(records)) == ["c", "b"]


def test_columns_are_returned_in_the_order_of_the_request():
    selection = Selection.parse(["b", "a", "b", "c"], None, None)
    assert list(selection.columns_of({"a": 1, "b": 2, "d": 3}).items()) == [("b", 2), ("a", 1)]
    assert Selection.parse(None, None, None) is None


@pytest.mark.parametrize("columns", ["topic", [], [1], ["a\nb"]])
def test_unusable_columns_are_refused(columns):
    with pytest.raises(ParameterError, match="columns"):
        Selection.parse(columns, None, None)


@pytest.mark.parametrize("order", ["", "n down", "n DESC, m", "DESC n m"])
def test_unusable_order_is_refused(order):
    with pytest.raises(ParameterError, match="order"):
        Selection.parse(None, order, None)


@pytest.mark.parametrize(("columns", "order"), [(["topci"], None), (None, "topci")])
def test_columns_that_the_schema_lacks_are_refused(columns, order):
    table = Table.create("news", "app", {"schema": {"topic": "text"}}, 1)
    with pytest.raises(ParameterError, match="topic") as raised:
        Selection.parse(columns, order, None).check_columns(table)
    assert "topci" in str(raised.value)
    Selection.parse(["topic", "key"], "key", None).check_columns(table)
