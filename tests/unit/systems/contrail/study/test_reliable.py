"""Acknowledgements and retransmissions by filters: what a cloud loses comes all the same."""

from __future__ import annotations

import pytest
from contrail_place import marked

from mudkit.errors import ParameterError
from mudkit.systems.contrail import Item
from mudkit.systems.contrail.messages import Data
from mudkit.systems.contrail.study.reliable import Inbound, Outbound


@pytest.fixture
def ends(place):
    there = place("ann bob cyd")
    got = {"bob": [], "cyd": []}
    photos = there.port("ann", "photos")
    for name, items in got.items():
        port = there.port(name, "album")
        Inbound(there.modules[name], port, "tag = 'family'", ("ann", "photos"), items.append)
    out = Outbound(there.modules["ann"], photos, [("bob", "album"), ("cyd", "album")])
    there.run(70)
    return there, out, got


def photograph(there, text):
    item = Item({"tag": "family"}, f"payload of {text}".encode() * 1000)
    there.secrets |= {item.payload, "tag = 'family'"}
    return item


def lose(there, device, kind=Data):
    """Let the relay lose what waits for a device."""
    there.lab.run(seconds=1)
    process = there.lab.world.hosts["relay1-storage"].processes[0]
    queue = process.machine._device(device).queue
    for number, message in queue.read(0, 1 << 30)[0]:
        if type(message) is kind:
            queue.drop(number)
    process.store.commit()


def test_what_arrives_is_acknowledged(ends):
    there, out, got = ends
    for name in ("one", "two"):
        out.publish(photograph(there, name), name).result()
    assert out.unacknowledged == {"one": ["bob", "cyd"], "two": ["bob", "cyd"]}
    there.run(130)
    assert [len(items) for items in got.values()] == [2, 2]
    assert out.unacknowledged == {}
    assert out.retransmit() == []


def test_what_is_lost_comes_with_a_retransmission_which_is_a_name(ends):
    there, out, got = ends
    out.publish(photograph(there, "lost"), "lost").result()
    lose(there, "bob")
    there.run(130)
    assert out.unacknowledged == {"lost": ["bob"]}
    before = there.bytes_up("ann")
    (again,) = out.retransmit()
    assert again.result().destinations == (("bob", "album"),)
    assert not again.result().uploaded
    assert there.bytes_up("ann") - before < 1000
    there.run(130)
    assert out.unacknowledged == {}
    assert [len(items) for items in got.values()] == [1, 1]


def test_a_lost_acknowledgement_is_made_up_for_by_the_next(ends):
    there, out, _ = ends
    out.publish(photograph(there, "one"), "one").result()
    there.lab.faults.cut("ann")
    there.run(100)
    lose(there, "ann")
    there.lab.faults.mend("ann")
    there.run(130)
    assert out.unacknowledged == {"one": ["bob", "cyd"]}
    out.publish(photograph(there, "two"), "two").result()
    there.run(130)
    assert out.unacknowledged == {}


def test_retransmissions_to_who_is_away_are_one_item_in_the_end(ends):
    there, out, got = ends
    there.lab.faults.cut("bob")
    out.publish(photograph(there, "one"), "one").result()
    for _ in range(5):
        out.retransmit("one")
        there.run(10)
    there.lab.faults.mend("bob")
    there.run(130)
    assert [len(items) for items in got.values()] == [1, 1]
    assert "duplicate" not in there.counts("bob")


def test_a_newer_item_of_a_name_is_acknowledged_by_itself(ends):
    there, out, _ = ends
    out.publish(photograph(there, "first"), "one").result()
    there.run(40)
    out.publish(photograph(there, "second"), "one").result()
    assert out.unacknowledged == {"one": ["bob", "cyd"]}
    there.run(130)
    assert out.unacknowledged == {}
    with pytest.raises(ParameterError, match="no unacknowledged item"):
        out.retransmit("one")


def test_what_nobody_wants_needs_no_acknowledgement(ends):
    _, out, _ = ends
    assert out.publish(marked("office"), "office").result().destinations == ()
    assert out.unacknowledged == {}
