"""Tables derived device by device: the rows of the local functions, and those of DuckDB."""

import datetime as dt
import json
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from spark_frames import frame

from mudkit import pipeline, trace
from mudkit.errors import ParameterError, TraceContentError, TraceFormatError
from mudkit.pipeline import derived
from mudkit.trace.schema import timestamps

pytestmark = pytest.mark.spark
T0 = 1_600_000_000
KEYS = [("device", "ascending"), ("start_ts", "ascending"), ("end_ts", "ascending")]


@pytest.fixture(scope="module")
def given():
    """Build 40,000 rows in random order; half of them of one device, some without a device, time or place."""
    rng = np.random.default_rng(11)
    count = 40_000
    device = np.where(rng.random(count) < 0.5, "hot", np.char.add("d", (np.arange(count) % 30).astype(str)))
    second = np.sort(rng.integers(0, 400_000, count))
    moves = rng.choice([0.0, 0.00005, 0.0003, 0.004], (2, count), p=[0.6, 0.2, 0.15, 0.05])
    steps = moves * rng.choice([-1, 1], (2, count))
    lat, lon = np.zeros((2, count))
    for name in np.unique(device):
        mine = device == name
        lat[mine], lon[mine] = 40 + np.cumsum(steps[0, mine]), 179.99 + np.cumsum(steps[1, mine])
    lon = (lon + 180) % 360 - 180
    lat[rng.integers(0, count, 50)] = np.nan
    lon[rng.integers(0, count, 50)] = 200.0
    table = pa.table(
        {
            "device": pa.array(device, mask=rng.random(count) < 0.001),
            "ts": pa.array(
                (T0 + second) * 1_000_000, pa.timestamp("us", "UTC"), mask=rng.random(count) < 0.001
            ),
            "lat": lat,
            "lon": pa.array(lon, mask=rng.random(count) < 0.001),
            "occupied": pa.array(rng.random(count) < 0.4, mask=rng.random(count) < 0.05),
        }
    )
    return table.take(rng.permutation(count))


@pytest.fixture(scope="module")
def positions(spark, given, tmp_path_factory):
    return frame(spark, given, tmp_path_factory.mktemp("derived") / "positions.parquet").repartition(7)


CALLS = {
    "stops": {"radius_km": 0.1, "min_stop_s": 200.0},
    "trips": {"radius_km": 0.1, "min_stop_s": 200.0, "max_gap_s": 900.0, "min_km": 0.3},
    "trips by occupancy": {"rule": "occupancy", "max_gap_s": 3000.0},
    "speeds": {"max_gap_s": 400.0},
}


@pytest.mark.parametrize("call", CALLS)
def test_spark_and_local_functions_return_the_same_rows(call, positions, given):
    name = call.split()[0]
    local = getattr(trace, name)(given, **CALLS[call])
    ours = getattr(pipeline, name)(positions, **CALLS[call]).toArrow()
    assert ours.column_names == local.column_names
    assert len(local) > 100
    assert "hot" in local["device"].to_pylist()
    assert ours.cast(local.schema).sort_by(KEYS).equals(local.sort_by(KEYS))


def test_rows_of_a_device_are_together_and_in_order_of_time(positions):
    rows = pipeline.speeds(positions).select("device", "start_ts").toArrow().to_pylist()
    devices = [row["device"] for row in rows]
    firsts = [name for number, name in enumerate(devices) if not number or devices[number - 1] != name]
    assert len(firsts) == len(set(firsts))
    for one, other in pairwise(rows):
        assert one["device"] != other["device"] or one["start_ts"] < other["start_ts"]


