"""Stops, trips, fares and speeds: compared with plain loops over the rows of a device."""

import math
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit import trace
from mudkit.trace.movement import FareStream, SpeedStream, StopStream, TripStream, in_order, rows_of
from mudkit.trace.schema import epoch_us, timestamps
from mudkit.units import distance_km

RADIUS_KM, STOP_S, GAP_S, MIN_KM = 0.05, 300.0, 1800.0, 0.2
US = 1_000_000

SECONDS = (0, 1, 30, 60, 60, 299, 300, 1800, 1801, 5000)
NORTH_M = (0.0, 0.0, 0.0, 8.3, -8.3, 31.7, -47.9, 62.1, 400.0)
EAST_M = (0.0, 0.0, 0.0, 11.9, -11.9, 26.3, -400.0)
OCCUPIED = (True, False, True, False, None)

steps = st.tuples(*map(st.sampled_from, (SECONDS, NORTH_M, EAST_M, OCCUPIED)))


def draw_drives(seed):
    """Draw three drives of 60 steps, which Hypothesis seldom finds."""
    random = Random(seed)
    choices = (SECONDS, NORTH_M, EAST_M, OCCUPIED)
    return [[tuple(map(random.choice, choices)) for _ in range(60)] for _ in range(3)]


drives = st.lists(st.lists(steps, min_size=1, max_size=12), min_size=1, max_size=4) | st.integers().map(
    draw_drives
)


def build(devices, lat=40.0, lon=179.999):
    """Build positions from steps of devices: seconds, metres to the north, metres to the east, occupied."""
    rows = []
    for number, drive in enumerate(devices):
        second, north_m, east_m = 1_600_000_000, 0.0, 0.0
        for dt, north, east, occupied in drive:
            second, north_m, east_m = second + dt, north_m + north, east_m + east
            x = lon + east_m / 111_195 / math.cos(math.radians(lat))
            rows.append((f"d{number}", second * US, lat + north_m / 111_195, (x + 180) % 360 - 180, occupied))
    device, t_us, lats, lons, occupied = map(list, zip(*rows, strict=True))
    return pa.table(
        {
            "device": device,
            "ts": timestamps(np.array(t_us)),
            "lat": lats,
            "lon": lons,
            "occupied": pa.array(occupied, pa.bool_()),
        }
    )


def rows_by_device(table):
    """Return the rows of each device in order of time and place, as (seconds, lat, lon, occupied)."""
    devices = {}
    for row in table.to_pylist():
        place = (row["ts"].timestamp(), row["lat"], row["lon"], row["occupied"])
        devices.setdefault(row["device"], []).append(place)
    order = {None: 2, False: 0, True: 1}
    return {
        name: sorted(rows, key=lambda row: (*row[:3], order[row[3]]))
        for name, rows in sorted(devices.items())
    }


def stretches(rows, gap_s):
    """Divide rows where more time passes than `gap_s`."""
    parts = [[rows[0]]]
    for before, row in pairwise(rows):
        if row[0] - before[0] > gap_s:
            parts.append([])
        parts[-1].append(row)
    return parts


def way_km(one, other):
    return float(distance_km(one[1], one[2], other[1], other[2]))


def stays(part):
    """Return the stays of a stretch as first and last number: each at a place that the device moved to."""
    places = [[0, 0]]
    for number in range(1, len(part)):
        anchor = part[places[-1][0]]
        if way_km(anchor, part[number]) >= RADIUS_KM or way_km(part[number - 1], part[number]) >= RADIUS_KM:
            places.append([number, number])
        places[-1][1] = number
    return places


def expected_stops(table):
    for name, rows in rows_by_device(table).items():
        for part in stretches(rows, GAP_S):
            for first, last in stays(part):
                if part[last][0] - part[first][0] >= STOP_S:
                    yield (name, part[first][0], part[last][0], *part[first][1:3], last - first + 1)


def expected_trips(table):
    """Yield trips: the longest sequences of steps of a stretch of which none is within a stop."""
    for name, rows in rows_by_device(table).items():
        for part in stretches(rows, GAP_S):
            still, stops = set(), [s for s in stays(part) if part[s[1]][0] - part[s[0]][0] >= STOP_S]
            for first, last in stops:
                still |= set(range(first + 1, last + 1))
            firsts, lasts = ({stop[end] for stop in stops} for end in (0, 1))
            number = 1
            while number < len(part):
                begin = number - 1
                while (
                    number < len(part)
                    and number not in still
                    and not (number - 1 > begin and number - 1 in firsts)
                ):
                    number += 1
                end = number - 1
                if end == begin:
                    number += 1
                    continue
                length = math.fsum(way_km(*pair) for pair in pairwise(part[begin : end + 1]))
                yield (
                    name,
                    part[begin],
                    part[end],
                    end - begin + 1,
                    length,
                    begin in lasts,
                    end in firsts,
                )


def expected_fares(table):
    for name, rows in rows_by_device(table).items():
        for part in stretches(rows, GAP_S):
            for begin in range(1, len(part)):
                if part[begin][3] is not True or part[begin - 1][3] is not False:
                    continue
                end = next((i for i in range(begin, len(part)) if part[i][3] is not True), None)
                if end is not None and part[end][3] is False:
                    length = math.fsum(way_km(*pair) for pair in pairwise(part[begin : end + 1]))
                    yield name, part[begin], part[end], end - begin + 1, length


def expected_speeds(table, gap_s):
    for name, rows in rows_by_device(table).items():
        for before, row in pairwise(rows):
            if 0 < (dt := row[0] - before[0]) <= gap_s:
                yield name, before, row, dt, way_km(before, row)


