"""Modules, storages and gateways restored from a backup; wiped devices."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, Place, arranged, marked, opened, payloads

from mudkit.events import Received
from mudkit.fleet.kernel import World
from mudkit.systems.contrail.messages import Bye, Pull, QueueEntry

DAY_MS = 86_400_000
CENTRES = {"eu": (52.0, 5.0), "us": (37.0, -122.0)}


def listening(place, **more):
    there = place("ann bob", **more)
    ann, bob = there.port("ann"), there.port("bob", idle_timeout_ms=DAY_MS)
    got = payloads(bob)
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
    kept = there.store("ann").items("filter ")
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
    assert not there.store("relay1-storage").items("queue bob\n", QueueEntry)


def test_a_restored_storage_or_gateway_does_not_silence_open_connections(place):
    for host in ("relay1-storage", "relay1-gateway"):
        there = place("ann bob")
        backup = there.lab.faults.backup(host)
        ann, bob = there.port("ann"), there.port("bob", idle_timeout_ms=DAY_MS)
        got = payloads(bob)
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
    if not there.store(f"relay1-storage-{origin}").keys("moved bob"):
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
        there.close()
        for file in (tmp_path / "ann").rglob("*"):
            if file.is_file():
                file.unlink()
    assert got == [b"payload of before", b"payload of after"]


# -- wiped devices


def got(there, port):
    there.run(130)
    return [item.payload.decode().removeprefix("payload of ") for item in port.receive_all().result()]


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("relays", [1, 2])
def test_who_has_lost_everything_asks_again_and_is_told_what_is_said_from_then_on(place, encrypted, relays):
    there, ann, bob = arranged(place, "ann bob", encrypted=encrypted, relays=relays)
    there.publish(ann, marked("one"), "one").result()
    assert got(there, bob) == ["one"]
    there.lab.faults.wipe("bob")
    there.run(130)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("two"), "two").result()
    assert got(there, bob) == ["two"]


@pytest.mark.parametrize("encrypted", [True, False])
def test_what_a_sender_says_after_a_wipe_is_not_taken_for_old(place, encrypted):
    there, ann, bob = arranged(place, "ann bob", encrypted=encrypted)
    for number in range(5):
        there.publish(ann, marked(f"before {number}")).result()
    assert len(got(there, bob)) == 5
    there.lab.faults.wipe("ann")
    there.run(200)  # bob's filter comes again, of its own accord
    there.publish(ann, marked("after")).result()
    there.publish(ann, marked("and this")).result()
    assert got(there, bob) == ["after", "and this"]


@pytest.mark.parametrize("when_s", [0, 5, 40])
def test_what_was_for_the_old_one_is_not_read_by_the_new_one(place, when_s):
    there, ann, bob, cyd = arranged(place, "ann bob cyd")
    there.lab.faults.cut("bob")
    call = there.publish(ann, marked("old"), "old")
    there.run(when_s)
    there.lab.faults.wipe("bob")
    there.lab.faults.mend("bob")
    there.run(300)
    assert call.done()
    assert (got(there, bob), got(there, cyd)) == ([], ["old"])
    answer = {type(each).__name__ for each in there.problems["bob"]}
    assert answer <= {"TamperedMessage"}  # what was sealed for other keys looks like that
    assert [type(each).__name__ for each in there.problems["ann"]] == ["KeysChanged"]
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("new"), "new").result()
    assert (got(there, bob), got(there, cyd)) == (["new"], ["new"])


def test_a_filter_under_way_when_its_asker_is_wiped_ends(place):
    there, ann, bob = opened(place, "ann bob")
    there.lab.faults.cut("ann")
    call = bob.install_filter(EVERYTHING, to=("ann", "app"))
    there.secrets.add(EVERYTHING)
    there.run(1)
    there.lab.faults.wipe("bob")
    there.lab.faults.mend("ann")
    there.run(300)
    assert call.status != "open"
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("x")).result()
    assert got(there, bob) == ["x"]


@pytest.mark.parametrize("how", ["wipe", "restart"])
def test_a_copy_of_what_the_old_one_asked_does_not_take_the_connection_of_the_new_one(
    place, how, monkeypatch
):
    asked, handle = [], World._handle

    def tap(world, process, event):
        if isinstance(event, Received) and isinstance(event.message, Pull | Bye):
            asked.append((process, event))
        handle(world, process, event)

    monkeypatch.setattr(World, "_handle", tap)
    there = place("ann bob")
    ann, bob = (there.port(name, idle_timeout_ms=DAY_MS) for name in ("ann", "bob"))
    there.run(60)
    late = list(asked)
    if how == "restart":
        there.lab.faults.kill("bob")
    getattr(there.lab.faults, how)("bob")
    there.run(60)
    there.lab.faults.change_address("bob")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    for each in late:
        there.lab.world._handle(*each)
    there.run(60)
    there.publish(ann, marked("new"), "new").result()
    assert got(there, bob) == ["new"]


def test_an_open_connection_is_asked_for_again_from_another_address(place):
    there = place("ann bob")
    ann, bob = there.port("ann"), there.port("bob", idle_timeout_ms=DAY_MS)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.lab.faults.change_address("bob")
    there.publish(ann, marked("x"), "x").result()
    assert got(there, bob) == ["x"]
