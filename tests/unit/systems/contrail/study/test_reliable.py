"""Acknowledgements and retransmissions by filters, for items that a cloud loses."""

from __future__ import annotations

import pytest
from contrail_place import build_item

from mudkit.errors import ParameterError
from mudkit.systems.contrail import Item
from mudkit.systems.contrail.messages import Data
from mudkit.systems.contrail.study.reliable import Inbound, Outbound


@pytest.fixture
def endpoints(make_place):
    place = make_place("ann bob cyd")
    received = {"bob": [], "cyd": []}
    photos = place.port("ann", "photos")
    for name, items in received.items():
        port = place.port(name, "album")
        Inbound(place.modules[name], port, "tag = 'family'", ("ann", "photos"), items.append)
    outbound = Outbound(place.modules["ann"], photos, [("bob", "album"), ("cyd", "album")])
    place.run(70)
    return place, outbound, received


def build_photo(place, text):
    item = Item({"tag": "family"}, f"payload of {text}".encode() * 1000)
    place.secrets |= {item.payload, "tag = 'family'"}
    return item


def lose(place, device, kind=Data):
    """Drop the messages of a kind that wait for a device at the relay."""
    place.lab.run(seconds=1)
    process = place.lab.world.hosts["relay1-storage"].processes[0]
    queue = process.machine._device(device).queue
    for number, message in queue.read(0, 1 << 30)[0]:
        if type(message) is kind:
            queue.drop(number)
    process.store.commit()


def test_arrived_items_are_acknowledged(endpoints):
    place, outbound, received = endpoints
    for name in ("one", "two"):
        outbound.publish(build_photo(place, name), name).result()
    assert outbound.unacknowledged == {"one": ["bob", "cyd"], "two": ["bob", "cyd"]}
    place.run(130)
    assert [len(items) for items in received.values()] == [2, 2]
    assert outbound.unacknowledged == {}
    assert outbound.retransmit() == []


def test_lost_item_is_delivered_by_a_retransmission_of_its_name(endpoints):
    place, outbound, received = endpoints
    outbound.publish(build_photo(place, "lost"), "lost").result()
    lose(place, "bob")
    place.run(130)
    assert outbound.unacknowledged == {"lost": ["bob"]}
    before = place.bytes_up("ann")
    (operation,) = outbound.retransmit()
    assert operation.result().destinations == (("bob", "album"),)
    assert not operation.result().uploaded
    assert place.bytes_up("ann") - before < 1000
    place.run(130)
    assert outbound.unacknowledged == {}
    assert [len(items) for items in received.values()] == [1, 1]


def test_lost_acknowledgement_is_covered_by_the_next(endpoints):
    place, outbound, _ = endpoints
    outbound.publish(build_photo(place, "one"), "one").result()
    place.lab.faults.cut("ann")
    place.run(100)
    lose(place, "ann")
    place.lab.faults.mend("ann")
    place.run(130)
    assert outbound.unacknowledged == {"one": ["bob", "cyd"]}
    outbound.publish(build_photo(place, "two"), "two").result()
    place.run(130)
    assert outbound.unacknowledged == {}


def test_retransmissions_during_an_outage_deliver_one_item(endpoints):
    place, outbound, received = endpoints
    place.lab.faults.cut("bob")
    outbound.publish(build_photo(place, "one"), "one").result()
    for _ in range(5):
        outbound.retransmit("one")
        place.run(10)
    place.lab.faults.mend("bob")
    place.run(130)
    assert [len(items) for items in received.values()] == [1, 1]
    assert "duplicate" not in place.counts("bob")


def test_newer_item_of_a_name_needs_its_own_acknowledgement(endpoints):
    place, outbound, _ = endpoints
    outbound.publish(build_photo(place, "first"), "one").result()
    place.run(40)
    outbound.publish(build_photo(place, "second"), "one").result()
    assert outbound.unacknowledged == {"one": ["bob", "cyd"]}
    place.run(130)
    assert outbound.unacknowledged == {}
    with pytest.raises(ParameterError, match="no unacknowledged item"):
        outbound.retransmit("one")


def test_item_without_receivers_needs_no_acknowledgement(endpoints):
    _, outbound, _ = endpoints
    assert outbound.publish(build_item("office"), "office").result().destinations == ()
    assert outbound.unacknowledged == {}
