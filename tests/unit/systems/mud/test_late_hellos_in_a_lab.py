"""Late copies of hellos and welcomes, which must not stop a continuous read."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.events import Received
from mudkit.fleet.kernel import World
from mudkit.systems import mud
from mudkit.wire import as_wire


class Place:
    """Writer and reader whose hellos and welcomes can be delivered again."""

    def __init__(self, monkeypatch):
        self.lab = Lab(seed=3)
        cloud = mud.Cloud(self.lab, replicas=0, gateways=1, processors=1, notification_servers=1)
        self.ann, bob = (
            mud.Client(self.lab.device(name), cloud, app="app", token=self.lab.token(name, "app", hours=9))
            for name in ("ann", "bob")
        )
        self.delivered = []
        self.received = {}
        """Messages of each kind, with the process that received them."""
        handle = World._handle

        def tap(world, process, event):
            if isinstance(event, Received):
                self.received.setdefault(as_wire(event.message)["kind"], []).append((process, event))
            handle(world, process, event)

        monkeypatch.setattr(World, "_handle", tap)
        self.ann.create("t").result()
        bob.read("t", type="continuous", callback=lambda change: self.delivered.append(change.key)).result()
        self.lab.run(minutes=1)

    def repeat(self, kind):
        """Deliver the first message of a kind again."""
        self.lab.world._handle(*self.received[kind][0])

    def restart(self, host):
        self.lab.faults.kill(host)
        self.lab.faults.restart(host)

    def is_delivered(self, key):
        self.ann.write("t", key, {})
        self.lab.run(minutes=3)
        return key in self.delivered


@pytest.fixture
def place(monkeypatch):
    return Place(monkeypatch)


@pytest.mark.parametrize("kind", ["hello", "welcome"])
def test_copy_from_before_a_server_restart_is_ignored(place, kind):
    place.restart("mud-notifications-1")
    place.lab.run(minutes=1)
    place.repeat(kind)
    assert place.is_delivered("a")


def test_copy_of_a_hello_does_not_restore_an_old_address(place):
    place.lab.faults.change_address("bob")
    place.lab.run(minutes=1)
    place.repeat("hello")
    assert place.is_delivered("a")


@pytest.mark.parametrize("kind", ["hello", "welcome"])
def test_copy_from_before_a_device_restart_is_ignored(place, kind):
    place.restart("bob")
    place.lab.run(minutes=1)
    place.repeat(kind)
    assert place.is_delivered("a")


def test_restarted_server_does_not_accept_a_copy_as_an_answer(place):
    place.lab.faults.messages(loss_share=1.0)
    place.restart("mud-notifications-1")
    place.lab.run(seconds=1)
    place.repeat("hello")
    place.lab.faults.messages()
    assert place.is_delivered("a")
