"""Tombstones are collected, and deleted records do not come back (Mobius 4.1)."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.mud import Client, Cloud, Conflict


def test_deleted_records_stay_deleted_for_a_device_that_was_away():
    lab = Lab(seed=1, record_messages=False)
    cloud = Cloud(lab, replica_lag_s=60.0)
    jane, away = (
        Client(lab.device(name), cloud, app="n", token=lab.token(name, "n", hours=1e4))
        for name in ("jane", "away")
    )
    jane.create("t").result()
    changes = []
    away.read("t", None, "continuous", sync_timestamp=0, callback=changes.append).result()
    for key in "ab":
        jane.write("t", key, {"n": 1}).result()
    lab.run(minutes=5)
    assert sorted(away.read("t").result().records) == ["a", "b"]
    lab.faults.cut("away")
    jane.delete("t", "a").result()
    jane.delete("t", "b").result()
    assert jane.holdings("t").result() != []
    lab.run(hours=24 * 9)
    assert jane.read("t").result().records == {}
    lab.run(minutes=5)
    assert jane.holdings("t").result() == []
    store = lab.world.at_address[cloud.back_end].store
    assert store.items("row\n") == []
    assert jane.write("t", "b", {"n": 2}).result() > 2
    late = away.write("t", "a", {"n": 3}, type="conditional")
    lab.faults.mend("away")
    with pytest.raises(Conflict):
        late.result()
    lab.run(minutes=5)
    assert away.read("t").result().records == {"b": {"n": 2}}
    last = {change.key: change.record for change in changes}
    assert last == {"a": None, "b": {"n": 2}}


def test_tombstones_are_kept_longer_than_notifications_wait():
    with pytest.raises(ParameterError, match="keep_deleted_s"):
        Cloud(Lab(seed=1), max_wait_s=3600.0, keep_deleted_s=3600.0)
    assert Cloud(Lab(seed=1), max_wait_s=1e6).keep_deleted_us == 2e12
