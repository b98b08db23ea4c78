"""A module, a storage or a gateway that comes back from an older backup."""

from __future__ import annotations

import pytest
from contrail_place import Place, marked

from mudkit.systems.contrail.messages import QueueEntry

EVERYTHING = "what > ''"
DAY_MS = 86_400_000
CENTRES = {"eu": (52.0, 5.0), "us": (37.0, -122.0)}


def listening(place, **more):
    there = place("ann bob", **more)
    ann, bob = there.port("ann"), there.port("bob", idle_timeout_ms=DAY_MS)
    got = []
    bob.on_item(lambda item: got.append(item.payload))
    there.run(1)
    return there, ann, bob, got


def incidents(there, what):
    return [row for row in there.lab.frame("incidents").to_dict("records") if row["incident"] == what]


def test_a_filter_that_a_subscriber_has_lost_is_forgotten_by_its_friend(place):
    there, _, bob, _ = listening(place)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    backup = there.lab.faults.backup("bob")
    bob.install_filter("what = 'another'", to=("ann", "app")).result()
    there.run(65)
    there.lab.faults.restore("bob", backup)
    there.run(65)
    kept = there.lab.devices["ann"].processes[0].store.items("filter ")
    assert sorted(each["state"] for _, each in kept) == ["accepted", "removed"]
    assert len(incidents(there, "rolled back")) == 1


def test_a_filter_that_a_publisher_has_lost_is_installed_again(place):
    there, ann, bob, got = listening(place)
    backup = there.lab.faults.backup("ann")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.lab.faults.restore("ann", backup)
    there.run(65)
    assert there.publish(ann, marked("after")).result().destinations == (("bob", "app"),)
    there.run(65)
    assert got == [b"payload of after"]


def test_a_key_that_a_subscriber_has_lost_is_sent_again(place):
    there, ann, bob, got = listening(place)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    backup = there.lab.faults.backup("bob")
    there.publish(ann, marked("before")).result()
    there.run(65)
    there.lab.faults.restore("bob", backup)
    there.run(65)
    there.publish(ann, marked("after")).result()
    there.run(65)
    assert got == [b"payload of before", b"payload of after"]


def test_a_key_that_a_storage_has_lost_is_sent_again(place):
    there, ann, bob, got = listening(place)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    backup = there.lab.faults.backup("relay1-storage")
    there.lab.faults.cut("bob")
    there.publish(ann, marked("lost")).result()
    there.lab.faults.restore("relay1-storage", backup)
    there.run(1)
    there.publish(ann, marked("after")).result()
    there.lab.faults.mend("bob")
    there.run(65)
    assert got == [b"payload of after"]


def test_an_acknowledgement_for_a_storage_before_it_was_restored_removes_nothing(place):
    there, ann, bob, got = listening(place)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    backup = there.lab.faults.backup("relay1-storage")
    there.lab.faults.messages(delay_share=1.0, delay_s=8.0)
    there.publish(ann, marked("before")).result()
    while not got:
        there.run(0.1)
    there.lab.faults.restore("relay1-storage", backup)
    there.publish(ann, marked("after"))
    there.run(300)
    assert got == [b"payload of before", b"payload of after"]
    assert not there.lab.world.hosts["relay1-storage"].processes[0].store.items("queue bob\n", QueueEntry)


def test_a_restored_storage_or_gateway_does_not_silence_open_connections(place):
    for host in ("relay1-storage", "relay1-gateway"):
        there = place("ann bob")
        backup = there.lab.faults.backup(host)
        ann, bob = there.port("ann"), there.port("bob", idle_timeout_ms=DAY_MS)
        got = []
        bob.on_item(lambda item, got=got: got.append(item.payload))
        there.install(bob, EVERYTHING, to=("ann", "app"))
        there.lab.faults.restore(host, backup)
        there.run(65)
        there.publish(ann, marked("after")).result()
        there.run(65)
        assert got == [b"payload of after"], host


def test_what_waits_for_a_former_friend_is_withdrawn_again(place):
    there, ann, bob, got = listening(place)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.lab.faults.cut("bob")
    there.publish(ann, marked("secret")).result()
    backup = there.lab.faults.backup("relay1-storage")
    there.modules["ann"].unfriend("bob").result()
    there.run(65)
    there.lab.faults.restore("relay1-storage", backup)
    there.run(65)
    there.lab.faults.mend("bob")
    there.run(65)
    assert got == []


@pytest.mark.parametrize("restored", ["origin", "new place"])
def test_a_queue_that_has_moved_is_found_again(place, restored):
    there = place("ann bob", centres=CENTRES, move_after=1)
    ann, bob, got = there.port("ann"), there.port("bob", polling_interval_ms=5000), []
    bob.on_item(lambda item: got.append(item.payload))
    there.lab.devices["bob"].change_context(loc=CENTRES["us"])
    there.install(bob, EVERYTHING, to=("ann", "app"))
    backups = {centre: there.lab.faults.backup(f"relay1-storage-{centre}") for centre in CENTRES}
    origin = next(iter(CENTRES))
    if not there.lab.world.hosts[f"relay1-storage-{origin}"].processes[0].store.keys("moved bob"):
        origin = next(reversed(CENTRES))
    there.lab.devices["bob"].change_context(loc=CENTRES[origin])
    there.run(65)
    (other,) = {*CENTRES} - {origin}
    there.lab.faults.cut("bob")
    there.publish(ann, marked("before")).result()
    restored = origin if restored == "origin" else other
    there.lab.faults.restore(f"relay1-storage-{restored}", backups[restored])
    there.run(5)
    there.publish(ann, marked("after")).result()
    there.lab.faults.mend("bob")
    there.run(120)
    assert b"payload of after" in got


def test_a_wiped_device_in_another_process_begins_anew(tmp_path):
    """The directory of public keys is empty there, and its friends' stores are not."""
    got = []
    for process in range(2):
        there = Place("ann bob", storage=tmp_path, seed=process)  # other entropy: as of another device
        ann, bob = there.port("ann"), there.port("bob")
        bob.on_item(lambda item: got.append(item.payload))
        if process == 0:
            there.install(bob, EVERYTHING, to=("ann", "app"))
            there.publish(ann, marked("before"), "named").result()
        else:
            there.run(65)
            there.publish(ann, marked("after"), "named").result()
        there.run(65)
        for device in there.lab.devices.values():
            for each in device.processes:
                each.store.close()
        for file in (tmp_path / "ann").rglob("*"):
            if file.is_file():
                file.unlink()
    assert got == [b"payload of before", b"payload of after"]
