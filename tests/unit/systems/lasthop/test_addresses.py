"""Addresses that pass from one device to another."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.lasthop import Publications, Subscriber

HOUR_US = 3_600_000_000


@pytest.fixture
def town():
    """Return a lab, its server, and the subscribers Bob and Cy, who has Bob's former address; Bob is off."""
    lab = Lab(seed=1)
    server = Publications(lab)
    bob, cy = (Subscriber(lab.device(name, link="ideal"), server) for name in ("bob", "cy"))
    for subscriber, topic in ((bob, "for bob"), (cy, "for cy")):
        subscriber.subscribe(topic, policy="on-line").result()
    lab.faults.change_address("bob")
    lab.run(minutes=2)
    return lab, server, bob, cy


def take_address(lab):
    """Switch Bob off, and give his address to Cy."""
    address = lab.world.hosts["bob"].address
    lab.faults.switch_off("bob")
    lab.run(minutes=1)
    lab.faults.change_address("bob")
    lab.faults.change_address("cy", address)


def read(subscriber, topic):
    return [message["text"] for message in subscriber.read(topic).result()]


def test_messages_are_not_sent_to_the_next_owner_of_an_address(town):
    lab, server, bob, cy = town
    take_address(lab)
    lab.faults.cut("cy", minutes=1)
    lab.run(minutes=30)
    sent = []
    lab.world.fault_hook = lambda transfer: sent.append((transfer.to.split("/")[0], transfer.message)) or (0,)
    for topic in ("for bob", "for cy"):
        server.topic(topic).publish(topic, rank=1.0).result()
    lab.run(hours=24)
    at_cy = [str(message) for to, message in sent if to == lab.world.hosts["cy"].address]
    assert not [text for text in at_cy if "for bob" in text]
    assert read(cy, "for cy") == ["for cy"]
    lab.faults.switch_on("bob")
    lab.run(minutes=5)
    assert read(bob, "for bob") == ["for bob"]


def test_late_hello_takes_no_address_for_long(town):
    """Bob's hello comes an hour late, when Cy has his address: Cy is asked, and says hello again."""
    lab, server, _, cy = town
    lab.faults.cut("bob", minutes=0.1)
    lab.world.fault_hook = lambda transfer: (HOUR_US,) if transfer.sender.host.name == "bob" else (0,)
    lab.run(seconds=10)
    lab.world.fault_hook = None
    take_address(lab)
    lab.run(hours=2)
    server.topic("for cy").publish("for cy", rank=1.0).result()
    lab.run(minutes=5)
    assert read(cy, "for cy") == ["for cy"]
