"""Following the log."""

from __future__ import annotations

import pytest
from mud_machines import sent

from mudkit.events import SetTimer
from mudkit.systems.mud.following import BEGIN, Follower


def entry(lsn):
    return {"lsn": lsn, "op": "drop", "name": "t"}


@pytest.fixture
def follower():
    follower = Follower("master", "now")
    follower.state({"turn": "now", "lsn": 0, "tables": [], "rows": []})
    return follower


def test_it_asks_until_the_state_has_come_though_nothing_has_happened_yet():
    follower = Follower("master", "now")
    for _ in range(2):
        send, timer = follower.begin()
        assert (send.to, send.message) == ("master", {"kind": "follow", "turn": "now"})
        assert isinstance(timer, SetTimer)
        assert timer.name == BEGIN
    follower.state({"turn": "now", "lsn": 0, "tables": [], "rows": []})
    assert follower.begin() == ()


def test_a_state_that_comes_late_changes_nothing(follower):
    assert sent(follower.state({"turn": "now", "lsn": 3, "tables": [], "rows": []})) == [
        ("master", {"kind": "has", "lsn": 0})
    ]
    assert follower.copy.lsn == 0
    assert [each["lsn"] for each in follower.fresh({"entries": [entry(1), entry(2)]})] == [1, 2]


def test_a_state_that_an_earlier_life_asked_for_is_too_old():
    follower = Follower("master", "now")
    assert follower.state({"turn": "before", "lsn": 3, "tables": [], "rows": []}) == ()
    assert follower.begin() != ()


def test_entries_are_taken_once_and_in_order(follower):
    assert list(follower.fresh({"entries": [entry(2)]})) == []  # a gap
    assert [each["lsn"] for each in follower.fresh({"entries": [entry(1), entry(2)]})] == [1, 2]
    assert [each["lsn"] for each in follower.fresh({"entries": [entry(1), entry(2), entry(3)]})] == [3]
    assert follower.has().message["lsn"] == 3


def test_without_a_state_there_is_nothing_to_follow():
    assert list(Follower("master", "now").fresh({"entries": [entry(0), entry(1)]})) == []
