"""Bad input of a job on Spark, as users have it: a right result, or an error in words and nothing at the place."""

from __future__ import annotations

import os
import random
from collections import Counter

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from spark_frames import build_positions, build_reads

from mudkit import pipeline, trace
from mudkit.errors import InputMissing, OutputProblem, TraceFormatError
from mudkit.pipeline import inputs

pytestmark = pytest.mark.spark
T0 = 1_211_100_000
HEADER = "cab,t,lat,lon,occ"


def lines(cab, count=20):
    return [f"{cab},{T0 + 60 * i},{37 + i / 1000},-122.4,{i % 2}" for i in range(count)]


def text(*cabs):
    return "\n".join([HEADER, *(line for cab in cabs for line in lines(cab))]) + "\n"


def frame_of(device="a"):
    rows = [(device, T0 + 60 * i, 37 + i / 1000, -122.4) for i in range(20)]
    return pd.DataFrame(rows, columns=["device", "ts", "lat", "lon"])


def put(file, frame):
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), file)


def refuse(kind, message, call):
    """Check that a call raises an error with all its parts, of a length that can be read."""
    with pytest.raises(kind, match=message) as caught:
        call()
    error = caught.value
    assert error.found, error
    assert error.expected, error
    assert error.remedy, error
    assert len(str(error)) < 2000
    return error


def test_rights_and_buckets_that_are_missing_are_named(spark, webhdfs, s3_bucket, tmp_path):
    at = f"{webhdfs.address}/{tmp_path.name}"
    for name in ("one", "date=1/two", "date=2/three"):
        webhdfs.put(f"/{tmp_path.name}/in/{name}.csv", text(name[-1]).encode())
    out = tmp_path / "out"
    missing = f"{s3_bucket.rpartition('/')[0]}/nobucket"
    refuse(InputMissing, "no", lambda: pipeline.ingest(spark, f"{missing}/cabs.csv", out))
    source = tmp_path / "cabs.csv"
    source.write_text(text("a"))
    refuse(OutputProblem, "no bucket", lambda: pipeline.ingest(spark, source, f"{missing}/out"))
    for forbidden in ("in", "in/date=2", "in/date=2/three.csv"):
        webhdfs.forbidden = {f"/{tmp_path.name}/{forbidden}"}
        refuse(InputMissing, "gives no right to read", lambda: pipeline.ingest(spark, f"{at}/in", out))
    webhdfs.forbidden = set()
    frame = spark.read.option("header", True).csv(f"{at}/in")
    webhdfs.forbidden = {f"/{tmp_path.name}/in", f"/{tmp_path.name}/no"}
    refuse(InputMissing, "Spark has no right to read", lambda: pipeline.ingest(spark, frame, out))
    refuse(OutputProblem, "no right to write", lambda: pipeline.ingest(spark, source, f"{at}/no/out"))
    assert not out.exists()
    webhdfs.forbidden = set()
    pipeline.ingest(spark, f"{at}/in", f"{at}/trace")
    webhdfs.forbidden = {f"/{tmp_path.name}/trace/positions", f"/{tmp_path.name}/no"}
    refuse(
        InputMissing, "gives no right to read", lambda: pipeline.run_job(spark, "cells", f"{at}/trace", out)
    )
    webhdfs.forbidden = {f"/{tmp_path.name}/no"}
    refuse(
        OutputProblem,
        "no right to write",
        lambda: pipeline.run_job(spark, "cells", f"{at}/trace", f"{at}/no/out"),
    )
    assert not out.exists()


def test_folder_of_this_machine_that_may_not_be_listed_is_named(tmp_path):
    """It was passed over, and the trace had the rows of the others."""
    for cab in "ab":
        (tmp_path / "cabs" / cab).mkdir(parents=True)
        (tmp_path / "cabs" / cab / "1.csv").write_text(text(cab))
    tmp_path.chmod(0o755)
    assert len(trace.load(tmp_path / "cabs").positions) == 40  # all modules are imported
    (tmp_path / "cabs" / "b").chmod(0)
    above = [folder for folder in tmp_path.parents if folder.stat().st_uid == os.geteuid()]
    modes = [(folder, folder.stat().st_mode) for folder in above]
    for folder, mode in modes:
        folder.chmod(mode | 0o011)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65534)
        refuse(InputMissing, "cannot be listed", lambda: trace.load(tmp_path / "cabs"))
    finally:
        if is_root:
            os.seteuid(0)
        for folder, mode in modes:
            folder.chmod(mode)
        (tmp_path / "cabs" / "b").chmod(0o755)


