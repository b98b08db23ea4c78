"""Polling, idle timeout, batches, and combined push and pull."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, arranged, marked

from mudkit.systems.contrail.messages import Pull


def visits(there, name, seconds):
    """When a device has connected: the times of its first question of each visit, in seconds from now."""
    began_us, result = there.lab.world.now_us, {}
    gateway = there.lab.world.hosts["relay1-gateway"].processes[0].machine
    before = gateway.handle

    def handle(now_us, event):
        message = getattr(event, "message", None)
        if isinstance(message, Pull) and message.device == name:
            result.setdefault(message.visit, (now_us - began_us) / 1e6)
        return before(now_us, event)

    gateway.handle = handle
    there.run(seconds)
    gateway.handle = before
    return list(result.values())


def latencies(there, ann, bob, count=8, every_s=13.7):
    times = []
    began = {}
    bob.on_item(lambda item: times.append(there.lab.world.now_us / 1e6 - began[item.payload]))
    for number in range(count):
        item = marked(f"{number}")
        there.note(item)
        began[item.payload] = there.lab.world.now_us / 1e6
        ann.publish(item)
        there.run(every_s)
    there.run(65)
    return times


def test_the_smallest_interval_and_the_largest_timeout_of_all_ports_count(place):
    there = place("ann")
    one = there.port("ann", "one", polling_interval_ms=20_000)
    there.port("ann", "two", polling_interval_ms=50_000)
    there.run(5)
    assert len(visits(there, "ann", 100)) == 5
    one.polling_interval_ms = 100_000
    assert len(visits(there, "ann", 100)) == 2
    one.idle_timeout_ms = 45_000  # it stays for so long, then sleeps
    there.run(50)
    assert len(visits(there, "ann", 300)) == 3


def test_nothing_is_asked_while_no_port_is_open(place):
    there = place("ann")
    assert visits(there, "ann", 1000) == []


def test_always_on_delivers_at_once_and_sleeping_within_an_interval(place):
    there = place("ann bob")
    ann = there.port("ann")
    bob = there.port("bob", polling_interval_ms=20_000)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    slow = latencies(there, ann, bob)
    assert 5 < max(slow) < 21
    bob.polling_interval_ms, bob.idle_timeout_ms = 0, 3_600_000
    there.run(30)
    fast = latencies(there, ann, bob)
    assert len(slow) == len(fast) == 8
    assert max(fast) < 1.0  # the radios of both wake up
    assert len(visits(there, "bob", 1000)) == 0  # the one connection stays


@pytest.mark.soak
def test_an_interval_of_nothing_reconnects_at_once(place):
    there = place("ann bob")
    ann = there.port("ann")
    bob = there.port("bob", polling_interval_ms=0)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    assert max(latencies(there, ann, bob)) < 0.5
    assert len(visits(there, "bob", 10)) > 50


def test_a_large_queue_comes_in_pages_in_one_visit(place):
    there, ann, bob = arranged(place, "ann bob")
    there.lab.faults.cut("bob")
    for number in range(12):
        item = marked(f"{number}")
        there.note(item)
        ann.publish(type(item)(item.metadata, item.payload.ljust(20_000)), f"{number}").result()
    got = []
    bob.on_item(lambda item: got.append(item.payload.strip()))
    there.lab.faults.mend("bob")
    assert len(visits(there, "bob", 30)) == 1
    assert got == [f"payload of {number}".encode() for number in range(12)]


def test_a_device_that_was_away_connects_when_it_is_back(place):
    there = place("ann bob")
    ann, bob = there.port("ann"), there.port("bob", polling_interval_ms=600_000)
    there.install(bob, EVERYTHING, to=("ann", "app"))
    there.run(600)
    there.lab.faults.cut("bob")
    there.publish(ann, marked("x")).result()
    there.run(700)
    there.lab.faults.mend("bob")
    there.run(1)
    assert bob.receive_item().done()


def test_batches_of_all_ports_go_when_one_is_full(place):
    there = place("ann bob")
    slow, quick = there.port("ann", "slow", batch_size=100), there.port("ann", "quick", batch_size=3)
    bob = there.port("bob", polling_interval_ms=1000)
    for name in ("slow", "quick"):
        there.install(bob, EVERYTHING, to=("ann", name))
    there.run(35)
    before = there.bytes_up("ann")
    calls = [there.publish(port, marked(f"{n}"), f"{n}") for n, port in enumerate((slow, quick, slow, quick))]
    there.run(5)
    assert there.bytes_up("ann") - before < 100
    calls.append(there.publish(quick, marked("4"), "4"))
    there.run(5)
    assert all(each.done() for each in calls)
    last = there.publish(slow, marked("5"), "5")
    there.run(55)
    assert not last.done()
    there.run(10)  # it waits for a minute at most
    assert last.done()


def test_in_combined_mode_one_connection_does_both(place):
    there = place("ann bob", module={"combined": True, "push_timeout_s": 3600.0})
    ann = there.port("ann", batch_size=100, polling_interval_ms=120_000)
    bob = there.port("bob", polling_interval_ms=600_000)
    there.secrets.add(EVERYTHING)
    bob.install_filter(EVERYTHING, to=("ann", "app")).result()
    there.run(125)
    made = there.publish(ann, marked("with the next poll"))
    there.run(125)
    assert made.done()
    assert not bob.receive_item().done()
    there.install(bob, "what > '1'", to=("ann", "app"))  # a push, and what waits comes with it
    assert bob.receive_item().done() or there.lab.deliveries().delivered.notna().all()


def test_pushing_and_pulling_are_independent_otherwise(place):
    there = place("ann bob", module={"push_timeout_s": 3600.0})
    ann = there.port("ann", batch_size=100, polling_interval_ms=10_000)
    bob = there.port("bob")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    made = there.publish(ann, marked("in an hour"))
    there.run(3500)
    assert not made.done()
    there.run(110)
    assert made.done()
