"""Tables: partitions, properties, access, columns, and alterations."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import AccessDenied, ParameterError, TableProblem
from mudkit.systems.mud.tables.table import LEVELS, MAX_NAME, Table, check_name, no_such_table_error
from mudkit.tokens import Claims

APP, USER = Claims("news", None, None, 9), Claims("news", "jane", None, 9)
OTHER = Claims("bank", "bob", None, 9)
SCHEMA = {"topic": "text", "n": "number", "on": "boolean", "loc": "point", "more": "any"}


def table(**properties):
    return Table.create("t", "news", properties, 3)


# -- partitions


def test_keys_belong_to_the_partition_of_their_range():
    split = table(split=["g", "p"])
    assert split.partitions == 3
    partitions = [split.partition_of(key) for key in ("a", "fz", "g", "g0", "oz", "p", "é")]
    assert partitions == [0, 0, 1, 1, 1, 2, 2]


def test_table_without_split_has_one_partition():
    assert table().partitions == 1
    assert table().partition_of("anything") == 0


@given(
    st.lists(st.text(min_size=1), unique=True, max_size=5).map(sorted),
    st.text(min_size=1),
    st.text(min_size=1),
)
def test_partitions_are_ranges_of_keys(split, one, other):
    split_table = Table("t", "news", split=split)
    low, high = (split_table.partition_of(key) for key in sorted([one, other]))
    assert 0 <= low <= high < split_table.partitions
    assert [split_table.partition_of(key) for key in split] == list(range(1, split_table.partitions))


# -- creating


def test_new_table_has_the_given_properties():
    new = table(acl="user", apps=("news", "maps"), split=["g"], schema={"topic": "text"})
    assert (new.name, new.owner, new.acl, new.number, new.lsn) == ("t", "news", "user", 3, 3)
    assert (list(new.apps), list(new.split), new.schema) == (["news", "maps"], ["g"], {"topic": "text"})
    assert (table().acl, table().apps, table().schema) == ("app", None, None)


@pytest.mark.parametrize("name", ["", None, 5, "a\nb", "\ud800", "t" * (MAX_NAME + 1)])
def test_unusable_names_are_refused(name):
    with pytest.raises(ParameterError, match="name of the table is not usable"):
        Table.create(name, "news", {}, 1)
    with pytest.raises(TableProblem):
        check_name(name)


def test_name_of_maximum_length_is_accepted():
    name = "t" * MAX_NAME
    assert Table.create(name, "news", {}, 1).name == check_name(name) == name


@pytest.mark.parametrize("properties", [
    {"acl": "everyone"}, {"acl": 5}, {"acl": ["app"]},
    {"split": ["p", "g"]}, {"split": ["g", "g"]}, {"split": [""]}, {"split": [1]}, {"split": [None]},
    {"split": "gp"}, {"split": 5},
    {"apps": "news"}, {"apps": 5}, {"apps": [5]},
    {"schema": {"key": "text"}}, {"schema": {"a": "string"}}, {"schema": {5: "text"}}, {"schema": {"a": None}},
    {"schema": ["a"]}, {"schema": {"a": ["text"]}},
])  # fmt: skip
def test_unusable_properties_are_refused(properties):
    with pytest.raises(ParameterError) as raised:
        table(**properties)
    assert raised.value.found
    assert raised.value.expected


def test_tables_survive_json():
    for original in (
        table(),
        table(acl="user", apps=["news"], split=["g", "p"], schema=SCHEMA).alter({"remove": ["n"]}, 8),
    ):
        assert msgspec.json.decode(msgspec.json.encode(original), type=Table) == original


# -- access

ADMITTED = {
    "public": [None, APP, USER, OTHER],
    "app": [APP, USER, OTHER],
    "user": [USER, OTHER],
}


@pytest.mark.parametrize("acl", LEVELS)
@pytest.mark.parametrize("claims", [None, APP, USER, OTHER])
def test_access_level_admits_clients_with_sufficient_claims(acl, claims):
    restricted = table(acl=acl)
    if claims in ADMITTED[acl]:
        restricted.check_access(claims)
    else:
        with pytest.raises(AccessDenied, match="not open to you"):
            restricted.check_access(claims)


@pytest.mark.parametrize("acl", ["app", "user"])
def test_access_list_refuses_other_apps(acl):
    restricted = table(acl=acl, apps=["news", "maps"])
    restricted.check_access(USER)
    with pytest.raises(AccessDenied, match="one of news, maps"):
        restricted.check_access(OTHER)
    with pytest.raises(AccessDenied):
        restricted.check_access(None)


@pytest.mark.parametrize("claims", [None, OTHER, Claims("new", "jane", None, 9), Claims("", "news", None, 9)])
def test_only_the_creating_app_is_the_owner(claims):
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
def test_records_that_fit_the_schema_are_accepted(data):
    table(schema=SCHEMA).check_columns(data)
    table().check_columns(data | {"anything": 1})


@pytest.mark.parametrize(("data", "message"), [
    ({"topik": "a"}, "did you mean 'topic'"), ({"topic": 5}, "expected: text"), ({"n": "5"}, "expected: number"),
    ({"n": True}, "bool: True"), ({"on": 1}, "expected: boolean"), ({"loc": "here"}, "expected: point"),
    ({"topic": "a", "z": 1}, "no such column"),
])  # fmt: skip
def test_records_that_do_not_fit_the_schema_are_refused(data, message):
    with pytest.raises(ParameterError, match=message) as error:
        table(schema=SCHEMA).check_columns(data)
    assert "table 't'" in error.value.where


def test_empty_schema_allows_no_column():
    table(schema={}).check_columns({})
    with pytest.raises(ParameterError, match="no such column"):
        table(schema={}).check_columns({"a": 1})


# -- altering


def row(lsn=None, **data):
    """Build a row written at a position of the log; None: a pending write."""
    return SimpleNamespace(key="a", data=data, predicate=None, lsn=inf if lsn is None else lsn)


def test_columns_are_added_and_removed():
    old = table(schema={"topic": "text", "n": "number"})
    new = old.alter({"add": {"city": "text"}, "remove": ["n"]}, 9)
    assert (new.schema, new.lsn, new.number) == ({"topic": "text", "city": "text"}, 9, 3)
    for lsn in (4, 10, None):
        assert new.visible_columns(row(lsn, topic="arts", n=1, city="Austin")) == {
            "topic": "arts",
            "city": "Austin",
        }
    with pytest.raises(ParameterError, match="no such column"):
        new.check_columns({"n": 1})
    readded = new.alter({"add": {"n": "text"}}, 10)
    readded.check_columns({"n": "one"})
    for lsn in (11, None):
        assert readded.visible_columns(row(lsn, n="one")) == {"n": "one"}
    assert (old.schema, list(old.removed), old.lsn) == ({"topic": "text", "n": "number"}, [], 3)


def test_column_added_again_has_no_old_values():
    readded = table().alter({"remove": ["n"]}, 9).alter({"add": {"n": "number"}}, 12)
    assert readded.visible_columns(row(11, n="old", m=1)) == {"m": 1}
    assert readded.visible_columns(row(12, n=1)) == {"n": 1}
    extended = readded.alter({"add": {"m": "text", "n": "number"}}, 20)  # both exist
    assert extended.visible_columns(row(13, n=1, m=1)) == {"n": 1, "m": 1}
    assert extended.alter({"remove": ["n"]}, 21).visible_columns(row(30, n=1)) == {}


def test_removed_columns_stay_removed_after_the_next_alter():
    new = table().alter({"remove": ["a"]}, 9).alter({"remove": ["b", "a"]}, 10)
    assert new.visible_columns(row(a=1, b=2, c=3)) == {"c": 3}
    assert list(new.removed) == ["a", "b"]


def test_type_of_a_column_changes_only_after_removal():
    old = table(schema={"n": "number"})
    assert old.alter({"add": {"n": "number"}}, 9).schema == {"n": "number"}
    with pytest.raises(ParameterError, match="with another type"):
        old.alter({"add": {"n": "text"}}, 9)
    assert old.alter({"remove": ["n"]}, 9).alter({"add": {"n": "text"}}, 10).schema == {"n": "text"}


def test_alter_changes_the_access_level_alone():
    new = table(schema=SCHEMA, apps=["news"], split=["g"]).alter({"acl": "user"}, 9)
    assert (new.acl, new.schema, list(new.apps), list(new.split)) == ("user", SCHEMA, ["news"], ["g"])
    assert new.alter({"add": None, "remove": (), "acl": None}, 10).acl == "user"


def test_alter_example_of_the_design():
    new = table(split=["g", "p"]).alter({"acl": "user", "add": {"city": "text"}, "remove": ["article"]}, 9)
    assert new.acl == "user"
    assert new.visible_columns(row(city="Austin", article="new")) == {"city": "Austin"}


def test_column_cannot_be_added_and_removed_at_once():
    with pytest.raises(ParameterError):
        table(schema={"a": "text"}).alter({"add": {"a": "number"}, "remove": ["a"]}, 9)


@pytest.mark.parametrize("properties", [
    {"acl": "everyone"}, {"add": {"key": "text"}}, {"add": {"a": "string"}}, {"remove": ["nothing"]},
    {"remove": "n"}, {"remove": ["n", "n"]}, {"add": ["city"]},
])  # fmt: skip
def test_unusable_alterations_are_refused(properties):
    with pytest.raises(ParameterError):
        table(schema=SCHEMA).alter(properties, 9)


# -- no such table


def test_error_for_unknown_table_suggests_a_similar_name():
    open_to_all = {name: Table(name, "news", "public") for name in ("news", "spots")}
    error = no_such_table_error("newz", open_to_all)
    assert isinstance(error, TableProblem)
    assert error.remedy == "did you mean 'news'?"
    assert error.expected == "news, spots"
    assert no_such_table_error("x").expected == "a table that an app has created"
    assert "client.create(name)" in str(no_such_table_error("x").remedy)
