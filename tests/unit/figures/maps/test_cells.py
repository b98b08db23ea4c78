"""Cells over time: a picture a bucket, joined where there are too many."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.maps.cells import MAX_CELLS, MAX_FRAMES, over_time


def cells(hours: int, places: int = 3, zoom: int = 14) -> pd.DataFrame:
    rows = [
        (zoom, pd.Timestamp("2010-03-01T06:00", tz="UTC") + pd.Timedelta(hours=hour), 30 + place / 100, -97.0, hour + place)
        for hour in range(hours) for place in range(places)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["zoom", "bucket_ts", "lat", "lon", "positions"])


def test_a_picture_a_bucket_in_local_time():
    figure = over_time(cells(5), tz="America/Chicago", title="cells")
    assert [frame.name for frame in figure.frames] == [f"2010-03-01 0{hour}:00" for hour in range(5)]
    assert [step.label for step in figure.layout.sliders[0].steps] == [frame.name for frame in figure.frames]
    assert figure.layout.sliders[0].active == 4  # the busiest is shown first
    assert list(figure.data[1].text) == ["6 positions", "5 positions", "4 positions"]
    assert len(figure.data[0].x) == 3
    assert "°" in figure.layout.xaxis.title.text
    assert figure.layout.title.text == "cells"


@pytest.mark.parametrize("hours", [1, 48, 49, 500])
def test_many_buckets_are_joined_and_nothing_is_lost(hours):
    table = cells(hours, places=2)
    figure = over_time(table)
    assert len(figure.frames) == math.ceil(hours / math.ceil(hours / MAX_FRAMES)) <= MAX_FRAMES
    total = sum(
        int(text.split()[0].replace(",", "")) for frame in figure.frames for text in frame.data[0].text
    )
    assert total == table["positions"].sum()


def test_a_picture_shows_the_cells_with_most():
    table = cells(1, places=MAX_CELLS + 50)
    shown = over_time(table).frames[0].data[0]
    assert len(shown.x) == MAX_CELLS
    assert min(shown.y) == pytest.approx(30 + 50 / 100)
    assert np.all(np.diff(shown.marker.size) <= 0)


def test_what_cannot_be_drawn():
    with pytest.raises(ParameterError, match="zooms \\[12, 14\\]"):
        over_time(pd.concat([cells(1), cells(1, zoom=12)]))
    with pytest.raises(ParameterError, match="speed"):
        over_time(cells(1), value="speed")
    with pytest.raises(ParameterError, match="America/Los_Angeles"):
        over_time(cells(1), tz="Mars/Olympus")
    with pytest.raises(TraceContentError, match="no cells"):
        over_time(cells(0).astype({"positions": int}))
