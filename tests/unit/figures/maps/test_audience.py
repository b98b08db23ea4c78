"""The map of an area: the circle, and readers by what came of it for them."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.maps.audience import COLOURS, area_map
from mudkit.units import distance_km

STATES = ("told", "taken back", "neither")
AREA = (30.27, -97.74, 1.6)
POINTS = pa.table(
    {
        "lat": [30.27, 30.28, 30.29, None],
        "lon": [-97.74, -97.75, -97.7, -97.7],
        "state": ["neither", "told", "told", "told"],
        "reader": ["ann", "<b>", "cy", "dee"],
    }
)


def call(leaflet_map, function):
    page = leaflet_map.get_root().render()
    (data,) = re.findall(rf"^\s*mudkitMap\.{function}\(\w+, (.*)\);$", page, re.MULTILINE)
    return json.loads(data)


def draw(points=POINTS, **given):
    return area_map(
        points, "state", **{"area": AREA, "states": STATES, "title": "Write 2", "text": "reader"} | given
    )


def test_points_have_the_colour_of_their_state_and_say_it():
    drawn = call(draw(), "points")
    assert drawn["colours"] == list(COLOURS)
    assert [point[3:] for point in drawn["points"]] == [
        [2, "ann\nneither"],
        [0, "<b>\ntold"],
        [0, "cy\ntold"],
    ]
    assert drawn["points"][0][2] < drawn["points"][1][2], "who has nothing to do with it is small"


def test_the_legend_counts_and_has_no_scale():
    legend = call(draw(), "legend")
    assert [text for _, text in legend["keys"]] == ["told: 2", "taken back: 0", "neither: 1"]
    assert (legend["colours"], legend["ticks"], legend["title"]) == ([], [], "Write 2")


def test_the_circle_is_in_the_picture():
    leaflet_map = draw(POINTS.slice(0, 1))
    ((lat, lon, metres, text),) = call(leaflet_map, "areas")["areas"]
    assert (lat, lon, metres) == (30.27, -97.74, 1600)
    assert "1.6 km" in text
    (south, west), (north, east) = call(leaflet_map, "base")["bounds"]
    assert float(distance_km(south, lon, north, lon)) >= 3.2 * 0.999
    assert float(distance_km(lat, west, lat, east)) >= 3.2 * 0.999


def test_the_ground_is_where_they_have_been():
    answer = call(draw(positions=POINTS), "base")["attribution"]
    assert "3 positions" in answer


@pytest.mark.parametrize("wrong", [{"states": ("told",)}, {"states": tuple("abcdefgh")}])
def test_states_must_be_listed(wrong):
    with pytest.raises(ParameterError, match="states"):
        draw(**wrong)


def test_an_empty_map_is_refused():
    with pytest.raises(TraceContentError):
        draw(POINTS.slice(3))
