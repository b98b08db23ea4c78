"""Propagation map: methods, amounts, time, cells, and failing functions."""

from __future__ import annotations

import re

import pytest

from mudkit.systems.radiator import Volume
from mudkit.widgets import PropagationMap
from mudkit.widgets.propagation_map import METHODS
from mudkit.worlds import Traffic

TRAFFIC = Traffic(cars=5, minutes=6.0)
VOLUME = next(iter(METHODS))


def fail_when_moving(sender, receiver):
    if sender["speed_kmh"] > 0:
        raise RuntimeError("tired")
    return Volume(1)


@pytest.fixture
def widget():
    return PropagationMap(
        TRAFFIC, 3, functions={"mine": lambda sender, receiver: Volume(3), "moody": fail_when_moving}
    )


def count_cells(widget):
    return [len(trace.x) for trace in widget.figure.data[1::2]]


def read_delays_s(widget):
    return [int(delay) for delay in re.findall(r"mean delay (\d+) s", widget.status.value)]


def test_nearby_messages_arrive_earlier_and_from_more_cells(widget):
    near, far = read_delays_s(widget)
    assert near < far
    assert count_cells(widget)[0] > count_cells(widget)[1]
    assert f"<b>{Traffic.NEAR}</b> gets 30 messages" in widget.status.value
    assert widget.figure.layout.annotations[1].text.startswith(f"<b>{Traffic.FAR}</b>")


def test_amount_changes_bytes_and_delay(widget):
    widget.method.value = VOLUME
    assert read_delays_s(widget) == [0, 0]
    before = widget.status.value
    widget.amount.value = 10
    assert "in 3 aggregates" in widget.status.value
    assert widget.status.value != before
    assert read_delays_s(widget)[0] > 10
    widget.amount.value = 1
    assert widget.status.value == before


def test_no_aggregate_is_held_longer_than_its_retention(widget):
    """`max_retention_s`: a message is sent at the latest after this time, whatever the function asks for."""
    brief = PropagationMap(TRAFFIC, 3, max_retention_s=5.0)
    for shown in (widget, brief):
        shown.method.value = VOLUME
        shown.amount.value = 10
    assert read_delays_s(brief)[0] <= 5 < read_delays_s(widget)[0]


def test_every_method_can_be_selected(widget):
    statuses = set()
    for method in METHODS:
        widget.method.value = method
        widget.amount.value = 4
        assert widget.problem.value == ""
        statuses.add(widget.status.value)
    assert len(statuses) == len(METHODS)


def test_custom_functions_have_no_amount(widget):
    widget.method.value = "mine"
    assert widget.amount.disabled
    assert "in 10 aggregates" in widget.status.value
    widget.method.value = VOLUME
    assert not widget.amount.disabled


def test_time_slider_updates_the_maps(widget):
    widget.time.value = 0
    assert count_cells(widget) == [0, 0] or sum(count_cells(widget)) <= 1
    widget.time.value = widget.time.max
    assert min(count_cells(widget)) > 1
    assert widget.children[4].children[2].value == "11 min"


def test_larger_cells_reduce_their_number(widget):
    widget.time.value = widget.time.max
    before = count_cells(widget)
    widget.cells.value = 2.0
    assert count_cells(widget) < before


def test_failing_function_is_reported_and_keeps_the_figure(widget):
    kept = (widget.status.value, count_cells(widget))
    widget.method.value = "moody"
    assert "RuntimeError: tired" in widget.problem.value
    assert "role='alert'" in widget.problem.value
    assert (widget.status.value, count_cells(widget)) == kept
    widget.method.value = VOLUME
    assert widget.problem.value == ""


def test_slider_step_sends_one_message_with_the_changes(widget):
    messages = []
    for name in ("_py2js_update", "_py2js_restyle", "_py2js_relayout"):
        widget.figure.observe(lambda change: messages.append(change["new"]), names=name)
    widget.time.value = widget.time.max
    (message,) = [item for item in messages if item]
    assert set(message["style_data"]) == {"x", "y", "text", "marker.color", "marker.opacity"}
    assert set(message["layout_data"]) == {"annotations[0].text", "annotations[1].text", "meta", "shapes"}
    assert message["style_traces"] == [1, 3]
