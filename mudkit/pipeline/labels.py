"""Labels for learning: points of each read's answer, and the first read of each write."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError, TraceContentError
from mudkit.pipeline.coverage import NOTHING, Reads
from mudkit.pipeline.devices import whole_devices, with_read_ids
from mudkit.pipeline.executors import merged_batches, provide
from mudkit.pipeline.slices import MAX_SENT_READS, READ_COLUMNS, cut_time, map_slices
from mudkit.pipeline.tables import require_columns
from mudkit.trace.options import MAX_WINDOW_S
from mudkit.trace.schema import POSITIONS

_POINT = ("device", "ts", "lat", "lon")
_FLUSH_POINTS = 1 << 20
_FLUSH_LABELS = 1 << 18
_PARTIAL = pa.schema(
    [
        ("read_id", pa.int64()),
        ("cached_read_id", pa.int64()),
        ("points", pa.int64()),
        ("others", pa.int64()),
        ("missing", pa.int64()),
    ]
)
_PARTIAL_DDL = "read_id BIGINT, cached_read_id BIGINT, points BIGINT, others BIGINT, missing BIGINT"
_SHARED = pa.schema(
    [*(_PARTIAL.field(i) for i in range(4)), ("shared", pa.int64()), ("is_label", pa.bool_())]
)
_SHARED_DDL = (
    "read_id BIGINT, cached_read_id BIGINT, points BIGINT, others BIGINT, shared BIGINT, is_label BOOLEAN"
)
_DEVICE_READS = 1 << 17
"""Reads of whole devices of which labels are listed at once, but for one device that has more."""
_LISTED_READS = 1 << 11


@check_arguments(types=False)
def label_reads(positions: DataFrame, reads: DataFrame, *, horizon_s: float = 7200.0) -> DataFrame:
    """Label each read with its number of points, and with the number missing in each earlier answer.

    The answer of a read at ``t`` has the points of its box with times in ``(t - window, t]``. The cached
    answer of an earlier read ``p`` of the same device has those of them that are also in ``p``'s box and in
    ``(t_p - window, t_p]``. What the device wrote itself it holds: such points are part of the answer, but
    only those of other devices can be missing, and only they count for the completeness. Counts are exact.
    A cached answer serves at most the next 360 reads of its device, so that a device that reads each second
    has a bounded number of pairs. Up to half a million reads
    (:data:`~mudkit.pipeline.slices.MAX_SENT_READS`) are sent with the job, about 60 bytes each; positions are
    then read once, best in order of time, as in a trace folder. More reads meet the positions of their times
    in tasks, by a shuffle of both.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts, lat, lon``; the points of all devices.
    reads : DataFrame
        The reads: ``device, ts, lat, lon, box_km, window_s`` and, from a trace folder, ``read_id``.
    horizon_s : float
        Age up to which an answer counts as cached, in seconds. Of two reads at the same time neither is
        earlier.

    Returns
    -------
    DataFrame
        ``read_id, cached_read_id, points, others, missing, completeness``: for each read one row with
        ``cached_read_id`` null (nothing cached: all points of other devices are missing) and one for each
        earlier read within the horizon (the last 360 of them). ``others`` are the points of other devices;
        ``completeness`` is ``1 - missing / others``, and 1 where they wrote none.

    Raises
    ------
    TraceContentError
        There are no reads, or columns are missing.
    ParameterError
        The horizon is not a number over 0.
    """
    check_horizon(horizon_s)
    sent = _sent_reads(reads)
    if sent is None:
        return _spread_labels(positions, reads, horizon_s)
    if not len(sent):
        raise TraceContentError(
            "There are no reads to label.",
            found="a table of reads without rows",
            expected="at least one read",
            remedy="load an access log (reads=), or derive reads by a rule (rule=trip_start)",
        )
    return labels_of(positions, Reads.of(sent, horizon_s))


def check_horizon(horizon_s: float) -> None:
    """Raise ParameterError if a horizon is out of range."""
    if not 0 < horizon_s <= MAX_WINDOW_S:
        raise ParameterError(
            "The horizon is not usable.",
            where="horizon_s",
            found=str(horizon_s),
            expected="seconds over 0 and up to 3.2e9",
        )


def labels_of(positions: DataFrame, prepared: Reads) -> DataFrame:
    """Label prepared reads as :func:`label_reads` does."""
    require_columns(positions, "positions", _POINT)
    spark = positions.sparkSession
    provide(spark)
    counted = positions.select(*_POINT).mapInArrow(lambda batches: _count(prepared, batches), _PARTIAL_DDL)
    pieces = max(1, min(64, (len(prepared.ids) - prepared.first_counted) // 50_000))
    numbers = spark.range(0, pieces, 1, pieces)
    every = numbers.mapInArrow(lambda batches: _zeros(prepared, pieces, batches), _PARTIAL_DDL)
    sums = counted.unionAll(every).groupBy("read_id", "cached_read_id")
    counts = ["points", "others", "missing"]
    total = sums.agg(*(F.sum(name).alias(name) for name in counts))
    return _with_completeness(total)


def _with_completeness(labels: DataFrame) -> DataFrame:
    """Add the share of others' points that the cached answer has; 1 if others have sent no point."""
    others, missing = F.col("others"), F.col("missing")
    share = F.when(others == 0, 1.0).otherwise((others - missing) / others)
    return labels.select(*_PARTIAL.names, share.alias("completeness"))


