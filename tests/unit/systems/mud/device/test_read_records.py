"""Records of a continuous read: what processors have sent, and what own writes make of it."""

from __future__ import annotations

from mud_machines import ports

from mudkit.systems.mud.device.read_records import OwnRecord, ReadRecords
from mudkit.systems.mud.result import Change


def test_own_version_that_processors_do_not_tell_of_leaves_with_its_version():
    """Its deletion by another device is not told where the read was registered again only after it."""
    records = ReadRecords(ports("ann").store, 1)
    committed = OwnRecord({"n": 1}, 3, lsn=5, log_incarnation="first")
    assert records.follow_own("h", None, committed) == [Change("upsert", "h", {"n": 1}, 3, is_new=True)]
    assert records.drop_untold(4, "first") == []
    assert records.drop_untold(5, "first") == [Change("remove", "h", None, 3)]
    assert records.shown() == {}
