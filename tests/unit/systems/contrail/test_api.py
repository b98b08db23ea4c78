"""Example of the design, errors of invalid calls, file modes, and pending receives."""

from __future__ import annotations

import pytest
from contrail_place import build_item, install_filters, open_ports

from mudkit import Lab
from mudkit.errors import AccessDenied, ParameterError, PredicateError
from mudkit.systems.contrail import Group, Item, Module, Published, Relay

AWAY = "NOT within_box(loc, 37.35, -122.12, 37.43, -122.04)"


def test_example_of_the_design():
    lab = Lab(seed=7, record_exposure=True)
    relay = Relay(lab, instances=1)
    child = Module(lab.device("child"), relay, friends=["alice"])
    alice = Module(lab.device("alice"), relay, friends=["child"])
    port = child.open_port("location", on_filter=lambda f, device: device == "alice")
    home = alice.open_port("any")
    home.polling_interval_ms = 30_000
    home.idle_timeout_ms = 0
    home.install_filter(AWAY, to=("child", "location"), item_expires_s=86_400, lifetime_s=None).result()
    lab.run(minutes=1)
    before = lab.bill().bytes.sum()
    at_home = port.publish(Item({"loc": (37.4, -122.1)}, payload=b"at school"), item_id="mycurrentlocation")
    assert at_home.result() == Published((), uploaded=False)
    assert lab.bill().bytes.sum() == before  # an item without a matching filter costs nothing
    for step in range(3):
        away = Item({"loc": (37.5 + step, -122.0)}, payload=b"far away")
        port.publish(away, item_id="mycurrentlocation", expires_s=None).result()
    item = home.receive_item().result()
    assert (item.metadata, item.payload) == ({"loc": [39.5, -122.0]}, b"far away")
    assert item.source == ("child", "location")
    assert item.item_id == "mycurrentlocation"
    lab.run(minutes=5)
    assert not home.receive_item().done()  # the first two became obsolete
    exposures = lab.trace.exposure.find(b"far away")
    assert {party for party, _, _ in exposures} == {"alice"}


def install(predicate, to=("bob", "app"), **options):
    return lambda place, ann: ann.install_filter(predicate, to=to, **options).result()


def publish(item, **options):
    return lambda place, ann: ann.publish(item, **options)


INVALID_PARAMETERS = {"polling_interval_ms": -1, "idle_timeout_ms": -0.1, "batch_size": 0}
REFUSED = [
    (lambda place, ann: Module(place.lab.devices["ann"], [], friends=["bob"]), ParameterError, "Expected a relay"),
    (
        lambda place, ann: Module(place.lab.devices["ann"], place.relays, friends="bob"), ParameterError,
        "a sequence, each a text",
    ),
    (install("x = 1", ("cyd", "app")), AccessDenied, "no friend"),
    (install("x = 1", ("zoe", "app")), ParameterError, "no such device"),
    (install("x = 1", "bob"), ParameterError, "a text or a Group"),
    (install("import os"), PredicateError, "Unexpected text"),
    (install("x =="), PredicateError, "is incomplete"),
    (install(""), PredicateError, "is empty"),
    (install(f"x = '{'y' * 5000}'"), ParameterError, "too long"),
    (lambda place, ann: ann.remove_filter(17).result(), ParameterError, "no such filter"),
    (lambda place, ann: place.modules["ann"].join(Group("here", rule="loc =")), PredicateError, "is incomplete"),
    (publish("text"), ParameterError, "an Item, such as"),
    (publish(Item({"x": object()})), ParameterError, "cannot hold the metadata"),
    (publish(Item({}, payload="text")), ParameterError, "a payload of bytes"),
    (publish(Item({}, payload=bytes(1 << 21))), ParameterError, "too large"),
    (publish(Item([])), ParameterError, "Expected an item"),
    *((publish(Item({}), item_id=name), ParameterError, "item") for name in ("", "~1", "a\nb", 7)),
    (publish(Item({}), expires_s=-1), ParameterError, "expires_s"),
    (lambda place, ann: place.port("ann"), ParameterError, "open already"),
    *((lambda place, ann, setting=setting: setattr(ann, *setting), ParameterError, setting[0])
      for setting in INVALID_PARAMETERS.items()),
    *((lambda place, ann, setting=setting: place.port("ann", "other", **dict([setting])),
       ParameterError, setting[0])
      for setting in INVALID_PARAMETERS.items()),
]  # fmt: skip


def test_invalid_calls_raise_descriptive_errors(make_place):
    place, ann, _ = open_ports(make_place, "ann bob")
    place.module("cyd")
    for call, error, pattern in REFUSED:
        with pytest.raises(error, match=pattern):
            call(place, ann)
    assert (ann.polling_interval_ms, ann.idle_timeout_ms, ann.batch_size) == (30_000, 0, 1)


def test_store_files_are_accessible_only_to_their_owner(make_place, tmp_path):
    folder = tmp_path / "ann"
    folder.mkdir()
    (folder / "contrail.db").touch(mode=0o644)
    place = make_place("ann bob", storage=tmp_path)
    place.run(1)
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert "contrail.db" in modes
    assert set(modes.values()) == {0o600}


def test_pending_receives_complete_with_one_item_each(make_place):
    place, ann, bob = install_filters(make_place, "ann bob")
    operations = [bob.receive_item() for _ in range(3)]
    for text in ("one", "two"):
        place.publish(ann, build_item(text)).result()
    place.run(65)
    assert [operation.result().payload for operation in operations[:2]] == [
        b"payload of one",
        b"payload of two",
    ]
    assert not operations[2].done()
