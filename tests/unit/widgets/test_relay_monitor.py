"""Relay monitor: views for an item, a filter and encryption, and invalid input."""

from __future__ import annotations

import pytest

from mudkit import figures
from mudkit.experiment import party_views
from mudkit.systems.contrail import Item
from mudkit.widgets import RelayMonitor

AWAY = "NOT within_box(loc, 37.35, -122.12, 37.43, -122.04)"


@pytest.fixture
def monitor():
    return RelayMonitor({"loc": [37.5, -122.0]}, "help me", AWAY, item_id="place", link="lte", seed=3)


def render_views(**overrides):
    options = {"predicate": AWAY, "item_id": "place", "link": "lte", "seed": 3} | overrides
    item = options.pop("item", Item({"loc": [37.5, -122.0]}, b"help me"))
    return figures.party_views(party_views(item, **options).rows)._repr_html_()


def test_views_match_the_library(monitor):
    assert monitor.seen.value == render_views()
    monitor.encrypted.value = False
    assert monitor.seen.value == render_views(encrypted=False)
    assert "in clear" in monitor.status.value
    monitor.polling.value = 60.0
    assert monitor.seen.value == render_views(encrypted=False, polling_s=60.0)
    monitor.payload.value = "come"
    monitor.name.value = "other"
    item = Item({"loc": [37.5, -122.0]}, b"come")
    assert monitor.seen.value == render_views(encrypted=False, polling_s=60.0, item=item, item_id="other")


def test_each_field_of_text_has_a_label_and_an_explanation(monitor):
    fields = (monitor.metadata, monitor.payload, monitor.predicate, monitor.name, monitor.needle)
    assert all(field.description and field.tooltip for field in fields)


def test_status_states_whether_the_item_was_uploaded(monitor):
    assert "The item was uploaded." in monitor.status.value
    monitor.metadata.value = '{"loc": [37.4, -122.1]}'
    assert "Alice's filter does not match. 0 bytes." in monitor.status.value
    monitor.predicate.value = " "
    assert "no filter asks for it. 0 bytes." in monitor.status.value


def test_text_search_covers_all_stored_data(monitor):
    assert monitor.matches.value == ""
    monitor.needle.value = "help me"
    assert "<b>do not contain</b>" in monitor.matches.value
    assert "relay: nowhere<br>" in monitor.matches.value
    assert monitor.matches.value.endswith("alice: <code>value.content</code></div>")
    monitor.encrypted.value = False
    assert "<b>contain</b>" in monitor.matches.value
    places = monitor.party_views.places("help me")
    assert len(places["relay"]) > 4
    assert f" and {len(places['relay']) - 4} more fields" in monitor.matches.value, "four are named"
    monitor.needle.value = "<i>"
    assert "<b>do not contain</b>" in monitor.matches.value
    assert "<i>" not in monitor.matches.value
    monitor.needle.value = "he"
    assert monitor.matches.value == "Enter at least 3 characters."


@pytest.mark.parametrize(
    ("field", "text", "answer"),
    [
        ("metadata", '{"loc"', "The metadata cannot be read."),
        ("metadata", "[1]", "The metadata is not a JSON object."),
        ("predicate", "loc = ", "is incomplete"),
        ("name", "", "cannot be the name of an item"),
    ],
)
def test_invalid_input_is_reported_and_keeps_the_last_result(monitor, field, text, answer):
    kept, before = monitor.seen.value, getattr(monitor, field).value
    getattr(monitor, field).value = text
    assert answer in monitor.problem.value
    assert "below is the last valid result" in monitor.problem.value
    assert monitor.seen.value == kept
    getattr(monitor, field).value = before
    assert monitor.problem.value == ""
    assert monitor.seen.value == kept
