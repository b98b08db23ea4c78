"""Batches of delayed writes: when one is due, one message sends them all (Mobius 7.3)."""

from __future__ import annotations

import pytest

from mudkit.errors import ParameterError
from mudkit.systems.mud import Artefact, ShippedPolicy
from mudkit.systems.mud.policies.policies import NEVER, Later


class ByColumn:
    """Write policy that reads the delay from a column."""

    def delay(self, write, context):
        return write["data"]["wait"]


def create_writer(place, policy):
    ann = place.client("ann", write_policy=policy)
    ann.create("news", split=["m"]).result()
    place.lab.run(minutes=1)
    return ann


def measure_uplink(place):
    bill = place.lab.bill()
    uplink = bill[(bill["device"] == "ann") & (bill["direction"] == "up")]
    return int(uplink["messages"].sum()), int(uplink["bytes"].sum()), int(uplink["wakeups"].sum())


def test_due_write_is_sent_with_all_delayed_writes(place):
    ann = create_writer(place, Later(600))
    before = measure_uplink(place)
    written = []
    for key in ("a", "x", "b"):  # of two partitions
        written.append(ann.write("news", key, {"n": key}))
        place.lab.run(minutes=4)
    assert [write.done() for write in written] == [True] * 3
    assert [write.result() for write in written] == [1, 1, 1]
    after = measure_uplink(place)
    assert (after[0] - before[0], after[2] - before[2]) == (1, 1)
    gaps_s = [(write.responded_us - write.invoked_us) / 1e6 for write in written]
    assert [round(gap_s / 60) for gap_s in gaps_s] == [10, 6, 2]
    assert sorted(ann.read("news").result().records) == ["a", "b", "x"]


def test_withheld_writes_are_not_in_the_batch(place):
    ann = create_writer(place, ByColumn())
    ann.write("news", "a", {"wait": NEVER})
    ann.write("news", "b", {"wait": 1800})
    ann.write("news", "c", {"wait": 60})
    place.lab.run(minutes=2)
    assert [write["key"] for write in ann.pending().result()] == ["a"]


def test_lost_batch_is_retransmitted(place):
    ann = create_writer(place, Later(60))
    written = [ann.write("news", key, {"n": 1}) for key in "abc"]
    place.lab.run(seconds=59)
    place.lab.faults.cut("ann", minutes=10)
    place.lab.run(minutes=9)
    assert not any(write.done() for write in written)
    place.lab.run(minutes=5)
    assert [write.result() for write in written] == [1, 1, 1]


@pytest.mark.parametrize(
    "faults", [{"loss_share": 0.4}, {"repeat_share": 0.5}, {"delay_share": 0.5, "delay_s": 20.0}]
)
@pytest.mark.parametrize("kind", ["blind", "conditional"])
def test_batched_writes_are_applied_once_despite_faults(place, faults, kind):
    ann, bob = create_writer(place, Later(30)), place.client("bob")
    place.lab.faults.messages(**faults)
    written = []
    for number in range(12):
        written += [ann.write("news", f"{key}{number % 3}", {"n": number}, kind) for key in ("a", "x")]
        place.lab.run(seconds=20)
    place.lab.faults.messages()
    place.lab.run(hours=1)
    assert ann.pending().result() == []
    result = bob.read("news", latest=True).result()
    assert {key: record["n"] for key, record in result.records.items()} == {
        f"{key}{number % 3}": number for number in (9, 10, 11) for key in ("a", "x")
    }
    versions = {write.result() for write in written}
    assert versions == set(range(1, 5)) if kind == "conditional" else max(versions) <= 4
    assert set(result.versions.values()) <= versions


def test_batch_survives_a_gateway_restart(place):
    ann = create_writer(place, Later(60))
    written = [ann.write("news", key, {"n": 1}) for key in "abc"]
    for number in (1, 2):
        place.lab.faults.kill(f"mud-gateway-{number}")
    place.lab.run(minutes=2)
    for number in (1, 2):
        place.lab.faults.restart(f"mud-gateway-{number}")
    place.lab.run(minutes=5)
    assert [write.result() for write in written] == [1, 1, 1]


def test_batch_in_the_name_of_another_device_is_dropped(place):
    ann = create_writer(place, Later(60))
    process, service = place.lab.world.hosts["ann"].processes
    process.machine._connection.endpoint = "bob/news"
    service.machine._netid = "bob"
    written = [ann.write("news", key, {"n": 1}) for key in "ab"]
    place.lab.run(minutes=5)
    assert not any(write.done() for write in written)
    assert len(place.client("cem").read("news", latest=True).result()) == 0
    incidents = place.lab.frame("incidents")
    dropped = incidents[incidents["incident"] == "dropped"]
    assert set(dropped["detail"]) == {"'asks' from ann/mud"}
    assert set(dropped["device"]) <= {"mud-gateway-1", "mud-gateway-2"}


def test_due_shipped_delay_sends_all_delayed_writes(place):
    ann = create_writer(place, ShippedPolicy(fallback=Later(600)))
    first = ann.write("news", "a", {"n": 1})
    place.lab.run(minutes=1)
    document = Artefact.create("write", 1, ["lat"], [[0]], [60.0])
    place.cloud.ship(document, app="news").result()
    place.lab.run(seconds=10)
    before = measure_uplink(place)
    second = ann.write("news", "b", {"n": 1})
    place.lab.run(minutes=2)
    assert first.done()  # its own delay was ten minutes
    assert second.done()
    assert measure_uplink(place)[0] - before[0] == 1


@pytest.mark.parametrize("delay_s", [-1, float("nan"), "60"])
def test_unusable_delay_is_refused(delay_s):
    with pytest.raises(ParameterError, match="delay_s"):
        Later(delay_s)
