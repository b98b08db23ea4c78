"""In-memory copies of all tables: log entries, reads, visibility, and joins."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mudkit.errors import AccessDenied, TableProblem
from mudkit.predicates import Aggregates, Predicate
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.servers import DropEntry, RowEntry, TableEntry, TablesState
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.replica import JoinedTables, TableReplica, aggregate, is_visible, record_of
from mudkit.systems.mud.tables.table import Table

NEWS = Table("news", "app", split=["g", "p"], number=1, lsn=1)


def row(key: str, data: dict[str, Any] | None, writer: str | None = None, ver: int = 1, lsn: int = 2) -> Row:
    predicate = None if writer is None else SentPredicate.of(Predicate(writer))
    return Row(key, ver, data, predicate, 5, lsn)


def apply_row(copy: TableReplica, lsn: int, name: str, new: Row) -> Row | None:
    return copy.apply(RowEntry(lsn, name, replace(new, lsn=lsn)))


def copy_of(*rows: Row, table: Table = NEWS) -> TableReplica:
    copy = TableReplica()
    copy.apply(TableEntry(1, table))
    for lsn, row_ in enumerate(rows, 2):
        apply_row(copy, lsn, table.name, row_)
    return copy


def select(
    copy: TableReplica,
    predicate: str | None = None,
    keys: list[str] | None = None,
    partition: int = 0,
    **reader: Any,
) -> list[str]:
    parsed = None if predicate is None else Predicate(predicate)
    table = copy.tables["news"]
    return [row_.key for row_ in copy.select(table, partition, parsed, keys, reader, {"app": "news"})]


# -- the log


def test_apply_replaces_a_row_and_returns_the_old_one():
    copy = copy_of(row("a", {"n": 1}))
    new = row("a", {"n": 2}, ver=2, lsn=3)
    assert apply_row(copy, 3, "news", new) == row("a", {"n": 1})
    assert copy.row_of(NEWS, "a") == new
    assert copy.lsn == 3
    assert copy.row_of(NEWS, "b") is None
    assert apply_row(copy, 4, "news", row("b", {})) is None


def test_rows_are_grouped_by_partition():
    copy = copy_of(row("a", {}), row("g", {}), row("z", {}), row("b", {}))
    result = [[row_.key for row_ in copy.rows(NEWS, [partition])] for partition in range(3)]
    assert result == [["a", "b"], ["g"], ["z"]]
    assert [row_.key for row_ in copy.rows(NEWS, [2, 0])] == ["z", "a", "b"]
    assert [select(copy, partition=partition) for partition in range(3)] == [["a", "b"], ["g"], ["z"]]


def test_altered_table_keeps_its_rows():
    copy = copy_of(row("a", {"n": 1}))
    assert copy.apply(TableEntry(3, NEWS.alter({"remove": ["n"]}, 3))) is None
    table = copy.tables["news"]
    assert copy.row_of(table, "a").data == {"n": 1}
    assert copy.select(table, 0, None, None, {}, {})[0].data == {}


def test_new_table_has_no_rows_of_a_dropped_one_of_its_name():
    copy = copy_of(row("a", {}))
    assert copy.apply(DropEntry(3, "news")) is None
    assert copy.tables == {}
    copy.apply(TableEntry(4, Table("news", "app", number=4, lsn=4)))
    assert list(copy.rows(copy.tables["news"], [0])) == []
    assert copy.lsn == 4


log_entries = st.lists(st.one_of(
    st.tuples(st.just("row"), st.sampled_from(["a", "h", "z"]), st.none() | st.fixed_dictionaries({"n": st.integers(0, 9)})),
    st.tuples(st.sampled_from(["drop", "table", "alter"]), st.just(""), st.none()),
), max_size=25)  # fmt: skip


@given(log_entries)
def test_loaded_copy_applies_entries_like_its_original(entries):
    copies = [TableReplica()]
    for lsn, (op, key, data) in enumerate(entries, 1):
        table = copies[0].tables.get("news")
        if table is None:
            entry = TableEntry(lsn, Table("news", "app", split=["g"], number=lsn, lsn=lsn))
        elif op == "drop":
            entry = DropEntry(lsn, "news")
        elif op == "row":
            entry = RowEntry(lsn, "news", row(key, data, lsn=lsn))
        else:
            entry = TableEntry(lsn, table.alter({"remove": ["n"]}, lsn))
        for copy in copies:
            copy.apply(entry)
        state = msgspec.json.decode(msgspec.json.encode(copies[0].build_state("now")), type=TablesState)
        loaded = TableReplica()
        loaded.load(state.lsn, state.tables, state.rows)
        copies.append(loaded)
        for copy in copies:
            assert copy.build_state("now") == state
            assert (copy.lsn, copy.tables.keys()) == (lsn, copies[0].tables.keys())


def test_load_replaces_the_previous_state():
    copy = copy_of(row("a", {}))
    copy.load(0, [], [])
    assert copy.build_state("now") == TablesState("now", 0, [], [])


# -- reads


def test_select_returns_the_matching_records():
    copy = copy_of(row("a", {"n": 1}), row("b", {"n": 2}), row("c", {}), row("d", None))
    assert select(copy, "n > 1") == ["b"]
    assert select(copy, "n > receiver.low", low=0) == ["a", "b"]
    assert select(copy, "auth.app = 'news'") == ["a", "b", "c"]
    assert select(copy, "key >= 'b'") == ["b", "c"]
    assert select(copy) == ["a", "b", "c"]


def test_select_returns_deleted_rows_of_named_keys():
    copy = copy_of(row("a", {"n": 1}), row("b", {"n": 2}), row("d", None))
    assert select(copy, "key IN ('a', 'd', 'x')", ["a", "d", "x"]) == ["a", "d"]
    assert select(copy, "key = 'a' AND n = 2", ["a"]) == []
    assert select(copy, "key = 'h'", ["h"]) == []


def test_writer_predicate_limits_the_readers_of_a_record():
    copy = copy_of(
        row("a", {}, "receiver.age >= 21"),
        row("b", {"n": 1}, "n = 1"),
        row("c", {}, "auth.app = 'bank'"),
        row("d", None, "receiver.age >= 21"),
        row("e", {}, "receiver.x"),
    )
    assert select(copy, age=34) == ["a", "b"]
    assert select(copy, age=20) == ["b"]
    assert select(copy) == ["b"]
    assert select(copy, None, ["a", "d"], age=34) == ["a", "d"]
    assert select(copy, None, ["a", "d"], age=20) == []
    assert select(copy, age="34") == ["b"]


def test_record_with_null_predicate_is_hidden_and_without_one_is_public():
    assert is_visible(row("a", {}), {}, {}) is True
    assert is_visible(row("a", {}, "receiver.age > 1"), {}, {}) is False
    assert is_visible(row("a", {}, "NULL"), {}, {}) is False
    assert is_visible(row("a", {}, "auth.user = 'jane'"), {"user": "jane"}, {}) is False
    assert is_visible(row("a", {}, "auth.user = 'jane'"), {}, {"user": "jane"}) is True


def test_record_is_hidden_if_its_predicate_fails():
    assert is_visible(row("a", {}, "lookup('t', 'k', 'c') = 1"), {}, {}) is False


def test_removed_column_reads_null():
    table = NEWS.alter({"remove": ["n"]}, 2)
    copy = copy_of(row("a", {"n": 1, "m": 2}), table=table)
    assert select(copy, "n IS NULL") == ["a"]
    assert select(copy, "n = 1") == []
    assert copy.select(table, 0, None, None, {}, {})[0].data == {"m": 2}


def test_removed_column_reads_null_for_writer_predicates():
    table = NEWS.alter({"remove": ["n"]}, 2)
    copy = copy_of(row("a", {"n": 1}, "n = 1"), row("b", {"n": 1}, "n IS NULL"), table=table)
    assert select(copy) == ["b"]


def test_selected_rows_can_be_changed_without_effect_on_the_copy():
    copy = copy_of(row("a", {"n": 1}))
    selected = copy.select(NEWS, 0, None, None, {}, {})[0]
    selected.data["n"] = 2
    assert copy.row_of(NEWS, "a") == row("a", {"n": 1})


def test_record_of_includes_the_key():
    assert record_of(row("a", {"n": 1})) == {"n": 1, "key": "a"}
    assert record_of(row("a", None)) == {"key": "a"}
    assert record_of(row("a", {"n": 1}), NEWS.alter({"remove": ["n"]}, 2)) == {"key": "a"}


def test_aggregates_skip_deleted_rows():
    text = "count(*), sum(n), min(key), avg(n)"
    copy = copy_of(row("a", {"n": 0.1}), row("b", {"n": 0.2}), row("c", None), row("d", {}))
    state = aggregate(copy.select(NEWS, 0, None, ["a", "b", "c", "d"], {}, {}), text)
    for decoded in (json.loads(json.dumps(state)), msgspec.json.decode(msgspec.json.encode(state))):
        parts = [tuple(decoded), tuple(aggregate([], text))]
        aggregates = Aggregates(text)
        expected = {"count(*)": 3, "sum(n)": 0.1 + 0.2, "min(key)": "a", "avg(n)": (0.1 + 0.2) / 2}
        assert aggregates.result(aggregates.combine(parts)) == expected


# -- joins

PEOPLE = Table("people", "app", split=["g"], number=2, lsn=1)
BY_LOOKUP = "lookup('people', by, 'n') = 1"


def build_copy_with_people(*people: Row, news: tuple[Row, ...] = (), table: Table = PEOPLE) -> TableReplica:
    copy = copy_of(*news)
    copy.apply(TableEntry(20, table))
    for lsn, person in enumerate(people, 21):
        apply_row(copy, lsn, table.name, person)
    return copy


def lookup(copy: TableReplica, key: Any, auth: dict[str, str] | None = None, **reader: Any) -> Any:
    return JoinedTables(copy, reader, {"app": "news"} if auth is None else auth)["people"].get(key)


def test_lookup_finds_a_record_of_another_table_by_key():
    copy = build_copy_with_people(row("a", {"n": 1}), row("z", {"n": 2}), row("d", None))
    assert lookup(copy, "a") == {"n": 1, "key": "a"}
    assert lookup(copy, "z") == {"n": 2, "key": "z"}
    for key in ("b", "d", "", 1, None, True, {"a": 1}):
        assert lookup(copy, key) is None
    without = build_copy_with_people(row("a", {"n": 1, "m": 2}), table=PEOPLE.alter({"remove": ["n"]}, 2))
    assert lookup(without, "a") == {"m": 2, "key": "a"}


def test_read_and_writer_predicates_look_up_other_tables():
    news = (
        row("a", {"by": "x"}),
        row("b", {"by": "y"}),
        row("c", {"by": "x"}, "lookup('people', 'y', 'n') = 2"),
    )
    copy = build_copy_with_people(row("x", {"n": 1}), row("y", {"n": 2}, "receiver.age > 20"), news=news)
    assert select(copy, BY_LOOKUP) == ["a"]
    assert select(copy, BY_LOOKUP, age=30) == ["a", "c"]
    assert select(copy, "lookup('people', by, 'n') = 2", age=30) == ["b"]
    assert select(copy) == ["a", "b"]


def test_lookup_in_unknown_or_closed_table_fails_reads_and_hides_records():
    for table, error in (
        (replace(PEOPLE, name="other"), TableProblem),
        (replace(PEOPLE, apps=["bank"]), AccessDenied),
    ):
        copy = build_copy_with_people(
            news=(row("a", {"by": "x"}), row("b", {}, "lookup('people', 'x', 'n') IS NULL")), table=table
        )
        with pytest.raises(error):
            select(copy, BY_LOOKUP)
        assert select(copy) == ["a"]
    assert set(JoinedTables(copy, {}, {})) == {"news", "people"}
    assert len(JoinedTables(copy, {}, {})) == 2


@pytest.mark.parametrize(
    ("acl", "auth", "is_open"),
    [
        ("public", {}, True), ("app", {}, False), ("app", {"app": "news"}, True), ("user", {"app": "news"}, False),
        ("user", {"app": "news", "user": "jane"}, True),
    ],
)  # fmt: skip
def test_joins_need_the_access_that_reads_need(acl, auth, is_open):
    copy = build_copy_with_people(row("a", {"n": 1}), table=replace(PEOPLE, acl=acl))
    if is_open:
        assert lookup(copy, "a", auth) == {"n": 1, "key": "a"}
    else:
        with pytest.raises(AccessDenied, match="people"):
            lookup(copy, "a", auth)


WRITERS = st.none() | st.sampled_from(
    [
        "receiver.n > 0",
        "auth.user = 'jane'",
        "NULL",
        *(f"lookup('{table}', 'a', 'n') = 1" for table in ("people", "none")),
    ]
)


@given(
    people=st.lists(st.tuples(st.sampled_from("ahz"), st.none() | st.just({"n": 1}), WRITERS), max_size=4),
    n=st.integers(0, 1),
    user=st.sampled_from(["jane", "bob"]),
)
def test_joins_show_only_what_reads_show(people, n, user):
    copy = build_copy_with_people(
        *(row(key, data, writer, ver=ver) for ver, (key, data, writer) in enumerate(people, 1))
    )
    reader, auth = {"n": n}, {"app": "news", "user": user}
    table = copy.tables["people"]
    rows = [row_ for partition in (0, 1) for row_ in copy.select(table, partition, None, None, reader, auth)]
    shown = {key for key in "ahz" if lookup(copy, key, auth, **reader) is not None}
    with_lookup = {row_.key for row_ in rows if row_.predicate and "lookup" in row_.predicate.text}
    assert shown == {row_.key for row_ in rows} - with_lookup  # joins are one table deep