def test_speeds_equal_those_of_duckdb(positions, given):
    """The window function and the haversine of another program, over all usable rows."""
    rows = duckdb.sql(
        """
        WITH usable AS (
            SELECT *, radians(lat) AS y, radians(lon) AS x FROM given
            WHERE device IS NOT NULL AND ts IS NOT NULL AND lat BETWEEN -90 AND 90 AND lon BETWEEN -180 AND 180
        ), pairs AS (
            SELECT device, lag(ts) OVER w AS start_ts, ts AS end_ts, y, x, lag(y) OVER w AS y0, lag(x) OVER w AS x0
            FROM usable WINDOW w AS (PARTITION BY device ORDER BY ts, lat, lon)
        )
        SELECT device, epoch_us(start_ts) AS start_us, epoch_us(end_ts) AS end_us,
            2 * 6371.0088 * asin(sqrt(sin((y - y0) / 2) ** 2 + cos(y) * cos(y0) * sin((x - x0) / 2) ** 2)) AS km
        FROM pairs WHERE epoch_us(end_ts) - epoch_us(start_ts) BETWEEN 1 AND 600000000
        ORDER BY device, start_us
        """
    ).fetchall()
    ours = (
        pipeline.speeds(positions)
        .select("device", F.unix_micros("start_ts"), F.unix_micros("end_ts"), "distance_km", "speed_mps")
        .orderBy("device", "start_ts")
        .collect()
    )
    assert [tuple(row)[:3] for row in ours] == [row[:3] for row in rows]
    km = np.array([row[3] for row in rows])
    assert np.array([row[3] for row in ours]) == pytest.approx(km, abs=1e-9)
    seconds = np.array([(row[2] - row[1]) / 1e6 for row in rows])
    assert np.array([row[4] for row in ours]) == pytest.approx(1000 * km / seconds, abs=1e-6)


def test_stops_do_not_depend_on_the_zone_of_the_session(spark, positions, given):
    zone = spark.conf.get("spark.sql.session.timeZone")
    local = trace.stops(given)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        ours = pipeline.stops(positions).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert ours.cast(local.schema).sort_by(KEYS).equals(local.sort_by(KEYS))


@pytest.mark.parametrize("name", ["stops", "trips", "speeds"])
def test_tables_without_a_column_or_a_zone_are_refused(name, spark):
    function = getattr(pipeline, name)
    with pytest.raises(TraceContentError, match=r"expected:\s+lat, lon"):
        function(spark.createDataFrame([("a", dt.datetime(2020, 1, 1))], "device STRING, ts TIMESTAMP"))
    rows = [("a", dt.datetime(2020, 1, 1), 1.0, 2.0)]
    with pytest.raises(TraceContentError, match="have no zone"):
        function(spark.createDataFrame(rows, "device STRING, ts TIMESTAMP_NTZ, lat DOUBLE, lon DOUBLE"))
    with pytest.raises(TraceContentError, match=r"column lat is of another type(.|\n)*cast\('double'\)"):
        texts = [("a", dt.datetime(2020, 1, 1), "1.0", 2.0)]
        function(spark.createDataFrame(texts, "device STRING, ts TIMESTAMP, lat STRING, lon DOUBLE"))


def test_occupancy_needs_its_column(positions):
    with pytest.raises(TraceContentError, match=r"expected:\s+occupied"):
        pipeline.trips(positions.drop("occupied"), rule="occupancy")
    with pytest.raises(ParameterError, match="stops, occupancy"):
        pipeline.trips(positions, rule="ocupancy")


