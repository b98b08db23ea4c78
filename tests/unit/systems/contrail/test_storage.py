"""Storage in the cloud: shared uploads, obsolete and expired items, full queues, and white-lists."""

from __future__ import annotations

import pytest
from contrail_place import EVERYTHING, build_item, install_filters, open_ports

from mudkit.errors import AccessDenied
from mudkit.systems.contrail import Backlogged, Item, Published


def receive_texts(place, port):
    """Return the texts of the items that have arrived since the last call."""
    texts = []
    port.on_item(lambda item: texts.append(item.payload.decode().removeprefix("payload of ")))
    place.run(65)
    return texts


@pytest.mark.soak
def test_ten_receivers_cost_one_upload(make_place):
    names = [f"r{number}" for number in range(10)]
    place, ann, *receivers = install_filters(make_place, " ".join(["ann", *names]))
    place.publish(ann, build_item("keys"), "keys").result()  # not counted below
    item = Item({"what": "big"}, b"a photograph " * 8000)
    before = place.bytes_up("ann")
    result = place.publish(ann, item, "photograph").result()
    assert result == Published(tuple((name, "app") for name in names), uploaded=True)
    place.run(1)
    upload_bytes = len(item.payload) * 4 / 3  # in JSON
    assert upload_bytes < place.bytes_up("ann") - before < 1.1 * upload_bytes
    assert all(receive_texts(place, port) for port in receivers)


def test_retransmission_uploads_only_the_name(make_place):
    place, ann, bob = install_filters(make_place, "ann bob")
    item = Item({"what": "big"}, b"a photograph " * 8000)
    place.publish(ann, item, "photograph").result()
    place.run(65)
    before = place.bytes_up("ann")
    retransmission = place.publish(ann, item, "photograph").result()
    place.run(1)
    assert not retransmission.uploaded
    assert place.bytes_up("ann") - before < 500
    place.run(65)
    assert place.counts("bob") == {"duplicate": 1}
    place.publish(ann, Item({"what": "new"}, b"other content"), "photograph").result()
    place.run(65)
    assert bob.receive_item().result().metadata == {"what": "big"}
    assert bob.receive_item().result().payload == b"other content"


def test_later_receiver_gets_the_cached_item_if_it_may_have_the_key(make_place):
    place, ann, bob, cyd = open_ports(make_place, "ann bob cyd")
    place.install(bob, EVERYTHING, to=("ann", "app"))
    slot = place.install(cyd, "what = 'nothing'", to=("ann", "app"))
    place.publish(ann, build_item("photograph"), "photograph").result()
    place.install(cyd, "what > '1'", to=("ann", "app"), replaces=slot)
    retransmission = place.publish(ann, build_item("photograph"), "photograph", only=["cyd"]).result()
    assert retransmission == Published((("cyd", "app"),), uploaded=False)
    assert receive_texts(place, cyd) == ["photograph"]
    assert receive_texts(place, bob) == ["photograph"]


def test_item_is_uploaded_once_for_all_later_receivers(make_place):
    """Publish to new receivers, which get the key of this item only (Contrail 3.4.1)."""
    place, ann, *receivers = install_filters(make_place, "ann bob")
    item = Item({"what": "big"}, b"a photograph " * 8000)
    place.publish(ann, item, "photograph").result()
    place.publish(ann, build_item("another"), "another").result()
    place.run(65)
    for name in ("cyd", "dan"):
        place.module(name, ["ann"])
        place.modules["ann"].befriend(name).result()
        port = place.port(name)
        place.install(port, EVERYTHING, to=("ann", "app"))
        receivers.append(port)
        before = place.bytes_up("ann")
        retransmission = place.publish(ann, item, "photograph").result()
        place.run(1)
        assert not retransmission.uploaded
        assert place.bytes_up("ann") - before < 3_000
        place.run(65)
        assert [received.payload for received in port.receive_all().result()] == [item.payload]
        assert not place.store(name).items("key ann\n")
    place.publish(ann, build_item("later"), "later").result()
    place.run(65)
    assert {port.receive_all().result()[-1].payload for port in receivers} == {b"payload of later"}


def test_item_evicted_from_the_cache_is_uploaded_again(make_place):
    place, ann, bob = install_filters(make_place, "ann bob", max_cached=2)
    first = build_item("first")
    for name in ("first", "second", "third"):
        place.publish(ann, build_item(name), name).result()
    retransmission = place.publish(ann, first, "first").result()
    assert retransmission.destinations == (("bob", "app"),)
    assert receive_texts(place, bob) == ["second", "third", "first"]
    cache = place.store("relay1-storage")
    assert len(cache.items("item ")) == len(cache.items("cached ")) == 2


