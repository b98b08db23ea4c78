"""Summaries of the rows of a trace on Spark: tasks summarise the rows of their devices, the driver joins."""

from __future__ import annotations

import atexit
import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows
from pyspark.sql import types as T  # noqa: N812 - the name that everybody knows

from mudkit.errors import InputMissing
from mudkit.files import Place, PlaceLike, existing, place
from mudkit.pipeline._ingest import ingest
from mudkit.pipeline._progress import progress
from mudkit.pipeline._session import session
from mudkit.pipeline.executors import merged_batches, provide
from mudkit.pipeline.failures import explained
from mudkit.pipeline.frames import find_frame
from mudkit.pipeline.packing import packed, unpacked
from mudkit.pipeline.tables import column, read
from mudkit.predicates import Predicate
from mudkit.trace import read_manifest
from mudkit.trace.folder import is_trace
from mudkit.trace.options import Options
from mudkit.trace.summaries import Keep, Summaries, finished, in_blocks
from mudkit.units import US_PER_S

_PIECE_ROWS = 1 << 17
_RESULT = "name STRING, part BINARY"
_SCHEMA = pa.schema([("name", pa.string()), ("part", pa.binary())])
_BLOCK = pa.schema([("block", pa.int32()), ("part", pa.binary())])


@dataclass(frozen=True)
class SparkRows:
    """Rows of one table of a trace on Spark.

    They satisfy :class:`mudkit.trace.summaries.Distributed`.

    Attributes
    ----------
    frame : DataFrame
        ``device, ts, lat, lon``, and other columns; of blocks ``block, part``, the rows of parts of a block,
        packed.
    what : str
        Label of the progress bar.
    has_blocks : bool
        Whether the rows are in blocks of time.
    """

    frame: DataFrame
    what: str
    has_blocks: bool = False

    @classmethod
    def ordered(cls, frame: DataFrame, what: str) -> SparkRows:
        """Order rows by device and time, all of a device in one task.

        They are kept on the disks of the executors until this process ends, because a report passes over them
        some times.
        """
        ordered = frame.repartition("device").sortWithinPartitions("device", "ts")
        rows = cls(ordered.persist(StorageLevel.DISK_ONLY), what)
        atexit.register(rows.forget)
        return rows

    def summarise(self, summaries: Summaries) -> dict[str, pa.Table]:
        """Return the result of each summary by name, computed in tasks; no rows come to the driver."""
        has_blocks = self.has_blocks  # a task cannot have the DataFrame

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            pieces = _unpacked_blocks(batches) if has_blocks else merged_batches(batches, _PIECE_ROWS)
            results = finished(pieces, summaries)
            parts = [{"name": name, "part": packed(table)} for name, table in results.items()]
            yield from pa.Table.from_pylist(parts, schema=_SCHEMA).to_batches()

        provide(self.frame.sparkSession)
        with progress(self.frame.sparkSession, self.what):
            results = self.frame.mapInArrow(run, _RESULT).toArrow()
        by_name: dict[str, list[pa.Table]] = {name: [] for name in summaries}
        for batch in results.to_batches():
            for name, part in zip(batch["name"].to_pylist(), batch["part"], strict=True):
                by_name[name].append(unpacked(part.as_buffer()))
        return {name: start().joined(pa.concat_tables(by_name[name])) for name, start in summaries.items()}

    def select(self, keep: Keep) -> SparkRows:
        """Return the rows for which ``keep`` returns true, in their order and tasks."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = pa.Table.from_batches([batch])
                yield from rows.filter(pa.array(keep(rows))).to_batches()

        provide(self.frame.sparkSession)
        return SparkRows(self.frame.mapInArrow(run, self.frame.schema), self.what)

    def collect(self, devices: pa.Array | None = None) -> pa.Table:
        """Return the rows of some devices, or of all, in memory, ordered by device and time."""
        frame, spark = self.frame, self.frame.sparkSession
        if devices is not None:
            names = spark.createDataFrame(pa.table({"device": devices}))
            frame = frame.join(F.broadcast(names), "device", "left_semi")
        with progress(spark, self.what):
            return frame.toArrow().sort_by([("device", "ascending"), ("ts", "ascending")])

    def by_time(self, edges_us: NDArray[np.int64], overlap_us: int) -> SparkRows:
        """Return the rows in blocks of time, each in one task, kept as those of :meth:`ordered`.

        They are packed, because for each of many passes Spark would convert every row.
        """

        def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from in_blocks(pa.Table.from_batches([batch]), edges_us, overlap_us).to_batches()

        provide(self.frame.sparkSession)
        schema = T.StructType([*self.frame.schema.fields, T.StructField("block", T.IntegerType())])
        placed = self.frame.mapInArrow(place, schema).repartitionById(len(edges_us), "block")
        in_order = placed.sortWithinPartitions("ts", "device")
        kept = in_order.mapInArrow(_packed_rows, "block INT, part BINARY").persist(StorageLevel.DISK_ONLY)
        rows = SparkRows(kept, self.what, has_blocks=True)
        atexit.register(rows.forget)
        return rows

    def forget(self) -> None:
        """Remove what is kept on disks; a failure is ignored."""
        with suppress(Exception):  # Java is gone, and what it kept, too
            self.frame.unpersist()


def _packed_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the rows of a block, in parts."""
    for rows in merged_batches(batches, _PIECE_ROWS):
        if len(rows):
            part = {"block": rows["block"][0].as_py(), "part": packed(rows.combine_chunks())}
            yield from pa.Table.from_pylist([part], schema=_BLOCK).to_batches()


