"""Stops and trips: recomputed with pandas, and by hand on a trace that is known."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit.report.source import TraceSource
from mudkit.report.stays import find_stays, places, silences
from mudkit.trace.schema import POSITIONS, timestamps


def build(rows):
    """Build a trace of rows: device, seconds, metres to the north."""
    device, second, north_m = zip(*rows, strict=True)
    positions = pa.table(
        {
            "device": device,
            "ts": timestamps((1_600_000_000 + np.array(second)) * 1_000_000),
            "lat": 40.0 + np.array(north_m) / 111_195.0,
            "lon": np.full(len(rows), 8.0),
            "speed_mps": pa.nulls(len(rows), pa.float64()),
        },
        schema=POSITIONS,
    )
    counts = pd.DataFrame({"what": ["positions"], "rows": [len(rows)]})
    return TraceSource("made.csv", positions, _no_reads(), counts, "UTC")


def _no_reads():
    from mudkit.trace.schema import READS

    return READS.empty_table()


def test_drive_between_two_stops_is_a_trip():
    still = [("a", 60 * minute, 0) for minute in range(11)]
    drive = [("a", 600 + 60 * minute, 600 * minute) for minute in range(1, 6)]
    rest = [("a", 900 + 60 * minute, 3000) for minute in range(1, 11)]
    stops, trips = find_stays(build([*still, *drive, *rest]))
    assert stops["stop_s"].tolist() == [600.0, 600.0]
    assert len(trips) == 1
    assert trips["trip_s"][0] == 300.0
    assert trips["trip_km"][0] == pytest.approx(3.0, rel=1e-3)
    assert trips["speed_mps"][0] == pytest.approx(10.0, rel=1e-3)
    assert trips["stop_ends"].tolist() == [2]


def test_silence_ends_a_trip_and_no_stop_is_made_of_it():
    first = [("a", 60 * minute, 600 * minute) for minute in range(5)]
    later = [("a", 86_400 + 60 * minute, 2400 + 600 * minute) for minute in range(5)]
    stops, trips = find_stays(build([*first, *later]))
    assert len(stops) == 0
    assert trips["trip_s"].tolist() == [240.0, 240.0]
    assert trips["stop_ends"].tolist() == [0, 0]


def test_silences_say_how_long_and_how_far_apart_their_ends_are():
    rows = [("a", 0, 0), ("a", 1800, 0), ("a", 5400, 300), ("b", 9999, 0), ("b", 12_000, 7000)]
    table = silences(build(rows))
    assert table["silence_s"].tolist() == [3600.0, 2001.0]
    assert table["moved_km"].tolist() == pytest.approx([0.3, 7.0], rel=1e-3)


def test_trace_without_movement_has_no_trips():
    stops, trips = find_stays(build([("a", 60 * minute, 0) for minute in range(10)]))
    assert (len(stops), len(trips)) == (1, 0)
    table = places(stops)
    assert table["stop_s"].tolist() == [540.0]


def test_place_is_the_mean_of_its_stops_by_their_time():
    """See :func:`places`: a stop counts as much as it lasts, and the place with most time comes first."""
    stops = pd.DataFrame(
        {
            "device": ["a", "b", "b"],
            "lat": [40.00001, 40.00005, 41.0],
            "lon": [8.00005, 8.00001, 9.0],
            "stop_s": [300.0, 900.0, 600.0],
        }
    )
    first, second = places(stops).to_dict("records")
    assert (first["stops"], first["devices"], first["stop_s"]) == (2, 2, 1200.0)
    assert (first["lat"], first["lon"]) == pytest.approx((40.00004, 8.00002), abs=1e-8)
    assert (second["lat"], second["lon"], second["stop_s"]) == pytest.approx((41.0, 9.0, 600.0))


def test_stops_and_trips_equal_those_of_a_plain_loop():
    """Compare with a walk over the rows, which shares nothing with the search."""
    rng = np.random.default_rng(5)
    rows = []
    for device in "abc":
        second, north_m = 0, 0.0
        for _ in range(3000):
            second += int(rng.choice([30, 60, 60, 2400], p=[0.4, 0.3, 0.29, 0.01]))
            north_m += rng.choice([0.0, 5.0, 300.0], p=[0.5, 0.3, 0.2])
            rows.append((device, second, north_m))
    stops, trips = find_stays(build(rows))
    stop_s, trip_s, trip_m = [], [], []
    for _, part in pd.DataFrame(rows, columns=["device", "s", "m"]).groupby("device"):
        for _, run in part.groupby((part["s"].diff() > 1800).cumsum()):
            anchors, last = [run.iloc[0]], [run.iloc[0]["s"]]
            for row in run.iloc[1:].to_dict("records"):
                if row["m"] - anchors[-1]["m"] >= 50.0:
                    anchors.append(row)
                    last.append(row["s"])
                last[-1] = row["s"]
            is_stop = [end - anchor["s"] >= 300 for anchor, end in zip(anchors, last, strict=True)]
            stop_s += [end - a["s"] for a, end, stops_ in zip(anchors, last, is_stop, strict=True) if stops_]
            begin = run.iloc[0]
            ends = [(a, end) for a, end, stops_ in zip(anchors, last, is_stop, strict=True) if stops_]
            ends.append((run.iloc[-1], run.iloc[-1]["s"]))
            for anchor, end in ends:
                if anchor["m"] - begin["m"] >= 500.0:
                    trip_s.append(anchor["s"] - begin["s"])
                    trip_m.append(anchor["m"] - begin["m"])
                begin = run[run["s"] == end].iloc[0]
    assert sorted(stops["stop_s"]) == sorted(map(float, stop_s))
    assert sorted(trips["trip_s"]) == sorted(map(float, trip_s))
    assert sorted(trips["trip_km"] * 1000) == pytest.approx(sorted(trip_m), rel=1e-3)
