"""Holding of a processor: what it contains, and a copy of its rows that gains and loses some."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from mudkit.predicates import Predicate
from mudkit.systems.mud.messages.holdings import Holding, digest_of
from mudkit.systems.mud.messages.partitions import read_partitions
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.servers import (
    CollectEntry,
    DropEntry,
    FollowLog,
    Log,
    LogAck,
    LookupEntry,
    RowEntry,
    TableEntry,
)
from mudkit.systems.mud.servers.holders import Holders
from mudkit.systems.mud.servers.log_follower import LogFollower
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.replica import TableReplica
from mudkit.systems.mud.tables.table import Table

TABLE = Table("t", "n", split=["b", "c", "d"], number=4, lsn=4)
"""Four partitions, of the ranges 0 to 3 of four."""
EVEN, ODD = Holding(4, "0 2"), Holding(4, "1 3")
KEYS = "abcd"


def build_row(key, lsn, data=True, predicate=None):
    return Row(key, lsn, {"n": lsn} if data else None, predicate, 0, lsn)


class Store:
    """Log of a back end, and a processor that follows it; messages between them are sent when a test does."""

    def __init__(self, holding=EVEN):
        self.copy = TableReplica()
        self.copy.load(4, [TABLE], [])
        self.holders = Holders(self.copy, has_several=True)
        self.log = []
        self.follower = LogFollower("master", bytes, holding)
        (self.request,) = self.requests_of(self.follower.request_state(0))
        self.answer()

    def requests_of(self, effects):
        """Return the requests among effects; record the acknowledged holding."""
        messages = [effect.message for effect in effects if hasattr(effect, "message")]
        for message in messages:
            self.holders.record("p", message.holding)
        return [message for message in messages if isinstance(message, FollowLog)]

    def put(self, *entries):
        """Append entries of the next positions; the processor does not hear of them yet."""
        for entry in entries:
            self.log.append(entry)
            self.copy.apply(entry)
            self.holders.follow(entry)

    def write(self, key, **fields):
        lsn = self.copy.lsn + 1
        self.put(RowEntry(lsn, "t", build_row(key, lsn, **fields)))

    def choose(self):
        """Return the message of all entries that the processor lacks, as it is now."""
        acked = self.follower.lsn
        log = Log([entry for entry in self.log if entry.lsn > acked])
        return self.holders.choose("p", log, acked, self.copy.lsn)

    def take(self, message=None):
        """Apply all that the processor lacks, or a message; return the positions of its entries."""
        taken = []
        for entry in self.follower.take_entries(message or self.choose()):
            self.follower.apply(entry)
            taken.append(entry.lsn)
        return taken

    def hold(self, holding):
        """Change the holding of the processor; what it requests is not answered yet."""
        requests = self.requests_of(self.follower.change_holding(0, holding))
        self.request = requests[0] if requests else None

    def state(self, request=None):
        """Return the answer to a request, as of now."""
        return self.holders.build_state("p", request or self.request, {}).message

    def answer(self, state=None):
        return self.follower.load_state(0, state or self.state())

    def versions(self):
        """Return the versions that the copy has, by key."""
        return {row.key: row.lsn for row in self.follower.copy.rows(TABLE, range(4))}

    def has(self, *partitions):
        return self.follower.has_rows(TABLE, partitions)


def test_holding_has_its_ranges_and_what_moved():
    holding = Holding(4, "0 2", gained=[(4, "1"), (9, "0-3")], lost=[(4, "0")], tables=["m"])
    assert [holding.serves(4, partition) for partition in range(4)] == [False, True, True, False]
    assert [holding.serves(8, partition) for partition in range(4)] == [True, False, True, False]
    assert all(holding.serves(9, partition) for partition in range(4))
    assert not holding.has(TABLE, 0)
    assert holding.has(replace(TABLE, name="m"), 0)
    assert not Holding(4, "").serves_any(TABLE)
    assert Holding(4, "", [(4, "3")]).serves_any(TABLE)


@pytest.mark.parametrize("fields", [{"taken": "2 1"}, {"taken": "", "lost": [(1, "3 0")]}])
def test_partitions_of_a_holding_are_in_order(fields):
    with pytest.raises(ValueError, match="in ascending order"):
        Holding(**{"ranges": 4, **fields})


def test_processor_is_sent_its_rows_and_the_position():
    store = Store()
    for key in KEYS:
        store.write(key)
    assert store.take() == [5, 7]
    assert (store.follower.lsn, store.versions()) == (8, {"a": 5, "c": 7})
    assert store.has(0, 2)
    assert not store.has(1)


def test_message_for_another_holding_is_not_taken():
    store = Store()
    store.write("b")
    message = store.choose()
    store.hold(ODD)
    assert store.take(message) == []
    assert store.follower.lsn == 4
    assert store.take(replace(message, holding=UNSET)) == []
    assert store.take(replace(store.choose(), after_lsn=5)) == []  # what is before may lack
    assert store.take() == [5]


def test_processor_that_knows_no_holding_of_a_follower_takes_nothing_of_it():
    store = Store()
    store.write("a")
    message = Log(store.log)
    assert Holders(store.copy, has_several=True).choose("p", message, 4, 5) == message
    assert store.take(message) == []
    assert store.follower.acknowledge(0).message == LogAck(4, holding=EVEN)


@pytest.mark.parametrize("is_state_first", [True, False])
def test_gained_rows_are_here_when_the_copy_has_come_to_their_position(is_state_first):
    store = Store()
    for key in KEYS:
        store.write(key)
    store.take()
    store.hold(Holding(4, "0-2"))
    assert store.request.formers == [EVEN]
    store.write("b")  # 9
    if is_state_first:
        store.answer()
        assert (store.versions(), store.has(1)) == ({"a": 5, "b": 9, "c": 7}, False)
        assert store.take() == [9]
    else:
        state = store.state()
        store.write("b")  # 10
        assert store.take() == [9, 10]
        assert (store.versions(), store.has(1)) == ({"a": 5, "b": 10, "c": 7}, False)
        store.answer(state)
    assert store.has(1)
    assert store.versions() == {"a": 5, "b": 9 + (not is_state_first), "c": 7}
    assert store.follower.request_state(0) == ()


def test_lost_rows_are_discarded_and_requested_when_they_come_back():
    store = Store()
    store.write("a")
    store.take()
    store.hold(Holding(4, "2"))
    assert (store.request, store.versions()) == (None, {})
    store.hold(EVEN)
    assert store.request.formers == [Holding(4, "2")]
    store.answer()
    assert store.has(0, 2)
    assert store.versions() == {"a": 5}


def test_state_of_a_former_request_is_not_all_that_lacks():
    store = Store()
    for key in KEYS:
        store.write(key)
    store.take()
    store.hold(Holding(4, "0-2"))
    late = store.state()
    store.hold(Holding(4, "2"))
    store.hold(Holding(4, "0-2"))
    store.answer(late)
    assert not store.has(0)
    store.answer(store.state(FollowLog(late.incarnation, Holding(4, "0-2"), [EVEN])))
    assert not store.has(0)
    store.answer()
    assert store.has(0, 1, 2)
    assert store.versions() == {"a": 5, "b": 6, "c": 7}


def test_tombstone_that_was_removed_does_not_come_back_with_a_state():
    store = Store()
    store.write("b", data=False)
    store.take()
    store.hold(Holding(4, "0-2"))
    state = store.state()
    store.put(CollectEntry(6, "t", 5))
    store.take()
    store.answer(state)
    assert (store.versions(), store.has(1)) == ({}, True)


def test_rows_of_a_dropped_table_do_not_come_with_a_state():
    store = Store()
    store.write("b")
    store.take()
    store.hold(Holding(4, "0-3"))
    state = store.state()
    store.put(DropEntry(6, "t"), TableEntry(7, replace(TABLE, number=7, lsn=7)))
    store.take()
    store.answer(state)
    assert [*store.follower.copy.rows(replace(TABLE, number=7), range(4))] == []


def test_rows_of_a_former_table_of_the_name_are_sent_to_all():
    store = Store()
    store.write("b")
    store.put(DropEntry(6, "t"), TableEntry(7, replace(TABLE, number=7, lsn=7, split=[])))
    store.put(RowEntry(8, "t", build_row("b", 8)))
    assert store.take() == [5, 6, 7]  # the range of the only partition of the second one is 3
    assert store.follower.lsn == 8


def test_copy_with_rows_that_a_restored_log_may_lack_is_discarded():
    store = Store()
    store.take()
    store.hold(Holding(4, "0-3"))
    store.write("b")
    store.answer()
    follower = store.follower
    assert (follower.lsn, store.versions()) == (4, {"b": 5})
    assert follower.accept_log(Log([]))
    lineage = {"other": 5}
    assert not follower.accept_log(Log([], lineage))
    nonce = follower.acknowledge(0).message.nonce
    assert follower.accept_log(Log([], lineage, nonce, 4, 4))
    assert follower.lsn == -1


def test_entries_out_of_order_are_inconsistent():
    store = Store()
    store.write("a")
    store.write("c")
    message = store.choose()
    assert store.follower.is_consistent(message)
    assert not store.follower.is_consistent(replace(message, entries=message.entries[::-1]))


# -- tables in which records are looked up

OTHER = Table("m", "n", split=["b", "c", "d"], number=3, lsn=3)
LOOKUP = SentPredicate.of(Predicate("lookup('m', key, 'ok')"))


def store_with_other():
    store = Store()
    store.put(TableEntry(5, OTHER))
    for lsn, key in enumerate(KEYS, 6):
        store.put(RowEntry(lsn, "m", build_row(key, lsn)))
    store.take()
    return store


def others_held(store):
    return {row.key: row.lsn for row in store.follower.copy.rows(OTHER, range(4))}


def put_lookup(store, name="t"):
    rows = [*store.copy.rows(OTHER, range(4))]
    store.put(LookupEntry(store.copy.lsn + 1, name, "m", rows))


def test_table_that_is_looked_up_is_held_as_of_the_entry_and_all_its_changes_follow():
    store = store_with_other()
    assert others_held(store) == {"b": 7, "d": 9}
    put_lookup(store)  # 10
    store.put(RowEntry(11, "m", build_row("a", 11)))
    for entry in store.follower.take_entries(store.choose()):
        store.follower.apply(entry)
        assert entry.lsn == 10
        store.follower.keep_looked_up(entry)
    assert store.follower.holding == replace(EVEN, tables=["m"])
    assert store.follower.lsn == 10
    assert others_held(store) == {"a": 6, "b": 7, "c": 8, "d": 9}
    store.requests_of([store.follower.acknowledge(0)])
    assert store.follower.has_rows(TABLE, [0], {"m"})
    assert store.take() == [11]
    assert others_held(store) == {"a": 11, "b": 7, "c": 8, "d": 9}


def test_lookups_of_records_of_others_come_without_rows():
    store = store_with_other()
    store.hold(Holding(4, "", [(3, "1")]))
    put_lookup(store)
    assert store.choose().entries == [LookupEntry(10, "t", "m")]
    assert Holders(store.copy, has_several=True).choose("replica", Log(store.log[-1:]), 9, 10).entries == [
        LookupEntry(10, "t", "m")
    ]


def test_state_says_which_tables_are_looked_up_as_long_as_there_are_such_records():
    store = store_with_other()
    put_lookup(store)
    assert store.holders.list_lookups("t", [build_row("a", 11, predicate=LOOKUP)]) == []
    state = store.state(FollowLog("x", EVEN))
    assert state.lookups == {"t": ["m"]}
    store.put(DropEntry(11, "t"))
    assert store.state(FollowLog("x", EVEN)).lookups == {}


def test_store_that_starts_finds_the_tables_that_are_looked_up():
    store = store_with_other()
    store.write("a", predicate=LOOKUP)
    assert Holders(store.copy, has_several=True).build_state(
        "p", FollowLog("x", EVEN), {}
    ).message.lookups == {"t": ["m"]}
    assert (
        Holders(store.copy, has_several=False).list_lookups("t", [build_row("a", 11, predicate=LOOKUP)]) == []
    )


def test_first_lookup_is_put_with_the_rows_of_the_table():
    store = store_with_other()
    ((name, rows),) = store.holders.list_lookups("t", [build_row("a", 10, predicate=LOOKUP)] * 2)
    assert (name, [row.key for row in rows]) == ("m", [*KEYS])


# -- any order of messages

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(KEYS)),
        st.tuples(st.just("delete"), st.sampled_from(KEYS)),
        st.tuples(st.just("hold"), st.sampled_from(["", "0", "1", "0 2", "0-3"])),
        st.tuples(st.sampled_from(["choose", "build"])),
        st.tuples(st.sampled_from(["take", "answer"]), st.integers(0, 9)),
    ),
    max_size=30,
)


@given(STEPS)
def test_rows_are_those_of_the_log_in_any_order_of_messages(steps):
    """Messages come late, twice, or never; what the copy says that it has is what the log has at its position."""
    store = Store()
    logs, states, requests, history = [], [], [], {4: {}}
    for step in steps:
        match step:
            case ("write" | "delete", key):
                store.write(key, data=step[0] == "write")
                history[store.copy.lsn] = {row.key: row.lsn for row in store.copy.rows(TABLE, range(4))}
            case ("hold", taken):
                former = store.follower.holding
                store.hold(Holding(4, taken))
                requests += [store.request] if store.request and former != store.follower.holding else []
            case ("choose",):
                logs.append(store.choose())
            case ("build",) if requests:
                states += [store.state(requests[-1])]
            case ("take", number) if logs:
                message = logs[number % len(logs)]
                if store.follower.is_consistent(message):
                    store.take(message)
            case ("answer", number) if states:
                store.answer(states[number % len(states)])
        at = history[store.follower.lsn]
        present, taken = store.versions(), {*read_partitions(store.follower.holding.taken)}
        assert {KEYS.index(key) for key in present} <= taken
        for partition in taken:
            if store.has(partition):
                assert present.get(KEYS[partition]) == at.get(KEYS[partition])
    store.follower.request_state(0)
    if requests and not store.has(*read_partitions(store.follower.holding.taken)):
        store.answer(store.state(requests[-1]))
    store.requests_of([store.follower.acknowledge(0)])
    store.take()
    assert store.has(*read_partitions(store.follower.holding.taken))


def test_digests_tell_holdings_apart():
    holdings = [EVEN, ODD, replace(EVEN, tables=["m"]), replace(EVEN, lost=[(4, "0")])]
    digests = [digest_of(holding) for holding in holdings] + [digest_of(EVEN, ODD)]
    assert len({*digests}) == len(digests)
    assert digest_of(Holding(4, "0 2")) == digests[0]
