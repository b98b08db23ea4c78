"""What a machine takes, and what is odd."""

from __future__ import annotations

import msgspec
import pytest

from mudkit.events import Received
from mudkit.systems.receiving import Accepts, Count, Name, dropped


class Say(msgspec.Struct, frozen=True, tag_field="kind", tag="say"):
    number: Count
    text: Name


class End(msgspec.Struct, frozen=True, tag_field="kind", tag="end"):
    pass


SAID = {"kind": "say", "number": 1, "text": "a"}


@pytest.mark.parametrize("accepts", [Accepts(Say), Accepts(Say, End)])
def test_messages_of_known_kinds_and_types_are_taken(accepts):
    assert accepts(SAID)
    assert accepts({**SAID, "more": None})
    for wrong in (
        {**SAID, "number": -1}, {**SAID, "number": True}, {**SAID, "number": 1 << 63}, {**SAID, "text": ""},
        {**SAID, "text": "a" * 513}, {**SAID, "kind": "x"}, {**SAID, "kind": None}, {"kind": "say"}, {}, [], None, b"say", 1,
    ):  # fmt: skip
        assert not accepts(wrong)


@pytest.mark.parametrize("accepts", [Accepts(Say), Accepts(Say, End)])
def test_a_message_without_its_kind_is_odd_also_where_only_one_kind_may_come(accepts):
    assert not accepts({"number": 1, "text": "a"})


def test_from_nobody_nothing_is_taken():
    assert not Accepts()(SAID)


def test_what_is_dropped_is_written_down():
    (record,) = dropped(Received("eve/x", {"kind": "say"}))
    assert (record.table, record.row) == ("incidents", {"incident": "dropped", "detail": "'say' from eve/x"})
    (record,) = dropped(Received("eve/x", b"\0" * 9))
    assert record.row["detail"] == "'bytes' from eve/x"
