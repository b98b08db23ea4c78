"""Rows of whole devices in Spark's tasks: functions over labelled reads or writes, some devices at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.pipeline._progress import progress
from mudkit.pipeline.executors import merged_batches, outcome_of, provide, result_of
from mudkit.pipeline.tables import ddl, require_columns
from mudkit.trace.schema import read_ids

_LABEL_ROWS = 1 << 18
"""Labels of reads of whole devices that a function gets at once, but for one device that has more."""
_WRITE_ROWS = 1 << 19
"""The same for writes, and for rows of any devices."""
_OUTCOME = pa.schema([("failed", pa.bool_()), ("result", pa.binary())])
_OUTCOME_DDL = "failed BOOLEAN, result BINARY"
_READ = ("read_id", "device", "ts", "lat", "lon", "window_s")
_WRITE = ("device", "ts")
_SENT_ROWS = 1 << 17
_JOINING_TASKS = 4
_LABEL = ("read_id", "cached_read_id", "points", "others", "missing", "completeness")


@dataclass(frozen=True)
class DeviceRows:
    """Rows of a DataFrame, those of a device together; a function gets about ``task_rows`` at once."""

    frame: DataFrame
    task_rows: int

    def map(self, function: Callable[[pa.Table], Any]) -> list[Any]:
        """Call a function in tasks, each time with all rows of some devices; return what it returns.

        The function and its results are pickled. Results are in any order.
        """
        task_rows = self.task_rows  # a task cannot have the DataFrame

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for table in whole_devices(batches, task_rows):
                row = outcome_of(partial(function, table))
                yield from pa.Table.from_pylist([row], schema=_OUTCOME).to_batches()

        spark = self.frame.sparkSession
        provide(spark)
        with progress(spark, "devices"):
            outcomes = self.frame.mapInArrow(run, _OUTCOME_DDL).toArrow()
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
            yield from _joined(map(function, whole_devices(batches, task_rows)), join)

        def run_again(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from _joined(_results(batches), join)

        spark = self.frame.sparkSession
        provide(spark)
        joined = self.frame.mapInArrow(run, _OUTCOME_DDL).repartition(_JOINING_TASKS)
        with progress(spark, "devices"):
            outcomes = joined.mapInArrow(run_again, _OUTCOME_DDL).toArrow()
        results = list(_results(outcomes.to_batches()))
        return reduce(join, results) if results else None

    def map_rows(self, function: Callable[[pa.Table], pa.Table], rows: pa.Schema) -> DataFrame:
        """Return the rows that a function makes of the rows of some devices.

        Parameters
        ----------
        function : callable
            Function of the rows of some devices.
        rows : pyarrow.Schema
            Columns of its tables.
        """
        task_rows = self.task_rows

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for table in whole_devices(batches, task_rows):
                yield from function(table).to_batches(max_chunksize=_SENT_ROWS)

        provide(self.frame.sparkSession)
        return self.frame.mapInArrow(run, ddl(rows))

    def collect(self, devices: pa.Array | None) -> pa.Table:
        """Return the rows of some devices; None: of all."""
        frame = self.frame
        if devices is not None:
            names = frame.sparkSession.createDataFrame(pa.table({"device": devices}))
            frame = frame.join(F.broadcast(names), "device", "left_semi")
        with progress(frame.sparkSession, "sample"):
            return frame.toArrow()

    def collect_blocks(self, devices: pa.Table, block: int) -> pa.Table:
        """Return the rows of some blocks of reads of some devices, with their pairs.

        ``devices`` has ``device, every, first``: of the device's blocks of ``block`` reads, each
        ``every``-th from ``first``.

        Parameters
        ----------
        devices : pyarrow.Table
            ``device, every, first``: of blocks of reads, in the order of their times and ids, each
            ``every``-th one, from ``first`` on.
        block : int
            Reads of a block.
        """
        frame = self.frame
        of_device = F.broadcast(frame.sparkSession.createDataFrame(devices))
        number = F.row_number().over(Window.partitionBy("device").orderBy("ts", "read_id")) - 1
        reads = frame.where("cached_read_id IS NULL").join(of_device, "device")
        reads = reads.withColumn("number", number).where(f"number DIV {block} % every = first")
        kept = reads.select("read_id")
        cached = kept.select(F.col("read_id").alias("cached_read_id"))
        alone = frame.where("cached_read_id IS NULL").join(kept, "read_id", "left_semi")
        pairs = frame.where("cached_read_id IS NOT NULL").join(kept, "read_id", "left_semi")
        pairs = pairs.join(cached, "cached_read_id", "left_semi")
        with progress(frame.sparkSession, "sample"):
            return alone.unionByName(pairs).toArrow()


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
    with _by_device(rows, ["device"], _LABEL_ROWS) as kept:
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
    labels = first_reads.select(*_WRITE, "first_read_ts", F.lit(True).alias("labelled"))
    rows = labels.join(positions.select(*_WRITE, "lat", "lon"), [*_WRITE], "full_outer")
    with _by_device(rows, [*_WRITE], _WRITE_ROWS) as kept:
        yield kept


@contextmanager
def _by_device(rows: DataFrame, order: list[str], task_rows: int) -> Iterator[DeviceRows]:
    """Keep rows on the executors' disks, those of a device together and in order."""
    kept = rows.repartition("device").sortWithinPartitions(*order).persist(StorageLevel.DISK_ONLY)
    try:
        yield DeviceRows(kept, task_rows)
    finally:
        kept.unpersist()


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
