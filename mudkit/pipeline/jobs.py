"""Resumable jobs over a trace folder, some dates at a time.

Results equal those of the same function over the whole trace: all rows of a part's dates are in that part,
and the rows that they need of other dates (a window, a horizon, an interval over midnight) are read, too.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql import types as T  # noqa: N812 - the name that everybody knows

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.display import Displayed, View
from mudkit.errors import ParameterError, TraceContentError, did_you_mean
from mudkit.files import Place, PlaceLike, existing, place, stamp
from mudkit.pipeline._ingest import check_folders
from mudkit.pipeline._progress import progress
from mudkit.pipeline.commits import Job, Part
from mudkit.pipeline.counts import cells, propagation
from mudkit.pipeline.coverage import Reads
from mudkit.pipeline.derived import join, speeds, stops, trips
from mudkit.pipeline.labels import check_horizon, labels_of, writes_of
from mudkit.pipeline.outputs import Files, Output, Table, write_output
from mudkit.pipeline.tables import read_files
from mudkit.pipeline.tasks import write_frame
from mudkit.predicates import Predicate
from mudkit.trace import read_manifest
from mudkit.trace.folder import dataset, files_by_date
from mudkit.trace.schema import READS, epoch_us

_DAY_US = 86_400_000_000
_EPOCH = dt.date(1970, 1, 1)
_PART_BYTES = 16 << 20
"""Parquet of about a million positions: a second or two of work, next to some tenths for an action."""
_MAX_THREADS = 4
"""Parts at a time: enough to fill a session while one part ends, few enough for the driver's memory."""


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class JobReport(Displayed):
    """Result of a job.

    Attributes
    ----------
    path : Path, UPath or Table
        The folder of the result, or its table.
    rows : int
        The number of rows in all of them.
    parts, parts_reused : int
        Number of groups of dates, and of those that a stopped run had finished.
    duration_s : float
    """

    path: Place | Table
    rows: int
    parts: int
    parts_reused: int
    duration_s: float

    def _view(self) -> View:
        facts = {
            "rows": self.rows,
            "written to": str(self.path),
            "took": words.duration(self.duration_s),
            "parts": self.parts,
            "parts of a stopped run": self.parts_reused or None,
        }
        return View("JobReport", facts)

    def __str__(self) -> str:
        return f"{self.rows:,} rows written to {self.path}"


@dataclass(frozen=True)
class _Span:
    """Times ``[low_us, high_us)`` of one part; None: no limit."""

    low_us: int | None
    high_us: int | None

    def starting(self, every_s: int) -> _Span:
        """Return the span of all intervals of ``every_s`` seconds since 1970 that start in this one."""
        return _Span(_multiple(self.low_us, every_s), _multiple(self.high_us, every_s))


@dataclass(frozen=True)
class _Trace:
    """The tables of a trace by date, and the filter of positions."""

    spark: SparkSession
    tables: Mapping[str, Mapping[dt.date, Sequence[Place]]]
    where: str | Predicate | None

    def files(self, table: str, low_us: int | None, high_us: int | None) -> list[Place]:
        """List the files of the dates that overlap ``[low_us, high_us)``."""
        return [
            file
            for date, files in sorted(self.tables[table].items())
            if (low_us is None or _start_us(date) + _DAY_US > low_us)
            and (high_us is None or _start_us(date) < high_us)
            for file in files
        ]

    def frame(self, table: str, span: _Span) -> DataFrame:
        """Read the rows of a span; ``where`` filters positions only."""
        where = self.where if table == "positions" else None
        frame = read_files(self.spark, self.files(table, span.low_us, span.high_us), table, where=where)
        ts = F.col("ts")
        if span.low_us is not None:
            frame = frame.where(ts >= F.timestamp_micros(F.lit(span.low_us)))
        if span.high_us is not None:
            frame = frame.where(ts < F.timestamp_micros(F.lit(span.high_us)))
        return frame

    def reads(self, low_us: int | None, high_us: int | None) -> pa.Table:
        """Load the reads in ``[low_us, high_us)`` into memory."""
        files = self.files("reads", low_us, high_us)
        table = dataset(files, READS).to_table() if files else READS.empty_table()
        t_us = epoch_us(table["ts"])
        keep = (t_us >= (low_us if low_us is not None else t_us)) & (
            t_us < (high_us if high_us is not None else t_us + 1)
        )
        return table.filter(pa.array(keep))

    @cached_property
    def longest_window_us(self) -> int:
        """Length of the longest window of a read, rounded up."""
        longest_s = 0.0
        files = self.files("reads", None, None)
        for batch in dataset(files, READS).to_batches(columns=["window_s"]) if files else ():
            longest_s = max(longest_s, pc.max(batch["window_s"]).as_py() or 0.0)
        return round(longest_s * 1e6) + 1


