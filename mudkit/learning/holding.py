"""Completeness of answers from a device that keeps all fetched answers and its own writes.

Labels and :mod:`~mudkit.learning.replay` know only the last answer, so a device is less often stale than
they say. What is stale even with all answers must be asked for, whatever the policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.learning.pairs import arrow, check_tables
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S, box_bounds, in_box


@check_arguments(types=False)
def cache_completeness(
    positions: Any,
    reads: Any,
    sent: NDArray[np.bool_] | None = None,
    *,
    arrival_us: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return the completeness of each answer when a device answers from its whole cache.

    Parameters
    ----------
    positions, reads : pyarrow.Table or Spark DataFrame
        What was written, and the reads whose answers are looked at.
    sent : ndarray of bool, shape (reads,), optional
        Which reads are sent, ordered by device and time. By default all earlier ones were, and the read
        itself is not.
    arrival_us : ndarray of int64, shape (positions,), optional
        When each position comes to the cloud, in the order of the table; by default at once. One that has
        not come is in no answer; but readers miss it, except its own writer, who holds it anyway.

    Returns
    -------
    ndarray of float64, shape (reads,)
        The share that the device holds of each answer's points of other devices; 1 where they wrote none.
    """
    check_tables(positions=positions, reads=reads)
    positions = arrow(positions)
    reads = arrow(reads).sort_by([("device", "ascending"), ("ts", "ascending"), ("read_id", "ascending")])
    t_us = epoch_us(positions["ts"])
    arrival_us = t_us if arrival_us is None else arrival_us
    order = np.argsort(t_us, kind="stable")
    names = {name: number for number, name in enumerate(reads["device"].unique().to_pylist())}
    owner = np.array([names.get(name, -1) for name in positions["device"].to_pylist()], np.int64)[order]
    lat, lon = (np.asarray(positions[name].to_numpy(), np.float64)[order] for name in ("lat", "lon"))
    t_us, arrival_us = t_us[order], arrival_us[order]
    device = [names[name] for name in reads["device"].to_pylist()]
    at_us = epoch_us(reads["ts"])
    since_us = at_us - np.rint(reads["window_s"].to_numpy() * US_PER_S).astype(np.int64)
    box = box_bounds(*(reads[name].to_numpy() for name in ("lat", "lon", "box_km")))
    boxes = [type(box)(*edges) for edges in zip(*(edge.tolist() for edge in box), strict=True)]
    first, past = (np.searchsorted(t_us, until_us, side="right") for until_us in (since_us, at_us))
    completeness = np.ones(len(at_us))
    begins = 0  # of the device's reads
    for read in range(len(at_us)):
        if read and device[read] != device[read - 1]:
            begins = read
        of_window = slice(first[read], past[read])
        is_due = in_box(lat[of_window], lon[of_window], boxes[read]) & (owner[of_window] != device[read])
        rows = first[read] + np.flatnonzero(is_due)
        if not len(rows):
            continue
        has = np.zeros(len(rows), dtype=np.bool_)
        for earlier in range(read if sent is not None else read - 1, begins - 1, -1):
            if at_us[earlier] <= since_us[read]:
                break
            if sent is None or sent[earlier]:
                has |= (
                    (arrival_us[rows] <= at_us[earlier])
                    & (t_us[rows] > since_us[earlier])
                    & in_box(lat[rows], lon[rows], boxes[earlier])
                )
        completeness[read] = has.mean()
    return completeness


@check_arguments(types=False)
def min_sent_share(cached: NDArray[np.float64], completeness: float, stale: int) -> float:
    """Return the smallest share of reads that any policy must send, even with a cache of all answers.

    Parameters
    ----------
    cached : ndarray of float64, shape (reads,)
        Result of :func:`cache_completeness` without ``sent``.
    completeness : float
        Completeness below which an answer is stale.
    stale : int
        Number of answers that may be stale.
    """
    return max(int(np.count_nonzero(cached < completeness)) - stale, 0) / max(len(cached), 1)
