"""Labels for learning: the first read that sees what a device wrote."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from mudkit.pipeline.batches import tables
from mudkit.pipeline.coverage import NOTHING, Reads
from mudkit.pipeline.launch.shipping import provide
from mudkit.pipeline.tables import require_columns
from mudkit.trace.schema import POSITIONS, epoch_us

__all__ = ["label_writes", "writes_of"]

_FLUSH_POINTS = 1 << 19
_BATCH_ROWS = 1 << 17
_LABELS = "device STRING, ts TIMESTAMP, first_read_id BIGINT, first_read_ts TIMESTAMP"


def label_writes(positions: DataFrame, reads: DataFrame) -> DataFrame:
    """Find for each position the first read, of any device, whose answer holds it.

    The answer of a read asked at ``t`` holds the positions in its box with times in ``(t - window, t]``, so a
    read at the very time of a position holds it. Of several first reads at the same time it is the one with
    the smallest ``read_id``. Exact. How long a write may wait in a batch without anybody noticing is
    ``first_read_ts - ts`` (Mobius 6). Reads travel with the job (about 60 bytes each); positions are read
    once, best in order of time, as a trace folder holds them.

    Parameters
    ----------
    positions : DataFrame
        The positions: ``device, ts, lat, lon``.
    reads : DataFrame
        The reads: ``device, ts, lat, lon, box_km, window_s`` and, from a trace folder, ``read_id``.

    Returns
    -------
    DataFrame
        ``device, ts, first_read_id, first_read_ts``, the last two null where no read ever holds the
        position: one row for each position, also for positions that are there twice, in any order.

    Raises
    ------
    TraceContentError
        Columns are missing.
    """
    asked = ("device", "ts", "lat", "lon", "box_km", "window_s")
    require_columns(reads, "reads", asked)
    ids = ("read_id",) if "read_id" in reads.columns else ()
    return writes_of(positions, Reads.of(reads.select(*ids, *asked).toArrow()))


def writes_of(positions: DataFrame, reads: Reads) -> DataFrame:
    """Label positions as :func:`label_writes` does, with reads that are prepared.

    Raises
    ------
    TraceContentError
        Columns are missing.
    """
    needed = ("device", "ts", "lat", "lon")
    require_columns(positions, "positions", needed)
    provide(positions.sparkSession)
    return positions.select(*needed).mapInArrow(lambda batches: _label(reads, batches), _LABELS)


def _label(reads: Reads, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Label the positions of one partition, many at a time."""
    for points in tables(batches, _FLUSH_POINTS):
        yield from _label_table(reads, points)


def _label_table(reads: Reads, points: pa.Table) -> Iterator[pa.RecordBatch]:
    first = reads.first(epoch_us(points["ts"]), points["lat"].to_numpy(), points["lon"].to_numpy())
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
