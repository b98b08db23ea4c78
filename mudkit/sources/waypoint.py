"""Random waypoint: devices go straight to places drawn at random, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.special import exp2

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError
from mudkit.sources.courses import Leg, LegCourse, device_numbers
from mudkit.sources.streams import Stream
from mudkit.units import US_PER_S

_MEAN_WAY = 0.5214054331647207
"""Mean distance of two points of the unit square: (2 + sqrt 2 + 5 asinh 1) / 15."""


@check_arguments(types=False)
@dataclass(frozen=True)
class RandomWaypoint:
    """Random waypoint in a square (Camp, Boleng and Davies, WCMC 2(5), 2002, section 2.2).

    A device draws a place, uniform in the square, and a speed, uniform in the range, goes there straight,
    rests for ``pause_s`` and begins again. Devices are denser in the middle of the square than at its edge.

    Slow legs last longer, so in a plain run the mean speed decays, to 0 if the range begins at 0 (Yoon, Liu
    and Noble, "Random waypoint considered harmful", INFOCOM 2003). So the range begins well over 0, and
    places, speeds and rests are drawn from the stationary distribution (Navidi and Camp, IEEE TMC 3(1),
    2004).

    Raises
    ------
    ParameterError
        A value is out of range.
    """

    lat: Annotated[float, Range(-60.0, 60.0)] = 30.27
    """Centre of the square, degrees: Austin."""
    lon: Annotated[float, Range(-180.0, 180.0)] = -97.74
    """Centre of the square, degrees."""
    edge_km: Annotated[float, Range(0.1, 100.0)] = 10.0
    """Side of the square: a city without its suburbs."""
    speed_low_mps: Annotated[float, Range(0.1, 70.0)] = 5.0
    """Lowest speed: a slow car or a bicycle."""
    speed_high_mps: Annotated[float, Range(0.1, 70.0)] = 15.0
    """Highest speed: a city's speed limit."""
    pause_s: Annotated[float, Range(0.0, 86_400.0)] = 60.0
    """Rest at each place."""

    def __post_init__(self) -> None:
        check_speeds(self.speed_low_mps, self.speed_high_mps)

    def course(self, seed: int, devices: Sequence[str], start_us: int) -> LegCourse:
        """Return the course, see :meth:`mudkit.sources.courses.Mobility.course`; ``start_us`` is not used."""
        number = device_numbers(devices)
        rule = _Waypoints(self, seed, number)
        east_km, north_km, first = rule.beginning()
        return LegCourse(self.lat, self.lon, east_km, north_km, first, rule)

    def resting_share(self) -> float:
        """Return the share of time that devices rest."""
        low, high = self.speed_low_mps, self.speed_high_mps
        slowness = np.log(high / low) / (high - low) if high > low else 1.0 / low
        way_s = _MEAN_WAY * 1000.0 * self.edge_km * slowness
        return float(self.pause_s / (self.pause_s + way_s))


def check_speeds(low_mps: float, high_mps: float) -> None:
    """Raise ParameterError if a range of speeds is empty."""
    if low_mps > high_mps:
        raise ParameterError(
            "The range of speeds is empty.",
            where="speed_low_mps",
            found=f"{low_mps:g}, with speed_high_mps={high_mps:g}",
            expected=f"a number up to {high_mps:g}",
        )


def speed_of_the_moving(u: NDArray[np.float64], low_mps: float, high_mps: float) -> NDArray[np.float64]:
    """Return speeds of devices met on the way, for uniform ``u``: density 1 / speed, as slow ways last."""
    # low * (high / low) ** u, through functions whose result depends on no other element of the array.
    return np.asarray(np.clip(low_mps * exp2(u * np.log2(high_mps / low_mps)), low_mps, high_mps))


class _Waypoints:
    """The rule: legs to drawn places."""

    def __init__(self, model: RandomWaypoint, seed: int, number: NDArray[np.int64]) -> None:
        self._model, self._seed, self._number = model, seed, number
        self._place, self._speed = Stream(seed, "waypoint place"), Stream(seed, "waypoint speed")
        self._pause_us = round(model.pause_s * US_PER_S)

    def onward(self, row: NDArray[np.int64], number: NDArray[np.int64]) -> Leg:
        """Draw the next places, speeds and rests of devices."""
        model, device = self._model, self._number[row]
        east, north = self._place.pair(device, number)
        speed_mps = self._speed.uniform(device, number, model.speed_low_mps, model.speed_high_mps)
        pause_us = np.full(len(row), self._pause_us, dtype=np.int64)
        return Leg(self._km(east), self._km(north), speed_mps, pause_us)

    def beginning(self) -> tuple[NDArray[np.float64], NDArray[np.float64], Leg]:
        """Return places at the start, and what is left of the stationary first legs."""
        model, device = self._model, self._number
        behind, rest = Stream(self._seed, "waypoint first part").pair(device, 0)
        rests = Stream(self._seed, "waypoint rests").chance(device, 0, model.resting_share())
        (east0, north0), (east1, north1) = self._first_ways()
        east, north = east0 + behind * (east1 - east0), north0 + behind * (north1 - north0)
        # Who rests does so at the end of a way, which is uniform; who moves is anywhere on a way.
        east2, north2 = self._place.pair(device, 0)
        east, east1 = np.where(rests, east2, east), np.where(rests, east2, east1)
        north, north1 = np.where(rests, north2, north), np.where(rests, north2, north1)
        u = Stream(self._seed, "waypoint first speed").uniform(device, 0)
        speed_mps = speed_of_the_moving(u, model.speed_low_mps, model.speed_high_mps)
        pause_us = np.where(rests, (rest * self._pause_us).astype(np.int64), self._pause_us)
        return self._km(east), self._km(north), Leg(self._km(east1), self._km(north1), speed_mps, pause_us)

    def _km(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn places in the unit square into kilometres from the centre."""
        return (share - 0.5) * self._model.edge_km

    def _first_ways(self) -> tuple[tuple[NDArray[np.float64], ...], tuple[NDArray[np.float64], ...]]:
        """Draw the ways that devices are met on, long ones in proportion: their ends in the unit square."""
        start, end = Stream(self._seed, "waypoint first start"), Stream(self._seed, "waypoint first end")
        taken = Stream(self._seed, "waypoint first taken")
        ends = np.zeros((4, len(self._number)))
        row, attempt = np.arange(len(self._number)), 0
        while row.size:
            device = self._number[row]
            drawn = np.stack([*start.pair(device, attempt), *end.pair(device, attempt)])
            length = np.sqrt((drawn[2] - drawn[0]) ** 2 + (drawn[3] - drawn[1]) ** 2)
            ends[:, row] = drawn
            row = row[~taken.chance(device, attempt, length / np.sqrt(2.0))]
            attempt += 1
        return (ends[0], ends[1]), (ends[2], ends[3])