def _cells(
    trace: _Trace, span: _Span, *, zooms: Sequence[int] = (12, 14, 16), bucket_s: int = 3600
) -> DataFrame:
    """Count positions and reads by cell, in the buckets that start in a span."""
    buckets = span.starting(bucket_s)
    positions, reads = trace.frame("positions", buckets), trace.frame("reads", buckets)
    return cells(positions, reads, zooms=zooms, bucket_s=bucket_s)


def _propagation(trace: _Trace, span: _Span, *, interval_s: int = 300, **options: Any) -> DataFrame:
    """Count messages in the intervals that start in a span."""
    positions = trace.frame("positions", span.starting(interval_s))
    return propagation(positions, interval_s=interval_s, **options)


def _label_reads(
    trace: _Trace, span: _Span, *, horizon_s: float = 7200.0, with_times: bool = False
) -> DataFrame:
    """Label the reads in a span, with the earlier reads and positions that they need."""
    low_us = span.low_us
    since_us = None if low_us is None else low_us - round(horizon_s * 1e6)
    reads = Reads.of(trace.reads(since_us, span.high_us), horizon_s, since_us=low_us)
    first = reads.first_counted
    needed = _Span(int(reads.start_us[first:].min()) if len(reads.ids) > first else low_us, span.high_us)
    labels = labels_of(trace.frame("positions", needed), reads)
    if not with_times:
        return labels
    times = trace.frame("reads", span).select("read_id", "ts").dropDuplicates(["read_id"])
    return labels.join(times, "read_id")


def _label_writes(trace: _Trace, span: _Span) -> DataFrame:
    """Label the positions in a span, with the later reads that may see them."""
    high_us = span.high_us
    until_us = None if high_us is None else high_us + trace.longest_window_us
    return writes_of(trace.frame("positions", span), Reads.of(trace.reads(span.low_us, until_us)))


def _stops(trace: _Trace, span: _Span, **options: Any) -> DataFrame:
    """List stops from the positions in a span."""
    return stops(trace.frame("positions", span), **options)


def _trips(trace: _Trace, span: _Span, **options: Any) -> DataFrame:
    """List trips from the positions in a span."""
    return trips(trace.frame("positions", span), **options)


def _speeds(trace: _Trace, span: _Span, **options: Any) -> DataFrame:
    """List speeds from the positions in a span."""
    return speeds(trace.frame("positions", span), **options)


def _join(trace: _Trace, span: _Span, *, areas: PlaceLike, name: str | None = None) -> DataFrame:
    """Join the positions in a span with areas."""
    return join(trace.frame("positions", span), areas, name=name)


JOBS: Mapping[str, Callable[..., DataFrame]] = {
    "cells": _cells,
    "join": _join,
    "label_reads": _label_reads,
    "label_writes": _label_writes,
    "propagation": _propagation,
    "speeds": _speeds,
    "stops": _stops,
    "trips": _trips,
}
"""Jobs by name."""

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "cells": ("zooms", "bucket_s"),
    "join": ("areas", "name"),
    "label_reads": ("horizon_s",),
    "label_writes": (),
    "propagation": ("zooms", "interval_s", "thresholds", "message_bytes", "aggregate_bytes"),
    "speeds": ("max_gap_s",),
    "stops": ("radius_km", "min_stop_s", "max_gap_s"),
    "trips": ("radius_km", "min_stop_s", "max_gap_s", "min_km"),
}

_DEFAULTS_OF: Mapping[str, Callable[..., DataFrame]] = {
    **JOBS, "propagation": propagation, "speeds": speeds, "stops": stops, "trips": trips
}  # fmt: skip
"""Functions that have the defaults of the options of jobs."""

_BY_DEVICE = ("speeds", "stops", "trips")
"""Jobs that need all rows of a device, and so have one part."""

_TIMES = {"cells": "bucket_ts", "propagation": "interval_ts"}
"""Columns of times by whose date a result is divided; else `ts`."""


