"""Trace of a lab run, read by the pipeline and its jobs like other traces."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from mudkit import pipeline, trace
from mudkit.cli import app
from mudkit.errors import TraceFormatError
from mudkit.fleet.recorder import TABLES
from mudkit.sources.workloads import Poisson, TripStarts
from mudkit.trace.schema import SCHEMAS, epoch_us, read_ids
from mudkit.worlds import Inboxes

pytestmark = pytest.mark.spark
US = 1_000_000
BOX_KM, WINDOW_S, HORIZON_S = 6.0, 1800.0, 3600.0


@pytest.fixture(scope="module")
def lab():
    """Return an evening run that continues past midnight (UTC): two dates in each table."""
    plan = Inboxes(
        devices=6, hours=4.0, start="2010-03-01T22:00", link="umts_3g", outage=0.3, mobility="commute",
        battery_j=2000.0, every_s=120.0, items=Poisson(per_day=60), reads=Poisson(per_day=60), expires_s=1800.0,
        queries=Poisson(per_day=60), box_km=BOX_KM, window_s=WINDOW_S, loss_share=0.1, repeat_share=0.1,
    )  # fmt: skip
    lab = plan.run(5).lab
    for number in range(20):  # which only a cloud of MUD that learns has
        known = {
            "device": "phone-00000",
            "app": "maps",
            "ts": number * 720_000_000,
            "table": "cars",
            "op": "read",
            "box_km": 2.5,
        }
        lab.trace.add("usage", tuple(known.get(name) for name in SCHEMAS["usage"].names))
    return lab


@pytest.fixture(scope="module")
def folder(lab, tmp_path_factory):
    return lab.trace.to_parquet(tmp_path_factory.mktemp("lab") / "run")


def sort_rows(table):
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_as_recorded(spark, lab, folder, name):
    recorded = lab.trace.table(name)
    assert len(recorded) > 10
    frame = pipeline.read(spark, folder, name)
    assert frame.columns == SCHEMAS[name].names
    table = frame.toArrow()
    assert table.num_rows == len(recorded)
    for field in recorded.schema:  # Spark's columns are nullable
        assert table.schema.field(field.name).type == field.type, field.name
    assert sort_rows(table) == sort_rows(recorded)
    if name not in ("bill", "deliveries"):
        assert sorted(date_folder.name for date_folder in (folder / name).iterdir()) == [
            "date=2010-03-01",
            "date=2010-03-02",
        ]


def test_where_filters_recorded_tables(spark, lab, folder):
    large_count = pipeline.read(
        spark, folder, "transfers", where="NOT cut AND carried_bytes > 400 AND direction = 'up'"
    ).count()
    rows = lab.trace.table("transfers").to_pylist()
    assert large_count == sum(
        not row["cut"] and row["carried_bytes"] > 400 and row["direction"] == "up" for row in rows
    )
    assert 0 < large_count < len(rows)
    down = pipeline.read(spark, folder, "links", where="NOT up").count()
    assert down == lab.trace.table("links")["up"].to_pylist().count(False) > 0
    late_count = pipeline.read(spark, folder, "deliveries", where="latency_s > 60").count()
    waits = lab.trace.table("deliveries")["latency_s"].to_pylist()
    assert late_count == sum(latency_s is not None and latency_s > 60 for latency_s in waits) > 0


def test_missing_table_is_empty_and_unknown_one_refused(spark, folder):
    assert pipeline.read(spark, folder, "rejected").count() == 0
    with pytest.raises(TraceFormatError, match="no such table"):
        pipeline.read(spark, folder, "batteries")


def test_query_labels_match_the_definition(spark, lab, folder):
    """Count from the definition how many points each answer has, and how many an older answer lacks."""
    frames = [pipeline.read(spark, folder, name) for name in ("positions", "reads")]
    labels = pipeline.label_reads(*frames, horizon_s=HORIZON_S).toArrow().to_pylist()
    positions, reads = lab.trace.table("positions"), lab.trace.table("reads")
    t_us, lat, lon = epoch_us(positions["ts"]), positions["lat"].to_numpy(), positions["lon"].to_numpy()

    def find_points(read):
        end = round(read["ts"].timestamp() * US)
        half = read["box_km"] / 2 / (6371.0088 * np.pi / 180)
        inside = np.abs(lat - read["lat"]) <= half
        inside &= np.abs(lon - read["lon"]) <= half / np.cos(np.radians(read["lat"]))
        return {*np.flatnonzero(inside & (t_us > end - WINDOW_S * US) & (t_us <= end)).tolist()}

    rows = reads.to_pylist()
    answers = {row["read_id"]: find_points(row) for row in rows}
    assert len(answers) == len(rows) > 20
    assert {(row["box_km"], row["window_s"], row["origin"]) for row in rows} == {
        (BOX_KM, WINDOW_S, "recorded")
    }
    device = np.array(positions["device"].to_pylist())
    expected = {}
    for q in rows:
        others = answers[q["read_id"]] - {*np.flatnonzero(device == q["device"]).tolist()}
        expected[q["read_id"], None] = len(answers[q["read_id"]]), len(others)
        for p in rows:
            if q["device"] == p["device"] and 0 < (q["ts"] - p["ts"]).total_seconds() <= HORIZON_S:
                missing = len(others - answers[p["read_id"]])
                expected[q["read_id"], p["read_id"]] = len(answers[q["read_id"]]), missing
    actual = {(row["read_id"], row["cached_read_id"]): (row["points"], row["missing"]) for row in labels}
    assert actual == expected
    assert max(points for points, _ in actual.values()) > 30


def test_cells_and_profile_count_the_lab(spark, lab, folder):
    frames = [pipeline.read(spark, folder, name) for name in ("positions", "reads")]
    positions, reads = (lab.trace.table(name) for name in ("positions", "reads"))
    cells = pipeline.cells(*frames, zooms=[10, 14]).toArrow().to_pylist()
    for zoom in (10, 14):
        assert sum(cell["positions"] for cell in cells if cell["zoom"] == zoom) == len(positions)
        assert sum(cell["reads"] for cell in cells if cell["zoom"] == zoom) == len(reads)
    days = pipeline.rows_by_time(*frames, unit="day").toPandas()
    expected = Counter(ts.date() for ts in positions["ts"].to_pylist())
    assert {
        date.date(): count for date, count in zip(days["start"], days["positions"], strict=True)
    } == expected
    assert len(expected) == 2
    steps = pipeline.intervals(frames[0]).toPandas()
    assert steps[["from_s", "intervals"]].to_numpy().tolist() == [
        [64.0, len(positions) - 6]
    ]  # all two minutes


def test_folder_is_loaded_as_a_trace(lab, folder):
    loaded = trace.load(folder)
    by_device = [("device", "ascending"), ("ts", "ascending")]
    assert loaded.positions.equals(lab.trace.table("positions").sort_by(by_device))
    assert sort_rows(loaded.reads) == sort_rows(lab.trace.table("reads"))
    assert loaded.reads["read_id"].to_pylist() == read_ids(loaded.reads).tolist()
    assert len(loaded.rejected) == 0
    assert loaded.source["seed"] == 5
    assert loaded.source["end"] == lab.now.isoformat() == "2010-03-02T02:00:00+00:00"
    assert {name: loaded.source["rows"].get(name, 0) for name in TABLES} == {
        name: len(lab.trace.table(name)) for name in TABLES
    }
    again = loaded.save(folder.parent / "again")
    assert trace.load(again).positions.equals(loaded.positions)


def run_mudkit(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_command_profiles_a_lab_trace(lab, folder):
    lines = dict(
        line.strip().split(maxsplit=1) for line in run_mudkit("trace", "profile", folder).splitlines()
    )
    assert lines["positions"] == f"{len(lab.trace.table('positions')):,}"
    assert lines["reads"] == f"{len(lab.trace.table('reads')):,}"
    assert (lines["rejected"], lines["devices"], lines["format"]) == ("0", "6", "lab")
    assert lines["source"] == "a lab, seed 5"


def test_command_labels_a_lab_trace(spark, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("mudkit.cli.jobs._spark", lambda path: nullcontext(spark))
    output = run_mudkit(
        "pipeline", "label_reads", folder, "--out", tmp_path / "labels", "--horizon-s", HORIZON_S
    )
    written = ds.dataset(tmp_path / "labels", format="parquet").to_table()
    assert f"{len(written):,} rows" in output
    frames = [pipeline.read(spark, folder, name) for name in ("positions", "reads")]
    assert sort_rows(written) == sort_rows(pipeline.label_reads(*frames, horizon_s=HORIZON_S).toArrow())


def test_trip_start_queries_match_trip_starts(spark, tmp_path):
    """Join the reads of a morning in Spark with the device's positions around them."""
    plan = Inboxes(
        devices=30,
        hours=2.0,
        mobility="commute",
        every_s=10.0,
        items=Poisson(per_day=0),
        reads=Poisson(per_day=0),
        queries=TripStarts(),
    )
    lab = plan.run(2, record_messages=False, record_exposure=False).lab
    path = lab.trace.to_parquet(tmp_path / "morning")
    positions, reads = (pipeline.read(spark, path, name) for name in ("positions", "reads"))
    assert reads.count() == len(lab.trace.table("reads")) > 10
    joined = positions.join(reads.select("device", "read_id", reads.ts.alias("asked")), "device").toArrow()
    after_s = pa.compute.divide(
        pa.compute.subtract(joined["ts"], joined["asked"]).cast(pa.int64()), US
    ).to_numpy()
    speed = joined["speed_mps"].to_numpy()
    before = {
        r: s for r, t, s in zip(joined["read_id"].to_pylist(), after_s, speed, strict=True) if -10 <= t < 0
    }
    assert before
    assert {*before.values()} == {0.0}  # stationary before the trip
    drives = {
        r
        for r, t, s in zip(joined["read_id"].to_pylist(), after_s, speed, strict=True)
        if 0 < t < 60 and s > 0
    }
    assert drives == {*reads.toArrow()["read_id"].to_pylist()}
