"""Changes of columns as pure functions: what they make of a record, and which commute or compose."""

from __future__ import annotations

import json

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import MudkitError, ParameterError, TableProblem
from mudkit.systems.mud.tables.changes import (
    Changes,
    add_of,
    apply_changes,
    change_record,
    check_kinds,
    compose,
    merge_of,
    remove_of,
    union_of,
)
from mudkit.systems.mud.tables.table import Table

WHOLE = st.integers(-(1 << 40), 1 << 40)
QUARTERS = st.integers(-36, 36).map(lambda number: number / 4)
"""Floats whose sums with whole numbers are exact: of others, the last digit depends on the order."""
VALUES = st.one_of(st.none(), st.booleans(), WHOLE, st.sampled_from(["a", "b", ""]), QUARTERS)
ITEMS = st.lists(VALUES, max_size=4)
COLUMNS = st.sampled_from("pqr")
RECORDS = st.dictionaries(COLUMNS, st.one_of(VALUES, ITEMS), max_size=3)
CHANGES = st.one_of(
    st.builds(lambda data: Changes(merge=data), RECORDS),
    st.builds(lambda column, by: add_of(column, by, create=False), COLUMNS, WHOLE),
    st.builds(lambda column, items: union_of(column, items, create=False), COLUMNS, ITEMS),
    st.builds(lambda column, items: remove_of(column, items, create=False), COLUMNS, ITEMS),
)


def outcome(data, *changes):
    """Return the record after changes as JSON, which tells 1, 1.0 and True apart; None: one is refused."""
    try:
        for change in changes:
            data = apply_changes(data, change)
    except ParameterError:
        return None
    return json.dumps(data, sort_keys=True)


def as_sets(data):
    return {
        column: sorted(map(json.dumps, value)) if isinstance(value, list) else value
        for column, value in data.items()
    }


@given(RECORDS, WHOLE, WHOLE)
@examples(100)
def test_increments_of_whole_numbers_add_up_exactly_in_either_order(record, by, other):
    record = {**record, "n": 2**53 + 1}
    first, then = (add_of("n", one, create=False) for one in (by, other))
    assert outcome(record, first, then) == outcome(record, then, first)
    assert apply_changes(apply_changes(record, first), then)["n"] == 2**53 + 1 + by + other


@pytest.mark.parametrize("build", [union_of, remove_of], ids=["union", "remove"])
@given(record=RECORDS, items=ITEMS, others=ITEMS)
@examples(100)
def test_unions_commute_as_sets_and_so_do_removals(build, record, items, others):
    record = {**record, "tags": ["a", 1]}
    first, then = (build("tags", one, create=False) for one in (items, others))
    one = apply_changes(apply_changes(record, first), then)
    assert as_sets(one) == as_sets(apply_changes(apply_changes(record, then), first))


@given(RECORDS, CHANGES, CHANGES)
@examples(100)
def test_changes_of_different_columns_commute(record, first, then):
    named = [{*one.merge, *one.add, *one.union, *one.remove} for one in (first, then)]
    if named[0].isdisjoint(named[1]):
        assert outcome(record, first, then) == outcome(record, then, first)


@given(RECORDS, st.lists(CHANGES, min_size=2, max_size=5))
@examples(150)
def test_composed_changes_are_equal_to_those_in_a_row(record, changes):
    """Changes that cannot be joined go as they are: a refusal of one is not lost in the other."""
    composed = changes[0]
    for done, change in enumerate(changes[1:], start=1):
        joined = compose(composed, change)
        if joined is None:
            return
        composed = joined
        assert outcome(record, composed) == outcome(record, *changes[: done + 1])


@pytest.mark.parametrize(
    ("first", "then", "joined"),
    [
        (Changes(add={"n": 1}), Changes(add={"n": 2, "m": 3}), Changes(add={"n": 3, "m": 3})),
        (Changes(merge={"n": 1}), Changes(add={"n": 2}), Changes(merge={"n": 3})),
        (
            Changes(union={"s": [1, 2]}),
            Changes(remove={"s": [2]}),
            Changes(remove={"s": [2]}, union={"s": [1]}),
        ),
    ],
)
def test_changes_of_one_column_by_the_same_means_are_joined(first, then, joined):
    """Pending writes of a record become one, unless no single change is equal to both (`compose`)."""
    assert compose(first, then) == joined


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (add_of("n", 1, create=False), merge_of({"n": 5}, create=False)),
        (union_of("n", ["a"], create=False), merge_of({"n": 5}, create=False)),
        (add_of("n", 1, create=False), union_of("n", ["a"], create=False)),
        (union_of("n", ["a"], create=False), add_of("n", 1, create=False)),
        (merge_of({"n": "text"}, create=False), add_of("n", 1, create=False)),
        (add_of("n", 2**62, create=False), add_of("n", 2**62, create=False)),
        (add_of("n", 1, create=False), add_of("n", 1, create=True)),
    ],
)
def test_changes_of_which_one_may_be_refused_alone_are_not_joined(first, then):
    assert compose(first, then) is None


