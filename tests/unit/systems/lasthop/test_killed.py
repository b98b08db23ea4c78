"""Kills of a device between a commit and the callbacks of its application."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.lasthop import Publications, Subscriber


class Setup:
    """A phone whose application stores its messages."""

    def __init__(self, **settings):
        self.lab = Lab(seed=1)
        self.server = Publications(self.lab)
        self.jane = Subscriber(self.lab.device("jane", link="ideal"), self.server)
        self.jane.subscribe("news", **settings).result()
        self.shown, self.arrived = [], []
        self.jane.on_message(lambda message: self.shown.append((message.id, message["text"])))
        self.jane.on_arrival(lambda message: self.arrived.append((message.id, message["text"])))
        self.lab.run(minutes=1)

    def publish(self, text):
        self.server.topic("news").publish(text, rank=1.0, item=text.upper()).result()
        self.lab.run(minutes=1)

    def kill(self, at):
        self.lab.faults.kill("jane", at=at)

    def restart(self):
        self.lab.faults.restart("jane")
        self.lab.run(minutes=5)


@pytest.mark.parametrize("point", ["before commit", "after commit"])
def test_message_is_shown_though_the_device_was_killed_at_its_commit(point):
    setup = Setup(mode="on-line", policy="on-line")
    setup.kill(point)
    setup.publish("storm")
    assert setup.shown == []
    setup.restart()
    assert setup.shown == setup.arrived == [("STORM", "storm")]
    setup.lab.faults.kill("jane")
    setup.restart()
    assert len(setup.shown) == 1


def test_queued_message_arrives_at_the_application_once():
    setup = Setup(policy="on-line")
    setup.kill("after commit")
    setup.publish("storm")
    setup.restart()
    assert setup.arrived == [("STORM", "storm")]
    assert [message.id for message in setup.jane.read("news").result()] == ["STORM"]


def test_read_that_a_kill_ended_is_part_of_the_next_one():
    setup = Setup(policy="on-line", max=2)
    for text in ("one", "two", "three"):
        setup.publish(text)
    setup.lab.faults.cut("jane")
    setup.kill("after commit")
    setup.jane.read("news")
    setup.lab.run(minutes=1)
    setup.lab.faults.mend("jane")
    setup.restart()
    assert [message.id for message in setup.jane.read("news").result()] == ["ONE", "TWO"]
    assert [message.id for message in setup.jane.read("news").result()] == ["THREE"]
    setup.lab.run(seconds=1)
    setup.lab.faults.kill("jane")
    setup.restart()
    assert setup.jane.read("news").result() == []
    reads = setup.lab.frame("deliveries")
    assert reads.item.tolist().count("ONE") == 1


def test_message_of_a_killed_read_expires_and_ends_with_its_subscription():
    setup = Setup(policy="on-line")
    setup.server.topic("news").publish("soon", expires_s=600).result()
    setup.publish("storm")
    setup.lab.faults.cut("jane")
    setup.kill("after commit")
    setup.jane.read("news")
    setup.lab.run(minutes=15)
    setup.restart()
    setup.lab.faults.mend("jane")
    setup.lab.run(minutes=1)
    assert len(setup.jane.installed.store.items("returned ")) == 2
    setup.jane.unsubscribe("news").result()
    setup.jane.subscribe("news").result()
    assert setup.jane.read("news").result() == []
    assert setup.jane.installed.store.items("returned ") == []
