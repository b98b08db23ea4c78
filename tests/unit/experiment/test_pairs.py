"""Views of an item by party: the relay sees ciphertexts, unless encryption is off."""

from __future__ import annotations

import pytest

from mudkit.experiment import party_views
from mudkit.systems.contrail import Item

AREA = "within_box(loc, 37.35, -122.12, 37.43, -122.04)"
AWAY = f"NOT {AREA}"
PLACE = Item({"loc": (37.5, -122.0), "who": "kim"}, b"help me")
PRIVATE = ("filter", "loc", "who", "payload", "key")
IN_CLEAR = ("from", "to", "name", "when", "bytes")


def index_by_name(result):
    return {row.field: row for row in result.rows}


def test_relay_sees_only_parties_names_times_and_sizes():
    result = party_views(PLACE, AWAY, item_id="mycurrentlocation")
    rows = index_by_name(result)
    assert tuple(rows) == (*PRIVATE, *IN_CLEAR)
    assert {rows[name].relay.form for name in PRIVATE} == {"ciphertext"}
    assert {rows[name].relay.form for name in IN_CLEAR} == {"clear"}
    for name in ("loc", "who", "payload", "from", "to", "name"):
        assert rows[name].sender == rows[name].receiver
        assert rows[name].sender.form == "clear"
    assert rows["loc"].sender.text == "[37.5,-122.0]"
    assert rows["payload"].receiver.text == "help me"
    assert rows["filter"].sender.text == f"{AWAY}\n(matches)"
    assert rows["filter"].receiver.text == AWAY
    assert rows["name"].relay.text == "mycurrentlocation"
    assert rows["when"].sender.text < rows["when"].relay.text < rows["when"].receiver.text
    for text in ("help me", "37.5,-122", "within_box"):
        assert result.places(text)["relay"] == []
    assert result.places("help me")["alice"]
    assert result.places("mycurrentlocation")["relay"]


def test_relay_sees_everything_without_encryption():
    result = party_views(PLACE, AWAY, encrypted=False)
    for row in result.rows:
        assert row.relay.form == "clear", row.field
        assert row.field == "when" or row.relay.text in row.sender.text
    for text, field in (("help me", "body"), ("37.5,-122", "body"), ("within_box", "to[].sealed")):
        assert f"message.{field}" in result.places(text)["relay"]


@pytest.mark.parametrize(
    ("filter_text", "shown"), [(None, "there is none"), (AREA, f"{AREA}\n(does not match)")]
)
def test_item_without_matching_filter_is_not_sent(filter_text, shown):
    result = party_views(PLACE, filter_text)
    rows = index_by_name(result)
    assert result.published.destinations == ()
    assert rows["filter"].sender.text == shown
    assert rows["filter"].relay.form == ("nothing" if filter_text is None else "ciphertext")
    assert rows["bytes"].sender.text == "0 B"
    assert rows["loc"].sender.form == "clear"
    for name in ("loc", "who", "payload", "key", "from", "to", "name", "when"):
        assert {rows[name].relay.form, rows[name].receiver.form} == {"nothing"}


def test_receiver_waits_for_its_next_poll():
    seconds = [
        float(index_by_name(party_views(PLACE, AWAY, polling_s=polling_s))["when"].receiver.text[6:])
        for polling_s in (5, 40)
    ]
    assert seconds[1] - seconds[0] > 15


def test_binary_payload_and_padded_filter_are_shown():
    result = index_by_name(party_views(Item({}, bytes(range(200))), "  1 = 1 ", encrypted=False))
    assert result["payload"].relay.text == "200 B, 00 01 02 03 04 05 06 07 …"
    assert result["filter"].relay.form == "clear"