def _spread_labels(positions: DataFrame, reads: DataFrame, horizon_s: float) -> DataFrame:
    """Label reads that are not sent: positions and reads of the same time meet in tasks.

    Tasks count for each read the points of its answer, and for each pair those of other devices that both
    answers have. Which pairs there are follows from the reads of each device alone.
    """
    require_columns(positions, "positions", _POINT)
    reads = with_read_ids(reads).select(*READ_COLUMNS)

    def list_labels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in whole_devices(batches, _DEVICE_READS):
            yield from _list_labels(Reads.of(table, horizon_s))

    slices = cut_time(positions, reads, reads.count())

    def prepare(some_reads: pa.Table) -> Reads:
        return Reads.of(some_reads.select(READ_COLUMNS), horizon_s)

    shared = map_slices(positions.select(*_POINT), reads, slices, prepare, _count_shared, _SHARED_DDL)
    by_device = reads.repartition("device").sortWithinPartitions("device")
    listed = by_device.mapInArrow(list_labels, _SHARED_DDL)
    counts = [F.sum(name).alias(name) for name in ("points", "others", "shared")]
    sums = shared.unionAll(listed).groupBy("read_id", "cached_read_id")
    of_read, is_own = Window.partitionBy("read_id"), F.col("cached_read_id").isNull()
    points, others = (F.max(F.when(is_own, F.col(name))).over(of_read) for name in ("points", "others"))
    labels = (
        sums.agg(*counts, F.bool_or("is_label").alias("is_label"))
        .withColumns({"points": points, "others": others})
        .where("is_label")
    )
    return _with_completeness(labels.withColumn("missing", F.col("others") - F.col("shared")))


def _count_shared(reads: Reads, points: pa.Table) -> Iterator[pa.RecordBatch]:
    """Count the points of answers, and those of other devices that a cached answer has, too."""
    for counts in reads.count(reads.points_of(points)):
        if counts.cached is None:
            nothing = np.zeros(len(counts.read), dtype=np.int64)
            yield from _shared(counts.read, None, counts.points, counts.others, nothing, is_label=False)
        else:
            both = counts.others - counts.missing
            some = np.flatnonzero(both)
            nothing = np.zeros(len(some), dtype=np.int64)
            of_both = counts.read[some], counts.cached[some]
            yield from _shared(*of_both, nothing, nothing, both[some], is_label=False)


def _list_labels(reads: Reads) -> Iterator[pa.RecordBatch]:
    """Yield every label of the reads of some devices, with counts of zero."""
    for first in range(0, len(reads.ids), _LISTED_READS):
        past = min(first + _LISTED_READS, len(reads.ids))
        read, cached = reads.pairs(first, past)
        for ids, of in ((reads.ids[first:past], None), (reads.ids[read], reads.ids[cached])):
            nothing = np.zeros(len(ids), dtype=np.int64)
            yield from _shared(ids, of, nothing, nothing, nothing, is_label=True)