def test_newer_item_makes_older_ones_of_its_name_obsolete(make_place):
    place, ann, bob = install_filters(make_place, "ann bob")
    for number in range(5):
        place.publish(ann, build_item(f"{number}"), "position").result()
    place.publish(ann, build_item("other"), "other").result()
    place.publish(ann, build_item("nameless 1")).result()
    place.publish(ann, build_item("nameless 2")).result()
    assert receive_texts(place, bob) == ["4", "other", "nameless 1", "nameless 2"]
    assert place.counts("bob") == {}


def test_equal_names_at_two_ports_are_two_items(make_place):
    place = make_place("ann bob")
    one, two, bob = place.port("ann", "one"), place.port("ann", "two"), place.port("bob")
    for name in ("one", "two"):
        place.install(bob, EVERYTHING, to=("ann", name))
    place.publish(one, build_item("of one"), "position").result()
    place.publish(two, build_item("of two"), "position").result()
    assert receive_texts(place, bob) == ["of one", "of two"]


def test_expired_items_are_not_delivered(make_place):
    place, ann, bob, cyd = open_ports(make_place, "ann bob cyd")
    place.install(bob, EVERYTHING, to=("ann", "app"), item_expires_s=100.0)
    place.install(cyd, EVERYTHING, to=("ann", "app"))
    place.publish(ann, build_item("keys")).result()
    place.run(65)
    for name in ("bob", "cyd"):
        place.lab.faults.cut(name)
    place.publish(ann, build_item("short"), "short", 50.0).result()
    place.publish(ann, build_item("long"), "long", 500.0).result()
    place.publish(ann, build_item("for ever"), "for ever").result()
    place.run(150)
    place.lab.faults.mend("cyd")
    assert receive_texts(place, cyd) == ["keys", "long", "for ever"]
    place.lab.faults.mend("bob")
    assert receive_texts(place, bob) == ["keys"]
    assert place.counts("bob") == {}  # the relay has dropped them


def test_filter_ends_with_its_lifetime(make_place):
    place, ann, bob = open_ports(make_place, "ann bob")
    place.install(bob, EVERYTHING, to=("ann", "app"), lifetime_s=100.0)
    assert place.publish(ann, build_item("1")).result().destinations
    place.run(100)
    before = place.bytes_up("ann")
    assert place.publish(ann, build_item("2")).result() == Published((), uploaded=False)
    assert place.bytes_up("ann") == before


def test_full_queue_is_reported_and_affects_only_its_device(make_place):
    place, ann, bob, cyd = install_filters(make_place, "ann bob cyd", max_waiting=3)
    place.lab.faults.cut("bob")
    for number in range(3):
        assert isinstance(place.publish(ann, build_item(f"{number}"), f"{number}").result(), Published)
        place.run(35)
    full = place.publish(ann, build_item("3"), "3").result()
    assert full == Backlogged((("bob", "app"),), accepted=(("cyd", "app"),))
    newer = place.publish(ann, build_item("2 again"), "2").result()
    assert isinstance(newer, Published)  # it replaces a waiting item
    place.lab.faults.mend("bob")
    assert receive_texts(place, bob) == ["0", "1", "2 again"]
    assert receive_texts(place, cyd) == ["0", "1", "2", "3", "2 again"]
    assert place.publish(ann, build_item("3"), "3").result() == Published(
        (("bob", "app"), ("cyd", "app")), uploaded=False
    )
    assert receive_texts(place, bob) == ["3"]


def test_expired_items_free_room_in_a_full_queue(make_place):
    place, ann, _bob = install_filters(make_place, "ann bob", max_waiting=1)
    place.lab.faults.cut("bob")
    place.publish(ann, build_item("old"), "old", 10.0).result()
    assert isinstance(place.publish(ann, build_item("new"), "new").result(), Backlogged)
    place.run(10)
    assert isinstance(place.publish(ann, build_item("new"), "new").result(), Published)


def test_relay_with_the_white_list_refuses_filters_of_strangers(make_place):
    place = make_place()
    place.module("ann", shows_friends=True)
    place.module("eve", ["ann"])
    ann, eve = place.port("ann"), place.port("eve")
    place.run(5)
    place.secrets.add(EVERYTHING)
    with pytest.raises(AccessDenied, match="has refused"):
        eve.install_filter(EVERYTHING, to=("ann", "app")).result()
    before = place.bytes_down("ann")
    place.modules["ann"].befriend("eve").result()
    place.run(5)
    eve.install_filter(EVERYTHING, to=("ann", "app")).result()
    place.run(65)
    assert place.bytes_down("ann") > before
    assert place.publish(ann, build_item("x")).result().destinations == (("eve", "app"),)
    assert place.counts("ann") == {}