def test_schema_that_changes_between_files_is_read_or_named(spark, tmp_path):
    """Files that are given by paths are read one by one; by a DataFrame Spark reads them."""
    out = tmp_path / "out"
    as_text = frame_of("b").astype({"ts": str, "lat": str})
    put(tmp_path / "kinds" / "1.parquet", frame_of())
    put(tmp_path / "kinds" / "2.parquet", as_text)
    assert pipeline.ingest(spark, tmp_path / "kinds", tmp_path / "kinds-out").kept == 40
    of_spark = spark.read.parquet(
        str(tmp_path / "kinds" / "1.parquet"), str(tmp_path / "kinds" / "2.parquet")
    )
    refuse(TraceFormatError, "Spark cannot read the rows", lambda: pipeline.ingest(spark, of_spark, out))
    put(tmp_path / "names" / "1.parquet", frame_of())
    put(tmp_path / "names" / "2.parquet", frame_of("b").rename(columns={"lat": "latitude"}))
    refuse(TraceFormatError, "different columns", lambda: pipeline.ingest(spark, tmp_path / "names", out))
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "1.csv").write_text(text("a"))
    other_order = "\n".join(",".join(line.split(",")[::-1]) for line in [HEADER, *lines("b")]) + "\n"
    (tmp_path / "csv" / "2.csv").write_text(other_order)
    assert pipeline.ingest(spark, tmp_path / "csv", tmp_path / "csv-out").kept == 40
    (tmp_path / "csv" / "2.csv").write_text(text("b").replace("lon", "east"))
    refuse(TraceFormatError, "2.csv lacks columns", lambda: pipeline.ingest(spark, tmp_path / "csv", out))
    # A file that is cut or removed after Spark has looked at it.
    cut = tmp_path / "cut" / "1.parquet"
    put(cut, frame_of())
    late = spark.read.parquet(str(cut))
    cut.write_bytes(cut.read_bytes()[:500])
    refuse(TraceFormatError, "Spark cannot read the rows", lambda: pipeline.ingest(spark, late, out))
    cut.unlink()
    refuse(TraceFormatError, "Spark cannot read the rows", lambda: pipeline.ingest(spark, late, out))
    assert not out.exists()


def test_columns_of_nulls_and_times_of_any_type_are_as_in_memory(spark, tmp_path):
    """`ts` as text, as numbers of any unit or as a time is one moment; what is null is no row, or no speed."""
    expected = trace.load(frame_of(), rule="none").positions
    times = {
        "text": "CAST(t AS STRING)",
        "ms": "1000 * t",
        "32 bits": "CAST(t AS INT)",
        "real": "CAST(t AS DOUBLE)",
        "decimal": "CAST(t AS DECIMAL(20, 3))",
        "time": "timestamp_seconds(t)",
        "ISO": "date_format(timestamp_seconds(t), \"yyyy-MM-dd'T'HH:mm:ss'Z'\")",
    }
    places = f"SELECT 'a' device, {T0} + 60 * id t, 37 + id / 1000.0D lat, -122.4D lon FROM range(20)"
    of_union = {name: sql for name, sql in times.items() if name != "time"}  # its text would name no zone
    union = " UNION ALL ".join(
        f"SELECT '{name}' device, CAST({sql} AS STRING) ts, lat, lon FROM ({places})"
        for name, sql in of_union.items()
    )
    pipeline.ingest(spark, spark.sql(union), tmp_path / "union", rule="none")
    stored = trace.read_table(tmp_path / "union", "positions")
    for name in of_union:
        of_name = stored.filter([device == name for device in stored["device"].to_pylist()])
        assert of_name.drop_columns("device").equals(expected.drop_columns("device")), name
    for name in ("ms", "decimal", "time"):
        frame = spark.sql(f"SELECT device, {times[name]} ts, lat, lon, NULL speed_mps FROM ({places})")
        pipeline.ingest(spark, frame, tmp_path / name, rule="none")
        assert trace.read_table(tmp_path / name, "positions").equals(expected), name
    for column, message in (("lat", "Most rows"), ("ts", "have no time"), ("device", "Most rows")):
        given = {"device": "device", "ts": "t", "lat": "lat", "lon": "lon"} | {column: "NULL"}
        frame = spark.sql(
            f"SELECT {', '.join(f'{sql} {name}' for name, sql in given.items())} FROM ({places})"
        )
        refuse(TraceFormatError, message, lambda frame=frame: pipeline.ingest(spark, frame, tmp_path / "no"))
    assert not (tmp_path / "no").exists()


