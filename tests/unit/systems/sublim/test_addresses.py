"""Addresses that pass from one subscriber to another at an access point."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.sublim import AccessPoint, PlainSubscriber, Policy, PublishServer, Rule, Subscriber

PLACE = (44.4, 26.1)


def switch_owner(lab: Lab, former: str, new: str) -> str:
    """Switch a device off at an address that is not its name, and give the address to another one."""
    lab.faults.change_address(former)
    lab.run(minutes=2)
    address = lab.world.hosts[former].address
    lab.faults.switch_off(former)
    lab.run(minutes=1)
    lab.faults.change_address(former)
    lab.faults.change_address(new, address)
    return address


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("fault", ["none", "loss", "restart"])
def test_messages_are_not_sent_to_the_next_owner_of_an_address(count, fault):
    lab = Lab(seed=1)
    server = PublishServer(lab)
    places = [(PLACE[0] + 0.01 * number, PLACE[1]) for number in range(count)]
    for place in places:
        AccessPoint(lab, server, at=place, range_m=150)
    read = {"bob": [], "cy": []}
    for (name, texts), place in zip(read.items(), (places[0], places[-1]), strict=True):
        subscriber = Subscriber(lab.device(name, link="wifi", at=place), server)
        subscriber.on_message(lambda message, texts=texts: texts.append(message["text"]))
    address = switch_owner(lab, "bob", "cy")
    lab.faults.cut("cy", minutes=1)
    lab.faults.messages(loss_share=0.4 if fault == "loss" else 0.0)
    lab.run(minutes=30)
    if fault == "restart":
        lab.faults.kill("publish-server")
        lab.faults.restart("publish-server")
        lab.run(minutes=5)
    sent = []
    lab.faults.messages()
    lab.world.fault_hook = lambda transfer: sent.append((transfer.to.split("/")[0], transfer.message)) or (0,)
    server.publish({"text": "news"})
    lab.run(hours=24)
    at_cy = [repr(message) for to, message in sent if to == address]
    assert not [text for text in at_cy if "Deliver" in text and "subscriber='bob'" in text]
    assert len(sent) < 40
    assert read == {"bob": [], "cy": ["news"]}
    lab.faults.switch_on("bob")
    lab.run(minutes=5)
    assert read["bob"] == ["news"]


def test_waiting_deliveries_stop_when_another_subscriber_has_the_address_elsewhere():
    lab = Lab(seed=1)
    server = PublishServer(lab)
    places = PLACE, (PLACE[0] + 0.01, PLACE[1])
    for place in places:
        AccessPoint(lab, server, at=place, range_m=150)
    bob, cy = (
        Subscriber(lab.device(name, link="wifi", at=place), server)
        for name, place in zip(("bob", "cy"), places, strict=True)
    )
    address = switch_owner(lab, "bob", "cy")
    server.publish({"text": "news"})  # cy is not attached from there yet
    lab.run(minutes=1)
    sent = []
    lab.world.fault_hook = lambda transfer: sent.append((transfer.to.split("/")[0], transfer.message)) or (0,)
    lab.run(hours=1)
    assert not [message for to, message in sent if to == address and type(message).__name__ == "Deliver"]
    assert cy.read().result() == [{"text": "news"}]
    lab.faults.switch_on("bob")
    lab.run(minutes=5)
    assert bob.read().result() == [{"text": "news"}]
    assert bob.state()["address"].split("/")[0] == lab.world.hosts["bob"].address


PLACES = PLACE, (PLACE[0] + 0.01, PLACE[1])  # more than one kilometre apart
LATE_US = 30 * 60 * 1_000_000


class Ward:
    """Bob and Cy, each of them a plain or a roaming subscriber to the messages to them.

    ``points``: one access point for both, or one for each, ``roaming`` or plain.
    """

    def __init__(self, bob, cy, *points):
        self.lab = Lab(seed=1)
        self.net = PublishServer(self.lab)
        self.points = [
            AccessPoint(self.lab, self.net, at=place, range_m=150, stateful=point == "roaming").name
            for place, point in zip(PLACES, points, strict=False)
        ]
        places = PLACES if len(points) == 2 else (PLACE, PLACE)
        self.bob, self.cy = (
            self.subscribe(name, kind, place)
            for name, kind, place in zip(("bob", "cy"), (bob, cy), places, strict=True)
        )
        self.sent = []

    def subscribe(self, name, kind, place):
        device, predicate = self.lab.device(name, link="wifi", at=place), f"message.to = '{name}'"
        if kind == "plain":
            return PlainSubscriber(device, self.net, predicate)
        subscriber = Subscriber(device, self.net)
        subscriber.set_policy(Policy(name, [Rule(predicate)]))
        return subscriber

    def publish(self):
        """Publish two messages for each of them, and record what is sent."""
        self.lab.faults.messages()
        self.lab.world.fault_hook = lambda transfer: self.sent.append((transfer.to, transfer.message)) or (0,)
        for name in ("bob", "cy") * 2:
            self.net.publish({"to": name})
            self.lab.run(minutes=1)

    def list_for_bob(self, address):
        """Return the content for Bob that was sent to an address."""
        return [body for to, body in self.sent if to.split("/")[0] == address and "'bob'}" in repr(body)]


KINDS = [
    (bob, cy, *points)
    for bob in ("plain", "roaming")
    for cy in ("plain", "roaming")
    for points in (("plain",), ("roaming",), ("roaming", "roaming"), ("roaming", "plain"), ("plain", "plain"))
    if "roaming" in points or bob == cy == "plain"
]


@pytest.mark.parametrize("fault", ["none", "loss", "restart of the server", "restart of access points"])
@pytest.mark.parametrize("kinds", KINDS, ids=" ".join)
def test_any_kind_of_subscriber_gets_nothing_of_the_former_owner(kinds, fault):
    ward = Ward(*kinds)
    address = switch_owner(ward.lab, "bob", "cy")
    ward.lab.faults.cut("cy", minutes=1)
    ward.lab.faults.messages(loss_share=0.4 if fault == "loss" else 0.0)
    if fault == "loss":
        ward.net.publish({"to": "nobody"})  # lost addresses go with the acknowledgement
    ward.lab.run(minutes=10)
    restarted = {"restart of the server": ["publish-server"], "restart of access points": ward.points}
    for host in restarted.get(fault, ()):
        ward.lab.faults.kill(host)
        ward.lab.faults.restart(host)
        ward.lab.run(minutes=5)
    ward.publish()
    assert not ward.list_for_bob(address)
    assert ward.cy.read().result() == [{"to": "cy"}] * 2


@pytest.mark.parametrize("kinds", KINDS, ids=" ".join)
def test_late_message_takes_no_address_for_long(kinds):
    """Messages that Bob has sent from the address come half an hour late, when Cy has it."""
    ward = Ward(*kinds)
    ward.lab.faults.change_address("bob")
    ward.lab.run(minutes=2)
    ward.lab.faults.cut("bob", minutes=0.1)
    ward.lab.world.fault_hook = lambda transfer: (LATE_US,) if transfer.sender.host.name == "bob" else (0,)
    ward.lab.run(seconds=20)
    ward.lab.world.fault_hook = None
    address = ward.lab.world.hosts["bob"].address
    ward.lab.faults.switch_off("bob")
    ward.lab.faults.change_address("bob")
    ward.lab.faults.change_address("cy", address)
    ward.lab.run(hours=1)
    ward.publish()
    assert not ward.list_for_bob(address)
    assert ward.cy.read().result() == [{"to": "cy"}] * 2


def test_access_point_that_a_plain_subscriber_has_left_sends_nothing_more():
    """The Bye is lost."""
    ward = Ward("plain", "plain", "plain", "plain")
    ward.lab.run(seconds=10)
    ward.lab.world.fault_hook = lambda transfer: () if type(transfer.message).__name__ == "Bye" else (0,)
    ward.lab.world.hosts["bob"].set_measured("loc", PLACES[1])
    ward.lab.run(seconds=10)
    ward.publish()
    assert [type(message).__name__ for to, message in ward.sent if to.startswith("bob")] == [
        "PlainMessage"
    ] * 2
    assert ward.bob.read().result() == [{"to": "bob"}] * 2


def test_plain_subscriber_reads_nothing_that_was_sent_to_the_former_owner_of_its_address():
    """It was sent before the access point knew of the new owner."""
    ward = Ward("plain", "plain", "plain", "plain")
    ward.lab.faults.change_address("bob")
    ward.lab.run(minutes=2)
    address = ward.lab.world.hosts["bob"].address
    ward.lab.faults.switch_off("bob")
    ward.lab.faults.change_address("bob")
    ward.lab.faults.change_address("cy", address)
    ward.publish()
    assert ward.cy.read().result() == [{"to": "cy"}] * 2


def test_address_may_return_to_a_former_owner_of_another_kind():
    ward = Ward("roaming", "plain", "roaming", "plain")
    address = switch_owner(ward.lab, "bob", "cy")
    ward.lab.run(minutes=3)
    ward.lab.faults.change_address("cy")
    ward.lab.faults.switch_on("bob")
    ward.lab.faults.change_address("bob", address)
    ward.lab.run(minutes=3)
    ward.publish()
    assert ward.bob.read().result() == [{"to": "bob"}] * 2
    assert ward.cy.read().result() == [{"to": "cy"}] * 2
