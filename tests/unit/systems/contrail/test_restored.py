"""Modules, storages and gateways restored from a backup, and wiped devices."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, Place, build_item, install_filters, open_ports, payloads

from mudkit.events import Received
from mudkit.fleet.kernel import World
from mudkit.systems.contrail.device.module_state import NUMBER_BITS
from mudkit.systems.contrail.messages import Bye, Pull, QueueEntry

DAY_MS = 86_400_000
CENTRES = {"eu": (52.0, 5.0), "us": (37.0, -122.0)}


def connect(make_place, **options):
    place = make_place("ann bob", **options)
    ann, bob = place.port("ann"), place.port("bob", idle_timeout_ms=DAY_MS)
    received = payloads(bob)
    place.run(1)
    return place, ann, bob, received


def list_incidents(place, kind):
    return [row for row in place.lab.frame("incidents").to_dict("records") if row["incident"] == kind]


def test_filter_lost_by_a_restored_subscriber_is_removed_at_the_publisher(make_place):
    place, _, bob, _ = connect(make_place)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    backup = place.lab.faults.backup("bob")
    bob.install_filter("what = 'another'", to=("ann", "app")).result()
    place.run(65)
    place.lab.faults.restore("bob", backup)
    place.run(65)
    filters = place.store("ann").items("filter ")
    assert sorted(stored["state"] for _, stored in filters) == ["accepted", "removed"]
    assert len(list_incidents(place, "rolled back")) == 1


def test_filter_lost_by_a_restored_publisher_is_installed_again(make_place):
    place, ann, bob, received = connect(make_place)
    backup = place.lab.faults.backup("ann")
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.lab.faults.restore("ann", backup)
    place.run(65)
    assert place.publish(ann, build_item("after")).result().destinations == (("bob", "app"),)
    place.run(65)
    assert received == [b"payload of after"]


def test_items_after_a_restore_or_restart_have_higher_numbers_than_all_before(make_place):
    """See mudkit/systems/contrail/device/module_state.py: numbers are scoped to generations of the module."""
    place, ann, bob, received = connect(make_place)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    delivered = place.handed("bob")

    def publish(text):
        place.publish(ann, build_item(text)).result()
        place.run(65)

    publish("one")
    backup = place.lab.faults.backup("ann")
    publish("two")
    place.lab.faults.restore("ann", backup)
    place.run(65)
    publish("three")
    place.lab.faults.kill("ann")
    place.lab.faults.restart("ann")
    place.run(65)
    publish("four")
    assert received == [f"payload of {text}".encode() for text in ("one", "two", "three", "four")]
    numbers = [message["seq"] for message in delivered if message["kind"] == "data"]
    assert [number >> NUMBER_BITS for number in numbers] == [0, 0, 1, 2]
    assert numbers[1] == numbers[0] + 1


def test_key_lost_by_a_restored_subscriber_is_resent(make_place):
    place, ann, bob, received = connect(make_place)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    backup = place.lab.faults.backup("bob")
    place.publish(ann, build_item("before")).result()
    place.run(65)
    place.lab.faults.restore("bob", backup)
    place.run(65)
    place.publish(ann, build_item("after")).result()
    place.run(65)
    assert received == [b"payload of before", b"payload of after"]


def test_key_lost_by_a_restored_storage_is_resent(make_place):
    place, ann, bob, received = connect(make_place)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    backup = place.lab.faults.backup("relay1-storage")
    place.lab.faults.cut("bob")
    place.publish(ann, build_item("lost")).result()
    place.lab.faults.restore("relay1-storage", backup)
    place.run(1)
    place.publish(ann, build_item("after")).result()
    place.lab.faults.mend("bob")
    place.run(65)
    assert received == [b"payload of after"]


def test_late_acknowledgement_removes_nothing_from_a_restored_storage(make_place):
    place, ann, bob, received = connect(make_place)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    backup = place.lab.faults.backup("relay1-storage")
    place.lab.faults.messages(delay_share=1.0, delay_s=8.0)
    place.publish(ann, build_item("before")).result()
    while not received:
        place.run(0.1)
    place.lab.faults.restore("relay1-storage", backup)
    place.publish(ann, build_item("after"))
    place.run(300)
    assert received == [b"payload of before", b"payload of after"]
    assert not place.store("relay1-storage").items("queue bob\n", QueueEntry)


def test_open_connections_survive_a_restored_storage_or_gateway(make_place):
    for host in ("relay1-storage", "relay1-gateway"):
        place = make_place("ann bob")
        backup = place.lab.faults.backup(host)
        ann, bob = place.port("ann"), place.port("bob", idle_timeout_ms=DAY_MS)
        received = payloads(bob)
        place.install(bob, EVERYTHING, to=("ann", "app"))
        place.lab.faults.restore(host, backup)
        place.run(65)
        place.publish(ann, build_item("after")).result()
        place.run(65)
        assert received == [b"payload of after"], host


def test_item_for_a_former_friend_is_withdrawn_from_a_restored_storage(make_place):
    place, ann, bob, received = connect(make_place)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.lab.faults.cut("bob")
    place.publish(ann, build_item("secret")).result()
    backup = place.lab.faults.backup("relay1-storage")
    place.modules["ann"].unfriend("bob").result()
    place.run(65)
    place.lab.faults.restore("relay1-storage", backup)
    place.run(65)
    place.lab.faults.mend("bob")
    place.run(65)
    assert received == []


@pytest.mark.parametrize("restored", ["origin", "new place"])
def test_moved_queue_is_found_after_a_storage_is_restored(make_place, restored):
    place = make_place("ann bob", centres=CENTRES, move_after=1)
    ann, bob, received = place.port("ann"), place.port("bob", polling_interval_ms=5000), []
    bob.on_item(lambda item: received.append(item.payload))
    place.lab.devices["bob"].change_context(loc=CENTRES["us"])
    place.install(bob, EVERYTHING, to=("ann", "app"))
    backups = {centre: place.lab.faults.backup(f"relay1-storage-{centre}") for centre in CENTRES}
    origin = next(iter(CENTRES))
    if not place.store(f"relay1-storage-{origin}").keys("moved bob"):
        origin = next(reversed(CENTRES))
    place.lab.devices["bob"].change_context(loc=CENTRES[origin])
    place.run(65)
    (other,) = {*CENTRES} - {origin}
    place.lab.faults.cut("bob")
    place.publish(ann, build_item("before")).result()
    restored = origin if restored == "origin" else other
    place.lab.faults.restore(f"relay1-storage-{restored}", backups[restored])
    place.run(5)
    place.publish(ann, build_item("after")).result()
    place.lab.faults.mend("bob")
    place.run(120)
    assert b"payload of after" in received


def test_wiped_device_starts_anew_in_a_new_process(tmp_path):
    """Use a new process: its directory of public keys is empty, but the stores of friends are not."""
    received = []
    for process in range(2):
        place = Place("ann bob", storage=tmp_path, seed=process)  # other entropy, as of another device
        ann, bob = place.port("ann"), place.port("bob")
        bob.on_item(lambda item: received.append(item.payload))
        if process == 0:
            place.install(bob, EVERYTHING, to=("ann", "app"))
            place.publish(ann, build_item("before"), "named").result()
        else:
            place.run(65)
            place.publish(ann, build_item("after"), "named").result()
        place.run(65)
        place.close()
        for file in (tmp_path / "ann").rglob("*"):
            if file.is_file():
                file.unlink()
    assert received == [b"payload of before", b"payload of after"]


# -- wiped devices


def receive_texts(place, port):
    place.run(130)
    return [item.payload.decode().removeprefix("payload of ") for item in port.receive_all().result()]


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("relays", [1, 2])
def test_wiped_subscriber_receives_items_after_a_new_filter(make_place, encrypted, relays):
    place, ann, bob = install_filters(make_place, "ann bob", encrypted=encrypted, relays=relays)
    place.publish(ann, build_item("one"), "one").result()
    assert receive_texts(place, bob) == ["one"]
    place.lab.faults.wipe("bob")
    place.run(130)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.publish(ann, build_item("two"), "two").result()
    assert receive_texts(place, bob) == ["two"]


@pytest.mark.parametrize("encrypted", [True, False])
def test_items_of_a_wiped_publisher_are_not_obsolete(make_place, encrypted):
    place, ann, bob = install_filters(make_place, "ann bob", encrypted=encrypted)
    for number in range(5):
        place.publish(ann, build_item(f"before {number}")).result()
    assert len(receive_texts(place, bob)) == 5
    place.lab.faults.wipe("ann")
    place.run(200)  # bob's module installs its filter again
    place.publish(ann, build_item("after")).result()
    place.publish(ann, build_item("and this")).result()
    assert receive_texts(place, bob) == ["after", "and this"]


def test_items_that_wait_for_a_key_of_a_wiped_publisher_are_deleted(make_place):
    """See :meth:`Receiving.forget`: the old store, which has the keys, is gone."""
    place, ann, bob = install_filters(make_place, "ann bob")
    place.publish(ann, build_item("with its key")).result()
    assert receive_texts(place, bob) == ["with its key"]
    store = place.modules["bob"].installed.store
    for key in list(store.keys("key ann\n")):
        store.delete(key)
    place.publish(ann, build_item("without a key")).result()
    place.run(65)
    assert len(list(store.keys("early ann\n"))) == 1
    place.lab.faults.wipe("ann")
    place.run(200)
    assert list(store.keys("early ann\n")) == []


@pytest.mark.parametrize("when_s", [0, 5, 40])
def test_item_for_a_wiped_device_is_not_readable_by_its_successor(make_place, when_s):
    place, ann, bob, cyd = install_filters(make_place, "ann bob cyd")
    place.lab.faults.cut("bob")
    call = place.publish(ann, build_item("old"), "old")
    place.run(when_s)
    place.lab.faults.wipe("bob")
    place.lab.faults.mend("bob")
    place.run(300)
    assert call.done()
    assert (receive_texts(place, bob), receive_texts(place, cyd)) == ([], ["old"])
    problems = {type(problem).__name__ for problem in place.problems["bob"]}
    assert problems <= {"TamperedMessage"}  # an item sealed for the old keys seems tampered with
    assert [type(problem).__name__ for problem in place.problems["ann"]] == ["KeysChanged"]
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.publish(ann, build_item("new"), "new").result()
    assert (receive_texts(place, bob), receive_texts(place, cyd)) == (["new"], ["new"])


def test_filter_in_flight_from_a_wiped_subscriber_completes(make_place):
    place, ann, bob = open_ports(make_place, "ann bob")
    place.lab.faults.cut("ann")
    call = bob.install_filter(EVERYTHING, to=("ann", "app"))
    place.secrets.add(EVERYTHING)
    place.run(1)
    place.lab.faults.wipe("bob")
    place.lab.faults.mend("ann")
    place.run(300)
    assert call.status != "open"
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.publish(ann, build_item("x")).result()
    assert receive_texts(place, bob) == ["x"]


@pytest.mark.parametrize("fault", ["wipe", "restart"])
def test_late_pull_of_the_old_incarnation_does_not_take_the_connection(make_place, fault, monkeypatch):
    events, handle = [], World._handle

    def tap(world, process, event):
        if isinstance(event, Received) and isinstance(event.message, Pull | Bye):
            events.append((process, event))
        handle(world, process, event)

    monkeypatch.setattr(World, "_handle", tap)
    place = make_place("ann bob")
    ann, bob = (place.port(name, idle_timeout_ms=DAY_MS) for name in ("ann", "bob"))
    place.run(60)
    late_events = list(events)
    if fault == "restart":
        place.lab.faults.kill("bob")
    getattr(place.lab.faults, fault)("bob")
    place.run(60)
    place.lab.faults.change_address("bob")
    place.install(bob, EVERYTHING, to=("ann", "app"))
    for arguments in late_events:
        place.lab.world._handle(*arguments)
    place.run(60)
    place.publish(ann, build_item("new"), "new").result()
    assert receive_texts(place, bob) == ["new"]


def test_open_connection_is_renewed_from_a_new_address(make_place):
    place = make_place("ann bob")
    ann, bob = place.port("ann"), place.port("bob", idle_timeout_ms=DAY_MS)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.lab.faults.change_address("bob")
    place.publish(ann, build_item("x"), "x").result()
    assert receive_texts(place, bob) == ["x"]
