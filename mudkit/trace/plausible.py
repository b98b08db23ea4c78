"""Selection of plausible rows: a receiver's errors are distinguished from stays elsewhere and flights.

A device is at one place at a time. Its rows are judged in the order of their times, not of arrival. For each
device the set of rows with the highest total value is kept, where

==================  =======================================================================================
a row               is worth 4
a step              from one kept row to the next is free if it is not faster than 70 m/s, or if the step
                    before or after it has about the same velocity (up to 340 m/s: a train, an airliner)
a silent step       costs 3: at least ten minutes without a row, and up to 340 m/s (a flight)
any other step      costs 12
==================  =======================================================================================

A single wrong fix, which costs two steps, is therefore rejected, as are a few consecutive ones; a stay
elsewhere is worth its two steps and is kept. After a flight one row suffices if it is the last, and two if
the device returns.

What a receiver reports without a fix is no place, however often (:func:`has_no_fix`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.trace.recordings import stable_order
from mudkit.units import EARTH_RADIUS_KM, KM_PER_DEGREE, US_PER_S, distance_km

MAX_SPEED_MPS = 70.0
MAX_FLIGHT_MPS = 340.0
"""An airliner with a jet stream behind it, over ground."""

FLIGHT_S = 600.0
"""Minimum time without a row for a flight."""

ROW_WORTH, FLIGHT_COST, ERROR_COST = 4, 3, 12
LOOK_BACK_ROWS = 512
"""Number of earlier rows searched for a cheap step; steps from rows before cost as an error."""

KEPT, DUPLICATE, BESIDE, TOO_FAST, NO_FIX, ELSEWHERE = range(6)
_MAX_POWER = 4
_ZERO_DEGREES = 1e-6
_NEAR_DEGREES = 1.0
_PART_ROWS = 1 << 15

Velocity: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


class Judgement(NamedTuple):
    """Result of :func:`judge`.

    Attributes
    ----------
    kept : ndarray of int64
        Indices of the kept rows, ordered by device and time.
    verdict : ndarray of int8, shape (rows,)
        For each row KEPT or why not: DUPLICATE (a kept row of the device has that time and place), BESIDE
        (it has that time, up to 1 km away), TOO_FAST, or ``ELSEWHERE + n``: a kept row has that time, over
        10^n km away, up to n = 4.
    """

    kept: NDArray[np.int64]
    verdict: NDArray[np.int8]


def judge(
    device: NDArray[np.integer],
    t_us: NDArray[np.int64],
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    others: Sequence[NDArray[np.float64]] = (),
) -> Judgement:
    """Decide which rows to keep, device by device; the order of rows does not matter.

    Places are in degrees, in range and finite. Of rows with equal device, time and place the one with the
    lowest values in ``others`` is kept.
    """
    order = _in_order(device, t_us, lat, lon, others)
    if order is not None:
        device, t_us, lat, lon = device[order], t_us[order], lat[order], lon[order]
    is_same = np.diff(device) == 0
    is_twin = is_same & (np.diff(t_us) == 0)
    is_again = is_twin & (np.diff(lat) == 0) & (np.diff(lon) == 0)
    once = np.flatnonzero(np.append(True, ~is_again)[: len(device)])
    if is_again.any():
        chosen = _best_rows(once, device[once], t_us[once], lat[once], lon[once])
    else:
        chosen = _best_rows(once, device, t_us, lat, lon)
    if len(chosen) == len(device):
        return Judgement(
            chosen if order is None else order[chosen], np.full(len(device), KEPT, dtype=np.int8)
        )
    moment = np.append(0, np.cumsum(~is_twin))[: len(device)]  # the same number for one device and time
    has_kept = np.zeros(len(device), dtype=np.bool_)
    has_kept[moment[chosen]] = True
    verdict = np.where(has_kept[moment], DUPLICATE, TOO_FAST).astype(np.int8)
    verdict[chosen] = KEPT
    again = np.flatnonzero(verdict == DUPLICATE)
    of_moment = np.zeros(len(device), dtype=np.int64)
    of_moment[moment[chosen]] = chosen
    beside = of_moment[moment[again]]
    apart_km = distance_km(lat[again], lon[again], lat[beside], lon[beside])
    verdict[again[apart_km > 0.0]] = BESIDE
    is_far = apart_km > 1.0
    power = np.minimum(np.log10(apart_km[is_far]).astype(np.int8), _MAX_POWER)
    verdict[again[is_far]] = ELSEWHERE + power
    if order is None:
        return Judgement(chosen, verdict)
    of_rows = np.empty_like(verdict)
    of_rows[order] = verdict
    return Judgement(order[chosen], of_rows)


def reason_of(verdict: int) -> str:
    """Return in words why a row with this verdict is rejected."""
    if verdict >= ELSEWHERE:
        return f"same moment, over {10 ** int(verdict - ELSEWHERE):,} km apart"
    reasons = {DUPLICATE: "duplicate", BESIDE: "same moment, up to 1 km apart"}
    reasons |= {TOO_FAST: "speed over 70 m/s", NO_FIX: "no fix: a constant place"}
    return reasons[verdict]


def has_no_fix(
    device: NDArray[np.integer], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return which rows report the constant of a receiver without a fix instead of a place.

    It has whole degrees of latitude and longitude, and no other place of the device is near (about 100 km).
    Latitude 0, longitude 0 is one always, another (-1, -1; 90, 180) if the device has other places.
    """
    is_whole = np.abs(lat - np.rint(lat)) < _ZERO_DEGREES
    is_whole[is_whole] = np.abs(lon[is_whole] - np.rint(lon[is_whole])) < _ZERO_DEGREES
    if not is_whole.any():
        return is_whole
    whole, others = np.flatnonzero(is_whole), np.flatnonzero(~is_whole)
    is_lost = np.zeros(len(device), dtype=np.bool_)
    places, of = np.unique(np.rint([lat[whole], lon[whole]]), axis=1, return_inverse=True)
    for number, (y, x) in enumerate(places.T.tolist()):
        rows = whole[of == number]
        east = np.abs((lon[others] - x + 180.0) % 360.0 - 180.0) * np.cos(np.radians(y))
        is_near = (np.abs(lat[others] - y) <= _NEAR_DEGREES) & (east <= _NEAR_DEGREES)
        is_lost[rows] = ~np.isin(device[rows], device[others[is_near]])
        if (y, x) != (0.0, 0.0):
            is_lost[rows] &= np.isin(device[rows], device[others])
    return is_lost


