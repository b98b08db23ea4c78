"""Local store of a client: committed records, pending writes, tables, and recovery after a restart."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mud_machines import ports

from mudkit.errors import ParameterError
from mudkit.events import Ports
from mudkit.fleet.store import MemoryStore
from mudkit.predicates import Predicate
from mudkit.systems.mud.device import local as module
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite
from mudkit.systems.mud.tables.records import SentPredicate, check_record
from mudkit.systems.mud.tables.table import Table

TABLES, KEYS = ["news", "n", "a b"], ["a", "b", "a b", "ü"]


def make_row(
    key: str, ver: int, data: dict[str, Any] | None = None, table: int = 1, held_us: int = 0
) -> HeldRow:
    return HeldRow(key, ver, data, None, 7, table, held_us)


def make_write(number: int, name: str = "news", key: str = "a", data: Any = None) -> PendingWrite:
    return PendingWrite(seq=number, name=name, key=key, type="blind", data=data or {"n": number})


def make_table(name: str = "news", number: int = 1, lsn: int = 1) -> Table:
    return Table(name, "app", number=number, lsn=lsn)


def reopen(store: MemoryStore) -> Local:
    """Open a store as a restarted client does."""
    return Local(ports(store=store), 9)


def open_store(max_rows: int = 9) -> tuple[MemoryStore, Local]:
    store = MemoryStore()
    return store, Local(ports(store=store), max_rows)


def snapshot(local: Local) -> dict[str, Any]:
    """Return all state that can be queried."""
    return {
        "rows": {(name, key): local.held_row(name, key) for name in TABLES for key in KEYS},
        "of tables": {name: sorted(row.key for row in local.rows(name)) for name in TABLES},
        "writes": list(local.writes),
        "pending": {(name, key): local.pending_writes(name, key) for name in TABLES for key in KEYS},
        "pending keys": {name: sorted(local.pending_keys(name)) for name in TABLES},
        "heads": local.oldest_seqs(),
        "tables": dict(local.tables),
        "seen": {name: local.seen_lsns(name) for name in TABLES},
        "last write": local.writes.last_seq,
    }


_names, _keys = st.sampled_from(TABLES), st.sampled_from(KEYS)
_numbers = st.integers(1, 3)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), _names, _keys, st.integers(1, 5), _numbers),
        st.tuples(st.just("let go"), _names, _keys),
        st.tuples(st.just("write"), _names, _keys),
        st.tuples(st.just("change"), st.integers(0, 9)),
        st.tuples(st.just("over"), st.integers(0, 9)),
        st.tuples(st.just("learn"), _names, st.integers(1, 3), st.integers(1, 5)),
        st.tuples(st.just("forget"), _names, st.integers(1, 4)),
        st.tuples(st.just("see"), _names, _numbers, st.integers(0, 2), st.integers(1, 9)),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


_WRITE = "write", "news", "a"


@given(_steps, st.integers(1, 4))
@example([_WRITE, ("restart",), _WRITE, ("restart",), _WRITE], 1)
def test_reopened_store_equals_state_in_memory(steps, max_rows):
    store = MemoryStore()
    shared_ports = Ports(store, Random(0).randbytes, "here")  # each start has another incarnation
    local = Local(shared_ports, max_rows)
    pending: dict[int, tuple[str, str]] = {}
    for now_us, (kind, *arguments) in enumerate(steps):
        if kind == "hold":
            name, key, ver, number = arguments
            local.hold_row(name, make_row(key, ver, {"at": now_us}, number, now_us))
        elif kind == "let go":
            local.evict(*arguments)
        elif kind == "write":
            number = local.writes.last_seq + 1
            local.add_write(make_write(number, *arguments))
            pending[number] = arguments[0], arguments[1]
        elif kind in ("change", "over") and pending:
            number = sorted(pending)[arguments[0] % len(pending)]
            item = local.writes[number]
            if kind == "over":
                local.remove_write(item)
                del pending[number]
            else:
                local.change_write(item, due_us=now_us)
        elif kind == "learn":
            local.store_table(make_table(*arguments))
        elif kind == "forget":
            local.forget_tables(*arguments)
        elif kind == "see":
            local.record_seen(*arguments)
        elif kind == "restart":
            local = Local(shared_ports, max_rows)
        assert snapshot(Local(shared_ports, max_rows)) == snapshot(local)
        assert {item.seq: (item.name, item.key) for item in local.writes} == pending
        assert sum(len(keys) for keys in snapshot(local)["of tables"].values()) <= max_rows


# -- committed records


def test_newest_version_is_stored():
    local = Local(ports(), 9)
    local.hold_row("news", make_row("a", 2, {"n": 2}, held_us=10))
    local.hold_row("news", make_row("a", 1, {"n": 1}, held_us=20))
    assert local.held_row("news", "a") == HeldRow("a", 2, {"n": 2}, None, 7, 1, 10)
    local.hold_row("news", make_row("a", 2, {"n": 2}, held_us=30))
    assert local.held_row("news", "a").held_us == 30
    local.hold_row("news", make_row("a", 3, held_us=40))
    assert local.held_row("news", "a").data is None


def test_tables_do_not_share_records():
    local = Local(ports(), 9)
    local.hold_row("news", make_row("a", 1))
    local.hold_row("n", make_row("a", 2))
    assert [row.ver for row in local.rows("news")] == [1]
    local.evict("news", "a")
    local.evict("news", "never held")
    assert local.held_row("news", "a") is None
    assert local.held_row("n", "a").ver == 2


def test_records_received_longest_ago_are_evicted_first():
    local = Local(ports(), 2)
    for now_us, key in enumerate("abac"):
        local.hold_row("news", make_row(key, 1, held_us=now_us))
    assert sorted(stored.key for stored in local.rows("news")) == ["a", "c"]


def test_older_version_of_a_stored_record_evicts_nothing():
    local = Local(ports(), 2)
    local.hold_row("news", make_row("a", 5))
    local.hold_row("news", make_row("b", 1, held_us=1))
    local.hold_row("news", make_row("a", 4, held_us=2))
    assert sorted(stored.key for stored in local.rows("news")) == ["a", "b"]


def test_eviction_order_survives_a_restart():
    store, local = open_store(3)
    for now_us, key in enumerate("cba"):
        local.hold_row("news", make_row(key, 1, held_us=now_us))
    local = Local(ports(store=store), 3)
    local.hold_row("news", make_row("d", 1, held_us=9))
    assert sorted(stored.key for stored in local.rows("news")) == ["a", "b", "d"]


def test_smaller_maximum_after_restart_evicts_records():
    store, local = open_store()
    for now_us, key in enumerate("abcd"):
        local.hold_row("news", make_row(key, 1, held_us=now_us))
    local = Local(ports(store=store), 2)
    local.hold_row("news", make_row("e", 1, held_us=9))
    assert len(list(local.rows("news"))) == len(list(Local(ports(store=store), 2).rows("news"))) == 2


# -- pending writes


def test_eviction_keeps_pending_writes_and_log_positions():
    store, local = open_store(1)
    for number, key in enumerate("abcd", 1):
        local.add_write(make_write(number, key=key))
        local.record_seen("news", 1, 0, number)
        local.hold_row("news", make_row(key, 1, held_us=number))
    for copy in (local, Local(ports(store=store), 1)):
        assert [item.seq for item in copy.writes] == [1, 2, 3, 4]
        assert copy.pending_keys("news") == list("abcd")
        assert copy.seen_lsns("news") == {"0": 4}
        assert len(list(copy.rows("news"))) == 1


def test_pending_writes_of_a_record_are_queued_in_order():
    store, local = open_store()
    for number, key in enumerate("babab", 1):
        local.add_write(make_write(number, key=key))
    for copy in (local, reopen(store)):
        assert [item.seq for item in copy.pending_writes("news", "b")] == [1, 3, 5]
        assert copy.oldest_seqs() == [1, 2]
    local.remove_write(local.writes[1])
    local.remove_write(local.writes[2])
    for copy in (local, reopen(store)):
        assert copy.oldest_seqs() == [3, 4]
        assert copy.pending_writes("news", "x") == []


def test_removed_write_leaves_no_state():
    store, local = open_store()
    local.add_write(make_write(1))
    local.remove_write(local.writes[1])
    assert (list(local.writes), local.oldest_seqs(), local.pending_keys("news")) == ([], [], [])
    assert len(reopen(store).writes) == 0


@pytest.mark.parametrize("data", [{"p": object()}, {"n": 1 << 70}])
def test_write_refused_by_the_store_is_not_pending(data):
    local = Local(ports(), 9)
    with pytest.raises(ParameterError, match="cannot be stored"):
        local.add_write(make_write(1, data=data))
    assert (list(local.writes), local.pending_writes("news", "a"), local.oldest_seqs()) == ([], [], [])


_record_numbers = st.floats() | st.integers(-(1 << 65), 1 << 65) | st.booleans()
_record_values = st.recursive(
    st.none() | _record_numbers | st.text(max_size=3),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=3), _record_values, max_size=3))
def test_checked_records_round_trip_through_the_store(record):
    assert PendingWrite.is_plain  # so the store does not decode what it encodes
    try:
        data = check_record(record, ())
    except ParameterError:
        return
    store = MemoryStore()
    reopen(store).add_write(pending := PendingWrite(
        seq=1, name="news", key="a", type="blind", data=data, reader=data,
        predicate=SentPredicate.of(Predicate("price < :n", n=3)),
    ))  # fmt: skip
    assert list(reopen(store).writes) == [pending]


def test_record_refused_by_the_store_is_not_stored():
    local = Local(ports(), 9)
    local.hold_row("news", make_row("a", 1, {"n": 1}))
    with pytest.raises(ParameterError, match="cannot be stored"):
        local.hold_row("news", make_row("a", 2, {"n": float("nan")}, held_us=1))
    assert local.held_row("news", "a").ver == 1


def test_write_numbers_increase_and_are_not_reused():
    store = MemoryStore()
    numbers = []
    for _ in range(3):
        local = reopen(store)
        assert local.writes.last_seq == len(numbers)
        for _ in range(2):
            numbers.append(local.writes.last_seq + 1)
            local.add_write(make_write(numbers[-1]))
        local.increment("life")
        for number in numbers[-2:][::-1]:
            local.remove_write(local.writes[number])
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert reopen(store).increment("life") == 4


def test_rollback_discards_uncommitted_changes():
    store, local = open_store()
    local.add_write(make_write(1))
    store.commit()
    local.remove_write(local.writes[1])
    local.hold_row("news", make_row("a", 1))
    store.rollback()
    recovered = reopen(store)
    assert ([item.seq for item in recovered.writes], recovered.held_row("news", "a")) == ([1], None)


# -- tables


def test_learn_stores_newer_state_of_a_table():
    store, local = open_store()
    local.hold_row("news", make_row("a", 1))
    assert local.store_table(make_table(lsn=1)).lsn == 1
    assert local.store_table(make_table(lsn=5)).lsn == 5
    assert local.store_table(make_table(lsn=3)).lsn == 5
    assert reopen(store).tables["news"].lsn == 5
    assert local.held_row("news", "a") is not None


def test_learn_new_table_of_same_name_evicts_records():
    store, local = open_store()
    local.store_table(make_table(number=1))
    local.hold_row("news", make_row("a", 1))
    local.hold_row("n", make_row("a", 1))
    local.record_seen("news", 1, 0, 4)
    local.add_write(make_write(1))
    assert local.store_table(make_table(number=7, lsn=7)).number == 7
    for copy in (local, reopen(store)):
        assert copy.tables["news"].number == 7
        assert (list(copy.rows("news")), copy.seen_lsns("news")) == ([], {})
        assert copy.held_row("n", "a") is not None
        assert [item.seq for item in copy.writes] == [1]


def test_learn_ignores_previous_table_of_same_name():
    local = Local(ports(), 9)
    local.store_table(make_table(number=7, lsn=7))
    local.hold_row("news", make_row("a", 1, table=7))
    local.record_seen("news", 7, 0, 8)
    assert local.store_table(make_table(number=1, lsn=3)).number == 7
    assert local.held_row("news", "a") is not None
    assert local.seen_lsns("news") == {"0": 8}


def test_forget_keeps_pending_writes():
    store, local = open_store()
    local.store_table(make_table())
    local.hold_row("news", make_row("a", 1))
    local.record_seen("news", 1, 0, 4)
    local.add_write(make_write(1))
    local.forget_tables("news", 2)
    local.forget_tables("never known", 2)
    for copy in (local, reopen(store)):
        assert (copy.tables, list(copy.rows("news")), copy.seen_lsns("news")) == ({}, [], {})
        assert [item.seq for item in copy.writes] == [1]


def test_forget_keeps_tables_that_are_not_older():
    local = Local(ports(), 9)
    local.store_table(make_table(number=2))
    local.hold_row("news", make_row("a", 1, table=2))
    local.record_seen("n", 2, 0, 4)
    for name in TABLES:
        local.forget_tables(name, 2)
    assert local.tables["news"].number == 2
    assert local.held_row("news", "a") is not None
    assert local.seen_lsns("n") == {"0": 4}


def test_seen_returns_highest_log_position_of_each_partition():
    store, local = open_store()
    for place, lsn in ((0, 5), (1, 2), (0, 3), (1, 4)):
        local.record_seen("news", 1, place, lsn)
    assert local.seen_lsns("news") == reopen(store).seen_lsns("news") == {"0": 5, "1": 4}
    assert local.seen_lsns("n") == {}


def test_hash_of_stored_record_is_cached_until_eviction(monkeypatch):
    hashed = []
    monkeypatch.setattr(module, "value_hash", lambda data: hashed.append(data) or f"hash {data}")
    local = Local(ports(), 10)
    first, second, evicted = {"n": 1}, {"n": 2}, {"n": 1}
    local.hold_row("news", make_row("a", 1, first, held_us=5))
    assert [local.hash_of("news", "a", first) for _ in range(3)] == [f"hash {first}"] * 3
    local.hold_row("news", make_row("a", 2, second, held_us=6))
    assert [local.hash_of("news", "a", second) for _ in range(3)] == [f"hash {second}"] * 3
    assert hashed == [first, second]
    local.evict("news", "a")
    for data in (second, evicted):
        assert [local.hash_of("news", "a", data) for _ in range(2)] == [f"hash {data}"] * 2
    assert hashed == [first, *[second] * 3, *[evicted] * 2]  # hashes of evicted records are not cached


def test_pending_writes_of_an_older_store_keep_their_numbers():
    store = MemoryStore()
    fields = {"number": 7, "name": "news", "key": "a", "type": "blind", "data": {"n": 7}, "predicate": None}
    fields |= {"reader": {}, "replaces": 0, "after": None, "base": None, "invoked_us": 5, "table": 1}
    store.put("write 000000000007", fields | {"due_us": None, "is_refused": False})
    store.put("count of writes", 6)
    store.put("incarnation", "older")
    for _ in range(2):
        local = reopen(store)
        assert [(item.seq, item.data) for item in local.pending_writes("news", "a")] == [(7, {"n": 7})]
        assert local.writes.last_seq == 7
    local.add_write(make_write(8))
    assert local.writes.item_id(7) == ("older", 7)
    assert local.writes.item_id(8) == (local.writes.incarnation, 1)
    local.remove_write(local.writes[8])
    local.remove_write(local.writes[7])
    assert list(reopen(store).writes) == []
    assert reopen(store).writes.last_seq == 8


def test_go_back_removes_versions_lost_by_the_back_end():
    store, local = open_store()
    for key, lsn in (("a", 3), ("b", 8)):
        local.hold_row("news", HeldRow(key, 2, {"n": lsn}, None, lsn, 1, 0))
    lost, kept = local.held_row("news", "b"), local.held_row("news", "a")
    for number, base in ((1, lost), (2, kept)):
        local.add_write(make_write(number, key=base.key))
        local.change_write(local.writes[number], replaces=2, base=base)
    assert local.go_back("second", 5) == ""  # no log position was seen of any table
    local.record_seen("news", 1, 0, 8)
    assert local.go_back("third", 5) == "3"
    for copy in (local, reopen(store)):
        assert (copy.held_row("news", "a"), copy.held_row("news", "b")) == (kept, None)
        assert [item.replaces for item in copy.writes] == [None, 2]
        assert copy.log_incarnation == "third"
    assert local.go_back("fourth", 5) == ""
    assert local.go_back("fifth", 0) == "all"  # a back end whose log began anew


def test_go_back_removes_only_state_after_shared_position():
    store, local = open_store()
    for key, lsn, number in (("a", 5, 5), ("b", 6, 5), ("ü", 5, 6)):
        local.hold_row("a b", HeldRow(key, 2, {}, None, lsn, number, 0))
    older, newer = HeldRow("a", 1, {}, None, 4, 1, 0), HeldRow("a", 3, {}, None, 8, 1, 0)
    cases = [  # key, base, replaced version, table; then the replaced version and the table afterwards
        ("a", local.held_row("a b", "a"), 2, 5, 2, 5), ("b", older, 2, 6, None, None), ("a", newer, 3, None, None, None),
    ]  # fmt: skip
    for number, (key, base, replaces, table_number, *_) in enumerate(cases, 1):
        local.add_write(make_write(number, name="a b", key=key))
        local.change_write(local.writes[number], replaces=replaces, base=base, table=table_number)
    for name, lsn in (("news", 5), ("n", 6)):
        local.store_table(make_table(name, lsn=lsn))
    for name, number, partition, lsn in (
        ("news", 1, 0, 5),
        ("news", 1, 1, 9),
        ("a b", 5, 0, 5),
        ("x", 6, 0, 6),
    ):
        local.record_seen(name, number, partition, lsn)
    assert local.go_back("second", 5) == "4"
    for copy in (local, reopen(store)):
        assert [item.key for item in copy.rows("a b")] == ["a"]
        assert [(item.replaces, item.table) for item in copy.writes] == [case[-2:] for case in cases]
        assert list(copy.tables) == ["news"]
        assert [copy.seen_lsns(name) for name in ("news", "a b", "x")] == [{"0": 5, "1": 5}, {"0": 5}, {}]


@pytest.mark.parametrize("lsn", [59, 60])
def test_version_of_a_later_log_that_was_evicted_is_not_followed_by_an_older_one(lsn):
    """It was pushed before the device heard of the log."""
    _, local = open_store()
    local.store_table(Table("news", "app", number=1, lsn=1))
    local.hold_row("news", HeldRow("a", 2, {}, None, 60, 1, 0, "second"))
    local.record_seen("news", 1, 0, 60, "second")
    local.evict("news", "a")
    local.go_back("second", 5)
    local.hold_told("news", HeldRow("a", 2 - (lsn < 60), {}, None, lsn, 1, 0))
    assert (local.held_row("news", "a") is not None) == (lsn == 60)


@pytest.mark.parametrize(
    "known_by", ["nothing", "eviction", "partial", "another eviction", "restart", "answer", "former answer"]
)
@pytest.mark.parametrize("lsn", [59, 64])
def test_told_version_is_held_unless_a_newer_one_was_lost(known_by, lsn):
    """A processor behind may tell of an older version than the one that the device knew (Mobius 4.1)."""
    store, local = open_store()
    local.store_table(Table("news", "app", number=1, lsn=1, split=["m"]))
    local.record_seen("news", 1, 0, 64)
    match known_by:
        case "eviction" | "another eviction":
            key = "a" if known_by == "eviction" else "b"
            local.hold_row("news", HeldRow(key, 2, {}, None, 60, 1, 0))
            local.evict("news", key)
        case "partial":
            local.hold_row("news", HeldRow("a", 1, {}, None, 58, 1, 0))
            local.evict("news", "a", 60)
        case "restart":
            local = reopen(store)
        case "answer":
            local.lost.record_answer("news", 0, 60)
        case "former answer":
            local.lost.record_answer("news", 0, 60)
            local.forget_tables("news", 2)
            local.store_table(Table("news", "app", number=1, lsn=1, split=["m"]))
    lost_before = local.losses["news"].total()
    local.hold_told("news", HeldRow("a", 1, {}, None, lsn, 1, 0))
    is_held = lsn == 64 or known_by in ("nothing", "another eviction", "former answer")
    assert (local.held_row("news", "a") is not None) == is_held
    assert local.losses["news"].total() == lost_before + (not is_held)
