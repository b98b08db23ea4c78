"""Manhattan grid: devices drive along the streets of a square and turn at its crossings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError
from mudkit.sources.courses import Leg, LegCourse, device_numbers
from mudkit.sources.streams import Stream
from mudkit.sources.waypoint import check_speeds, speed_of_the_moving

_EAST = np.array([1, 0, -1, 0])
_NORTH = np.array([0, 1, 0, -1])
"""Steps of the four headings, each a left turn from the one before: east, north, west, south."""


@check_arguments(types=False)
@dataclass(frozen=True)
class ManhattanGrid:
    """Streets in a square, as of the Manhattan model (Bai, Sadagopan and Helmy, INFOCOM 2003).

    At each crossing a device goes straight on with probability 0.5, left with 0.25 and right with 0.25; where
    that leads out of the area it turns, to the other side if need be, never round. From one turn to the next
    it keeps a speed, uniform in the range; unlike in that paper devices do not slow each other down.

    A run starts in the stationary distribution: uniform on streets and directions, slow speeds more often, so
    its mean speed does not decay (Yoon, Liu and Noble, INFOCOM 2003).

    Raises
    ------
    ParameterError
        A value is out of range, or the area is smaller than a block.
    """

    lat: Annotated[float, Range(-60.0, 60.0)] = 30.27
    """Centre of the area, degrees: Austin."""
    lon: Annotated[float, Range(-180.0, 180.0)] = -97.74
    """Centre of the area, degrees."""
    edge_km: Annotated[float, Range(0.05, 100.0)] = 5.0
    """Side of the area, which is cut to whole blocks: an inner city."""
    block_m: Annotated[float, Range(10.0, 5000.0)] = 100.0
    """Distance of streets: blocks of American cities are 80 to 200 m long."""
    speed_low_mps: Annotated[float, Range(0.1, 70.0)] = 5.0
    """Lowest speed: dense traffic."""
    speed_high_mps: Annotated[float, Range(0.1, 70.0)] = 15.0
    """Highest speed: a city's speed limit."""

    def __post_init__(self) -> None:
        check_speeds(self.speed_low_mps, self.speed_high_mps)
        if self.blocks < 1:
            raise ParameterError(
                "The area is smaller than a block.",
                where="block_m",
                found=f"{self.block_m:g}, with edge_km={self.edge_km:g}",
                expected=f"a number up to {1000.0 * self.edge_km:g}",
            )

    @property
    def blocks(self) -> int:
        """Blocks along a side; one street more crosses it."""
        return int(1000.0 * self.edge_km / self.block_m + 1e-9)

    def course(self, seed: int, devices: Sequence[str], start_us: int) -> LegCourse:
        """Return the course, see :meth:`mudkit.sources.courses.Mobility.course`; ``start_us`` is not used."""
        rule = _Streets(self, seed, device_numbers(devices))
        east_km, north_km, first = rule.beginning()
        return LegCourse(self.lat, self.lon, east_km, north_km, first, rule)


class _Streets:
    """The rule: from one turn straight to the next. Keeps the crossing and heading of each device."""

    def __init__(self, model: ManhattanGrid, seed: int, number: NDArray[np.int64]) -> None:
        self._model, self._seed, self._number = model, seed, number
        self._run = Stream(seed, "grid run")
        self._blocks = model.blocks
        self._east, self._north, self._heading = (np.zeros(len(number), dtype=np.int64) for _ in range(3))

    def onward(self, row: NDArray[np.int64], number: NDArray[np.int64]) -> Leg:
        """Draw the next turn of devices and the way to the turn after it."""
        model, device = self._model, self._number[row]
        u, v = self._run.pair(device, number)
        u = 2.0 * u
        self._heading[row] = self._turned(row, left=u >= 1.0)
        self._advance(row, _straight_blocks(u % 1.0))
        return self._leg(row, model.speed_low_mps + (model.speed_high_mps - model.speed_low_mps) * v)

    def beginning(self) -> tuple[NDArray[np.float64], NDArray[np.float64], Leg]:
        """Return places at the start, uniform on the streets, and what is left of the first legs."""
        model, device, blocks = self._model, self._number, self._blocks
        row = np.arange(len(device))
        behind, u = Stream(self._seed, "grid first part").pair(device, 0)
        stretch = Stream(self._seed, "grid first street").integers(device, 0, 0, 4 * blocks * (blocks + 1))
        self._heading, stretch = stretch % 4, stretch // 4
        street, block = stretch // blocks, stretch % blocks
        along, forward = self._heading % 2 == 0, self._heading < 2
        crossing = np.where(forward, block, block + 1)
        self._east, self._north = np.where(along, crossing, street), np.where(along, street, crossing)
        east_km, north_km = (
            self._km(place + step[self._heading] * behind)
            for place, step in ((self._east, _EAST), (self._north, _NORTH))
        )
        self._advance(row, _straight_blocks(Stream(self._seed, "grid first run").uniform(device, 0)))
        return (
            east_km,
            north_km,
            self._leg(row, speed_of_the_moving(u, model.speed_low_mps, model.speed_high_mps)),
        )

    def _turned(self, row: NDArray[np.int64], left: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return headings after a turn to the left or right, or to the other side where it leads out."""
        heading = (self._heading[row] + np.where(left, 1, 3)) % 4
        return np.where(self._room(row, heading) > 0, heading, (heading + 2) % 4)

    def _room(self, row: NDArray[np.int64], heading: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the blocks from the crossings to the edge of the area."""
        step_east, step_north = _EAST[heading], _NORTH[heading]
        place = np.where(step_east != 0, self._east[row], self._north[row])
        return np.where(step_east + step_north > 0, self._blocks - place, place)

    def _advance(self, row: NDArray[np.int64], blocks: NDArray[np.int64]) -> None:
        """Move the crossings of devices by blocks in their headings, to the edge at most."""
        heading = self._heading[row]
        blocks = np.minimum(blocks, self._room(row, heading))
        self._east[row] += blocks * _EAST[heading]
        self._north[row] += blocks * _NORTH[heading]

    def _leg(self, row: NDArray[np.int64], speed_mps: NDArray[np.float64]) -> Leg:
        """Return the legs to the present crossings of devices, without a rest."""
        rest_us = np.zeros(len(row), dtype=np.int64)
        return Leg(self._km(self._east[row]), self._km(self._north[row]), speed_mps, rest_us)

    def _km(self, place: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.float64]:
        """Turn blocks from the south-west corner into kilometres from the centre."""
        return np.asarray((place - 0.5 * self._blocks) * (self._model.block_m / 1000.0))


def _straight_blocks(u: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the blocks to the next turn: k with probability 2**-k, that of u's binary exponent 1 - k."""
    return np.asarray(1 - np.frexp(u)[1], dtype=np.int64)
