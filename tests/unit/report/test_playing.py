"""Stretch of a trace that is played to receivers at places."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit import words
from mudkit.figures import tile_bounds, tiles
from mudkit.report import playing
from mudkit.report.joined_messages import Sizes
from mudkit.report.playing import busiest_positions, named_places, play_stretch
from mudkit.trace.schema import timestamps

SIZES = Sizes(400, 600)


@pytest.fixture
def crossing():
    """Return reports of thirty people who commute across a town, one a minute."""
    person, minute = (part.ravel() for part in np.mgrid[:30, :20])
    ts = pd.Timestamp("2024-05-01 06:00", tz="UTC") + pd.to_timedelta(minute, unit="min")
    columns = {
        "device": [f"p{number:02d}" for number in person],
        "ts": ts,
        "lat": 45 + person / 150,
        "lon": 7 + minute / 300,
        "speed_mps": 10.0 + person,
    }
    return pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)


def test_receivers_are_found_by_density_or_given(crossing):
    places = named_places(crossing, 12)
    assert list(places) == ["where most happens", "between", "at the edge"]
    assert len(set(places.values())) == 3
    assert named_places(crossing, 12, {"station": "45.1,7.02"}) == {"station": (45.1, 7.02)}
    assert list(named_places(crossing, 3)) == ["where most happens"]


def test_receivers_stand_in_the_middle_of_cells_with_messages(crossing):
    reported = {*zip(*tiles(12, *(crossing[name].to_numpy() for name in ("lat", "lon"))), strict=True)}
    for place in named_places(crossing, 12).values():
        x, y = tiles(12, *([degrees] for degrees in place))
        assert (x[0], y[0]) in reported
        edges = {name: edge[0] for name, edge in tile_bounds(12, x, y).items()}
        middle = (edges["south"] + edges["north"]) / 2, (edges["west"] + edges["east"]) / 2
        assert place == pytest.approx(middle)


@pytest.mark.parametrize("own", [(5, 5), (0, 5), (15, 5)], ids=["inland", "date line", "date line, west"])
def test_surroundings_are_a_tile_and_the_eight_that_touch_it(own):
    x, y = (part.ravel() for part in np.mgrid[:16, :16])
    near = playing._is_beside((x, y), own, 4)
    expected = {((own[0] + east) % 16, own[1] + south) for east in (-1, 0, 1) for south in (-1, 0, 1)}
    assert {*zip(x[near].tolist(), y[near].tolist(), strict=True)} == expected


@pytest.mark.parametrize(
    ("from_s", "to_s", "length_s"), [(0, 0, 1), (0, 0.5, 1), (5, 6, 1), (0, 61, 61), (0, 7201, 7260)]
)
def test_length_of_a_stretch_is_rounded_up_to_seconds_and_if_long_to_minutes(from_s, to_s, length_s):
    ts = timestamps(np.array([from_s * 1_000_000, to_s * 1_000_000], dtype=np.int64))
    stretch = SimpleNamespace(positions=pa.table({"ts": ts}))
    assert playing.PlayedStretch._length(stretch) == words.duration(length_s)


def test_surroundings_arrive_at_once_and_all_else_joined(crossing):
    played = play_stretch(
        crossing, "speed", named_places(crossing, 12), zoom=12, interval_s=300, sizes=SIZES, tz="UTC"
    )
    table = played.table()
    assert (table["messages_around"] + table["other_messages"] == len(crossing)).all()
    for name, of in played.run.cells.groupby("receiver"):
        assert of["messages"].sum() == len(crossing)
        expected = sum(400 if count == 1 else 600 for count in of["messages"])
        assert table.set_index("receiver").loc[name, "received_bytes"] == expected, "by the sizes of the page"
    assert (table["messages_around"] > 0).all()
    assert (table["other_delay_s"] <= 300).all()
    waited_s = (cells := played.run.cells)["t_s"] - cells["reported_s"]
    assert (waited_s.min(), waited_s.max() <= 300) == (0, True), (
        "since the mean time of the reports in a cell"
    )
    assert waited_s[cells["messages"] > 1].min() > 0
    received = played.run.received
    assert (received["age_s"] == 0).groupby(received["receiver"]).sum().min() > 0
    answer = played.answer(table, 30.0, 30.0)
    assert re.match(r"Within 19 min, a receiver .* gets [\d.]+ kB, one .* [\d.]+ kB", answer.title)
    assert len(re.findall(r"[\d.]+ [kM]?B\b", answer.text)) == 0, "sizes that cannot be compared"
    assert "Wednesday, 1 May 2024, 06:00:00 to 06:19:00 (UTC)" in answer.text
    html = played.map().get_root().render()
    assert "speed, km/h" in html
    assert html.count("mudkitMap.slides(") == 1
    for name in played.places:
        assert name in html


def test_devices_are_counted_in_the_cells_of_the_page(crossing):
    """Count the 30 people of one moment: no cell holds more, and cells are those of the zoom level."""
    played = play_stretch(
        crossing, "devices", {"here": (45.1, 7.02)}, zoom=12, interval_s=60, sizes=SIZES, tz="UTC"
    )
    cells = played.run.cells
    assert 1 <= cells["value"].min() <= cells["value"].max() <= 30
    assert cells["km"].iloc[0] == pytest.approx(40_030 * math.cos(math.radians(45.1)) / 2**12, rel=0.01)
    assert "at here" in played.answer(played.table(), 30.0, 30.0).title


def test_stretch_that_takes_long_is_shortened(crossing, monkeypatch):
    whole, minutes = busiest_positions(crossing, 30.0, 300)
    assert (len(whole), minutes) == (len(crossing), 30.0)
    monkeypatch.setattr(playing, "MAX_PLAYED", 50_000)
    part, minutes = busiest_positions(crossing, 30.0, 300)
    assert 0 < len(part) < len(crossing)
    assert minutes == 7.5
    played = play_stretch(
        part, "speed", {"here": (45.1, 7.02)}, zoom=12, interval_s=300, sizes=SIZES, tz="UTC"
    )
    text = played.answer(played.table(), minutes, 30.0).text
    assert "the busiest stretch of 7 min 30 s, with" in text
    assert "Only 7 min 30 s of the 30 min asked for (`played_minutes`) are played" in text
    assert "asked for" not in played.answer(played.table(), 7.5, 7.5).text


def test_map_of_many_cells_has_fewer_pictures(crossing, monkeypatch):
    played = play_stretch(
        crossing, "speed", {"here": (45.1, 7.02)}, zoom=12, interval_s=300, sizes=SIZES, tz="UTC"
    )

    def count():
        text = played.map().get_root().render()
        return len(set(re.findall(r"at ((?:\d+ (?:h|min|s) ?)+)", text)))

    before = count()
    monkeypatch.setattr(playing, "_MAX_CELLS", 3 * len(played.run.cells.groupby(["lat", "lon"])))
    assert (before > 5, count()) == (True, 3)
