"""Commuting: devices are phones of a town's drivers, at home, on the road, at work, on errands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.sources.city import CommuterTown, residents
from mudkit.sources.courses import Places, check_moment, device_numbers, flat_to_degrees
from mudkit.sources.trips import Trips, day_start_s, trips
from mudkit.units import US_PER_S

AUSTIN = CommuterTown(lat=30.27, lon=-97.74, utc_offset_h=-6.0)
"""The town of Austin, Texas, in its standard time."""

_US_PER_DAY = 86_400 * US_PER_S


@check_arguments(types=False)
@dataclass(frozen=True)
class Commute:
    """The trips of :mod:`mudkit.sources.trips`, with the rates and sources of its town.

    A device is at home before its first trip of a day (4:00 to 4:00 local time), then on the road or where
    its last trip ended. Its car has the device's number.
    """

    town: CommuterTown = AUSTIN
    """The town, its roads and habits."""

    def course(self, seed: int, devices: Sequence[str], start_us: int) -> _Commuting:
        """Return the course; see :meth:`mudkit.sources.courses.Mobility.course`."""
        return _Commuting(self.town, seed, device_numbers(devices), start_us)


def town_day(town: CommuterTown, epoch_us: int) -> int:
    """Return the local date, in days since 1970-01-01, of a moment; a day starts at 4:00 local time."""
    return (epoch_us - day_start_s(town, 0) * US_PER_S) // _US_PER_DAY


def rows_of(number: NDArray[np.int64], car: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows at which the numbers of cars stand in ``number``, where each stands once."""
    order = np.argsort(number)
    return np.asarray(order[np.searchsorted(number, car, sorter=order)])


class _Commuting:
    """One run of a commuting fleet; holds the trips of one day."""

    until_us: int | None = None
    _day: int
    _trips: Trips
    _depart_us: NDArray[np.int64]
    _row: NDArray[np.int64]
    _departed: int
    _trip: NDArray[np.int64]
    _lat: NDArray[np.float64]
    _lon: NDArray[np.float64]
    _speed_mps: NDArray[np.float64]

    def __init__(self, town: CommuterTown, seed: int, number: NDArray[np.int64], start_us: int) -> None:
        self._town, self._seed, self._number, self._start_us = town, seed, number, int(start_us)
        self._people = residents(town, seed, number)
        home = self._people.home
        self._home = flat_to_degrees(
            town.lat, town.lon, town.block_km * home.east, town.block_km * home.north
        )
        self._last_us = 0
        self._begin(town_day(town, self._start_us))

    def at(self, t_us: int) -> Places:
        """Return the places; see :meth:`mudkit.sources.courses.Course.at`."""
        t_us = self._last_us = check_moment(t_us, self._last_us)
        now_us = self._start_us + t_us
        day = town_day(self._town, now_us)
        if day != self._day:
            self._begin(day)
        # Departures are in order of time: of two by now of one device the later one is assigned last.
        departed = int(np.searchsorted(self._depart_us, now_us, side="right"))
        new = np.arange(self._departed, departed)
        self._trip[self._row[new]] = new
        self._departed = departed
        self._drive(now_us)
        return Places(self._lat.copy(), self._lon.copy(), self._speed_mps.copy())

    def _begin(self, day: int) -> None:
        """Begin a day, with all devices at home."""
        driven = trips(self._town, self._seed, self._people, day)
        order = np.argsort(driven.start_s, kind="stable")
        self._day = day
        self._trips = driven._replace(**{name: column[order] for name, column in driven._asdict().items()})
        self._depart_us = self._trips.start_s * US_PER_S
        self._row = rows_of(self._number, self._trips.car)
        self._departed = 0
        self._trip = np.full(len(self._number), -1, dtype=np.int64)
        self._lat, self._lon = (axis.copy() for axis in self._home)
        self._speed_mps = np.zeros(len(self._number))

    def _drive(self, now_us: int) -> None:
        """Move the devices that are on the road; those that have arrived stay there."""
        row = np.flatnonzero(self._trip >= 0)
        trip = self._trip[row]
        after_s = (now_us - self._depart_us[trip]) / US_PER_S
        east_km, north_km, speed_mps = self._trips.at(trip, after_s)
        arrived = after_s >= self._trips.duration_s[trip]
        self._lat[row], self._lon[row] = self._trips.degrees(trip, east_km, north_km)
        self._speed_mps[row] = np.where(arrived, 0.0, speed_mps)
        self._trip[row[arrived]] = -1
