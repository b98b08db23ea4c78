"""Two servers of one system that know nothing of each other, and an address that passes from one's device to the other's.

No server can know that its device's address is another device's now, before that device says so. Content may go
there, and nobody reads it (docs/how-a-message-travels.md, "What is promised").
"""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems import lasthop, radiator, store_and_forward, sublim

PLACE = (44.4, 26.1)


def use_store_and_forward(lab, devices, shown):
    relays = [store_and_forward.Relay(lab, name) for name in ("one", "two")]
    for device, relay in zip(devices, relays, strict=True):
        store_and_forward.Client(device, relay).on_message(shown[device.name].append)
    writer = store_and_forward.Client(lab.server("writer"), relays[0])
    return lambda: writer.send("ann", "for ann")


def use_radiator(lab, devices, shown):
    servers = [radiator.Server(lab, lambda *_: radiator.Volume(1), name=name) for name in ("one", "two")]
    for device, server in zip(devices, servers, strict=True):
        radiator.Client(device, server, receive=shown[device.name].append)
    writer = radiator.Client(lab.server("writer"), servers[0])
    return lambda: writer.propagate_context(radiator.Context(frozenset(("writer",)), {"text": "for ann"}))


def use_sublim(lab, devices, shown):
    servers = [sublim.PublishServer(lab, name=name) for name in ("one", "two")]
    for device, server in zip(devices, servers, strict=True):
        sublim.AccessPoint(lab, server, name=f"point of {device.name}", at=PLACE, range_m=150)
        sublim.Subscriber(device, server).on_message(shown[device.name].append)
    return lambda: servers[0].publish({"text": "for ann"})


def use_last_hop(lab, devices, shown):
    servers = [lasthop.Publications(lab, name=name) for name in ("one", "two")]
    topic = servers[0].topic("texts")
    for device, server in zip(devices, servers, strict=True):
        reader = lasthop.Subscriber(device, server)
        reader.on_message(shown[device.name].append)
        if device.name == "ann":
            reader.subscribe(lasthop.Subscription("texts", mode="on-line")).result()
    return lambda: topic.publish("for ann", rank=1.0)


@pytest.mark.parametrize("use", [use_store_and_forward, use_radiator, use_sublim, use_last_hop])
def test_device_of_another_server_shows_nothing_that_is_sent_to_its_address(use):
    lab = Lab(seed=1)
    ann, eve = (lab.device(name, link="wifi", at=PLACE) for name in ("ann", "eve"))
    lab.faults.change_address("ann")  # the first one is her name, which nobody else gets
    lab.run(minutes=1)
    shown: dict[str, list[object]] = {"ann": [], "eve": []}
    publish = use(lab, [ann, eve], shown)
    lab.run(minutes=2)
    address = ann.address
    lab.faults.cut("ann", minutes=30)
    lab.faults.change_address("ann")
    lab.faults.change_address("eve", address)
    publish()
    lab.run(hours=1)
    publish()
    lab.run(hours=5)
    assert (len(shown["ann"]), len(shown["eve"])) == (2, 0)
