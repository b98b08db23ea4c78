"""From files of public formats to trace folders on Spark: file by file, then device by device."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from mudkit import errors, words
from mudkit.checks import check_arguments
from mudkit.display import Displayed, View, first_rows, shows_fields
from mudkit.files import Place, PlaceLike, existing, output_problem, place, staged_file
from mudkit.pipeline.executors import provide
from mudkit.pipeline.resume import Stage, remove_stopped, resumable
from mudkit.pipeline.tables import read
from mudkit.trace import TraceWriter, read_manifest
from mudkit.trace.clean import clean
from mudkit.trace.folder import (
    OUTPUT_NAMES,
    TableFile,
    dataset,
    files_by_date,
    is_trace,
    table_files,
    write_manifest,
)
from mudkit.trace.formats import Segment
from mudkit.trace.loaded import describe_passed_over
from mudkit.trace.logs import check_overlap, no_reads
from mudkit.trace.options import LoadPlan, Options, refuse_for_folder
from mudkit.trace.parse import parsed_batches
from mudkit.trace.schema import SCHEMAS, device_buckets, epoch_us
from mudkit.trace.tally import Tally
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

_BUCKET_BYTES = 64 << 20
_MAX_BUCKETS = 1024
_MIN_GROUPS = 64  # where there are as many files: so that all cores have something to do
_ANSWER = pa.schema([("error", pa.string()), ("counted", pa.string())])
"""Answer of a task: the class of an error, or an empty text; the error or the counts as JSON."""


@check_arguments(types=False)
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
        0 when the trace already existed, from the same file with the same options.
    parts, parts_reused : int
        Number of tasks (to parse files, to clean buckets), and of those that a stopped run had finished.
    passed_over : str
        Files of a folder that were not read, by suffix; nothing if all were.
    """

    path: Path
    rows: int
    kept: int
    reads: int
    rejected: dict[str, int]
    duration_s: float
    parts: int = 0
    parts_reused: int = 0
    passed_over: str = ""

    def _view(self) -> View:
        facts = {
            "trace": str(self.path),
            "rows": self.rows,
            "kept": self.kept,
            "set aside": sum(self.rejected.values()),
            "reads": self.reads,
            "took": words.duration(self.duration_s) if self.duration_s else "nothing: it was there",
            "parts of a stopped run": self.parts_reused or None,
            "files passed over": self.passed_over or None,
        }
        rows = first_rows(("set aside because", "rows"), self.rejected.items(), len(self.rejected))
        return View("IngestReport", facts, [rows])

    def __str__(self) -> str:
        aside = ", ".join(f"{count:,} {reason}" for reason, count in self.rejected.items())
        return (
            f"{self.rows:,} rows: {self.kept:,} kept, {sum(self.rejected.values()):,} rejected"
            f"{f' ({aside})' if aside else ''}; {self.reads:,} reads; in {self.path}"
            + (f"; files passed over: {self.passed_over}" if self.passed_over else "")
        )


