"""The trips of a town's cars, day by day.

A day runs from 4:00 to 4:00 local time, as the travel day of the NHTS does. Every car starts it at home and
is back before it ends, so a day depends on no other day, and a trip is in exactly one of them.

A day has up to three tours from home to home, of up to two stops. On a working day the first tour goes to
work and the last one is an outing in the evening; on a free day all three are outings. A car sets out for a
stop only if it would be back in time at the slowest speed there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.sources.city import CommuterTown, Corners, Residents
from mudkit.sources.roads import STRETCHES, Ways, slowdown, speeds_mps, ways
from mudkit.sources.streams import Stream
from mudkit.units import KM_PER_DEGREE

DAY_START_S = 4 * 3600
"""Local time at which a day begins, seconds after midnight."""

SPEED_CUT = 2.5
"""Largest deviation of a trip's relative speed from 1, in units of ``speed_spread``."""

_S_PER_DAY = 86_400
_EARLIEST_S = int(4.5 * 3600)
_LATEST_OUTING_S = int(22.5 * 3600)
_BACK_S = int(27.75 * 3600)
_TOURS, _LEGS = 3, 3
_STEPS_PER_DAY = 16


class Trips(NamedTuple):
    """Trips, ordered by leg of the day and by car as it was asked for.

    ``knot_s`` and places, of shape (trips, 10), are the starts and ends of five stretches, since the
    departure and from the town's centre (``lat``, ``lon``, degrees). Between two stretches a car waits.
    """

    car: NDArray[np.int64]
    start_s: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    knot_s: NDArray[np.float64]
    east_km: NDArray[np.float64]
    north_km: NDArray[np.float64]

    @property
    def duration_s(self) -> NDArray[np.float64]:
        """Time from departure to arrival, of shape (trips,)."""
        return self.knot_s[:, -1]

    def at(
        self, trip: NDArray[np.int64], after_s: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return places from the centre (east and north, km) and speeds (m/s) in the course of trips."""
        after_s = np.clip(after_s, 0.0, self.duration_s[trip])
        piece = np.zeros(len(trip), dtype=np.int64)
        for knot in range(1, self.knot_s.shape[1] - 1):
            piece += after_s >= self.knot_s[trip, knot]
        t0, t1 = self.knot_s[trip, piece], self.knot_s[trip, piece + 1]
        lasts_s = np.where(t1 > t0, t1 - t0, 1.0)
        part = np.where(t1 > t0, (after_s - t0) / lasts_s, 0.0)
        east0, north0 = self.east_km[trip, piece], self.north_km[trip, piece]
        d_east = self.east_km[trip, piece + 1] - east0
        d_north = self.north_km[trip, piece + 1] - north0
        speed_mps = 1000.0 * (np.abs(d_east) + np.abs(d_north)) / lasts_s
        return east0 + part * d_east, north0 + part * d_north, speed_mps

    def degrees(
        self, trip: NDArray[np.int64], east_km: NDArray[np.float64], north_km: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Turn places of a town's flat map into latitudes and longitudes, of shape (n,)."""
        lat0 = self.lat[trip]
        lat = lat0 + north_km / KM_PER_DEGREE
        lon = self.lon[trip] + east_km / (KM_PER_DEGREE * np.cos(np.radians(lat0)))
        return lat, (lon + 180.0) % 360.0 - 180.0


def day_start_s(town: CommuterTown, day: int) -> int:
    """Return the time at which a day begins (4:00 local), seconds since 1970 in UTC."""
    return day * _S_PER_DAY + DAY_START_S - round(town.utc_offset_h * 3600)


def is_weekend(day: int) -> bool:
    """Return whether a day, counted from 1970-01-01 (a Thursday), is a Saturday or Sunday."""
    return (day + 3) % 7 >= 5


def trips(town: CommuterTown, seed: int, people: Residents, day: int) -> Trips:
    """Return all trips of a local date, in days since 1970-01-01, of the residents of that town and seed."""
    legs = list(_legs(town, seed, people, day))
    origin_s = day_start_s(town, day) - DAY_START_S
    car = np.concatenate([leg.row for leg in legs])
    return Trips(
        car=people.car[car],
        start_s=origin_s + np.concatenate([leg.depart_s for leg in legs]),
        lat=people.lat[car],
        lon=people.lon[car],
        knot_s=np.concatenate([leg.knot_s for leg in legs]),
        east_km=_at_knots(town, [leg.way.east for leg in legs]),
        north_km=_at_knots(town, [leg.way.north for leg in legs]),
    )


def _at_knots(town: CommuterTown, ends: list[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Turn the six ends of stretches, blocks, into the places at the ten knots, kilometres."""
    return np.asarray(town.block_km * np.repeat(np.concatenate(ends), 2, axis=1)[:, 1:-1], dtype=np.float64)


class _Leg(NamedTuple):
    """One leg of a tour for the cars that drive it; ``row`` numbers them within the residents."""

    row: NDArray[np.int64]
    depart_s: NDArray[np.int64]
    knot_s: NDArray[np.float64]
    way: Ways


def _legs(town: CommuterTown, seed: int, people: Residents, day: int) -> Iterator[_Leg]:
    """Send all cars through the tours of a day, leg by leg."""
    draw = _Draws(town, seed, people, day)
    here = people.home
    ready_s = np.full(len(people.car), float(_EARLIEST_S))
    for tour in range(_TOURS):
        out, depart_s = draw.tour(tour)
        depart_s = np.maximum(np.ceil(depart_s), ready_s)
        for leg in range(_LEGS):
            step = day * _STEPS_PER_DAY + tour * _LEGS + leg
            destination = people.home if leg == _LEGS - 1 else draw.stop(tour, leg)
            way, back = ways(town, here, destination), ways(town, destination, people.home)
            home_s = _longest_s(town, ways(town, here, people.home))
            goes = out & (way.length_blocks().sum(axis=1) > 0)
            if leg < _LEGS - 1:
                latest_s = _BACK_S - _longest_s(town, way) - town.shortest_stay_s - _longest_s(town, back) - 1
                goes &= (depart_s <= latest_s) & ((depart_s <= _LATEST_OUTING_S) | draw.to_work(tour, leg))
            if leg == 0:
                out = goes
            elif leg == 1:
                goes &= draw.second_stop(tour)
            else:
                depart_s = np.minimum(depart_s, np.floor(_BACK_S - home_s))
            knot_s = draw.knots(way, depart_s, step)
            row = np.flatnonzero(goes)
            yield _Leg(row, depart_s[row].astype(np.int64), knot_s[row], way.of(row))
            stay_s = np.maximum(draw.stay_s(tour, leg), town.shortest_stay_s)
            depart_s = np.where(goes, np.ceil(depart_s + knot_s[:, -1] + stay_s), depart_s)
            here = Corners(*(np.where(goes, new, old) for new, old in zip(destination, here, strict=True)))
        ready_s = np.where(out, depart_s, ready_s)


class _Draws:
    """Random decisions of one day."""

    def __init__(self, town: CommuterTown, seed: int, people: Residents, day: int) -> None:
        self._town, self._seed, self._people, self._day = town, seed, people, day
        self._car = people.car
        self._weekend = is_weekend(day)
        attends = self._stream("attendance").chance(self._car, day, town.attendance_share)
        self._works = people.commutes & attends & (not self._weekend)

    def _stream(self, name: str) -> Stream:
        """Return the stream of a kind of decisions."""
        return Stream(self._seed, name)

    def _step(self, tour: int, leg: int = 0) -> int:
        """Return the step of a tour and leg, different on each day."""
        return self._day * _STEPS_PER_DAY + tour * _LEGS + leg

    def tour(self, tour: int) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return which cars make a tour, and when, in seconds after local midnight."""
        town, step = self._town, self._step(tour)
        factor = town.weekend_outing_factor if self._weekend else 1.0
        free_share = town.outing_shares[tour] * factor * self._people.liveliness
        evening_share = town.workday_outing_share * self._people.liveliness
        work_share = (np.ones(len(self._car)), np.zeros(len(self._car)), evening_share)[tour]
        out = self._stream("outing").chance(self._car, step, np.where(self._works, work_share, free_share))
        workday_h = self._people.leave_home_h if tour == 0 else town.workday_outing_h
        mean_h = np.where(self._works, workday_h, town.outing_hours[tour])
        spread_h = np.where(self._works & (tour == 0), town.leave_home_jitter_h, town.outing_spread_h)
        return out, 3600.0 * self._stream("departure").normal(self._car, step, mean_h, spread_h, within=2.5)

    def to_work(self, tour: int, leg: int) -> NDArray[np.bool_]:
        """Return which cars drive to work on a leg."""
        return self._works & (tour == 0) & (leg == 0)

    def second_stop(self, tour: int) -> NDArray[np.bool_]:
        """Return which cars make a second stop on a tour."""
        town = self._town
        share = np.where(self.to_work(tour, 0), town.errand_after_work_share, town.second_stop_share)
        share = share * self._people.liveliness
        return self._stream("second stop").chance(self._car, self._step(tour), share)

    def stop(self, tour: int, leg: int) -> Corners:
        """Return the place of the tour's first or second stop: two different places of the car's own."""
        count, step = self._town.errand_places, self._step(tour)
        slot = (count * self._stream("errand").uniform(self._car, step) ** 2).astype(np.int64)
        if leg == 1:
            slot = (slot + self._stream("next errand").integers(self._car, step, 1, count)) % count
        rows, to_work = np.arange(len(self._car)), self.to_work(tour, leg)
        places = zip(self._people.work, self._people.errands, strict=True)
        return Corners(*(np.where(to_work, work, errands[rows, slot]) for work, errands in places))

    def stay_s(self, tour: int, leg: int) -> NDArray[np.float64]:
        """Return how long cars stay at the end of a leg, in seconds; 0 at home."""
        town = self._town
        if leg == _LEGS - 1:
            return np.zeros(len(self._car))
        z = self._stream("stay").normal(self._car, self._step(tour, leg), within=2.5)
        errand_h = town.errand_stay_h * np.exp(town.errand_stay_spread * z)
        return 3600.0 * np.where(self.to_work(tour, leg), town.work_h + town.work_spread_h * z, errand_h)

    def knots(self, way: Ways, depart_s: NDArray[np.float64], step: int) -> NDArray[np.float64]:
        """Return start and end of each stretch, seconds since the departure, at the speeds of its hour."""
        town = self._town
        speeds = speeds_mps(town, slowdown(town, depart_s / 3600.0, self._weekend))
        pace = self._stream("speed").normal(self._car, step, 1.0, town.speed_spread, within=SPEED_CUT)
        length_m = 1000.0 * town.block_km * way.length_blocks()
        drive_s = length_m / np.take_along_axis(speeds * pace[:, None], way.road.astype(np.int64), axis=1)
        corner = step * STRETCHES + np.arange(STRETCHES - 1)
        wait_s = self._stream("wait").uniform(self._car[:, None], corner, 0.0, 2.0 * town.turn_wait_s)
        ahead = np.cumsum(length_m[:, ::-1], axis=1)[:, ::-1]
        wait_s = np.where((length_m[:, :-1] > 0) & (ahead[:, 1:] > 0), wait_s, 0.0)
        pieces = np.zeros((len(depart_s), 2 * STRETCHES - 1))
        pieces[:, ::2], pieces[:, 1::2] = drive_s, wait_s
        return np.concatenate([np.zeros((len(depart_s), 1)), np.cumsum(pieces, axis=1)], axis=1)


def _longest_s(town: CommuterTown, way: Ways) -> NDArray[np.float64]:
    """Return an upper bound of the time that ways take, whatever the hour and the draws."""
    slowest = speeds_mps(town, np.ones(1))[0] * (1.0 - SPEED_CUT * town.speed_spread)
    driving_s = (1000.0 * town.block_km * way.length_blocks() / slowest[way.road]).sum(axis=1)
    return np.asarray(driving_s + 2.0 * town.turn_wait_s * (STRETCHES - 1))
