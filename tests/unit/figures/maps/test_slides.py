"""A map over time holds each cell once, and for each choice and time the colours."""

from __future__ import annotations

import json
import re

import pandas as pd
import pyarrow as pa
import pytest

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.base.colours import STOPS
from mudkit.figures.maps.slides import cell_slides, knowledge_map

EDGES = {
    "south": [30.0, 30.0, 30.1, 30.0],
    "west": [-97.0] * 4,
    "north": [30.1, 30.1, 30.2, 30.1],
    "east": [-96.9] * 4,
}
CELLS = pa.table(
    EDGES
    | {"speed": [1.0, 2.0, 3.0, None], "at": ["6:00", "7:00", "7:00", "7:00"], "of": ["a", "a", "a", "b"]}
)


def data(leaflet_map, function="slides"):
    page = leaflet_map.get_root().render()
    (result,) = re.findall(rf"^\s*mudkitMap\.{function}\(\w+, (.*)\);$", page, re.MULTILINE)
    return json.loads(result)


def test_each_cell_once_and_a_picture_for_each_choice_and_time():
    made = data(cell_slides(CELLS, "speed", time="at", by="of"))
    assert made["labels"] == ["6:00", "7:00"]
    assert made["choices"] == ["a", "b"]
    assert len(made["boxes"]) == 2
    texts = [[[cell[2] for cell in picture] for picture in pictures] for pictures in made["pictures"]]
    assert texts == [[["1"], ["2", "3"]], [[], ["no value"]]]
    assert made["colours"][made["pictures"][1][1][0][1]] == "#c4c7ca"
    assert made["first"] == 0


def test_low_may_be_dark_and_more_may_be_told():
    made = data(cell_slides(CELLS, "speed", time="at", by="of", text="at", low_is_dark=True, first=1))
    assert made["colours"][0] == STOPS[-1]
    assert made["pictures"][0][0][0][1:] == [0, "1, 6:00"]
    legend = data(cell_slides(CELLS, "speed", time="at", by="of", low_is_dark=True), "legend")
    assert legend["colours"][0] == STOPS[-1]
    assert legend["keys"] == [["#c4c7ca", "no value"]]


def test_what_a_receiver_knows_over_time():
    rows = [(10.0, "x", 30.0, -97.0, 1.0, 1, 5.0, 10.0), (70.0, "x", 30.0, -97.0, 1.0, 1, 9.0, 60.0)]
    columns = ["t_s", "receiver", "lat", "lon", "km", "messages", "speed_kmh", "said_s"]
    heard = pd.DataFrame(rows, columns=columns)
    made = data(
        knowledge_map(
            heard,
            heard,
            ["x", "nobody"],
            value="speed_kmh",
            label="km/h",
            every_s=30,
            until_s=120,
            first_s=65,
        )
    )
    assert made["labels"] == [f"at {each} min" for each in ("0:30", "1:00", "1:30", "2:00")]
    assert [picture[0][2] for picture in made["pictures"][0]] == [
        "5, 20 s old",
        "5, 50 s old",
        "9, 30 s old",
        "9, 60 s old",
    ]
    assert made["first"] == 1


@pytest.mark.parametrize(
    ("given", "error", "answer"),
    [
        ({"time": "when"}, ParameterError, "when"),
        ({"text": "why"}, ParameterError, "why"),
        ({"value": "mood"}, ParameterError, "mood"),
        ({"first": 2}, ParameterError, "0 to 1"),
        ({"cells": CELLS.slice(0, 0)}, TraceContentError, "cells"),
    ],
)
def test_what_cannot_be_drawn(given, error, answer):
    given = {"cells": CELLS, "value": "speed", "time": "at", "by": "of"} | given
    with pytest.raises(error, match=answer):
        cell_slides(given.pop("cells"), given.pop("value"), **given)


def test_too_many_cells(monkeypatch):
    monkeypatch.setattr("mudkit.figures.maps.slides.MAX_ROWS", 3)
    with pytest.raises(ParameterError, match="at most 3 rows"):
        cell_slides(CELLS, "speed", time="at", by="of")
