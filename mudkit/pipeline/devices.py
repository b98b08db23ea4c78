"""Rows of whole devices in Spark's tasks: functions over labelled reads or writes, some devices at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.pipeline._progress import progress
from mudkit.pipeline.executors import merged_batches, outcome_of, provide, result_of
from mudkit.pipeline.packing import packed, unpacked
from mudkit.pipeline.rows import rows_by_bucket
from mudkit.pipeline.tables import ddl, require_columns
from mudkit.trace.recordings import device_codes
from mudkit.trace.schema import POSITIONS, epoch_us, read_ids

_LABEL_ROWS = 1 << 18
"""Labels of reads of whole devices that a function gets at once, but for one device that has more."""
_WRITE_ROWS = 1 << 19
"""The same for writes, and for rows of any devices."""
_PACKED_ROWS = 1 << 17
"""Rows of a packed table."""
_MAX_BUCKETS = 4096
_OUTCOME = pa.schema([("failed", pa.bool_()), ("result", pa.binary())])
_OUTCOME_DDL = "failed BOOLEAN, result BINARY"
_PART = pa.schema([("part", pa.binary())])
_TS = POSITIONS.field("ts").type
_FIRSTS = pa.schema([("device", pa.string()), ("ts", _TS), ("first_read_ts", _TS)])
_PLACES = pa.schema([POSITIONS.field(name) for name in ("device", "ts", "lat", "lon")])
_BUCKET = pa.schema([("bucket", pa.int32()), ("part", pa.binary())])
_READ = ("read_id", "device", "ts", "lat", "lon", "box_km", "window_s")
_WRITE = ("device", "ts")
_SENT_ROWS = 1 << 17
_JOINING_TASKS = 4
_LABEL = ("read_id", "cached_read_id", "points", "others", "missing", "completeness")


@dataclass(frozen=True)
class DeviceRows:
    """Rows of devices, those of a device together; a function gets about ``task_rows`` at once.

    Attributes
    ----------
    parts : DataFrame
        ``part``: packed tables, in each partition ordered by device.
    task_rows : int
    """

    parts: DataFrame
    task_rows: int

    def map(self, function: Callable[[pa.Table], Any]) -> list[Any]:
        """Call a function in tasks, each time with all rows of some devices; return what it returns.

        The function and its results are pickled. Results are in any order.
        """
        task_rows = self.task_rows  # a task cannot have the DataFrame

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for table in unpacked_devices(batches, task_rows):
                row = outcome_of(partial(function, table))
                yield from pa.Table.from_pylist([row], schema=_OUTCOME).to_batches()

        spark = self.parts.sparkSession
        provide(spark)
        with progress(spark, "devices"):
            outcomes = self.parts.mapInArrow(run, _OUTCOME_DDL).toArrow()
        return [result_of(**row, item="some devices") for row in outcomes.to_pylist()]

    def join(self, function: Callable[[pa.Table], Any], join: Callable[[Any, Any], Any]) -> Any:
        """Call a function in tasks, as :meth:`map` does; join what it returns.

        A task joins its results, then some tasks those of all, so this process receives a few results for any
        number of devices. Returns None if there are no rows.

        Parameters
        ----------
        function : callable
            Function of the rows of some devices.
        join : callable
            Function of two results, which may be joined in any order.
        """
        task_rows = self.task_rows

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from _joined(map(function, unpacked_devices(batches, task_rows)), join)

        def run_again(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from _joined(_results(batches), join)

        spark = self.parts.sparkSession
        provide(spark)
        joined = self.parts.mapInArrow(run, _OUTCOME_DDL).repartition(_JOINING_TASKS)
        with progress(spark, "devices"):
            outcomes = joined.mapInArrow(run_again, _OUTCOME_DDL).toArrow()
        results = list(_results(outcomes.to_batches()))
        return reduce(join, results) if results else None

    def collect(self, devices: pa.Array | None) -> pa.Table:
        """Return the rows of some devices; None: of all."""
        return pa.concat_tables(self.map(partial(_of_devices, devices=devices)))

    def collect_blocks(self, devices: pa.Table, block: int) -> pa.Table:
        """Return the rows of some blocks of reads of some devices, with their pairs.

        Parameters
        ----------
        devices : pyarrow.Table
            ``device, every, first``: of blocks of reads, in the order of their times and ids, each
            ``every``-th one, from ``first`` on.
        block : int
            Reads of a block.
        """
        return pa.concat_tables(self.map(partial(_of_blocks, devices=devices, block=block)))


def _of_devices(rows: pa.Table, devices: pa.Array | None) -> pa.Table:
    """Return the rows of some devices; None: of all."""
    return rows if devices is None else rows.filter(pc.is_in(rows["device"], value_set=devices))


def _of_blocks(rows: pa.Table, devices: pa.Table, block: int) -> pa.Table:
    """Return the rows of some blocks of reads of whole devices: see :meth:`DeviceRows.collect_blocks`."""
    rows = _of_devices(rows, devices["device"].combine_chunks())
    reads = rows.filter(rows["cached_read_id"].is_null())
    reads = reads.sort_by([(name, "ascending") for name in ("device", "ts", "read_id")])
    of = pc.index_in(reads["device"], value_set=devices["device"].combine_chunks()).to_numpy()
    begins = np.flatnonzero(np.diff(of, prepend=-1))
    number = np.arange(len(of)) - np.repeat(begins, np.diff(begins, append=len(of)))
    every, first = (devices[name].to_numpy()[of] for name in ("every", "first"))
    kept = reads.filter(pa.array(number // block % every == first))
    ids = kept["read_id"].combine_chunks()
    is_pair = pc.and_(*(pc.is_in(rows[name], value_set=ids) for name in ("read_id", "cached_read_id")))
    return pa.concat_tables([kept, rows.filter(is_pair)])


@contextmanager
def rows_by_device(labels: DataFrame, reads: DataFrame) -> Iterator[DeviceRows]:
    """Join labels to their reads, and keep the rows of a device together, on the executors' disks.

    A label of another read has no device, a read without a label no points.

    Parameters
    ----------
    labels : DataFrame
        The result of :func:`mudkit.pipeline.label_reads`.
    reads : DataFrame
        The reads that were labelled.

    Raises
    ------
    TraceContentError
        Columns are missing.
    """
    require_columns(reads, "reads", _READ[1:])
    require_columns(labels, "labels", _LABEL)
    rows = labels.select(*_LABEL).join(with_read_ids(reads).select(*_READ), "read_id", "full_outer")
    provide(rows.sparkSession)
    by_device = rows.repartition("device").sortWithinPartitions("device")
    with _kept(by_device.mapInArrow(_pack, ddl(_PART)), _LABEL_ROWS) as kept:
        yield kept


@contextmanager
def writes_by_device(first_reads: DataFrame, positions: DataFrame) -> Iterator[DeviceRows]:
    """Join the first reads of writes to their positions, as :func:`rows_by_device` joins labels to reads.

    A label of another position has no place, a position without a label null for ``labelled``.

    Parameters
    ----------
    first_reads : DataFrame
        The result of :func:`mudkit.pipeline.label_writes`.
    positions : DataFrame
        The positions that were labelled.

    Raises
    ------
    TraceContentError
        Columns are missing.
    """
    require_columns(positions, "positions", (*_WRITE, "lat", "lon"))
    require_columns(first_reads, "labels", (*_WRITE, "first_read_ts"))
    count = positions.count()
    buckets = min(max(-(-count // _WRITE_ROWS), 1), _MAX_BUCKETS)
    provide(positions.sparkSession)
    both = [
        frame.mapInArrow(partial(_pack_buckets, buckets=buckets), ddl(_BUCKET))
        for frame in (
            first_reads.select(*_WRITE, "first_read_ts"),
            positions.select(*_WRITE, "lat", "lon"),
        )
    ]
    together = both[0].unionAll(both[1]).repartitionById(buckets, "bucket")
    with _kept(together.mapInArrow(_pack_writes, ddl(_PART)), _WRITE_ROWS) as kept:
        yield kept


@contextmanager
def _kept(parts: DataFrame, task_rows: int) -> Iterator[DeviceRows]:
    """Keep packed rows on the executors' disks."""
    kept = parts.persist(StorageLevel.DISK_ONLY)
    try:
        yield DeviceRows(kept, task_rows)
    finally:
        kept.unpersist()


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack rows, in their order."""
    for rows in merged_batches(batches, _PACKED_ROWS):
        for first in range(0, len(rows), _PACKED_ROWS):
            part = {"part": packed(rows.slice(first, _PACKED_ROWS).combine_chunks())}
            yield from pa.Table.from_pylist([part], schema=_PART).to_batches()


def _pack_buckets(batches: Iterable[pa.RecordBatch], buckets: int) -> Iterator[pa.RecordBatch]:
    """Pack rows by buckets of devices, in any order."""
    for rows in merged_batches(batches, _WRITE_ROWS):
        for bucket, some in rows_by_bucket(rows.combine_chunks(), buckets):
            part = {"bucket": bucket, "part": packed(some)}
            yield from pa.Table.from_pylist([part], schema=_BUCKET).to_batches()


def _pack_writes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join the labels of a bucket to its positions, and pack the rows, ordered by device and time."""
    tables = [unpacked(part.as_buffer()) for batch in batches for part in batch["part"]]
    labels, positions = (
        pa.concat_tables(
            [schema.empty_table(), *(of.cast(schema) for of in tables if of.column_names == schema.names)]
        )
        for schema in (_FIRSTS, _PLACES)
    )
    yield from _pack(_joined_writes(labels, positions).to_batches())


