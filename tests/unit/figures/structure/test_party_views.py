"""The table of who sees what: a row a thing, a column a party, markup is text."""

from __future__ import annotations

import re

from mudkit.experiment.party_views import PartyView, Seen
from mudkit.figures.structure.party_views import party_views

CLEAR, SEALED, NOTHING = Seen("clear", "help"), Seen("ciphertext", "48 B, 0a …"), Seen("nothing")


def cells(html):
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.S)
    return [
        [re.sub("<[^>]*>", "", each) for each in re.findall(r"<t[hd].*?</t[hd]>", row, re.S)] for row in rows
    ]


def test_a_row_a_thing_and_a_column_a_party():
    html = party_views(
        [PartyView("payload", CLEAR, SEALED, CLEAR), PartyView("key", NOTHING, NOTHING, NOTHING)]
    ).html
    assert cells(html) == [
        ["", "child, the sender", "the relay", "alice, the receiver"],
        ["payload", "help", "48 B, 0a …", "help"],
        ["key", "–", "–", "–"],
    ]


def test_what_the_relay_can_read_is_told_from_ciphertexts():
    readable, sealed = (
        party_views([PartyView("payload", CLEAR, seen, CLEAR)]).html.split("<tbody>")[1]
        for seen in (CLEAR, SEALED)
    )
    assert readable.count("#D55E00") == 1
    assert sealed.count("#D55E00") == 0
    assert sealed.count("#0072B2") == 1
    assert "<code>48 B" in sealed


def test_markup_is_text_and_long_texts_are_cut():
    html = party_views(
        [PartyView("<u>", Seen("clear", "<b>" + "x" * 999), NOTHING, NOTHING)], title="<i>"
    ).html
    for tag in ("<u>", "<b>", "<i>"):
        assert tag not in html
    assert "x" * 301 not in html
    assert "…" in html
