"""The testbed: who wants an item, what is shown, and which arrivals are accepted."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import zlib
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from couriers import Nobody, on_each

from mudkit.errors import ParameterError
from mudkit.events import Ciphertext
from mudkit.experiment import ADAPTERS, TASKS, Item, Scenario, Task, Testbed, run
from mudkit.experiment.testbed import APP, _text_fields
from mudkit.lab import Lab


def _says(seed, phones, senders):
    return [{"least": float(row)} for row, _ in enumerate(phones)]


def _testbed(**changes):
    settings = {"predicate": "item.rank >= me.least", "profiles": _says, "is_shown": False, **changes}
    task = Task("test", "A test.", metadata=lambda *given: {}, scenario=Scenario(devices=3), **settings)
    lab = Lab(1)
    lab.fleet(3, link="ideal")
    testbed = Testbed(task, lab)
    testbed.attach(Nobody())
    testbed.couriers = on_each(lab.devices.values())
    return testbed


def _send(testbed, message, to, sender="phone-00000"):
    """Have a message come to a phone, now."""
    testbed.couriers[sender].call("send", to=to, message=message)
    testbed.lab.run(seconds=0)


def _bring(testbed, name, *phones):
    for phone in phones:
        if phone != testbed.items[name].sender:
            _send(testbed, [testbed.items[name].content], phone)
        testbed.record_arrival(phone, name)


def _item(name, rank=5.0, sender="phone-00000", expires_s=None):
    return Item(name, sender, {"who": sender, "rank": rank}, 10, expires_s)


def _rows(testbed):
    table = testbed.lab.deliveries()
    return {(row.item, row.receiver): row for row in table[table["system"] == APP].itertuples()}


def test_who_wants_an_item_is_not_its_sender():
    testbed = _testbed()
    testbed.publish(_item("one", rank=1.0))
    assert list(_rows(testbed)) == [("one", "phone-00001")]
    assert testbed.wanted_count == 1


def test_what_comes_and_is_not_wanted_is_there_without_being_read():
    testbed = _testbed()
    testbed.publish(_item("one", rank=1.0, expires_s=5.0))
    _bring(testbed, "one", *testbed.phones)
    for phone in testbed.phones:
        testbed.show(phone)
    testbed.lab.run(seconds=10)
    assert {key: row.status for key, row in _rows(testbed).items()} == {
        ("one", "phone-00001"): "read",
        ("one", "phone-00002"): "unread",
    }


def test_the_best_are_shown_first_and_what_is_over_never():
    testbed = _testbed(max_shown=1)
    for name, rank, expires_s in (("low", 3.0, None), ("high", 4.0, None), ("over", 5.0, 1.0)):
        testbed.publish(_item(name, rank, expires_s=expires_s))
        _bring(testbed, name, "phone-00002")
    testbed.lab.run(seconds=2)
    testbed.show("phone-00002")
    status = {name: row.status for (name, phone), row in _rows(testbed).items() if phone == "phone-00002"}
    assert status == {"low": "unread", "high": "read", "over": "expired"}
    testbed.show("phone-00002")
    assert _rows(testbed)["low", "phone-00002"].status == "read"


def test_what_is_seen_as_it_comes_is_read_at_once_and_once():
    testbed = _testbed(is_shown=True)
    testbed.publish(_item("one"))
    testbed.lab.run(seconds=3)
    _bring(testbed, "one", "phone-00001")
    testbed.lab.run(seconds=3)
    testbed.record_arrival("phone-00001", "one")
    row = _rows(testbed)["one", "phone-00001"]
    assert (row.status, row.latency_s, row.staleness_s) == ("read", 3.0, 3.0)


@pytest.mark.parametrize(("phone", "item"), [("phone-00001", "two"), ("nobody", "one")])
def test_nothing_comes_that_nobody_has_published(phone, item):
    testbed = _testbed()
    testbed.publish(_item("one"))
    with pytest.raises(ParameterError, match="nobody has published"):
        testbed.record_arrival(phone, item)


def test_who_moves_far_enough_says_so():
    task = Task(
        "near",
        "A test.",
        "within_km(item.loc, me.loc, 1)",
        Scenario(devices=4, mobility="manhattan"),
        metadata=lambda *given: {},
        profiles=lambda seed, phones, senders: [{} for _ in phones],
        renew_km=0.2,
    )
    lab = Lab(3)
    lab.fleet(4, mobility="manhattan")
    testbed, nobody = Testbed(task, lab), Nobody()
    answer = {phone: testbed.profile(phone)["loc"] for phone in testbed.phones}
    testbed.attach(nobody)
    assert nobody.moves == []
    lab.run(hours=1)
    assert set(nobody.moves) == set(testbed.phones)
    assert all(testbed.profile(phone)["loc"] != answer[phone] for phone in testbed.phones)


def test_a_want_with_a_place_needs_places():
    with pytest.raises(ParameterError, match="phones have none"):
        _testbed(predicate="within_km(item.loc, me.loc, 1)")


A, B, C = "phone-00000", "phone-00001", "phone-00002"
SIZE_BYTES = 200


class Place:
    """Three phones and a relay, on which couriers carry what a test gives them."""

    def __init__(self, link="ideal"):
        about = lambda *given: {}, lambda seed, phones, senders: [{} for _ in phones]
        task = Task("test", "A test.", "item.rank >= 0", Scenario(devices=3), *about)
        self.lab = Lab(1)
        self.lab.fleet(3, link=link)
        self.testbed = Testbed(task, self.lab)
        self.testbed.attach(Nobody())
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
            self.testbed.record_arrival(phone, name)
        except ParameterError as error:
            self.error = error
            return False
        return True


class Numbers(msgspec.Struct):
    """A message that cannot carry an item."""

    count: int
    shares: list[float]
    is_last: bool | None


class Parcel(msgspec.Struct, tag_field="kind", tag="parcel"):
    """A message in which an item can stand in several places."""

    number: int
    numbers: Numbers
    letters: list[tuple[int, str]] = []
    inner: Parcel | None = None
    extra: Any = None


HOLDS = {
    "a field of a struct": lambda item: Parcel(1, Numbers(1, [], None), [(1, "no"), (2, item.content)]),
    "a struct within a struct": lambda item: Parcel(
        1, Numbers(1, [], None), inner=Parcel(2, Numbers(1, [], None), extra={"a": item.content})
    ),
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


def test_only_fields_that_can_hold_texts_are_read():
    assert _text_fields(Numbers) == ()
    assert _text_fields(Parcel) == ("letters", "inner", "extra")


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


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("system", ADAPTERS)
@pytest.mark.parametrize("task", TASKS)
def test_all_systems_are_believed(system, task):
    entry = run(TASKS[task].over(devices=5, hours=0.2), ADAPTERS[system], seed=2)
    came = entry.deliveries["delivered"].notna().any()
    assert came or entry.testbed.wanted_count == 0 or len(entry.testbed.items) < 9
