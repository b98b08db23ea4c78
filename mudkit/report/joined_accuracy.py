"""Distances of told places from where devices were when they reported, and are by then; intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from mudkit import intervals
from mudkit.units import KM_PER_DEGREE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mudkit.report.joined_messages import Messages

TOLD_SHARE: Final = 0.95
"""Share of positions that the limit of the distance is about."""
_BIN: Final = math.log(1.02)
BINS: Final = 900
"""Bins of distances: the first is below 1 m, each further one 2 % wide."""
_SAME_M2: Final = 1e-6
_DRAWS: Final = 2000
_DRAWS_AT_ONCE: Final = 100


def squares_m2(
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    told_lat: NDArray[np.float64],
    told_lon: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return squared distances of positions from told places, on a plane: near enough within a city."""
    metres = 1000 * float(KM_PER_DEGREE)
    squares = ((lon - told_lon) * np.cos(np.radians(lat)) * metres) ** 2
    squares += ((lat - told_lat) * metres) ** 2
    squares[squares <= _SAME_M2] = 0
    return squares


def distance_bins(squares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each squared distance; 0: the same place."""
    with np.errstate(divide="ignore"):
        bins = np.ceil(np.log(squares) / (2 * _BIN)) + 1
    return np.where(squares > 0, np.clip(bins, 1, BINS - 1), 0).astype(np.int64)


def count_bins(
    bins: NDArray[np.int64], part: NDArray[np.int64] | None = None, parts: int = 1
) -> NDArray[np.int64]:
    """Return how many distances are in each bin, a row per part."""
    at = bins if part is None else part * BINS + bins
    return np.bincount(at, minlength=parts * BINS).reshape(parts, BINS)


def distance_m(bins: NDArray[np.int64], share: float = TOLD_SHARE) -> float:
    """Return the distance at which a share of all is reached, interpolated within its bin."""
    counts = np.cumsum(bins)
    aim = share * counts[-1]
    at = int(np.searchsorted(counts, aim))
    if at == 0:
        return 0.0
    part = float((aim - counts[at - 1]) / bins[at])
    return part if at == 1 else math.exp((at - 2 + part) * _BIN)


def last_reports(messages: Messages, device: NDArray[np.int32], t_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of messages, in order of time, that are the last of devices at or before some times."""
    order, n = np.argsort(messages.device, kind="stable"), len(messages)
    keys = messages.device[order].astype(np.int64) * n + order
    sought = device.astype(np.int64) * n + np.searchsorted(messages.t_us, t_us, side="right") - 1
    return np.asarray(order[np.searchsorted(keys, sought, side="right") - 1])


def left_interval(
    value: float,
    costs: NDArray[np.float64],
    messages: NDArray[np.int64],
    device: NDArray[np.int64],
    day: NDArray[np.int64],
    message_bytes: int,
) -> intervals.Interval:
    """Return the 95 % interval of the share of bytes that is left, over devices and days.

    Devices and days are resampled independently (A. Owen, The pigeonhole bootstrap, 2007), each if there are
    five at least. The bytes of an aggregate are divided among its messages; the groups stay as recorded.

    Parameters
    ----------
    value : float
        The share that is left.
    costs, messages : ndarray
        Bytes that some messages of a device and day take of what is sent, and how many these are.
    device, day : ndarray of int
    message_bytes : int
    """
    from scipy import sparse

    devices, row = np.unique(device, return_inverse=True)
    days, column = np.unique(day, return_inverse=True)
    shape = (len(days), len(devices))
    if max(shape) < intervals.MIN_REPETITIONS:
        return intervals.Interval(value, np.nan, np.nan, "value")
    parts, wholes = (
        sparse.csr_array((weights, (column, row)), shape=shape)
        for weights in (costs, messages * float(message_bytes))
    )
    random = np.random.Generator(np.random.PCG64(int(messages.sum())))
    drawn: list[float] = []
    for _ in range(_DRAWS // _DRAWS_AT_ONCE):
        of_days, of_devices = (_weights(random, length) for length in shape)
        part, whole = (((table @ of_devices.T) * of_days.T).sum(axis=0) for table in (parts, wholes))
        drawn += (part[whole > 0] / whole[whole > 0]).tolist()
    return _around(value, drawn)


def error_interval(bins: NDArray[np.int64], share: float = TOLD_SHARE) -> intervals.Interval:
    """Return the distance within which a share of the positions lies, with its 95 % interval over parts.

    The rows of ``bins`` are days, which are resampled if there are five at least.
    """
    value, days = distance_m(bins.sum(axis=0), share), len(bins)
    if days < intervals.MIN_REPETITIONS:
        return intervals.Interval(value, np.nan, np.nan, "value")
    random = np.random.Generator(np.random.PCG64(days))
    draws = range(_DRAWS // _DRAWS_AT_ONCE)
    return _around(value, [distance_m(row, share) for _ in draws for row in _weights(random, days) @ bins])


def _weights(random: np.random.Generator, length: int) -> NDArray[np.int64]:
    """Return how often each of some things is drawn, a row per draw; all once if there are too few."""
    if length < intervals.MIN_REPETITIONS:
        return np.ones((_DRAWS_AT_ONCE, length), dtype=np.int64)
    return random.multinomial(length, np.full(length, 1 / length), size=_DRAWS_AT_ONCE)


def _around(value: float, drawn: Sequence[float]) -> intervals.Interval:
    """Return the 95 % interval of drawn values, wide enough to contain the value."""
    low, high = (float(end) for end in np.percentile(drawn, [2.5, 97.5]))
    return intervals.Interval(value, min(low, value), max(high, value), "interval")