def _in_order(
    device: NDArray[np.integer],
    t_us: NDArray[np.int64],
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    others: Sequence[NDArray[np.float64]],
) -> NDArray[np.int64] | None:
    """Return the rows ordered by device, time and all other columns; None: they are, as in most files."""
    if _is_ordered(device, t_us):
        return None
    by_device = stable_order(device)
    if _is_ordered(device[by_device], t_us[by_device]):
        return by_device
    return np.lexsort((*reversed(others), lon, lat, t_us, device)).astype(np.int64)


def _is_ordered(device: NDArray[np.integer], t_us: NDArray[np.int64]) -> bool:
    """Return whether rows are ordered by device and time, and no two of them have both in common."""
    step = np.diff(device)
    return bool(((step > 0) | ((step == 0) & (np.diff(t_us) > 0))).all())


def _best_rows(
    rows: NDArray[np.int64],
    device: NDArray[np.integer],
    t_us: NDArray[np.int64],
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return the rows of the best chain of each device.

    Most devices have slow steps alone, which are judged for all of them at once: a device's own arrays are
    small, and there are many.
    """
    is_slow = _are_slow_steps(t_us, lat, lon)
    is_end = np.append(np.diff(device) != 0, True)[: len(rows)]
    edges = np.flatnonzero(is_end) + 1
    has_fast = np.unique(np.searchsorted(edges, np.flatnonzero(~(is_slow | is_end[:-1])), side="right"))
    if not len(has_fast):
        return rows
    kept = np.ones(len(rows), dtype=np.bool_)
    for number in has_fast.tolist():
        of = slice(int(edges[number - 1]) if number else 0, int(edges[number]))
        chain = _best_chain(t_us[of], lat[of], lon[of])
        kept[of] = False
        kept[of.start + chain] = True
    return rows[kept]


def _are_slow_steps(
    t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return whether the step from each row to the next one is slow, by parts that fit a processor's cache.

    A way is no longer than along the meridian, and then along the equator: if that is clearly slow, the great
    circle is not needed.
    """
    is_slow = np.zeros(max(len(t_us) - 1, 0), dtype=np.bool_)
    for first in range(0, len(is_slow), _PART_ROWS):
        of = slice(first, first + _PART_ROWS)
        ends = slice(first, first + _PART_ROWS + 1)
        around_km = KM_PER_DEGREE * (np.abs(np.diff(lat[ends])) + np.abs(np.diff(lon[ends])))
        dt_us = np.diff(t_us[ends])
        is_slow[of] = (dt_us > 0) & (around_km <= 0.99 * MAX_SPEED_MPS / 1000 * dt_us / US_PER_S)
    unclear = np.flatnonzero(~is_slow)
    is_slow[unclear] = _is_slow(t_us, lat, lon, unclear, unclear + 1)
    return is_slow


def _is_slow(
    t_us: NDArray[np.int64],
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    earlier: slice | NDArray[np.int64],
    later: slice | NDArray[np.int64] | int,
) -> NDArray[np.bool_]:
    """Return which steps from earlier to later rows take time, and are not faster than 70 m/s."""
    dt_us = t_us[later] - t_us[earlier]
    way_km = distance_km(lat[earlier], lon[earlier], lat[later], lon[later])
    return np.asarray((dt_us > 0) & (way_km <= MAX_SPEED_MPS / 1000 * dt_us / US_PER_S))


class _Steps:
    """Rows of a device in order of time, and the costs of steps between them."""

    def __init__(self, t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]) -> None:
        self.t_us, self.lat, self.lon = t_us, lat, lon
        self._phi, self._lambda = np.radians(lat), np.radians(lon)
        n = len(t_us)
        self._north, self._east = np.full(n + 1, np.inf), np.full(n + 1, np.inf)
        self.follows = _is_slow(t_us, lat, lon, slice(0, n - 1), slice(1, n))
        if not self.follows.all():
            # The velocity of the step that ends in row i is in i, of the one that starts there in i + 1.
            self._north[1:n], self._east[1:n], _ = self._velocity(slice(0, n - 1), slice(1, n))
            fast = np.flatnonzero(~self.follows)
            self.follows[fast] = self._keeps_velocity(fast, fast + 1, self._velocity(fast, fast + 1))

    def best(self, first: int, row: int, worth: NDArray[np.int64]) -> tuple[int, int]:
        """Return the value that the best step from rows ``[first, row)`` to ``row`` keeps, and its row.

        ``worth`` is the value of these rows. If a slow step leads from the best of them, expensive steps are
        not examined further. The value is 0 or less if no step is worth it.
        """
        is_before = self.t_us[first:row] < self.t_us[row]
        if not is_before.any():
            return 0, first
        # Any step costs at most ERROR_COST, so that no row of less value can be the best.
        least = worth[is_before].max() - ERROR_COST
        near = np.flatnonzero(is_before & (worth >= least))
        earlier, value = first + near, worth[near]
        slow = _is_slow(self.t_us, self.lat, self.lon, earlier, row)
        cost = np.where(slow, 0, ERROR_COST)
        if not slow.any() or value[slow].max() < worth.max():
            fast = np.flatnonzero(~slow)
            velocity = self._velocity(earlier[fast], row)
            dt_us = self.t_us[row] - self.t_us[earlier[fast]]
            flight = (dt_us >= FLIGHT_S * US_PER_S) & (velocity[2] <= MAX_FLIGHT_MPS)
            cost[fast[flight]] = FLIGHT_COST
            cost[fast[self._keeps_velocity(earlier[fast], row, velocity)]] = 0
        left = value - cost
        place = int(np.argmax(left))
        return int(left[place]), int(earlier[place])

    def _velocity(
        self, earlier: slice | NDArray[np.int64], later: slice | NDArray[np.int64] | int
    ) -> Velocity:
        """Return velocity to the north and to the east in m/s, and speed; infinite where no time passes."""
        dt_s = (self.t_us[later] - self.t_us[earlier]) / US_PER_S
        phi, phi_before = self._phi[later], self._phi[earlier]
        turn = (self._lambda[later] - self._lambda[earlier] + np.pi) % (2 * np.pi) - np.pi
        north_m = (phi - phi_before) * EARTH_RADIUS_KM * 1000
        east_m = turn * np.cos((phi + phi_before) / 2) * EARTH_RADIUS_KM * 1000
        with np.errstate(divide="ignore", invalid="ignore"):
            north, east = (np.where(dt_s > 0, metres / dt_s, np.inf) for metres in (north_m, east_m))
        return north, east, np.hypot(north, east)

    def _keeps_velocity(
        self, earlier: NDArray[np.int64], later: NDArray[np.int64] | int, velocity: Velocity
    ) -> NDArray[np.bool_]:
        """Return whether the step into ``earlier`` or out of ``later`` has the velocity of that between."""
        north, east, speed = velocity
        like = np.zeros(len(speed), dtype=np.bool_)
        with np.errstate(invalid="ignore"):
            for at in (earlier, np.asarray(later) + 1):
                apart = np.hypot(self._north[at] - north, self._east[at] - east)
                like |= apart <= speed / 2
        return np.asarray(like & (speed <= MAX_FLIGHT_MPS))


