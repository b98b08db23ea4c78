"""Malformed and forged messages to every role of every system: each is recorded, and has no other effect."""

from __future__ import annotations

import hashlib
from collections import Counter

import cloudpickle
import pytest
from busy_labs import BUSY, BusyLab, Radiator
from odd_messages import bombard, cross, forge, garble_messages

from mudkit.events import Received


@pytest.fixture(scope="module", params=BUSY)
def pickled(request: pytest.FixtureRequest) -> bytes:
    busy = BUSY[request.param]()
    busy.run()
    return cloudpickle.dumps(busy)


@pytest.fixture
def busy(pickled: bytes) -> BusyLab:
    """Return a copy of the busy lab of a system."""
    return cloudpickle.loads(pickled)


def disable_peers(busy: BusyLab) -> BusyLab:
    """Return a lab in which no device accepts messages of another one."""
    if isinstance(busy, Radiator):
        busy = Radiator(p2p=False)
        busy.run()
    return busy


def count_machines(received) -> Counter[str]:
    return Counter(type(process.machine).__name__ for process in received)


def digest_stores(busy: BusyLab) -> list[tuple[str, str]]:
    """Return a digest of what each machine has stored."""
    return [
        (type(process.machine).__name__, hashlib.sha256(repr(process.store.items()).encode()).hexdigest())
        for process in busy.received
    ]


def test_busy_lab_holds_no_iterator(pickled):
    """Avoid iterators, which Python 3.14 does not copy."""
    assert b"itertools" not in pickled


def test_every_kind_of_message_is_sent(busy):
    kinds = {busy.kind_of(event.message) for events in busy.received.values() for event in events}
    assert kinds >= busy.KINDS
    assert count_machines(busy.received) == busy.MACHINES


@pytest.mark.parametrize("stranger", ["eve", "nobody"])
def test_received_messages_are_dropped_from_another_host(busy, stranger):
    busy = disable_peers(busy)
    before = digest_stores(busy)
    assert forge(busy.lab, busy.received, stranger).keys() == busy.MACHINES.keys()
    assert digest_stores(busy) == before
    busy.check()


def test_messages_of_a_server_are_dropped_from_its_other_machines(busy):
    for process, events in busy.received.items():
        for event in events:
            if event.host in busy.lab.devices:
                continue
            effects = process.machine.handle(
                busy.lab.world.now_us, Received(f"{event.host}/other", event.message, event.host)
            )
            assert [effect.row["incident"] for effect in effects] == ["dropped"], event.message
            assert not process.store.is_dirty


def test_malformed_messages_of_a_stranger_have_no_effect(scaled, busy):
    busy = disable_peers(busy)
    before, dropped = digest_stores(busy), busy.dropped()
    foreign = {
        process: [Received("mal/x", event.message, "mal") for event in events]
        for process, events in busy.received.items()
    }
    sent = bombard(busy.lab, foreign, scaled(10_000, 600), seed=2, codec=busy)
    assert digest_stores(busy) == before
    # The end of an unknown session is no incident: it may arrive late from any device.
    assert 0.99 * sent.total() < busy.dropped() - dropped <= sent.total()
    busy.check()


@pytest.mark.soak(keep=4)
@pytest.mark.parametrize("send", [bombard, cross])
@pytest.mark.parametrize("seed", range(2))
def test_no_malformed_message_raises(scaled, busy, send, seed):
    """Include messages of a system's own servers, which it trusts: other effects are not checked."""
    count = scaled(10_000, 600)
    sent = send(busy.lab, busy.received, count, seed, codec=busy)
    assert sent == Counter({kind: number * count for kind, number in busy.MACHINES.items()})
    busy.lab.run(minutes=10)
    assert busy.lab.problems.empty


@pytest.mark.soak(keep=3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["lasthop", "store_and_forward", "sublim"])
def test_machine_waiting_for_an_answer_survives_malformed_ones(name, seed):
    busy = BUSY[name]()
    with garble_messages(busy.lab, seed, codec=busy) as sent:
        busy.talk()
        busy.lab.run(minutes=5)
    assert sent.keys() == busy.MACHINES.keys()
    assert busy.lab.problems.empty
