"""What is said to have arrived is believed if messages have carried it, over its sender's link and the phone's."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import zlib
from itertools import pairwise

import msgspec
import pytest
from couriers import Nobody, on_each

from mudkit.errors import ParameterError
from mudkit.events import Ciphertext
from mudkit.experiment.adapters import ADAPTERS
from mudkit.experiment.scenario import Scenario
from mudkit.experiment.scoreboard import play
from mudkit.experiment.tasks import TASKS, Item, Task, Testbed
from mudkit.lab import Lab

A, B, C = "phone-00000", "phone-00001", "phone-00002"
SIZE_BYTES = 200


class Place:
    """Three phones and a relay, on which couriers carry what a test gives them."""

    def __init__(self, link="ideal"):
        task = Task(
            "test",
            "A test.",
            "item.rank >= 0",
            Scenario(devices=3),
            lambda *given: {},
            lambda seed, phones, senders: [{} for _ in phones],
        )
        self.lab = Lab(1)
        self.lab.fleet(3, link=link)
        self.testbed = Testbed(task, self.lab)
        self.testbed.enter(Nobody())
        self.couriers = on_each([self.lab.server("relay"), *self.lab.devices.values()])

    def publish(self, name, sender=A, size_bytes=SIZE_BYTES):
        item = Item(name, sender, {"who": sender, "rank": 1.0}, size_bytes, None)
        self.testbed.publish(item)
        return item

    def send(self, message, *way):
        for sender, to in pairwise(way):
            self.couriers[sender].call("send", to=to, message=message)
            self.lab.run(seconds=0)

    def has_arrived(self, phone, name):
        try:
            self.testbed.arrived(phone, name)
        except ParameterError as error:
            self.error = error
            return False
        return True


HOLDS = {
    "as it is": lambda item: item.content,
    "as bytes": lambda item: item.content.encode(),
    "the bytes that its letters stand for": lambda item: base64.b64decode(item.content),
    "with its text": lambda item: item.text,
    "among others": lambda item: {"all": [f"one, {item.content}, two", 3]},
    "as the name of a field": lambda item: {item.content: 1},
    "JSON": lambda item: json.dumps({"a": [item.content]}),
    "gzip": lambda item: gzip.compress(item.content.encode()),
    "zlib": lambda item: zlib.compress(item.text.encode()),
    "bzip2": lambda item: bz2.compress(item.content.encode()),
    "xz": lambda item: lzma.compress(item.content.encode()),
    "base64": lambda item: base64.b64encode(item.content.encode()).decode(),
    "hex": lambda item: item.content.encode().hex(),
    "MessagePack": lambda item: msgspec.msgpack.encode({"a": item.content}),
    "sealed": lambda item: Ciphertext(b"\xee" * (item.size_bytes * 3 // 4 + 16)),
}
MISSES = {
    "its name": lambda item: item.name,
    "half of it": lambda item: item.content[: item.size_bytes // 2],
    "all but a letter": lambda item: item.content[:-1],
    "as many bytes": lambda item: "x" * item.size_bytes,
    "two halves": lambda item: [item.content[:100], item.content[100:]],
    "sealed, too short": lambda item: Ciphertext(b"\xee" * (item.size_bytes * 3 // 4 - 1)),
    "nothing": lambda item: None,
}


@pytest.mark.parametrize("form", HOLDS)
def test_what_a_message_holds_has_come(form):
    place = Place()
    item = place.publish("one")
    assert not place.has_arrived(B, "one")
    assert "has not left its sender over a link" in place.error.summary
    place.send(HOLDS[form](item), A, "relay", B)
    assert place.has_arrived(B, "one")
    assert not place.has_arrived(C, "one"), "to no other phone"
    assert "has not come over the phone's link" in place.error.summary


@pytest.mark.parametrize("form", MISSES)
def test_what_no_message_holds_has_not_come(form):
    place = Place()
    item = place.publish("one")
    place.send(MISSES[form](item), A, "relay", B)
    assert not place.has_arrived(B, "one")


def test_it_leaves_its_sender_first():
    """A server that knows an item of nobody's message has it by memory that is shared."""
    place = Place()
    item = place.publish("one")
    place.send(item.content, "relay", B)
    assert not place.has_arrived(B, "one")
    place.send(item.content, A, "relay")
    assert place.has_arrived(B, "one")


def test_what_was_sent_before_it_was_published_does_not_count():
    place = Place()
    item = Item("one", A, {"who": A, "rank": 1.0}, SIZE_BYTES, None)
    for message in (item.content, Ciphertext(b"\xee" * SIZE_BYTES)):
        place.send(message, A, "relay", B)
    place.lab.run(seconds=1)
    place.publish("one")
    assert not place.has_arrived(B, "one")


def test_a_ciphertext_counts_for_as_many_items_as_it_can_hold():
    place = Place()
    for name in ("one", "two", "three"):
        place.publish(name)
    place.send(Ciphertext(b"\xee" * (2 * SIZE_BYTES * 3 // 4)), A, B)
    assert [place.has_arrived(B, name) for name in ("one", "two", "three")] == [True, True, False]


def test_a_message_that_is_lost_has_carried_nothing():
    place = Place("lte")
    item = place.publish("one")
    place.lab.faults.cut(B)
    place.couriers[A].call("send", to=B, message=item.content)
    place.lab.run(seconds=30)
    assert not place.has_arrived(B, "one")


@pytest.mark.parametrize("size_bytes", [1, 5, 8, 9, 11, 12])
def test_a_short_item_is_found_by_all_its_letters(size_bytes):
    place = Place()
    item = place.publish("one", size_bytes=size_bytes)
    place.send(f"<{item.content}>", A, B)
    assert place.has_arrived(B, "one")


def test_a_message_of_one_phone_to_itself_is_no_message_over_a_link():
    place = Place()
    item = place.publish("one")
    place.send(item.content, A, "relay")
    place.send(item.content, B, B)
    assert not place.has_arrived(B, "one")


@pytest.mark.parametrize("system", ADAPTERS)
@pytest.mark.parametrize("task", TASKS)
def test_all_systems_are_believed(system, task):
    entry = play(TASKS[task].over(devices=5, hours=0.2), ADAPTERS[system], seed=2)
    assert (
        entry.testbed.wanted == 0
        or entry.deliveries["delivered"].notna().any()
        or len(entry.testbed.items) < 9
    )
