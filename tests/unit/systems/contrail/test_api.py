"""The example of the design, and what an application is told when it asks for what cannot be."""

from __future__ import annotations

import pytest
from contrail_place import marked

from mudkit import Lab
from mudkit.errors import AccessDenied, ParameterError, PredicateError
from mudkit.systems.contrail import Group, Item, Module, Published, Relay

AWAY = "NOT within_box(loc, 37.35, -122.12, 37.43, -122.04)"


def test_the_example_of_the_design():
    lab = Lab(seed=7, record_exposure=True)
    relay = Relay(lab, instances=1)
    child = Module(lab.device("child"), relay, friends=["alice"])
    alice = Module(lab.device("alice"), relay, friends=["child"])
    port = child.open_port("location", on_filter=lambda f, who: who == "alice")
    home = alice.open_port("any")
    home.polling_interval_ms = 30_000
    home.idle_timeout_ms = 0
    home.install_filter(AWAY, to=("child", "location"), item_expires_s=86_400, lifetime_s=None).result()
    lab.run(minutes=1)
    before = lab.bill().bytes.sum()
    at_home = port.publish(Item({"loc": (37.4, -122.1)}, payload=b"at school"), item_id="mycurrentlocation")
    assert at_home.result() == Published((), uploaded=False)
    assert lab.bill().bytes.sum() == before  # what nobody has asked for costs nothing
    for step in range(3):
        away = Item({"loc": (37.5 + step, -122.0)}, payload=b"far away")
        port.publish(away, item_id="mycurrentlocation", expires_s=None).result()
    item = home.receive_item().result()
    assert (item.metadata, item.payload) == ({"loc": [39.5, -122.0]}, b"far away")
    assert item.source == ("child", "location")
    assert item.item_id == "mycurrentlocation"
    lab.run(minutes=5)
    assert not home.receive_item().done()  # the two before were made obsolete
    held = lab.trace.exposure.find(b"far away")
    assert {party for party, _, _ in held} == {"alice"}


def test_filters_go_from_friend_to_friend_only(place):
    there = place("ann bob")
    ann = there.port("ann")
    there.modules["cyd"] = there.module("cyd")
    with pytest.raises(AccessDenied, match="no friend"):
        ann.install_filter("x = 1", to=("cyd", "app")).result()
    with pytest.raises(ParameterError, match="no such device"):
        ann.install_filter("x = 1", to=("zoe", "app")).result()
    with pytest.raises(ParameterError, match="a text or a Group"):
        ann.install_filter("x = 1", to="bob")


def test_a_filter_outside_the_language_or_too_long_is_refused_at_once(place):
    there = place("ann bob")
    ann = there.port("ann")
    for wrong in ("import os", "x ==", ""):
        with pytest.raises(PredicateError):
            ann.install_filter(wrong, to=("bob", "app"))
    with pytest.raises(ParameterError, match="too long"):
        ann.install_filter("x = '" + "y" * 5000 + "'", to=("bob", "app"))


def test_items_that_cannot_be_sent_are_refused_at_once(place):
    ann = place("ann bob").port("ann")
    for wrong in (
        "text",
        Item({"x": object()}),
        Item({}, payload="text"),
        Item({}, payload=bytes(1 << 21)),
        Item([]),
    ):
        with pytest.raises(ParameterError):
            ann.publish(wrong)
    for wrong in ("", "~1", "a\nb", 7):
        with pytest.raises(ParameterError):
            ann.publish(Item({}), item_id=wrong)
    with pytest.raises(ParameterError):
        ann.publish(Item({}), expires_s=-1)


def test_parameters_of_ports_are_checked(place):
    there = place("ann bob")
    ann = there.port("ann")
    for name, wrong in (("polling_interval_ms", -1), ("idle_timeout_ms", -0.1), ("batch_size", 0)):
        with pytest.raises(ParameterError):
            setattr(ann, name, wrong)
        with pytest.raises(ParameterError):
            there.port("ann", "other", **{name: wrong})
    assert (ann.polling_interval_ms, ann.idle_timeout_ms, ann.batch_size) == (30_000, 0, 1)
    with pytest.raises(ParameterError, match="open already"):
        there.port("ann")
    with pytest.raises(PredicateError):
        there.modules["ann"].join(Group("here", rule="loc ="))
    with pytest.raises(ParameterError, match="no such filter"):
        ann.remove_filter(17).result()


def test_a_module_needs_a_relay():
    lab = Lab()
    with pytest.raises(ParameterError, match="Expected a relay"):
        Module(lab.device("ann"), [], friends=["bob"])
    with pytest.raises(ParameterError, match="a sequence, each a text"):
        Module(lab.devices["ann"], Relay(lab), friends="bob")


def test_nobody_but_the_owner_may_read_what_a_module_stores(place, tmp_path):
    folder = tmp_path / "ann"
    folder.mkdir()
    (folder / "contrail.db").touch(mode=0o644)
    there = place("ann bob", storage=tmp_path)
    there.run(1)
    modes = {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()}
    assert "contrail.db" in modes
    assert set(modes.values()) == {0o600}


def test_who_waits_twice_gets_two_items(place):
    there = place("ann bob")
    ann, bob = there.port("ann"), there.port("bob")
    there.install(bob, "what > ''", to=("ann", "app"))
    waiting = [bob.receive_item() for _ in range(3)]
    for text in ("one", "two"):
        there.publish(ann, marked(text)).result()
    there.run(65)
    assert [each.result().payload for each in waiting[:2]] == [b"payload of one", b"payload of two"]
    assert not waiting[2].done()