def _with_defaults(job: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a job with the defaults of the others, so that equal jobs are the same job."""
    parameters = signature(_DEFAULTS_OF[job]).parameters
    whole = {name: options.get(name, parameters[name].default) for name in _OPTIONS[job]}
    return {name: tuple(value) if name in ("zooms", "thresholds") else value for name, value in whole.items()}


@check_arguments(types=False)
def run_job(
    spark: SparkSession,
    job: str,
    trace: PlaceLike,
    path: Output,
    *,
    reads: PlaceLike | None = None,
    where: str | Predicate | None = None,
    dates: int | None = None,
    overwrite: bool = False,
    **options: Any,
) -> JobReport:
    """Run a job over a trace folder and write its result; a stopped run resumes.

    The result is that of :func:`~mudkit.pipeline.cells`, :func:`~mudkit.pipeline.join`,
    :func:`~mudkit.pipeline.label_reads`, :func:`~mudkit.pipeline.label_writes`,
    :func:`~mudkit.pipeline.propagation`, :func:`~mudkit.pipeline.speeds`, :func:`~mudkit.pipeline.stops` or
    :func:`~mudkit.pipeline.trips` over the whole trace, in any order of rows. Parts run some at a time, and
    stand in ``_job-…`` in the folder until all are finished; the next call with the same trace, job and
    options reuses them, any other removes them. The result is complete when ``_manifest.json``, which names
    its files, is there. The workers share the place with this machine.

    Parameters
    ----------
    spark : SparkSession
    job : str
        One of :data:`JOBS`.
    trace : path-like
        A trace folder.
    path : path-like, Files or Table
        The folder to make, of Parquet files; or :class:`~mudkit.pipeline.Files` of another format by dates,
        or a :class:`~mudkit.pipeline.Table` of the catalogue. Divided by dates, ``label_reads`` has the
        read's ``ts``, too.
    reads : path-like, optional
        The trace folder of an access log; without it the reads are those of ``trace``.
    where : str or Predicate, optional
        Filter of positions, as for :func:`mudkit.pipeline.read`.
    dates : int, optional
        Number of dates of a part; by default as many as have about a million positions. Speeds, stops and
        trips have one part, because a task has all rows of its devices.
    overwrite : bool
        Replace the result of a job that is at ``path``.
    **options
        The options of the job: of ``cells`` ``zooms, bucket_s``; of ``join`` ``areas, name``; of
        ``label_reads`` ``horizon_s``; of ``propagation`` ``zooms, interval_s, thresholds, message_bytes,
        aggregate_bytes``; of ``stops`` ``radius_km, min_stop_s, max_gap_s``, of ``trips`` also ``min_km``; of
        ``speeds`` ``max_gap_s``.

    Returns
    -------
    JobReport

    Raises
    ------
    InputMissing, TraceFormatError, TraceContentError, ParameterError, PredicateError
        There is no such job, option or trace, no read to label, or none that asks for a position's time.
    OutputExists, OutputProblem
        Something is at ``path``, it cannot be written, the workers do not share it, or another job began
        there.
    """
    started = time.monotonic()
    _check(job, dates, options)
    whole = _open(spark, trace, trace if reads is None else reads, where)
    is_label = job.startswith("label_")
    if is_label and not whole.tables["reads"]:
        raise TraceContentError(
            "There are no reads in this trace.",
            where=str(trace if reads is None else reads),
            found="a table of reads without rows",
            expected="at least one read",
            remedy="ingest it with an access log (table=reads) or a rule (rule=trip_start)",
        )
    if is_label and reads is not None:
        check_folders(place(trace), place(reads))
    spans = [_Span(None, None)] if job in _BY_DEVICE else _spans(whole, dates)
    options = _with_defaults(job, options)
    # Raises errors of options or the predicate before anything is written.
    _ = whole.frame("positions", spans[0]) if is_label else JOBS[job](whole, spans[0], **options)
    identity = {
        "job": job,
        "options": options | {"areas": _areas_identity(options["areas"])} if job == "join" else options,
        "where": None if where is None else str(where),
        "spans": [(span.low_us, span.high_us) for span in spans],
        "trace": read_manifest(trace),
        "reads": None if reads is None else read_manifest(reads),
        "files": _files(whole),
    }
    if job == "label_reads" and isinstance(path, Files | Table) and path.date_of != "":
        options["with_times"] = True

    def schema() -> T.StructType:
        return JOBS[job](whole, spans[0], **options).schema

    def write_parts(stage: Job, by: str | None) -> list[Part]:
        frames = {
            f"{number:05d}": lambda span=span: JOBS[job](whole, span, **options)
            for number, span in enumerate(spans)
        }
        return _write_parts(spark, stage, frames, by)

    with progress(spark, job):
        done = write_output(
            spark,
            path,
            identity,
            schema,
            write_parts,
            overwrite=overwrite,
            preferred=_TIMES.get(job, "ts"),
            name=job,
        )
    duration_s = time.monotonic() - started
    out = path if isinstance(path, Table) else place(path.path if isinstance(path, Files) else path, "result")
    return JobReport(out, done.manifest["rows"], len(spans), done.reused, duration_s)


def _write_parts(
    spark: SparkSession, job: Job, frames: Mapping[str, Callable[[], DataFrame]], by: str | None
) -> list[Part]:
    """Write the parts that no stopped run has finished, some at a time; return all in order.

    A part often has fewer tasks than the session runs at a time, above all at its end.
    """
    finished = job.finished()
    todo = {name: frame for name, frame in frames.items() if name not in finished}
    threads = min(len(todo), _MAX_THREADS)
    if threads > 1:
        threads = min(threads, _parallelism(spark))

    def write_part(name: str) -> Part:
        if not job.is_current():
            raise job.lost()
        return write_frame(job, name, todo[name](), by)

    tag = f"mudkit-{uuid.uuid4().hex}"
    spark.addTag(tag)
    try:
        with ThreadPoolExecutor(max(threads, 1), "mudkit-part") as pool:
            run = inheritable_thread_target(spark)(write_part)
            futures = {name: pool.submit(run, name) for name in todo}
            try:
                for name, future in futures.items():
                    finished[name] = future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                with suppress(Exception):  # Java is gone
                    spark.interruptTag(tag)
                raise
    finally:
        with suppress(Exception):
            spark.removeTag(tag)
    return [finished[name] for name in frames]


def _parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that a session runs at a time, in the way that Spark Connect has, too."""
    numbers = spark.range(1 << 12).select(F.spark_partition_id().alias("task"))
    (last,) = numbers.agg(F.max("task")).collect()[0]
    return int(last) + 1


def _check(job: str, dates: Any, options: Mapping[str, Any]) -> None:
    """Raise ParameterError for an unknown job, dates that it cannot have, and wrong or missing options."""
    if job not in JOBS:
        raise ParameterError(
            "There is no such job.",
            where="job",
            found=repr(job),
            expected=", ".join(JOBS),
            remedy=did_you_mean(job, JOBS),
        )
    if dates is not None and (isinstance(dates, bool) or not isinstance(dates, int) or dates < 1):
        raise ParameterError(
            "A part has at least one date.",
            where="dates",
            found=repr(dates),
            expected="a whole number over 0",
        )
    if dates is not None and job in _BY_DEVICE:
        raise ParameterError(
            f"The job {job} is not divided by dates.",
            where="dates",
            found=repr(dates),
            expected="nothing: a task has all rows of some devices",
            remedy="leave it out",
        )
    if job == "join" and "areas" not in options:
        raise ParameterError(
            "The job join needs areas.",
            where="areas",
            found="nothing",
            expected="a GeoJSON file",
            remedy="areas='districts.geojson' (--areas)",
        )
    known = _OPTIONS[job]
    if unknown := [name for name in options if name not in known]:
        raise ParameterError(
            f"The job {job} has no such option.",
            where=job,
            found=", ".join(unknown),
            expected=", ".join(known) or "no options",
            remedy=did_you_mean(unknown[0], known, "leave it out"),
        )
    for name in ("bucket_s", "interval_s"):
        value = options.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 31:
            raise ParameterError(
                "An interval needs a length.", where=name, found=repr(value), expected="whole seconds over 0"
            )
    check_horizon(options.get("horizon_s", 1.0))


def _open(
    spark: SparkSession,
    positions: PlaceLike,
    reads: PlaceLike,
    where: str | Predicate | None,
) -> _Trace:
    """Return the trace of two folders, of which one has the positions and one the reads."""
    by_date = {"positions": files_by_date(positions, "positions"), "reads": files_by_date(reads, "reads")}
    return _Trace(spark, by_date, where)


def _spans(trace: _Trace, dates: int | None) -> list[_Span]:
    """Divide all times into spans of ``dates`` dates each; for None, of as many as their size allows."""
    sizes: dict[dt.date, int] = {}
    for dates_of_table in trace.tables.values():
        for date, files in dates_of_table.items():
            sizes[date] = sizes.get(date, 0) + sum(file.stat().st_size for file in files)
    starts: list[int] = []
    count = size = 0
    for date in sorted(sizes):
        if not starts or (count >= dates if dates is not None else size + sizes[date] > _PART_BYTES):
            starts.append(_start_us(date))
            count = size = 0
        count, size = count + 1, size + sizes[date]
    edges: list[int | None] = [None, *starts[1:], None]
    return [_Span(low, high) for low, high in pairwise(edges)]


def _areas_identity(areas: object) -> object:
    """Return what identifies the areas of a join: their content, or that of their file."""
    if isinstance(areas, Mapping):
        return areas
    return stamp(existing(areas, "areas"))  # type: ignore[arg-type]  # read_areas has checked it


def _files(trace: _Trace) -> list[tuple[str, int, float]]:
    """Return what identifies the trace's files: name, size and time of modification."""
    return [
        (file.name, file.stat().st_size, file.stat().st_mtime)
        for table in trace.tables
        for file in trace.files(table, None, None)
    ]


def _start_us(date: dt.date) -> int:
    """Return the start of a date in UTC."""
    return (date - _EPOCH).days * _DAY_US


def _multiple(t_us: int | None, every_s: int) -> int | None:
    """Return the first multiple of an interval, counted from 1970, that is not before a time.

    None for None.
    """
    return None if t_us is None else -(-t_us // (every_s * 1_000_000)) * every_s * 1_000_000
