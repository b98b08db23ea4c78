"""Tables as HTML."""

import pytest
from html_tables import table_rows

from mudkit import figures
from mudkit.experiment import PartyView, Visibility
from mudkit.figures.html_tables import MAX_RECORDS


def make_version(key, number=1, record=None, *, visible=True, predicate=None):
    return {
        "key": key,
        "version": number,
        "record": record,
        "predicate": predicate,
        "type": None,
        "visible": visible,
        "age_s": 0.0,
    }


def split_cells(html):
    """Return the words of each cell, by row."""
    return [[cell.split() for cell in row] for row in table_rows(html)]


def test_holdings_have_a_row_per_record_and_a_column_per_device():
    versions = {
        "ann": [
            make_version("b", 3, {"n": 1}),
            make_version("b", None, {"n": 2}),
            make_version("a", 1, None),
        ],
        "bob": [make_version("b", 2, {"n": 0})],
        "cem": [],
    }
    result = split_cells(figures.holdings(versions, {"ann": {"age": 34}}, title="As of now.")._repr_html_())
    assert result == [
        [["key"], ["ann", "age:", "34"], ["bob"], ["cem"]],
        [["a"], ["v1", "deleted"], ["–"], ["–"]],
        [["b"], ["v3", "n:", "1", "pending", "n:", "2"], ["v2", "n:", "0"], ["–"]],
    ]


def test_hidden_records_are_not_in_the_page():
    shown = figures.holdings(
        {"bob": [make_version("a", 1, {"secret": "x7"}, visible=False, predicate="receiver.age >= 21")]}
    )
    for text in (shown._repr_html_(), repr(shown)):
        assert "x7" not in text
        assert "secret" not in text
    assert "hidden: receiver.age &gt;= 21" in shown._repr_html_()


def test_records_above_the_maximum_are_counted():
    html = figures.holdings({"ann": [make_version(f"{n:04d}") for n in range(250)]})._repr_html_()
    assert f"The first {MAX_RECORDS} of 250 records." in html
    assert html.count("<tr>") == MAX_RECORDS + 1
    assert "No device holds a record." in figures.holdings({"ann": []})._repr_html_()


CLEAR, SEALED, NOTHING = (
    Visibility("clear", "help"),
    Visibility("ciphertext", "48 B, 0a …"),
    Visibility("nothing"),
)


def test_party_views_have_a_row_per_field_and_a_column_per_party():
    html = figures.party_views(
        [PartyView("payload", CLEAR, SEALED, CLEAR), PartyView("key", NOTHING, NOTHING, NOTHING)]
    )._repr_html_()
    assert table_rows(html) == [
        ["", "child, the sender", "the relay", "alice, the receiver"],
        ["payload", "help", "48 B, 0a …", "help"],
        ["key", "–", "–", "–"],
    ]


def test_fields_readable_by_the_relay_differ_from_ciphertexts():
    readable, sealed = (
        figures.party_views([PartyView("payload", CLEAR, relay_view, CLEAR)])
        ._repr_html_()
        .split("<tbody>")[1]
        for relay_view in (CLEAR, SEALED)
    )
    assert readable.count("#D55E00") == 1
    assert sealed.count("#D55E00") == 0
    assert sealed.count("#0072B2") == 1
    assert ">48 B, 0a …</code>" in sealed


@pytest.mark.parametrize(
    "shown",
    [
        figures.holdings({"<i>": [make_version("<b>", 1, {"<u>": "x" * 999})]}, title="<s>"),
        figures.party_views(
            [PartyView("<u>", Visibility("clear", "<b>" + "x" * 999), NOTHING, NOTHING)], title="<i>"
        ),
    ],
)
def test_markup_is_escaped_and_long_texts_are_cut(shown):
    html = shown._repr_html_()
    for tag in ("<i>", "<u>", "<s>", "<b>x"):
        assert tag not in html
    assert "&lt;b&gt;" in html
    assert "x" * 301 not in html
    assert "…" in html
