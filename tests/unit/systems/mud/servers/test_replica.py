"""Following the log."""

from __future__ import annotations

import pytest
from mud_machines import sent

from mudkit.events import CancelTimer, SetTimer
from mudkit.systems.mud.messages import DropEntry, FollowLog, Log, Row, RowEntry, State, TableEntry
from mudkit.systems.mud.servers.replica import BEGIN, LogFollower
from mudkit.systems.mud.tables.table import Table


def entry(lsn):
    return row(lsn, "t")


def row(lsn, name):
    return RowEntry(lsn, name, Row("a", lsn, {}, None, 0, lsn))


def table(lsn, name="t", number=1, split=()):
    return TableEntry(lsn, Table(name, "news", split=list(split), number=number, lsn=lsn))


def drop(lsn, name="t"):
    return DropEntry(lsn, name)


STATE = State("now", 0, [table(0).table], [])


@pytest.fixture
def follower():
    follower = LogFollower("master", "now")
    follower.state(0, STATE)
    return follower


def test_it_asks_until_the_state_has_come_though_nothing_has_happened_yet():
    follower = LogFollower("master", "now")
    send, timer = follower.begin(0)
    for now_us in (200_000, 400_000):
        assert (send.to, send.message) == ("master", FollowLog("now"))
        assert timer == SetTimer(BEGIN, 200_000)
        send, timer = follower.overdue(now_us)
    assert follower.state(500_000, STATE)[1:] == (CancelTimer(BEGIN),)
    assert follower.begin(500_000) == ()


def test_a_state_that_comes_late_changes_nothing(follower):
    assert sent(follower.state(0, State("now", 3, [], []))) == [("master", {"kind": "has", "lsn": 0})]
    assert follower.copy.lsn == 0
    assert [each.lsn for each in follower.fresh(Log([entry(1), entry(2)]))] == [1, 2]


def test_a_state_that_an_earlier_life_asked_for_is_too_old():
    follower = LogFollower("master", "now")
    assert follower.state(0, State("before", 3, [], [])) == ()
    assert follower.begin(0) != ()


def test_entries_are_taken_once_and_in_order(follower):
    assert list(follower.fresh(Log([entry(2)]))) == []  # a gap
    assert [each.lsn for each in follower.fresh(Log([entry(1), entry(2)]))] == [1, 2]
    assert [each.lsn for each in follower.fresh(Log([entry(1), entry(2), entry(3)]))] == [3]
    assert follower.has().message.lsn == 3


def test_without_a_state_there_is_nothing_to_follow():
    assert list(LogFollower("master", "now").fresh(Log([entry(0), entry(1)]))) == []


@pytest.mark.parametrize(
    ("entries", "is_whole"),
    [
        ([], True),
        ([entry(1)], True),
        ([row(1, "u")], False),
        ([row(2, "u")], True),  # after a gap: it is not looked at
        ([row(0, "u")], True),  # it came before
        ([table(1, "u", 9), row(2, "u")], True),
        ([table(1, "u", 1)], False),  # there is a table of this number
        ([table(1, acl) for acl in "t"], True),
        ([table(1, split=["m"])], False),  # a table stays split as it was
        ([table(1, number=9)], False),  # one of this name is there
        ([drop(1), entry(2)], False),
        ([drop(1), drop(2)], False),
        ([drop(1), table(2, number=2), entry(3)], True),
    ],
)
def test_entries_are_of_one_piece_or_not_followed(follower, entries, is_whole):
    assert follower.fits(Log(entries)) == is_whole
    if is_whole:
        for each in follower.fresh(Log(entries)):
            follower.copy.apply(each)
    else:
        assert list(follower.fresh(Log(entries[:0]))) == []
        assert follower.lsn == 0
    assert follower.fits(Log([entry(follower.lsn + 1)])) == ("t" in follower.copy.tables)


@pytest.mark.parametrize(
    ("names", "numbers", "rows", "is_whole"),
    [
        ("tu", (1, 2), "ttu", True),
        ("tu", (1, 2), "x", False),
        ("tt", (1, 2), "", False),
        ("tu", (1, 1), "", False),
        ("", (), "", True),
    ],
)
def test_a_state_is_of_one_piece_or_not_followed(names, numbers, rows, is_whole):
    tables = [table(1, *each).table for each in zip(names, numbers, strict=True)]
    state = State("now", 1, tables, [(name, row(1, name).row) for name in rows])
    assert LogFollower("master", "now").fits(state) == is_whole


def test_it_keeps_what_a_later_start_has_and_forgets_what_it_has_not(follower):
    list(follower.fresh(Log([entry(1), entry(2), entry(3)])))
    assert follower.hear(Log([], {"b": 4}))
    assert (follower.lsn, follower.start, follower.shared("")) == (3, "b", 3)
    assert follower.hear(Log([], {"c": 2}))
    assert (follower.lsn, follower.start) == (-1, "c")
    assert follower.begin(0) != ()


def test_it_takes_nothing_of_a_former_start(follower):
    follower.hear(Log([], {"b": 1}))
    follower.hear(Log([], {"c": 1}))
    assert not follower.hear(Log([entry(1)]))
    assert not follower.hear(Log([entry(1)], {"b": 1}))
    assert (follower.lsn, follower.start) == (0, "c")