def _best_chain(
    t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the rows with the highest total value; of equal sets the first.

    Where each row follows the best chain so far, a whole stretch is taken at once; only around a
    contradiction earlier rows are searched, one at a time.
    """
    n = len(t_us)
    steps = _Steps(t_us, lat, lon)
    follows = steps.follows
    if follows.all():
        return np.arange(n)
    breaks = np.append(np.flatnonzero(~follows) + 1, n)
    worth = np.full(n, ROW_WORTH, dtype=np.int64)  # of the best that ends in each row
    before = np.full(n, -1, dtype=np.int64)
    best = np.full(n, -1, dtype=np.int64)  # the best row up to each
    i = 0
    while i < n:
        if i and follows[i - 1] and best[i - 1] == i - 1:
            end = int(breaks[np.searchsorted(breaks, i, side="right")])
            worth[i:end] = worth[i - 1] + ROW_WORTH * np.arange(1, end - i + 1)
            before[i:end] = np.arange(i - 1, end - 1)
            best[i:end] = np.arange(i, end)
            i = end
            continue
        first = max(0, i - LOOK_BACK_ROWS)
        if i:
            gain, row = steps.best(first, i, worth[first:i])
            if first and t_us[first - 1] < t_us[i]:
                far = int(best[first - 1])
                if worth[far] - ERROR_COST > gain:
                    gain, row = int(worth[far]) - ERROR_COST, far
            if gain > 0:
                worth[i], before[i] = gain + ROW_WORTH, row
        best[i] = i if not i or worth[i] > worth[best[i - 1]] else best[i - 1]
        i += 1
    chain = []
    row = int(best[-1])
    while row >= 0:
        chain.append(row)
        row = int(before[row])
    return np.array(chain[::-1], dtype=np.int64)
