"""Report propagation: answers and maps computed from its tables."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from report_traces import build_rule_is_best

from mudkit.errors import TraceContentError
from mudkit.report import propagating
from mudkit.report.propagating import (
    _application,
    busiest,
    chosen_quantity,
    count_cells,
    first_screen,
    joined,
    known_answer,
    known_map,
    places_answer,
    played,
    search_thresholds,
    shown_threshold,
    totals,
)
from mudkit.trace.schema import timestamps


def make_totals(*rows):
    names = ["threshold", "cells", "messages_in", "aggregates_out", "bytes_in", "bytes_out"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(bytes_left_share=table["bytes_out"] / table["bytes_in"])


def count_messages(positions, **sizes):
    options = {"zoom": 14, "interval_s": 300, "message_bytes": 400, "aggregate_bytes": 600} | sizes
    return count_cells(positions, thresholds=[1, 5, 50], **options)


def test_messages_of_a_cell_and_interval_are_joined():
    """Join seven messages of an interval and one of the next, in one cell; one more lies elsewhere."""
    t_us = [1_200_000_000_000_000 + 1_000_000 * t for t in (*range(7), 300, 1)]
    locations = [(37.75, -122.41)] * 8 + [(37.65, -122.2)]
    lat, lon = zip(*locations, strict=True)
    table = totals(count_messages(pa.table({"ts": timestamps(np.array(t_us)), "lat": lat, "lon": lon})))
    assert table["cells"].tolist() == [3, 3, 3]
    assert table["messages_in"].tolist() == [9, 9, 9]
    assert table["aggregates_out"].tolist() == [9, 4, 3], "5 + 2, 1, 1; then 7, 1, 1"
    assert table["bytes_out"].tolist() == [3600, 2 * 600 + 2 * 400, 600 + 2 * 400]


def test_best_threshold_at_the_edge_is_doubled():
    """Join 300 messages of a cell and interval: 20 leave 5 %, 40 2.7 %, 80 1.3 %, and 160 hardly less."""
    t_us = 1_200_000_000_000_000 + 900_000 * np.arange(300)
    positions = pa.table({"ts": timestamps(t_us), "lat": [37.75] * 300, "lon": [-122.41] * 300})
    sizes = {"zoom": 14, "interval_s": 300, "message_bytes": 400, "aggregate_bytes": 400}
    counts, added = search_thresholds(positions, [1, 20], **sizes)
    assert added == [40, 80, 160]
    screen = first_screen(build_rule_is_best(), totals(counts), 300, added)
    assert screen.headline.startswith("Join 80 messages: 1.3 %")
    assert "larger ones were tried, too: 40, 80, 160." in screen.warnings[-1]
    assert search_thresholds(positions, [1, 20, 100, 300], **sizes)[1] == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [
                (1, 10, 200, 200, 80_000, 80_000),
                (20, 10, 200, 10, 80_000, 4000),
                (50, 10, 200, 10, 80_000, 4000),
            ],
            "Join 20 messages: 5 % of the bytes are left. No message waits longer than 5 min.",
        ),
        (
            [(1, 10, 30, 30, 12_000, 12_000), (20, 10, 30, 10, 12_000, 4000)],
            "before they are full",
        ),
        (
            [(1, 30, 30, 30, 12_000, 12_000), (20, 30, 30, 30, 12_000, 12_000)],
            "Do not join messages: no threshold leaves fewer bytes.",
        ),
    ],
)
def test_smallest_threshold_near_the_best_saving_is_recommended(rows, message):
    screen = first_screen(build_rule_is_best(), make_totals(*rows), 300)
    assert message in repr(screen)
    assert "e+" not in repr(screen)


@pytest.mark.parametrize(
    ("speeds", "quantity", "expected"),
    [
        ([1.0, None], "auto", "speed"),
        ([None, None], "auto", "devices"),
        ([1.0, 2.0], "devices", "devices"),
        ([None, None], "speed", None),
    ],
)
def test_quantity_is_chosen_from_the_trace_columns(speeds, quantity, expected):
    positions = pa.table({"speed_mps": pa.array(speeds, pa.float64())})
    if expected is None:
        with pytest.raises(TraceContentError, match="no speeds"):
            chosen_quantity(positions, quantity)
    else:
        assert chosen_quantity(positions, quantity) == expected
    assert {_application(name).quantity for name in ("speed", "devices")} == {
        "speed, km/h",
        "devices in a cell",
    }


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


def test_places_answer_names_the_cells_with_savings(shown):
    answer = places_answer(shown, 20)
    assert busiest(shown) == 1
    assert answer.title == "1 cell of 2 makes four fifths of the saving"
    assert "1 cell saves nothing" in answer.text
    all_saving = shown.set_column(shown.column_names.index("bytes_out"), "bytes_out", pa.array([300] * 4))
    assert "every cell saves something" in places_answer(all_saving, 20).text
    assert places_answer(shown, 50).title == "No cell saves anything"


def test_maps_show_the_recommended_threshold_first(shown):
    rows = [(1, 10, 30, 30, 12_000, 12_000), (5, 10, 30, 12, 12_000, 4800), (20, 10, 30, 10, 12_000, 4000)]
    assert shown_threshold(make_totals(*rows)) == 20
    assert (
        shown_threshold(make_totals(*[(threshold, 30, 30, 30, 12_000, 12_000) for threshold in (1, 5, 20)]))
        == 5
    )
    tables = pa.concat_tables(
        shown.set_column(1, "threshold", pa.array([threshold] * len(shown))) for threshold in (1, 5, 20)
    )
    assert joined(tables, 20)["threshold"].unique().to_pylist() == [20, 5]


@pytest.mark.parametrize(
    ("hours", "labels"),
    [(40, ["1970-01-01 00:00 to 01:00", "1970-01-01 01:00 to 02:00"]), (4000, ["1970-01-01 to 1970-01-04"])],
)
def test_pictures_are_labelled_with_their_time_range(hours, labels):
    since_s = np.arange(0, 3600 * hours, 3600)
    sums = dict.fromkeys(("messages_in", "aggregates_out", "bytes_in", "bytes_out"), 1)
    table = pd.DataFrame({"x": 1, "y": 1, "since_s": since_s, "threshold": 20, **sums})
    shown = propagating.pictures(table, 14, 3600, "UTC")
    assert shown["at"].to_pylist()[: len(labels)] == labels


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
    }
    return pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)


def test_answer_compares_ages_near_the_middle_and_far_away(crossing):
    run = played(crossing, "speed", 40.0)
    answer = known_answer(run, "speed")
    assert "30 devices report" in answer.text
    assert (
        answer.title
        == "What happens in the middle is known there after 1 min on average, far away after 21 min"
    )
    html = known_map(run, crossing, "speed").get_root().render()
    assert "speed, km/h" in html
    assert "noise" not in html
    assert html.count("mudkitMap.slides(") == 1


def test_answer_has_no_age_without_devices_in_the_middle(crossing):
    """Place devices on two sides of the world, with none between them."""
    lat = np.where(np.arange(len(crossing)) // 20 % 2, 60.0, -60.0)
    apart = crossing.set_column(crossing.column_names.index("lat"), "lat", pa.array(lat))
    answer = known_answer(played(apart, "speed", 20.0), "speed")
    assert answer.title == "Nothing is reported in the middle"


def test_known_map_of_many_cells_has_fewer_pictures(crossing, monkeypatch):
    run = played(crossing, "speed", 40.0)

    def count():
        text = known_map(run, crossing, "speed").get_root().render()
        return len(set(re.findall(r"at ((?:\d+ (?:h|min|s) ?)+)", text)))

    before = count()
    monkeypatch.setattr(propagating, "MAX_MAP_CELLS", 6 * len(run.cells.groupby(["lat", "lon"])))
    assert (before > 5, count()) == (True, 3)


def test_known_map_is_omitted_for_too_few_devices(crossing):
    run = played(crossing.slice(0, 40), "devices", 10.0)
    assert known_map(run, crossing, "devices") is None
    assert known_answer(run, "devices").title == "Nothing is reported"


def test_pictures_are_fewer_for_many_cells(monkeypatch):
    monkeypatch.setattr(propagating, "MAX_MAP_CELLS", 60)
    draw = np.random.default_rng(3)
    counts = pd.DataFrame(
        {
            "x": draw.integers(0, 20, 4000),
            "y": draw.integers(0, 5, 4000),
            "since_s": 300 * draw.integers(0, 400, 4000),
            "threshold": 20,
            **dict.fromkeys(("messages_in", "aggregates_out", "bytes_in", "bytes_out"), 1),
        }
    )
    shown = propagating.pictures(counts, 14, 300, "UTC").to_pandas()
    assert shown["at"].nunique() == 1, "even then there are more cells than wanted"
    assert shown["messages_in"].sum() == 4000
    monkeypatch.setattr(propagating, "MAX_MAP_CELLS", 1000)
    shown = propagating.pictures(counts, 14, 300, "UTC").to_pandas()
    assert 1 < shown["at"].nunique() < 48
    assert len(shown) <= 1000
