"""Addresses that pass from one subscriber to another at an access point."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.sublim import AccessPoint, PublishServer, Subscriber

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
