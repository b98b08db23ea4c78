"""Testbed: interests, shown items, and accepted arrivals."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import zlib
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from couriers import IdleEntrant, install_couriers

from mudkit.errors import ParameterError
from mudkit.events import Ciphertext
from mudkit.experiment import ADAPTERS, TASKS, Item, Scenario, Task, Testbed, run
from mudkit.experiment.evidence import _text_fields
from mudkit.experiment.testbed import APP
from mudkit.lab import Lab
from mudkit.units import distance_km


def _draw_profiles(seed, phones, senders):
    return [{"least": float(row)} for row, _ in enumerate(phones)]


def _make_testbed(**changes):
    settings = {
        "predicate": "item.rank >= me.least",
        "profiles": _draw_profiles,
        "is_shown": False,
        **changes,
    }
    task = Task("test", "A test.", metadata=lambda *arguments: {}, scenario=Scenario(devices=3), **settings)
    lab = Lab(1)
    lab.fleet(3, link="ideal")
    testbed = Testbed(task, lab)
    testbed.attach(IdleEntrant())
    testbed.couriers = install_couriers(lab.devices.values())
    return testbed


def _send(testbed, message, to, sender="phone-00000"):
    """Send a message to a phone without delay."""
    testbed.couriers[sender].call("send", to=to, message=message)
    testbed.lab.run(seconds=0)


def _deliver(testbed, name, *phones):
    for phone in phones:
        if phone != testbed.items[name].sender:
            _send(testbed, [testbed.items[name].content], phone)
        testbed.record_arrival(phone, name)


def _make_item(name, rank=5.0, sender="phone-00000", expires_s=None):
    return Item(name, sender, {"who": sender, "rank": rank}, 10, expires_s)


def _get_rows(testbed):
    table = testbed.lab.deliveries()
    return {(row.item, row.receiver): row for row in table[table["system"] == APP].itertuples()}


def test_senders_do_not_want_their_own_items():
    testbed = _make_testbed()
    testbed.publish(_make_item("one", rank=1.0))
    assert list(_get_rows(testbed)) == [("one", "phone-00001")]
    assert testbed.wanted_count == 1


def test_unwanted_items_are_delivered_but_unread():
    testbed = _make_testbed()
    testbed.publish(_make_item("one", rank=1.0, expires_s=5.0))
    _deliver(testbed, "one", *testbed.phones)
    for phone in testbed.phones:
        testbed.show(phone)
    testbed.lab.run(seconds=10)
    assert {key: row.status for key, row in _get_rows(testbed).items()} == {
        ("one", "phone-00001"): "read",
        ("one", "phone-00002"): "unread",
    }


def test_best_items_are_shown_first_and_expired_items_never():
    testbed = _make_testbed(max_shown=1)
    for name, rank, expires_s in (("low", 3.0, None), ("high", 4.0, None), ("over", 5.0, 1.0)):
        testbed.publish(_make_item(name, rank, expires_s=expires_s))
        _deliver(testbed, name, "phone-00002")
    testbed.lab.run(seconds=2)
    testbed.show("phone-00002")
    status = {name: row.status for (name, phone), row in _get_rows(testbed).items() if phone == "phone-00002"}
    assert status == {"low": "unread", "high": "read", "over": "expired"}
    testbed.show("phone-00002")
    assert _get_rows(testbed)["low", "phone-00002"].status == "read"


def test_items_shown_on_arrival_are_read_at_once_and_once():
    testbed = _make_testbed(is_shown=True)
    testbed.publish(_make_item("one"))
    testbed.lab.run(seconds=3)
    _deliver(testbed, "one", "phone-00001")
    testbed.lab.run(seconds=3)
    testbed.record_arrival("phone-00001", "one")
    row = _get_rows(testbed)["one", "phone-00001"]
    assert (row.status, row.latency_s, row.staleness_s) == ("read", 3.0, 3.0)


@pytest.mark.parametrize(("phone", "item"), [("phone-00001", "two"), ("nobody", "one")])
def test_arrivals_of_unpublished_items_are_refused(phone, item):
    testbed = _make_testbed()
    testbed.publish(_make_item("one"))
    with pytest.raises(ParameterError, match="nobody has published"):
        testbed.record_arrival(phone, item)


def test_phones_that_move_renew_km_are_reported():
    task = Task(
        "near",
        "A test.",
        "within_km(item.loc, me.loc, 1)",
        Scenario(devices=4, mobility="manhattan"),
        metadata=lambda *arguments: {},
        profiles=lambda seed, phones, senders: [{} for _ in phones],
        renew_km=0.2,
    )
    lab = Lab(3)
    lab.fleet(4, mobility="manhattan")
    testbed, adapter = Testbed(task, lab), IdleEntrant()
    places = {phone: testbed.profile(phone)["loc"] for phone in testbed.phones}
    testbed.attach(adapter)
    assert adapter.moves == []
    lab.run(hours=1)
    assert set(adapter.moves) == set(testbed.phones)
    assert all(testbed.profile(phone)["loc"] != places[phone] for phone in testbed.phones)


def test_phone_is_reported_from_renew_km_on(monkeypatch):
    """See `Task.renew_km`: the distance at which a phone's place is reported, so also exactly this far."""
    testbed, adapter = _make_testbed(), IdleEntrant()
    here, north = (30.0, -97.0), (30.01, -97.0)
    places = {"phone-00000": here, "phone-00001": north, "phone-00002": None}
    testbed.task = replace(testbed.task, renew_km=float(distance_km(*here, *north)))
    testbed._adapter = adapter
    testbed._reported_loc = dict.fromkeys(places, here)
    devices = {name: SimpleNamespace(loc=loc, is_on=True) for name, loc in places.items()}
    testbed.lab = SimpleNamespace(devices=devices, world=testbed.lab.world)
    testbed._look_around(None)
    assert adapter.moves == ["phone-00001"]


