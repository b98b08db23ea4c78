"""Kills, restarts, cut links, providers that die: nothing is lost, nothing is taken twice."""

from __future__ import annotations

import random

import pytest
from contrail_place import EVERYTHING, Place, arranged, marked, opened, payloads


def keys_of(there, name):
    keys = there.relays[0].directory[name]
    return keys.agreement, keys.signing


def test_a_device_keeps_its_keys_filters_and_items_in_another_process(tmp_path):
    for life in range(2):
        there, ann, bob = opened(Place, "ann bob", storage=tmp_path)
        if life == 0:
            public = {name: keys_of(there, name) for name in ("ann", "bob")}
            there.install(bob, EVERYTHING, to=("ann", "app"))
            there.publish(ann, marked("before"), "a").result()
            there.run(65)
            there.lab.faults.cut("ann")
            there.publish(ann, marked("not sent"), "b")
            there.run(5)
        else:
            assert public == {name: keys_of(there, name) for name in ("ann", "bob")}
            there.run(65)
            there.publish(ann, marked("after"), "c").result()  # without a filter that is installed again
            there.run(65)
            got = [bob.receive_item().result(1).payload for _ in range(3)]
            assert got == [b"payload of before", b"payload of not sent", b"payload of after"]
            assert there.counts("bob") == {"duplicate keys": 1}  # it might have lost the key
        assert not there.seen_by_relays()
        there.close()


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("relays", [1, 2])
def test_everything_comes_once_whatever_is_killed(place, seed, relays):
    """Machines die at random, at every commit; messages are lost, repeated and late; links are cut."""
    draw = random.Random(f"{seed} {relays}")
    there = place("ann bob cyd", relays=relays, seed=seed, instances=2)
    ports = {name: there.port(name, polling_interval_ms=5000) for name in ("ann", "bob", "cyd")}
    for name in ("bob", "cyd"):
        there.install(ports[name], EVERYTHING, to=("ann", "app"))
    got = {name: [] for name in ("bob", "cyd")}
    for name, items in got.items():
        ports[name].on_item(lambda item, items=items: items.append(item.payload))
    there.lab.faults.messages(loss_share=0.1, repeat_share=0.1, delay_share=0.2, delay_s=8.0)
    hosts = [*there.lab.devices, *there.cloud()]
    taken = []
    for number in range(25):
        host = draw.choice(hosts)
        match draw.randrange(4):
            case 0:
                there.lab.faults.kill(host, at=draw.choice(("before commit", "after commit")))
            case 1:
                there.lab.faults.kill(host)
            case 2:
                there.lab.faults.cut(draw.choice(list(there.lab.devices)), minutes=draw.uniform(0.1, 1))
        item = marked(f"{number}")
        there.note(item)
        store = there.store("ann")
        before = len(store.items("out "))
        ports["ann"].publish(item, None if draw.random() < 0.5 else f"item {number}")
        if len(store.items("out ")) > before:
            taken.append(item.payload)
        there.run(draw.uniform(0.1, 20))
        for each in hosts:
            there.lab.faults.restart(each)
    there.lab.faults.messages()
    for _ in range(8):
        there.run(100)
        for each in hosts:  # some were still to die
            there.lab.faults.restart(each)
    assert len(taken) > 10
    for items in got.values():
        assert sorted(items) == sorted(taken)
    assert all(set(there.counts(name)) <= {"duplicate", "obsolete", "duplicate keys", "duplicate filters", "obsolete filters", "obsolete keys"} for name in got)  # fmt: skip


def test_two_relays_of_which_one_dies(place):
    there, ann, bob = arranged(place, "ann bob", relays=2)
    got = payloads(bob)
    for number in range(6):
        if number == 3:
            there.kill("relay1")
        assert there.publish(ann, marked(f"{number}"), f"{number}").result(30).destinations
        there.run(10)
    there.run(100)
    assert got == [f"payload of {number}".encode() for number in range(6)]
    there.restart_cloud()
    there.run(300)
    assert len(got) == 6
    assert there.publish(ann, marked("after"), "after").result(30).destinations
    there.run(100)
    assert got[6:] == [b"payload of after"]


def test_what_is_handed_over_when_the_module_dies_is_not_taken_twice(place):
    there, ann, bob = arranged(place, "ann bob")
    there.publish(ann, marked("x")).result()
    there.run(65)
    there.lab.faults.kill("bob", at="after commit")
    got = payloads(bob)
    there.run(5)
    there.lab.faults.restart("bob")
    there.run(65)
    assert got == [b"payload of x"]
    there.lab.faults.kill("bob")
    there.lab.faults.restart("bob")
    there.run(65)
    assert got == [b"payload of x"]


def test_an_instance_that_dies_is_passed_over(place):
    there, ann, bob = opened(place, "ann bob", instances=3)
    there.lab.faults.kill("relay1-compute-1")
    there.lab.faults.kill("relay1-compute-3")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    assert there.publish(ann, marked("x")).result(5).destinations
    there.run(35)
    assert bob.receive_item().done()
