"""Whatever a cloud does to messages is noticed, hurts nobody, and stops nothing that comes later."""

from __future__ import annotations

import pytest
from contrail_place import arranged, marked, payloads
from msgspec.structs import replace

from mudkit.events import Ciphertext, Received
from mudkit.reproduce.contrail import MANIPULATIONS, Testbed, tamper
from mudkit.systems.contrail import TamperedMessage
from mudkit.systems.contrail.messages import Data, Deliver


def test_every_manipulation_is_reported():
    result = tamper(2_000, seed=3)
    assert not result.missed
    assert set(result.reported) == set(MANIPULATIONS)
    assert min(result.reported.values()) > 50


def test_without_encryption_they_are_not():
    result = tamper(300, seed=3, encrypted=False)
    for name in ("bits", "headers", "old keys"):
        assert result.missed[name] > result.reported[name]


def test_what_was_not_changed_is_not_reported():
    testbed = Testbed()
    before, after = testbed.stored(), []
    for _ in range(2):
        assert all(testbed.deliver(message) == [] for message in testbed.messages)
        after.append(testbed.stored())
    assert before < after[0] == after[1]  # some had not been seen yet


def test_later_messages_come_and_honest_copies_are_only_counted(place):
    there, ann, bob = arranged(place, "ann bob")
    gateway = there.lab.world.hosts["relay1-gateway"].processes[0].machine
    before, damage = gateway.handle, {"left": 3}

    def handle(now_us, event):
        effects = before(now_us, event)
        for effect in effects:
            page = effect.message.page if isinstance(getattr(effect, "message", None), Deliver) else []
            for place, (number, message) in enumerate(page):
                if isinstance(message, Data) and damage["left"]:
                    damage["left"] -= 1
                    page[place] = number, replace(message, body=Ciphertext(message.body[:-1]))
        return effects

    gateway.handle = handle
    came = payloads(bob)
    for number in range(5):
        there.publish(ann, marked(f"{number}"), f"item {number}").result()
        there.run(65)
    assert came == [b"payload of 3", b"payload of 4"]
    assert [type(each) for each in there.problems["bob"]] == [TamperedMessage] * 3
    there.publish(ann, marked("4"), "item 4").result()  # a retransmission
    there.publish(ann, marked("0"), "item 0").result()  # of what was damaged
    there.run(65)
    assert came[2:] == [b"payload of 0"]
    assert there.counts("bob") == {"tampered": 3, "duplicate": 1}


def test_an_item_that_a_relay_has_held_back_until_it_had_expired_is_dropped(place):
    there, ann, bob = arranged(place, "ann bob")
    storage = there.lab.world.hosts["relay1-storage"].processes[0]
    there.publish(ann, marked("old"), "a", 40.0).result()
    before = storage.machine.handle
    storage.machine.handle = lambda now_us, event: before(min(now_us, 66_000_000), event)  # a stopped clock
    there.lab.faults.cut("bob")
    there.run(60)
    there.lab.faults.mend("bob")
    there.run(60)
    assert there.counts("bob") == {"expired": 1}
    assert not bob.receive_item().done()


@pytest.mark.parametrize("field", ["page", "visit", "more"])
def test_nonsense_of_a_relay_crashes_no_module(place, field):
    there, ann, bob = arranged(place, "ann bob")
    machine = there.machine("ann")
    gateway = there.relays[0].gateways[0][0]
    whole = {"kind": "deliver", "visit": 1, "page": [], "more": False}
    for junk in (None, 7, [], {}, [[]], [[1]], [["a", {}]], "text", b"bytes"):
        sent = [
            {"kind": "sent", "number": 1, "results": junk},
            {"kind": "sent", "number": junk, "results": []},
        ]
        for message in ({**whole, field: junk}, *sent, junk):
            machine.handle(there.lab.world.now_us, Received(gateway, message))
        machine.handle(there.lab.world.now_us, Received("nobody", whole))
    there.publish(ann, marked("0")).result()
    there.run(65)
    assert bob.receive_item().result().payload == b"payload of 0"
