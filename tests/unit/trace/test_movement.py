"""Refusals of stops, trips and speeds, and what is taken besides tables in order."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit import trace, words
from mudkit.errors import ParameterError, TraceContentError
from mudkit.trace.schema import SPEEDS, STOPS, TRIPS, timestamps

FUNCTIONS = {"stops": trace.stops, "trips": trace.trips, "speeds": trace.speeds}
T0 = 1_600_000_000


def build(**columns):
    """Build 30 positions: ten minutes at one place, ten minutes of driving, ten at another."""
    minute = np.arange(30)
    lat = 40 + 0.01 * np.clip(minute - 10, 0, 10)
    given = {
        "device": ["a"] * 30,
        "ts": timestamps((T0 + 60 * minute) * 1_000_000),
        "lat": lat,
        "lon": [8.0] * 30,
    }
    return pa.table(given | columns)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tables_without_a_column_a_zone_or_numbers_are_refused(name):
    function = FUNCTIONS[name]
    with pytest.raises(TraceContentError, match=r"found:\s+device, ts, lat\n\s+expected:\s+lon\n"):
        function(build().drop_columns(["lon"]))
    naive = pa.array([dt.datetime(2020, 1, 1)] * 30, pa.timestamp("us"))
    with pytest.raises(TraceContentError, match=r"timestamp\[us\](.|\n)*assume_timezone"):
        function(build(ts=naive))
    with pytest.raises(TraceContentError, match=r"column ts is of another type(.|\n)*int64"):
        function(build(ts=pa.array(range(30))))
    with pytest.raises(TraceContentError, match=r"column lat is of another type(.|\n)*string"):
        function(build(lat=["40.0"] * 30))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_frames_of_other_libraries_are_refused_with_what_to_call(name):
    with pytest.raises(ParameterError, match=r"DataFrame(.|\n)*mudkit\.pipeline(.|\n)*from_pandas"):
        FUNCTIONS[name](pd.DataFrame({"device": ["a"]}))


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("stops", "radius_km", 0.0),
        ("stops", "radius_km", float("nan")),
        ("stops", "min_stop_s", 0),
        ("stops", "max_gap_s", -1.0),
        ("trips", "min_km", -0.1),
        ("trips", "max_gap_s", True),
        ("speeds", "max_gap_s", "600"),
    ],
)
def test_parameters_out_of_range_are_refused(name, option, value):
    with pytest.raises(ParameterError, match=rf"where:\s+{option}"):
        FUNCTIONS[name](build(), **{option: value})


def test_occupancy_needs_truth_values():
    with pytest.raises(TraceContentError, match=r"expected:\s+occupied"):
        trace.trips(build(), rule="occupancy")
    with pytest.raises(TraceContentError, match=r"column occupied is of another type"):
        trace.trips(build(occupied=[1] * 30), rule="occupancy")
    with pytest.raises(ParameterError, match="did you mean 'occupancy'"):
        trace.trips(build(), rule="ocupancy")


def test_rows_without_a_device_a_time_or_a_possible_place_are_passed_over():
    whole = build()
    bad = pa.table(
        {
            "device": pa.array([None, "a", "a", "a", "a", "a"]),
            "ts": pa.array([T0 * 10**6, None, *[(T0 + 900) * 10**6] * 4]).cast(pa.timestamp("us", "UTC")),
            "lat": pa.array([40.0, 40.0, None, float("nan"), 90.1, 40.0]),
            "lon": pa.array([8.0, 8.0, 8.0, 8.0, 8.0, -180.5]),
        }
    )
    for function in FUNCTIONS.values():
        assert function(pa.concat_tables([bad, whole])).equals(function(whole))


def test_devices_as_dictionaries_and_times_in_nanoseconds_are_the_same_rows():
    whole = build()
    other = whole.set_column(0, "device", whole["device"].dictionary_encode())
    other = other.set_column(1, "ts", whole["ts"].cast(pa.timestamp("ns", "Asia/Kathmandu")))
    other = other.set_column(3, "lon", whole["lon"].cast(pa.float32()))
    for function in FUNCTIONS.values():
        assert function(other).equals(function(whole))


def test_loaded_trace_has_the_rows_of_its_positions():
    loaded = trace.Loaded(build(speed_mps=pa.nulls(30, pa.float64())), None, None)
    for name, function in FUNCTIONS.items():
        assert function(loaded).equals(function(build())), name


def test_stops_and_the_trip_between_them_by_hand():
    stops, trips = trace.stops(build()).to_pylist(), trace.trips(build()).to_pylist()
    assert [(stop["duration_s"], stop["positions"], stop["lat"]) for stop in stops] == [
        (600.0, 11, 40.0),
        (540.0, 10, 40.1),
    ]
    (trip,) = trips
    assert (trip["start_ts"], trip["end_ts"]) == (stops[0]["end_ts"], stops[1]["start_ts"])
    assert (trip["from_stop"], trip["to_stop"], trip["positions"]) == (True, True, 11)
    assert trip["duration_s"] == 600.0
    assert trip["distance_km"] == pytest.approx(0.1 * 111.195, rel=1e-5)


def test_speeds_and_a_fare_by_hand():
    """A fare lasts from the first position with one to the first without (`trace.trips`)."""
    speeds = trace.speeds(build()).to_pylist()
    assert len(speeds) == 29
    assert {speed["duration_s"] for speed in speeds} == {60.0}
    assert [speed["speed_mps"] for speed in speeds] == pytest.approx(
        10 * [0.0] + 10 * [0.01 * 111_195 / 60] + 9 * [0.0], rel=1e-4, abs=1e-9
    )
    occupied = [12 <= minute < 18 for minute in range(30)]
    (trip,) = trace.trips(build(occupied=occupied), rule="occupancy").to_pylist()
    assert (trip["start_ts"].timestamp() - T0, trip["end_ts"].timestamp() - T0) == (12 * 60, 18 * 60)


def test_columns_have_labels_with_units():
    labels = {name: words.label(name).title for schema in (STOPS, TRIPS, SPEEDS) for name in schema.names}
    assert labels["speed_mps"] == "speed, m/s"
    assert labels["duration_s"] == "duration, s"
    assert labels["start_ts"] == "begin"
    assert not [title for title in labels.values() if "_" in title or " ts" in title]
