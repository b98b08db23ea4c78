"""From a file of a public format to a trace folder, on Spark: file by file, then device by device."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from mudkit import errors, words
from mudkit.display import Displayed, View, first_rows
from mudkit.files import existing, output_problem, staged_file
from mudkit.pipeline.launch.shipping import provide
from mudkit.pipeline.resume import Stage, resumable, sweep
from mudkit.trace import TraceWriter, read_manifest
from mudkit.trace.clean import check_moves, check_plausible, clean
from mudkit.trace.folder import OUTPUT_NAMES, is_trace, write_manifest
from mudkit.trace.formats import GZIP_FACTOR, Source
from mudkit.trace.options import FileTable, LoadPlan, Options, TimeUnit
from mudkit.trace.parse import check_parsed, parsed_batches
from mudkit.trace.schema import device_buckets

__all__ = ["IngestReport", "ingest"]

_Tally: TypeAlias = tuple[str, str, int, int, str]
_TALLY_TYPES = (pa.string(), pa.string(), pa.int64(), pa.int64(), pa.string())
_BUCKET_BYTES = 64 << 20
_MOST_BUCKETS = 1024
_LEAST_GROUPS = 64  # where there are as many files: so that all cores have something to do
_TALLY = "kind STRING, reason STRING, rows BIGINT, devices BIGINT, sample STRING"
_FAILED = "failed"  # a kind that no row has: the task met an error of mudkit's


@dataclass(frozen=True, repr=False)
class IngestReport(Displayed):
    """Result of an ingest: rows kept, derived and set aside.

    Attributes
    ----------
    path : Path
        The trace folder.
    rows, kept, reads : int
        Rows in the file; rows that are in the trace; reads, recorded or derived.
    rejected : dict
        Rows set aside, by reason.
    duration_s : float
        0 when the trace was there already, made from the same file with the same options.
    parts, parts_reused : int
        Into how many tasks the work was divided (to parse files, to clean buckets), and how many of them a
        stopped run had finished.
    """

    path: Path
    rows: int
    kept: int
    reads: int
    rejected: dict[str, int]
    duration_s: float
    parts: int = 0
    parts_reused: int = 0

    def _view(self) -> View:
        facts = {
            "trace": str(self.path),
            "rows": self.rows,
            "kept": self.kept,
            "set aside": sum(self.rejected.values()),
            "reads": self.reads,
            "took": words.duration(self.duration_s) if self.duration_s else "nothing: it was there",
            "parts of a stopped run": self.parts_reused or None,
        }
        rows = first_rows(("set aside because", "rows"), self.rejected.items(), len(self.rejected))
        return View("IngestReport", facts, [rows])

    def __str__(self) -> str:
        aside = ", ".join(f"{count:,} {reason}" for reason, count in self.rejected.items())
        return (
            f"{self.rows:,} rows: {self.kept:,} kept, {sum(self.rejected.values()):,} rejected"
            f"{f' ({aside})' if aside else ''}; {self.reads:,} reads; in {self.path}"
        )


def ingest(
    spark: SparkSession,
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    format: str = "auto",  # noqa: A002
    *,
    table: FileTable = "positions",
    columns: dict[str, str] | None = None,
    tz: str = "UTC",
    time_unit: TimeUnit = "s",
    rule: str | None = None,
    box_km: float | None = None,
    window_s: float | None = None,
    overwrite: bool = False,
) -> IngestReport:
    """Convert a file into a trace folder, partitioned by date.

    Rows, reasons and reads are those of :func:`mudkit.trace.load`, whose options these are; but a whole trace
    never is in one place: files are parsed, many small ones in a task, into buckets by device, and buckets
    are cleaned one a task. Executors read the source, and write the trace, under the same paths as the
    driver. Rows stay in Arrow from file to file; through the JVM go only task numbers and counts.

    After any stop (a kill, Ctrl-C, a lost cluster), it resumes at the next call with the same file and
    options: files that were parsed and buckets that were cleaned are not done again.

    Parameters
    ----------
    spark : SparkSession
    source : path-like
        A file or folder that :func:`mudkit.trace.load` reads.
    path : path-like
        The trace folder to make. One that was made from the same file with the same options is left as it is.
    format, table, columns, tz, time_unit, rule, box_km, window_s
        As for :func:`mudkit.trace.load`.
    overwrite : bool
        Replace what is at ``path``.

    Returns
    -------
    IngestReport

    Raises
    ------
    InputMissing, TraceFormatError, TraceContentError, ParameterError
        As :func:`mudkit.trace.load`.
    OutputExists, OutputProblem
        Something else is at ``path``, or it cannot be written (nothing is left behind), or another process
        is writing there.
    """
    started = time.monotonic()
    # Executors have folders of their own, in which a relative path means nothing.
    options = Options(format, table, tz, time_unit, columns, rule, box_km, window_s)
    plan = options.plan(existing(source, "trace").absolute())
    origin = plan.source
    options, description = plan.options, plan.description()
    path = Path(path).expanduser()
    if not overwrite and is_trace(path):
        manifest = read_manifest(path)
        if all(manifest.get(key) == value for key, value in description.items()):
            sweep(path)
            return _report(path, manifest)
    sizes = _sizes(origin)
    buckets = min(max(2, -(-sum(sizes) // _BUCKET_BYTES)), _MOST_BUCKETS)  # so that one fits a task's memory
    identity = {"job": "ingest", "buckets": buckets, **description}
    with resumable(path, identity, overwrite=OUTPUT_NAMES if overwrite else None) as stage:
        work = _Work(plan, stage, _groups(origin.files(), sizes), buckets)
        sources = len(_sort_out(stage))
        parsed = _run(spark, stage, "files", work.parse, len(work.groups), path)
        bad = parsed.rows("rejected")
        total = sum(bad.values()) + sum(parsed.rows("good").values())
        check_parsed(plan, total, bad, parsed.sample)
        cleaned = _run(spark, stage, "bucket", work.clean, work.buckets, path)
        rejected = cleaned.rows("rejected")
        kept = sum(cleaned.rows(options.table).values())
        if options.table == "positions":
            check_plausible(origin, total - sum(bad.values()), rejected)
        for reason, count in bad.items():
            rejected[reason] = rejected.get(reason, 0) + count
        if options.table == "positions":
            check_moves(origin, kept, cleaned.devices, rejected)
        manifest = {
            **description,
            "rejected": dict(sorted(rejected.items(), key=lambda item: (-item[1], item[0]))),
            "rows": {
                "positions": sum(cleaned.rows("positions").values()),
                "reads": sum(cleaned.rows("reads").values()),
                "rejected": sum(rejected.values()),
            },
        }
        write_manifest(stage.out, manifest)
    parts = len(work.groups) + work.buckets
    return _report(path, manifest, time.monotonic() - started, parts, sources)


def _report(
    path: Path, manifest: dict[str, Any], duration_s: float = 0.0, parts: int = 0, sources: int = 0
) -> IngestReport:
    rows = manifest["rows"]
    kept = rows[manifest["options"]["table"]]
    return IngestReport(
        path, kept + rows["rejected"], kept, rows["reads"], manifest["rejected"], duration_s, parts, sources
    )


def _sizes(origin: Source) -> list[int]:
    """Give the bytes of each file, unpacked."""
    packed = (file.suffix == ".gz" or origin.format == "parquet" for file in origin.files())
    return [
        file.stat().st_size * (GZIP_FACTOR if is_packed else 1)
        for file, is_packed in zip(origin.files(), packed, strict=True)
    ]


def _groups(files: Sequence[Path], sizes: Sequence[int]) -> tuple[tuple[Path, ...], ...]:
    """Divide the files, in their order, into what one task parses: of GeoLife's 18,670 many go together."""
    most = min(max(sum(sizes) // _LEAST_GROUPS, 1), _BUCKET_BYTES)
    groups: list[list[Path]] = []
    room = 0
    for file, size in zip(files, sizes, strict=True):
        if size > room:
            groups.append([])
            room = most
        groups[-1].append(file)
        room -= size
    return tuple(map(tuple, groups))


@dataclass(frozen=True)
class _Work:
    """What the tasks do; it travels to the executors."""

    plan: LoadPlan
    stage: Stage
    groups: tuple[tuple[Path, ...], ...]
    buckets: int

    def parse(self, number: int) -> Iterator[_Tally]:
        """Parse a group of files; rows go to the bucket of their device."""
        aside = TraceWriter(self.stage.out, f"files-{number:05d}-")
        with ExitStack() as stack:
            writers: dict[int, pq.ParquetWriter] = {}
            for parsed in parsed_batches(self.plan, list(self.groups[number])):
                aside.write("rejected", parsed.bad)
                for reason, count in Counter(parsed.bad["reason"].to_pylist()).items():
                    first = parsed.bad.filter(pc.equal(parsed.bad["reason"], reason))["raw"][0].as_py()
                    yield "rejected", reason, count, 0, first
                yield "good", "", len(parsed.good), 0, ""
                good = parsed.good.set_column(0, "source", parsed.good["source"].cast(pa.string()))
                bucket = device_buckets(good["device"], self.buckets)
                for of in np.unique(bucket).tolist():
                    if of not in writers:
                        final = self.stage.work / f"{of:05d}" / f"part-files-{number:05d}-.parquet"
                        staging = stack.enter_context(staged_file(final))
                        writers[of] = stack.enter_context(pq.ParquetWriter(staging, good.schema))
                    writers[of].write_table(good.filter(pa.array(bucket == of)))

    def clean(self, number: int) -> Iterator[_Tally]:
        """Clean the devices of one bucket, derive their reads, and write their part of the trace."""
        files = sorted((self.stage.work / f"{number:05d}").glob("part-*"))
        if not files:
            return
        rows = pa.concat_tables([pq.read_table(file) for file in files], promote_options="default")
        writer = TraceWriter(self.stage.out, f"bucket-{number:05d}-")
        positions, reads, rejected = clean(rows, self.plan)
        if self.plan.options.table == "positions":
            writer.write("positions", positions)
            yield "positions", "", len(positions), pc.count_distinct(positions["device"]).as_py(), ""
        writer.write("reads", reads)
        writer.write("rejected", rejected)
        yield "reads", "", len(reads), 0, ""
        for reason, count in Counter(rejected["reason"].to_pylist()).items():
            yield "rejected", reason, count, 0, ""


@dataclass(frozen=True)
class _Result:
    """What the tasks of one stage counted."""

    tallies: list[_Tally]

    def rows(self, kind: str) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for of, reason, rows, _, _ in self.tallies:
            if of == kind:
                counts[reason] += rows
        return dict(counts)

    @property
    def devices(self) -> int:
        return sum(tally[3] for tally in self.tallies)

    @property
    def sample(self) -> str:
        return next((tally[4] for tally in self.tallies if tally[4]), "")


def _part_of(file: Path) -> str:
    """Name the part that a file of the stage belongs to."""
    return "-".join(file.name.split("-")[1:3])


def _sort_out(stage: Stage) -> dict[str, Any]:
    """Find the parts that are whole, and clear away what there is of others."""
    manifest = stage.finished()
    stage.clear(lambda file: _part_of(file) not in manifest)
    return manifest


def _run(
    spark: SparkSession,
    stage: Stage,
    kind: str,
    work: Callable[[int], Iterator[_Tally]],
    tasks: int,
    path: Path,
) -> _Result:
    """Run those of the tasks 0, 1, … on Spark that are not done, and collect what all counted.

    Raises the error that one of them met.
    """
    manifest = stage.finished()
    names = [f"{kind}-{number:05d}" for number in range(tasks)]
    todo = [number for number, name in enumerate(names) if name not in manifest]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                number = todo[place]
                try:
                    tallies = list(work(number))
                    stage.finish(names[number], tallies, _files(stage, names[number]))
                except (errors.MudkitError, OSError) as error:
                    problem = error if isinstance(error, errors.MudkitError) else output_problem(path, error)
                    _, (which, summary, fields) = problem.__reduce__()
                    tallies = [(_FAILED, "", 0, 0, json.dumps([which.__name__, summary, fields]))]
                columns = ("kind", "reason", "rows", "devices", "sample")
                rows = [dict(zip(columns, tally, strict=True)) for tally in tallies]
                schema = pa.schema(list(zip(columns, _TALLY_TYPES, strict=True)))
                yield from pa.Table.from_pylist(rows, schema=schema).to_batches()

    tallies: list[_Tally] = [tuple(tally) for name in names for tally in manifest.get(name, ())]
    if todo:
        provide(spark)
        numbers = spark.range(0, len(todo), 1, min(len(todo), _MOST_BUCKETS))
        tallies += [tuple(row) for row in numbers.mapInArrow(run, _TALLY).collect()]
    for which, _, _, _, text in tallies:
        if which == _FAILED:
            name, summary, fields = json.loads(text)
            raise getattr(errors, name)(summary, **fields)
    return _Result(tallies)


def _files(stage: Stage, name: str) -> list[Path]:
    """List the files of a part."""
    return [file for folder in (stage.out, stage.work) for file in folder.rglob(f"part-{name}-*")]
