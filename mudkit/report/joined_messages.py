"""Messages that are joined by device, cell and interval: rows of a trace as arrays, and sums that add up.

A queue holds the messages of one cell and one interval. It is sent as one aggregate at the end of the
interval, or in parts of ``threshold`` messages, each as soon as it is full. An aggregate holds the mean place
and the mean value of its messages; a single message is sent as it is.

All sums are of whole numbers, so they do not depend on how the queues are divided among tasks. Tasks of Spark
run this module, too, where the libraries of figures are not installed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROW_BITS: Final = 24
SQUARE: Final = 1e6
"""Squared differences of values are counted in millionths."""
PARTS: Final = 1 << 32
"""Parts of an aggregate in which the shares of its messages are counted."""


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
    wait_us : int
        Waiting time of all messages.
    distances : ndarray
        Messages by distance from what was stated of them, in bins of 2 %.
    values, value_squares : int
        Messages with a value, and the squared differences from what was stated, in millionths.
    told_devices, devices : int
        Devices, counted in each aggregate that holds them, and once an interval.
    """

    messages: int
    sizes: tuple[NDArray[np.int64], NDArray[np.int64]]
    wait_us: int
    distances: NDArray[np.int64]
    values: int
    value_squares: int
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
            return 3.6 * math.sqrt(self.value_squares / SQUARE / self.values) if self.values else math.nan
        return self.told_devices / self.devices - 1

    @property
    def delay_s(self) -> float:
        """Mean waiting time."""
        return self.wait_us / US_PER_S / self.messages

    def keeps(self, limits: Limits, quantity: str) -> bool:
        """Return whether the errors are within the limits."""
        worst = limits.max_quantity_error
        return self.error_m() <= limits.max_error_m and (
            worst is None or not self.quantity_error(quantity) > worst
        )


class Messages:
    """Positions as arrays, in order of time and device unless they are taken in another order.

    Parameters
    ----------
    positions : pyarrow.Table
        ``device, ts, lat, lon`` and perhaps ``speed_mps``.

    Attributes
    ----------
    names : pyarrow.Array
        Names of the devices, in order.
    device : ndarray
        Device of each message, a place in ``names``.
    value : ndarray or None
        Speeds, NaN where they are not known; None: no speed is.
    """

    def __init__(self, positions: pa.Table) -> None:
        t_us = epoch_us(positions["ts"])
        self.names = _sorted_names(positions["device"])
        code = pc.index_in(positions["device"], value_set=self.names).to_numpy().astype(np.int32)
        order = np.lexsort((code, t_us))
        self.t_us = t_us[order]
        self.device = code[order]
        self.lat, self.lon = (positions[name].to_numpy()[order] for name in ("lat", "lon"))
        value = positions["speed_mps"].to_numpy() if "speed_mps" in positions.column_names else np.empty(0)
        self.value = value[order] if np.isfinite(value).any() else None

    def __len__(self) -> int:
        return len(self.t_us)

    def take(self, rows: NDArray[Any] | slice) -> Messages:
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

    def waits_us(self, interval_s: int) -> NDArray[np.int64]:
        """Return the time from each message to the end of its interval."""
        length_us = interval_s * US_PER_S
        return np.asarray(length_us - self.t_us % length_us)


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

    def between(self, first: int, past: int) -> Cells:
        """Return the cells of the messages from one on, in order of time, up to another."""
        kept = (self.order >= first) & (self.order < past)
        part = object.__new__(Cells)
        part.zoom, part.source = self.zoom, self.source.take(slice(first, past))
        part.order, part.messages, part._cell = (
            self.order[kept] - first,
            self.messages.take(kept),
            self._cell[kept],
        )
        number, before = np.cumsum(kept) - 1, self._before[kept]
        part._before = np.where((before >= 0) & kept[before], number[before], -1)
        return part

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
        waits_us = self.messages.waits_us(interval_s)
        waited = int(waits_us.sum())
        if threshold is not None:  # a full queue goes with its last message
            filled = np.bincount(group)
            last = np.cumsum(filled) - 1
            waited -= int((filled * waits_us[last])[filled == threshold].sum())
        if devices is None:
            devices = self.count_devices(interval_s)
        return _sums(self.messages, group, waited, int(is_first.sum()), devices)

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


