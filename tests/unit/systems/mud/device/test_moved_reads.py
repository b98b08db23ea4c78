"""Continuous reads of a client whose partitions move between processors, and positions of earlier versions."""

from __future__ import annotations

import pytest
from msgspec import convert
from mud_reads import TABLE, Reads, asks, completed, delivered

from mudkit.events import Notify
from mudkit.predicates import Predicate
from mudkit.systems.mud.operations import Register, Unregister
from mudkit.systems.mud.tables.table import Table


@pytest.fixture
def reads():
    """A read that has received all of its first partition up to 7, and of its second one up to 5."""
    reads = Reads()
    reads.begin()
    assert delivered(reads.notify_change("a", 1, 7)) == [("upsert", "a", 1)]
    return reads


def split_asks(effects):
    """Return the handle that ends, and the registration of the read under another one."""
    (_, ended), (_, again) = asks(effects)
    assert (ended["what"]["op"], again["what"]["op"]) == ("unregister", "register")
    return ended["what"]["handle"], again


def test_read_of_a_moved_partition_is_registered_anew_from_its_positions(reads):
    handle, again = split_asks(reads.notify(moved=True))
    assert handle == "first 1"
    assert again["what"]["handle"] == "first 1.1"
    assert again["what"]["since"] == {"0": 7, "1": 5}
    assert again["what"]["held"] == ["a"]


def test_first_registration_of_a_moved_partition_completes_the_call():
    reads = Reads()
    reads.register(sync=0)
    reads.welcome("s")
    _, again = split_asks(reads.notify(moved=True))
    assert [effect.op_id for effect in completed(reads.answer(again, {"p0": 1, "p1": 1}))] == [1]


def test_last_change_of_the_former_processor_is_ignored_after_the_first_one_of_the_new(reads):
    """It is late: the new processor tells of it, too, for it was registered from the position before."""
    _, again = split_asks(reads.notify(moved=True))
    reads.answer_part(again, "p1", 1, data_seq=1, of="0 1")
    reads.take({"kind": "complete", "id": again["id"], "places": [0, 1]})
    new = {"processor": "p1", "of": "0 1", "handle": "first 1.1"}
    assert delivered(reads.notify_change("a", 2, 8, op="remove", **new)) == [("remove", "a", 2)]
    assert delivered(reads.notify_change("a", 1, 6)) == []
    assert delivered(reads.notify_change("b", 1, 9)) == []
    assert reads.watching.read_of(1).stored.since_lsns == {0: 8, 1: 8}
    assert delivered(reads.notify_change("b", 1, 9, **new)) == [("upsert", "b", 1)]


@pytest.mark.parametrize("change", [{"lsn": 9}, {"lsn": None}])
def test_change_of_another_processor_of_a_partition_is_not_delivered(reads, change):
    """Under one name a partition has one processor: which of the two is late, the device cannot know."""
    effects = reads.notify_change("a", 2, **change, processor="new", of="0")
    assert delivered(effects) == []
    _, again = split_asks(effects)
    assert again["what"]["since"] == {"0": 7, "1": 5}


def test_processor_that_has_other_partitions_than_before_is_registered_anew(reads):
    effects = reads.notify(processor="p1", of="0 1", synced=9)
    assert split_asks(effects)[1]["what"]["since"] == {"0": 7, "1": 5}


def test_acknowledgement_of_another_processor_is_followed_by_a_registration_under_another_name(reads):
    ((_, ask),) = asks(reads.welcome("another"))
    reads.answer_part(ask, "p1", 1, data_seq=1)
    reads.answer_part(ask, "new", 1, data_seq=1, of="0")
    effects = reads.take({"kind": "complete", "id": ask["id"], "places": [0, 1]})
    assert split_asks(effects)[1]["what"]["handle"] == "first 1.1"


def test_answer_lacks_a_partition_if_no_processor_has_named_it(reads):
    ((_, ask),) = asks(reads.welcome("another"))
    reads.answer_part(ask, "p1", 1, data_seq=1)
    ((_, again),) = asks(reads.take({"kind": "complete", "id": ask["id"], "places": [0, 1]}))
    assert (again["what"]["op"], again["what"]["handle"]) == ("register", "first 1")


@pytest.mark.parametrize("unnamed", [{"of": ""}, {"processor": "new"}])
def test_change_of_a_processor_that_has_not_named_its_partitions_is_ignored(unnamed):
    reads = Reads()
    reads.register(sync=0)
    reads.welcome("s")
    assert delivered(reads.notify_change("a", 1, 6, **unnamed)) == []


