"""Manipulations of messages by a relay: detection, and effects on later messages."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from contrail_place import build_item, install_filters, payloads
from msgspec.structs import replace

from mudkit.events import Ciphertext, Received
from mudkit.systems.contrail import TamperedMessage
from mudkit.systems.contrail.crypto import Plain, Secret
from mudkit.systems.contrail.messages import Data, Deliver
from mudkit.verify.tampering import MANIPULATIONS, Testbed, tamper


def test_every_manipulation_is_reported():
    result = tamper(2_000, seed=3)
    assert not result.missed
    assert set(result.reported) == set(MANIPULATIONS)
    assert min(result.reported.values()) > 50


def test_manipulations_are_mostly_missed_without_encryption():
    result = tamper(300, seed=3, encrypted=False)
    for name in ("bits", "headers", "old keys"):
        assert result.missed[name] > result.reported[name]


def test_forgery_has_other_content_under_a_stolen_key():
    """Contrail 3.3: a former receiver has old keys of the channel, and can encrypt what it likes."""
    message = {"kind": "data", "port": "one", "item": "a", "seq": 5, "epoch": 9, "body": b"x", "to": [{}]}
    testbed = SimpleNamespace(stolen=[(3, Secret(bytes(32)))], thief=Plain("cyd", bytes(64)))
    forged = MANIPULATIONS["old keys"](Random(1), testbed, message)
    assert forged["epoch"] == 3
    assert b"forged" in bytes(forged["body"])


def test_changed_texts_grow_at_any_place():
    changed = set()
    for seed in range(200):
        message = {"kind": "data", "port": "p", "to": [{}]}
        changed.add(MANIPULATIONS["headers"](Random(seed), None, message)["port"])
    assert {len(text) for text in changed} == {1, 2}
    assert {"ap", "pa", "a"} <= changed


def test_unchanged_messages_are_not_reported():
    testbed = Testbed()
    before, after = testbed.count_stored(), []
    for _ in range(2):
        assert all(testbed.deliver(message) == [] for message in testbed.messages)
        after.append(testbed.count_stored())
    assert before < after[0] == after[1]  # some were new


def test_messages_after_tampered_ones_arrive_and_duplicates_are_counted(make_place):
    place, ann, bob = install_filters(make_place, "ann bob")
    gateway = place.lab.world.hosts["relay1-gateway"].processes[0].machine
    before, damage = gateway.handle, {"left": 3}

    def handle(now_us, event):
        effects = before(now_us, event)
        for effect in effects:
            page = effect.message.page if isinstance(getattr(effect, "message", None), Deliver) else []
            for index, (number, message) in enumerate(page):
                if isinstance(message, Data) and damage["left"]:
                    damage["left"] -= 1
                    page[index] = number, replace(message, body=Ciphertext(message.body[:-1]))
        return effects

    gateway.handle = handle
    received = payloads(bob)
    for number in range(5):
        place.publish(ann, build_item(f"{number}"), f"item {number}").result()
        place.run(65)
    assert received == [b"payload of 3", b"payload of 4"]
    assert [type(problem) for problem in place.problems["bob"]] == [TamperedMessage] * 3
    place.publish(ann, build_item("4"), "item 4").result()  # a retransmission
    place.publish(ann, build_item("0"), "item 0").result()  # of a tampered item
    place.run(65)
    assert received[2:] == [b"payload of 0"]
    assert place.counts("bob") == {"tampered": 3, "duplicate": 1}


def test_item_held_back_by_a_relay_beyond_expiration_is_dropped(make_place):
    place, ann, bob = install_filters(make_place, "ann bob")
    storage = place.lab.world.hosts["relay1-storage"].processes[0]
    place.publish(ann, build_item("old"), "a", 40.0).result()
    before = storage.machine.handle
    storage.machine.handle = lambda now_us, event: before(min(now_us, 66_000_000), event)  # a stopped clock
    place.lab.faults.cut("bob")
    place.run(60)
    place.lab.faults.mend("bob")
    place.run(60)
    assert place.counts("bob") == {"expired": 1}
    assert not bob.receive_item().done()


@pytest.mark.parametrize("field", ["page", "visit", "more"])
def test_malformed_messages_of_a_relay_do_not_crash_a_module(make_place, field):
    place, ann, bob = install_filters(make_place, "ann bob")
    machine = place.machine("ann")
    gateway = place.relays[0].gateways[0][0]
    valid = {"kind": "deliver", "visit": 1, "page": [], "more": False}
    for junk in (None, 7, [], {}, [[]], [[1]], [["a", {}]], "text", b"bytes"):
        answers = [
            {"kind": "sent", "number": 1, "results": junk},
            {"kind": "sent", "number": junk, "results": []},
        ]
        for message in ({**valid, field: junk}, *answers, junk):
            machine.handle(place.lab.world.now_us, Received(gateway, message))
        machine.handle(place.lab.world.now_us, Received("nobody", valid))
    place.publish(ann, build_item("0")).result()
    place.run(65)
    assert bob.receive_item().result().payload == b"payload of 0"
