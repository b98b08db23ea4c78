"""Cells and trace profiles: compared with counts in plain Python."""

import datetime as dt
import math
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from spark_frames import build_reads

from mudkit import pipeline, trace
from mudkit.errors import ParameterError, TraceContentError

pytestmark = pytest.mark.spark
T0 = 1_211_100_000


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rng = np.random.default_rng(3)
    file = tmp_path_factory.mktemp("cells") / "trace.csv"
    lon = (179.99 + rng.normal(0, 0.02, (4, 60)) + 180) % 360 - 180
    rows = [
        f"d{d},{T0 + 600 * i},{37 + rng.normal(0, 0.02):.5f},{lon[d, i]:.5f},{i % 3}"
        for d in range(4)
        for i in range(60)
        if (d + i) % 7
    ]
    file.write_text("\n".join(["device,t,lat,lon,speed_mps", *rows, ""]))
    loaded = trace.load(file)
    reader = build_reads(
        [
            ("reader", row["ts"].timestamp() - T0, row["lat"], row["lon"], 1.0, 60.0)
            for row in loaded.positions.slice(0, 3).to_pylist()
        ]
    )
    return replace(loaded, reads=pa.concat_tables([loaded.reads, reader]))


@pytest.fixture(scope="module")
def frames(spark, small, tmp_path_factory):
    folder = small.save(tmp_path_factory.mktemp("cells") / "trace")
    return pipeline.read(spark, folder, "positions"), pipeline.read(spark, folder, "reads")


def compute_tile(lat, lon, zoom):
    """Return the tile of a place by the definition of Web Mercator tiles."""
    n = 2**zoom
    phi = math.radians(lat)
    y = (1 - math.log(math.tan(phi) + 1 / math.cos(phi)) / math.pi) / 2
    return int((lon + 180) / 360 * n), int(y * n)


def test_cell_counts_match_plain_python(frames, small):
    cells = pipeline.cells(*frames, zooms=[8, 13], bucket_s=7200).toArrow().to_pylist()
    positions, devices, reads, speeds = Counter(), defaultdict(set), Counter(), defaultdict(list)
    for zoom in (8, 13):
        for table, count in ((small.positions, positions), (small.reads, reads)):
            for row in table.to_pylist():
                bucket = int(row["ts"].timestamp()) // 7200 * 7200
                key = (zoom, *compute_tile(row["lat"], row["lon"], zoom), bucket)
                count[key] += 1
                if "speed_mps" in row:
                    devices[key].add(row["device"])
                    speeds[key].append(row["speed_mps"])
    assert len(cells) == len(positions | reads)
    for row in cells:
        key = (row["zoom"], row["x"], row["y"], int(row["bucket_ts"].timestamp()))
        assert row["positions"] == positions[key]
        assert row["reads"] == reads[key]
        assert row["devices"] == len(devices[key])
        if speeds[key]:
            assert row["mean_speed_mps"] == pytest.approx(np.mean(speeds[key]))
        assert compute_tile(row["lat"], row["lon"], row["zoom"]) == key[1:3]  # the centre lies in the cell


def test_poles_and_date_line_have_cells(spark):
    schema = "device STRING, ts TIMESTAMP, lat DOUBLE, lon DOUBLE, speed_mps DOUBLE"
    now = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    rows = [("a", now, lat, lon, None) for lat in (-90.0, 90.0) for lon in (-180.0, 180.0)]
    cells = pipeline.cells(spark.createDataFrame(rows, schema), zooms=[3]).toArrow().to_pylist()
    assert {(row["x"], row["y"]) for row in cells} == {(0, 0), (7, 0), (0, 7), (7, 7)}
    assert {row["mean_speed_mps"] for row in cells} == {None}


@pytest.mark.parametrize("unit", ["day", "hour"])
def test_rows_by_time_use_local_time(frames, small, unit):
    zone = ZoneInfo("Pacific/Auckland")
    table = pipeline.rows_by_time(*frames, unit=unit, tz="Pacific/Auckland").toPandas()
    expected, devices = Counter(), defaultdict(set)
    for row in small.positions.to_pylist():
        local = row["ts"].astimezone(zone).replace(minute=0, second=0, microsecond=0, tzinfo=None)
        start = local.replace(hour=0) if unit == "day" else local
        expected[start] += 1
        devices[start].add(row["device"])
    assert dict(zip(table["start"], table["positions"], strict=True)) == expected
    assert table["reads"].sum() == len(small.reads)
    counts = {start: len(names) for start, names in devices.items()}  # with a position, as in cells
    assert dict(zip(table["start"], table["devices"], strict=True)) == counts


@pytest.mark.parametrize("wrong", [{"unit": "hours"}, {"unit": "day", "tz": "Mars/Olympus"}])
def test_rows_by_time_refuses_unknown_units_and_zones(frames, wrong):
    with pytest.raises(ParameterError):
        pipeline.rows_by_time(*frames, **wrong)


def test_intervals_match_plain_python(frames, small):
    expected = Counter()
    rows = small.positions.to_pylist()
    for before, row in pairwise(rows):
        if before["device"] == row["device"]:
            expected[2 ** int(math.log2((row["ts"] - before["ts"]).total_seconds()))] += 1
    table = pipeline.intervals(frames[0]).toPandas()
    assert dict(zip(table["from_s"], table["intervals"], strict=True)) == expected
    assert (table["to_s"] == 2 * table["from_s"]).all()
    assert len(expected) > 1


