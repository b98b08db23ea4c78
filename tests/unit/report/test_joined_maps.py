"""Maps of joined messages: counts by cell and interval, and what the pictures show of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit.report import joined_maps
from mudkit.report.joined_maps import CellCounts, busiest, count_cells, pictures, places_answer, sum_cells
from mudkit.report.joined_messages import Messages, Sizes
from mudkit.trace.schema import timestamps

T0_US = 1_200_000_000_000_000


def test_messages_of_a_cell_and_interval_are_joined():
    """Join seven messages of an interval and one of the next, in one cell; one more lies elsewhere."""
    t_us = [T0_US + 1_000_000 * t for t in (*range(7), 300, 1)]
    lat, lon = zip(*[(37.75, -122.41)] * 8, (37.65, -122.2), strict=True)
    messages = Messages(
        pa.table({"device": ["a"] * 9, "ts": timestamps(np.array(t_us)), "lat": lat, "lon": lon})
    )
    for threshold, sent, size in ((1, 9, 3600), (5, 4, 2 * 600 + 2 * 400), (None, 3, 600 + 2 * 400)):
        counted = count_cells(messages, zoom=14, interval_s=300, threshold=threshold, sizes=Sizes(400, 600))
        assert len(counted) == 3
        assert (counted["aggregates_out"].sum(), counted["bytes_out"].sum()) == (sent, size)


def summed(counted, zoom, interval_s, tz):
    """Return the sums of the counts of one task."""
    return CellCounts(zoom, interval_s, tz, lambda reduce, columns, _: reduce(counted).select(columns.names))


def make_counted(cells, intervals, interval_s=3600, messages=2):
    cell, number = (part.ravel() for part in np.mgrid[:cells, :intervals])
    sums = {"messages_in": messages, "aggregates_out": 1, "bytes_in": 400 * messages, "bytes_out": 400}
    return pd.DataFrame({"x": cell, "y": 1, "since_s": interval_s * number, **sums})


@pytest.mark.parametrize(
    ("hours", "labels"),
    [(40, ["1970-01-01 00:00 to 01:00", "1970-01-01 01:00 to 02:00"]), (4000, ["1970-01-01 to 1970-01-04"])],
)
def test_pictures_are_labelled_with_their_time_range(hours, labels):
    shown = pictures(summed(make_counted(1, hours), 14, 3600, "UTC"), "cells")
    assert shown["at"].to_pylist()[: len(labels)] == labels


def test_pictures_of_many_cells_keep_the_fullest(monkeypatch):
    monkeypatch.setattr(joined_maps, "MAX_MAP_CELLS", 60)
    counted = make_counted(100, 4)
    counted.loc[counted["x"] < 2, ["messages_in", "bytes_in"]] = [1000, 400_000]
    shown = pictures(summed(counted, 14, 3600, "UTC"), "cells")
    assert len(shown) <= 60
    drawn = len(shown.select(["west"]).to_pandas().drop_duplicates())
    assert drawn == 46, (
        "of 8,784 messages two cells hold 8,000, and of the others with 8 each 44 the rest of 95 %"
    )
    fullest = sum_cells(summed(counted, 14, 3600, "UTC")).nlargest(2, "messages_in")["west"].round(9)
    assert {*fullest} <= {round(west, 9) for west in shown["west"].to_pylist()}
    cells = sum_cells(summed(counted, 14, 3600, "UTC"))
    answer = places_answer(cells, shown)
    assert len(cells) == 100
    assert cells["messages_in"].sum() == counted["messages_in"].sum()
    saved = (cells["bytes_in"] - cells["bytes_out"]).to_numpy()
    assert saved[:2].sum() >= 0.8 * saved.sum() > saved[0]
    assert cells[["south", "west"]].drop_duplicates().shape[0] == 100
    assert answer.title == "2 cells of 100 make four fifths of the saving"
    assert f"The {drawn:,} cells with the most messages are drawn." in answer.text
    assert "1970-01-01" in answer.text


def test_places_without_saving_are_named():
    counted = make_counted(3, 2, messages=1)
    assert (
        places_answer(
            sum_cells(summed(counted, 14, 3600, "UTC")),
            pictures(summed(counted, 14, 3600, "UTC"), "c"),
        ).title
        == "No cell saves anything"
    )


def test_map_begins_with_the_busiest_picture():
    counted = make_counted(2, 3)
    counted.loc[counted["since_s"] == 3600, "messages_in"] = 50
    assert busiest(pictures(summed(counted, 14, 3600, "UTC"), "c")) == 1


@pytest.mark.parametrize(
    ("days", "first"),
    [
        (4, "1970-01-01 18:00 to 20:00"),
        (7, "1970-01-01 16:00 to 20:00"),
        (10, "1970-01-01 18:00 to 1970-01-02 00:00"),
        (40, "1970-01-01"),
    ],
)
def test_pictures_have_usual_lengths_and_name_the_day_on_which_they_end(days, first):
    """Count queues of 5 min in Chicago from 18:00 on."""
    counted = make_counted(1, days * 288, 300)
    counted["since_s"] += 86_400
    labels = pictures(summed(counted, 14, 300, "America/Chicago"), "cells")["at"].to_pylist()
    assert labels[0] == first
    assert len(labels) <= 48
