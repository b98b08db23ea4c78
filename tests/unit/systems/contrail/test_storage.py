"""What a cloud does for devices: one upload for many, the newest only, nothing that has expired, a bound."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, arranged, marked, opened

from mudkit.errors import AccessDenied
from mudkit.systems.contrail import Backlogged, Item, Published


def received(there, port):
    """What has come since the last time."""
    got = []
    port.on_item(lambda item: got.append(item.payload.decode().removeprefix("payload of ")))
    there.run(65)
    return got


@pytest.mark.soak
def test_ten_receivers_cost_one_upload(place):
    names = [f"r{number}" for number in range(10)]
    there, ann, *receivers = arranged(place, " ".join(["ann", *names]))
    there.publish(ann, marked("keys"), "keys").result()  # so that only the item counts
    item = Item({"what": "big"}, b"a photograph " * 8000)
    before = there.bytes_up("ann")
    result = there.publish(ann, item, "photograph").result()
    assert result == Published(tuple((name, "app") for name in names), uploaded=True)
    there.run(1)
    one = len(item.payload) * 4 / 3  # in JSON
    assert one < there.bytes_up("ann") - before < 1.1 * one
    assert all(received(there, port) for port in receivers)


def test_a_retransmission_is_a_name(place):
    there, ann, bob = arranged(place, "ann bob")
    item = Item({"what": "big"}, b"a photograph " * 8000)
    there.publish(ann, item, "photograph").result()
    there.run(65)
    before = there.bytes_up("ann")
    again = there.publish(ann, item, "photograph").result()
    there.run(1)
    assert not again.uploaded
    assert there.bytes_up("ann") - before < 500
    there.run(65)
    assert there.counts("bob") == {"duplicate": 1}
    there.publish(ann, Item({"what": "new"}, b"other content"), "photograph").result()
    there.run(65)
    assert bob.receive_item().result().metadata == {"what": "big"}
    assert bob.receive_item().result().payload == b"other content"


def test_who_asks_later_gets_what_is_in_the_cache_if_the_key_may_be_had(place):
    there, ann, bob, cyd = opened(place, "ann bob cyd")
    there.install(bob, EVERYTHING, to=("ann", "app"))
    slot = there.install(cyd, "what = 'nothing'", to=("ann", "app"))
    there.publish(ann, marked("photograph"), "photograph").result()
    there.install(cyd, "what > '1'", to=("ann", "app"), replaces=slot)
    again = there.publish(ann, marked("photograph"), "photograph", only=["cyd"]).result()
    assert again == Published((("cyd", "app"),), uploaded=False)
    assert received(there, cyd) == ["photograph"]
    assert received(there, bob) == ["photograph"]


def test_an_item_is_uploaded_once_whoever_asks_later(place):
    """The newcomer is given the key of this item alone (Contrail 3.4.1)."""
    there, ann, *receivers = arranged(place, "ann bob")
    item = Item({"what": "big"}, b"a photograph " * 8000)
    there.publish(ann, item, "photograph").result()
    there.publish(ann, marked("another"), "another").result()
    there.run(65)
    for name in ("cyd", "dan"):
        there.module(name, ["ann"])
        there.modules["ann"].befriend(name).result()
        port = there.port(name)
        there.install(port, EVERYTHING, to=("ann", "app"))
        receivers.append(port)
        before = there.bytes_up("ann")
        again = there.publish(ann, item, "photograph").result()
        there.run(1)
        assert not again.uploaded
        assert there.bytes_up("ann") - before < 3_000
        there.run(65)
        assert [each.payload for each in port.receive_all().result()] == [item.payload]
        assert not there.store(name).items("key ann\n")
    there.publish(ann, marked("later"), "later").result()
    there.run(65)
    assert {port.receive_all().result()[-1].payload for port in receivers} == {b"payload of later"}


def test_what_has_left_the_cache_is_uploaded_again(place):
    there, ann, bob = arranged(place, "ann bob", max_cached=2)
    first = marked("first")
    for name in ("first", "second", "third"):
        there.publish(ann, marked(name), name).result()
    again = there.publish(ann, first, "first").result()
    assert again.destinations == (("bob", "app"),)
    assert received(there, bob) == ["second", "third", "first"]
    cache = there.store("relay1-storage")
    assert len(cache.items("item ")) == len(cache.items("cached ")) == 2


def test_a_newer_item_makes_those_of_its_name_obsolete(place):
    there, ann, bob = arranged(place, "ann bob")
    for number in range(5):
        there.publish(ann, marked(f"{number}"), "position").result()
    there.publish(ann, marked("other"), "other").result()
    there.publish(ann, marked("nameless 1")).result()
    there.publish(ann, marked("nameless 2")).result()
    assert received(there, bob) == ["4", "other", "nameless 1", "nameless 2"]
    assert there.counts("bob") == {}


def test_the_same_name_at_two_ports_is_two_items(place):
    there = place("ann bob")
    one, two, bob = there.port("ann", "one"), there.port("ann", "two"), there.port("bob")
    for name in ("one", "two"):
        there.install(bob, EVERYTHING, to=("ann", name))
    there.publish(one, marked("of one"), "position").result()
    there.publish(two, marked("of two"), "position").result()
    assert received(there, bob) == ["of one", "of two"]


def test_expired_items_are_not_delivered(place):
    there, ann, bob, cyd = opened(place, "ann bob cyd")
    there.install(bob, EVERYTHING, to=("ann", "app"), item_expires_s=100.0)
    there.install(cyd, EVERYTHING, to=("ann", "app"))
    there.publish(ann, marked("keys")).result()
    there.run(65)
    for name in ("bob", "cyd"):
        there.lab.faults.cut(name)
    there.publish(ann, marked("short"), "short", 50.0).result()
    there.publish(ann, marked("long"), "long", 500.0).result()
    there.publish(ann, marked("for ever"), "for ever").result()
    there.run(150)
    there.lab.faults.mend("cyd")
    assert received(there, cyd) == ["keys", "long", "for ever"]
    there.lab.faults.mend("bob")
    assert received(there, bob) == ["keys"]
    assert there.counts("bob") == {}  # the relay has dropped them


def test_a_filter_ends_with_its_lifetime(place):
    there, ann, bob = opened(place, "ann bob")
    there.install(bob, EVERYTHING, to=("ann", "app"), lifetime_s=100.0)
    assert there.publish(ann, marked("1")).result().destinations
    there.run(100)
    before = there.bytes_up("ann")
    assert there.publish(ann, marked("2")).result() == Published((), uploaded=False)
    assert there.bytes_up("ann") == before


def test_a_full_queue_is_told_to_the_publisher_and_only_concerns_its_device(place):
    there, ann, bob, cyd = arranged(place, "ann bob cyd", max_waiting=3)
    there.lab.faults.cut("bob")
    for number in range(3):
        assert isinstance(there.publish(ann, marked(f"{number}"), f"{number}").result(), Published)
        there.run(35)
    full = there.publish(ann, marked("3"), "3").result()
    assert full == Backlogged((("bob", "app"),), accepted=(("cyd", "app"),))
    newer = there.publish(ann, marked("2 again"), "2").result()
    assert isinstance(newer, Published)  # it stands in place of one that waits
    there.lab.faults.mend("bob")
    assert received(there, bob) == ["0", "1", "2 again"]
    assert received(there, cyd) == ["0", "1", "2", "3", "2 again"]
    assert there.publish(ann, marked("3"), "3").result() == Published(
        (("bob", "app"), ("cyd", "app")), uploaded=False
    )
    assert received(there, bob) == ["3"]


def test_what_expires_makes_room_in_a_full_queue(place):
    there, ann, _bob = arranged(place, "ann bob", max_waiting=1)
    there.lab.faults.cut("bob")
    there.publish(ann, marked("old"), "old", 10.0).result()
    assert isinstance(there.publish(ann, marked("new"), "new").result(), Backlogged)
    there.run(10)
    assert isinstance(there.publish(ann, marked("new"), "new").result(), Published)


def test_strangers_filters_are_refused_by_a_relay_that_knows_the_white_list(place):
    there = place()
    there.module("ann", shows_friends=True)
    there.module("eve", ["ann"])
    ann, eve = there.port("ann"), there.port("eve")
    there.run(5)
    there.secrets.add(EVERYTHING)
    with pytest.raises(AccessDenied, match="has refused"):
        eve.install_filter(EVERYTHING, to=("ann", "app")).result()
    before = there.bytes_down("ann")
    there.modules["ann"].befriend("eve").result()
    there.run(5)
    eve.install_filter(EVERYTHING, to=("ann", "app")).result()
    there.run(65)
    assert there.bytes_down("ann") > before
    assert there.publish(ann, marked("x")).result().destinations == (("eve", "app"),)
    assert there.counts("ann") == {}
