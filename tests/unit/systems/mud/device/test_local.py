"""The local store of a client: what it holds, and that it outlives the machine."""

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


def row(key: str, ver: int, data: dict[str, Any] | None = None, table: int = 1, held_us: int = 0) -> HeldRow:
    return HeldRow(key, ver, data, None, 7, table, held_us)


def write(number: int, name: str = "news", key: str = "a", data: Any = None) -> PendingWrite:
    return PendingWrite(number=number, name=name, key=key, type="blind", data=data or {"n": number})


def table(name: str = "news", number: int = 1, lsn: int = 1) -> Table:
    return Table(name, "app", number=number, lsn=lsn)


def again(store: MemoryStore) -> Local:
    """What a client that begins anew has."""
    return Local(ports(store=store), 9)


def kept(max_rows: int = 9) -> tuple[MemoryStore, Local]:
    store = MemoryStore()
    return store, Local(ports(store=store), max_rows)


def held(local: Local) -> dict[str, Any]:
    """All that can be asked for."""
    return {
        "rows": {(name, key): local.row(name, key) for name in TABLES for key in KEYS},
        "of tables": {name: sorted(each.key for each in local.rows(name)) for name in TABLES},
        "writes": list(local.writes),
        "pending": {(name, key): local.pending(name, key) for name in TABLES for key in KEYS},
        "pending keys": {name: sorted(local.pending_keys(name)) for name in TABLES},
        "heads": local.heads(),
        "tables": dict(local.tables),
        "seen": {name: local.seen(name) for name in TABLES},
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
def test_what_is_read_back_is_what_was_there(steps, max_rows):
    store = MemoryStore()
    each_start = Ports(store, Random(0).randbytes, "here")  # no two starts are one incarnation
    local = Local(each_start, max_rows)
    pending: dict[int, tuple[str, str]] = {}
    for now_us, (what, *given_) in enumerate(steps):
        if what == "hold":
            name, key, ver, number = given_
            local.hold(name, row(key, ver, {"at": now_us}, number, now_us))
        elif what == "let go":
            local.evict(*given_)
        elif what == "write":
            number = local.writes.last_seq + 1
            local.add(write(number, *given_))
            pending[number] = given_[0], given_[1]
        elif what in ("change", "over") and pending:
            number = sorted(pending)[given_[0] % len(pending)]
            each = local.writes[number]
            if what == "over":
                local.remove(each)
                del pending[number]
            else:
                local.change(each, due_us=now_us)
        elif what == "learn":
            local.learn(table(*given_))
        elif what == "forget":
            local.forget(*given_)
        elif what == "see":
            local.see(*given_)
        elif what == "restart":
            local = Local(each_start, max_rows)
        assert held(Local(each_start, max_rows)) == held(local)
        assert {each.number: (each.name, each.key) for each in local.writes} == pending
        assert sum(len(keys) for keys in held(local)["of tables"].values()) <= max_rows


# -- committed records


def test_the_newest_version_is_held():
    local = Local(ports(), 9)
    local.hold("news", row("a", 2, {"n": 2}, held_us=10))
    local.hold("news", row("a", 1, {"n": 1}, held_us=20))
    assert local.row("news", "a") == HeldRow("a", 2, {"n": 2}, None, 7, 1, 10)
    local.hold("news", row("a", 2, {"n": 2}, held_us=30))
    assert local.row("news", "a").held_us == 30
    local.hold("news", row("a", 3, held_us=40))
    assert local.row("news", "a").data is None


def test_tables_do_not_share_records():
    local = Local(ports(), 9)
    local.hold("news", row("a", 1))
    local.hold("n", row("a", 2))
    assert [each.ver for each in local.rows("news")] == [1]
    local.evict("news", "a")
    local.evict("news", "never held")
    assert local.row("news", "a") is None
    assert local.row("n", "a").ver == 2


def test_those_held_longest_ago_go_first():
    local = Local(ports(), 2)
    for now_us, key in enumerate("abac"):
        local.hold("news", row(key, 1, held_us=now_us))
    assert sorted(each.key for each in local.rows("news")) == ["a", "c"]


def test_an_old_answer_does_not_cost_a_newer_record():
    local = Local(ports(), 2)
    local.hold("news", row("a", 5))
    local.hold("news", row("b", 1, held_us=1))
    local.hold("news", row("a", 4, held_us=2))
    assert sorted(each.key for each in local.rows("news")) == ["a", "b"]


def test_after_a_restart_too_those_held_longest_ago_go_first():
    store, local = kept(3)
    for now_us, key in enumerate("cba"):
        local.hold("news", row(key, 1, held_us=now_us))
    local = Local(ports(store=store), 3)
    local.hold("news", row("d", 1, held_us=9))
    assert sorted(each.key for each in local.rows("news")) == ["a", "b", "d"]


def test_a_smaller_store_after_a_restart_holds_less():
    store, local = kept()
    for now_us, key in enumerate("abcd"):
        local.hold("news", row(key, 1, held_us=now_us))
    local = Local(ports(store=store), 2)
    local.hold("news", row("e", 1, held_us=9))
    assert len(list(local.rows("news"))) == len(list(Local(ports(store=store), 2).rows("news"))) == 2


# -- pending writes


def test_eviction_drops_no_pending_write_and_nothing_that_was_seen():
    store, local = kept(1)
    for number, key in enumerate("abcd", 1):
        local.add(write(number, key=key))
        local.see("news", 1, 0, number)
        local.hold("news", row(key, 1, held_us=number))
    for each in (local, Local(ports(store=store), 1)):
        assert [one.number for one in each.writes] == [1, 2, 3, 4]
        assert each.pending_keys("news") == list("abcd")
        assert each.seen("news") == {"0": 4}
        assert len(list(each.rows("news"))) == 1


def test_the_writes_of_a_record_wait_in_line():
    store, local = kept()
    for number, key in enumerate("babab", 1):
        local.add(write(number, key=key))
    for each in (local, again(store)):
        assert [one.number for one in each.pending("news", "b")] == [1, 3, 5]
        assert each.heads() == [1, 2]
    local.remove(local.writes[1])
    local.remove(local.writes[2])
    for each in (local, again(store)):
        assert each.heads() == [3, 4]
        assert each.pending("news", "x") == []


def test_a_write_that_is_over_is_forgotten_whole():
    store, local = kept()
    local.add(write(1))
    local.remove(local.writes[1])
    assert (list(local.writes), local.heads(), local.pending_keys("news")) == ([], [], [])
    assert len(again(store).writes) == 0


@pytest.mark.parametrize("data", [{"p": object()}, {"n": 1 << 70}])
def test_a_write_that_the_store_refuses_is_not_pending(data):
    local = Local(ports(), 9)
    with pytest.raises(ParameterError, match="cannot be stored"):
        local.add(write(1, data=data))
    assert (list(local.writes), local.pending("news", "a"), local.heads()) == ([], [], [])


_numbers_of_records = st.floats() | st.integers(-(1 << 65), 1 << 65) | st.booleans()
_values_of_records = st.recursive(
    st.none() | _numbers_of_records | st.text(max_size=3),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=3), _values_of_records, max_size=3))
