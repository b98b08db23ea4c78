"""Reads and positions of the same time in the same tasks, where reads are too many to send them whole.

Time is cut into slices with about the same number of reads. A position is in one slice; a read is in each
slice that its window reaches. A slice with many positions is divided into chunks, each with all reads of the
slice. Points that tasks make of the rows of devices are packed by stretches of time, which have fewer reads.
Results do not depend on where slices, chunks and stretches end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.pipeline._progress import progress
from mudkit.pipeline.devices import DeviceRows, add_up, sum_rows, unpacked_devices
from mudkit.pipeline.executors import merged_batches, outcome_of, provide, result_of
from mudkit.pipeline.packing import packed, unpacked
from mudkit.pipeline.tables import ddl
from mudkit.trace.schema import POSITIONS, epoch_us
from mudkit.units import US_PER_S

Prepared = TypeVar("Prepared")
MAX_SENT_READS: Final = 500_000
"""Reads that are sent whole to each task, at most: about 30 MB."""
SLICE_READS: Final = 1 << 16
CHUNK_POINTS: Final = 1 << 23
"""Positions of a chunk."""
_MAX_SLICES: Final = 4096
_STRETCH_READS: Final = 1 << 12
"""Reads of a stretch of time, but for those of the next one whose windows reach into it."""
_FLUSH_POINTS: Final = 1 << 20
_BATCH_ROWS: Final = 1 << 17
READ_COLUMNS: Final = ("read_id", "device", "ts", "lat", "lon", "box_km", "window_s")
_TS: Final = POSITIONS.field("ts").type
_ROWS: Final = pa.schema(
    [
        ("slice", pa.int32()),
        ("chunk", pa.int32()),
        ("is_read", pa.bool_()),
        ("read_id", pa.int64()),
        ("device", pa.string()),
        ("ts", _TS),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("box_km", pa.float64()),
        ("window_s", pa.float64()),
    ]
)
_MESSAGE: Final = pa.schema(
    [
        ("stretch", pa.int32()),
        ("failed", pa.bool_()),
        ("result", pa.binary()),
        ("reads", pa.binary()),
        ("points", pa.binary()),
    ]
)
"""Row for the task of a stretch of time: an outcome, packed reads, or packed points."""
_OUTCOME: Final = pa.schema([("failed", pa.bool_()), ("result", pa.binary()), ("is_sum", pa.bool_())])
_COUNTS: Final = pa.schema([("slice", pa.int64()), ("positions", pa.int64())])


@dataclass(frozen=True)
class Slices:
    """Slices of time, of which each but the first begins at an edge, and the number of chunks of each.

    ``rows`` is the schema of reads and positions in their slices.
    """

    edges_us: NDArray[np.int64]
    chunks: NDArray[np.int64]
    rows: pa.Schema = _ROWS

    def number(self, t_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the slice of each time, from 0."""
        return np.searchsorted(self.edges_us, t_us, side="right")

    def place_points(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add slice and chunk to positions, which go to the chunks of a slice in turn."""
        for batch in batches:
            points = pa.Table.from_batches([batch])
            slices = self.number(epoch_us(points["ts"]))
            chunk = np.arange(len(points)) % self.chunks[slices]
            yield from self._place(points, slices, chunk, is_read=False)

    def place_reads(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add slice and chunk to reads: a row for each chunk of each slice that a read's window reaches."""
        begins = np.concatenate([[0], np.cumsum(self.chunks)])
        slice_of = np.repeat(np.arange(len(self.chunks)), self.chunks)
        for batch in batches:
            reads = pa.Table.from_batches([batch])
            end_us = epoch_us(reads["ts"])
            window_us = np.rint(reads["window_s"].to_numpy() * US_PER_S).astype(np.int64)
            first, past = begins[self.number(end_us - window_us)], begins[self.number(end_us) + 1]
            row = np.repeat(np.arange(len(reads)), past - first)
            step = np.arange(len(row)) - np.repeat(np.cumsum(past - first) - (past - first), past - first)
            place = first[row] + step
            slices = slice_of[place]
            for some in range(0, len(row), _BATCH_ROWS):
                part = slice(some, some + _BATCH_ROWS)
                chunk = place[part] - begins[slices[part]]
                yield from self._place(reads.take(pa.array(row[part])), slices[part], chunk, is_read=True)

    def _place(
        self, table: pa.Table, slices: NDArray[np.int64], chunk: NDArray[np.int64], *, is_read: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows with slice and chunk, in the schema of reads and positions; what they lack is null."""
        columns = {
            "slice": pa.array(slices, pa.int32()),
            "chunk": pa.array(chunk, pa.int32()),
            "is_read": pa.array(np.full(len(table), is_read)),
            **{name: table[name] for name in table.column_names},
        }
        unknown = {of.name: pa.nulls(len(table), of.type) for of in self.rows if of.name not in columns}
        columns["ts"] = columns["ts"].cast(_TS)
        yield from pa.table(columns | unknown).select(self.rows.names).cast(self.rows).to_batches()


def cut_time(positions: DataFrame, reads: DataFrame, count: int) -> Slices:
    """Cut time into slices of about :data:`SLICE_READS` reads, by estimated quantiles of their times."""
    slices = min(-(-count // SLICE_READS), _MAX_SLICES)
    edges_us = np.zeros(0, dtype=np.int64)
    if slices > 1:
        shares = np.linspace(0.0, 1.0, slices + 1)[1:-1].tolist()
        times = reads.select(F.unix_micros("ts").alias("t_us"))
        edges_us = np.unique(np.array(times.approxQuantile("t_us", shares, 0.25 / slices), dtype=np.int64))
    plain = Slices(edges_us, np.ones(len(edges_us) + 1, dtype=np.int64))

    def count_points(points: pa.Table) -> pa.Table:
        number, rows = np.unique(plain.number(epoch_us(points["ts"])), return_counts=True)
        return pa.table([pa.array(number), pa.array(rows)], schema=_COUNTS)

    counted = sum_rows(positions.select("ts"), count_points, _COUNTS)
    chunks = plain.chunks.copy()
    chunks[counted["slice"].to_numpy()] = -(-counted["positions"].to_numpy() // CHUNK_POINTS)
    return Slices(edges_us, chunks)


def map_slices(
    positions: DataFrame,
    reads: DataFrame,
    slices: Slices,
    prepare: Callable[[pa.Table], Prepared],
    function: Callable[[Prepared, pa.Table], Iterator[pa.RecordBatch]],
    schema_ddl: str,
) -> DataFrame:
    """Call a function in tasks, with some positions and all reads whose answers may have them.

    Parameters
    ----------
    positions, reads : DataFrame
        With the columns of points, and :data:`READ_COLUMNS`; and any others of ``slices.rows``.
    slices : Slices
    prepare : callable
        Function of a table of reads, in any order, with all columns of ``slices.rows``.
    function : callable
        Function of prepared reads and a table of positions.
    schema_ddl : str
        Columns of what it yields.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for prepared, points in _of_slices(batches, prepare, slices.rows):
            yield from function(prepared, points)

    provide(positions.sparkSession)
    rows = ddl(slices.rows)
    both = positions.mapInArrow(slices.place_points, rows).unionAll(
        reads.mapInArrow(slices.place_reads, rows)
    )
    together = both.repartition("slice", "chunk").sortWithinPartitions("slice", "chunk", F.desc("is_read"))
    return together.mapInArrow(run, schema_ddl)


def sum_by_reads(
    points: DataFrame,
    reads: pa.Table,
    prepare: Callable[[pa.Table], Prepared],
    count: Callable[[Prepared, pa.Table], pa.Table],
    schema: pa.Schema,
    more: pa.Schema,
) -> pa.Table:
    """Return the sums of what a function counts of points and of the reads whose answers may have them.

    Up to :data:`MAX_SENT_READS` reads are sent to each task; of more a task gets those of its times.

    Parameters
    ----------
    points : DataFrame
        With ``ts``.
    reads : pyarrow.Table
        With :data:`READ_COLUMNS`, in order of time.
    prepare : callable
        Function of some of the reads, in any order.
    count : callable
        Function of prepared reads and a table of points.
    schema : pyarrow.Schema
        Columns of what it returns: the last one is added by the others.
    more : pyarrow.Schema
        Further columns of points and reads.
    """
    if len(reads) <= MAX_SENT_READS:
        prepared = prepare(reads)
        return sum_rows(points, lambda table: count(prepared, table), schema)

    def count_chunk(prepared: Prepared, table: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from count(prepared, table).to_batches(max_chunksize=_BATCH_ROWS)

    edges_us = np.unique(epoch_us(reads["ts"])[SLICE_READS::SLICE_READS])
    ones = np.ones(len(edges_us) + 1, dtype=np.int64)
    slices = Slices(edges_us, ones, pa.schema([*_ROWS, *more]))
    frame = points.sparkSession.createDataFrame(reads)
    return add_up(map_slices(points, frame, slices, prepare, count_chunk, ddl(schema)), schema)


def sum_late(
    rows: DeviceRows,
    function: Callable[[pa.Table], tuple[Any, pa.Table]],
    reads: pa.Table,
    prepare: Callable[[pa.Table], Prepared],
    count: Callable[[Prepared, pa.Table], pa.Table],
    schema: pa.Schema,
) -> tuple[list[Any], pa.Table]:
    """Call a function of the rows of devices, and count the points that it returns by read.

    A task counts the points of a stretch of time, and gets the reads whose answers may have them.

    Parameters
    ----------
    rows : DeviceRows
    function : callable
        Function of the rows of some devices. It returns a result, and a table of points with ``ts``.
    reads : pyarrow.Table
        With :data:`READ_COLUMNS`, in order of time.
    prepare : callable
        Function of some of the reads.
    count : callable
        Function of prepared reads and a table of points, in order of time.
    schema : pyarrow.Schema
        Columns of what it returns: the last one is added by the others.

    Returns
    -------
    results, sums : list and pyarrow.Table
        Results in any order.
    """
    edges_us = _stretches(reads)
    task_rows = rows.task_rows  # a task cannot have the DataFrame

    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in unpacked_devices(batches, task_rows):
            points: list[pa.Table] = []
            yield from _message(0, **outcome_of(partial(_call, function, table, points)))
            for of_all in points:
                for stretch, some in _in_stretches(of_all, edges_us):
                    yield from _message(stretch, points=packed(some))

    def sum_stretch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: dict[str, list[pa.Buffer]] = {"reads": [], "points": []}
        for batch in batches:
            is_result = batch["result"].is_valid()
            yield from _outcomes(pa.Table.from_batches([batch.filter(is_result)]), is_sum=False)
            for name, of_name in parts.items():
                of_name += [part.as_buffer() for part in batch[name] if part.is_valid]
        if parts["points"]:
            outcome = outcome_of(partial(_sum_points, **parts, prepare=prepare, count=count, schema=schema))
            yield from _outcomes(pa.Table.from_pylist([outcome]), is_sum=True)

    spark = rows.parts.sparkSession
    provide(spark)
    placed = rows.parts.mapInArrow(place, ddl(_MESSAGE))
    together = placed.unionAll(spark.createDataFrame(_reads_of_stretches(reads, edges_us)))
    summed = together.repartitionById(len(edges_us) + 1, "stretch").mapInArrow(sum_stretch, ddl(_OUTCOME))
    with progress(spark, "devices"):
        outcomes = summed.toArrow()
    results: dict[bool, list[Any]] = {False: [], True: []}
    for row in outcomes.to_pylist():
        results[row.pop("is_sum")].append(result_of(**row, item="some devices"))
    return results[False], _added(results[True], schema)


def _stretches(reads: pa.Table) -> NDArray[np.int64]:
    """Return where stretches of time begin, but for the first one: each has about as many of the reads."""
    size = max(_STRETCH_READS, -(-len(reads) // _MAX_SLICES))
    return np.unique(epoch_us(reads["ts"])[size::size])


def _in_stretches(points: pa.Table, edges_us: NDArray[np.int64]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the points of each stretch of time, in order of time."""
    t_us = epoch_us(points["ts"])
    order = np.argsort(t_us, kind="stable")
    in_order = points.take(pa.array(order)).combine_chunks()
    edges = [0, *np.searchsorted(t_us[order], edges_us).tolist(), len(t_us)]
    for stretch, (first, past) in enumerate(pairwise(edges)):
        if past > first:
            yield stretch, in_order.slice(first, past - first)


def _reads_of_stretches(reads: pa.Table, edges_us: NDArray[np.int64]) -> pa.Table:
    """Return a message for each stretch of time, with the reads whose answers may have points of it."""
    t_us, window_us = epoch_us(reads["ts"]), np.rint(reads["window_s"].to_numpy() * US_PER_S)
    first = np.append(0, np.searchsorted(t_us, edges_us))
    past = np.append(np.searchsorted(t_us, edges_us + int(window_us.max())), len(t_us))
    rows = [
        {"stretch": stretch, "reads": packed(reads.slice(begin, end - begin))}
        for stretch, (begin, end) in enumerate(zip(first.tolist(), past.tolist(), strict=True))
    ]
    return pa.Table.from_pylist(rows, schema=_MESSAGE)


def _call(
    function: Callable[[pa.Table], tuple[Any, pa.Table]], table: pa.Table, points: list[pa.Table]
) -> Any:
    """Return the result of a function of a table; append its points to a list."""
    result, of_table = function(table)
    points.append(of_table)
    return result


def _message(stretch: int, **values: Any) -> Iterator[pa.RecordBatch]:
    """Yield a row for the task of a stretch of time: an outcome, or packed points."""
    yield from pa.Table.from_pylist([{"stretch": stretch, **values}], schema=_MESSAGE).to_batches()


def _outcomes(rows: pa.Table, *, is_sum: bool) -> Iterator[pa.RecordBatch]:
    """Yield outcomes of a function, or of sums."""
    marked = rows.select(["failed", "result"]).append_column(
        "is_sum", pa.array([is_sum] * len(rows), pa.bool_())
    )
    yield from marked.cast(_OUTCOME).to_batches()


def _sum_points(
    reads: list[pa.Buffer],
    points: list[pa.Buffer],
    prepare: Callable[[pa.Table], Prepared],
    count: Callable[[Prepared, pa.Table], pa.Table],
    schema: pa.Schema,
) -> pa.Table:
    """Return the sums of what a function counts of the points and reads of a stretch of time."""
    prepared = prepare(pa.concat_tables(map(unpacked, reads)))
    batches = (batch for part in points for batch in unpacked(part).to_batches())
    return _added(
        [count(prepared, some.sort_by("ts")) for some in merged_batches(batches, _FLUSH_POINTS)], schema
    )


def _added(counts: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the sums of the last column by the others."""
    *keys, summed = schema.names
    rows = pa.concat_tables([schema.empty_table(), *counts])
    sums = rows.group_by(keys).aggregate([(summed, "sum")])
    return sums.select([*keys, f"{summed}_sum"]).rename_columns(schema.names).cast(schema)


def _of_slices(
    batches: Iterator[pa.RecordBatch], prepare: Callable[[pa.Table], Prepared], rows: pa.Schema
) -> Iterator[tuple[Prepared, pa.Table]]:
    """Yield the reads of each chunk with some of its positions; of each chunk the reads come first."""
    chunk: tuple[int, int] | None = None
    reads: list[pa.RecordBatch] = []
    points: list[pa.RecordBatch] = []
    prepared: Prepared | None = None

    def prepare_once() -> Prepared:
        return prepared or prepare(pa.Table.from_batches(reads, schema=rows))

    for batch in batches:
        keys = [batch.column(name).to_numpy(zero_copy_only=False) for name in _ROWS.names[:3]]
        changes = np.flatnonzero(np.any([np.diff(key) != 0 for key in keys], axis=0)) + 1
        for first, past in pairwise([0, *changes.tolist(), len(batch)]):
            if past == first:
                continue
            piece, its = batch.slice(first, past - first), (int(keys[0][first]), int(keys[1][first]))
            if its != chunk:
                if points:
                    yield prepare_once(), pa.Table.from_batches(points)
                chunk, reads, points, prepared = its, [], [], None
            (reads if keys[2][first] else points).append(piece)
            if sum(map(len, points)) >= _FLUSH_POINTS:
                prepared = prepare_once()
                yield prepared, pa.Table.from_batches(points)
                points = []
    if points:
        yield prepare_once(), pa.Table.from_batches(points)