def _unpacked_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of each block, whose parts follow each other."""
    parts = (row for batch in batches for row in zip(batch["block"], batch["part"], strict=True))
    for _, of_block in groupby(parts, lambda row: row[0].as_py()):
        yield pa.concat_tables([unpacked(part.as_buffer()) for _, part in of_block]).combine_chunks()


@dataclass(frozen=True)
class RowsOfTrace:
    """A trace on Spark, or the selected rows of it.

    Attributes
    ----------
    name : str
        Name of the file, folder or table.
    positions, reads, aside : SparkRows
        Rows that were kept, and those that were set aside.
    seen : dict
        Rows of ``positions``, ``reads`` and ``rejected`` before the selection.
    log_aside : dict
        Rows of the log of reads that were set aside, by reason.
    where : str
        Where Spark runs.
    """

    name: Place | str
    positions: SparkRows
    reads: SparkRows
    aside: SparkRows
    seen: Mapping[str, int]
    log_aside: Mapping[str, int]
    where: str


def open_rows(
    trace: PlaceLike,
    work: PlaceLike,
    options: Options,
    *,
    reads: PlaceLike = "",
    log_options: Options | None = None,
    predicate: Predicate | None = None,
    selects_reads: bool = True,
    period: tuple[dt.datetime, dt.datetime] | None = None,
) -> RowsOfTrace:
    """Open a trace in the session of this process, which is started if there is none.

    Parameters
    ----------
    trace : path-like or str
        What :func:`mudkit.trace.load` reads, a trace folder, or the name of a table or view of the catalogue.
    work : path-like
        Folder for the traces that are made of other sources; this machine and the workers share it.
    options : Options
        Without effect on a trace folder.
    reads : path-like, optional
        A log of reads; by default those of the trace folder, or derived ones.
    log_options : Options, optional
        Options of the log.
    predicate : Predicate, optional
        Which positions are selected.
    selects_reads : bool
        Whether the predicate selects reads, too.
    period : (datetime, datetime), optional
        Begin, and end, which does not belong to it.

    Raises
    ------
    InputMissing, TraceFormatError, TraceContentError, ParameterError, EnvironmentProblem
        As :func:`mudkit.pipeline.ingest` and :func:`mudkit.pipeline.session`; a name is neither a file nor a
        table.
    """
    spark = session()
    with explained():
        name, at = _open_or_ingest(spark, trace, place(work) / "positions", options)
        log_at = at
        if str(reads):
            _, log_at = _open_or_ingest(spark, reads, place(work) / "reads", log_options or options)
    seen = dict(read_manifest(at)["rows"]) | {"reads": read_manifest(log_at)["rows"]["reads"]}
    positions, log = read(spark, at, "positions"), read(spark, log_at, "reads")
    if period is not None:
        begin, end = (F.timestamp_micros(F.lit(round(time.timestamp() * US_PER_S))) for time in period)
        is_within = (F.col("ts") >= begin) & (F.col("ts") < end)
        positions, log = positions.where(is_within), log.where(is_within)
    if predicate is not None:
        positions = positions.where(column(predicate, positions))
        log = log.where(column(predicate, log)) if selects_reads else log
    aside = read(spark, at, "rejected").select("device", "ts", "lat", "lon", "reason")
    return RowsOfTrace(
        name,
        SparkRows.ordered(positions, "positions"),
        SparkRows.ordered(log, "reads"),
        SparkRows(aside, "rows set aside"),
        seen,
        {} if log_at == at else read_manifest(log_at)["rejected"],
        _named(spark),
    )


def _open_or_ingest(
    spark: SparkSession, given: PlaceLike, at: Place, options: Options
) -> tuple[Place | str, Place]:
    """Return the name of a source, and the trace folder that it is or is made into."""
    table = find_frame(spark, given) if isinstance(given, str) else None
    name: Place | str = str(given) if table is not None else _existing(given)
    if not isinstance(name, str) and is_trace(name):
        return name, name
    with progress(spark, "reading the trace"):
        ingest(spark, name if table is None else table, at, **vars(options))
    return name, at


def _existing(given: PlaceLike) -> Place:
    """Return an existing place; InputMissing, which also mentions tables, if nothing is there."""
    try:
        return existing(given, "trace")
    except InputMissing as error:
        if "://" in str(given) or "/" in str(given):
            raise
        raise InputMissing(
            f"There is no file and no table named {given}.",
            where=str(given),
            found=error.found,
            expected="a file or folder, or a table of the catalogue of this session",
            remedy="name the table with its database, as sales.cabs; tables of another catalogue need its "
            "settings in spark-defaults.conf (SPARK_CONF_DIR)",
        ) from error


def _named(spark: SparkSession) -> str:
    """Return the master on which a session runs, for messages; a server of Spark Connect has none."""
    return spark.conf.get("spark.master", "") or "a server of Spark Connect"
