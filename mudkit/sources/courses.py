"""Courses: the places of a fleet at moments of a run, as arrays, from any model of mobility.

Contains the protocols and what the models share: numbers of devices, the flat map of a small area, and
movement in straight legs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mudkit.errors import ParameterError
from mudkit.sources.streams import device_number
from mudkit.units import KM_PER_DEGREE, US_PER_S


class Places(NamedTuple):
    """Places of devices, of shape (devices,): degrees, longitudes in [-180, 180); speed NaN where unknown."""

    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    speed_mps: NDArray[np.float64]


class Course(Protocol):
    """The moves of one fleet in one run."""

    @property
    def until_us(self) -> int | None:
        """Last moment it knows, microseconds since the start of the run; None: without end."""

    def at(self, t_us: int) -> Places:
        """Return the places of the devices, in the caller's own arrays.

        Moments never decrease from call to call and end at ``until_us``; which were asked changes nothing.
        """


@runtime_checkable
class Mobility(Protocol):
    """Model of mobility of a fleet."""

    def course(self, seed: int, devices: Sequence[str], start_us: int) -> Course:
        """Begin a run at ``start_us`` (since 1970 in UTC) of devices with distinct names."""


def device_numbers(devices: Sequence[str]) -> NDArray[np.int64]:
    """Return the numbers of devices for :class:`~mudkit.sources.streams.Stream`; their names must differ."""
    if len(set(devices)) < len(devices):
        twice = Counter(devices).most_common(1)[0][0]
        raise ParameterError(
            "A device is named twice.", where="devices", found=repr(twice), expected="every name once"
        )
    return np.array([device_number(name) for name in devices], dtype=np.uint64).view(np.int64)


def check_moment(t_us: int, last_us: int, until_us: int | None = None) -> int:
    """Return a moment; ParameterError if it is before the last one, or beyond ``until_us``."""
    if t_us < last_us or (until_us is not None and t_us > until_us):
        late = t_us >= last_us
        end = "" if until_us is None else f" to {until_us / US_PER_S:g} s"
        raise ParameterError(
            "The moves are known no longer." if late else "The moves were asked for an earlier moment.",
            where="t_us",
            found=f"{t_us / US_PER_S:g} s after the start of the run",
            expected=f"from {last_us / US_PER_S:g} s{end}",
            remedy="a shorter run, or a longer trace" if late else "a new course begins at 0 again",
        )
    return int(t_us)


def normal_longitude(lon: ArrayLike) -> NDArray[np.float64]:
    """Bring longitudes (degrees) to [-180, 180), those that are there already untouched."""
    lon = np.asarray(lon, dtype=np.float64)
    return np.where((lon >= -180.0) & (lon < 180.0), lon, (lon + 180.0) % 360.0 - 180.0)


def flat_to_degrees(
    lat: ArrayLike, lon: ArrayLike, east_km: ArrayLike, north_km: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Turn places of the flat map around a centre (degrees), or each around its own, into degrees.

    Lengths are exact on the centre's parallel; at latitude 60, 50 km from the centre, the error is 1.4 %.
    """
    lats = np.asarray(lat) + np.asarray(north_km) / KM_PER_DEGREE
    lons = np.asarray(lon) + np.asarray(east_km) / (KM_PER_DEGREE * np.cos(np.radians(lat)))
    return lats, normal_longitude(lons)


class Leg(NamedTuple):
    """Straight legs of devices, of shape (n,): ends from the area's centre, speeds over 0, rests there."""

    east_km: NDArray[np.float64]
    north_km: NDArray[np.float64]
    speed_mps: NDArray[np.float64]
    pause_us: NDArray[np.int64]


class Onward(Protocol):
    """Rule that draws the next leg of devices."""

    def onward(self, row: NDArray[np.int64], number: NDArray[np.int64]) -> Leg:
        """Choose the next legs of devices ``row`` that have ``number`` legs behind them, at least one."""


class LegCourse:
    """Devices that go in straight legs on the flat map of an area.

    Ends of legs are whole microseconds, never earlier than the speed allows: moves are chains of exact times.
    """

    until_us: int | None = None

    def __init__(
        self,
        lat: float,
        lon: float,
        east_km: NDArray[np.float64],
        north_km: NDArray[np.float64],
        first: Leg,
        rule: Onward,
    ) -> None:
        count = len(east_km)
        self._lat, self._lon, self._rule = lat, lon, rule
        self._east0, self._north0 = east_km.copy(), north_km.copy()
        self._east1, self._north1 = east_km.copy(), north_km.copy()
        self._speed_mps = np.zeros(count)
        self._begin_us, self._arrive_us, self._leave_us = (np.zeros(count, dtype=np.int64) for _ in range(3))
        self._number = np.zeros(count, dtype=np.int64)
        self._last_us = 0
        self._go(np.arange(count), first)

    def at(self, t_us: int) -> Places:
        """Return the places; see :meth:`Course.at`."""
        t_us = self._last_us = check_moment(t_us, self._last_us)
        due = np.flatnonzero(self._leave_us <= t_us)
        while due.size:
            self._go(due, self._rule.onward(due, self._number[due]))
            due = due[self._leave_us[due] <= t_us]
        lasts_us = np.maximum(self._arrive_us - self._begin_us, 1)
        part = np.minimum((t_us - self._begin_us) / lasts_us, 1.0)
        east_km = self._east0 + part * (self._east1 - self._east0)
        north_km = self._north0 + part * (self._north1 - self._north0)
        lat, lon = flat_to_degrees(self._lat, self._lon, east_km, north_km)
        return Places(lat, lon, np.where(t_us < self._arrive_us, self._speed_mps, 0.0))

    def _go(self, row: NDArray[np.int64], leg: Leg) -> None:
        """Begin the given legs of devices, when they leave their present places."""
        east_km, north_km = self._east1[row], self._north1[row]
        length_km = np.sqrt((leg.east_km - east_km) ** 2 + (leg.north_km - north_km) ** 2)
        lasts_us = np.ceil(1000.0 * US_PER_S * length_km / leg.speed_mps).astype(np.int64)
        begin_us = self._leave_us[row]
        self._east0[row], self._north0[row] = east_km, north_km
        self._east1[row], self._north1[row] = leg.east_km, leg.north_km
        self._speed_mps[row] = leg.speed_mps
        self._begin_us[row] = begin_us
        self._arrive_us[row] = begin_us + lasts_us
        # A leg of no length and no rest would never let time go on.
        self._leave_us[row] = begin_us + np.maximum(lasts_us + leg.pause_us, 1)
        self._number[row] += 1
