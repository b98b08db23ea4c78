"""Log follower: state, order and consistency of entries, and restarts of the back end."""

from __future__ import annotations

import pytest
from mud_machines import sent

from mudkit.events import CancelTimer, SetTimer
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.servers import DropEntry, FollowLog, Log, RowEntry, TableEntry, TablesState
from mudkit.systems.mud.servers.log_follower import BEGIN, LogFollower
from mudkit.systems.mud.tables.table import Table


def entry(lsn):
    return row(lsn, "t")


def row(lsn, name):
    return RowEntry(lsn, name, Row("a", lsn, {}, None, 0, lsn))


def table(lsn, name="t", number=1, split=()):
    return TableEntry(lsn, Table(name, "news", split=list(split), number=number, lsn=lsn))


def drop(lsn, name="t"):
    return DropEntry(lsn, name)


TURN = bytes(8).hex()
STATE = TablesState(TURN, 0, [table(0).table], [])


@pytest.fixture
def follower():
    follower = LogFollower("master", bytes)
    follower.load_state(0, STATE)
    return follower


def test_state_is_requested_until_it_arrives():
    follower = LogFollower("master", bytes)
    send, timer = follower.request_state(0)
    for now_us in (200_000, 400_000):
        assert (send.to, send.message) == ("master", FollowLog(TURN))
        assert timer == SetTimer(BEGIN, 200_000)
        send, timer = follower.retransmit_request(now_us)
    assert follower.load_state(500_000, STATE)[1:] == (CancelTimer(BEGIN),)
    assert follower.request_state(500_000) == ()


def test_late_state_is_ignored(follower):
    assert sent(follower.load_state(0, TablesState(TURN, 3, [], []))) == [
        ("master", {"kind": "has", "lsn": 0})
    ]
    assert follower.copy.lsn == 0
    assert [new.lsn for new in follower.take_entries(Log([entry(1), entry(2)]))] == [1, 2]


def test_state_requested_by_an_earlier_life_is_ignored():
    follower = LogFollower("master", bytes)
    assert follower.load_state(0, TablesState("before", 3, [], [])) == ()
    assert follower.request_state(0) != ()


def test_entries_are_accepted_once_and_in_order(follower):
    assert list(follower.take_entries(Log([entry(2)]))) == []  # a gap
    assert [new.lsn for new in follower.take_entries(Log([entry(1), entry(2)]))] == [1, 2]
    assert [new.lsn for new in follower.take_entries(Log([entry(1), entry(2), entry(3)]))] == [3]
    assert follower.acknowledge(0).message.lsn == 3


def test_entries_are_ignored_without_a_state():
    assert list(LogFollower("master", bytes).take_entries(Log([entry(0), entry(1)]))) == []


@pytest.mark.parametrize(
    ("entries", "is_consistent"),
    [
        ([], True),
        ([entry(1)], True),
        ([row(1, "u")], False),
        ([row(2, "u")], True),  # ignored after a gap
        ([row(0, "u")], True),  # a duplicate
        ([table(1, "u", 9), row(2, "u")], True),
        ([table(1, "u", 1)], False),  # the number is taken
        ([table(1, name) for name in "t"], True),
        ([table(1, split=["m"])], False),  # the split of a table never changes
        ([table(1, number=9)], False),  # the name is taken
        ([drop(1), entry(2)], False),
        ([drop(1), drop(2)], False),
        ([drop(1), table(2, number=2), entry(3)], True),
    ],
)
def test_inconsistent_entries_are_not_followed(follower, entries, is_consistent):
    assert follower.is_consistent(Log(entries)) == is_consistent
    if is_consistent:
        for new in follower.take_entries(Log(entries)):
            follower.copy.apply(new)
    assert follower.is_consistent(Log([entry(follower.lsn + 1)])) == ("t" in follower.copy.tables)


@pytest.mark.parametrize(
    ("names", "numbers", "rows", "is_consistent"),
    [
        ("tu", (1, 2), "ttu", True),
        ("tu", (1, 2), "x", False),
        ("tt", (1, 2), "", False),
        ("tu", (1, 1), "", False),
        ("", (), "", True),
    ],
)
def test_inconsistent_state_does_not_fit(names, numbers, rows, is_consistent):
    tables = [table(1, *properties).table for properties in zip(names, numbers, strict=True)]
    state = TablesState(TURN, 1, tables, [(name, row(1, name).row) for name in rows])
    assert LogFollower("master", bytes).is_consistent(state) == is_consistent


def answer(follower, lineage, *entries):
    """Send the follower a log of another start, and the answer to the question that it then asks."""
    follower.accept_log(Log([], lineage))
    return follower.accept_log(Log([*entries], lineage, follower.acknowledge(0).message.nonce))


def test_state_is_kept_only_if_the_next_start_has_all_of_it(follower):
    list(follower.take_entries(Log([entry(1), entry(2), entry(3)])))
    assert answer(follower, {"b": 4})
    assert (follower.lsn, follower.log_incarnation, follower.shared_lsn("")) == (3, "b", 3)
    assert answer(follower, {"b": 4, "c": 4})
    assert (follower.lsn, follower.log_incarnation) == (3, "c")
    assert answer(follower, {"d": 2})
    assert (follower.lsn, follower.log_incarnation) == (-1, "d")
    assert follower.request_state(0) != ()


def test_state_is_discarded_if_the_log_does_not_contain_the_last_start(follower):
    """The next log has all entries up to 0, but it has removed those after it, which it takes for known."""
    assert answer(follower, {"older backup": 1})
    assert answer(follower, {"newer backup": 4})
    assert (follower.lsn, follower.log_incarnation) == (-1, "newer backup")


def test_messages_of_another_start_are_accepted_only_in_answer_to_a_question(follower):
    assert answer(follower, {"b": 1})
    assert answer(follower, {"c": 1})
    for lineage in ({}, {"b": 1}, {"never heard of": 1}):
        assert not follower.accept_log(Log([entry(1)], lineage))
        assert not follower.accept_log(Log([entry(1)], lineage, "another question"))
    assert (follower.lsn, follower.log_incarnation) == (-1, "c")
    assert follower.accept_log(Log([], {"c": 1}, follower.acknowledge(0).message.nonce))
    assert sent([follower.acknowledge(0)]) == [("master", {"kind": "has", "lsn": -1, "start": "c"})]