@pytest.mark.parametrize(
    ("record", "changes", "changed"),
    [
        ({"a": 1}, merge_of({"b": None}, create=False), {"a": 1, "b": None}),
        ({"n": None}, add_of("n", 2, create=False), {"n": 2}),
        ({}, add_of("n", 0.5, create=False), {"n": 0.5}),
        ({}, union_of("t", ["a", "a"], create=False), {"t": ["a"]}),
        ({"t": None}, remove_of("t", ["a"], create=False), {"t": []}),
        ({"t": [1, True, "1"]}, union_of("t", [True, 1.0], create=False), {"t": [1, True, "1", 1.0]}),
        ({"t": [{"x": 1, "y": 2}]}, remove_of("t", [{"y": 2, "x": 1}], create=False), {"t": []}),
    ],
)
def test_null_counts_as_0_and_empty_and_items_are_the_same_if_their_json_is(record, changes, changed):
    assert outcome(record, changes) == json.dumps(changed, sort_keys=True)


@pytest.mark.parametrize(
    ("record", "changes", "found"),
    [
        ({"n": "5"}, add_of("n", 1, create=False), "str: '5'"),
        ({"n": True}, add_of("n", 1, create=False), "bool: True"),
        ({"n": 2**63 - 1}, add_of("n", 1, create=False), "int: 9223372036854775807"),
        ({"n": 1.7e308}, add_of("n", 1.7e308, create=False), "float: 1.7e"),
        ({"n": 5}, union_of("n", ["a"], create=False), "int: 5"),
        ({"n": "ab"}, remove_of("n", ["a"], create=False), "str: 'ab'"),
    ],
)
def test_values_of_another_kind_are_refused(record, changes, found):
    with pytest.raises(ParameterError) as refused:
        change_record(record, changes, "table 't', key 'k'")
    assert str(refused.value.found).startswith(found)
    assert refused.value.where == "table 't', key 'k', column 'n'"


@pytest.mark.parametrize(
    "call",
    [
        lambda: merge_of({}, create=False),
        lambda: merge_of({"key": 1}, create=False),
        lambda: add_of("n", "1", create=False),
        lambda: add_of("n", float("nan"), create=False),
        lambda: add_of("n", 2**63, create=False),
        lambda: add_of("key", 1, create=False),
        lambda: union_of("", ["a"], create=False),
        lambda: union_of("t", "abc", create=False),
        lambda: remove_of("t", [object()], create=False),
    ],
)
def test_unusable_arguments_are_refused(call):
    with pytest.raises(ParameterError):
        call()


def test_only_create_makes_a_record_of_none():
    with pytest.raises(TableProblem, match="create=True"):
        change_record(None, add_of("n", 1, create=False), "here")
    assert change_record(None, add_of("n", 1, create=True), "here") == {"n": 1}


def test_records_do_not_grow_beyond_their_limit():
    with pytest.raises(ParameterError, match="65,536 bytes"):
        change_record({"t": ["a" * 60_000]}, union_of("t", ["b" * 6_000], create=False), "here")


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        (merge_of({"name": "x"}, create=False), True),
        (merge_of({"name": 1}, create=False), False),
        (merge_of({"other": 1}, create=False), False),
        (add_of("n", 1, create=False), True),
        (add_of("anything", 1, create=False), True),
        (add_of("name", 1, create=False), False),
        (add_of("other", 1, create=False), False),
        (union_of("anything", ["a"], create=False), True),
        (union_of("at", [1], create=False), False),
        (remove_of("n", [1], create=False), False),
    ],
)
def test_schema_says_which_columns_can_be_changed_so(changes, fits):
    schema = {"name": "text", "n": "number", "at": "point", "anything": "any"}
    table = Table("t", "app", schema=schema)
    if fits:
        check_kinds(changes, table)
    else:
        with pytest.raises(MudkitError):
            check_kinds(changes, table)
