"""Kills of a device between a commit and the callbacks of its applications."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.fleet.store import Killed
from mudkit.systems.contrail import Item, Module, Relay


class Setup:
    """Ann publishes, and accepts filters by a callback; Bob receives. Both may be killed."""

    def __init__(self, *, asks=True):
        self.lab = Lab(seed=1)
        relay = Relay(self.lab)
        self.ann = Module(self.lab.device("ann", link="ideal"), relay, friends=["bob"])
        self.bob = Module(self.lab.device("bob", link="ideal"), relay, friends=["ann"])
        self.questions, self.accepted, self.received = [], [], []
        self.source = self.ann.open_port("p", on_filter=self.decide if asks else None)
        self.source.on_accepted(lambda _, who: self.accepted.append(who))
        self.sink = self.bob.open_port("p")
        self.lab.run(minutes=1)

    def decide(self, question, who):
        self.questions.append(who)
        return True

    def install(self):
        self.sink.install_filter("x > 0", to=("ann", "p"))
        self.lab.run(minutes=2)

    def publish(self, payload):
        self.source.publish(Item({"x": 1}, payload)).result()
        self.lab.run(minutes=2)

    def restart(self, name):
        self.lab.faults.restart(name)
        self.lab.run(minutes=5)


@pytest.mark.parametrize("point", ["before commit", "after commit"])
@pytest.mark.parametrize("delay_s", [0.0, 0.5, 1.0])
def test_item_reaches_a_listener_though_the_device_was_killed(point, delay_s):
    setup = Setup()
    setup.install()
    setup.sink.on_item(lambda item: setup.received.append((item.number, item.payload)))
    setup.lab.run(seconds=30 + delay_s)
    setup.lab.faults.kill("bob", at=point)
    setup.publish(b"one")
    setup.restart("bob")
    setup.publish(b"two")
    assert [payload for _, payload in dict.fromkeys(setup.received)] == [b"one", b"two"]
    setup.lab.faults.kill("bob")
    setup.restart("bob")
    assert len(setup.received) == 2


def test_item_reaches_a_listener_without_another_item():
    setup = Setup()
    setup.install()
    setup.sink.on_item(lambda item: setup.received.append(item.payload))
    store = setup.bob.installed.store

    def kill_when_an_item_is_stored(point):
        if point == "after commit" and store.keys("inbox "):
            store.crash_point = lambda point: None
            raise Killed

    store.crash_point = kill_when_an_item_is_stored
    setup.publish(b"one")
    assert setup.received == []
    setup.restart("bob")
    assert setup.received == [b"one"]


def test_item_of_a_killed_call_is_received_by_the_next_one():
    setup = Setup()
    setup.install()
    setup.publish(b"one")
    setup.lab.faults.kill("bob")
    setup.restart("bob")
    assert setup.sink.receive_item().result().payload == b"one"


@pytest.mark.parametrize("point", ["before commit", "after commit"])
def test_filter_is_asked_about_though_the_device_was_killed(point):
    setup = Setup()
    setup.lab.faults.kill("ann", at=point)
    setup.install()
    setup.restart("ann")
    setup.publish(b"one")
    assert setup.questions == ["bob"]
    assert setup.accepted == ["bob"]
    assert setup.sink.receive_item().result().payload == b"one"


def test_application_is_notified_of_an_accepted_filter_though_the_device_was_killed():
    setup = Setup(asks=False)
    setup.lab.faults.kill("ann", at="after commit")
    setup.install()
    setup.restart("ann")
    assert setup.accepted == ["bob"]
    setup.lab.faults.kill("ann")
    setup.restart("ann")
    assert setup.accepted == ["bob"]
