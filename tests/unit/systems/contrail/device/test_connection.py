"""Polling, idle timeout, batches, and combined push and pull."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from contrail_place import EVERYTHING, build_item, install_filters

from mudkit.systems.contrail.device.connection import PullComponent
from mudkit.systems.contrail.messages import Deliver, Pull


def record_visits(place, name, seconds):
    """Return the start times of a device's visits, in seconds from now."""
    start_us, starts_s = place.lab.world.now_us, {}
    gateway = place.lab.world.hosts["relay1-gateway"].processes[0].machine
    before = gateway.handle

    def handle(now_us, event):
        message = getattr(event, "message", None)
        if isinstance(message, Pull) and message.device == name:
            starts_s.setdefault(message.visit, (now_us - start_us) / 1e6)
        return before(now_us, event)

    gateway.handle = handle
    place.run(seconds)
    gateway.handle = before
    return list(starts_s.values())


def measure_latencies(place, ann, bob, count=8, interval_s=13.7):
    latencies_s = []
    published_s = {}
    bob.on_item(lambda item: latencies_s.append(place.lab.world.now_us / 1e6 - published_s[item.payload]))
    for number in range(count):
        item = build_item(f"{number}")
        place.note(item)
        published_s[item.payload] = place.lab.world.now_us / 1e6
        ann.publish(item)
        place.run(interval_s)
    place.run(65)
    return latencies_s


def test_smallest_interval_and_largest_timeout_of_all_ports_apply(make_place):
    place = make_place("ann")
    one = place.port("ann", "one", polling_interval_ms=20_000)
    place.port("ann", "two", polling_interval_ms=50_000)
    place.run(5)
    assert len(record_visits(place, "ann", 100)) == 5
    one.polling_interval_ms = 100_000
    assert len(record_visits(place, "ann", 100)) == 2
    one.idle_timeout_ms = 45_000  # stays connected for this time, then sleeps
    place.run(50)
    assert len(record_visits(place, "ann", 300)) == 3


def test_module_without_open_ports_does_not_connect(make_place):
    place = make_place("ann")
    assert record_visits(place, "ann", 1000) == []


def test_always_on_delivers_at_once_and_polling_within_an_interval(make_place):
    place = make_place("ann bob")
    ann = place.port("ann")
    bob = place.port("bob", polling_interval_ms=20_000)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    slow = measure_latencies(place, ann, bob)
    assert 5 < max(slow) < 21
    bob.polling_interval_ms, bob.idle_timeout_ms = 0, 3_600_000
    place.run(30)
    fast = measure_latencies(place, ann, bob)
    assert len(slow) == len(fast) == 8
    assert max(fast) < 1.0  # the radios of both wake up
    assert len(record_visits(place, "bob", 1000)) == 0  # the connection stays open


@pytest.mark.soak
def test_polling_interval_of_zero_reconnects_at_once(make_place):
    place = make_place("ann bob")
    ann = place.port("ann")
    bob = place.port("bob", polling_interval_ms=0)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    assert max(measure_latencies(place, ann, bob)) < 0.5
    assert len(record_visits(place, "bob", 10)) > 50


def test_large_queue_is_pulled_in_pages_in_one_visit(make_place):
    place, ann, bob = install_filters(make_place, "ann bob")
    place.lab.faults.cut("bob")
    for number in range(12):
        item = build_item(f"{number}")
        place.note(item)
        ann.publish(type(item)(item.metadata, item.payload.ljust(20_000)), f"{number}").result()
    received = []
    bob.on_item(lambda item: received.append(item.payload.strip()))
    place.lab.faults.mend("bob")
    assert len(record_visits(place, "bob", 30)) == 1
    assert received == [f"payload of {number}".encode() for number in range(12)]


def test_device_connects_when_its_link_is_restored(make_place):
    place = make_place("ann bob")
    ann, bob = place.port("ann"), place.port("bob", polling_interval_ms=600_000)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.run(600)
    place.lab.faults.cut("bob")
    place.publish(ann, build_item("x")).result()
    place.run(700)
    place.lab.faults.mend("bob")
    place.run(1)
    assert bob.receive_item().done()


