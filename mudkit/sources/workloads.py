"""Workloads: the moments at which devices do something.

What a device does before a time depends on the seed, the stream's name and the device's name only: a longer
run begins with the same moments, and one more device changes nothing for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError
from mudkit.sources.city import CommuterTown, residents
from mudkit.sources.commute import AUSTIN, rows_of, town_day
from mudkit.sources.courses import device_numbers
from mudkit.sources.streams import Stream
from mudkit.sources.trips import trips
from mudkit.units import US_PER_S

_US_PER_DAY = 86_400 * US_PER_S
_DRAWN_TOGETHER = 64
_READS_PER_DAY = 1 << 20
_MAX_KEY = 1 << 62


class Moments(NamedTuple):
    """Moments of a run, of shape (moments,), by time and then by device (its place in the fleet)."""

    device: NDArray[np.int64]
    t_us: NDArray[np.int64]


@runtime_checkable
class Workload(Protocol):
    """Times at which devices do something."""

    def moments(self, seed: int, name: str, devices: Sequence[str], start_us: int, length_us: int) -> Moments:
        """Draw the moments of a run from ``start_us`` (since 1970 in UTC) up to, not including, its end.

        Devices have distinct names; workloads of different ``name`` are independent.
        """


@check_arguments(types=False)
@dataclass(frozen=True)
class Poisson:
    """A Poisson process on each device, as the arrivals of the paper "Last hop" (section 4).

    The gaps are exponential, in whole microseconds.

    Raises
    ------
    ParameterError
        The rate is out of range.
    """

    per_day: Annotated[float, Range(0.0, 1e7)]
    """Mean number of moments a day."""

    def moments(self, seed: int, name: str, devices: Sequence[str], start_us: int, length_us: int) -> Moments:
        """Return the moments; see :meth:`Workload.moments`."""
        number, stream = device_numbers(devices), Stream(seed, f"{name}: gap")
        row = np.arange(len(number) if self.per_day > 0 else 0)
        last_us = np.zeros(len(row), dtype=np.int64)
        drawn, first = [], 0
        while row.size:
            step = np.arange(first, first + _DRAWN_TOGETHER)
            gap_us = stream.exponential(number[row, None], step, _US_PER_DAY / self.per_day)
            gap_us = np.minimum(gap_us, length_us)  # a longer gap ends the draw, and may exceed 64 bits
            t_us = last_us[:, None] + np.cumsum(np.rint(gap_us).astype(np.int64), axis=1)
            inside = t_us < length_us
            drawn.append((np.repeat(row, np.count_nonzero(inside, axis=1)), t_us[inside]))
            row, last_us = row[inside[:, -1]], t_us[inside[:, -1], -1]
            first += _DRAWN_TOGETHER
        return _gathered(drawn, length_us)


@check_arguments(types=False)
@dataclass(frozen=True)
class WakingReads:
    """Reads of a user while awake (paper "Last hop", section 4, "User Reads").

    Each local day the number of reads is normal around ``per_day``, not under 0, rounded up or down at random
    so that its mean stays. The user wakes at ``wake_h`` and is awake for a time that is uniform between the
    two ``awake_h``, afresh each day and perhaps into the next; the reads are spread evenly at random over it.

    Raises
    ------
    ParameterError
        A value is out of range.
    """

    per_day: Annotated[float, Range(0.0, 1e4)]
    """Mean number of reads a day."""
    spread: Annotated[float, Range(0.0, 1.0)] = 0.25
    """Standard deviation of the number of reads of a day, divided by ``per_day``; the paper does not give
    one. Days under 0 count as 0; at 0.5 that raises the mean by 0.4 %, at 1 by 8 %."""
    wake_h: Annotated[float, Range(0.0, 24.0)] = 7.0
    """Local hour of waking; the paper does not give one."""
    awake_h: Annotated[tuple[float, float], Range(0.0, 24.0)] = (16.0, 17.0)
    """Shortest and longest time awake, hours."""
    utc_offset_h: Annotated[float, Range(-12.0, 14.0)] = -6.0
    """Local time minus UTC, hours: that of the default town."""

    def __post_init__(self) -> None:
        if self.awake_h[0] > self.awake_h[1]:
            raise ParameterError(
                "The range of times awake is empty.",
                where="awake_h",
                found=repr(self.awake_h),
                expected="the shortest time first",
            )

    def moments(self, seed: int, name: str, devices: Sequence[str], start_us: int, length_us: int) -> Moments:
        """Return the moments; see :meth:`Workload.moments`."""
        number = device_numbers(devices)
        reads, part, awake, read = (
            Stream(seed, f"{name}: {what}") for what in ("reads", "part", "awake", "read")
        )
        local_us = start_us + round(self.utc_offset_h * 3600 * US_PER_S)
        drawn = []
        # The day before may reach into the run.
        for day in range(local_us // _US_PER_DAY - 1, (local_us + length_us) // _US_PER_DAY + 1):
            mean = reads.normal(number, day, self.per_day, self.spread * self.per_day)
            count = np.floor(np.maximum(mean, 0.0) + part.uniform(number, day)).astype(np.int64)
            row, index = _spelled_out(count)
            step = day * _READS_PER_DAY + index
            awake_h = awake.uniform(number, day, *self.awake_h)[row]
            hour = self.wake_h + awake_h * read.uniform(number[row], step)
            t_us = day * _US_PER_DAY - local_us + (hour * (3600 * US_PER_S)).astype(np.int64)
            drawn.append((row, t_us))
        return _gathered(drawn, length_us)


@check_arguments(types=False)
@dataclass(frozen=True)
class Every:
    """Something at a regular interval, such as reports of a position; each device begins at a random phase.

    Raises
    ------
    ParameterError
        The interval is out of range.
    """

    interval_s: Annotated[float, Range(0.001, 1e9)]
    """Time from one moment to the next, seconds, to the microsecond; the first one is uniform in the first
    interval."""

    def moments(self, seed: int, name: str, devices: Sequence[str], start_us: int, length_us: int) -> Moments:
        """Return the moments; see :meth:`Workload.moments`."""
        number = device_numbers(devices)
        interval_us = round(self.interval_s * US_PER_S)
        phase = Stream(seed, f"{name}: phase").uniform(number, 0)
        phase_us = np.floor(phase * interval_us).astype(np.int64)
        row, index = _spelled_out(np.maximum(-((phase_us - length_us) // interval_us), 0))
        return _gathered([(row, phase_us[row] + index * interval_us)], length_us)


@check_arguments(types=False)
@dataclass(frozen=True)
class TripStarts:
    """Departures of the devices of :class:`~mudkit.sources.commute.Commute`, of the same town and seed.

    The name of the stream plays no part.
    """

    town: CommuterTown = AUSTIN
    """The town of the commute."""

    def moments(self, seed: int, name: str, devices: Sequence[str], start_us: int, length_us: int) -> Moments:
        """Return the moments; see :meth:`Workload.moments`."""
        number = device_numbers(devices)
        people = residents(self.town, seed, number)
        drawn = []
        for day in range(town_day(self.town, start_us), town_day(self.town, start_us + length_us) + 1):
            driven = trips(self.town, seed, people, day)
            drawn.append((rows_of(number, driven.car), driven.start_s * US_PER_S - start_us))
        return _gathered(drawn, length_us)


@check_arguments(types=False)
@dataclass(frozen=True, eq=False)
class Recorded:
    """Times of a log, such as the unlocks of one phone's screen, replayed on every device.

    The time of day is kept. Each device gets the days of the log in turn from a drawn one on, and starts the
    log again when it ends. Only whole days count, those without a moment included: not the days of the first
    and of the last moment.

    Raises
    ------
    ParameterError
        The log is empty or holds no whole day, or the times are not whole numbers of microseconds.
    """

    times_us: ArrayLike
    """The log, microseconds since 1970 in UTC, in any order."""
    utc_offset_h: Annotated[float, Range(-12.0, 14.0)] = 0.0
    """Local time minus UTC, hours, of the log and of the run: where days are cut."""

    def __post_init__(self) -> None:
        times_us = np.asarray(self.times_us)
        if times_us.ndim != 1 or (times_us.dtype.kind not in "iu" and times_us.size):
            raise self._refused("The log is not usable.", f"{times_us.dtype} of shape {times_us.shape}")
        if not times_us.size:
            raise self._refused("The log is empty.", "no moment")
        times_us = np.sort(times_us.astype(np.int64))
        object.__setattr__(self, "times_us", times_us)
        if self.days < 1:
            hours = (times_us[-1] - times_us[0]) / (3600 * US_PER_S)
            raise self._refused(
                "The log holds no whole day.", f"{times_us.size} moments in {hours:.1f} hours"
            )

    @property
    def days(self) -> int:
        """Whole days of the log."""
        local = self._local_us() // _US_PER_DAY
        return int(local[-1] - local[0]) - 1

    def moments(self, seed: int, name: str, devices: Sequence[str], start_us: int, length_us: int) -> Moments:
        """Return the moments; see :meth:`Workload.moments`."""
        number = device_numbers(devices)
        log_us = self._local_us()
        begin_us = (log_us[0] // _US_PER_DAY + 1 + np.arange(self.days + 1)) * _US_PER_DAY
        first = np.searchsorted(log_us, begin_us)
        offset = Stream(seed, f"{name}: day").integers(number, 0, 0, self.days)
        local_us = start_us + self._offset_us()
        drawn = []
        for day in range(local_us // _US_PER_DAY, (local_us + length_us) // _US_PER_DAY + 1):
            taken = (offset + day) % self.days
            row, index = _spelled_out(first[taken + 1] - first[taken])
            of_day_us = log_us[first[taken[row]] + index] - begin_us[taken[row]]
            drawn.append((row, day * _US_PER_DAY + of_day_us - local_us))
        return _gathered(drawn, length_us)

    def _offset_us(self) -> int:
        """Return the offset of local time from UTC."""
        return round(self.utc_offset_h * 3600 * US_PER_S)

    def _local_us(self) -> NDArray[np.int64]:
        """Return the times of the log in local time."""
        return np.asarray(self.times_us, dtype=np.int64) + self._offset_us()

    def _refused(self, summary: str, state: str) -> ParameterError:
        """Return the error for a log that cannot be replayed."""
        expected = "whole microseconds since 1970, with a whole day between those of the first and the last"
        return ParameterError(summary, where="times_us", found=state, expected=expected)


def _spelled_out(count: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of each row ``count[i]`` times, and 0, 1, … within each."""
    row = np.repeat(np.arange(len(count)), count)
    first = np.cumsum(count) - count
    return row, np.arange(len(row)) - first[row]


def _gathered(drawn: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]], length_us: int) -> Moments:
    """Return moments in order, without those that are not in the run."""
    parts = list(drawn)
    empty = np.zeros(0, dtype=np.int64)
    device = np.concatenate([empty, *(row for row, _ in parts)])
    t_us = np.concatenate([empty, *(t_us for _, t_us in parts)])
    inside = (t_us >= 0) & (t_us < length_us)
    device, t_us = device[inside], t_us[inside]
    devices = int(device.max(initial=0)) + 1
    if length_us <= _MAX_KEY // devices:  # one key for both sorts four times as fast
        t_us, device = np.divmod(np.sort(t_us * devices + device), devices)
        return Moments(device, t_us)
    order = np.lexsort((device, t_us))
    return Moments(device[order], t_us[order])