def test_device_and_cell_with_half_of_all_rows(spark, tmp_path, monkeypatch):
    """Results are exact, and no task that counts labels has half of the positions."""
    rows = [("hot", i, 38.0, -9.0) for i in range(1500)] + [
        (f"d{i % 50}", i, 38 + i % 97 / 50, -9 + i % 89 / 50) for i in range(1500)
    ]
    frame = pd.DataFrame([(d, T0 + 7 * t, lat, lon) for d, t, lat, lon in rows], columns=frame_of().columns)
    monkeypatch.setattr(inputs, "PART_BYTES", 1 << 14)  # many buckets
    pipeline.ingest(spark, spark.createDataFrame(frame), tmp_path / "out", rule="trip_start(still_s=600)")
    loaded = trace.load(frame, rule="trip_start(still_s=600)")
    assert trace.load(tmp_path / "out").positions.equals(loaded.positions)
    assert trace.load(tmp_path / "out").rejected_by_reason() == loaded.rejected_by_reason()
    positions = build_positions([(t, lat, lon) for _, t, lat, lon in rows], devices=["hot", *"abcdefg"])
    reads = build_reads([("a", 60 * i, 38.0, -9.0, 20, 3600) for i in range(40)])
    split = spark.createDataFrame(positions.to_pandas()).repartition(8)
    sizes = [
        row.rows for row in split.groupBy(F.spark_partition_id()).agg(F.count("*").alias("rows")).collect()
    ]
    assert max(sizes) < len(rows) / 4
    labels = pipeline.label_reads(split, spark.createDataFrame(reads.to_pandas())).toArrow()
    whole = pipeline.label_reads(
        spark.createDataFrame(positions.to_pandas()).coalesce(1), spark.createDataFrame(reads.to_pandas())
    ).toArrow()
    assert count_rows(labels) == count_rows(whole)
    assert max(labels["points"].to_pylist()) > 500


def count_rows(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_many_small_files(spark, tmp_path, scaled):
    """Small files, of which a task has many, have the rows of one file; in the soak a hundred thousand."""
    count, chance = scaled(100_000, 300), random.Random("small files")
    rows = [
        f"c{chance.randrange(50)},{T0 + 60 * number},{37 + chance.random() / 1000:.6f},-122.4,0\n"
        for number in range(count)
    ]
    for number, row in enumerate(rows):
        file = tmp_path / "cabs" / f"{number % 100}" / f"{number}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{HEADER}\n{row}")
    report = pipeline.ingest(spark, tmp_path / "cabs", tmp_path / "out")
    assert report.rows == report.kept == count
    assert report.parts < 80 + count / 1440  # parts of files, two buckets, and a merge of some dates
    files = trace.read_manifest(tmp_path / "out")["files"]["positions"]
    assert len(files) == len({file["name"].split("/")[1] for file in files})
    (tmp_path / "whole.csv").write_text(f"{HEADER}\n{''.join(rows)}")
    whole = trace.load(tmp_path / "whole.csv")
    assert trace.load(tmp_path / "out").positions.equals(whole.positions)