def test_devices_may_be_numbers_and_places_integers(spark):
    rows = [(7, T0 + 60 * i, 40, 8 + i // 20) for i in range(40)]
    frame = spark.createDataFrame(rows, "device INT, t BIGINT, lat INT, lon INT").select(
        "device", F.timestamp_seconds("t").alias("ts"), "lat", "lon"
    )
    stops = pipeline.stops(frame).toArrow().to_pylist()
    assert [(stop["device"], stop["lon"], stop["duration_s"]) for stop in stops] == [
        ("7", 8.0, 1140.0),
        ("7", 9.0, 1140.0),
    ]


def test_table_without_rows_has_no_results(spark):
    empty = spark.createDataFrame([], "device STRING, ts TIMESTAMP, lat DOUBLE, lon DOUBLE, occupied BOOLEAN")
    for call, options in CALLS.items():
        assert getattr(pipeline, call.split()[0])(empty, **options).toArrow().num_rows == 0
    table = pa.table(
        {"device": pa.array([], pa.string()), "ts": timestamps(np.zeros(0, np.int64)), "lat": [], "lon": []}
    )
    lat = pa.array([], pa.float64())
    table = table.set_column(2, "lat", lat).set_column(3, "lon", lat)
    assert [len(getattr(trace, name)(table)) for name in ("stops", "trips", "speeds")] == [0, 0, 0]


AREAS = {
    "type": "FeatureCollection",
    "features": [
        {"type": "Feature", "id": name, "geometry": {"type": "Polygon", "coordinates": rings}}
        for name, rings in {
            "all": [[[179, 39], [181, 39], [181, 41], [179, 41], [179, 39]]],
            "east": [[[-180, 39.9], [-179.9, 39.9], [-179.9, 40.2], [-180, 39.9]]],
            "holed": [
                [[179.8, 39.8], [180, 39.8], [180, 40.2], [179.8, 40.2], [179.8, 39.8]],
                [[179.9, 39.9], [179.9, 40.1], [179.99, 40.1], [179.99, 39.9], [179.9, 39.9]],
            ],
        }.items()
    ]
    + [{"type": "Feature", "geometry": None}],
}


def test_spark_and_local_joins_return_the_same_rows(spark, given, tmp_path):
    """Columns of any type pass through; the file is read on this machine only."""
    table = given.append_column("n", pa.array(range(len(given))))
    table = table.append_column("tags", pa.array([["a", None]] * len(given)))
    file = tmp_path / "areas.geojson"
    file.write_text(json.dumps(AREAS))
    positions = frame(spark, table, tmp_path / "positions.parquet").repartition(5)
    joined = pipeline.join(positions, file)
    file.unlink()
    order = [("n", "ascending"), ("area_number", "ascending")]
    ours = joined.toArrow().sort_by(order).drop_columns("lat")  # NaN equals nothing
    local = trace.join(table, AREAS).drop_columns("lat")
    assert joined.schema.fields[:-2] == positions.schema.fields
    assert ours.cast(local.schema).equals(local.sort_by(order))
    assert {*local["area"].to_pylist()} == {"all", "east", "holed", None}
    assert len(local) > len(table)


def test_trips_are_joined_by_both_ends(positions):
    trips = pipeline.trips(positions, radius_km=0.1, min_stop_s=200.0, max_gap_s=900.0)
    begins = pipeline.join(trips, AREAS, places=("start_lat", "start_lon")).withColumnsRenamed(
        {"area": "start_area", "area_number": "start_number"}
    )
    counted = (
        pipeline.join(begins, AREAS, places=("end_lat", "end_lon")).groupBy("start_area", "area").count()
    )
    counts = {(row[0], row[1]): row[2] for row in counted.collect()}
    assert counts["all", "all"] >= counts["all", "east"] > 0


def test_joins_that_cannot_be_done_are_refused_before_they_run(positions, tmp_path, monkeypatch):
    with pytest.raises(TraceContentError, match=r"expected:\s+start_lat"):
        pipeline.join(positions, AREAS, places=("start_lat", "lon"))
    with pytest.raises(TraceContentError, match="columns of areas already"):
        pipeline.join(positions.withColumn("area", F.lit("a")), AREAS)
    with pytest.raises(TraceContentError, match=r"column lat is of another type(.|\n)*cast\('double'\)"):
        pipeline.join(positions.withColumn("lat", F.col("lat").cast("string")), AREAS)
    with pytest.raises(TraceFormatError, match="Feature 1 of areas is not usable"):
        pipeline.join(positions, {**AREAS, "features": [7]})
    monkeypatch.setattr(derived, "_MAX_CORNERS", 5)
    with pytest.raises(ParameterError, match=r"corners(.|\n)*up to 5(.|\n)*simplify"):
        pipeline.join(positions, AREAS)