def _sorted_names(devices: pa.ChunkedArray) -> pa.Array:
    """Return the distinct names of devices, in order."""
    names = pc.unique(devices).cast(pa.string())
    return names.take(pc.array_sort_indices(names))


def _runs(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where a row differs from the one before in any column; the first one does."""
    starts = np.ones(len(columns[0]), dtype=bool)
    starts[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def _sums(
    messages: Messages, group: NDArray[np.int64], wait_us: int, told_devices: int, devices: int
) -> Sums:
    """Add up aggregates that tell means; ``group`` is the aggregate of each message."""
    stated = [mean if mean is None else mean[group] for mean in _means(messages, group)]
    errors = _errors(messages, stated)
    return Sums(len(group), _counted(np.bincount(group)), wait_us, *errors, told_devices, devices)


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


def _errors(messages: Messages, stated: Sequence[Any]) -> tuple[NDArray[np.int64], int, int]:
    """Compare messages with the latitude, longitude and value of their aggregates.

    Returns distances by bins, values, and the sum of their squared differences, in millionths.
    """
    told_lat, told_lon, told_value = stated
    squares = squares_m2(messages.lat, messages.lon, told_lat, told_lon)
    distances = count_bins(distance_bins(squares))[0]
    if messages.value is None or told_value is None:
        return distances, 0, 0
    errors = messages.value - told_value
    errors = errors[np.isfinite(errors)]
    return distances, len(errors), int(np.rint(SQUARE * errors**2).astype(np.int64).sum())


def keep_last(messages: Messages, interval_s: int) -> Sums:
    """Add up what is left if each device sends its last position of an interval alone."""
    ordered, run, last = _last_of_devices(messages, interval_s)
    stated = [None if part is None else part[last][run] for part in (ordered.lat, ordered.lon, ordered.value)]
    counts = (np.array([1]), np.array([len(last)]))
    waited = int(messages.waits_us(interval_s).sum())
    return Sums(len(messages), counts, waited, *_errors(ordered, stated), len(last), len(last))


def join_last(messages: Messages, zoom: int, interval_s: int) -> Sums:
    """Add up what is left if the last positions of the devices in a cell and interval are joined."""
    ordered, run, last = _last_of_devices(messages, interval_s)
    kept, group = _last_in_cells(ordered, last, zoom, interval_s)
    stated = [mean if mean is None else mean[group][run] for mean in _means(kept, group)]
    waited = int(messages.waits_us(interval_s).sum())
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
    waits_us = messages.waits_us(interval_s)
    waited = int(waits_us.sum())
    if threshold is not None:  # a full message goes with its last position
        filled, last_us = np.bincount(group), np.full(kept, np.iinfo(np.int64).max)
        np.minimum.at(last_us, group, waits_us)
        is_full = filled == threshold
        waited -= int((filled[is_full] * last_us[is_full]).sum())
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
    waited = int(messages.waits_us(interval_s).sum())
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


Way: TypeAlias = Literal["join", "own", "different", "last", "join last"]
"""Messages that are joined.

``join``: the messages of a cell; ``own``: those of a device in a cell; ``different``: those of different
devices in a cell; ``last``: nothing, each device sends its last position; ``join last``: these, by cell.
"""


class Combination(NamedTuple):
    """Way of joining messages, with interval, level of the cells, and messages of a full queue.

    ``zoom`` is 0 for ``last``, which has no cells. A threshold of 0 sends no queue early. ``is_half``: of
    half of the devices.
    """

    way: Way
    interval_s: int
    zoom: int = 0
    threshold: int = 0
    is_half: bool = False


class Block:
    """Messages of the intervals that begin in a stretch of time.

    Parameters
    ----------
    messages : Messages
        In order of time: those of the stretch, and of the longest interval after it.
    first_us, past_us : int, optional
        Begin of the stretch, and of the next one; by default all messages belong to it.
    """

    def __init__(self, messages: Messages, first_us: int | None = None, past_us: int | None = None) -> None:
        self.messages = messages
        self._ends_us = first_us, past_us
        self._cells: dict[int, Cells] = {}

    def part(self, interval_s: int) -> Messages:
        """Return the messages of the intervals of a length that begin in the stretch."""
        first, past = self._rows(interval_s)
        return self.messages if past - first == len(self.messages) else self.messages.take(slice(first, past))

    def _rows(self, interval_s: int) -> tuple[int, int]:
        """Return first and past-the-last row of the messages that this block counts at an interval."""
        length_us = interval_s * US_PER_S
        rows = [0, len(self.messages)]
        for at, end_us in enumerate(self._ends_us):
            if end_us is not None:
                rows[at] = int(np.searchsorted(self.messages.t_us, -(-end_us // length_us) * length_us))
        return rows[0], rows[1]

    def cells(self, zoom: int, interval_s: int) -> Cells:
        """Return these messages by their cells; only those of the level asked for last are kept."""
        if zoom not in self._cells:
            self._cells = {zoom: Cells(self.messages, zoom)}
        first, past = self._rows(interval_s)
        cells = self._cells[zoom]
        return cells if past - first == len(self.messages) else cells.between(first, past)

    def filtered(self, kept: NDArray[np.bool_]) -> Block:
        """Return the block without some messages."""
        return Block(self.messages.take(kept), *self._ends_us)

    def sums(self, of: Combination) -> Sums:
        """Add up a combination."""
        threshold, every = of.threshold or None, of.interval_s
        if of.way == "last":
            return keep_last(self.part(every), every)
        if of.way == "join last":
            return join_last(self.part(every), of.zoom, every)
        cells = self.cells(of.zoom, every)
        if of.way == "own":
            return join_own(cells, every, threshold)
        return join_different(cells, every) if of.way == "different" else cells.sums(every, threshold)

    def grouped(self, of: Combination) -> tuple[Messages, NDArray[np.int64]]:
        """Return the messages in some order, and the number of what each is sent in; not of ``join last``."""
        if of.way == "last":
            messages = self.part(of.interval_s)
            return messages.by_device, last_groups(messages, of.interval_s)
        cells = self.cells(of.zoom, of.interval_s)
        return cells.messages, _grouped(cells, of)

    def sent_bins(self, of: Combination) -> tuple[Messages, NDArray[np.int64]]:
        """Return the messages in some order, and how far off each device is when its message is sent.

        These are bins of distances; see :meth:`Cells.sent_bins`.
        """
        if of.way in ("last", "join last"):
            messages = self.part(of.interval_s)
            if of.way == "last":  # a last position is the last report when it is sent
                return messages, np.zeros(len(messages), dtype=np.int64)
            return messages.by_device, last_sent_bins(messages, of.zoom, of.interval_s)
        cells = self.cells(of.zoom, of.interval_s)
        group = _grouped(cells, of)
        return cells.messages, cells.sent_bins(group, of.interval_s, of.threshold or None)


def _grouped(cells: Cells, of: Combination) -> NDArray[np.int64]:
    """Return the group of each message: those of one group leave in one aggregate."""
    if of.way == "own":
        return own_groups(cells, of.interval_s, of.threshold or None)
    if of.way == "different":
        return different_groups(cells, of.interval_s)
    return cells.groups(of.interval_s, of.threshold or None)


def local_days(t_us: NDArray[np.int64], tz: str) -> NDArray[np.int64]:
    """Return the number of each time's local day."""
    import pandas as pd

    hours, at = np.unique(t_us // (900 * US_PER_S), return_inverse=True)
    local = pd.to_datetime(hours * 900, unit="s", utc=True).tz_convert(tz).tz_localize(None)
    return np.asarray(local.to_numpy().astype("datetime64[D]").astype(np.int64)[at])
