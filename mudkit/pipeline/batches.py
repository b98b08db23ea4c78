"""What a partition brings in small pieces, put together: what is counted many at a time is counted fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["tables"]


def tables(batches: Iterable[pa.RecordBatch], least_rows: int) -> Iterator[pa.Table]:
    """Put batches together into tables of so many rows at least, the last one apart.

    A long stretch of a device is nearly in order of time, so it is soon sorted, too.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
    least_rows : int
    """
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        if rows >= least_rows:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
