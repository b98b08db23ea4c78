"""Labels for learning: what each read's answer holds, and what an earlier answer already had of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from mudkit.errors import ParameterError, TraceContentError
from mudkit.pipeline.batches import tables
from mudkit.pipeline.coverage import Reads
from mudkit.pipeline.launch.shipping import provide
from mudkit.pipeline.tables import require_columns
from mudkit.trace.options import MAX_WINDOW_S

__all__ = ["check_horizon", "label_reads", "labels_of"]

_FLUSH_POINTS = 1 << 20
_FLUSH_LABELS = 1 << 18
_PARTIAL = pa.schema(
    [
        ("read_id", pa.int64()),
        ("cached_read_id", pa.int64()),
        ("points", pa.int64()),
        ("held", pa.int64()),
    ]
)
_PARTIAL_DDL = "read_id BIGINT, cached_read_id BIGINT, points BIGINT, held BIGINT"


def label_reads(positions: DataFrame, reads: DataFrame, *, horizon_s: float = 7200.0) -> DataFrame:
    """Label each read with its number of points, and with what each earlier answer lacks of them.

    The answer of a read asked at ``t`` holds the points of its box with times in ``(t - window, t]``. Of
    them the cached answer of an earlier read ``p`` of the same device has those that are also in ``p``'s box
    and in ``(t_p - window, t_p]``. Counts are exact. Reads travel with the job (about 60 bytes each);
    positions are read once, best in order of time, as a trace folder holds them.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``ts, lat, lon``; the points of all devices.
    reads : DataFrame
        The reads: ``device, ts, lat, lon, box_km, window_s`` and, from a trace folder, ``read_id``.
    horizon_s : float
        How far back an answer may lie to count as cached. Of two reads at the same time neither is earlier.

    Returns
    -------
    DataFrame
        ``read_id, cached_read_id, points, missing, completeness``: for each read one row with
        ``cached_read_id`` null (nothing cached: all points are missing) and one for each earlier read within
        the horizon. ``completeness`` is ``1 - missing / points``, and 1 for an answer without points.

    Raises
    ------
    TraceContentError
        There are no reads, or columns are missing.
    ParameterError
        The horizon is not a number over 0.
    """
    check_horizon(horizon_s)
    asked = ("device", "ts", "lat", "lon", "box_km", "window_s")
    require_columns(reads, "reads", asked)
    ids = ("read_id",) if "read_id" in reads.columns else ()
    prepared = Reads.of(reads.select(*ids, *asked).toArrow(), horizon_s)
    if not len(prepared.ids):
        raise TraceContentError(
            "There are no reads to label.",
            found="a table of reads without rows",
            expected="at least one read",
            remedy="load an access log (reads=), or derive reads by a rule (rule=trip_start)",
        )
    return labels_of(positions, prepared)


def check_horizon(horizon_s: float) -> None:
    """Refuse a horizon that cannot be.

    Raises
    ------
    ParameterError
    """
    if not 0 < horizon_s <= MAX_WINDOW_S:
        raise ParameterError(
            "The horizon is not usable.",
            where="horizon_s",
            found=str(horizon_s),
            expected="seconds over 0 and up to 3.2e9",
        )


def labels_of(positions: DataFrame, prepared: Reads) -> DataFrame:
    """Label reads as :func:`label_reads` does: those that are prepared to be counted.

    Raises
    ------
    TraceContentError
        Columns are missing.
    """
    require_columns(positions, "positions", ("ts", "lat", "lon"))
    spark = positions.sparkSession
    provide(spark)
    points = positions.select(F.unix_micros("ts").alias("t_us"), "lat", "lon")
    counted = points.mapInArrow(lambda batches: _count(prepared, batches), _PARTIAL_DDL)
    pieces = max(1, min(64, (len(prepared.ids) - prepared.first_counted) // 50_000))
    numbers = spark.range(0, pieces, 1, pieces)
    every = numbers.mapInArrow(lambda batches: _zeros(prepared, pieces, batches), _PARTIAL_DDL)
    sums = counted.unionAll(every).groupBy("read_id", "cached_read_id")
    total = sums.agg(F.sum("points").alias("points"), F.sum("held").alias("held"))
    missing = F.col("points") - F.col("held")
    share = F.when(F.col("points") == 0, 1.0).otherwise(F.col("held") / F.col("points"))
    return total.select(
        "read_id", "cached_read_id", "points", missing.alias("missing"), share.alias("completeness")
    )


def _count(reads: Reads, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the points of one partition, many at a time."""
    for points in tables(batches, _FLUSH_POINTS):
        yield from _count_table(reads, points)


def _count_table(reads: Reads, points: pa.Table) -> Iterator[pa.RecordBatch]:
    t_us, lat, lon = (points[name].to_numpy() for name in ("t_us", "lat", "lon"))
    for counts in reads.count(t_us, lat, lon):
        yield from _batches(counts.read, counts.cached, counts.points, counts.held)


def _zeros(reads: Reads, pieces: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give every label once with counts of zero, so that answers without points are there too."""
    edges = np.linspace(reads.first_counted, len(reads.ids), pieces + 1).astype(np.int64)
    for batch in batches:
        for piece in batch.column(0).to_pylist():
            first, past = int(edges[piece]), int(edges[piece + 1])
            read, cached = reads.pairs(first, past)
            for ids, of in ((reads.ids[first:past], None), (reads.ids[read], reads.ids[cached])):
                nothing = np.zeros(len(ids), dtype=np.int64)
                yield from _batches(ids, of, nothing, nothing)


def _batches(
    read: NDArray[np.int64],
    cached: NDArray[np.int64] | None,
    points: NDArray[np.int64],
    held: NDArray[np.int64],
) -> Iterator[pa.RecordBatch]:
    of = pa.nulls(len(read), pa.int64()) if cached is None else pa.array(cached)
    table = pa.table([pa.array(read), of, pa.array(points), pa.array(held)], schema=_PARTIAL)
    yield from table.to_batches(max_chunksize=_FLUSH_LABELS)
