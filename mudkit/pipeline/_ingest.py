"""From files of public formats to trace folders on Spark: file by file, then device by device."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.display import Displayed, View, first_rows, shows_fields
from mudkit.errors import InputMissing
from mudkit.files import Place, PlaceLike, existing, output_problem, place
from mudkit.pipeline.commits import RESULT, Committed, File, Job, Layout, Part, commit, sweep_finished
from mudkit.pipeline.compaction import (
    Merge,
    Span,
    group_rows,
    merge,
    plan_merges,
    read_where,
    spans,
    write_by_date,
)
from mudkit.pipeline.frames import find_frame, plan_frame
from mudkit.pipeline.inputs import PART_BYTES, FileInput, FrameInput, Input
from mudkit.pipeline.outputs import Files, Output, Table, check_output, put_rows, table_rows
from mudkit.pipeline.rows import rows_by_bucket
from mudkit.pipeline.tables import read
from mudkit.pipeline.tasks import GROUP_ROWS, PartWriter, check_rows, run_tasks, writing
from mudkit.trace import read_manifest
from mudkit.trace.clean import clean
from mudkit.trace.folder import MANIFEST, dataset, files_by_date, is_trace, table_files
from mudkit.trace.formats import Files as SourceFiles
from mudkit.trace.formats import find
from mudkit.trace.loaded import describe_passed_over
from mudkit.trace.logs import check_overlap, no_reads
from mudkit.trace.options import LoadPlan, Options, refuse_for_folder
from mudkit.trace.parse import Parsed
from mudkit.trace.schema import SCHEMAS, epoch_us
from mudkit.trace.tally import Tally
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.trace.formats.given import Given

TRACE = Layout(MANIFEST, tuple(SCHEMAS))
"""A trace folder."""

TABLES = Layout(RESULT.manifest, tuple(SCHEMAS))
"""The tables of a trace as files of another format, for other programs."""

_TIMES = {"positions": "ts", "reads": "ts", "rejected": None}
"""Tables of an ingest, and the columns by whose dates they are divided."""

_ROWS = "rows"
"""Folder of the parsed rows; each row group has those of one bucket."""
_BUCKET = "bucket"
_MAX_BUCKETS = 1024


@check_arguments(types=False)
@dataclass(frozen=True, repr=False)
class IngestReport(Displayed):
    """Result of an ingest: rows kept, derived and set aside.

    Attributes
    ----------
    path : Path, UPath or Table
        The trace folder, or folder of tables, or tables of the catalogue.
    rows, kept, reads : int
        Rows in the file; rows that are in the trace; reads, recorded or derived.
    rejected : dict
        Rows set aside, by reason.
    duration_s : float
        0 when the trace already existed, from the same file with the same options.
    parts, parts_reused : int
        Number of parts (to parse files, to clean buckets, to merge dates), and of those that a stopped run
        had finished.
    passed_over : str
        Files of a folder that were not read, by suffix; nothing if all were.
    """

    path: Place | Table
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
    source: Given | DataFrame,
    path: Output,
    *,
    overwrite: bool = False,
    **options: Any,
) -> IngestReport:
    """Convert files, or the rows of a table, into a trace folder, partitioned by date.

    Rows, reasons and reads are those of :func:`mudkit.trace.load`, but the trace need not fit in memory:
    tasks parse the rows (many small files a task, a large one in segments) into buckets by device, clean one
    bucket each, and merge the buckets by date. The trace has no more files than its dates need, of about
    128 MB, sorted by time and device. Executors read the source, and write the trace, under the same paths as
    the driver. Rows stay in Arrow; only task numbers and counts pass through the JVM, and the counts of each
    step must agree.

    The trace is complete when ``trace.json``, which names its files, is there; until then ``_job-…`` in its
    folder has what is finished. After any stop (a kill, Ctrl-C, a lost cluster), the next call with the same
    files and options resumes: parsed files, cleaned buckets and merged dates are reused. A file is known by
    its name, size and time of modification. Each call reads the rows of a DataFrame or table anew.

    Parameters
    ----------
    spark : SparkSession
    source : path-like, list of path-like, DataFrame or str
        What :func:`mudkit.trace.load` reads; or a DataFrame, or the name of a view or table of the
        catalogue, whose columns are found, or mapped, as those of a file (``place.lat`` is a field of a
        struct). Its rows have the number 0 in ``rejected``.
    path : path-like, Files or Table
        The trace folder to create. One from the same files with the same options is left unchanged.
        :class:`~mudkit.pipeline.Files` of another format than Parquet have the tables as folders
        ``positions``, ``reads`` and ``rejected``, for other programs; mudkit reads each of them as any folder
        of files. A :class:`~mudkit.pipeline.Table` of the catalogue is three: ``NAME_positions`` and so on.
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
        Something else is at ``path``, or it cannot be written (nothing is left behind), the workers do not
        share it, or another job began there.
    """
    started = time.monotonic()
    check_output(path)
    given = _input(spark, source, Options(**options))
    plan = given.plan
    description = {**plan.description(), **given.described}
    # One fits a task's memory; of an odd number, two cores would wait for the last one.
    buckets = min(2 * max(1, -(-given.text_bytes // (2 * PART_BYTES))), _MAX_BUCKETS)

    format = path.format if isinstance(path, Files) else "parquet"  # noqa: A001
    layout = TRACE if format == "parquet" else TABLES
    if layout is TABLES:
        description["files_format"] = format

    def fill(at: Place, **how: bool) -> Committed:
        def body(job: Job) -> dict[str, Any]:
            with writing(at):
                return {**description, **IngestWork(plan, job, buckets, format).run(spark, given)}

        identity = {"job": "ingest", "buckets": buckets, **description}
        return commit(at, identity, layout, body, **how)

    if isinstance(path, Table):
        outputs = {
            name: (path.part(name), from_arrow_schema(SCHEMAS[name]), by) for name, by in _TIMES.items()
        }
        with table_rows(spark, [*outputs.values()], overwrite=overwrite) as folder:
            done = fill(folder, overwrite=True, reuse=True)
            for name, output in outputs.items():
                files = [File(**file) for file in done.manifest["files"][name]]
                put_rows(spark, *output, folder / name, [(folder / file.name, file.rows) for file in files])
        return _report(path, done.manifest, time.monotonic() - started, done.parts, done.reused)
    out = place(path.path if isinstance(path, Files) else path, "trace")
    at = out.absolute()
    manifest = None if overwrite else _manifest(at, layout)
    if manifest and all(manifest.get(key) == value for key, value in description.items()):
        sweep_finished(at, layout)
        return _report(out, manifest)
    done = fill(at, overwrite=overwrite)
    return _report(out, done.manifest, time.monotonic() - started, done.parts, done.reused)


def _manifest(at: Place, layout: Layout) -> dict[str, Any] | None:
    """Return the manifest of an output that is there; None without one."""
    try:
        if layout is TRACE:
            return read_manifest(at) if is_trace(at) else None
        return layout.read(at)
    except InputMissing as error:  # the store gives no right, or does not answer
        raise output_problem(at, error.__cause__ or error) from error


def _input(spark: SparkSession, source: Given | DataFrame, options: Options) -> Input:
    """Return the input: files, or the rows of a DataFrame, or of a view or table by its name."""
    frame = find_frame(spark, source)
    if frame is None:
        place_or_table = find(source)
        if not isinstance(place_or_table, pa.Table):
            # Absolute, because executors have other working directories.
            files = place_or_table if isinstance(place_or_table, SourceFiles) else place_or_table.absolute()
            return FileInput.of(options.plan(files))
        frame = spark.createDataFrame(place_or_table)
    return FrameInput.of(*plan_frame(frame, source if isinstance(source, str) else "table", options))


def _report(
    path: Place | Table, manifest: dict[str, Any], duration_s: float = 0.0, parts: int = 0, sources: int = 0
) -> IngestReport:
    """Return the report of an ingest from its manifest.

    ``parts`` are the finished parts, ``sources`` the reused ones.
    """
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


@dataclass(frozen=True)
class IngestWork:
    """Work of an ingest and of its tasks; it is pickled to the executors."""

    plan: LoadPlan
    job: Job
    buckets: int
    format: str

    def run(self, spark: SparkSession, given: Input) -> dict[str, Any]:
        """Write the trace, step by step; return its counts and files.

        OutputProblem if a step lost or added rows.
        """
        parsed = given.parse(spark, self.job, self.write)
        total = _total(parsed)
        total.check_parsed(self.plan)
        read = total.rows if given.rows is None else given.rows
        check_rows(self.job, "what the tasks have read", read, total.rows)
        check_rows(self.job, "what the tasks have parsed", total.parsed, _count(parsed.values(), _ROWS))
        rows = [file.name for file in _files(parsed.values(), _ROWS)]
        buckets = {f"bucket-{number:05d}": (number, rows) for number in range(self.buckets)}
        cleaned = run_tasks(spark, self.job, self.clean, buckets)
        of_cleaned = _total(cleaned)
        kept = of_cleaned.positions if self.plan.options.table == "positions" else of_cleaned.reads
        check_rows(self.job, "what was cleaned", total.parsed, kept + of_cleaned.rejected.total())
        total.add(of_cleaned)
        total.check_cleaned(self.plan)
        every = [*parsed.values(), *cleaned.values()]
        merges = plan_merges(_spans(cleaned.values()), {"rejected": _files(every, "rejected")})
        merged = run_tasks(spark, self.job, self.merge, merges).values()
        aside = total.aside
        expected = {"positions": total.positions, "reads": total.reads, "rejected": sum(aside.values())}
        for table, count in expected.items():
            check_rows(self.job, f"the table {table}", count, _count(merged, table))
        files = {table: [vars(file) for file in _files(merged, table)] for table in expected}
        return {"rejected": aside, "rows": expected, "files": files}

    def write(self, name: str, parsed: Iterable[Parsed]) -> Part:
        """Write parsed rows in row groups, each of which has the rows of one bucket of devices."""
        tally, job = Tally(), self.job
        with (
            PartWriter(job, f"{job.work}/rejected", name) as aside,
            PartWriter(job, f"{job.work}/{_ROWS}", name, is_scratch=True) as rows,
        ):
            waiting: list[pa.Table] = []
            waiting_rows = 0
            for batch in parsed:
                tally.add_parsed(batch)
                aside.write(batch.bad)
                waiting.append(batch.good)
                waiting_rows += len(batch.good)
                if waiting_rows >= GROUP_ROWS:
                    self._write_buckets(rows, waiting)
                    waiting, waiting_rows = [], 0
            self._write_buckets(rows, waiting)
        return Part({"tally": vars(tally)}, (*rows.files, *aside.files))

    def _write_buckets(self, writer: PartWriter, tables: list[pa.Table]) -> None:
        """Write rows to a file, one row group for each bucket of devices."""
        tables = [table for table in tables if len(table)]
        if not tables:
            return
        rows = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
        for number, some in rows_by_bucket(rows, self.buckets):
            of = pa.array(np.full(len(some), number, dtype=np.int32))
            writer.write(some.append_column(_BUCKET, of))
            writer.end_group()

    def clean(self, name: str, item: tuple[int, Sequence[str]]) -> Part:
        """Clean the devices of one bucket, whose rows are in some files, and derive their reads."""
        bucket, files = item
        tally, job = Tally(), self.job
        of_bucket = (read_where(job.path / file, _BUCKET, bucket) for file in files)
        pieces = [rows for rows in of_bucket if rows is not None]
        written: list[File] = []
        by_date: list[File] = []
        if pieces:
            rows = pa.concat_tables(pieces, promote_options="default").unify_dictionaries().combine_chunks()
            pieces.clear()  # the rows have been copied
            tables = clean(rows, self.plan)
            tally.add_cleaned(tables)
            for table in ("positions", "reads"):
                of_table = getattr(tables, table)
                by_date += write_by_date(job, table, of_table, name, group_rows(self.buckets))
            with PartWriter(job, f"{job.work}/rejected", name) as writer:
                writer.write(tables.rejected)
            written = [*by_date, *writer.files]
        row_groups = [span for file in by_date for span in spans(job, file)]
        return Part({"tally": vars(tally), "spans": row_groups}, tuple(written))

    def merge(self, name: str, merges: Sequence[Merge]) -> Part:
        """Write the files of the trace that some merges describe, and return them as a part."""
        return Part(None, tuple(merge(self.job, merges, self.format)))


def _spans(cleaned: Iterable[Part]) -> dict[str, list[Span]]:
    """Return the row groups of the cleaned parts of positions and of reads, by table."""
    by_table: dict[str, list[Span]] = {"positions": [], "reads": []}
    for part in cleaned:
        for span in starmap(Span, part.counted["spans"]):
            by_table[_table(File(span.file, 0, 0))].append(span)
    return by_table


def _total(parts: Mapping[str, Part]) -> Tally:
    """Return the sum of the parts' tallies."""
    total = Tally()
    for part in parts.values():
        total.add(Tally.of(part.counted["tally"]))
    return total


def _table(file: File) -> str:
    """Return the table of a file, whether the file is in the trace or in the job's folder."""
    folders = file.name.split("/")
    return folders[-2] if folders[-2] in (*TRACE.tables, _ROWS) else folders[-3]


def _files(parts: Iterable[Part], table: str) -> list[File]:
    """Return the files of a table in the order of the parts."""
    return [file for part in parts for file in part.files if _table(file) == table]


def _count(parts: Iterable[Part], table: str) -> int:
    """Return the number of rows that parts have of a table."""
    return sum(file.rows for file in _files(parts, table))


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
    """Raise TraceContentError unless the times of a trace's reads overlap those of another's positions."""
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
    """Return the rows of a trace folder as ``source, what, rows``; rejected rows by reason."""
    manifest = read_manifest(folder)
    name, rows = str(manifest.get("name", folder.name)), manifest["rows"]
    counts = [(name, table, int(rows.get(table, 0)))]
    if table == "positions" and with_reads:
        rule = manifest.get("options", {}).get("rule", "")
        counts.append((name, f"reads ({rule})" if rule else "reads", int(rows.get("reads", 0))))
    return counts + [(name, f"rejected: {reason}", n) for reason, n in manifest.get("rejected", {}).items()]
