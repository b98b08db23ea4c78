"""Labels for learning: points of each read's answer, and the first read of each write."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError, TraceContentError
from mudkit.pipeline.coverage import NOTHING, Reads
from mudkit.pipeline.executors import merged_batches, provide
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


@check_arguments(types=False)
def label_reads(positions: DataFrame, reads: DataFrame, *, horizon_s: float = 7200.0) -> DataFrame:
    """Label each read with its number of points, and with the number missing in each earlier answer.

    The answer of a read at ``t`` has the points of its box with times in ``(t - window, t]``. The cached
    answer of an earlier read ``p`` of the same device has those of them that are also in ``p``'s box and in
    ``(t_p - window, t_p]``. What the device wrote itself it holds: such points are part of the answer, but
    only those of other devices can be missing, and only they count for the completeness. Counts are exact.
    A cached answer serves at most the next 360 reads of its device, so that a device that reads each second
    has a bounded number of pairs. Reads are sent with the job (about 60 bytes each); positions are read once,
    best in order of time, as in a trace folder.

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
    prepared = _prepared(reads, horizon_s)
    if not len(prepared.ids):
        raise TraceContentError(
            "There are no reads to label.",
            found="a table of reads without rows",
            expected="at least one read",
            remedy="load an access log (reads=), or derive reads by a rule (rule=trip_start)",
        )
    return labels_of(positions, prepared)


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
    others, missing = F.col("others"), F.col("missing")
    share = F.when(others == 0, 1.0).otherwise((others - missing) / others)
    return total.select("read_id", "cached_read_id", *counts, share.alias("completeness"))


def _count(reads: Reads, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the points of one partition in large tables."""
    for points in merged_batches(batches, _FLUSH_POINTS):
        yield from _count_table(reads, points)


def _count_table(reads: Reads, points: pa.Table) -> Iterator[pa.RecordBatch]:
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
    wait in a batch for ``first_read_ts - ts`` unnoticed (Mobius 6). Reads are sent with the job (about 60
    bytes each); positions are read once, best in order of time, as in a trace folder.

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
    return writes_of(positions, _prepared(reads))


def _prepared(reads: DataFrame, horizon_s: float = 0.0) -> Reads:
    columns = ("device", "ts", "lat", "lon", "box_km", "window_s")
    require_columns(reads, "reads", columns)
    ids = ("read_id",) if "read_id" in reads.columns else ()
    return Reads.of(reads.select(*ids, *columns).toArrow(), horizon_s)


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
