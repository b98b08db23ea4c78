"""Recordings of a device (rows without a gap in time), their order, and the duration of each row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mudkit.units import US_PER_S

DUPLICATE, OUT_OF_ORDER = "duplicate", "out of order"


class Order(NamedTuple):
    """Result of :func:`order_recordings`.

    Attributes
    ----------
    kept : ndarray of int64, shape (kept,)
        Indices of the kept rows, ordered by device and time, without duplicates.
    aside : ndarray of int64, shape (aside,)
        Indices of the rejected rows.
    reasons : ndarray of str, shape (aside,)
        DUPLICATE: a kept row has that device and time. OUT_OF_ORDER: none has, but kept rows extend beyond
        it.
    """

    kept: NDArray[np.int64]
    aside: NDArray[np.int64]
    reasons: NDArray[np.str_]


def order_recordings(device: NDArray[np.int64], t_us: NDArray[np.int64], gap_s: float) -> Order:
    """Order rows that come in recordings: stretches of the file in which time neither decreases nor jumps.

    The recordings of a device are taken by their beginning; of each, only the rows after the end of all
    before are kept. A file may hold recordings in any order, and one wrong time costs one row. Rows further
    apart than ``gap_s`` belong to two recordings.
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
    """Return the duration of rows, until the next one, and which rows begin a recording.

    The last row of a recording has the median step, a device without two rows in a recording has 0. Rows are
    ordered by device and time.
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
    """Return the first row and the duration of each stretch with one value within a recording."""
    first = np.flatnonzero(begins | np.append(True, value[1:] != value[:-1]))
    return first, np.add.reduceat(lasts_us, first)


def device_codes(device: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the number of each row's device, from 0 in the order of names."""
    whole = device.combine_chunks()
    names = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    rank = pc.rank(names.dictionary, "ascending").to_numpy().astype(np.int64) - 1
    return np.asarray(rank[names.indices.to_numpy(zero_copy_only=False)], dtype=np.int64)


def stable_order(numbers: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the stable order of numbers; of those with 16 bits NumPy finds it in linear time."""
    is_short = len(numbers) > 0 and numbers.min() >= 0 and numbers.max() <= np.iinfo(np.uint16).max
    order = np.argsort(numbers.astype(np.uint16) if is_short else numbers, kind="stable")
    return np.asarray(order, dtype=np.int64)
