"""Crashes, restarts, outages, and failed relays: items are delivered once."""

from __future__ import annotations

import random

import pytest
from contrail_place import EVERYTHING, Place, build_item, install_filters, open_ports, payloads


def get_public_keys(place, name):
    keys = place.relays[0].directory[name]
    return keys.agreement, keys.signing


def test_keys_filters_and_items_are_restored_in_a_new_process(tmp_path):
    for run in range(2):
        place, ann, bob = open_ports(Place, "ann bob", storage=tmp_path)
        if run == 0:
            public = {name: get_public_keys(place, name) for name in ("ann", "bob")}
            place.install(bob, EVERYTHING, to=("ann", "app"))
            place.publish(ann, build_item("before"), "a").result()
            place.run(65)
            place.lab.faults.cut("ann")
            place.publish(ann, build_item("not sent"), "b")
            place.run(5)
        else:
            assert public == {name: get_public_keys(place, name) for name in ("ann", "bob")}
            place.run(65)
            place.publish(ann, build_item("after"), "c").result()  # the filter is not installed again
            place.run(65)
            received = [bob.receive_item().result(1).payload for _ in range(3)]
            assert received == [b"payload of before", b"payload of not sent", b"payload of after"]
            assert place.counts("bob") == {"duplicate keys": 1}  # the key is sent again, in case it was lost
        assert not place.seen_by_relays()
        place.close()


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("relays", [1, 2])
def test_items_are_delivered_once_despite_random_crashes(make_place, seed, relays):
    """Crash machines at random and at commits; lose, repeat and delay messages; cut links."""
    draw = random.Random(f"{seed} {relays}")
    place = make_place("ann bob cyd", relays=relays, seed=seed, instances=2)
    ports = {name: place.port(name, polling_interval_ms=5000) for name in ("ann", "bob", "cyd")}
    for name in ("bob", "cyd"):
        place.install(ports[name], EVERYTHING, to=("ann", "app"))
    received = {name: [] for name in ("bob", "cyd")}
    for name, items in received.items():
        ports[name].on_item(lambda item, items=items: items.append(item.payload))
    place.lab.faults.messages(loss_share=0.1, repeat_share=0.1, delay_share=0.2, delay_s=8.0)
    hosts = [*place.lab.devices, *place.cloud()]
    accepted = []
    for number in range(25):
        host = draw.choice(hosts)
        match draw.randrange(4):
            case 0:
                place.lab.faults.kill(host, at=draw.choice(("before commit", "after commit")))
            case 1:
                place.lab.faults.kill(host)
            case 2:
                place.lab.faults.cut(draw.choice(list(place.lab.devices)), minutes=draw.uniform(0.1, 1))
        item = build_item(f"{number}")
        place.note(item)
        store = place.store("ann")
        before = len(store.items("out "))
        ports["ann"].publish(item, None if draw.random() < 0.5 else f"item {number}")
        if len(store.items("out ")) > before:
            accepted.append(item.payload)
        place.run(draw.uniform(0.1, 20))
        for name in hosts:
            place.lab.faults.restart(name)
    place.lab.faults.messages()
    for _ in range(8):
        place.run(100)
        for name in hosts:  # some crashes were still pending
            place.lab.faults.restart(name)
    assert len(accepted) > 10
    for items in received.values():
        assert sorted(items) == sorted(accepted)
    assert all(set(place.counts(name)) <= {"duplicate", "obsolete", "duplicate keys", "duplicate filters", "obsolete filters", "obsolete keys"} for name in received)  # fmt: skip


def test_items_are_delivered_while_one_of_two_relays_is_down(make_place):
    place, ann, bob = install_filters(make_place, "ann bob", relays=2)
    received = payloads(bob)
    for number in range(6):
        if number == 3:
            place.kill("relay1")
        assert place.publish(ann, build_item(f"{number}"), f"{number}").result(30).destinations
        place.run(10)
    place.run(100)
    assert received == [f"payload of {number}".encode() for number in range(6)]
    place.restart_cloud()
    place.run(300)
    assert len(received) == 6
    assert place.publish(ann, build_item("after"), "after").result(30).destinations
    place.run(100)
    assert received[6:] == [b"payload of after"]


def test_item_handed_over_during_a_crash_is_not_delivered_twice(make_place):
    place, ann, bob = install_filters(make_place, "ann bob")
    place.publish(ann, build_item("x")).result()
    place.run(65)
    place.lab.faults.kill("bob", at="after commit")
    received = payloads(bob)
    place.run(5)
    place.lab.faults.restart("bob")
    place.run(65)
    assert received == [b"payload of x"]
    place.lab.faults.kill("bob")
    place.lab.faults.restart("bob")
    place.run(65)
    assert received == [b"payload of x"]


def test_failed_compute_instances_are_bypassed(make_place):
    place, ann, bob = open_ports(make_place, "ann bob", instances=3)
    place.lab.faults.kill("relay1-compute-1")
    place.lab.faults.kill("relay1-compute-3")
    place.install(bob, EVERYTHING, to=("ann", "app"))
    assert place.publish(ann, build_item("x")).result(5).destinations
    place.run(35)
    assert bob.receive_item().done()