def _joined_writes(labels: pa.Table, positions: pa.Table) -> pa.Table:
    """Return positions with the times of their first reads, and True for ``labelled``.

    If the labels are of other positions, there is a row for each of either, with null for what it lacks.
    """
    labels = labels.append_column("labelled", pa.array(np.ones(len(labels), dtype=np.bool_)))
    if not any(rows[name].null_count for rows in (labels, positions) for name in _WRITE):
        labels, positions = _by_time(labels), _by_time(positions)
        if labels.select(_WRITE).equals(positions.select(_WRITE)):
            known = positions.append_column("first_read_ts", labels["first_read_ts"])
            return known.append_column("labelled", labels["labelled"])
    return pa.concat_tables([labels, positions], promote_options="default").sort_by("device")


def _by_time(rows: pa.Table) -> pa.Table:
    """Return rows ordered by device and time."""
    return rows.take(pa.array(np.lexsort([epoch_us(rows["ts"]), device_codes(rows["device"])])))


def _joined(results: Iterator[Any], join: Callable[[Any, Any], Any]) -> Iterator[pa.RecordBatch]:
    """Yield the outcome of joining results, or the first error; None without any."""

    def join_all() -> Any:
        return reduce(lambda one, other: other if one is None else join(one, other), results, None)

    row = outcome_of(join_all)
    yield from pa.Table.from_pylist([row], schema=_OUTCOME).to_batches()


