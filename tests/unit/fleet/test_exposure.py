"""Exposure: fields that parties held, in clear or as ciphertext, and their bytes."""

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


def test_rows_have_fields_forms_times_and_bytes():
    exposure = Exposure()
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
    exposure.record("relay", "mail", "received", message, 7)
    exposure.record("relay", "mail", "received", {"to": "carl"}, 9)
    assert [tuple(row) for row in exposure.rows()] == [
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
def test_values_without_fields_are_recorded(value, row):
    exposure = Exposure()
    exposure.record("p", "s", "stored", value, 1)
    assert [tuple(actual)[3:7] for actual in exposure.rows()] == [row]


def test_fields_of_structs_are_recorded():
    exposure = Exposure()
    exposure.record("p", "s", "received", Sealed("bob", Ciphertext(b"secret")), 1)
    assert [(row.field, row.form) for row in exposure.rows()] == [("box", "ciphertext"), ("to", "clear")]
    assert exposure.find("secret") == [("p", "box", 1)]


def test_rows_are_separate_per_party_system_and_way():
    exposure = Exposure()
    keys = [("a", "s", "received"), ("a", "s", "stored"), ("a", "t", "stored"), ("b", "s", "stored")]
    for index in (1, 0, 3, 2):
        exposure.record(*keys[index], {"x": 1}, 3)
    assert [(row.party, row.system, row.how) for row in exposure.rows()] == keys
    assert {row.times for row in exposure.rows()} == {1}


def test_find_locates_text_and_bytes():
    exposure = Exposure()
    exposure.record("relay", "s", "stored", {"text": "lunch at noon"}, 5)
    exposure.record("relay", "s", "received", {"text": "lunch at noon", "box": Ciphertext(b"..lunch..")}, 9)
    exposure.record("bob", "s", "received", {"lunch_at": 12}, 3)
    exposure.record("cy", "s", "received", {"text": "dinner", "list": [b"\xff\x00"]}, 3)
    assert (
        exposure.find("lunch")
        == exposure.find(b"lunch")
        == [("bob", "lunch_at", 3), ("relay", "box", 9), ("relay", "text", 5)]
    )
    assert exposure.find("12") == [("bob", "lunch_at", 3)]
    assert exposure.find(b"\xff\x00") == [("cy", "list[]", 3)]
    assert exposure.find("breakfast") == []
    exposure.record("relay", "s", "received", {"text": "dinner"}, 9)
    assert exposure.values("relay", "text") == [b"lunch at noon", b"dinner"]
    assert exposure.values("relay", "lunch_at") == exposure.values("nobody", "text") == []


values: Any = st.recursive(
    st.text() | st.binary() | st.integers() | st.booleans() | st.none() | st.builds(Ciphertext, st.binary()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values, st.binary(min_size=1))
def test_nested_ciphertext_is_found_and_marked(value: Any, secret: bytes) -> None:
    exposure = Exposure()
    exposure.record("p", "s", "received", {"a": value, "b": [{"c": Ciphertext(secret)}]}, 1)
    assert ("p", "b[].c", 1) in exposure.find(secret)
    assert [row.form for row in exposure.rows() if row.field == "b[].c"] == ["ciphertext"]


def test_lab_records_exposure():
    lab = Lab(record_exposure=True)
    relay = Relay(lab)
    ann, _ = (Client(lab.device(name), relay) for name in ("ann", "bob"))
    ann.send("bob", "the secret of the shed").result()
    lab.run(minutes=1)
    assert {party for party, _, _ in lab.trace.exposure.find("secret of the shed")} == {"ann", "relay", "bob"}
    table = lab.exposure()
    assert set(table["how"]) == {"received", "stored"}
    assert (table["first"] <= lab.now).all()