@check_arguments(types=False)
def ingest(
    spark: SparkSession,
    source: PlaceLike,
    path: PlaceLike,
    *,
    overwrite: bool = False,
    **options: Any,
) -> IngestReport:
    """Convert a file into a trace folder, partitioned by date.

    Rows, reasons and reads are those of :func:`mudkit.trace.load`, but the trace need not fit in
    memory: tasks parse files (many small ones a task) into buckets by device, then clean one bucket each.
    Executors read the source, and write the trace, under the same paths as the driver. Rows stay in Arrow;
    only task numbers and counts pass through the JVM.

    After any stop (a kill, Ctrl-C, a lost cluster), the next call with the same file and options resumes:
    parsed files and cleaned buckets are reused.

    Parameters
    ----------
    spark : SparkSession
    source : path-like
        A file or folder that :func:`mudkit.trace.load` reads.
    path : path-like
        The trace folder to create. One from the same file with the same options is left unchanged.
    overwrite : bool
        Replace what is at ``path``.
    **options
        Those of :class:`mudkit.trace.Options`.

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
    # Absolute, because executors have other working directories.
    plan = Options(**options).plan(existing(source, "trace").absolute())
    origin, description = plan.source, plan.description()
    at = _local(path)
    if not overwrite and is_trace(at):
        manifest = read_manifest(at)
        if all(manifest.get(key) == value for key, value in description.items()):
            remove_stopped(at)
            return _report(at, manifest)
    sizes = origin.sizes()
    buckets = min(max(2, -(-sum(sizes) // _BUCKET_BYTES)), _MAX_BUCKETS)  # so that one fits a task's memory
    identity = {"job": "ingest", "buckets": buckets, **description}
    with resumable(at, identity, overwrite=OUTPUT_NAMES if overwrite else None) as stage:
        # If the source begins with local times, whether others name a zone is found here, for all tasks.
        next(parsed_batches(plan), None)
        work = _Work(plan, stage, _groups(origin.files(), sizes), buckets)
        sources = len(_sort_out(stage))
        parsed = _run(spark, stage, "files", work.parse, len(work.groups), at)
        parsed.check_parsed(plan)
        total = _run(spark, stage, "bucket", work.clean, work.buckets, at)
        total.add(parsed)
        total.check_cleaned(plan)
        files = {name: _written(stage.out, name) for name in ("positions", "reads", "rejected")}
        write_manifest(stage.out, {**description, "rejected": total.aside}, files)
    parts = len(work.groups) + work.buckets
    return _report(at, read_manifest(at), time.monotonic() - started, parts, sources)


def _local(path: PlaceLike) -> Path:
    """Return the path of an output; a job's parts are moved to their place, which a store need not do."""
    at = place(path, "trace")
    if isinstance(at, Path):
        return at
    raise errors.OutputProblem(
        "The output of this job is named by an address.",
        where=str(at),
        found=str(at),
        expected="a folder of this machine, or one that it shares with the workers",
        remedy="write it there, and copy the folder",
    )


def _written(folder: Path, table: str) -> list[TableFile]:
    """Return the files of a table that the tasks have written."""
    return [
        {
            "name": file.relative_to(folder).as_posix(),
            "rows": pq.read_metadata(file).num_rows,
            "bytes": file.stat().st_size,
        }
        for file in (folder / table).rglob("part-*")
    ]


def _report(
    path: Path, manifest: dict[str, Any], duration_s: float = 0.0, parts: int = 0, sources: int = 0
) -> IngestReport:
    rows = manifest["rows"]
    kept = rows[manifest["options"]["table"]]
    return IngestReport(
        path,
        kept + rows["rejected"],
        kept,
        rows["reads"],
        manifest["rejected"],
        duration_s,
        parts,
        sources,
        describe_passed_over(manifest),
    )


