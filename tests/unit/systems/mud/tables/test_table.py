"""Tables: what may be in them, where, and who comes in."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import AccessDenied, ParameterError, TableProblem
from mudkit.systems.mud.tables.table import LEVELS, MAX_NAME, Table, check_name, no_such_table
from mudkit.tokens import Claims

APP, USER = Claims("news", None, None, 9), Claims("news", "jane", None, 9)
OTHER = Claims("bank", "bob", None, 9)
SCHEMA = {"topic": "text", "n": "number", "on": "boolean", "loc": "point", "more": "any"}


def table(**properties):
    return Table.created("t", "news", properties, 3)


# -- partitions


def test_keys_fall_into_the_range_that_they_begin():
    split = table(split=["g", "p"])
    assert split.partitions == 3
    result = [split.partition_of(key) for key in ("a", "fz", "g", "g0", "oz", "p", "é")]
    assert result == [0, 0, 1, 1, 1, 2, 2]


def test_a_table_that_is_not_split_has_one_partition():
    assert table().partitions == 1
    assert table().partition_of("anything") == 0


@given(
    st.lists(st.text(min_size=1), unique=True, max_size=5).map(sorted),
    st.text(min_size=1),
    st.text(min_size=1),
)
def test_partitions_are_ranges_of_keys(split, one, other):
    made = Table("t", "news", split=split)
    low, high = (made.partition_of(key) for key in sorted([one, other]))
    assert 0 <= low <= high < made.partitions
    assert [made.partition_of(key) for key in split] == list(range(1, made.partitions))


# -- creating


def test_a_new_table_has_what_was_asked_for():
    made = table(acl="user", apps=("news", "maps"), split=["g"], schema={"topic": "text"})
    assert (made.name, made.owner, made.acl, made.number, made.lsn) == ("t", "news", "user", 3, 3)
    assert (list(made.apps), list(made.split), made.schema) == (["news", "maps"], ["g"], {"topic": "text"})
    assert (table().acl, table().apps, table().schema) == ("app", None, None)


@pytest.mark.parametrize("name", ["", None, 5, "a\nb", "\ud800", "t" * (MAX_NAME + 1)])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(ParameterError, match="name of the table is not usable"):
        Table.created(name, "news", {}, 1)
    with pytest.raises(TableProblem):
        check_name(name)


def test_a_name_has_a_largest_length():
    name = "t" * MAX_NAME
    assert Table.created(name, "news", {}, 1).name == check_name(name) == name


@pytest.mark.parametrize("properties", [
    {"acl": "everyone"}, {"acl": 5}, {"acl": ["app"]},
    {"split": ["p", "g"]}, {"split": ["g", "g"]}, {"split": [""]}, {"split": [1]}, {"split": [None]},
    {"split": "gp"}, {"split": 5},
    {"apps": "news"}, {"apps": 5}, {"apps": [5]},
    {"schema": {"key": "text"}}, {"schema": {"a": "string"}}, {"schema": {5: "text"}}, {"schema": {"a": None}},
    {"schema": ["a"]}, {"schema": {"a": ["text"]}},
])  # fmt: skip
def test_a_property_that_cannot_be_is_refused(properties):
    with pytest.raises(ParameterError) as answer:
        table(**properties)
    assert answer.value.found
    assert answer.value.expected


def test_it_survives_encoding():
    for each in (
        table(),
        table(acl="user", apps=["news"], split=["g", "p"], schema=SCHEMA).altered({"remove": ["n"]}, 8),
    ):
        assert msgspec.json.decode(msgspec.json.encode(each), type=Table) == each


# -- access

_MAY_ENTER = {
    "public": [None, APP, USER, OTHER],
    "app": [APP, USER, OTHER],
    "user": [USER, OTHER],
}


@pytest.mark.parametrize("acl", LEVELS)
@pytest.mark.parametrize("claims", [None, APP, USER, OTHER])
def test_a_level_admits_who_has_shown_enough(acl, claims):
    made = table(acl=acl)
    if claims in _MAY_ENTER[acl]:
        made.check_access(claims)
    else:
        with pytest.raises(AccessDenied, match="not open to you"):
            made.check_access(claims)


@pytest.mark.parametrize("acl", ["app", "user"])
def test_a_table_for_some_apps_is_closed_to_others(acl):
    made = table(acl=acl, apps=["news", "maps"])
    made.check_access(USER)
    with pytest.raises(AccessDenied, match="one of news, maps"):
        made.check_access(OTHER)
    with pytest.raises(AccessDenied):
        made.check_access(None)


@pytest.mark.parametrize("claims", [None, OTHER, Claims("new", "jane", None, 9), Claims("", "news", None, 9)])
def test_only_the_app_that_created_it_is_the_owner(claims):
    table().check_owner(APP)
    table().check_owner(USER)
    with pytest.raises(AccessDenied, match="Only the app that created"):
        table(acl="public").check_owner(claims)


# -- columns


@pytest.mark.parametrize("data", [
    {}, {"topic": "arts", "n": 1, "on": True, "loc": [1, 2], "more": {"x": [1]}}, {"n": 1.5},
    {"loc": {"lat": 1, "lon": 2}}, {"topic": None, "n": None, "on": None, "loc": None, "more": None},
    {"more": True}, {"more": 5},
])  # fmt: skip
def test_a_record_that_the_schema_allows(data):
    table(schema=SCHEMA).check_columns(data)
    table().check_columns(data | {"anything": 1})


@pytest.mark.parametrize(("data", "answer"), [
    ({"topik": "a"}, "did you mean 'topic'"), ({"topic": 5}, "expected: text"), ({"n": "5"}, "expected: number"),
    ({"n": True}, "bool: True"), ({"on": 1}, "expected: boolean"), ({"loc": "here"}, "expected: point"),
    ({"topic": "a", "z": 1}, "no such column"),
])  # fmt: skip
def test_a_record_that_the_schema_does_not_allow(data, answer):
    with pytest.raises(ParameterError, match=answer) as error:
        table(schema=SCHEMA).check_columns(data)
    assert "table 't'" in error.value.where


def test_an_empty_schema_allows_no_column():
    table(schema={}).check_columns({})
    with pytest.raises(ParameterError, match="no such column"):
        table(schema={}).check_columns({"a": 1})


# -- altering


def row(lsn=None, **data):
    """A row as of an entry of the log; None: a pending write."""
    return SimpleNamespace(key="a", data=data, predicate=None, lsn=inf if lsn is None else lsn)


def test_columns_come_and_go():
    made = table(schema={"topic": "text", "n": "number"})
    new = made.altered({"add": {"city": "text"}, "remove": ["n"]}, 9)
    assert (new.schema, new.lsn, new.number) == ({"topic": "text", "city": "text"}, 9, 3)
    for lsn in (4, 10, None):
        assert new.seen(row(lsn, topic="arts", n=1, city="Austin")) == {"topic": "arts", "city": "Austin"}
    with pytest.raises(ParameterError, match="no such column"):
        new.check_columns({"n": 1})
    again = new.altered({"add": {"n": "text"}}, 10)
    again.check_columns({"n": "one"})
    for lsn in (11, None):
        assert again.seen(row(lsn, n="one")) == {"n": "one"}
    assert (made.schema, list(made.removed), made.lsn) == ({"topic": "text", "n": "number"}, [], 3)


def test_a_column_that_is_added_again_has_no_old_values():
    made = table().altered({"remove": ["n"]}, 9).altered({"add": {"n": "number"}}, 12)
    assert made.seen(row(11, n="old", m=1)) == {"m": 1}
    assert made.seen(row(12, n=1)) == {"n": 1}
    more = made.altered({"add": {"m": "text", "n": "number"}}, 20)  # which are there
    assert more.seen(row(13, n=1, m=1)) == {"n": 1, "m": 1}
    assert more.altered({"remove": ["n"]}, 21).seen(row(30, n=1)) == {}


def test_what_was_removed_before_stays_removed():
    new = table().altered({"remove": ["a"]}, 9).altered({"remove": ["b", "a"]}, 10)
    assert new.seen(row(a=1, b=2, c=3)) == {"c": 3}
    assert list(new.removed) == ["a", "b"]


def test_a_column_keeps_its_type():
    made = table(schema={"n": "number"})
    assert made.altered({"add": {"n": "number"}}, 9).schema == {"n": "number"}
    with pytest.raises(ParameterError, match="with another type"):
        made.altered({"add": {"n": "text"}}, 9)
    assert made.altered({"remove": ["n"]}, 9).altered({"add": {"n": "text"}}, 10).schema == {"n": "text"}


def test_a_level_is_changed_alone():
    new = table(schema=SCHEMA, apps=["news"], split=["g"]).altered({"acl": "user"}, 9)
    assert (new.acl, new.schema, list(new.apps), list(new.split)) == ("user", SCHEMA, ["news"], ["g"])
    assert new.altered({"add": None, "remove": (), "acl": None}, 10).acl == "user"


def test_the_designs_example_of_alter():
    new = table(split=["g", "p"]).altered({"acl": "user", "add": {"city": "text"}, "remove": ["article"]}, 9)
    assert new.acl == "user"
    assert new.seen(row(city="Austin", article="new")) == {"city": "Austin"}


def test_a_column_cannot_come_and_go_at_once():
    with pytest.raises(ParameterError):
        table(schema={"a": "text"}).altered({"add": {"a": "number"}, "remove": ["a"]}, 9)


@pytest.mark.parametrize("properties", [
    {"acl": "everyone"}, {"add": {"key": "text"}}, {"add": {"a": "string"}}, {"remove": ["nothing"]},
    {"remove": "n"}, {"remove": ["n", "n"]}, {"add": ["city"]},
])  # fmt: skip
def test_a_change_that_cannot_be_is_refused(properties):
    with pytest.raises(ParameterError):
        table(schema=SCHEMA).altered(properties, 9)


# -- no such table


def test_it_says_which_table_may_have_been_meant():
    open_to_all = {name: Table(name, "news", "public") for name in ("news", "spots")}
    error = no_such_table("newz", open_to_all)
    assert isinstance(error, TableProblem)
    assert error.remedy == "did you mean 'news'?"
    assert error.expected == "news, spots"
    assert no_such_table("x").expected == "a table that an app has created"
    assert "client.create(name)" in str(no_such_table("x").remedy)
