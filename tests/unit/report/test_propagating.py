"""What the report propagation says is computed from its tables."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit.report.propagating import (
    FAR,
    NEAR,
    busiest,
    known_map,
    played,
    saving,
    what_is_known,
    working_cells,
)


def totals(*rows):
    names = ["threshold", "cells", "messages_in", "aggregates_out", "bytes_in", "bytes_out"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(bytes_left_share=table["bytes_out"] / table["bytes_in"])


def test_the_best_threshold_is_named():
    said = saving(totals((1, 10, 200, 200, 80_000, 80_000), (20, 10, 200, 10, 80_000, 4000)), 3, 300)
    assert "**200 messages** of 3 devices, 80 kB" in said
    assert "there are 20 on average" in said
    assert "until 20 wait, **5.0% of the bytes are left**" in said
    assert "longer than 300 s" in said
    assert "before they are full" not in said


def test_aggregates_that_are_never_full():
    said = saving(totals((1, 10, 30, 30, 12_000, 12_000), (20, 10, 30, 10, 12_000, 4000)), 3, 300)
    assert "before they are full" in said


def test_nothing_is_saved():
    said = saving(totals((1, 30, 30, 30, 12_000, 12_000), (20, 30, 30, 30, 12_000, 12_000)), 3, 300)
    assert "No threshold leaves less" in said


@pytest.fixture
def shown():
    columns = {
        "at": ["6:00", "6:00", "7:00", "7:00"],
        "threshold": [20, 20, 20, 20],
        "south": [1.0, 2.0, 1.0, 2.0],
        "west": [0.0] * 4,
        "messages_in": [10, 1, 20, 1],
        "bytes_in": [4000, 400, 8000, 400],
        "bytes_out": [400, 400, 400, 400],
    }
    return pa.table(columns)


def test_where_the_saving_is_made(shown):
    assert "1 of 2 cells make four fifths of the saving; 1 save nothing" in working_cells(shown, 20)
    assert working_cells(shown, 50) == "No cell saves anything."


def test_the_busiest_picture(shown):
    assert busiest(shown) == 1


@pytest.fixture
def crossing():
    """Thirty who go to work across a town; a minute between two reports."""
    ts = pd.date_range("2024-05-01 06:00", periods=20, freq="min", tz="UTC")
    parts = [
        pd.DataFrame(
            {"device": f"p{who:02d}", "ts": ts, "lat": 45 + who / 150, "lon": 7 + np.arange(20) / 300}
        )
        for who in range(30)
    ]
    return pa.Table.from_pandas(pd.concat(parts, ignore_index=True), preserve_index=False)


def test_what_is_known_in_the_middle_and_far_away(crossing):
    run = played(crossing, "noise map", 40.0)
    said = what_is_known(run, "noise map")
    assert "of 30 devices" in said
    match = re.search(rf"{NEAR}\*\* gets .* middle (\d+) s old; .*{FAR}\*\* gets .* middle (\d+) s old", said)
    assert int(match[1]) <= 60 < int(match[2])
    drawn = known_map(run, crossing, "noise map").get_root().render()
    assert "noise, dB" in drawn
    assert drawn.count("mudkitMap.slides(") == 1


def test_a_map_of_very_many_cells_has_fewer_pictures(crossing, monkeypatch):
    run = played(crossing, "noise map", 40.0)

    def pictures():
        text = known_map(run, crossing, "noise map").get_root().render()
        return len(set(re.findall(r"at ((?:\d+ (?:h|min|s) ?)+)", text)))

    before = pictures()
    monkeypatch.setattr("mudkit.figures.maps.MAX_SLIDE_CELLS", 6 * len(run.heard.groupby(["lat", "lon"])))
    assert (before > 20, pictures()) == (True, 3)


def test_too_few_people_to_be_told_of(crossing):
    run = played(crossing.slice(0, 40), "popular spots", 10.0)
    assert known_map(run, crossing, "popular spots") is None
    assert "None of them has told of a cell" in what_is_known(run, "popular spots")
