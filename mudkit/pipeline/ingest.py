"""From a file of a public format to a trace folder: Spark parses file by file and cleans device by device."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit import errors
from mudkit.files import existing, staged_folder
from mudkit.pipeline.tables import ddl, writing
from mudkit.trace.clean import check_moves, check_parsed, check_plausible, clean_positions, clean_reads
from mudkit.trace.derive import Rule, derive_reads
from mudkit.trace.folder import is_trace, read_manifest, write_manifest
from mudkit.trace.formats import Source, recognise
from mudkit.trace.load import describe, parsed_batches, rule_for
from mudkit.trace.parse import Options
from mudkit.trace.schema import POSITIONS, READS, REJECTED, SCHEMAS

__all__ = ["IngestReport", "ingest"]

_PARSED = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("device", pa.string()),
        ("t_us", pa.int64()),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("speed_mps", pa.float64()),
        ("occupied", pa.bool_()),
        ("box_km", pa.float64()),
        ("window_s", pa.float64()),
        ("reason", pa.string()),  # null: the row is good
        ("raw", pa.string()),
    ]
)
_CLEAN = pa.unify_schemas([POSITIONS, READS, REJECTED, pa.schema([("kind", pa.string())])])
_CLEAN = pa.schema([field.with_nullable(True) for field in _CLEAN])
_FAILED = "failed"  # a reason that no row has: the file itself could not be read


@dataclass(frozen=True)
class IngestReport:
    """What became of the rows of a file.

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
    """

    path: Path
    rows: int
    kept: int
    reads: int
    rejected: dict[str, int]
    duration_s: float

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
    table: str = "positions",
    columns: dict[str, str] | None = None,
    tz: str = "UTC",
    time_unit: str = "s",
    rule: str | None = None,
    box_km: float = 20.0,
    window_s: float = 7200.0,
    overwrite: bool = False,
) -> IngestReport:
    """Turn a file into a trace folder, partitioned by date.

    Rows, reasons and reads are those of :func:`mudkit.trace.load`, whose options these are; but a whole file
    never is in one place: files are parsed one a task, devices cleaned one a group. Executors read the
    source, and write the trace, under the same paths as the driver.

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
        Something else is at ``path``, or it cannot be written; nothing is left behind.
    """
    started = time.monotonic()
    options = Options(table, tz, time_unit, float(box_km), float(window_s))
    origin = recognise(existing(source, "trace"), format, columns)
    how = rule_for(origin, options, rule)
    description = describe(origin, options, how)
    path = Path(path).expanduser()
    if not overwrite and is_trace(path):
        manifest = read_manifest(path)
        if all(manifest.get(key) == value for key, value in description.items()):
            return _report(path, manifest, 0.0)
    with staged_folder(path, overwrite=overwrite) as folder, writing(path):
        parsed = _parse(spark, origin, options).persist(StorageLevel.DISK_ONLY)
        clean = parsed
        try:
            good = parsed.filter("reason IS NULL")
            bad = _checked(origin, options, parsed)
            clean = good.groupBy("device").applyInArrow(_cleaner(options, how), ddl(_CLEAN))
            clean = clean.persist(StorageLevel.DISK_ONLY)
            counts = _counts(clean)
            rejected = {reason: n for (kind, reason), n in counts.items() if kind == "rejected"}
            kept = sum(n for (kind, _), n in counts.items() if kind == table)
            if table == "positions":
                check_plausible(origin, kept + sum(rejected.values()), rejected)
                devices = clean.filter("kind = 'positions'").select(F.count_distinct("device")).first()
                check_moves(origin, kept, devices[0] if devices else 0)
            _write(clean, parsed, folder)
        finally:
            clean.unpersist()
            parsed.unpersist()
        rejected = {reason: n + bad.pop(reason, 0) for reason, n in rejected.items()} | bad
        manifest = {
            **description,
            "rejected": dict(sorted(rejected.items(), key=lambda item: -item[1])),
            "rows": {
                "positions": kept if table == "positions" else 0,
                "reads": sum(n for (kind, _), n in counts.items() if kind == "reads"),
                "rejected": sum(rejected.values()),
            },
        }
        write_manifest(folder, manifest)
    return _report(path, manifest, time.monotonic() - started)


def _report(path: Path, manifest: dict[str, Any], duration_s: float) -> IngestReport:
    rows = manifest["rows"]
    kept = rows[manifest["options"]["table"]]
    return IngestReport(path, kept + rows["rejected"], kept, rows["reads"], manifest["rejected"], duration_s)


def _parse(spark: SparkSession, origin: Source, options: Options) -> DataFrame:
    """Parse the files, one a task; a file that cannot be read gives one row that says so."""
    files = [(str(file.absolute()),) for file in origin.files()]

    def parse_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch.column(0).to_pylist():
                try:
                    for parsed in parsed_batches(origin, options, [Path(name)]):
                        yield from _fit(parsed.good, _PARSED)
                        yield from _fit(parsed.bad, _PARSED)
                except errors.MudkitError as error:
                    _, (kind, summary, fields) = error.__reduce__()
                    text = json.dumps([kind.__name__, summary, fields])
                    yield from _fit(pa.table({"reason": [_FAILED], "raw": [text]}), _PARSED)

    names = spark.createDataFrame(files, "file STRING").repartition(min(len(files), 64))
    return names.mapInArrow(parse_files, ddl(_PARSED))


def _checked(origin: Source, options: Options, parsed: DataFrame) -> dict[str, int]:
    """Raise what is wrong with the file; else count the rows that were set aside, by reason."""
    groups = parsed.groupBy("reason").agg(F.count("*").alias("n"), F.min("raw").alias("raw")).collect()
    for group in groups:
        if group["reason"] == _FAILED:
            kind, summary, fields = json.loads(group["raw"])
            raise getattr(errors, kind)(summary, **fields)
    bad = {group["reason"]: group["n"] for group in groups if group["reason"] is not None}
    sample = next((group["raw"] or "" for group in groups if group["reason"] is not None), "")
    check_parsed(origin, options, sum(group["n"] for group in groups), bad, sample)
    return bad


def _cleaner(options: Options, rule: Rule) -> Callable[[pa.Table], pa.Table]:
    """Make the function that cleans all rows of one device and derives its reads."""

    def clean(rows: pa.Table) -> pa.Table:
        rows = rows.sort_by([("source", "ascending"), ("row", "ascending")])
        if options.table == "reads":
            reads, rejected = clean_reads(rows, options)
            tables = {"reads": reads, "rejected": rejected}
        else:
            positions, occupied, rejected = clean_positions(rows)
            reads = derive_reads(
                positions, rule, box_km=options.box_km, window_s=options.window_s, occupied=occupied
            )
            tables = {"positions": positions, "reads": reads, "rejected": rejected}
        pieces: list[pa.RecordBatch] = []
        for kind, table in tables.items():
            table = table.append_column("kind", pa.array([kind] * len(table), pa.string()))
            pieces += _fit(table, _CLEAN)
        return pa.Table.from_batches(pieces, _CLEAN)

    return clean


def _counts(clean: DataFrame) -> dict[tuple[str, str], int]:
    groups = clean.groupBy("kind", "reason").count().collect()
    return {(group["kind"], group["reason"] or ""): group["count"] for group in groups}


def _write(clean: DataFrame, parsed: DataFrame, folder: Path) -> None:
    for name in ("positions", "reads"):
        rows = clean.filter(F.col("kind") == name).select(SCHEMAS[name].names)
        dated = rows.withColumn("date", F.to_date("ts")).repartition("date")
        ordered = dated.sortWithinPartitions("date", "ts", "device")
        ordered.write.partitionBy("date").option("compression", "zstd").parquet(str(folder / name))
    aside = [clean.filter("kind = 'rejected'"), parsed.filter("reason IS NOT NULL")]
    rejected = aside[0].select(REJECTED.names).unionAll(aside[1].select(REJECTED.names))
    rejected.coalesce(1).write.option("compression", "zstd").parquet(str(folder / "rejected"))


def _fit(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give a table the columns of a schema, those that it lacks null."""
    have = set(table.column_names)
    columns = [
        table[field.name].cast(field.type) if field.name in have else pa.nulls(len(table), field.type)
        for field in schema
    ]
    yield from pa.table(columns, schema=schema).to_batches(max_chunksize=1 << 16)
