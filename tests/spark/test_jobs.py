"""Jobs in parts equal the jobs at once, whatever the parts, and go on where they were stopped."""

import shutil
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from spark_frames import positions_of, reads_of
from typer.testing import CliRunner

from mudkit import pipeline, trace
from mudkit.cli import app
from mudkit.errors import (
    InputMissing,
    OutputExists,
    OutputProblem,
    ParameterError,
    PredicateError,
    TraceContentError,
)
from mudkit.pipeline import _ingest, jobs
from mudkit.pipeline.resume import resumable

pytestmark = pytest.mark.spark
DAY = 86_400
OPTIONS = {
    "cells": {"zooms": (10,), "bucket_s": 7 * 3600},  # buckets that lie across midnights
    "label_reads": {"horizon_s": 100_000.0},
    "label_writes": {},
    "propagation": {"zooms": (10,), "thresholds": (1, 3), "interval_s": 100_000},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven dates, some of them without reads, and a gap; reads that ask for days, and reads at midnight."""
    rng = np.random.default_rng(11)
    t = np.concatenate([rng.integers(0, 4 * DAY, 1500), rng.integers(7 * DAY, 8 * DAY, 300)])
    midnight = 55_200  # T0 is at 8:40
    t[:40] = midnight + rng.integers(-2, 3, 40) + DAY * rng.integers(0, 3, 40)
    points = list(zip(t, rng.normal(38, 0.2, len(t)), rng.normal(-9, 0.2, len(t)), strict=True))
    asked = [
        (rng.choice(["a", "b", "c"]), int(at), rng.normal(38, 0.2), rng.normal(-9, 0.2), 20, rng.choice([60, 7200, 2e5]))
        for at in [*rng.integers(0, 2.5 * DAY, 80), *rng.integers(7 * DAY, 8 * DAY, 20), midnight, midnight - 1]
    ]  # fmt: skip
    positions = positions_of(points, devices="abcde")
    speeds = pa.array(np.arange(len(t)) % 3, pa.float64())
    positions = positions.set_column(4, positions.schema.field(4), speeds)
    place = tmp_path_factory.mktemp("jobs") / "trace"
    loaded = trace.Loaded(positions, reads_of(asked), trace.generate(cars=1, days=1).rejected)
    loaded.save(place)
    return place


def at_once(spark, folder, job, where=None):
    positions = pipeline.read(spark, folder, "positions", where=where)
    reads = pipeline.read(spark, folder, "reads")
    given = (positions,) if job == "propagation" else (positions, reads)
    return rows(getattr(pipeline, job)(*given, **OPTIONS[job]).toArrow())


def rows(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def stored(path):
    return rows(ds.dataset(path, format="parquet").to_table())


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("job", OPTIONS)
def test_parts_make_no_difference(spark, folder, tmp_path, job):
    wanted = at_once(spark, folder, job)
    for dates, parts in ((1, 7), (4, 2), (None, 1)):
        out = tmp_path / str(dates)
        report = pipeline.run_job(spark, job, folder, out, dates=dates, **OPTIONS[job])
        assert (report.parts, report.parts_reused) == (parts, 0)
        assert report.rows == wanted.total()
        assert stored(out) == wanted
        assert all(name.startswith("part-0000") for name in names(out))
    assert names(tmp_path) == ["1", "4", "None"]


@pytest.mark.soak
def test_an_access_log_has_a_folder_of_its_own(spark, folder, tmp_path):
    whole = trace.load(folder)
    for name, positions, reads in (
        ("where", whole.positions, whole.reads[:0]),
        ("asked", whole.positions[:0], whole.reads),
    ):
        trace.Loaded(positions, reads, whole.rejected[:0]).save(tmp_path / name)
    for job in ("label_reads", "label_writes", "cells"):
        pipeline.run_job(
            spark, job, tmp_path / "where", tmp_path / job, reads=tmp_path / "asked", dates=2, **OPTIONS[job]
        )
        assert stored(tmp_path / job) == at_once(spark, folder, job)


@pytest.mark.soak
def test_some_positions(spark, folder, tmp_path):
    where = "device != 'b' AND lat < 38.1"
    for job in ("label_writes", "label_reads"):
        pipeline.run_job(spark, job, folder, tmp_path / job, where=where, dates=2, **OPTIONS[job])
        assert stored(tmp_path / job) == at_once(spark, folder, job, where)


class Stop:
    """Stands in for a function that is interrupted at its n-th call."""

    def __init__(self, function, calls):
        self.function, self.calls = function, calls

    def __call__(self, *arguments):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        return self.function(*arguments)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("job", OPTIONS)
def test_a_stopped_job_goes_on(spark, folder, tmp_path, job, monkeypatch):
    out, write = tmp_path / "out", jobs._write
    done = 0
    for calls in (2, 3):
        monkeypatch.setattr(jobs, "_write", Stop(write, calls))
        with pytest.raises(KeyboardInterrupt):
            pipeline.run_job(spark, job, folder, out, dates=1, **OPTIONS[job])
        done += calls
        (left,) = tmp_path.iterdir()
        assert left.name.startswith(".out.resume-")
        assert len(names(left / "done")) == done
    whole = {file.name: file.stat().st_mtime_ns for file in (left / "out").iterdir()}
    monkeypatch.setattr(jobs, "_write", Stop(write, 2))
    report = pipeline.run_job(spark, job, folder, out, dates=1, **OPTIONS[job])
    assert (report.parts, report.parts_reused) == (7, 5)
    assert stored(out) == at_once(spark, folder, job)
    assert whole.items() <= {file.name: file.stat().st_mtime_ns for file in out.iterdir()}.items()
    assert names(tmp_path) == ["out"]


@pytest.mark.soak(keep=1, group="another")
def test_something_else_never_goes_on(spark, folder, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, copy_function=shutil.copy)  # with new dates
    stops = [
        (folder, {}),
        (folder, {"bucket_s": 1800}),
        (folder, {"bucket_s": 1800, "where": "lat > 0"}),
        (folder, {"bucket_s": 1800, "where": "lat > 0", "dates": 2}),
        (copy, {"bucket_s": 1800, "where": "lat > 0", "dates": 2}),
    ]
    seen = set()
    write = jobs._write
    for place, options in stops:
        monkeypatch.setattr(jobs, "_write", Stop(write, 1))
        with pytest.raises(KeyboardInterrupt):
            pipeline.run_job(spark, "cells", place, tmp_path / "out", **{"dates": 1, **options})
        (left,) = tmp_path.glob(".out*")  # the one before is swept
        assert len(names(left / "done")) == 1
        seen.add(left.name)
    assert len(seen) == len(stops)
    monkeypatch.setattr(jobs, "_write", write)
    changed = next((copy / "positions").rglob("*.parquet"))
    pq.write_table(pq.read_table(changed).replace_schema_metadata({"x": "y"}), changed)
    options = {"bucket_s": 1800, "where": "lat > 0", "dates": 2}
    assert pipeline.run_job(spark, "cells", copy, tmp_path / "out", **options).parts_reused == 0
    assert names(tmp_path) == ["copy", "out"]


def test_one_job_at_a_place(spark, folder, tmp_path):
    with resumable(tmp_path / "out", {}):
        with pytest.raises(OutputProblem, match="Another process"):
            pipeline.run_job(spark, "label_writes", folder, tmp_path / "out")
        pipeline.run_job(spark, "label_writes", folder, tmp_path / "beside")


def test_what_is_there_stays_unless_it_is_to_be_replaced(spark, folder, tmp_path):
    out = tmp_path / "out"
    pipeline.run_job(spark, "label_writes", folder, out, dates=1)
    before = names(out)
    with pytest.raises(OutputExists, match="overwrite"):
        pipeline.run_job(spark, "cells", folder, out)
    assert names(out) == before
    pipeline.run_job(spark, "cells", folder, out, overwrite=True)
    assert "bucket_ts" in ds.dataset(out, format="parquet").schema.names
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("job", "options", "kind", "says"),
    [
        ("count", {}, ParameterError, "no such job"),
        ("cells", {"horizon_s": 5}, ParameterError, "no such option"),
        ("cells", {"zooms": (40,)}, ParameterError, "zoom"),
        ("cells", {"bucket_s": 0.5}, ParameterError, "length"),
        ("label_reads", {"horizon_s": 0}, ParameterError, "horizon"),
        ("label_reads", {"dates": 0}, ParameterError, "one date"),
        ("label_writes", {"where": "height > 5"}, PredicateError, "height"),
        ("propagation", {"thresholds": ()}, ParameterError, "thresholds"),
    ],
)
def test_bad_options_leave_nothing(spark, folder, tmp_path, job, options, kind, says):
    with pytest.raises(kind, match=says):
        pipeline.run_job(spark, job, folder, tmp_path / "out", **options)
    assert names(tmp_path) == []


@pytest.mark.soak
def test_traces_that_lack_something(spark, folder, tmp_path):
    with pytest.raises(InputMissing):
        pipeline.run_job(spark, "cells", tmp_path / "no", tmp_path / "out")
    loaded = trace.load(folder)
    trace.Loaded(loaded.positions, loaded.reads[:0], loaded.rejected).save(tmp_path / "unread")
    for job in ("label_reads", "label_writes"):
        with pytest.raises(TraceContentError, match="no reads"):
            pipeline.run_job(spark, job, tmp_path / "unread", tmp_path / "out")
    trace.Loaded(loaded.positions[:0], loaded.reads, loaded.rejected).save(tmp_path / "unwritten")
    for job in OPTIONS:
        report = pipeline.run_job(spark, job, tmp_path / "unwritten", tmp_path / job, dates=2, **OPTIONS[job])
        assert stored(tmp_path / job) == at_once(spark, tmp_path / "unwritten", job)
        assert (report.rows == 0) == (job in ("label_writes", "propagation"))


@pytest.fixture
def cabs(tmp_path):
    """Three cabs in files of their own."""
    place = tmp_path / "cabs"
    place.mkdir()
    for cab in "abc":
        lines = [f"{37 + i / 1000} -122.4 {i % 2} {1_211_100_000 + 600 * i}" for i in range(200)]
        (place / f"new_{cab}.txt").write_text("\n".join(lines) + "\n")
    return place


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(("last", "outcome"), [("check_parsed", 3), ("check_plausible", 5)])
def test_a_stopped_ingest_goes_on(spark, cabs, tmp_path, monkeypatch, last, outcome):
    out, wanted = tmp_path / "out", tmp_path / "wanted"
    pipeline.ingest(spark, cabs, wanted)
    with monkeypatch.context() as patch:
        patch.setattr(_ingest, last, Stop(None, 0))
        with pytest.raises(KeyboardInterrupt):
            pipeline.ingest(spark, cabs, out)
    (left,) = tmp_path.glob(".out*")
    assert len(names(left / "done")) == outcome
    assert not out.exists()
    before = {file: file.stat().st_mtime_ns for file in (left / "work").rglob("part-*")}
    with monkeypatch.context() as patch:
        patch.setattr(_ingest, "write_manifest", Stop(None, 0))
        with pytest.raises(KeyboardInterrupt):
            pipeline.ingest(spark, cabs, out)
    assert before == {file: file.stat().st_mtime_ns for file in (left / "work").rglob("part-*")}
    report = pipeline.ingest(spark, cabs, out)
    assert (report.parts, report.parts_reused) == (5, 5)
    assert names(tmp_path) == ["cabs", "out", "wanted"]
    files = [file.relative_to(wanted) for file in sorted(wanted.rglob("*")) if file.is_file()]
    assert files == [file.relative_to(out) for file in sorted(out.rglob("*")) if file.is_file()]
    assert all((out / file).read_bytes() == (wanted / file).read_bytes() for file in files)


@pytest.mark.soak(keep=1, group="another")
def test_an_ingest_with_other_options_never_goes_on(spark, cabs, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_ingest, "check_plausible", Stop(None, 0))
        with pytest.raises(KeyboardInterrupt):
            pipeline.ingest(spark, cabs, tmp_path / "out")
    assert pipeline.ingest(spark, cabs, tmp_path / "out", rule="none").parts_reused == 0
    assert names(tmp_path) == ["cabs", "out"]


def test_the_command_says_what_was_there(spark, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("mudkit.cli.jobs._spark", lambda path: Kept(spark))
    arguments = [
        "pipeline",
        "run",
        "label_writes",
        str(folder),
        "--out",
        str(tmp_path / "out"),
        "--dates",
        "2",
    ]
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "_write", Stop(jobs._write, 2))
        assert CliRunner().invoke(app, arguments).exit_code != 0
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert result.stderr == "2 of 4 partitions existed already\n"
    assert result.stdout.startswith("1,800 rows written to")
    result = CliRunner().invoke(
        app,
        ["pipeline", "run", "propagation", str(folder), "--out", str(tmp_path / "p"), "--threshold", "3",
         "--interval-s", "600", "--zoom", "9", "--message-bytes", "100", "--aggregate-bytes", "20"],
    )  # fmt: skip
    assert (result.exit_code, result.stderr) == (0, "")
    table = ds.dataset(tmp_path / "p", format="parquet").to_table()
    assert set(table["threshold"].to_pylist()) == {3}
    assert sum(table["bytes_in"].to_pylist()) == 180_000


class Kept:
    """The tests' session, which does not end with a command."""

    def __init__(self, spark):
        self.spark = spark

    def __enter__(self):
        return self.spark

    def __exit__(self, *error):
        pass


def test_positions_and_reads_that_never_meet_are_refused_by_name(spark, folder, tmp_path):
    whole = trace.load(folder)
    years_us = 3 * 365 * DAY * 1_000_000
    ts = pa.array(whole.reads["ts"].cast(pa.int64()).to_numpy() - years_us).cast(
        whole.reads.schema.field("ts").type
    )
    earlier = whole.reads.set_column(2, whole.reads.schema.field("ts"), ts)
    trace.Loaded(whole.positions.slice(0, 0), earlier, whole.rejected).save(tmp_path / "reads")
    options = {"reads": tmp_path / "reads"}
    for calls in (
        lambda: pipeline.run_job(spark, "label_reads", folder, tmp_path / "out", **options),
        lambda: pipeline.open_trace(spark, folder, tmp_path / "work", **options),
    ):
        with pytest.raises(TraceContentError, match="positions and the reads do not overlap") as caught:
            calls()
        assert caught.value.found.count(" UTC") == 2
    assert not (tmp_path / "out").exists()