def test_interests_in_places_need_mobility():
    with pytest.raises(ParameterError, match="phones have none"):
        _make_testbed(predicate="within_km(item.loc, me.loc, 1)")


A, B, C = "phone-00000", "phone-00001", "phone-00002"
SIZE_BYTES = 200


class Place:
    """Three phones and a relay with couriers that send messages on demand."""

    def __init__(self, link="ideal"):
        about = lambda *arguments: {}, lambda seed, phones, senders: [{} for _ in phones]
        task = Task("test", "A test.", "item.rank >= 0", Scenario(devices=3), *about)
        self.lab = Lab(1)
        self.lab.fleet(3, link=link)
        self.testbed = Testbed(task, self.lab)
        self.testbed.attach(IdleEntrant())
        self.couriers = install_couriers([self.lab.server("relay"), *self.lab.devices.values()])

    def publish(self, name, sender=A, size_bytes=SIZE_BYTES):
        item = Item(name, sender, {"who": sender, "rank": 1.0}, size_bytes, None)
        self.testbed.publish(item)
        return item

    def send(self, message, *route):
        for sender, to in pairwise(route):
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
    """Message that cannot carry an item."""

    count: int
    shares: list[float]
    is_last: bool | None


class Parcel(msgspec.Struct, tag_field="kind", tag="parcel"):
    """Message with several fields that can carry an item."""

    number: int
    numbers: Numbers
    letters: list[tuple[int, str]] = []
    inner: Parcel | None = None
    extra: Any = None


FORMS_WITH_ITEM = {
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
FORMS_WITHOUT_ITEM = {
    "its name": lambda item: item.name,
    "half of it": lambda item: item.content[: item.size_bytes // 2],
    "all but a letter": lambda item: item.content[:-1],
    "as many bytes": lambda item: "x" * item.size_bytes,
    "two halves": lambda item: [item.content[:100], item.content[100:]],
    "sealed, too short": lambda item: Ciphertext(b"\xee" * (item.size_bytes * 3 // 4 - 1)),
    "nothing": lambda item: None,
}


@pytest.mark.parametrize("form", FORMS_WITH_ITEM)
def test_item_within_a_message_has_arrived(form):
    place = Place()
    item = place.publish("one")
    assert not place.has_arrived(B, "one")
    assert "has not left its sender over a link" in place.error.summary
    place.send(FORMS_WITH_ITEM[form](item), A, "relay", B)
    assert place.has_arrived(B, "one")
    assert not place.has_arrived(C, "one"), "to no other phone"
    assert "has not come over the phone's link" in place.error.summary


@pytest.mark.parametrize("form", FORMS_WITHOUT_ITEM)
def test_item_within_no_message_has_not_arrived(form):
    place = Place()
    item = place.publish("one")
    place.send(FORMS_WITHOUT_ITEM[form](item), A, "relay", B)
    assert not place.has_arrived(B, "one")


def test_only_fields_that_can_hold_text_are_searched():
    assert _text_fields(Numbers) == ()
    assert _text_fields(Parcel) == ("letters", "inner", "extra")


def test_item_must_leave_its_sender_first():
    """Refuse an item that the server can only know from shared memory."""
    place = Place()
    item = place.publish("one")
    place.send(item.content, "relay", B)
    assert not place.has_arrived(B, "one")
    place.send(item.content, A, "relay")
    assert place.has_arrived(B, "one")


def test_messages_before_publication_do_not_count():
    place = Place()
    item = Item("one", A, {"who": A, "rank": 1.0}, SIZE_BYTES, None)
    for message in (item.content, Ciphertext(b"\xee" * SIZE_BYTES)):
        place.send(message, A, "relay", B)
    place.lab.run(seconds=1)
    place.publish("one")
    assert not place.has_arrived(B, "one")


def test_ciphertext_counts_for_as_many_items_as_fit():
    place = Place()
    for name in ("one", "two", "three"):
        place.publish(name)
    place.send(Ciphertext(b"\xee" * (2 * SIZE_BYTES * 3 // 4)), A, B)
    assert [place.has_arrived(B, name) for name in ("one", "two", "three")] == [True, True, False]


def test_lost_messages_do_not_count():
    place = Place("lte")
    item = place.publish("one")
    place.lab.faults.cut(B)
    place.couriers[A].call("send", to=B, message=item.content)
    place.lab.run(seconds=30)
    assert not place.has_arrived(B, "one")


@pytest.mark.parametrize("size_bytes", [1, 5, 8, 9, 11, 12])
def test_short_items_are_found_by_their_whole_content(size_bytes):
    place = Place()
    item = place.publish("one", size_bytes=size_bytes)
    place.send(f"<{item.content}>", A, B)
    assert place.has_arrived(B, "one")


def test_messages_from_a_phone_to_itself_do_not_count():
    place = Place()
    item = place.publish("one")
    place.send(item.content, A, "relay")
    place.send(item.content, B, B)
    assert not place.has_arrived(B, "one")


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("system", ADAPTERS)
@pytest.mark.parametrize("task", TASKS)
def test_arrivals_of_all_systems_are_accepted(system, task):
    entry = run(TASKS[task].over(devices=5, hours=0.2), ADAPTERS[system], seed=2, record_exposure=False)
    has_arrivals = entry.deliveries["delivered"].notna().any()
    assert has_arrivals or entry.testbed.wanted_count == 0 or len(entry.testbed.items) < 9
