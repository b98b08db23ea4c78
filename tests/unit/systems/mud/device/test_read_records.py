"""Records of a continuous read: what processors have sent, and what own writes make of it."""

from __future__ import annotations

import pytest
from mud_machines import ports

from mudkit.systems.mud.device.read_records import OwnRecord, ReadRecords
from mudkit.systems.mud.messages.notifications import LeftRead, Upsert
from mudkit.systems.mud.result import Change


def test_own_version_that_processors_do_not_tell_of_leaves_with_its_version():
    """Its deletion by another device is not told where the read was registered again only after it."""
    records = ReadRecords(ports("ann").store, 1)
    committed = OwnRecord({"n": 1}, 3, lsn=5, log_incarnation="first")
    assert records.follow_own("h", None, committed) == [Change("upsert", "h", {"n": 1}, 3, is_new=True)]
    assert records.drop_untold(lambda key: 4, "first") == []
    assert records.drop_untold(lambda key: 5, "first") == [Change("remove", "h", None, 3)]
    assert records.shown() == {}


def test_own_version_that_a_later_one_hides_leaves_with_its_version():
    """Another device has hidden the record before the processors have told of the own version (Mobius 4.2)."""
    records = ReadRecords(ports("ann").store, 1)
    sent = Upsert(key="h", ver=2, data={"n": 1}, predicate=None, ts_us=0, lsn=4)
    records.receive(sent, {"n": 1}, None, log_incarnation="first")
    records.follow_own("h", None, OwnRecord({"n": 2}, 3, lsn=5, log_incarnation="first"))
    assert records.receive(LeftRead("h", None), {}, None, log_incarnation="second") == [
        Change("remove", "h", None, 3)
    ]
    records.follow_own("k", None, OwnRecord({"n": 2}, 1, lsn=6, log_incarnation="first"))
    assert records.receive(LeftRead("k", None), {}, None, log_incarnation="second") == [
        Change("remove", "k", None, 1)
    ]


def test_own_version_is_notified_again_if_the_table_has_lost_a_column_since():
    """The device shows its columns as it knows the table; those that the processors send are the truth."""
    records = ReadRecords(ports("ann").store, 1)
    records.follow_own("h", None, OwnRecord({"v": 1, "n": 1}, 3, lsn=5, log_incarnation="first"))
    change = Upsert(key="h", ver=3, data={"v": 1}, predicate=None, ts_us=0, lsn=5)
    changes = records.receive(change, {"v": 1}, None, log_incarnation="first")
    assert changes == [Change("upsert", "h", {"v": 1}, 3)]


def test_own_version_is_not_shown_after_a_later_one_has_left():
    """Its answer was late: processors have told meanwhile that another device's version does not belong here."""
    records = ReadRecords(ports("ann").store, 1)
    records.follow_own("h", OwnRecord({"n": 1}))
    changes = records.receive(LeftRead("h", 4), {}, OwnRecord({"n": 1}), log_incarnation="first")
    assert changes == []
    committed = OwnRecord({"n": 1}, 3, lsn=5, log_incarnation="first")
    assert records.follow_own("h", None, committed) == [Change("remove", "h", None, 4)]
    assert records.shown() == {}
    assert records.follow_own("h", None, OwnRecord({"n": 2}, 5, lsn=7, log_incarnation="first")) == [
        Change("upsert", "h", {"n": 2}, 5, is_new=True)
    ]


@pytest.mark.parametrize(
    ("incarnation", "is_former", "shown"),
    [("first", True, (10, {"n": 1})), ("second", False, (10, {"n": 1})), ("third", False, (9, {"n": 2}))],
)
def test_own_version_is_shown_until_a_later_log_or_version_is_told(incarnation, is_former, shown):
    """A processor that has not heard that the back end was restored tells of the log before (Mobius 4.1)."""
    records = ReadRecords(ports("ann").store, 1)
    records.follow_own("h", None, OwnRecord({"n": 1}, 10, lsn=36, log_incarnation="second"))
    change = Upsert(key="h", ver=9, data={"n": 2}, predicate=None, ts_us=0, lsn=35)
    records.receive(change, {"n": 2}, None, log_incarnation=incarnation, is_former=is_former)
    assert records.shown()["h"] == shown
