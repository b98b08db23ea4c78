"""Data centres: connections to the nearest, and moves of queues."""

from __future__ import annotations

import random
from zlib import crc32

import pytest
from contrail_place import EVERYTHING, build_item, payloads

from mudkit.systems.contrail.messages import QueueMoved

US, EU, ASIA = (37.0, -122.0), (52.0, 5.0), (1.3, 103.8)
CENTRES = {"us": US, "eu": EU, "asia": ASIA}


def find_queues(place, device):
    """Map data centres to the state of a device's queue: here, or the centre to which it has moved."""
    result = {}
    for centre in CENTRES:
        store = place.store(f"relay1-storage-{centre}")
        moved = store.get(f"moved {device}")
        if moved is not None:
            result[centre] = moved["moved"].split("/")[0].removeprefix("relay1-storage-")
        elif store.items(f"queue {device}\n"):
            result[centre] = "here"
    return result


def travel(place, name, loc, seconds=200):
    place.lab.devices[name].change_context(loc=loc)
    place.run(seconds)


def find_home(device):
    return list(CENTRES)[crc32(device.encode()) % len(CENTRES)]


def test_items_are_delivered_wherever_queues_are(make_place):
    place = make_place("ann bob", centres=CENTRES)
    ann, bob = place.port("ann"), place.port("bob", idle_timeout_ms=1000)
    received = payloads(bob)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    for number, loc in enumerate((US, EU, ASIA, EU, US)):
        place.publish(ann, build_item(f"before {number}"), f"before {number}").result()
        travel(place, "bob", loc)
        travel(place, "ann", random.Random(number).choice((US, EU, ASIA)))
        place.publish(ann, build_item(f"after {number}"), f"after {number}").result()
        place.run(65)
        assert received == [
            f"payload of {phase} {n}".encode() for n in range(number + 1) for phase in ("before", "after")
        ]
    assert place.counts("bob") == {}


def test_queue_moves_after_consecutive_visits_elsewhere(make_place):
    place = make_place("ann bob", centres=CENTRES, move_after=3)
    place.port("bob")
    home = find_home("bob")
    away = next(name for name in CENTRES if name != home)
    travel(place, "bob", CENTRES[home], 100)
    assert find_queues(place, "bob") == {}
    place.lab.devices["bob"].change_context(loc=CENTRES[away])
    place.run(62)
    assert find_queues(place, "bob") == {}
    place.run(65)
    assert find_queues(place, "bob") == {home: away}
    travel(place, "bob", CENTRES[home], 300)
    assert find_queues(place, "bob") == {away: home}


def test_queue_does_not_move_without_a_policy(make_place):
    place = make_place("ann bob", centres=CENTRES, move_after=None)
    place.port("bob")
    for loc in CENTRES.values():
        travel(place, "bob", loc, 300)
    assert find_queues(place, "bob") == {}


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_no_item_is_lost_while_queues_move_and_servers_crash(make_place, seed):
    draw = random.Random(seed)
    place = make_place("ann bob", centres=CENTRES, move_after=1, seed=seed)
    ann, bob = place.port("ann"), place.port("bob", polling_interval_ms=3000)
    received, sent = [], []
    bob.on_item(lambda item: received.append(item.payload))
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.lab.faults.messages(loss_share=0.05, repeat_share=0.1, delay_share=0.3, delay_s=10.0)
    for number in range(30):
        place.lab.devices["bob"].change_context(loc=draw.choice(list(CENTRES.values())))
        victim = draw.choice(place.cloud())
        place.lab.faults.kill(victim, at=draw.choice(("before commit", "after commit")))
        item = build_item(f"{number}")
        sent.append(item.payload)
        place.publish(ann, item, f"{number}")
        place.run(draw.uniform(0.1, 10))
        place.restart_cloud()
    place.lab.faults.messages()
    for _ in range(5):
        place.run(100)
        place.restart_cloud()
    assert sorted(received) == sorted(sent)
    assert set(place.counts("bob")) <= {"duplicate", "obsolete", "duplicate keys"}


def test_storages_that_both_say_a_queue_is_at_the_other_still_deliver(make_place):
    """Neither moved it on: a queue that comes by the move of a number was not moved on by the same."""
    place = make_place("ann bob", centres={"us": US, "eu": EU})
    ann, bob = place.port("ann"), place.port("bob", idle_timeout_ms=1000)
    received = payloads(bob)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    for centre, other in (("us", "eu"), ("eu", "us")):
        store = place.store(f"relay1-storage-{centre}")
        store.put("moved bob", QueueMoved(f"relay1-storage-{other}/contrail", 5))
        store.commit()
    place.publish(ann, build_item("a"), "a")
    world = place.lab.world
    most = world.handled + 1000
    world.run_until(lambda: bool(received) or world.handled > most, world.now_us + 65_000_000)
    assert received == [b"payload of a"]
