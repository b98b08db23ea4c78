"""Decoding of accepted messages, and records of dropped ones."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
import pytest

from mudkit.events import Ciphertext, Opaque, Received, size_bytes
from mudkit.systems import receiving
from mudkit.systems.receiving import Accepts, Count, Name, record_dropped


class Say(msgspec.Struct, frozen=True, tag_field="kind", tag="say"):
    number: Count
    text: Name


class End(msgspec.Struct, frozen=True, tag_field="kind", tag="end"):
    pass


SAY = {"kind": "say", "number": 1, "text": "a"}


@pytest.mark.parametrize("accepts", [Accepts(Say), Accepts(Say, End)])
def test_messages_of_known_kinds_and_types_are_decoded(accepts):
    assert accepts.decode(SAY) == Say(1, "a")
    assert accepts.decode({**SAY, "more": None}) == Say(1, "a")
    for invalid in (
        {**SAY, "number": -1}, {**SAY, "number": True}, {**SAY, "number": 1 << 63}, {**SAY, "text": ""},
        {**SAY, "text": "a" * 513}, {**SAY, "kind": "x"}, {**SAY, "kind": None}, {"kind": "say"}, {}, [], None, b"say", 1,
    ):  # fmt: skip
        assert accepts.decode(invalid) is None


@pytest.mark.parametrize("accepts", [Accepts(Say), Accepts(Say, End)])
def test_message_without_kind_is_refused_even_if_one_kind_is_accepted(accepts):
    assert accepts.decode({"number": 1, "text": "a"}) is None


def test_accepts_without_kinds_decodes_nothing():
    assert Accepts().decode(SAY) is None


def test_dropped_message_is_recorded_as_an_incident():
    (record,) = record_dropped(Received("eve/x", {"kind": "say"}))
    assert (record.table, record.row) == ("incidents", {"incident": "dropped", "detail": "'say' from eve/x"})
    (record,) = record_dropped(Received("eve/x", b"\0" * 9))
    assert record.row["detail"] == "'bytes' from eve/x"


_T = TypeVar("_T")


class Letter(msgspec.Struct, Generic[_T], frozen=True, tag_field="kind", tag="letter"):
    to: Name
    content: _T


@pytest.mark.parametrize(
    ("accepts", "is_end_accepted"), [(Accepts(Letter[Say], End), False), (Accepts(Letter[Say | End]), True)]
)
def test_generic_struct_is_accepted_with_the_contents_of_its_role_alone(accepts, is_end_accepted):
    """A struct of the same lab is not decoded, and must not carry what its sender may not send."""
    for content, is_accepted in ((Say(1, "a"), True), (End(), is_end_accepted), (SAY, False), (None, False)):
        letter = Letter("ann", content)
        assert accepts.decode(letter) is (letter if is_accepted else None)
    assert accepts.decode({"kind": "letter", "to": "ann", "content": SAY}) == Letter("ann", Say(1, "a"))
    is_decoded = accepts.decode({"kind": "letter", "to": "ann", "content": {"kind": "end"}}) is not None
    assert is_decoded is is_end_accepted


class Sealed(msgspec.Struct, frozen=True, tag_field="kind", tag="sealed"):
    data: Opaque
    row: dict[str, Any]


def test_accepted_structs_are_returned_unchanged_and_others_refused():
    accepts = Accepts(Say, End)
    message = Say(1, "a")
    assert accepts.decode(message) is message
    assert accepts.decode(Sealed(Ciphertext(b"x"), {})) is None
    assert Accepts().decode(message) is None


def test_foreign_mappings_and_bytes_are_decoded():
    accepts = Accepts(Say, End)
    assert accepts.decode(SAY) == accepts.decode(msgspec.json.encode(SAY)) == Say(1, "a")
    for invalid in (
        b"",
        b"{",
        b"[]",
        b'{"kind": "say"}',
        b"\xff",
        {"number": 1, "text": "a"},
        None,
        3,
        "say",
    ):
        assert accepts.decode(invalid) is None


def test_ciphertexts_and_bytes_in_a_row_survive():
    sealed = Sealed(Ciphertext(b"\0secret"), {"photo": b"\xff", "tags": ["a"]})
    wire = {"kind": "sealed", "data": sealed.data, "row": sealed.row}
    decoded = Accepts(Sealed).decode(wire)
    assert decoded == sealed
    assert type(decoded.data) is Ciphertext
    decoded = Accepts(Sealed).decode(msgspec.json.encode({**wire, "data": bytes(sealed.data)}))
    assert decoded.data == sealed.data


def test_message_longer_than_the_limit_is_refused(monkeypatch):
    message = {**SAY, "text": "a" * 10}
    for max_bytes, is_accepted in ((size_bytes(message), True), (size_bytes(message) - 1, False)):
        monkeypatch.setattr(receiving, "MAX_BYTES", max_bytes)
        assert (Accepts(Say).decode(message) is not None) is is_accepted
