"""Report propagation: recommendations, headings, pictures and the stretch that is played."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit import words
from mudkit.errors import TraceContentError
from mudkit.report import playing, propagating
from mudkit.report.joining import Limits, Sizes
from mudkit.report.playing import busiest_positions, named_places, play_stretch
from mudkit.report.propagating import (
    busiest,
    chosen_quantity,
    count_cells,
    pictures,
    places_answer,
    study_joining,
)
from mudkit.report.source import TraceSource
from mudkit.trace.schema import POSITIONS, timestamps

T0_US = 1_200_000_000_000_000
SIZES = Sizes(400, 400)


def make_source(device, t_s, lat, lon, speed=None):
    t_us = T0_US + 1_000_000 * np.asarray(t_s, dtype=np.int64)
    speeds = pa.nulls(len(t_us), pa.float64()) if speed is None else pa.array(speed, pa.float64())
    columns = {
        "device": [f"d{number}" for number in device],
        "ts": timestamps(t_us),
        "lat": np.asarray(lat, float),
        "lon": np.asarray(lon, float),
        "speed_mps": speeds,
    }
    positions = pa.table(columns, schema=POSITIONS)
    rows = pd.DataFrame({"what": ["positions"], "rows": [len(positions)]})
    return TraceSource("made.csv", positions, positions.slice(0, 0), rows, "UTC")


def study(source, quantity="devices", max_delay_s=300, max_error_m=500.0, **options):
    return study_joining(source, Limits(max_delay_s, max_error_m), SIZES, quantity, **options)


def make_standing(devices=8):
    """Place devices far apart that report every 20 s."""
    device, number = (part.ravel() for part in np.mgrid[:devices, :200])
    return make_source(device, 20 * number, 37 + 0.1 * device, [-122.0] * len(device))


def make_crowds():
    """Report once from 3,000 devices, 60 at a time at ten places."""
    number = np.arange(3000)
    return make_source(number, 30 * (number // 60), 37 + 0.1 * (number % 10), [-122.0] * 3000)


def make_walks():
    """Move devices about a town, which report every 30 s: they repeat themselves in a cell, and meet."""
    random = np.random.default_rng(3)
    device, number = (part.ravel() for part in np.mgrid[:30, :120])
    lat = 45 + np.cumsum(random.normal(0, 1e-3, (30, 120)), axis=1).ravel()
    lon = 7 + np.cumsum(random.normal(0, 1e-3, (30, 120)), axis=1).ravel()
    return make_source(device, 30 * number, lat, lon, random.exponential(9, len(device)))


def make_apart():
    """Report once from each device, far from all others."""
    number = np.arange(50)
    return make_source(number, 60 * number, 20 + number, number)


@pytest.mark.parametrize(
    ("build", "way", "headline"),
    [
        (make_standing, "last", r"Send only the last position of each device every 5 min: 7 %"),
        (make_crowds, "join", r"Join the messages of cells .* wide every .*: 1\.7 % of the bytes are left"),
        (
            make_apart,
            "nothing",
            r"Send every message by itself: within the limits, joining saves less than 5 %",
        ),
    ],
)
def test_simplest_way_that_leaves_as_little_is_recommended(build, way, headline):
    screen = study(build()).first_screen()
    values = {measure.name: measure.value for measure in screen.measures}
    assert values["way"] == way
    assert re.match(headline, screen.headline)
    assert "nan" not in repr(screen)
    assert "(`max_delay_s`)" in screen.assumption


def test_own_messages_are_joined_where_devices_never_meet():
    screen = study(make_commuters(), max_error_m=300.0).first_screen()
    values = {measure.name: measure.value for measure in screen.measures}
    assert values["way"] == "own"
    assert values["threshold"] is None
    assert values["own_repeats_share"] == pytest.approx(1)
    assert screen.headline.startswith("Let each device send one message per ")
    assert "a server that joins saves nothing more" in screen.reason


def make_commuters():
    """Move each device to and fro between two places that it shares with nobody."""
    device, number = (part.ravel() for part in np.mgrid[:8, :400])
    return make_source(device, 20 * number, 37 + 0.1 * device, -122 + 0.05 * (number % 2))


@pytest.mark.parametrize("build", [make_standing, make_crowds, make_commuters, make_apart])
def test_every_section_has_the_number_of_the_headline(build):
    shown = study(build(), max_error_m=300.0)
    screen = shown.first_screen()
    assumed, ways = shown.assumptions(), shown.baselines()
    as_assumed = assumed.set_index("assumed").loc["as assumed"]
    assert as_assumed["bytes_left_share"] == pytest.approx(shown.left_share)
    by_way = ways[ways["bytes_left_share"] == as_assumed["bytes_left_share"]]["way"]
    assert by_way.str.startswith(as_assumed["way"]).any()
    if shown.verdict in ("own", "join"):
        counted = count_cells(shown.source.positions, **shown.shown, sizes=SIZES)
        left = counted["bytes_out"].sum() / counted["bytes_in"].sum()
        assert left == pytest.approx(shown.left.value)
        assert shown.drawn.startswith("The map shows what is recommended")
        column = shown.threshold_table()["bytes_left_share"]
        assert np.isclose(column, shown.left.value).any()
    else:
        assert "Not what is recommended" in shown.drawn
    values = {measure.name: measure.value for measure in screen.measures}
    half = assumed[assumed["assumed"].str.startswith("an aggregate half")]["bytes_left_share"]
    assert values["half_aggregate_left_share"] == half.item()
    if shown.verdict == "own":
        joined = ways.set_index("way")["bytes_left_share"]["messages of a cell joined"]
        assert values["joined_left_share"] == joined
        assert shown.grid_answer().text.startswith("Here the messages of different devices are joined, too")


def test_heading_of_the_grid_is_about_combinations_within_the_limits():
    shown = study(make_walks(), "speed")
    grid = shown.grid()
    least = grid[grid["keeps_limits"]]["bytes_left_share"].min()
    assert least > grid["bytes_left_share"].min()
    assert f"decide: {words.percent(least)} to" in shown.grid_answer().title


def test_price_and_missing_limit_are_named():
    screen = study(make_walks(), "speed").first_screen()
    assert "The price: receivers get a mean place, at most" in screen.reason
    assert "no limit is set on the error of the speed (`max_quantity_error`)" in screen.assumption
    assert "Assumed, not measured: a message of 400 B" in screen.assumption


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
    labels = pictures(counted, 14, 300, "America/Chicago", "cells")["at"].to_pylist()
    assert labels[0] == first
    assert len(labels) <= 48


@pytest.mark.parametrize("build", [make_standing, make_crowds, make_walks, make_apart])
def test_every_heading_is_a_sentence_and_follows_from_its_table(build):
    shown = study(build(), "speed" if build is make_walks else "devices")
    grid, ways, thresholds, assumed = (
        shown.grid(), shown.baselines(), shown.threshold_table(), shown.assumptions()
    )  # fmt: skip
    answers = [
        shown.grid_answer(), shown.baselines_answer(), shown.threshold_answer(), shown.assumptions_answer(assumed)
    ]  # fmt: skip
    for answer in answers:
        assert "nan" not in f"{answer.title} {answer.text}".lower()
        assert not answer.title.endswith(".")
    assert ways["way"].is_unique
    assert ways["bytes_left_share"].iloc[0] == 1
    assert thresholds["bytes_left_share"].iloc[0] == pytest.approx(1)
    assert shown.near(grid)["interval"].str.contains("min|s|h").all()
    for table in (shown.ways_shown(ways), shown.thresholds_shown(thresholds), shown.near(grid)):
        assert len(table.columns) <= 7
    least, most = assumed["bytes_left_share"].min(), assumed["bytes_left_share"].max()
    assert 0 < least <= most


def test_one_device_has_no_half_and_no_others():
    shown = study(make_standing(1))
    assert "half of the devices" not in " ".join(shown.assumptions()["assumed"])
    assert "goes to one device" in shown.first_screen().assumption
    assert "The whole saving comes from devices repeating themselves" in shown.baselines_answer().title


def test_limits_that_nothing_keeps_are_named():
    source = make_walks()
    shown = study_joining(source, Limits(60, 500.0, 1e-6), SIZES, "speed", cells_zoom=12)
    screen = shown.first_screen()
    assert not shown.is_allowed
    assert "no interval and cell keeps the limits" in screen.headline or shown.verdict == "last"


def test_measures_have_intervals_over_days():
    """Repeat the walks on six days."""
    positions = make_walks().positions.to_pandas()
    days = [positions.assign(ts=positions["ts"] + pd.Timedelta(days=day)) for day in range(6)]
    table = pa.Table.from_pandas(pd.concat(days), schema=POSITIONS, preserve_index=False)
    source = TraceSource(
        "made.csv", table, table.slice(0, 0), pd.DataFrame({"what": ["positions"], "rows": [1]}), "UTC"
    )
    shown = study(source, "speed")
    measures = {measure.name: measure for measure in shown.first_screen().measures}
    for name in ("bytes_left_share", "messages_left_share", "position_error_m", "quantity_error", "delay_s"):
        measure = measures[name]
        assert measure.low <= measure.value <= measure.high, name
    assert measures["quantity_error"].unit == "km/h"
    assert sum(day.messages for day in shown.days) == len(table)


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


def test_messages_of_a_cell_and_interval_are_joined():
    """Join seven messages of an interval and one of the next, in one cell; one more lies elsewhere."""
    t_us = [T0_US + 1_000_000 * t for t in (*range(7), 300, 1)]
    lat, lon = zip(*[(37.75, -122.41)] * 8, (37.65, -122.2), strict=True)
    positions = pa.table({"ts": timestamps(np.array(t_us)), "lat": lat, "lon": lon})
    for threshold, sent, size in ((1, 9, 3600), (5, 4, 2 * 600 + 2 * 400), (None, 3, 600 + 2 * 400)):
        counted = count_cells(positions, zoom=14, interval_s=300, threshold=threshold, sizes=Sizes(400, 600))
        assert len(counted) == 3
        assert (counted["aggregates_out"].sum(), counted["bytes_out"].sum()) == (sent, size)


def make_counted(cells, intervals, interval_s=3600, messages=2):
    cell, number = (part.ravel() for part in np.mgrid[:cells, :intervals])
    sums = {"messages_in": messages, "aggregates_out": 1, "bytes_in": 400 * messages, "bytes_out": 400}
    return pd.DataFrame({"x": cell, "y": 1, "since_s": interval_s * number, **sums})


@pytest.mark.parametrize(
    ("hours", "labels"),
    [(40, ["1970-01-01 00:00 to 01:00", "1970-01-01 01:00 to 02:00"]), (4000, ["1970-01-01 to 1970-01-04"])],
)
def test_pictures_are_labelled_with_their_time_range(hours, labels):
    shown = pictures(make_counted(1, hours), 14, 3600, "UTC", "cells")
    assert shown["at"].to_pylist()[: len(labels)] == labels


def test_pictures_of_many_cells_keep_the_fullest(monkeypatch):
    monkeypatch.setattr(propagating, "MAX_MAP_CELLS", 60)
    counted = make_counted(100, 4)
    counted.loc[counted["x"] < 2, ["messages_in", "bytes_in"]] = [1000, 400_000]
    shown = pictures(counted, 14, 3600, "UTC", "cells")
    assert len(shown) <= 60
    drawn = len(shown.select(["west"]).to_pandas().drop_duplicates())
    assert 2 <= drawn < 100
    answer = places_answer(counted, shown)
    assert answer.title == "2 cells of 100 make four fifths of the saving"
    assert f"The {drawn:,} cells with the most messages are drawn." in answer.text
    assert "1970-01-01" in answer.text


def test_places_without_saving_are_named():
    counted = make_counted(3, 2, messages=1)
    assert places_answer(counted, pictures(counted, 14, 3600, "UTC", "c")).title == "No cell saves anything"


def test_map_begins_with_the_busiest_picture():
    counted = make_counted(2, 3)
    counted.loc[counted["since_s"] == 3600, "messages_in"] = 50
    assert busiest(pictures(counted, 14, 3600, "UTC", "c")) == 1


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


def test_surroundings_arrive_at_once_and_all_else_joined(crossing):
    played = play_stretch(crossing, "speed", named_places(crossing, 12), zoom=12, interval_s=300, tz="UTC")
    table = played.table()
    assert (table["messages_around"] + table["other_messages"] == len(crossing)).all()
    assert (table["messages_around"] > 0).all()
    assert (table["other_delay_s"] <= 300).all()
    received = played.run.received
    assert (received["age_s"] == 0).groupby(received["receiver"]).sum().min() > 0
    answer = played.answer(table, 400)
    assert re.match(r"Within 19 min, a receiver .* gets [\d.]+ kB, one .* [\d.]+ kB", answer.title)
    assert "Wednesday, 1 May 2024, 06:00:00 to 06:19:00 (UTC)" in answer.text
    html = played.map().get_root().render()
    assert "speed, km/h" in html
    assert html.count("mudkitMap.slides(") == 1
    for name in played.places:
        assert name in html


def test_devices_are_counted_in_the_cells_of_the_page(crossing):
    """Count the 30 people of one moment: no cell holds more, and cells are those of the zoom level."""
    played = play_stretch(crossing, "devices", {"here": (45.1, 7.02)}, zoom=12, interval_s=60, tz="UTC")
    cells = played.run.cells
    assert 1 <= cells["value"].min() <= cells["value"].max() <= 30
    assert cells["km"].iloc[0] == pytest.approx(40_030 * math.cos(math.radians(45.1)) / 2**12, rel=0.01)
    assert "at here" in played.answer(played.table(), 400).title


def test_stretch_that_takes_long_is_shortened(crossing, monkeypatch):
    whole = busiest_positions(crossing, 30.0, 300)
    assert len(whole) == len(crossing)
    monkeypatch.setattr(playing, "MAX_PLAYED", 50_000)
    assert 0 < len(busiest_positions(crossing, 30.0, 300)) < len(crossing)


def test_map_of_many_cells_has_fewer_pictures(crossing, monkeypatch):
    played = play_stretch(crossing, "speed", {"here": (45.1, 7.02)}, zoom=12, interval_s=300, tz="UTC")

    def count():
        text = played.map().get_root().render()
        return len(set(re.findall(r"at ((?:\d+ (?:h|min|s) ?)+)", text)))

    before = count()
    monkeypatch.setattr(playing, "_MAX_CELLS", 3 * len(played.run.cells.groupby(["lat", "lon"])))
    assert (before > 5, count()) == (True, 3)