def test_what_a_write_is_checked_for_comes_back_from_the_store(given):
    assert PendingWrite.is_plain  # so the store does not look
    try:
        data = check_record(given, ())
    except ParameterError:
        return
    store = MemoryStore()
    again(store).add(pending := PendingWrite(
        number=1, name="news", key="a", type="blind", data=data, reader=data,
        predicate=SentPredicate.of(Predicate("price < :n", n=3)),
    ))  # fmt: skip
    assert list(again(store).writes) == [pending]


def test_a_record_that_the_store_refuses_is_not_held():
    local = Local(ports(), 9)
    local.hold("news", row("a", 1, {"n": 1}))
    with pytest.raises(ParameterError, match="cannot be stored"):
        local.hold("news", row("a", 2, {"n": float("nan")}, held_us=1))
    assert local.row("news", "a").ver == 1


def test_numbers_count_up_and_never_come_again():
    store = MemoryStore()
    counted = []
    for _ in range(3):
        local = again(store)
        assert local.writes.last_seq == len(counted)
        for _ in range(2):
            counted.append(local.writes.last_seq + 1)
            local.add(write(counted[-1]))
        local.next_number("life")
        for number in counted[-2:][::-1]:
            local.remove(local.writes[number])
    assert counted == [1, 2, 3, 4, 5, 6]
    assert again(store).next_number("life") == 4


