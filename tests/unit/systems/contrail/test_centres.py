"""Data centres: a device goes to the nearest, and its queue follows it."""

from __future__ import annotations

import random
from zlib import crc32

import pytest
from contrail_place import EVERYTHING, marked, payloads

US, EU, ASIA = (37.0, -122.0), (52.0, 5.0), (1.3, 103.8)
CENTRES = {"us": US, "eu": EU, "asia": ASIA}


def queues(there, device):
    """Which data centres hold something of a device's queue, or know where it has gone."""
    result = {}
    for centre in CENTRES:
        store = there.store(f"relay1-storage-{centre}")
        moved = store.get(f"moved {device}")
        if moved is not None:
            result[centre] = moved["moved"].split("/")[0].removeprefix("relay1-storage-")
        elif store.items(f"queue {device}\n"):
            result[centre] = "here"
    return result


def travel(there, name, place, seconds=200):
    there.lab.devices[name].change_context(loc=place)
    there.run(seconds)


def home_of(device):
    return list(CENTRES)[crc32(device.encode()) % len(CENTRES)]


def test_items_reach_devices_wherever_their_queues_are(place):
    there = place("ann bob", centres=CENTRES)
    ann, bob = there.port("ann"), there.port("bob", idle_timeout_ms=1000)
    got = payloads(bob)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    for number, where in enumerate((US, EU, ASIA, EU, US)):
        there.publish(ann, marked(f"before {number}"), f"before {number}").result()
        travel(there, "bob", where)
        travel(there, "ann", random.Random(number).choice((US, EU, ASIA)))
        there.publish(ann, marked(f"after {number}"), f"after {number}").result()
        there.run(65)
        assert got == [
            f"payload of {when} {n}".encode() for n in range(number + 1) for when in ("before", "after")
        ]
    assert there.counts("bob") == {}


def test_a_queue_moves_after_some_visits_running(place):
    there = place("ann bob", centres=CENTRES, move_after=3)
    there.port("bob")
    home = home_of("bob")
    away = next(name for name in CENTRES if name != home)
    travel(there, "bob", CENTRES[home], 100)
    assert queues(there, "bob") == {}
    there.lab.devices["bob"].change_context(loc=CENTRES[away])
    there.run(62)
    assert queues(there, "bob") == {}
    there.run(65)
    assert queues(there, "bob") == {home: away}
    travel(there, "bob", CENTRES[home], 300)
    assert queues(there, "bob") == {away: home}


def test_a_queue_stays_where_it_is_without_a_policy(place):
    there = place("ann bob", centres=CENTRES, move_after=None)
    there.port("bob")
    for where in CENTRES.values():
        travel(there, "bob", where, 300)
    assert queues(there, "bob") == {}


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_while_queues_move_and_storage_dies(place, seed):
    draw = random.Random(seed)
    there = place("ann bob", centres=CENTRES, move_after=1, seed=seed)
    ann, bob = there.port("ann"), there.port("bob", polling_interval_ms=3000)
    got, sent = [], []
    bob.on_item(lambda item: got.append(item.payload))
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.lab.faults.messages(loss_share=0.05, repeat_share=0.1, delay_share=0.3, delay_s=10.0)
    for number in range(30):
        there.lab.devices["bob"].change_context(loc=draw.choice(list(CENTRES.values())))
        victim = draw.choice(there.cloud())
        there.lab.faults.kill(victim, at=draw.choice(("before commit", "after commit")))
        item = marked(f"{number}")
        sent.append(item.payload)
        there.publish(ann, item, f"{number}")
        there.run(draw.uniform(0.1, 10))
        there.restart_cloud()
    there.lab.faults.messages()
    for _ in range(5):
        there.run(100)
        there.restart_cloud()
    assert sorted(got) == sorted(sent)
    assert set(there.counts("bob")) <= {"duplicate", "obsolete", "duplicate keys"}
