"""The widget follows what is chosen, and keeps its picture when it cannot."""

from __future__ import annotations

import re

import pytest

from mudkit.experiment import Traffic
from mudkit.systems.radiator import Volume
from mudkit.widgets import PropagationMap
from mudkit.widgets.propagation_map import METHODS

TRAFFIC = Traffic(cars=5, minutes=6.0)
VOLUME = next(iter(METHODS))


def moody(sender, receiver):
    if sender["speed_kmh"] > 0:
        raise RuntimeError("tired")
    return Volume(1)


@pytest.fixture
def widget():
    return PropagationMap(TRAFFIC, 3, functions={"mine": lambda sender, receiver: Volume(3), "moody": moody})


def cells(widget):
    return [len(trace.x) for trace in widget.figure.data[1::2]]


def late_s(widget):
    return [int(each) for each in re.findall(r"mean delay (\d+) s", widget.status.value)]


def test_near_by_more_is_known_and_sooner(widget):
    near, far = late_s(widget)
    assert near < far
    assert cells(widget)[0] > cells(widget)[1]
    assert f"<b>{Traffic.NEAR}</b> gets 30 messages" in widget.status.value
    assert widget.figure.layout.annotations[1].text.startswith(f"<b>{Traffic.FAR}</b>")


def test_the_amount_changes_bytes_and_delay(widget):
    widget.method.value = VOLUME
    assert late_s(widget) == [0, 0]
    before = widget.status.value
    widget.amount.value = 10
    assert "in 3 aggregates" in widget.status.value
    assert widget.status.value != before
    assert late_s(widget)[0] > 10
    widget.amount.value = 1
    assert widget.status.value == before


def test_every_way_can_be_chosen(widget):
    answer = set()
    for way in METHODS:
        widget.method.value = way
        widget.amount.value = 4
        assert widget.problem.value == ""
        answer.add(widget.status.value)
    assert len(answer) == len(METHODS)


def test_ones_own_functions_have_no_amount(widget):
    widget.method.value = "mine"
    assert widget.amount.disabled
    assert "in 10 aggregates" in widget.status.value
    widget.method.value = VOLUME
    assert not widget.amount.disabled


def test_time_moves_the_maps(widget):
    widget.time.value = 0
    assert cells(widget) == [0, 0] or sum(cells(widget)) <= 1
    widget.time.value = widget.time.max
    assert min(cells(widget)) > 1
    assert widget.children[4].children[2].value == "11 min"


def test_cells_may_be_larger(widget):
    widget.time.value = widget.time.max
    before = cells(widget)
    widget.cells.value = 2.0
    assert cells(widget) < before


def test_what_cannot_be_is_told_and_the_picture_stays(widget):
    kept = (widget.status.value, cells(widget))
    widget.method.value = "moody"
    assert "RuntimeError: tired" in widget.problem.value
    assert "role='alert'" in widget.problem.value
    assert (widget.status.value, cells(widget)) == kept
    widget.method.value = VOLUME
    assert widget.problem.value == ""


def test_a_step_of_the_slider_is_one_message_of_what_changes(widget):
    answer = []
    for name in ("_py2js_update", "_py2js_restyle", "_py2js_relayout"):
        widget.figure.observe(lambda change: answer.append(change["new"]), names=name)
    widget.time.value = widget.time.max
    (message,) = [each for each in answer if each]
    assert set(message["style_data"]) == {"x", "y", "text", "marker.color", "marker.opacity"}
    assert set(message["layout_data"]) == {"annotations[0].text", "annotations[1].text", "meta", "shapes"}
    assert message["style_traces"] == [1, 3]
