"""Versions of records that a device knows of and does not hold."""

from __future__ import annotations

from mudkit.systems.mud.device import lost_versions
from mudkit.systems.mud.device.lost_versions import LostVersion, LostVersions


def lose(lost, key, lsn, partition=0):
    lost.add("t", key, LostVersion(partition, lsn, None))


def lsns_of(lost):
    return {key: version.lsn for key, version in lost.of_table("t")}


def test_newest_version_of_a_record_counts():
    lost = LostVersions()
    for lsn in (5, 7, 6):
        lose(lost, "a", lsn)
    assert lsns_of(lost) == {"a": 7}
    assert [lost.newest_lsn(name, key, 0) for name, key in (("t", "a"), ("t", "b"), ("u", "a"))] == [7, 0, 0]
    lost.remove("t", "a")
    assert lost.newest_lsn("t", "a", 0) == 0


def test_of_the_oldest_versions_the_last_position_of_their_partition_is_remembered(monkeypatch):
    monkeypatch.setattr(lost_versions, "_MAX_LOST", 2)
    lost = LostVersions()
    for key, lsn in (("a", 9), ("b", 5), ("a", 8), ("c", 6), ("d", 7)):
        lose(lost, key, lsn)
    assert lsns_of(lost) == {"c": 6, "d": 7}
    assert lost.forgotten_lsns("t") == {0: 9}
    assert [lost.newest_lsn("t", "d", partition) for partition in (0, 1)] == [9, 7]


def test_another_log_has_versions_up_to_the_shared_position_only():
    lost = LostVersions()
    lose(lost, "a", 5)
    lose(lost, "b", 6)
    lost.forget("t", 0, 9)
    lost.record_answer("t", 1, 9)
    lost.go_back(5)
    assert lsns_of(lost) == {"a": 5}
    assert lost.forgotten_lsns("t") == {0: 5}
    assert lost.newest_lsn("t", "b", 1) == 5


def test_another_table_of_the_name_has_lost_nothing():
    lost = LostVersions()
    lose(lost, "a", 5)
    lost.forget("t", 0, 9)
    lost.record_answer("t", 1, 9)
    lost.leave_table("t")
    assert lsns_of(lost) == {}
    assert lost.forgotten_lsns("t") == {}
    assert lost.newest_lsn("t", "a", 1) == 0