def _groups(files: Sequence[Place], sizes: Sequence[int]) -> tuple[tuple[Place, ...], ...]:
    """Divide the files, in order, into groups that one task parses; GeoLife has 18,670 files."""
    max_bytes = min(max(sum(sizes) // _MIN_GROUPS, 1), _BUCKET_BYTES)
    groups: list[list[Place]] = []
    room = 0
    for file, size in zip(files, sizes, strict=True):
        if size > room:
            groups.append([])
            room = max_bytes
        groups[-1].append(file)
        room -= size
    return tuple(map(tuple, groups))


@dataclass(frozen=True)
class _Work:
    """Work of the tasks; it is pickled to the executors."""

    plan: LoadPlan
    stage: Stage
    groups: tuple[tuple[Place, ...], ...]
    buckets: int

    def parse(self, number: int) -> Tally:
        """Parse a group of files; rows go to the bucket of their device."""
        tally = Tally()
        aside = TraceWriter(self.stage.out, f"files-{number:05d}-")
        with ExitStack() as stack:
            writers: dict[int, pq.ParquetWriter] = {}
            for parsed in parsed_batches(self.plan, [Segment(file) for file in self.groups[number]]):
                tally.add_parsed(parsed)
                aside.write("rejected", parsed.bad)
                good = parsed.good.set_column(0, "source", parsed.good["source"].cast(pa.string()))
                bucket = device_buckets(good["device"], self.buckets)
                for of in np.unique(bucket).tolist():
                    if of not in writers:
                        final = self.stage.work / f"{of:05d}" / f"part-files-{number:05d}-.parquet"
                        staging = stack.enter_context(staged_file(final))
                        writers[of] = stack.enter_context(pq.ParquetWriter(staging, good.schema))
                    writers[of].write_table(good.filter(pa.array(bucket == of)))
        return tally

    def clean(self, number: int) -> Tally:
        """Clean the devices of one bucket, derive their reads, and write their part of the trace."""
        tally = Tally()
        files = sorted((self.stage.work / f"{number:05d}").glob("part-*"))
        if files:
            rows = pa.concat_tables([pq.read_table(file) for file in files], promote_options="default")
            tables = clean(rows, self.plan)
            tally.add_cleaned(tables)
            writer = TraceWriter(self.stage.out, f"bucket-{number:05d}-")
            for name in ("positions", "reads", "rejected"):
                writer.write(name, getattr(tables, name))
        return tally


def _part_of(file: Path) -> str:
    """Return the name of the part of a file."""
    return "-".join(file.name.split("-")[1:3])


def _sort_out(stage: Stage) -> dict[str, Any]:
    """Return the complete parts, and remove the files of others."""
    manifest = stage.finished()
    stage.clear(lambda file: _part_of(file) not in manifest)
    return manifest


def _run(
    spark: SparkSession, stage: Stage, kind: str, work: Callable[[int], Tally], tasks: int, path: Path
) -> Tally:
    """Run the unfinished of the tasks 0, 1, … on Spark; return the counts of all, or raise an error."""
    manifest = stage.finished()
    names = [f"{kind}-{number:05d}" for number in range(tasks)]
    todo = [number for number, name in enumerate(names) if name not in manifest]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                name, which = names[todo[number]], ""
                try:
                    counted = vars(work(todo[number]))
                    stage.finish(name, counted, _files(stage, name))
                except (errors.MudkitError, OSError) as error:
                    problem = error if isinstance(error, errors.MudkitError) else output_problem(path, error)
                    _, (kind_of_error, summary, fields) = problem.__reduce__()
                    which, counted = kind_of_error.__name__, {"summary": summary, **fields}
                answer = [{"error": which, "counted": json.dumps(counted)}]
                yield from pa.Table.from_pylist(answer, schema=_ANSWER).to_batches()

    counts = [manifest[name] for name in names if name in manifest]
    if todo:
        provide(spark)
        numbers = spark.range(0, len(todo), 1, min(len(todo), _MAX_BUCKETS))
        answers = numbers.mapInArrow(run, "error STRING, counted STRING").collect()
        for which, text in answers:
            if which:
                raise getattr(errors, which)(**json.loads(text))
            counts.append(json.loads(text))
    total = Tally()
    for counted in counts:
        total.add(Tally.of(counted))
    return total


def _files(stage: Stage, name: str) -> list[Path]:
    """List the files of a part."""
    return [file for folder in (stage.out, stage.work) for file in folder.rglob(f"part-{name}-*")]


@check_arguments(types=False)
@shows_fields
@dataclass(frozen=True)
class OpenTrace:
    """A trace ready for the jobs.

    Attributes
    ----------
    positions, reads : DataFrame
        The tables, with the schemas of :mod:`mudkit.trace.schema`.
    rows : pandas.DataFrame
        ``source, what, rows``: rows kept, and rows set aside by reason, of each source.
    positions_path, reads_path : Path or UPath
        Their trace folders, for :func:`mudkit.pipeline.run_job`; without a log the same one.
    """

    positions: DataFrame
    reads: DataFrame
    rows: pd.DataFrame
    positions_path: Place
    reads_path: Place


@check_arguments(types=False)
def open_trace(
    spark: SparkSession,
    trace: PlaceLike,
    work: PlaceLike,
    *,
    reads: PlaceLike = "",
    reads_columns: dict[str, str] | None = None,
    **options: Any,
) -> OpenTrace:
    """Open a trace, ingesting what is not a trace folder yet.

    Parameters
    ----------
    spark : SparkSession
    trace : path-like
        Positions: a file that :func:`mudkit.trace.load` reads, or a trace folder.
    work : path-like
        Folder for ingested traces.
    reads : path-like, optional
        Recorded reads: a file or a trace folder. By default those of the trace folder, or derived ones.
    reads_columns : dict, optional
        Column mapping of ``reads``.
    **options
        Those of :class:`mudkit.trace.Options`; ``reads`` has the same, but for its format, columns and rule.

    Raises
    ------
    TraceContentError
        There is no read, or the time ranges of positions and reads do not overlap.
    InputMissing, TraceFormatError, ParameterError
        As :func:`mudkit.pipeline.ingest`.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    given = Options(**options)
    files = {"positions": (existing(trace, "trace"), replace(given, rule="none") if str(reads) else given)}
    if str(reads):
        files["reads"] = existing(reads, "file of reads"), given.of_log(reads_columns)
    counts: list[tuple[str, str, int]] = []
    places: dict[str, Place] = {}
    for table, (origin, of_file) in files.items():
        if is_trace(origin):
            if len(files) == 1 or table == "reads":
                requests = {name: getattr(of_file, name) for name in ("rule", "box_km", "window_s")}
                refuse_for_folder(origin, **requests)
            places[table] = origin
        else:
            places[table] = place(work) / table
            ingest(spark, origin, places[table], **vars(of_file))
        counts += _row_counts(places[table], table, with_reads=len(files) == 1)
    at, reads_at = places["positions"], places.get("reads", places["positions"])
    if not read_manifest(reads_at)["rows"].get("reads"):
        raise no_reads(str(reads or trace), ", ".join(f"{n:,} {what}" for _, what, n in counts))
    if reads_at != at:
        check_folders(at, reads_at)
    rows = pd.DataFrame(counts, columns=["source", "what", "rows"])
    return OpenTrace(read(spark, at, "positions"), read(spark, reads_at, "reads"), rows, at, reads_at)


def check_folders(positions_path: Place, reads_path: Place) -> None:
    """Raise TraceContentError if no read of a trace folder asks for a time of another's positions."""
    where = f"{positions_path.name} and {reads_path.name}"
    check_overlap(_ends(positions_path, "positions"), _ends(reads_path, "reads"), where)


def _ends(trace: Place, table: str) -> tuple[int, int] | None:
    """Return the first and the last time of rows, of reads with their windows; None without rows."""
    by_date = files_by_date(trace, table)
    if not by_date:
        return None
    schema, dates = SCHEMAS[table], list(by_date)
    first, last = (dataset(by_date[date], schema) for date in (dates[0], dates[-1]))
    longest_s = 0.0
    if table == "reads":
        windows = dataset(table_files(trace, table), schema).to_table(columns=["window_s"])
        longest_s = pc.max(windows["window_s"]).as_py()
    begin, end = (epoch_us(part.to_table(columns=["ts"])["ts"]) for part in (first, last))
    return int(begin.min()) - round(longest_s * US_PER_S), int(end.max())


def _row_counts(folder: Place, table: str, *, with_reads: bool) -> list[tuple[str, str, int]]:
    manifest = read_manifest(folder)
    name, rows = str(manifest.get("name", folder.name)), manifest["rows"]
    counts = [(name, table, int(rows.get(table, 0)))]
    if table == "positions" and with_reads:
        rule = manifest.get("options", {}).get("rule", "")
        counts.append((name, f"reads ({rule})" if rule else "reads", int(rows.get("reads", 0))))
    return counts + [(name, f"rejected: {reason}", n) for reason, n in manifest.get("rejected", {}).items()]
