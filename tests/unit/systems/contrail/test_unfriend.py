"""Ended friendships: waiting items, pending filters, and renewed friendships."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, build_item, install_filters, open_ports

from mudkit.errors import AccessDenied
from mudkit.systems.contrail import Group


def receive_texts(place, port):
    return [item.payload.decode().removeprefix("payload of ") for item in port.receive_all().result()]


@pytest.mark.parametrize(
    "item_state", ["off-line", "in a batch", "at the relay", "at a relay that is cut off"]
)
@pytest.mark.parametrize("relays", [1, 2])
def test_waiting_items_for_a_former_friend_are_dropped_and_others_arrive(make_place, item_state, relays):
    place, ann, bob, cyd = install_filters(make_place, "ann bob cyd", relays=relays)
    if item_state == "off-line":
        place.lab.faults.cut("ann")
    elif item_state == "in a batch":
        ann.batch_size = 50
    else:
        place.lab.faults.cut("bob")
    if item_state == "at a relay that is cut off" and relays == 2:
        for name in [host for host in place.lab.world.hosts if host.startswith("relay2-gateway")]:
            place.lab.faults.kill(name)
    call = place.publish(ann, build_item("secret"), "x")
    place.run(10)
    place.modules["ann"].unfriend("bob").result()
    place.run(10)
    for name in ("ann", "bob"):
        place.lab.faults.mend(name)
    for name in [host for host in place.lab.world.hosts if host.startswith("relay2-gateway")]:
        place.lab.faults.restart(name)
    place.run(300)
    assert (receive_texts(place, bob), receive_texts(place, cyd)) == ([], ["secret"])
    assert call.done()
    assert not [key for key, _ in place.store("ann").items("out ")]


def test_pending_filter_at_a_former_friend_fails_and_matches_nothing(make_place):
    place, ann, bob = open_ports(make_place, "ann bob")
    place.lab.faults.cut("bob")
    call = bob.install_filter(EVERYTHING, to=("ann", "app"))
    place.run(5)
    place.modules["bob"].unfriend("ann").result()
    place.run(1)
    with pytest.raises(AccessDenied, match="no friend any more"):
        call.result(0)
    place.lab.faults.mend("bob")
    place.run(65)
    assert place.publish(ann, build_item("x")).result().destinations == ()


def test_waiting_items_from_a_former_friend_are_dropped(make_place):
    place, ann, bob = open_ports(make_place, "ann bob")
    place.modules["ann"].join(Group("club")).result()
    place.install(bob, EVERYTHING, to=(Group("club"), "app"))
    place.lab.faults.cut("bob")
    place.publish(ann, build_item("late")).result()
    place.run(5)
    place.modules["bob"].unfriend("ann").result()
    place.lab.faults.mend("bob")
    place.run(130)
    assert receive_texts(place, bob) == []
    assert place.publish(ann, build_item("later")).result().destinations == ()


def test_friend_again_receives_only_later_items(make_place):
    place, ann, bob = install_filters(make_place, "ann bob")
    place.lab.faults.cut("ann")
    place.publish(ann, build_item("before"))
    place.modules["ann"].unfriend("bob")
    place.modules["ann"].befriend("bob")
    place.lab.faults.mend("ann")
    place.run(65)
    place.install(bob, EVERYTHING, to=("ann", "app"))
    place.publish(ann, build_item("after"), "a").result()
    place.run(65)
    assert receive_texts(place, bob) == ["after"]
