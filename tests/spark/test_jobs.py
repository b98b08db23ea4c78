"""Jobs in parts: equal to whole jobs for any partition, and resumed after interruption."""

import json
import shutil
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from spark_frames import T0, US, build_positions, build_reads
from typer.testing import CliRunner

from mudkit import pipeline, trace
from mudkit.cli import app
from mudkit.errors import (
    InputMissing,
    MudkitError,
    OutputExists,
    OutputProblem,
    ParameterError,
    PredicateError,
    TraceContentError,
)
from mudkit.pipeline import _ingest, commits, jobs
from mudkit.trace.schema import epoch_us, timestamps
from mudkit.trace.tally import Tally

pytestmark = pytest.mark.spark
DAY = 86_400
RING = [[-9.1, 37.9], [-8.9, 37.9], [-8.9, 38.1], [-9.1, 38.1], [-9.1, 37.9]]
AREA = {"type": "Feature", "id": "centre", "geometry": {"type": "Polygon", "coordinates": [RING]}}
OPTIONS = {
    "cells": {"zooms": (10,), "bucket_s": 7 * 3600},  # buckets that span midnight
    "label_reads": {"horizon_s": 100_000.0},
    "label_writes": {},
    "propagation": {"zooms": (10,), "thresholds": (1, 3), "interval_s": 100_000},
    "join": {"areas": AREA},
}
"""Options of jobs that are divided by dates."""
BY_DEVICE = {
    "speeds": {"max_gap_s": 50_000.0},
    "stops": {"radius_km": 30.0, "min_stop_s": 10.0, "max_gap_s": 5000.0},
    "trips": {"radius_km": 5.0, "min_stop_s": 10.0, "max_gap_s": 50_000.0, "min_km": 0.1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a trace of seven dates and a gap; some dates lack reads; reads span days or lie at midnight.

    Positions lie about midnight, and where the first bucket and the first interval of a date begin.
    """
    rng = np.random.default_rng(11)
    t = np.concatenate([rng.integers(0, 4 * DAY, 1500), rng.integers(7 * DAY, 8 * DAY, 300)])
    midnight = 55_200  # T0 is at 8:40
    t[:40] = midnight + rng.integers(-2, 3, 40) + DAY * rng.integers(0, 3, 40)
    lengths_s = OPTIONS["cells"]["bucket_s"], OPTIONS["propagation"]["interval_s"]
    dates_s = [T0 // US + midnight + DAY * day for day in range(3)]
    t[40:46] = [-(-date_s // s) * s - T0 // US for date_s in dates_s for s in lengths_s]
    points = list(zip(t, rng.normal(38, 0.2, len(t)), rng.normal(-9, 0.2, len(t)), strict=True))
    read_rows = [
        (rng.choice(["a", "b", "c"]), int(t_s), rng.normal(38, 0.2), rng.normal(-9, 0.2), 20, rng.choice([60, 7200, 2e5]))
        for t_s in [*rng.integers(0, 2.5 * DAY, 80), *rng.integers(7 * DAY, 8 * DAY, 20), midnight, midnight - 1]
    ]  # fmt: skip
    positions = build_positions(points, devices="abcde")
    speeds = pa.array(np.arange(len(t)) % 3, pa.float64())
    positions = positions.set_column(4, positions.schema.field(4), speeds)
    folder_path = tmp_path_factory.mktemp("jobs") / "trace"
    loaded = trace.Loaded(positions, build_reads(read_rows), trace.generate(cars=1, days=1).rejected)
    loaded.save(folder_path)
    return folder_path


def run_directly(spark, folder, job, where=None):
    positions = pipeline.read(spark, folder, "positions", where=where)
    reads = pipeline.read(spark, folder, "reads")
    frames = (positions, reads) if job in ("cells", "label_reads", "label_writes") else (positions,)
    return count_rows(getattr(pipeline, job)(*frames, **(OPTIONS | BY_DEVICE)[job]).toArrow())


def count_rows(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def read_stored_rows(path):
    return count_rows(ds.dataset(path, format="parquet").to_table())


def named_files(out):
    """Return the rows of each file that the manifest names."""
    manifest = json.loads((out / "_manifest.json").read_text())
    files = {file["name"]: file["rows"] for file in manifest["files"]}
    assert sum(files.values()) == manifest["rows"]
    assert files == {name: pq.read_metadata(out / name).num_rows for name in files}
    return files


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("job", OPTIONS)
def test_result_does_not_depend_on_parts(spark, folder, tmp_path, job, scaled):
    expected = run_directly(spark, folder, job)
    cuts = scaled({1: 7, 4: 2, None: 1}, {2: 4})
    for dates, parts in cuts.items():
        out = tmp_path / str(dates)
        report = pipeline.run_job(spark, job, folder, out, dates=dates, **OPTIONS[job])
        assert (report.parts, report.parts_reused) == (parts, 0)
        assert report.rows == expected.total()
        assert read_stored_rows(out) == expected
        assert list_names(out) == sorted(["_manifest.json", *named_files(out)])
        assert all(name.startswith("part-0000") for name in named_files(out))
    assert list_names(tmp_path) == sorted(map(str, cuts))


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("job", BY_DEVICE)
def test_job_by_device_writes_what_its_function_returns(spark, folder, tmp_path, job):
    """A task has all rows of a device, whatever the dates: the job has one part."""
    expected = run_directly(spark, folder, job)
    assert expected.total() > 20
    report = pipeline.run_job(spark, job, folder, tmp_path / "out", **BY_DEVICE[job])
    assert (report.parts, report.rows) == (1, expected.total())
    assert read_stored_rows(tmp_path / "out") == expected
    named_files(tmp_path / "out")


@pytest.mark.soak
def test_access_log_may_be_in_a_separate_folder(spark, folder, tmp_path):
    loaded = trace.load(folder)
    for name, positions, reads in (
        ("where", loaded.positions, loaded.reads[:0]),
        ("asked", loaded.positions[:0], loaded.reads),
    ):
        trace.Loaded(positions, reads, loaded.rejected[:0]).save(tmp_path / name)
    for job in ("label_reads", "label_writes", "cells"):
        pipeline.run_job(
            spark, job, tmp_path / "where", tmp_path / job, reads=tmp_path / "asked", dates=2, **OPTIONS[job]
        )
        assert read_stored_rows(tmp_path / job) == run_directly(spark, folder, job)


@pytest.mark.soak
def test_where_filters_positions(spark, folder, tmp_path):
    where = "device != 'b' AND lat < 38.1"
    for job in ("label_writes", "label_reads"):
        pipeline.run_job(spark, job, folder, tmp_path / job, where=where, dates=2, **OPTIONS[job])
        assert read_stored_rows(tmp_path / job) == run_directly(spark, folder, job, where)


class InterruptedFunction:
    """Replacement for a function, interrupted at its n-th call."""

    def __init__(self, function, calls):
        self.function, self.calls = function, calls

    def __call__(self, *arguments):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        return self.function(*arguments)


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("job", OPTIONS)
def test_interrupted_job_resumes(spark, folder, tmp_path, job, monkeypatch, scaled):
    """Parts run some at a time, so at least as many as were begun before the interruption are finished."""
    out, write = tmp_path / "out", jobs.write_frame
    dates, parts, stops = scaled((1, 7, (2, 3)), (2, 4, (1, 2)))
    finished = {}
    for calls in stops:
        monkeypatch.setattr(jobs, "write_frame", InterruptedFunction(write, calls))
        with pytest.raises(KeyboardInterrupt):
            pipeline.run_job(spark, job, folder, out, dates=dates, **OPTIONS[job])
        (job_folder,) = out.iterdir()
        assert job_folder.name.startswith("_job-")
        now = {file.name: file.stat().st_mtime_ns for file in (job_folder / "done").iterdir()}
        assert finished.items() <= now.items()
        assert len(finished) < len(now) <= len(finished) + calls
        finished = now
    monkeypatch.setattr(jobs, "write_frame", InterruptedFunction(write, parts - len(finished)))
    report = pipeline.run_job(spark, job, folder, out, dates=dates, **OPTIONS[job])
    assert (report.parts, report.parts_reused) == (parts, len(finished))
    assert read_stored_rows(out) == run_directly(spark, folder, job)
    assert list_names(out) == sorted(["_manifest.json", *named_files(out)])


@pytest.fixture
def one_at_a_time(monkeypatch):
    """Run one part at a time: an interruption between parts stops no task, whose worker would have to start anew."""
    monkeypatch.setattr(jobs, "_MAX_THREADS", 1)
    return monkeypatch


@pytest.mark.soak(keep=1, group="another")
def test_job_with_different_input_or_options_does_not_resume(spark, folder, tmp_path, one_at_a_time):
    monkeypatch = one_at_a_time
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, copy_function=shutil.copy)  # with new modification times
    stops = [
        (folder, {}),
        (folder, {"horizon_s": 600.0}),
        (folder, {"horizon_s": 600.0, "where": "lat > 0"}),
        (folder, {"horizon_s": 600.0, "where": "lat > 0", "dates": 2}),
        (copy, {"horizon_s": 600.0, "where": "lat > 0", "dates": 2}),
    ]
    folder_names = set()
    write = jobs.write_frame
    for trace_folder, options in stops:
        monkeypatch.setattr(jobs, "write_frame", InterruptedFunction(write, 1))
        with pytest.raises(KeyboardInterrupt):
            pipeline.run_job(spark, "label_reads", trace_folder, tmp_path / "out", **{"dates": 1, **options})
        (job_folder,) = (tmp_path / "out").iterdir()  # the previous one is removed
        assert len(list_names(job_folder / "done")) == 1
        folder_names.add(job_folder.name)
    assert len(folder_names) == len(stops)
    monkeypatch.setattr(jobs, "write_frame", write)
    changed = next((copy / "positions").rglob("*.parquet"))
    pq.write_table(pq.read_table(changed).replace_schema_metadata({"x": "y"}), changed)
    manifest = json.loads((copy / "trace.json").read_text())
    (entry,) = (file for file in manifest["files"]["positions"] if copy / file["name"] == changed)
    entry["bytes"] = changed.stat().st_size
    (copy / "trace.json").write_text(json.dumps(manifest))
    options = {"horizon_s": 600.0, "where": "lat > 0", "dates": 2}
    assert pipeline.run_job(spark, "label_reads", copy, tmp_path / "out", **options).parts_reused == 0
    assert list_names(tmp_path) == ["copy", "out"]


@pytest.mark.soak(keep=1, group="one place")
def test_job_that_another_one_replaces_ends_with_an_error(spark, folder, tmp_path, monkeypatch):
    """Another identity: the later start wins, the earlier one ends with an OutputProblem."""
    out, write = tmp_path / "out", jobs.write_frame

    def begin_another(*arguments):
        monkeypatch.setattr(jobs, "write_frame", write)
        pipeline.run_job(spark, "label_writes", folder, out)
        return write(*arguments)

    monkeypatch.setattr(jobs, "write_frame", begin_another)
    with pytest.raises(OutputProblem, match="Another job began"):
        pipeline.run_job(spark, "cells", folder, out)
    assert json.loads((out / "_manifest.json").read_text())["name"] == "label_writes"
    assert read_stored_rows(out) == run_directly(spark, folder, "label_writes")


@pytest.mark.soak(keep=1, group="one place")
def test_two_runs_of_one_job_both_succeed(spark, folder, tmp_path, monkeypatch):
    out, write, reports = tmp_path / "out", jobs.write_frame, []

    def run_again(*arguments):
        monkeypatch.setattr(jobs, "write_frame", write)
        reports.append(pipeline.run_job(spark, "label_writes", folder, out, dates=2))
        return write(*arguments)

    monkeypatch.setattr(jobs, "write_frame", run_again)
    reports.append(pipeline.run_job(spark, "label_writes", folder, out, dates=2))
    assert {report.rows for report in reports} == {1800}
    assert len(reports) > 1
    assert list_names(out) == sorted(["_manifest.json", *named_files(out)])
    assert read_stored_rows(out) == run_directly(spark, folder, "label_writes")


@pytest.mark.soak(keep=1, group="one place")
def test_existing_output_is_kept_without_overwrite(spark, folder, tmp_path):
    out = tmp_path / "out"
    pipeline.run_job(spark, "label_writes", folder, out)
    before = list_names(out)
    with pytest.raises(OutputExists, match="overwrite"):
        pipeline.run_job(spark, "cells", folder, out)
    assert list_names(out) == before
    pipeline.run_job(spark, "cells", folder, out, overwrite=True)
    assert "bucket_ts" in ds.dataset(out, format="parquet").schema.names
    assert list_names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("job", "options", "kind", "message"),
    [
        ("count", {}, ParameterError, "no such job"),
        ("cells", {"horizon_s": 5}, ParameterError, "no such option"),
        ("cells", {"zooms": (40,)}, ParameterError, "zoom"),
        ("cells", {"bucket_s": 0.5}, ParameterError, "length"),
        ("label_reads", {"horizon_s": 0}, ParameterError, "horizon"),
        ("label_reads", {"dates": 0}, ParameterError, "one date"),
        ("label_writes", {"where": "height > 5"}, PredicateError, "height"),
        ("propagation", {"thresholds": ()}, ParameterError, "thresholds"),
        ("stops", {"dates": 2}, ParameterError, "not divided by dates"),
        ("stops", {"min_km": 2}, ParameterError, "no such option"),
        ("join", {}, ParameterError, "needs areas"),
        ("join", {"areas": "zones.geojson"}, InputMissing, "no areas at"),
    ],
)
def test_invalid_options_leave_no_output(spark, folder, tmp_path, job, options, kind, message):
    with pytest.raises(kind, match=message):
        pipeline.run_job(spark, job, folder, tmp_path / "out", **options)
    assert list_names(tmp_path) == []


@pytest.mark.soak
def test_traces_without_reads_or_positions(spark, folder, tmp_path):
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
        assert read_stored_rows(tmp_path / job) == run_directly(spark, tmp_path / "unwritten", job)
        assert (report.rows == 0) == (job in ("label_writes", "propagation"))


@pytest.fixture
def cabs(tmp_path):
    """Return a folder with three cabs in separate files."""
    cabs_folder = tmp_path / "cabs"
    cabs_folder.mkdir()
    for cab in "abc":
        lines = [f"{37 + i / 1000} -122.4 {i % 2} {1_211_100_000 + 600 * i}" for i in range(200)]
        (cabs_folder / f"new_{cab}.txt").write_text("\n".join(lines) + "\n")
    return cabs_folder


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize(
    ("name", "parts"), [("check_parsed", 3), ("check_cleaned", 5), ("plan_merges", 5), ("_put", 6)]
)
def test_interrupted_ingest_resumes(spark, cabs, tmp_path, monkeypatch, name, parts):
    """Interrupt an ingest after its files are parsed, its buckets cleaned, its dates merged."""
    out, expected = tmp_path / "out", tmp_path / "wanted"
    pipeline.ingest(spark, cabs, expected)
    of = {"plan_merges": _ingest, "_put": commits}.get(name, Tally)
    with monkeypatch.context() as patch:
        patch.setattr(of, name, InterruptedFunction(None, 0))
        with pytest.raises(KeyboardInterrupt):
            pipeline.ingest(spark, cabs, out)
    (job_folder,) = out.glob("_job-*")
    assert len(list_names(job_folder / "done")) == parts
    assert not trace.is_trace(out)
    before = {file.name: file.stat().st_mtime_ns for file in (job_folder / "done").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(commits, "_put", InterruptedFunction(None, 0))
        with pytest.raises(KeyboardInterrupt):
            pipeline.ingest(spark, cabs, out)
    now = {file.name: file.stat().st_mtime_ns for file in (job_folder / "done").iterdir()}
    assert before.items() <= now.items()
    report = pipeline.ingest(spark, cabs, out)
    assert (report.parts, report.parts_reused) == (6, 6)
    assert list_names(tmp_path) == ["cabs", "out", "wanted"]
    assert list_names(out) == ["positions", "reads", "trace.json"]
    assert [content_of_files(out, table) for table in ("positions", "reads")] == [
        content_of_files(expected, table) for table in ("positions", "reads")
    ]


def content_of_files(folder, table):
    """Return the bytes of the files that the manifest names, with the folders of their dates."""
    files = trace.read_manifest(folder)["files"][table]
    assert {str(f.relative_to(folder)) for f in (folder / table).rglob("*.*")} == {f["name"] for f in files}
    return [(f["name"].rpartition("/")[0], (folder / f["name"]).read_bytes()) for f in files]


@pytest.mark.soak(keep=1, group="another")
def test_ingest_with_different_options_does_not_resume(spark, cabs, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Tally, "check_cleaned", InterruptedFunction(None, 0))
        with pytest.raises(KeyboardInterrupt):
            pipeline.ingest(spark, cabs, tmp_path / "out")
    assert pipeline.ingest(spark, cabs, tmp_path / "out", rule="none").parts_reused == 0
    assert list_names(tmp_path) == ["cabs", "out"]


def test_command_reports_existing_partitions(spark, folder, tmp_path, one_at_a_time):
    monkeypatch = one_at_a_time
    monkeypatch.setattr("mudkit.cli.jobs._spark", lambda path: nullcontext(spark))
    arguments = [
        "pipeline",
        "label_writes",
        str(folder),
        "--out",
        str(tmp_path / "out"),
        "--dates",
        "2",
    ]
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "write_frame", InterruptedFunction(jobs.write_frame, 2))
        assert CliRunner().invoke(app, arguments).exit_code != 0
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert result.stderr == "2 of 4 partitions existed already\n"
    assert result.stdout.startswith("1,800 rows written to")
    assert CliRunner().invoke(app, arguments).exit_code != 0
    assert CliRunner().invoke(app, [*arguments[:-2], "--overwrite"]).exit_code == 0
    result = CliRunner().invoke(
        app,
        ["pipeline", "propagation", str(folder), "--out", str(tmp_path / "p"), "--threshold", "3",
         "--interval-s", "600", "--zoom", "9", "--message-bytes", "100", "--aggregate-bytes", "20"],
    )  # fmt: skip
    assert (result.exit_code, result.stderr) == (0, "")
    table = ds.dataset(tmp_path / "p", format="parquet").to_table()
    assert set(table["threshold"].to_pylist()) == {3}
    assert sum(table["bytes_in"].to_pylist()) == 180_000


@pytest.mark.parametrize(
    ("job", "option", "value", "message"),
    [
        ("cells", "zoom", 40, "zoom"),
        ("cells", "bucket-s", 0, "bucket_s"),
        ("cells", "where", "height > 5", "height"),
        ("cells", "reads", "no folder", "no folder"),
        ("cells", "dates", 0, "one date"),
        ("label_reads", "horizon-s", 0, "horizon"),
        ("label_reads", "where", "height > 5", "height"),
        ("label_writes", "reads", "no folder", "no folder"),
        ("propagation", "zoom", 40, "zoom"),
        ("propagation", "interval-s", 0, "interval_s"),
        ("propagation", "threshold", 0, "threshold"),
        ("propagation", "message-bytes", -1, "message_bytes"),
        ("propagation", "aggregate-bytes", -1, "aggregate_bytes"),
        ("propagation", "where", "height > 5", "height"),
        ("stops", "radius-km", 0, "radius_km"),
        ("stops", "min-stop-s", 0, "min_stop_s"),
        ("trips", "min-km", -1, "min_km"),
        ("speeds", "max-gap-s", 0, "max_gap_s"),
    ],
)
def test_command_passes_its_options_to_the_job(
    spark, folder, tmp_path, monkeypatch, job, option, value, message
):
    """Pass a value that the job refuses."""
    monkeypatch.setattr("mudkit.cli.jobs._spark", lambda path: nullcontext(spark))
    command = ["pipeline", job, str(folder), "--out", str(tmp_path / "out"), f"--{option}", str(value)]
    with pytest.raises(MudkitError, match=message):
        CliRunner().invoke(app, command, catch_exceptions=False)


def save_log(loaded, shift_us, path):
    """Save the reads of a trace alone, at other times."""
    ts = timestamps(epoch_us(loaded.reads["ts"]) + shift_us)
    reads = loaded.reads.set_column(2, loaded.reads.schema.field("ts"), ts)
    trace.Loaded(loaded.positions.slice(0, 0), reads, loaded.rejected).save(path)


def test_positions_and_reads_without_overlap_are_refused(spark, folder, tmp_path):
    loaded = trace.load(folder)
    save_log(loaded, -3 * 365 * DAY * 1_000_000, tmp_path / "reads")
    options = {"reads": tmp_path / "reads"}
    for call in (
        lambda: pipeline.run_job(spark, "label_reads", folder, tmp_path / "out", **options),
        lambda: pipeline.open_trace(spark, folder, tmp_path / "work", **options),
    ):
        with pytest.raises(TraceContentError, match="positions and the reads do not overlap") as caught:
            call()
        assert caught.value.found.count(" UTC") == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("late_us", [0, 1])
def test_reads_overlap_positions_from_the_beginning_of_their_windows(spark, folder, tmp_path, late_us):
    loaded = trace.load(folder)
    longest_us = round(1e6 * pc.max(loaded.reads["window_s"]).as_py())
    last_us, first_us = epoch_us(loaded.positions["ts"]).max(), epoch_us(loaded.reads["ts"]).min()
    save_log(loaded, last_us + longest_us - first_us + late_us, tmp_path / "reads")
    with pytest.raises(TraceContentError, match="do not overlap") if late_us else nullcontext():
        pipeline.open_trace(spark, folder, tmp_path / "work", reads=tmp_path / "reads")