def test_invalid_input_is_refused(frames):
    with pytest.raises(ParameterError, match="zoom"):
        pipeline.cells(*frames, zooms=[23])
    with pytest.raises(ParameterError, match="zoom"):
        pipeline.cells(*frames, zooms=[-1])
    with pytest.raises(ParameterError, match="bucket"):
        pipeline.cells(*frames, bucket_s=0)
    pipeline.cells(*frames, zooms=[0, 22], bucket_s=1)  # the limits that the docstring allows
    with pytest.raises(TraceContentError, match="speed_mps"):
        pipeline.cells(frames[1])


@pytest.mark.parametrize("unit", ["day", "hour"])
def test_local_time_does_not_depend_on_the_zone_of_the_session(spark, frames, unit):
    rows = [
        pipeline.rows_by_time(*frames, unit=unit, tz="Pacific/Auckland").toArrow()
        for zone in ("UTC", "America/New_York")
        if spark.conf.set("spark.sql.session.timeZone", zone) is None
    ]
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert rows[0].equals(rows[1])


SCHEMA = "device STRING, ts TIMESTAMP, lat DOUBLE, lon DOUBLE, speed_mps DOUBLE"
NOW = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def odd_places(spark):
    """Return positions of which three have a place, six have none, and one has no time."""
    places = [(0.5, 0.5)] * 3 + [
        (None, 0.5),
        (0.5, None),
        (math.nan, 0.5),
        (0.5, math.inf),
        (91.0, 0.5),
        (0.5, 181.0),
    ]
    rows = [(f"d{number % 2}", NOW, *place, None) for number, place in enumerate(places)]
    return spark.createDataFrame([*rows, ("d0", None, 0.5, 0.5, None)], SCHEMA)


def test_rows_without_a_place_or_a_time_are_counted_as_such(odd_places):
    cells = pipeline.cells(odd_places, zooms=[3], bucket_s=3600).toArrow().to_pylist()
    counted = {(row["x"], row["lat"] is None, row["bucket_ts"]): row["positions"] for row in cells}
    assert counted == {(4, False, NOW): 3, (None, True, NOW): 6, (4, False, None): 1}
    sent = pipeline.propagation(odd_places, zooms=[3], thresholds=(2,)).toArrow().to_pylist()
    queues = {(row["x"], row["interval_ts"]): (row["messages_in"], row["aggregates_out"]) for row in sent}
    assert queues == {(4, NOW): (3, 2), (None, NOW): (6, 6), (4, None): (1, 1)}


@pytest.mark.parametrize("kind", ["timestamp_ntz", "string"])
def test_times_without_a_zone_are_refused(odd_places, kind):
    local = odd_places.withColumn("ts", odd_places["ts"].cast(kind))
    with pytest.raises(TraceContentError, match=f"(?s)no zone.*{kind}.*Europe/Bucharest"):
        pipeline.cells(local)
    with pytest.raises(TraceContentError, match="no zone"):
        pipeline.rows_by_time(odd_places, local, unit="day")


CELL_KEYS = [(name, "ascending") for name in ("zoom", "x", "y", "bucket_ts")]


def assert_same_cells(ours, local):
    ours = ours.sort_by(CELL_KEYS)
    exact = ["zoom", "x", "y", "bucket_ts", "positions", "devices", "reads"]
    assert ours.column_names == local.column_names
    assert ours.select(exact).cast(local.select(exact).schema).equals(local.select(exact))
    for name in ("lat", "lon", "mean_speed_mps"):
        assert ours[name].is_valid().equals(local[name].is_valid())
        assert ours[name].drop_null().to_numpy() == pytest.approx(
            local[name].drop_null().to_numpy(), rel=1e-12
        )


def test_local_cells_equal_those_of_spark(frames, small):
    options = {"zooms": [13, 0, 22, 8, 8], "bucket_s": 7200}
    local = trace.cells(small, **options)
    assert_same_cells(pipeline.cells(*frames, **options).toArrow(), local)
    assert local.equals(trace.cells(small.positions, small.reads, **options))
    assert set(local["zoom"].to_pylist()) == {0, 8, 13, 22}
    without = trace.cells(small.positions, **options)
    assert_same_cells(pipeline.cells(frames[0], **options).toArrow(), without)


def test_local_cells_of_odd_places_equal_those_of_spark(odd_places):
    table = odd_places.toArrow()
    local = trace.cells(table, zooms=[3, 11])
    assert_same_cells(pipeline.cells(odd_places, zooms=[3, 11]).toArrow(), local)
    assert None in local["x"].to_pylist()
    assert None in local["bucket_ts"].to_pylist()


@pytest.mark.parametrize("zooms", [[], [3.0], [23], [True], "12", 12])
def test_unusable_levels_are_refused_by_both(frames, small, zooms):
    for call in (lambda: pipeline.cells(*frames, zooms=zooms), lambda: trace.cells(small, zooms=zooms)):
        with pytest.raises(ParameterError, match=r"zoom levels are not usable(.|\n)*from 0 to 22"):
            call()
    with pytest.raises(ParameterError, match=r"bucket_s"):
        trace.cells(small, bucket_s=0.5)
