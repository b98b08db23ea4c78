"""Odd and forged messages at every role of every system: each is dropped and counted, and nothing else comes of it."""

from __future__ import annotations

import hashlib
from collections import Counter

import cloudpickle
import pytest
from busy_labs import BUSY, Busy, Radiator
from odd_messages import bombard, cross, forge, garbled

from mudkit.events import Received


@pytest.fixture(scope="module", params=BUSY)
def pickled(request: pytest.FixtureRequest) -> bytes:
    busy = BUSY[request.param]()
    busy.run()
    return cloudpickle.dumps(busy)


@pytest.fixture
def busy(pickled: bytes) -> Busy:
    """A copy of the busy lab of a system."""
    return cloudpickle.loads(pickled)


def without_peers(busy: Busy) -> Busy:
    """Return a lab in which no device may take anything from another one."""
    if isinstance(busy, Radiator):
        busy = Radiator(p2p=False)
        busy.run()
    return busy


def machines(received) -> Counter[str]:
    return Counter(type(process.machine).__name__ for process in received)


def stores(busy: Busy) -> list[tuple[str, str]]:
    """Return a digest of what each machine has stored."""
    return [
        (type(process.machine).__name__, hashlib.sha256(repr(process.store.items()).encode()).hexdigest())
        for process in busy.received
    ]


def test_a_busy_lab_holds_no_iterator(pickled):
    """Python 3.14 copies none of them."""
    assert b"itertools" not in pickled


def test_every_kind_of_message_is_sent(busy):
    kinds = {busy.unpack(event.message)["kind"] for events in busy.received.values() for event in events}
    assert kinds >= busy.KINDS
    assert machines(busy.received) == busy.MACHINES


@pytest.mark.parametrize("stranger", ["eve", "nobody"])
def test_what_was_received_means_nothing_from_another_host(busy, stranger):
    busy = without_peers(busy)
    before = stores(busy)
    assert forge(busy.lab, busy.received, stranger).keys() == busy.MACHINES.keys()
    assert stores(busy) == before
    busy.check()


def test_what_a_server_sent_means_nothing_from_another_machine_of_its_host(busy):
    for process, events in busy.received.items():
        for event in events:
            if event.host in busy.lab.devices:
                continue
            effects = process.machine.handle(
                busy.lab.world.now_us, Received(f"{event.host}/other", event.message, event.host)
            )
            assert [effect.row["incident"] for effect in effects] == ["dropped"], event.message
            assert not process.store.is_dirty


def test_odd_messages_of_a_stranger_change_nothing(scaled, busy):
    busy = without_peers(busy)
    before, dropped = stores(busy), busy.dropped()
    foreign = {
        process: [Received("mal/x", event.message, "mal") for event in events]
        for process, events in busy.received.items()
    }
    sent = bombard(busy.lab, foreign, scaled(10_000, 1_000), seed=2, codec=busy)
    assert stores(busy) == before
    # What ends a session that there is not may come late from anybody.
    assert 0.99 * sent.total() < busy.dropped() - dropped <= sent.total()
    busy.check()


@pytest.mark.soak(keep=4)
@pytest.mark.parametrize("how", [bombard, cross])
@pytest.mark.parametrize("seed", range(2))
def test_no_odd_message_of_anyone_raises(scaled, busy, how, seed):
    """Those of a system's own servers, too; a system trusts these, so that what else comes of them is not judged."""
    count = scaled(10_000, 1_000)
    sent = how(busy.lab, busy.received, count, seed, codec=busy)
    assert sent == Counter({kind: number * count for kind, number in busy.MACHINES.items()})
    busy.lab.run(minutes=10)
    assert busy.lab.problems.empty


@pytest.mark.soak(keep=3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["lasthop", "store_and_forward", "sublim"])
def test_a_machine_that_waits_for_an_answer_survives_odd_ones(name, seed):
    busy = BUSY[name]()
    with garbled(busy.lab, seed, codec=busy) as sent:
        busy.talk()
        busy.lab.run(minutes=5)
    assert sent.keys() == busy.MACHINES.keys()
    assert busy.lab.problems.empty
