"""What a machine takes, and what is odd."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mudkit.events import Ciphertext, Opaque, Received
from mudkit.systems import receiving
from mudkit.systems.receiving import Accepts, Count, Name, dropped


class Say(msgspec.Struct, frozen=True, tag_field="kind", tag="say"):
    number: Count
    text: Name


class End(msgspec.Struct, frozen=True, tag_field="kind", tag="end"):
    pass


SAID = {"kind": "say", "number": 1, "text": "a"}


@pytest.mark.parametrize("accepts", [Accepts(Say), Accepts(Say, End)])
def test_messages_of_known_kinds_and_types_are_taken(accepts):
    assert accepts.decode(SAID) == Say(1, "a")
    assert accepts.decode({**SAID, "more": None}) == Say(1, "a")
    for wrong in (
        {**SAID, "number": -1}, {**SAID, "number": True}, {**SAID, "number": 1 << 63}, {**SAID, "text": ""},
        {**SAID, "text": "a" * 513}, {**SAID, "kind": "x"}, {**SAID, "kind": None}, {"kind": "say"}, {}, [], None, b"say", 1,
    ):  # fmt: skip
        assert accepts.decode(wrong) is None


@pytest.mark.parametrize("accepts", [Accepts(Say), Accepts(Say, End)])
def test_a_message_without_its_kind_is_odd_also_where_only_one_kind_may_come(accepts):
    assert accepts.decode({"number": 1, "text": "a"}) is None


def test_from_nobody_nothing_is_taken():
    assert Accepts().decode(SAID) is None


def test_what_is_dropped_is_written_down():
    (record,) = dropped(Received("eve/x", {"kind": "say"}))
    assert (record.table, record.row) == ("incidents", {"incident": "dropped", "detail": "'say' from eve/x"})
    (record,) = dropped(Received("eve/x", b"\0" * 9))
    assert record.row["detail"] == "'bytes' from eve/x"


class Sealed(msgspec.Struct, frozen=True, tag_field="kind", tag="sealed"):
    data: Opaque
    row: dict[str, Any]


def test_a_struct_is_handed_over_as_it_is_and_one_of_another_system_is_odd():
    accepts = Accepts(Say, End)
    said = Say(1, "a")
    assert accepts.decode(said) is said
    assert accepts.decode(Sealed(Ciphertext(b"x"), {})) is None
    assert Accepts().decode(said) is None


def test_foreign_mappings_and_bytes_are_decoded():
    accepts = Accepts(Say, End)
    assert accepts.decode(SAID) == accepts.decode(msgspec.json.encode(SAID)) == Say(1, "a")
    for wrong in (b"", b"{", b"[]", b'{"kind": "say"}', b"\xff", {"number": 1, "text": "a"}, None, 3, "say"):
        assert accepts.decode(wrong) is None


def test_ciphertexts_and_bytes_in_a_row_survive():
    sealed = Sealed(Ciphertext(b"\0secret"), {"photo": b"\xff", "tags": ["a"]})
    wire = {"kind": "sealed", "data": sealed.data, "row": sealed.row}
    decoded = Accepts(Sealed).decode(wire)
    assert decoded == sealed
    assert type(decoded.data) is Ciphertext
    decoded = Accepts(Sealed).decode(msgspec.json.encode({**wire, "data": bytes(sealed.data)}))
    assert decoded.data == sealed.data


def test_what_is_too_large_is_dropped(monkeypatch):
    monkeypatch.setattr(receiving, "MAX_BYTES", 60)
    assert Accepts(Say).decode({**SAID, "text": "a" * 10}) is not None
    assert Accepts(Say).decode({**SAID, "text": "a" * 60}) is None
