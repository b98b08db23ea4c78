"""Which rows of a trace can be true: a device is at one place at a time and not faster than 70 m/s.

Two fixes agree when the later one can be reached from the earlier one in the time between them. By the
triangle inequality that relation is transitive, so the rows to keep are a longest chain of it: one wild
fix, wherever it stands, costs one row, not all that follow it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.units import US_PER_S, distance_km

__all__ = [
    "DUPLICATE",
    "KEPT",
    "LOOK_BACK_ROWS",
    "MAX_SPEED_MPS",
    "OUT_OF_ORDER",
    "TOO_FAST",
    "Judgement",
    "judge",
]

MAX_SPEED_MPS = 70.0
LOOK_BACK_ROWS = 512
"""How far back a row looks for one that it agrees with; of two stretches that contradict each other for
longer than that, the longer one is kept."""

KEPT, DUPLICATE, OUT_OF_ORDER, TOO_FAST = range(4)


class Judgement(NamedTuple):
    """What :func:`judge` decided.

    Attributes
    ----------
    kept : ndarray of int64
        Numbers of the kept rows, ordered by device and time.
    verdict : ndarray of int8, shape (rows,)
        KEPT, DUPLICATE, OUT_OF_ORDER or TOO_FAST for each row as given.
    """

    kept: NDArray[np.int64]
    verdict: NDArray[np.int8]


def judge(
    device: NDArray[np.integer], t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> Judgement:
    """Decide which rows to keep, device by device.

    Rows are taken in the order in which they come; a device most of whose steps go back in time is read
    from its end (Cabspotting's own files are).

    Parameters
    ----------
    device : ndarray of int
        A number for each device.
    t_us : ndarray of int64
        Times, microseconds.
    lat, lon : ndarray of float64
        Degrees, in range and finite.
    """
    verdict = np.zeros(len(device), dtype=np.int8)
    by_device = np.argsort(device, kind="stable").astype(np.int64)
    edges = np.flatnonzero(np.diff(device[by_device])) + 1
    kept = []
    for rows in np.split(by_device, edges):
        steps = np.diff(t_us[rows])
        if np.count_nonzero(steps < 0) > np.count_nonzero(steps > 0):
            rows = rows[::-1]
        chain = _longest_chain(t_us[rows], lat[rows], lon[rows])
        if len(chain) < len(rows):
            verdict[rows] = _reasons(t_us[rows], chain)
        kept.append(rows[chain])
    return Judgement(np.concatenate(kept), verdict)


def _agree(
    t_us: NDArray[np.int64],
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    earlier: NDArray[np.int64] | slice,
    later: NDArray[np.int64] | slice | int,
) -> NDArray[np.bool_]:
    dt_us = t_us[later] - t_us[earlier]
    reach_km = MAX_SPEED_MPS / 1000 * dt_us / US_PER_S
    near = distance_km(lat[earlier], lon[earlier], lat[later], lon[later]) <= reach_km
    return np.asarray((dt_us > 0) & near)


def _longest_chain(
    t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Positions of a longest chain of rows that agree; of equal ones the one whose rows come first.

    Where each row agrees with the one before it and that one ends the longest chain so far, a whole
    stretch is taken at once; only around a contradiction are earlier rows searched, one row at a time.
    """
    n = len(t_us)
    follows = _agree(t_us, lat, lon, slice(0, n - 1), slice(1, n))
    if follows.all():
        return np.arange(n)
    breaks = np.append(np.flatnonzero(~follows) + 1, n)
    length = np.ones(n, dtype=np.int64)
    before = np.full(n, -1, dtype=np.int64)
    longest, last = 0, -1  # the longest chain so far, and the first row that ends one of that length
    i = 0
    while i < n:
        if i and follows[i - 1] and last == i - 1:
            end = int(breaks[np.searchsorted(breaks, i)])
            length[i:end] = longest + np.arange(1, end - i + 1)
            before[i:end] = np.arange(i - 1, end - 1)
            longest, last, i = int(length[end - 1]), end - 1, end
            continue
        first = max(0, i - LOOK_BACK_ROWS)
        lengths = np.where(_agree(t_us, lat, lon, slice(first, i), i), length[first:i], 0)
        if len(lengths) and lengths.max() > 0:
            best = int(np.argmax(lengths))
            before[i] = first + best
            length[i] = lengths[best] + 1
        if length[i] > longest:
            longest, last = int(length[i]), i
        i += 1
    chain = []
    row = int(np.argmax(length))
    while row >= 0:
        chain.append(row)
        row = int(before[row])
    return np.array(chain[::-1], dtype=np.int64)


def _reasons(t_us: NDArray[np.int64], chain: NDArray[np.int64]) -> NDArray[np.int8]:
    """Say for each row of a device whether it was kept, and if not, why."""
    rows = np.arange(len(t_us))
    verdict = np.full(len(t_us), TOO_FAST, dtype=np.int8)
    position = np.searchsorted(chain, rows)
    lower = np.iinfo(np.int64)
    t_chain = np.concatenate([[lower.min], t_us[chain], [lower.max]])
    in_order = (t_chain[position] < t_us) & (t_us < t_chain[position + 1])
    verdict[~in_order] = OUT_OF_ORDER
    verdict[np.isin(t_us, t_us[chain])] = DUPLICATE
    verdict[chain] = KEPT
    return verdict