def _results(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Yield the results of outcomes, or raise the first error."""
    for batch in batches:
        for row in batch.to_pylist():
            result = result_of(**row, item="some devices")
            if result is not None:
                yield result


def with_read_ids(reads: DataFrame) -> DataFrame:
    """Return the reads with the column ``read_id``, computed from their content if it is missing."""
    if "read_id" in reads.columns:
        return reads
    provide(reads.sparkSession)
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in reads.schema)
    return reads.mapInArrow(_add_ids, f"read_id BIGINT, {schema}")


def _add_ids(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add ``read_id`` as the first column."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        yield from table.add_column(0, "read_id", pa.array(read_ids(table))).to_batches()


def sum_rows(frame: DataFrame, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> pa.Table:
    """Call a function on the rows in tasks.

    Return the sums of its results' last column by the other columns.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in merged_batches(batches, _WRITE_ROWS):
            yield from function(table).to_batches(max_chunksize=_SENT_ROWS)

    provide(frame.sparkSession)
    return add_up(frame.mapInArrow(run, ddl(schema)), schema)


def add_up(counts: DataFrame, schema: pa.Schema) -> pa.Table:
    """Return the sums of the last column by the others."""
    *keys, summed = schema.names
    sums = counts.groupBy(*keys).agg(F.sum(summed).alias(summed))
    with progress(counts.sparkSession, "devices"):
        return sums.toArrow().cast(schema)


def unpacked_devices(batches: Iterable[pa.RecordBatch], least_rows: int) -> Iterator[pa.Table]:
    """Unpack parts that are ordered by device, and merge them: see :func:`whole_devices`."""
    parts = (unpacked(part.as_buffer()) for batch in batches for part in batch["part"])
    return whole_devices((batch for part in parts for batch in part.to_batches()), least_rows)


def whole_devices(batches: Iterable[pa.RecordBatch], least_rows: int) -> Iterator[pa.Table]:
    """Merge batches that are ordered by device into tables of whole devices.

    A table is complete when the rows of its devices, with those of the next one so far, are `least_rows`.
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if not len(batch):
            continue
        device, rows = batch["device"], rows + len(batch)
        begins_anew = not waiting or device[0] != waiting[-1]["device"][-1] or device[0] != device[-1]
        waiting.append(batch)
        if rows < least_rows or not begins_anew:
            continue
        last = device.is_null() if device[-1].as_py() is None else pc.equal(device, device[-1])
        begins = rows - len(batch) + pc.index(last, True).as_py()
        table = pa.Table.from_batches(waiting)
        if begins:
            yield table.slice(0, begins)
            waiting = table.slice(begins).to_batches()
            rows -= begins
    if waiting:
        yield pa.Table.from_batches(waiting)