def test_partitions_of_one_position_are_named_together():
    reads = Reads()
    reads.begin()
    for processor in ("p0", "p1"):
        reads.notify(processor=processor, synced=9)
    ((_, ask),) = asks(reads.welcome("another"))
    assert ask["what"]["since"] == {"0 1": 9}


def test_read_that_has_moved_after_its_end_is_not_registered(reads):
    reads.watching.unregister(0, 2, Unregister(1))
    assert asks(reads.notify(moved=True)) == []


def test_values_of_aggregates_are_those_of_the_processors_that_serve_now():
    """The state of the former one counts no more, and no value is shown without that of the new one."""
    reads = Reads()
    register = Register("t", Predicate("TRUE"), {}, 0, "me", aggregate="count(*)")
    reads.watching.register(0, 1, register)
    ((_, ask),) = asks(reads.welcome("s"))
    reads.notify(state=[2])
    reads.notify(state=[3], processor="p1")
    (first,) = [
        effect.payload for effect in reads.answer(ask, {"p0": 1, "p1": 1}) if isinstance(effect, Notify)
    ]
    assert first == {"count(*)": 5}
    _, again = split_asks(reads.notify(moved=True))
    reads.answer_part(again, "p1", 1, data_seq=1, of="0 1")
    late = [
        *reads.take({"kind": "complete", "id": again["id"], "places": [0, 1]}),
        *reads.notify(state=[3], processor="p1"),
    ]
    assert not any(isinstance(effect, Notify) for effect in late)
    changed = reads.notify(state=[6], of="0 1", processor="p1", handle="first 1.1")
    (second,) = [effect.payload for effect in changed if isinstance(effect, Notify)]
    assert second == {"count(*)": 6}


# -- positions that earlier versions stored by the address of the processor

FORMER = {
    "since": {"p1": 5, "p0": 7},
    "starts": {"p0": "b"},
    "begun": {"p0": 3, "p1": 4},
    "processors": ["p0", "p1"],
}
TAKEN = {"since_lsns", "log_incarnations", "begun_lsns", "partitions"}


def store_as_before(reads, former, split=("~",)):
    """Store a read as an earlier version did, and its table with some partitions; return its next start."""
    (key,) = reads.ports.store.keys("reading ")
    stored = reads.ports.store.get(key)
    reads.ports.store.put(key, {name: stored[name] for name in stored if name not in TAKEN} | former)
    if split is not None:
        reads.local.store_table(convert({**TABLE, "split": list(split), "lsn": 2}, Table))
    return Reads(reads.ports.store)


@pytest.mark.parametrize(
    ("split", "since", "starts"),
    [
        ("~", {"0": 7, "1": 5}, {"0": "b"}),
        ("p~", {"0 2": 7, "1": 5}, {"0 2": "b"}),
        ("", {"0": 7}, {"0": "b"}),
    ],
)
def test_positions_by_processor_are_converted(split, since, starts):
    """The processors took the partitions in turns, which the last answer has named in this order."""
    reads = Reads()
    reads.begin()
    ((_, ask),) = asks(store_as_before(reads, FORMER, split).welcome("s2"))
    assert (ask["what"]["since"], ask["what"]["starts"]) == (since, starts)


def test_positions_without_an_answer_are_dropped_and_the_delivered_records_named():
    """The partitions of the processor are not stored; what it has sent is not delivered again."""
    reads = Reads()
    reads.register(sync=0)
    reads.welcome("s")
    reads.notify_change("a", 1, 7)
    again = store_as_before(reads, {**FORMER, "processors": []}, None)
    ((_, ask),) = asks(again.welcome("s2"))
    assert (ask["what"]["since"], ask["what"]["held"], ask["what"]["sync_us"]) == ({}, ["a"], 0)
    assert delivered(again.notify_change("a", 1, None)) == []


def test_converted_positions_are_stored_by_partition():
    reads = Reads()
    reads.begin()
    again = store_as_before(reads, FORMER)
    again.welcome("s2")
    again.notify_change("a", 1, 8, start="b", handle="first 1")
    (stored,) = [value for _, value in reads.ports.store.items("reading ")]
    assert (stored["since_lsns"], stored["begun_lsns"], stored["partitions"]) == (
        {0: 8, 1: 5},
        {0: 3, 1: 4},
        2,
    )
    assert "since" not in stored
