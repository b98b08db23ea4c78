"""Order the recordings of a device, which are rows without a gap in time, and say how long each row lasts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.units import US_PER_S

__all__ = [
    "DUPLICATE",
    "OUT_OF_ORDER",
    "Order",
    "device_codes",
    "order_recordings",
    "row_durations",
    "stretches",
]

DUPLICATE, OUT_OF_ORDER = "duplicate", "out of order"


class Order(NamedTuple):
    """What :func:`order_recordings` decided.

    Attributes
    ----------
    kept : ndarray of int64, shape (kept,)
        Numbers of the kept rows, ordered by device and time; no two have both in common.
    aside : ndarray of int64, shape (aside,)
        The numbers of the rows that are set aside.
    reasons : ndarray of str, shape (aside,)
        DUPLICATE: a kept row has that device and time. OUT_OF_ORDER: none has, but others go on past it.
    """

    kept: NDArray[np.int64]
    aside: NDArray[np.int64]
    reasons: NDArray[np.str_]


def order_recordings(device: NDArray[np.int64], t_us: NDArray[np.int64], gap_s: float) -> Order:
    """Order rows that come in recordings: stretches of the file in which time neither steps back nor jumps.

    The recordings of a device are taken as they begin; of each, only what lies after the end of all before.
    So a file may hold recordings in any order, and one wild time costs one row.

    Parameters
    ----------
    device : ndarray of int64, shape (rows,)
        A number for the device of each row, from 0.
    t_us : ndarray of int64, shape (rows,)
        The time of each row, in microseconds, in the order of the file.
    gap_s : float
        Rows further apart than this many seconds belong to two recordings.
    """
    if not len(device):
        return Order(*(np.zeros(0, np.int64),) * 2, np.zeros(0, np.str_))
    rows = np.argsort(device, kind="stable")
    moment = np.unique(t_us, return_inverse=True)[1].astype(np.int64)
    key = (device * (moment.max() + 1) + moment)[rows]  # orders by device and time in one number
    step_us = np.diff(t_us[rows])
    new = np.append(True, (np.diff(device[rows]) != 0) | (step_us < 0) | (step_us > gap_s * US_PER_S))
    first = np.flatnonzero(new)
    begin, end = key[first], key[np.append(first[1:], len(key)) - 1]
    by_begin = np.argsort(begin, kind="stable")
    covered = np.full(len(first), -1, dtype=np.int64)  # until when recordings before this one go
    covered[by_begin[1:]] = np.maximum.accumulate(end[by_begin])[:-1]
    fine = key > covered[np.cumsum(new) - 1]
    fine[1:] &= new[1:] | (key[1:] != key[:-1])
    kept, kept_key = rows[fine], key[fine]
    reasons = np.where(np.isin(key[~fine], kept_key), DUPLICATE, OUT_OF_ORDER)
    return Order(kept[np.argsort(kept_key)], rows[~fine], reasons)


def row_durations(
    device: NDArray[np.int64], t_us: NDArray[np.int64], gap_s: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Tell how long rows last: until the next one, the last of a recording as long as the median step.

    Parameters
    ----------
    device, t_us : ndarray of int64, shape (rows,)
        The device of each row, and its time in microseconds; ordered by device and time.
    gap_s : float
        As for :func:`order_recordings`.

    Returns
    -------
    lasts_us : ndarray of int64, shape (rows,)
        Microseconds; 0 for a device no two rows of which are in one recording.
    begins : ndarray of bool, shape (rows,)
        Which rows begin a recording.
    """
    step_us = np.diff(t_us)
    same = (device[1:] == device[:-1]) & (step_us <= gap_s * US_PER_S)
    lasts_us = np.zeros(len(t_us), dtype=np.int64)
    lasts_us[:-1][same] = step_us[same]
    ends = np.append(~same, True)
    edges = np.flatnonzero(np.append(True, device[1:] != device[:-1]))
    for first, last in zip(edges, np.append(edges[1:], len(t_us)), strict=True):  # device by device
        of = slice(first, last)
        steps = lasts_us[of][~ends[of]]
        lasts_us[of][ends[of]] = int(np.median(steps)) if len(steps) else 0
    return lasts_us, np.append(True, ~same)


def stretches(
    value: NDArray[np.bool_], begins: NDArray[np.bool_], lasts_us: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the stretches with one value within a recording.

    Parameters
    ----------
    value, begins : ndarray of bool, shape (rows,)
        The values, and which rows begin a recording.
    lasts_us : ndarray of int64, shape (rows,)
        How long each row lasts, in microseconds, as :func:`row_durations` gives it.

    Returns
    -------
    first : ndarray of int64, shape (stretches,)
        The number of the first row of each stretch.
    total_us : ndarray of int64, shape (stretches,)
        How long each stretch lasts, in microseconds.
    """
    first = np.flatnonzero(begins | np.append(True, value[1:] != value[:-1]))
    return first, np.add.reduceat(lasts_us, first)


def device_codes(device: pa.ChunkedArray) -> NDArray[np.int64]:
    """Give each row the number of its device, from 0 in the order of the names."""
    names = device.combine_chunks().dictionary_encode()
    rank = pc.rank(names.dictionary, "ascending").to_numpy().astype(np.int64) - 1
    return np.asarray(rank[names.indices.to_numpy(zero_copy_only=False)], dtype=np.int64)
