"""Search for the interval, cell and threshold at which messages are joined, by sums that can be merged.

A queue holds the messages of one cell and one interval. It is sent as one aggregate at the end of the
interval, or in parts of ``threshold`` messages, each as soon as it is full. An aggregate holds the mean place
and the mean value of its messages; a single message is sent as it is. :class:`Sums` of parts of a trace that
share no queue add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mudkit import figures
from mudkit.report.joined_accuracy import (
    TOLD_SHARE,
    count_bins,
    distance_bins,
    distance_m,
    last_reports,
    squares_m2,
)
from mudkit.trace.schema import epoch_us
from mudkit.units import EARTH_RADIUS_KM, US_PER_S, middle

if TYPE_CHECKING:
    from numpy.typing import NDArray

AS_GOOD: Final = 1.05
"""A combination is as good as the best if it leaves at most this times its bytes."""
MAX_ZOOM: Final = 22
_COARSER, _FINER = 2, 3
_INTERVALS_S: Final = (
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400,
)  # fmt: skip
_SPAN: Final = (16, 4)
"""Factors by which the shortest and the longest interval that are tried differ from the longest delay."""
_ROUNDS: Final = 8
_ROW_BITS: Final = 24


@dataclass(frozen=True)
class Sizes:
    """Sizes of a message and of an aggregate of several, bytes."""

    message_bytes: int
    aggregate_bytes: int


@dataclass(frozen=True)
class Limits:
    """Limits that a combination has to keep.

    Parameters
    ----------
    max_delay_s : int
        Longest time that a message may wait.
    max_error_m : float
        Distance from what their aggregate tells within which 95 % of the positions lie.
    max_quantity_error : float or None
        Largest error of the quantity (:meth:`Sums.quantity_error`); None: any.
    """

    max_delay_s: int
    max_error_m: float
    max_quantity_error: float | None = None


@dataclass(frozen=True)
class Sums:
    """Sums over the messages and aggregates of one combination; parts without a common queue add up.

    Attributes
    ----------
    messages : int
        Messages that came.
    sizes : tuple of (messages, count) arrays
        How many of what was sent hold how many messages.
    wait_s : float
        Waiting time of all messages.
    distances : ndarray
        Messages by distance from what was stated of them, in bins of 2 %.
    squares_m2 : float
        Sum of the squared distances.
    values, value_squares : float
        Messages with a value, and the squared differences from what was stated.
    told_devices, devices : int
        Devices, counted in each aggregate that holds them, and once an interval.
    """

    messages: int
    sizes: tuple[NDArray[np.int64], NDArray[np.int64]]
    wait_s: float
    distances: NDArray[np.int64]
    squares_m2: float
    values: int
    value_squares: float
    told_devices: int
    devices: int

    def __add__(self, other: Sums) -> Sums:
        filled = np.concatenate([self.sizes[0], other.sizes[0]])
        counts = np.concatenate([self.sizes[1], other.sizes[1]])
        sizes, at = np.unique(filled, return_inverse=True)
        summed = np.bincount(at, weights=counts, minlength=len(sizes)).astype(np.int64)
        rest = {
            name: getattr(self, name) + getattr(other, name)
            for name in self.__dataclass_fields__
            if name != "sizes"
        }
        return Sums(sizes=(sizes, summed), **rest)

    @property
    def sent(self) -> int:
        """Messages and aggregates that are sent to each receiver."""
        return int(self.sizes[1].sum())

    def split(self, threshold: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sizes of what is sent if queues go in parts of at most ``threshold`` messages."""
        filled, counts = self.sizes
        rest = filled % threshold
        full = int((filled // threshold * counts).sum())
        sizes, at = np.unique(np.append(rest, threshold), return_inverse=True)
        summed = np.bincount(at, weights=np.append(counts, full)).astype(np.int64)
        kept = (sizes > 0) & (summed > 0)
        return sizes[kept], summed[kept]

    def bytes_out(self, sizes: Sizes, threshold: int | None = None) -> int:
        """Return the bytes that go to each receiver."""
        filled, counts = self.sizes if threshold is None else self.split(threshold)
        alone = int(counts[filled == 1].sum())
        return alone * sizes.message_bytes + (int(counts.sum()) - alone) * sizes.aggregate_bytes

    def left_share(self, sizes: Sizes, threshold: int | None = None) -> float:
        """Return the bytes that are left, as a share of those of all messages."""
        return self.bytes_out(sizes, threshold) / (self.messages * sizes.message_bytes)

    @property
    def repeated_share(self) -> float:
        """Share of the saved messages that repeat one of their device in an aggregate; NaN: none is saved."""
        saved = self.messages - self.sent
        return (self.messages - self.told_devices) / saved if saved else math.nan

    def own_repeats_share(self, sizes: Sizes) -> float:
        """Return the bytes of repeated messages as a share of the bytes that are saved; NaN: none are."""
        saved = self.messages * sizes.message_bytes - self.bytes_out(sizes)
        own = (self.messages - self.told_devices) * sizes.message_bytes
        return own / saved if saved > 0 else math.nan

    def error_m(self, share: float = TOLD_SHARE) -> float:
        """Return the distance within which a share of the positions lies, to within 2 %."""
        return distance_m(self.distances, share)

    def quantity_error(self, quantity: str) -> float:
        """Return the error of the quantity.

        Of a speed it is the root mean square of the difference from what is stated, km/h; of a number of
        devices the share by which all aggregates of an interval count too many.
        """
        if quantity == "speed":
            return 3.6 * math.sqrt(self.value_squares / self.values) if self.values else math.nan
        return self.told_devices / self.devices - 1

    @property
    def delay_s(self) -> float:
        """Mean waiting time."""
        return self.wait_s / self.messages

    def keeps(self, limits: Limits, quantity: str) -> bool:
        """Return whether the errors are within the limits."""
        worst = limits.max_quantity_error
        return self.error_m() <= limits.max_error_m and (
            worst is None or not self.quantity_error(quantity) > worst
        )


class Messages:
    """Positions as arrays, in order of time unless they are taken in another order.

    Parameters
    ----------
    positions : pyarrow.Table
        ``device, ts, lat, lon`` and perhaps ``speed_mps``.
    """

    def __init__(self, positions: pa.Table) -> None:
        t_us = epoch_us(positions["ts"])
        order = np.argsort(t_us, kind="stable")
        names = positions["device"].combine_chunks().dictionary_encode()
        self.names = np.array(names.dictionary.to_pylist(), dtype=object)
        self.t_us = t_us[order]
        self.device = names.indices.to_numpy(zero_copy_only=False).astype(np.int32)[order]
        self.lat, self.lon = (positions[name].to_numpy()[order] for name in ("lat", "lon"))
        value = positions["speed_mps"].to_numpy() if "speed_mps" in positions.column_names else np.empty(0)
        self.value = value[order] if np.isfinite(value).any() else None

    def __len__(self) -> int:
        return len(self.t_us)

    def take(self, rows: NDArray[Any]) -> Messages:
        """Return some messages, or all in another order."""
        part = object.__new__(Messages)
        part.names = self.names
        for name in ("t_us", "device", "lat", "lon"):
            setattr(part, name, getattr(self, name)[rows])
        part.value = None if self.value is None else self.value[rows]
        return part

    @cached_property
    def by_device(self) -> Messages:
        """The messages in order of device and time."""
        return self.take(np.lexsort((self.t_us, self.device)))

    def intervals(self, interval_s: int) -> NDArray[np.int64]:
        """Return the number of each message's interval since 1970."""
        return self.t_us // (interval_s * US_PER_S)

    def count_devices(self, interval_s: int) -> int:
        """Count the devices of each interval, and add the counts up."""
        return int(_runs(self.by_device.device, self.by_device.intervals(interval_s)).sum())

    def waits_s(self, interval_s: int) -> NDArray[np.float64]:
        """Return the time from each message to the end of its interval."""
        length_us = interval_s * US_PER_S
        return np.asarray((length_us - self.t_us % length_us) / US_PER_S)


class Cells:
    """Messages in the order of their cells at a zoom level, and of time within a cell.

    Parameters
    ----------
    messages : Messages
        In order of time.
    zoom : int
    """

    def __init__(self, messages: Messages, zoom: int) -> None:
        self.zoom, self.source = zoom, messages
        x, y = figures.tiles(zoom, messages.lat, messages.lon)
        cell = (x << _ROW_BITS) + y
        self.order = np.argsort(cell, kind="stable")
        self.messages = messages.take(self.order)
        self._cell = cell[self.order]
        number = np.cumsum(_runs(self._cell)) * len(messages.names) + self.messages.device
        same = np.argsort(number, kind="stable")
        at = np.flatnonzero(~_runs(self.messages.device[same], self._cell[same]))
        self._before = np.full(len(same), -1, dtype=np.int64)
        self._before[same[at]] = same[at - 1]

    def count_devices(self, interval_s: int) -> int:
        """Count the devices of each interval, and add the counts up."""
        return self.source.count_devices(interval_s)

    def groups(self, interval_s: int, threshold: int | None = None) -> NDArray[np.int64]:
        """Return the number of each message's aggregate."""
        starts = _runs(self._cell, self.messages.intervals(interval_s))
        if threshold is not None:
            first = np.flatnonzero(starts)
            rank = np.arange(len(starts)) - np.repeat(first, np.diff(np.append(first, len(starts))))
            starts = rank % threshold == 0
        return np.asarray(np.cumsum(starts) - 1)

    def sums(self, interval_s: int, threshold: int | None = None, devices: int | None = None) -> Sums:
        """Add up one combination; ``devices`` is :meth:`Messages.count_devices`, if it is known already."""
        group = self.groups(interval_s, threshold)
        is_first = (self._before < 0) | (group[self._before] != group)
        waits_s = self.messages.waits_s(interval_s)
        waited = float(waits_s.sum())
        if threshold is not None:  # a full queue goes with its last message
            filled = np.bincount(group)
            last = np.cumsum(filled) - 1
            waited -= float((filled * waits_s[last])[filled == threshold].sum())
        if devices is None:
            devices = self.count_devices(interval_s)
        return _sums(self.messages, group, waited, int(is_first.sum()), devices)

    def costs(self, interval_s: int, threshold: int | None, sizes: Sizes) -> NDArray[np.float64]:
        """Return the bytes that each message takes of what is sent, in the order of ``messages``."""
        group = self.groups(interval_s, threshold)
        filled = np.bincount(group)
        return np.asarray(np.where(filled == 1, sizes.message_bytes, sizes.aggregate_bytes / filled)[group])

    def sent_bins(
        self, group: NDArray[np.int64], interval_s: int, threshold: int | None = None
    ) -> NDArray[np.int64]:
        """Return how far each message's aggregate is from the last report of its device when it is sent.

        These are bins of distances, in the order of ``messages``. Reports at the very end of an interval
        belong to the next one.

        Parameters
        ----------
        group : ndarray
            Aggregate of each message.
        interval_s : int
        threshold : int, optional
            Aggregates of as many messages were sent with their last one.
        """
        messages = self.messages
        lat, lon = _places(messages, group)
        sent_us = (messages.intervals(interval_s) + 1) * (interval_s * US_PER_S) - 1
        if threshold is not None:
            filled = np.bincount(group)
            last_us = np.full(len(filled), messages.t_us.min())
            np.maximum.at(last_us, group, messages.t_us)
            sent_us = np.where((filled == threshold)[group], last_us[group], sent_us)
        last = self.source.take(last_reports(self.source, messages.device, sent_us))
        return distance_bins(squares_m2(last.lat, last.lon, lat[group], lon[group]))


def _runs(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where a row differs from the one before in any column; the first one does."""
    starts = np.ones(len(columns[0]), dtype=bool)
    starts[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def _sums(
    messages: Messages, group: NDArray[np.int64], wait_s: float, told_devices: int, devices: int
) -> Sums:
    """Add up aggregates that tell means; ``group`` is the aggregate of each message."""
    stated = [mean if mean is None else mean[group] for mean in _means(messages, group)]
    errors = _errors(messages, stated)
    return Sums(len(group), _counted(np.bincount(group)), wait_s, *errors, told_devices, devices)


def _counted(filled: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different numbers of messages, and how many aggregates hold them."""
    counts = np.bincount(filled)
    return np.flatnonzero(counts), counts[counts > 0]


def _means(messages: Messages, group: NDArray[np.int64]) -> list[NDArray[np.float64] | None]:
    """Return the mean latitude, longitude and value of groups of messages; NaN: none of them has a value."""
    means: list[NDArray[np.float64] | None] = [*_places(messages, group)]
    if messages.value is None:
        return [*means, None]
    known = np.isfinite(messages.value)
    with np.errstate(invalid="ignore"):
        summed = np.bincount(group, weights=np.where(known, messages.value, 0.0))
        return [*means, summed / np.bincount(group, weights=known)]


def _places(messages: Messages, group: NDArray[np.int64]) -> list[NDArray[np.float64]]:
    """Return the mean latitude and longitude of groups of messages."""
    filled = np.bincount(group)
    return [np.bincount(group, weights=part) / filled for part in (messages.lat, messages.lon)]


def _errors(messages: Messages, stated: Sequence[Any]) -> tuple[NDArray[np.int64], float, int, float]:
    """Compare messages with the latitude, longitude and value of their aggregates.

    Returns distances by bins, the sum of their squares, values, and the sum of their squared differences.
    """
    told_lat, told_lon, told_value = stated
    squares = squares_m2(messages.lat, messages.lon, told_lat, told_lon)
    distances, summed = count_bins(distance_bins(squares))[0], float(squares.sum())
    if messages.value is None or told_value is None:
        return distances, summed, 0, 0.0
    errors = messages.value - told_value
    errors = errors[np.isfinite(errors)]
    return distances, summed, len(errors), float(errors @ errors)


def keep_last(messages: Messages, interval_s: int) -> Sums:
    """Add up what is left if each device sends its last position of an interval alone."""
    ordered, run, last = _last_of_devices(messages, interval_s)
    stated = [None if part is None else part[last][run] for part in (ordered.lat, ordered.lon, ordered.value)]
    counts = (np.array([1]), np.array([len(last)]))
    waited = float(messages.waits_s(interval_s).sum())
    return Sums(len(messages), counts, waited, *_errors(ordered, stated), len(last), len(last))


def join_last(messages: Messages, zoom: int, interval_s: int) -> Sums:
    """Add up what is left if the last positions of the devices in a cell and interval are joined."""
    ordered, run, last = _last_of_devices(messages, interval_s)
    kept, group = _last_in_cells(ordered, last, zoom, interval_s)
    stated = [mean if mean is None else mean[group][run] for mean in _means(kept, group)]
    waited = float(messages.waits_s(interval_s).sum())
    errors = _errors(ordered, stated)
    return Sums(len(messages), _counted(np.bincount(group)), waited, *errors, len(last), len(last))


def _last_in_cells(
    ordered: Messages, last: NDArray[np.int64], zoom: int, interval_s: int
) -> tuple[Messages, NDArray[np.int64]]:
    """Return the last messages, and the number of each one's cell and interval."""
    kept = ordered.take(last)
    return kept, _numbered(*figures.tiles(zoom, kept.lat, kept.lon), kept.intervals(interval_s))


def last_sent_bins(messages: Messages, zoom: int, interval_s: int) -> NDArray[np.int64]:
    """Return how far joined last positions are from their own, as bins, in the order of ``by_device``."""
    ordered, run, last = _last_of_devices(messages, interval_s)
    kept, group = _last_in_cells(ordered, last, zoom, interval_s)
    lat, lon = _places(kept, group)
    return distance_bins(squares_m2(kept.lat, kept.lon, lat[group], lon[group]))[run]


def join_own(cells: Cells, interval_s: int, threshold: int | None = None) -> Sums:
    """Add up what is left if each device joins its own messages of a cell and interval into one message."""
    messages, group = cells.messages, own_groups(cells, interval_s, threshold)
    stated = [mean if mean is None else mean[group] for mean in _means(messages, group)]
    kept = int(group.max()) + 1
    counts = (np.array([1]), np.array([kept]))
    waits_s = messages.waits_s(interval_s)
    waited = float(waits_s.sum())
    if threshold is not None:  # a full message goes with its last position
        filled, last_s = np.bincount(group), np.full(kept, np.inf)
        np.minimum.at(last_s, group, waits_s)
        waited -= float((filled * last_s)[filled == threshold].sum())
    errors = _errors(messages, stated)
    return Sums(len(messages), counts, waited, *errors, kept, cells.count_devices(interval_s))


def own_groups(cells: Cells, interval_s: int, threshold: int | None = None) -> NDArray[np.int64]:
    """Return a number for each device, cell and interval, in the order of ``cells.messages``.

    With a threshold each part of that size has its own number.
    """
    group = _numbered(cells.messages.device.astype(np.int64), cells.groups(interval_s))
    return group if threshold is None else _numbered(group, _rank(group) // threshold)


def join_different(cells: Cells, interval_s: int) -> Sums:
    """Add up what is left if no aggregate holds two messages of one device.

    The first messages of the devices in a queue are joined, then their second ones, and so on.
    """
    messages, group = cells.messages, different_groups(cells, interval_s)
    waited = float(messages.waits_s(interval_s).sum())
    return _sums(messages, group, waited, len(group), cells.count_devices(interval_s))


def different_groups(cells: Cells, interval_s: int) -> NDArray[np.int64]:
    """Return the aggregate of each message of :func:`join_different`, in the order of ``cells.messages``."""
    return _numbered(cells.groups(interval_s), _rank(own_groups(cells, interval_s)))


def _rank(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many rows before each one are of its group."""
    same = np.argsort(group, kind="stable")
    first = np.flatnonzero(_runs(group[same]))
    rank = np.empty(len(group), dtype=np.int64)
    rank[same] = np.arange(len(same)) - np.repeat(first, np.diff(np.append(first, len(same))))
    return rank


def last_groups(messages: Messages, interval_s: int) -> NDArray[np.int64]:
    """Return a number for each device and interval, in the order of ``messages.by_device``."""
    return _last_of_devices(messages, interval_s)[1]


def _last_of_devices(
    messages: Messages, interval_s: int
) -> tuple[Messages, NDArray[np.int64], NDArray[np.int64]]:
    """Return the order by device, the number of each row's device and interval, and the last row of each."""
    ordered = messages.by_device
    starts = _runs(ordered.device, ordered.intervals(interval_s))
    last = np.append(np.flatnonzero(starts)[1:], len(ordered)) - 1
    return ordered, np.cumsum(starts) - 1, last


def _numbered(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each row among the different rows of some columns."""
    order = np.lexsort(columns)
    starts = _runs(*(column[order] for column in columns))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(starts) - 1
    return number


def cell_km(zoom: int, lat: float) -> float:
    """Return the side of a cell at a latitude."""
    return float(2 * np.pi * EARTH_RADIUS_KM * np.cos(np.radians(lat)) / 2**zoom)


def threshold_grid(largest: int) -> list[int]:
    """Return the thresholds from 2 to one that no queue exceeds: all up to 100, then two digits."""
    grid, step, value = [], 1, 2
    while value < largest:
        grid.append(value)
        value += step
        if value >= 100 * step:
            step *= 10
    return [*grid, value]


@dataclass(frozen=True)
class Choice:
    """Combination of zoom level, interval and threshold, with its sums.

    ``threshold`` is None if queues are sent at the end of their interval only.
    """

    zoom: int
    interval_s: int
    threshold: int | None
    sums: Sums


@dataclass
class Search:
    """Sums of the combinations that were tried, with the limits and the sizes by which they are judged.

    Attributes
    ----------
    tried : dict
        Sums by zoom level and interval, of queues that go at the end of their interval.
    with_threshold : dict
        Sums by zoom level, interval and threshold, of queues that break a limit without a threshold.
    """

    limits: Limits
    sizes: Sizes
    quantity: str
    tried: dict[tuple[int, int], Sums] = field(default_factory=dict)
    with_threshold: dict[tuple[int, int, int], Sums] = field(default_factory=dict)

    def is_allowed(self, zoom: int, interval_s: int) -> bool:
        """Return whether a combination keeps the limits."""
        sums = self.tried[zoom, interval_s]
        return interval_s <= self.limits.max_delay_s and sums.keeps(self.limits, self.quantity)

    def left(self, zoom: int, interval_s: int) -> float:
        """Return the share of bytes that a combination leaves."""
        return self.tried[zoom, interval_s].left_share(self.sizes)

    def allowed(self) -> list[tuple[int, int]]:
        """Return the combinations that keep the limits."""
        return [key for key in self.tried if self.is_allowed(*key)]

    @property
    def least(self) -> float:
        """Least share of bytes that is left within the limits; infinite: nothing keeps them."""
        whole = [self.left(*key) for key in self.allowed()]
        parts = [self.with_threshold[key].left_share(self.sizes) for key in self._parts_allowed()]
        return min([*whole, *parts], default=math.inf)

    def _parts_allowed(self) -> list[tuple[int, int, int]]:
        return [
            key
            for key, sums in self.with_threshold.items()
            if key[1] <= self.limits.max_delay_s and sums.keeps(self.limits, self.quantity)
        ]

    def choose(self) -> Choice | None:
        """Return the best combination.

        Among those that leave at most 5 % more bytes than the least, the one with the shortest interval, then
        the smallest cells, then the smallest threshold. None: nothing keeps the limits.
        """
        most = AS_GOOD * self.least
        good = [
            (interval_s, -zoom, 0)
            for zoom, interval_s in self.allowed()
            if self.left(zoom, interval_s) <= most
        ]
        good += [
            (interval_s, -zoom, threshold)
            for zoom, interval_s, threshold in self._parts_allowed()
            if self.with_threshold[zoom, interval_s, threshold].left_share(self.sizes) <= most
        ]
        if not good:
            return None
        interval_s, below, threshold = min(good)
        if threshold:
            sums = self.with_threshold[-below, interval_s, threshold]
            return Choice(-below, interval_s, threshold, sums)
        sums = self.tried[-below, interval_s]
        largest = int(sums.sizes[0].max())
        size = next(size for size in threshold_grid(largest) if sums.left_share(self.sizes, size) <= most)
        return Choice(-below, interval_s, size if size < largest else None, sums)


def search(
    messages: Messages,
    limits: Limits,
    sizes: Sizes,
    quantity: str,
    *,
    zoom: int | None = None,
    known: Search | None = None,
) -> Search:
    """Try intervals and cells, further ones while the best lies at an edge, and finer ones around the best.

    Intervals are refined until none between two of them can save another 5 % of the bytes. Combinations that
    break a limit are tried with thresholds that would leave fewer bytes than the best.

    Parameters
    ----------
    messages : Messages
    limits : Limits
    sizes : Sizes
    quantity : str
        ``speed`` or ``devices``.
    zoom : int, optional
        The only level that is tried.
    known : Search, optional
        What was tried on the same messages, with other limits.
    """
    result = Search(limits, sizes, quantity)
    if known is not None:
        result = replace(result, tried={**known.tried}, with_threshold={**known.with_threshold})
    lengths_s = _lengths_s(limits.max_delay_s)
    counted = {length_s: messages.count_devices(length_s) for length_s in lengths_s}

    def try_all(zooms: Iterable[int]) -> None:
        for level in sorted(zooms, reverse=True):  # small cells keep the limits
            cells = Cells(messages, level)
            for length_s in lengths_s:
                if (level, length_s) not in result.tried:
                    result.tried[level, length_s] = cells.sums(length_s, devices=counted[length_s])
            _refine(result, cells)
            _try_thresholds(result, cells)

    if zoom is not None:
        try_all([zoom])
    else:
        start = _first_zoom(messages, limits.max_error_m)
        try_all(range(max(start - _COARSER, 0), min(start + _FINER, MAX_ZOOM) + 1))
        for level in _further(result):
            try_all([level])
    return result


def _lengths_s(max_delay_s: int) -> list[int]:
    shorter, longer = _SPAN
    usual = [s for s in _INTERVALS_S if max_delay_s / shorter <= s <= max_delay_s * longer]
    return sorted({*usual, max_delay_s})


def _first_zoom(messages: Messages, max_error_m: float) -> int:
    """Return the level whose cells are about twice as wide as the limit of the distance."""
    lat, _ = middle(messages.lat, messages.lon)
    level = round(math.log2(cell_km(0, lat) / (2 * max_error_m / 1000)))
    return min(max(level, 0), MAX_ZOOM)


def _further(result: Search) -> Iterator[int]:
    """Yield levels beyond those tried while they may be better: finer ones, then larger cells."""
    while (finest := max(zoom for zoom, _ in result.tried)) < MAX_ZOOM:
        choice = result.choose()
        if choice is not None and choice.zoom != finest:
            break
        if choice is not None and _is_same(result, finest, finest - 1):
            break
        yield finest + 1
    while (coarsest := min(zoom for zoom, _ in result.tried)) > 0:
        if not any(zoom == coarsest for zoom, _ in result.allowed()):
            break
        if _is_same(result, coarsest, coarsest + 1):
            break
        yield coarsest - 1


def _is_same(result: Search, one: int, other: int) -> bool:
    """Return whether two levels leave the same bytes at all intervals that both were tried with."""
    return all(
        result.left(one, length_s) == result.left(other, length_s)
        for zoom, length_s in result.tried
        if zoom == one and (other, length_s) in result.tried
    )


def _refine(result: Search, cells: Cells) -> None:
    """Try intervals between the best one of a level and its neighbours while these could save another 5 %."""
    zoom = cells.zoom
    for _ in range(_ROUNDS):
        own = sorted(length_s for level, length_s in result.tried if level == zoom)
        own = [length_s for length_s in own if length_s <= result.limits.max_delay_s]
        allowed = [length_s for length_s in own if result.is_allowed(zoom, length_s)]
        if not allowed:
            return
        best = min(allowed, key=lambda length_s: (result.left(zoom, length_s), length_s))
        aim = min(result.left(zoom, best), result.least) / AS_GOOD
        at = own.index(best)
        between = {
            round(math.sqrt(best * other))
            for other in own[max(at - 1, 0) : at] + own[at + 1 : at + 2]
            if result.left(zoom, other) < aim
        }
        between -= set(own)
        if not between:
            return
        for length_s in between:
            result.tried[zoom, length_s] = cells.sums(length_s)


def _try_thresholds(result: Search, cells: Cells) -> None:
    """Try combinations of a level that break a limit with a threshold: smaller aggregates tell more."""
    for zoom, length_s in list(result.tried):
        is_late = length_s > result.limits.max_delay_s
        if zoom != cells.zoom or is_late or result.is_allowed(zoom, length_s):
            continue
        whole, least = result.tried[zoom, length_s], result.least
        grid = [
            size
            for size in threshold_grid(int(whole.sizes[0].max()))
            if AS_GOOD * whole.left_share(result.sizes, size) < least
        ]
        kept: tuple[int, Sums] | None = None
        low, high = 0, len(grid)
        while low < high:  # find the largest threshold that keeps the limits
            at = (low + high) // 2 if kept else low
            sums = cells.sums(length_s, grid[at], whole.devices)
            if sums.keeps(result.limits, result.quantity):
                kept, low = (grid[at], sums), at + 1
            else:
                high = at
        if kept is not None:
            result.with_threshold[zoom, length_s, kept[0]] = kept[1]


def best_last(messages: Messages, limits: Limits, quantity: str) -> tuple[int, Sums] | None:
    """Return the best interval at which each device sends its last position alone; None: none is allowed."""
    tried = {length_s: keep_last(messages, length_s) for length_s in _lengths_s(limits.max_delay_s)}
    for _ in range(_ROUNDS):
        own = sorted(length_s for length_s in tried if length_s <= limits.max_delay_s)
        allowed = [length_s for length_s in own if tried[length_s].keeps(limits, quantity)]
        if not allowed:
            return None
        best = max(allowed)
        longer = own[own.index(best) + 1 : own.index(best) + 2]
        if not longer or AS_GOOD * tried[longer[0]].sent >= tried[best].sent:
            break
        if (between := round(math.sqrt(best * longer[0]))) in tried:
            break
        tried[between] = keep_last(messages, between)
    good = [length_s for length_s in allowed if tried[length_s].sent <= AS_GOOD * tried[best].sent]
    return min(good), tried[min(good)]