def test_what_is_not_committed_is_undone_with_the_machine():
    store, local = kept()
    local.add(write(1))
    store.commit()
    local.remove(local.writes[1])
    local.hold("news", row("a", 1))
    store.rollback()
    new = again(store)
    assert ([each.number for each in new.writes], new.row("news", "a")) == ([1], None)


# -- tables


def test_a_newer_state_of_a_table_is_learnt():
    store, local = kept()
    local.hold("news", row("a", 1))
    assert local.learn(table(lsn=1)).lsn == 1
    assert local.learn(table(lsn=5)).lsn == 5
    assert local.learn(table(lsn=3)).lsn == 5
    assert again(store).tables["news"].lsn == 5
    assert local.row("news", "a") is not None


def test_another_table_of_the_same_name_takes_what_was_held():
    store, local = kept()
    local.learn(table(number=1))
    local.hold("news", row("a", 1))
    local.hold("n", row("a", 1))
    local.see("news", 1, 0, 4)
    local.add(write(1))
    assert local.learn(table(number=7, lsn=7)).number == 7
    for each in (local, again(store)):
        assert each.tables["news"].number == 7
        assert (list(each.rows("news")), each.seen("news")) == ([], {})
        assert each.row("n", "a") is not None
        assert [one.number for one in each.writes] == [1]


def test_a_late_word_of_the_table_before_is_not_learnt():
    local = Local(ports(), 9)
    local.learn(table(number=7, lsn=7))
    local.hold("news", row("a", 1, table=7))
    local.see("news", 7, 0, 8)
    assert local.learn(table(number=1, lsn=3)).number == 7
    assert local.row("news", "a") is not None
    assert local.seen("news") == {"0": 8}


def test_a_table_that_is_forgotten_leaves_its_pending_writes():
    store, local = kept()
    local.learn(table())
    local.hold("news", row("a", 1))
    local.see("news", 1, 0, 4)
    local.add(write(1))
    local.forget("news", 2)
    local.forget("never known", 2)
    for each in (local, again(store)):
        assert (each.tables, list(each.rows("news")), each.seen("news")) == ({}, [], {})
        assert [one.number for one in each.writes] == [1]


def test_a_table_that_is_not_older_is_not_forgotten():
    local = Local(ports(), 9)
    local.learn(table(number=2))
    local.hold("news", row("a", 1, table=2))
    local.see("n", 2, 0, 4)
    for name in TABLES:
        local.forget(name, 2)
    assert local.tables["news"].number == 2
    assert local.row("news", "a") is not None
    assert local.seen("n") == {"0": 4}


def test_a_partition_has_been_seen_up_to_the_latest_entry():
    store, local = kept()
    for place, lsn in ((0, 5), (1, 2), (0, 3), (1, 4)):
        local.see("news", 1, place, lsn)
    assert local.seen("news") == again(store).seen("news") == {"0": 5, "1": 4}
    assert local.seen("n") == {}


def test_the_hash_of_what_is_held_is_made_once_and_goes_with_it(monkeypatch):
    made = []
    monkeypatch.setattr(module, "value_hash", lambda data: made.append(data) or f"hash {data}")
    local = Local(ports(), 10)
    first, second, gone = {"n": 1}, {"n": 2}, {"n": 1}
    local.hold("news", row("a", 1, first, held_us=5))
    assert [local.hash_of("news", "a", first) for _ in range(3)] == [f"hash {first}"] * 3
    local.hold("news", row("a", 2, second, held_us=6))
    assert [local.hash_of("news", "a", second) for _ in range(3)] == [f"hash {second}"] * 3
    assert made == [first, second]
    local.evict("news", "a")
    assert [local.hash_of("news", "a", gone) for _ in range(2)] == [f"hash {gone}"] * 2
    assert made == [first, second, gone, gone]  # what is not held is not kept