def test_only_a_page_of_the_current_request_is_acknowledged():
    """A page that comes late, or unasked, is delivered again (:meth:`PullComponent.receive_page`)."""
    pull = PullComponent(SimpleNamespace(first=0, now_us=0, me="bob"), 0)
    pull.interval_us = 1_000_000
    request, _ = pull.follow_link(is_up=True)
    visit = request.message.visit
    for late in (visit - 1, visit + 1):
        assert pull.receive_page(Deliver(late, [(7, b"late")], False)) == ([b"late"], [])
    messages, (request, _) = pull.receive_page(Deliver(visit, [(8, b"asked")], False))
    assert (messages, request.message.got) == ([b"asked"], [8])
    assert pull.receive_page(Deliver(visit, [], False))[0] == []
    assert pull.is_asleep
    assert pull.receive_page(Deliver(visit, [(9, b"unasked")], False)) == ([b"unasked"], [])


def test_page_that_comes_twice_is_a_copy_only_after_a_repeated_request_of_the_visit():
    """See :attr:`PullComponent._repeated`: otherwise the storage has sent the entries again, and waits."""
    pull = PullComponent(SimpleNamespace(first=0, now_us=0, me="bob"), 0)
    pull.interval_us = 1_000_000
    for _ in range(2):
        pull.follow_link(is_up=False)
        request, _ = pull.follow_link(is_up=True)
        page = Deliver(request.message.visit, [(7, b"x")], False)
        for _ in range(2):
            messages, (request, _) = pull.receive_page(page)
            assert (messages, request.message.got) == ([b"x"], [7])
        pull.handle_timer()
        assert pull.receive_filled(), "the answer to a probe: the request is repeated"
        assert pull.receive_page(page) == ([b"x"], [])


def test_full_batch_of_one_port_sends_those_of_all_ports(make_place):
    place = make_place("ann bob")
    slow, quick = place.port("ann", "slow", batch_size=100), place.port("ann", "quick", batch_size=3)
    bob = place.port("bob", polling_interval_ms=1000)
    for name in ("slow", "quick"):
        place.install(bob, EVERYTHING, to=("ann", name))
    place.run(35)
    before = place.bytes_up("ann")
    calls = [
        place.publish(port, build_item(f"{n}"), f"{n}") for n, port in enumerate((slow, quick, slow, quick))
    ]
    place.run(5)
    assert place.bytes_up("ann") - before < 100
    calls.append(place.publish(quick, build_item("4"), "4"))
    place.run(5)
    assert all(call.done() for call in calls)
    last = place.publish(slow, build_item("5"), "5")
    place.run(55)
    assert not last.done()
    place.run(10)  # a batch waits for a minute at most
    assert last.done()


def test_combined_mode_pushes_and_pulls_on_one_connection(make_place):
    place = make_place("ann bob", module={"combined": True, "push_timeout_s": 3600.0})
    ann = place.port("ann", batch_size=100, polling_interval_ms=120_000)
    bob = place.port("bob", polling_interval_ms=600_000)
    place.secrets.add(EVERYTHING)
    bob.install_filter(EVERYTHING, to=("ann", "app")).result()
    place.run(125)
    operation = place.publish(ann, build_item("with the next poll"))
    place.run(125)
    assert operation.done()
    received = bob.receive_item()
    assert not received.done()
    place.install(bob, "what > '1'", to=("ann", "app"))  # a push, which also pulls waiting items
    assert received.done()


@pytest.mark.parametrize("idle_timeout_ms", [0, 5000])
def test_push_and_pull_are_independent_without_combined_mode(make_place, idle_timeout_ms):
    place = make_place("ann bob", module={"push_timeout_s": 3600.0})
    ann = place.port("ann", batch_size=100, polling_interval_ms=10_000, idle_timeout_ms=idle_timeout_ms)
    bob = place.port("bob")
    place.install(bob, EVERYTHING, to=("ann", "app"))
    operation = place.publish(ann, build_item("in an hour"))
    place.run(3500)
    assert not operation.done()
    place.run(110)
    assert operation.done()