def _shared(
    read: NDArray[np.int64],
    cached: NDArray[np.int64] | None,
    *counts: NDArray[np.int64],
    is_label: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield counts as rows for the sums by label; ``is_label`` marks the row that makes a label exist."""
    of = pa.nulls(len(read), pa.int64()) if cached is None else pa.array(cached)
    labelled = pa.array(np.full(len(read), is_label))
    table = pa.table([pa.array(read), of, *map(pa.array, counts), labelled], schema=_SHARED)
    yield from table.to_batches(max_chunksize=_FLUSH_LABELS)


def _count(reads: Reads, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the points of one partition in large tables."""
    for points in merged_batches(batches, _FLUSH_POINTS):
        yield from _count_table(reads, points)


def _count_table(reads: Reads, points: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield, as partial labels, how many of some points each read returns and misses."""
    for counts in reads.count(reads.points_of(points)):
        yield from _batches(*counts)


def _zeros(reads: Reads, pieces: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield every label with counts of zero, so that answers without points are included."""
    edges = np.linspace(reads.first_counted, len(reads.ids), pieces + 1).astype(np.int64)
    for batch in batches:
        for piece in batch.column(0).to_pylist():
            first, past = int(edges[piece]), int(edges[piece + 1])
            read, cached = reads.pairs(first, past)
            for ids, of in ((reads.ids[first:past], None), (reads.ids[read], reads.ids[cached])):
                nothing = np.zeros(len(ids), dtype=np.int64)
                yield from _batches(ids, of, nothing, nothing, nothing)


def _batches(
    read: NDArray[np.int64],
    cached: NDArray[np.int64] | None,
    *counts: NDArray[np.int64],
) -> Iterator[pa.RecordBatch]:
    """Yield counts as rows of the partial labels."""
    of = pa.nulls(len(read), pa.int64()) if cached is None else pa.array(cached)
    table = pa.table([pa.array(read), of, *map(pa.array, counts)], schema=_PARTIAL)
    yield from table.to_batches(max_chunksize=_FLUSH_LABELS)


_FLUSH_WRITES = 1 << 19
_BATCH_ROWS = 1 << 17
_LABELS = "device STRING, ts TIMESTAMP, first_read_id BIGINT, first_read_ts TIMESTAMP"


@check_arguments(types=False)
def label_writes(positions: DataFrame, reads: DataFrame) -> DataFrame:
    """Find for each position the first read of another device whose answer has it.

    The answer of a read at ``t`` has the positions in its box with times in ``(t - window, t]``, also one at
    the time of the read. A device holds what it wrote itself, so its own reads do not wait for it. Of several
    first reads at the same time it is the one with the smallest ``read_id``. The result is exact. A write may
    wait in a batch for ``first_read_ts - ts`` unnoticed (Mobius 6). Reads are sent with the job, or put
    together with the positions of their times, as by :func:`label_reads`.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts, lat, lon``.
    reads : DataFrame
        The reads: ``device, ts, lat, lon, box_km, window_s`` and, from a trace folder, ``read_id``.

    Returns
    -------
    DataFrame
        ``device, ts, first_read_id, first_read_ts``, the last two null where no other device's read has
        the position: one row for each position, duplicates included, in any order.

    Raises
    ------
    TraceContentError
        Columns are missing.
    """
    sent = _sent_reads(reads)
    if sent is not None:
        return writes_of(positions, Reads.of(sent))
    require_columns(positions, "positions", _POINT)
    reads = with_read_ids(reads).select(*READ_COLUMNS)
    slices = cut_time(positions, reads, reads.count())

    def prepare(some_reads: pa.Table) -> Reads:
        return Reads.of(some_reads.select(READ_COLUMNS), 0.0)

    return map_slices(positions.select(*_POINT), reads, slices, prepare, _label_table, _LABELS)


def _sent_reads(reads: DataFrame) -> pa.Table | None:
    """Return the reads to send to all tasks; None if they are too many."""
    require_columns(reads, "reads", READ_COLUMNS[1:])
    ids = ("read_id",) if "read_id" in reads.columns else ()
    table = reads.select(*ids, *READ_COLUMNS[1:]).limit(MAX_SENT_READS + 1).toArrow()
    return table if len(table) <= MAX_SENT_READS else None


def writes_of(positions: DataFrame, reads: Reads) -> DataFrame:
    """Label positions as :func:`label_writes` does, with prepared reads."""
    require_columns(positions, "positions", _POINT)
    provide(positions.sparkSession)
    return positions.select(*_POINT).mapInArrow(lambda batches: _label(reads, batches), _LABELS)


def _label(reads: Reads, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Label the positions of one partition in large tables."""
    for points in merged_batches(batches, _FLUSH_WRITES):
        yield from _label_table(reads, points)


def _label_table(reads: Reads, points: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield some positions with id and time of their first read, both null without one."""
    first = reads.first(reads.points_of(points))
    never = first == NOTHING
    if len(reads.ids):
        ids, t_us = reads.ids[first], reads.end_us[first]
    else:
        ids = t_us = np.zeros(len(first), dtype=np.int64)
    ts = POSITIONS.field("ts").type
    labels = pa.table(
        {
            "device": points["device"],
            "ts": points["ts"].cast(ts),
            "first_read_id": pa.array(ids, mask=never),
            "first_read_ts": pa.array(t_us, mask=never).cast(ts),
        }
    )
    yield from labels.to_batches(max_chunksize=_BATCH_ROWS)