def test_pending_writes_of_an_older_store_keep_their_numbers():
    store = MemoryStore()
    older = {"number": 7, "name": "news", "key": "a", "type": "blind", "data": {"n": 7}, "predicate": None}
    older |= {"reader": {}, "replaces": 0, "after": None, "base": None, "invoked_us": 5, "table": 1}
    store.put("write 000000000007", older | {"due_us": None, "is_refused": False})
    store.put("count of writes", 6)
    store.put("incarnation", "older")
    for _ in range(2):
        local = again(store)
        assert [(each.number, each.data) for each in local.pending("news", "a")] == [(7, {"n": 7})]
        assert local.writes.last_seq == 7
    local.add(write(8))
    assert local.writes.name(7) == ("older", 7)
    assert local.writes.name(8) == (local.writes.incarnation, 1)
    local.remove(local.writes[8])
    local.remove(local.writes[7])
    assert list(again(store).writes) == []
    assert again(store).writes.last_seq == 8


def test_it_goes_back_to_what_another_start_of_the_back_end_has():
    store, local = kept()
    for key, lsn in (("a", 3), ("b", 8)):
        local.hold("news", HeldRow(key, 2, {"n": lsn}, None, lsn, 1, 0))
    lost, stays = local.row("news", "b"), local.row("news", "a")
    for number, base in ((1, lost), (2, stays)):
        local.add(write(number, key=base.key))
        local.change(local.writes[number], replaces=2, base=base)
    assert local.go_back("second", 5) == ""  # of no table it was known how far it was seen
    local.see("news", 1, 0, 8)
    assert local.go_back("third", 5) == "entries 6 to 8 of the log"
    for each in (local, again(store)):
        assert (each.row("news", "a"), each.row("news", "b")) == (stays, None)
        assert [one.replaces for one in each.writes] == [None, 2]
        assert each.start == "third"
    assert local.go_back("fourth", 5) == ""


def test_going_back_removes_what_is_after_the_shared_position_and_nothing_else():
    store, local = kept()
    for key, lsn, number in (("a", 5, 5), ("b", 6, 5), ("ü", 5, 6)):
        local.hold("a b", HeldRow(key, 2, {}, None, lsn, number, 0))
    older, newer = HeldRow("a", 1, {}, None, 4, 1, 0), HeldRow("a", 3, {}, None, 8, 1, 0)
    based = [  # place, base and version that it replaces, table; then what it replaces and the table afterwards
        ("a", local.row("a b", "a"), 2, 5, 2, 5), ("b", older, 2, 6, None, None), ("a", newer, 3, None, None, None),
    ]  # fmt: skip
    for number, (key, base, replaces, of, *_) in enumerate(based, 1):
        local.add(write(number, name="a b", key=key))
        local.change(local.writes[number], replaces=replaces, base=base, table=of)
    for name, lsn in (("news", 5), ("n", 6)):
        local.learn(table(name, lsn=lsn))
    for name, number, partition, lsn in (
        ("news", 1, 0, 5),
        ("news", 1, 1, 9),
        ("a b", 5, 0, 5),
        ("x", 6, 0, 6),
    ):
        local.see(name, number, partition, lsn)
    assert local.go_back("second", 5) == "entries 6 to 9 of the log"
    for each in (local, again(store)):
        assert [one.key for one in each.rows("a b")] == ["a"]
        assert [(one.replaces, one.table) for one in each.writes] == [case[-2:] for case in based]
        assert list(each.tables) == ["news"]
        assert [each.seen(name) for name in ("news", "a b", "x")] == [{"0": 5, "1": 5}, {"0": 5}, {}]
