"""The example of the design, and what an application is told when it asks for what cannot be."""

from __future__ import annotations

import pytest
from contrail_place import arranged, marked, opened

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


def install(predicate, to=("bob", "app"), **more):
    return lambda there, ann: ann.install_filter(predicate, to=to, **more).result()


def publish(item, **more):
    return lambda there, ann: ann.publish(item, **more)


ODD_PARAMETERS = {"polling_interval_ms": -1, "idle_timeout_ms": -0.1, "batch_size": 0}
REFUSED = [
    (lambda there, ann: Module(there.lab.devices["ann"], [], friends=["bob"]), ParameterError, "Expected a relay"),
    (
        lambda there, ann: Module(there.lab.devices["ann"], there.relays, friends="bob"), ParameterError,
        "a sequence, each a text",
    ),
    (install("x = 1", ("cyd", "app")), AccessDenied, "no friend"),
    (install("x = 1", ("zoe", "app")), ParameterError, "no such device"),
    (install("x = 1", "bob"), ParameterError, "a text or a Group"),
    (install("import os"), PredicateError, "Unexpected text"),
    (install("x =="), PredicateError, "is incomplete"),
    (install(""), PredicateError, "is empty"),
    (install(f"x = '{'y' * 5000}'"), ParameterError, "too long"),
    (lambda there, ann: ann.remove_filter(17).result(), ParameterError, "no such filter"),
    (lambda there, ann: there.modules["ann"].join(Group("here", rule="loc =")), PredicateError, "is incomplete"),
    (publish("text"), ParameterError, "an Item, such as"),
    (publish(Item({"x": object()})), ParameterError, "cannot hold the metadata"),
    (publish(Item({}, payload="text")), ParameterError, "a payload of bytes"),
    (publish(Item({}, payload=bytes(1 << 21))), ParameterError, "too large"),
    (publish(Item([])), ParameterError, "Expected an item"),
    *((publish(Item({}), item_id=name), ParameterError, "item") for name in ("", "~1", "a\nb", 7)),
    (publish(Item({}), expires_s=-1), ParameterError, "expires_s"),
    (lambda there, ann: there.port("ann"), ParameterError, "open already"),
    *((lambda there, ann, odd=odd: setattr(ann, *odd), ParameterError, odd[0]) for odd in ODD_PARAMETERS.items()),
    *((lambda there, ann, odd=odd: there.port("ann", "other", **dict([odd])), ParameterError, odd[0])
      for odd in ODD_PARAMETERS.items()),
]  # fmt: skip


def test_calls_that_cannot_be_carried_out_are_refused_in_words(place):
    there, ann, _ = opened(place, "ann bob")
    there.module("cyd")
    for call, error, words in REFUSED:
        with pytest.raises(error, match=words):
            call(there, ann)
    assert (ann.polling_interval_ms, ann.idle_timeout_ms, ann.batch_size) == (30_000, 0, 1)


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
    there, ann, bob = arranged(place, "ann bob")
    waiting = [bob.receive_item() for _ in range(3)]
    for text in ("one", "two"):
        there.publish(ann, marked(text)).result()
    there.run(65)
    assert [each.result().payload for each in waiting[:2]] == [b"payload of one", b"payload of two"]
    assert not waiting[2].done()
