"""What parties held: fields, in clear or not, and every byte of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.events import Ciphertext
from mudkit.fleet.exposure import Exposure
from mudkit.systems.store_and_forward import Client, Relay


class Sealed(msgspec.Struct):
    to: str
    box: Ciphertext


def test_fields_forms_times_and_bytes():
    held = Exposure()
    message = {
        "to": "bob",
        "n": 12,
        "body": Ciphertext(b"\x00\x01abc"),
        "none": None,
        "raw": b"raw",
        "list": [{"key": Ciphertext(b"kk"), "id": 1}, {"key": Ciphertext(b"k2"), "id": 22}, "x"],
        "empty": {},
        "deep": {"er": ({"est": Ciphertext(b"!")},)},
    }
    held.record("relay", "mail", "received", message, 7)
    held.record("relay", "mail", "received", {"to": "carl"}, 9)
    assert [tuple(row) for row in held.rows()] == [
        ("relay", "mail", "received", *rest) for rest in [
            ("body", "ciphertext", 1, 5, 7), ("deep.er[].est", "ciphertext", 1, 1, 7), ("list[]", "clear", 1, 1, 7),
            ("list[].id", "clear", 2, 3, 7), ("list[].key", "ciphertext", 2, 4, 7), ("n", "clear", 1, 2, 7),
            ("none", "clear", 1, 4, 7), ("raw", "clear", 1, 3, 7), ("to", "clear", 2, 7, 7),
        ]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (Ciphertext(b"abc"), ("", "ciphertext", 1, 3)),
        (b"abc", ("", "clear", 1, 3)),
        (bytearray(b"abc"), ("", "clear", 1, 3)),
        ("äb", ("", "clear", 1, 3)),
        ([Ciphertext(b"abc")], ("[]", "ciphertext", 1, 3)),
        ({5: {"a": 1.5}}, ("5.a", "clear", 1, 3)),
        (frozenset(["abc"]), ("[]", "clear", 1, 3)),
    ],
)
def test_whole_messages(value, row):
    held = Exposure()
    held.record("p", "s", "stored", value, 1)
    assert [tuple(each)[3:7] for each in held.rows()] == [row]


def test_a_struct_is_looked_into():
    held = Exposure()
    held.record("p", "s", "received", Sealed("bob", Ciphertext(b"secret")), 1)
    assert [(row.field, row.form) for row in held.rows()] == [("box", "ciphertext"), ("to", "clear")]
    assert held.find("secret") == [("p", "box", 1)]


def test_parties_systems_and_ways_are_apart():
    held = Exposure()
    ways = [("a", "s", "received"), ("a", "s", "stored"), ("a", "t", "stored"), ("b", "s", "stored")]
    for place in (1, 0, 3, 2):
        held.record(*ways[place], {"x": 1}, 3)
    assert [(row.party, row.system, row.how) for row in held.rows()] == ways
    assert {row.times for row in held.rows()} == {1}


def test_find():
    held = Exposure()
    held.record("relay", "s", "stored", {"text": "lunch at noon"}, 5)
    held.record("relay", "s", "received", {"text": "lunch at noon", "box": Ciphertext(b"..lunch..")}, 9)
    held.record("bob", "s", "received", {"lunch_at": 12}, 3)
    held.record("cy", "s", "received", {"text": "dinner", "list": [b"\xff\x00"]}, 3)
    assert (
        held.find("lunch")
        == held.find(b"lunch")
        == [("bob", "lunch_at", 3), ("relay", "box", 9), ("relay", "text", 5)]
    )
    assert held.find("12") == [("bob", "lunch_at", 3)]
    assert held.find(b"\xff\x00") == [("cy", "list[]", 3)]
    assert held.find("breakfast") == []
    held.record("relay", "s", "received", {"text": "dinner"}, 9)
    assert held.values("relay", "text") == [b"lunch at noon", b"dinner"]
    assert held.values("relay", "lunch_at") == held.values("nobody", "text") == []


values: Any = st.recursive(
    st.text() | st.binary() | st.integers() | st.booleans() | st.none() | st.builds(Ciphertext, st.binary()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values, st.binary(min_size=1))
def test_ciphertext_is_found_and_marked_wherever_it_is(value: Any, secret: bytes) -> None:
    held = Exposure()
    held.record("p", "s", "received", {"a": value, "b": [{"c": Ciphertext(secret)}]}, 1)
    assert ("p", "b[].c", 1) in held.find(secret)
    assert [row.form for row in held.rows() if row.field == "b[].c"] == ["ciphertext"]


def test_in_a_lab():
    lab = Lab(record_exposure=True)
    relay = Relay(lab)
    ann, _ = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    ann.send("bob", "the secret of the shed").result()
    lab.run(minutes=1)
    assert {party for party, _, _ in lab.trace.exposure.find("secret of the shed")} == {"ann", "relay", "bob"}
    held = lab.exposure()
    assert set(held["how"]) == {"received", "stored"}
    assert (held["first"] <= lab.now).all()
