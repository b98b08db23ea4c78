"""Restores of the spool from backups: messages that were read, held and waiting."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.lasthop import Publications, Subscriber
from mudkit.systems.lasthop.device.machine import MAX_ACKED_FACTS


class Setup:
    """A phone and a spool; each backup has a name."""

    def __init__(self, policy="on-line"):
        self.lab = Lab(seed=1)
        self.server = Publications(self.lab)
        self.jane = Subscriber(self.lab.device("jane", link="ideal"), self.server)
        self.jane.subscribe("news", policy=policy, max=None).result()
        self.backups = {}

    def publish(self, text, rank=1.0):
        self.server.topic("news").publish(text, rank=rank).result()
        self.lab.run(minutes=1)

    def read(self):
        texts = [message["text"] for message in self.jane.read("news").result()]
        self.lab.run(minutes=1)
        return texts

    def back_up(self, name):
        self.backups[name] = self.lab.faults.backup("spool")

    def restore(self, name):
        self.lab.faults.restore("spool", self.backups[name])
        self.lab.run(minutes=10)

    def incidents(self):
        incidents = self.lab.frame("incidents")
        return incidents.detail[incidents.incident == "rolled back"].tolist()


@pytest.mark.parametrize("policy", ["on-line", "on-demand"])
def test_message_that_was_read_is_not_read_again(policy):
    setup = Setup(policy)
    setup.publish("storm")
    setup.back_up("unread")
    assert setup.read() == ["storm"]
    setup.restore("unread")
    assert setup.read() == []
    assert setup.incidents() == ["spool/lasthop: facts 2 to 2 of jane were gone; it has sent them again"]
    setup.publish("calm")
    assert setup.read() == ["calm"]


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old"), ("old", "new", "old", "new")])
def test_each_of_several_restores_is_recognised(order):
    setup = Setup("on-demand")
    setup.publish("one")
    setup.back_up("old")
    assert setup.read() == ["one"]
    setup.publish("two")
    setup.back_up("new")
    assert setup.read() == ["two"]
    for number, name in enumerate(order, 1):
        setup.restore(name)
        assert len(setup.incidents()) == number
        assert setup.read() == []
    setup.publish("three")
    assert setup.read() == ["three"]


def test_message_on_the_device_is_kept_though_the_spool_has_lost_it():
    setup = Setup()
    setup.back_up("empty")
    setup.publish("storm")
    setup.restore("empty")
    assert setup.incidents() == ["spool/lasthop: messages of 'news' up to number 1 are gone"]
    setup.publish("calm", 0.5)
    setup.lab.faults.kill("spool")
    setup.lab.faults.restart("spool")  # an ordinary restart changes nothing
    setup.lab.run(minutes=10)
    assert len(setup.incidents()) == 1
    assert setup.read() == ["storm", "calm"]


def test_facts_that_the_device_has_no_more_are_named():
    setup = Setup("on-demand")
    setup.publish("storm")
    setup.back_up("unread")
    for _ in range(MAX_ACKED_FACTS + 10):
        setup.read()
    setup.restore("unread")
    last = 1 + MAX_ACKED_FACTS + 10
    lost = f"facts 2 to {last} of jane were gone; it has sent them again from 12 on"
    assert setup.incidents() == [f"spool/lasthop: {lost}"]
