"""Addresses that pass from one subscriber to another at an access point."""

from __future__ import annotations

from mudkit import Lab
from mudkit.systems.sublim import AccessPoint, PublishServer, Subscriber

PLACE = (44.4, 26.1)


def test_messages_are_not_sent_to_the_next_owner_of_an_address():
    lab = Lab(seed=1)
    server = PublishServer(lab)
    AccessPoint(lab, server, at=PLACE, range_m=150)
    read = {name: [] for name in ("bob", "cy")}
    for name, texts in read.items():
        subscriber = Subscriber(lab.device(name, link="wifi", at=PLACE), server)
        subscriber.on_message(lambda message, texts=texts: texts.append(message["text"]))
    lab.faults.change_address("bob")
    lab.run(minutes=2)
    address = lab.world.hosts["bob"].address
    lab.faults.switch_off("bob")
    lab.run(minutes=1)
    lab.faults.change_address("bob")
    lab.faults.change_address("cy", address)
    lab.faults.cut("cy", minutes=1)
    lab.run(minutes=30)
    sent = []
    lab.world.fault_hook = lambda transfer: sent.append((transfer.to.split("/")[0], transfer.message)) or (0,)
    server.publish({"text": "news"})
    lab.run(hours=24)
    at_cy = [repr(message) for to, message in sent if to == lab.world.hosts["cy"].address]
    assert not [text for text in at_cy if "Deliver" in text and "subscriber='bob'" in text]
    assert read == {"bob": [], "cy": ["news"]}
    lab.faults.switch_on("bob")
    lab.run(minutes=5)
    assert read["bob"] == ["news"]