def ends_of(row):
    return (
        (row["start_ts"].timestamp(), row["start_lat"], row["start_lon"]),
        (row["end_ts"].timestamp(), row["end_lat"], row["end_lon"]),
    )


@examples(200)
@given(drives)
def test_stops_equal_those_of_a_plain_loop(devices):
    table = build(devices)
    stops = trace.stops(table, radius_km=RADIUS_KM, min_stop_s=STOP_S, max_gap_s=GAP_S).to_pylist()
    shown = [
        (s["device"], s["start_ts"].timestamp(), s["end_ts"].timestamp(), s["lat"], s["lon"], s["positions"])
        for s in stops
    ]
    assert shown == list(expected_stops(table))
    assert all(s["duration_s"] == (s["end_ts"] - s["start_ts"]).total_seconds() for s in stops)


@examples(200)
@given(drives, st.sampled_from([0.0, 0.2]))
def test_trips_equal_those_of_a_plain_loop(devices, min_km):
    table = build(devices)
    options = {"radius_km": RADIUS_KM, "min_stop_s": STOP_S, "max_gap_s": GAP_S}
    trips = trace.trips(table, **options, min_km=min_km).to_pylist()
    expected = [row for row in expected_trips(table) if row[4] >= min_km]
    assert [(t["device"], *ends_of(t), t["positions"], t["from_stop"], t["to_stop"]) for t in trips] == [
        (name, begin[:3], end[:3], count, after, before)
        for name, begin, end, count, _, after, before in expected
    ]
    assert [t["distance_km"] for t in trips] == pytest.approx([row[4] for row in expected], rel=1e-9)
    assert all(t["duration_s"] == (t["end_ts"] - t["start_ts"]).total_seconds() for t in trips)


@examples(200)
@given(drives)
def test_fares_equal_those_of_a_plain_loop(devices):
    table = build(devices)
    fares = trace.trips(table, rule="occupancy", max_gap_s=GAP_S).to_pylist()
    expected = list(expected_fares(table))
    assert [(t["device"], *ends_of(t), t["positions"]) for t in fares] == [
        (name, begin[:3], end[:3], count) for name, begin, end, count, _ in expected
    ]
    assert [t["distance_km"] for t in fares] == pytest.approx(
        [row[4] for row in expected], rel=1e-9, abs=1e-9
    )
    assert {t["from_stop"] for t in fares} | {t["to_stop"] for t in fares} <= {None}


@examples(200)
@given(drives)
def test_speeds_equal_those_of_a_plain_loop(devices):
    table = build(devices)
    speeds = trace.speeds(table, max_gap_s=300.0).to_pylist()
    expected = list(expected_speeds(table, 300.0))
    assert [(s["device"], *ends_of(s), s["duration_s"]) for s in speeds] == [
        (name, begin[:3], end[:3], dt) for name, begin, end, dt, _ in expected
    ]
    assert [s["speed_mps"] * s["duration_s"] / 1000 for s in speeds] == pytest.approx(
        [km for *_, km in expected], rel=1e-12
    )
    assert [s["distance_km"] for s in speeds] == pytest.approx([km for *_, km in expected], rel=1e-12)


STREAMS = {
    "stops": lambda: StopStream(RADIUS_KM, STOP_S, GAP_S),
    "trips": lambda: TripStream(RADIUS_KM, STOP_S, GAP_S, MIN_KM),
    "fares": lambda: FareStream(GAP_S),
    "speeds": lambda: SpeedStream(300.0),
}


@pytest.mark.parametrize("name", STREAMS)
@examples(60)
@given(drives, st.lists(st.integers(0, 180), max_size=12) | st.just(list(range(180))), st.randoms())
def test_results_do_not_depend_on_pieces_or_the_order_of_rows(name, devices, cuts, random):
    """Spark divides the rows of a device anywhere, so results must be the same to the last bit."""
    table = build(devices)
    rows = in_order(rows_of(table, ("occupied",)))
    stream = STREAMS[name]()
    whole = pa.concat_tables([stream.add(rows), stream.finish()])
    order = list(range(len(table)))
    random.shuffle(order)
    shuffled = in_order(rows_of(table.take(order), ("occupied",)))
    stream = STREAMS[name]()
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = [stream.add(shuffled.slice(a, b - a)) for a, b in pairwise(edges)]
    assert pa.concat_tables([*pieces, stream.finish()]).equals(whole)


@examples(100)
@given(drives)
def test_stops_and_trips_of_a_device_take_turns(devices):
    """A trip after a stop begins where and when the stop ends, and one before it ends where it begins."""
    table = build(devices)
    options = {"radius_km": RADIUS_KM, "min_stop_s": STOP_S, "max_gap_s": GAP_S}
    stops, trips = trace.stops(table, **options), trace.trips(table, **options, min_km=0.0)
    begins = set(zip(stops["device"].to_pylist(), epoch_us(stops["start_ts"]).tolist(), strict=True))
    ends = set(zip(stops["device"].to_pylist(), epoch_us(stops["end_ts"]).tolist(), strict=True))
    for trip in trips.to_pylist():
        start, end = (round(trip[name].timestamp() * US) for name in ("start_ts", "end_ts"))
        assert ((trip["device"], start) in ends) >= trip["from_stop"]
        assert ((trip["device"], end) in begins) >= trip["to_stop"]
    spans = sorted(
        (row["device"], row["start_ts"], row["end_ts"])
        for table in (stops, trips)
        for row in table.to_pylist()
    )
    for (one, _, end), (other, begin, _) in pairwise(spans):
        assert one != other or end <= begin
