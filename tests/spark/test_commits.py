"""Outputs of Spark: what is written is counted, and what changes, is lost or is not seen is an error."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit import pipeline, trace
from mudkit.errors import InputMissing, OutputExists, OutputProblem, TraceContentError
from mudkit.pipeline import _ingest, inputs, tasks
from mudkit.pipeline.commits import Part

pytestmark = pytest.mark.spark
T0 = 1_211_100_000
ROWS = [
    f"{cab},{T0 + 40_000 * day + 60 * i},{37 + i / 1000},-122.4,{i % 2}"
    for cab in ("a", "b", "c", "d")
    for day in range(4)
    for i in range(50)
]


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


def read_result(out):
    """Return the manifest, and the table of the folder as other programs read it."""
    manifest = json.loads((out / "_manifest.json").read_text())
    assert list_names(out) == sorted(["_manifest.json", *(file["name"] for file in manifest["files"])])
    assert all((out / file["name"]).stat().st_size == file["bytes"] for file in manifest["files"])
    assert all(pq.read_metadata(out / file["name"]).num_rows == file["rows"] for file in manifest["files"])
    return manifest, ds.dataset(out, format="parquet").to_table()


def test_write_counts_its_rows_and_keeps_all_types(spark, tmp_path):
    """scale.md: rows in are rows out; times are microseconds in UTC, whatever the zone of the session."""
    frame = spark.range(0, 1000, 1, 3).select(
        "id",
        F.timestamp_seconds(F.col("id") + T0).alias("ts"),
        F.timestamp_seconds("id").cast("timestamp_ntz").alias("clock"),
        F.when(F.col("id") % 2 == 0, F.col("id").cast("string")).alias("text"),
        F.struct(F.col("id").alias("a"), F.timestamp_seconds("id").alias("at")).alias("inner"),
        F.array(F.lit(1.5), F.lit(None)).alias("numbers"),
        F.lit(dt.date(2008, 5, 18)).alias("day"),
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = pipeline.write(frame, tmp_path / "out")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    manifest, table = read_result(tmp_path / "out")
    assert (rows, manifest["rows"], len(table)) == (1000, 1000, 1000)
    assert len(manifest["files"]) == 1  # no more than are needed
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert table["id"].to_pylist() == list(range(1000))  # in the order of the partitions
    assert [int(ts.timestamp()) for ts in table["ts"].to_pylist()] == list(range(T0, T0 + 1000))
    expected = spark.read.parquet(str(tmp_path / "out"))
    assert expected.schema.simpleString() == frame.schema.simpleString()
    assert expected.exceptAll(frame).isEmpty()
    assert list_names(tmp_path) == ["out"]


def test_write_without_rows_keeps_the_columns(spark, tmp_path):
    frame = spark.createDataFrame([], "device STRING, ts TIMESTAMP")
    assert pipeline.write(frame, tmp_path / "out") == 0
    manifest, table = read_result(tmp_path / "out")
    assert (manifest["rows"], table.schema.names) == (0, ["device", "ts"])
    with pytest.raises(OutputExists):
        pipeline.write(frame, tmp_path / "out")
    assert pipeline.write(spark.range(5), tmp_path / "out", overwrite=True) == 5
    assert read_result(tmp_path / "out")[1]["id"].to_pylist() == list(range(5))


def test_failed_write_leaves_the_old_result(spark, tmp_path):
    pipeline.write(spark.range(5), tmp_path / "out")
    bad = spark.range(5).select(F.raise_error(F.lit("bad row")).cast("long").alias("id"))
    with pytest.raises(Exception, match="bad row"):
        pipeline.write(bad, tmp_path / "out", overwrite=True)
    assert len(read_result(tmp_path / "out")[1]) == 5
    with pytest.raises(Exception, match="bad row"):
        pipeline.write(bad, tmp_path / "deep" / "new")
    assert list_names(tmp_path) == ["out"]


def test_trace_has_one_file_for_each_date(spark, csv_file, tmp_path):
    """Compacted: no more files than partitions need."""
    pipeline.ingest(spark, csv_file("cab,t,lat,lon,occ", ROWS), tmp_path / "out")
    files = trace.read_manifest(tmp_path / "out")["files"]
    dates = sorted((tmp_path / "out" / "positions").iterdir())
    assert len(dates) > 1
    assert [len(list(date.iterdir())) for date in dates] == [1] * len(dates)
    assert [file["name"].split("/")[1] for file in files["positions"]] == [date.name for date in dates]
    table = trace.read_table(tmp_path / "out", "positions")
    assert table.equals(table.sort_by([("ts", "ascending"), ("device", "ascending")]))


@pytest.mark.parametrize(
    ("change", "kind", "found"),
    [
        (lambda file: file.write_text(file.read_text() + ROWS[0] + "\n"), TraceContentError, "bytes, where"),
        (
            lambda file: file.write_text(file.read_text().replace("37.0", "38.0")),
            TraceContentError,
            "time of",
        ),
        (lambda file: file.unlink(), InputMissing, "no such file"),
    ],
    ids=["grows", "changes", "vanishes"],
)
def test_source_that_does_not_stay_as_it_is_ends_the_ingest(
    spark, csv_file, tmp_path, monkeypatch, change, kind, found
):
    """A growing file is noticed, and one that a worker does not see."""
    source = csv_file("cab,t,lat,lon,occ", ROWS)
    run = inputs.run_tasks

    def change_first(*arguments):
        change(source)
        return run(*arguments)

    monkeypatch.setattr(inputs, "run_tasks", change_first)
    with pytest.raises(kind) as caught:
        pipeline.ingest(spark, source, tmp_path / "out")
    assert found in caught.value.found
    assert caught.value.remedy
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("files", "what the tasks have parsed"),
        ("bucket", "was cleaned|table"),
        ("merge", "the table positions"),
    ],
)
def test_lost_rows_are_no_success(spark, csv_file, tmp_path, monkeypatch, step, what):
    """Rows in = rows out + rows set aside."""
    run = _ingest.run_tasks

    def lose_a_file(*arguments):
        parts = run(*arguments)
        for name, part in parts.items():
            if name.startswith(step):
                parts[name] = Part(part.counted, part.files[1:])
                break
        if step == "bucket" and any(name.startswith(step) for name in parts):
            part = parts["bucket-00000"]
            counted = {**part.counted, "spans": part.counted["spans"][1:]}
            parts["bucket-00000"] = Part(counted, part.files)
        return parts

    for module in (inputs, _ingest):
        monkeypatch.setattr(module, "run_tasks", lose_a_file)
    with pytest.raises(OutputProblem, match=f"Rows were lost.*({what})") as caught:
        pipeline.ingest(spark, csv_file("cab,t,lat,lon,occ", ROWS), tmp_path / "out")
    assert "rows" in caught.value.found
    assert not (tmp_path / "out").exists()


def test_files_that_the_driver_does_not_see_are_no_success(spark, tmp_path, monkeypatch):
    """scale.md: `write` said 0 rows, as success, where the workers had folders of their own."""
    collect = tasks._collect

    def lose_a_file(job, answers):
        collected = collect(job, answers)
        (job.path / collected["00000-00001"].files[0].name).unlink()
        job.check_seen(file for part in collected.values() for file in part.files)

    monkeypatch.setattr(tasks, "_collect", lose_a_file)
    with pytest.raises(OutputProblem, match="wrote 3 files, of which this machine does not see 1"):
        pipeline.write(spark.range(0, 30, 1, 3), tmp_path / "out")
    assert not (tmp_path / "out").exists()
