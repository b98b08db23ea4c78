"""Ways through a town's grid of streets, arterials and expressways, and how long they take.

A way is a staircase of at most five straight stretches, as drivers choose it: a street to the next arterial,
that to the fastest road that is not too far out of the way, along it for the longer side of the trip, and
the same down again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.sources.city import CommuterTown, Corners

STREET, ARTERIAL, EXPRESSWAY = 0, 1, 2
STRETCHES = 5


class Ways(NamedTuple):
    """Ways from corner to corner: ends of stretches, blocks, and kinds of road.

    Ends have shape (ways, STRETCHES + 1), roads (ways, STRETCHES).
    """

    east: NDArray[np.int64]
    north: NDArray[np.int64]
    road: NDArray[np.int8]

    def of(self, rows: NDArray[np.int64]) -> Ways:
        """Return the chosen ways."""
        return Ways(self.east[rows], self.north[rows], self.road[rows])

    def length_blocks(self) -> NDArray[np.int64]:
        """Return the lengths of the stretches, blocks, of shape (ways, STRETCHES); 0 where there is none."""
        return np.abs(np.diff(self.east, axis=1)) + np.abs(np.diff(self.north, axis=1))


def ways(town: CommuterTown, start: Corners, end: Corners) -> Ways:
    """Find the ways between corners of shape (ways,)."""
    arterial = town.blocks_per_arterial
    expressway = arterial * town.arterials_per_expressway
    eastward = np.abs(end.east - start.east) >= np.abs(end.north - start.north)
    # u runs along the longer side of the trip, v along the shorter one.
    ua, va = np.where(eastward, start.east, start.north), np.where(eastward, start.north, start.east)
    ub, vb = np.where(eastward, end.east, end.north), np.where(eastward, end.north, end.east)
    span = np.abs(ub - ua)
    main = va
    for spacing in (arterial, expressway):
        line = _nearest_line(va + vb, spacing)
        detour = 2 * (np.maximum(np.minimum(va, vb) - line, 0) + np.maximum(line - np.maximum(va, vb), 0))
        main = np.where((span >= spacing) & (detour <= town.detour_share * span), line, main)
    u1, u2 = _first_line(ua, ub, arterial), _first_line(ub, ua, arterial)
    u = np.stack([ua, u1, u1, u2, u2, ub], axis=1)
    v = np.stack([va, va, main, main, vb, vb], axis=1)
    lines = np.stack([va, u1, main, u2, vb], axis=1)
    road = np.where(lines % expressway == 0, EXPRESSWAY, np.where(lines % arterial == 0, ARTERIAL, STREET))
    across = eastward[:, None]
    return Ways(np.where(across, u, v), np.where(across, v, u), road.astype(np.int8))


def slowdown(town: CommuterTown, hour: NDArray[np.float64], weekend: bool) -> NDArray[np.float64]:
    """Return the congestion at local hours, from 0 (none) to 1 (a working day's peak); 24 is 0 again."""

    def peak(at_h: float, width_h: float) -> NDArray[np.float64]:
        distance_h = (hour - at_h + 12.0) % 24.0 - 12.0
        return np.asarray(np.exp(-0.5 * (distance_h / width_h) ** 2))

    if weekend:
        return town.weekend_slowdown * peak(town.weekend_peak_h, town.weekend_peak_width_h)
    morning, evening = (peak(at_h, town.peak_width_h) for at_h in (town.morning_peak_h, town.evening_peak_h))
    return np.maximum(morning, evening)


def speeds_mps(town: CommuterTown, congestion: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the speeds on the kinds of road, of shape (n, 3), for the congestion of :func:`slowdown`."""
    free = np.array([town.street_mps, town.arterial_mps, town.expressway_mps])
    loss = np.array([town.street_slowdown, town.arterial_slowdown, town.expressway_slowdown])
    return np.asarray(free * (1.0 - loss * congestion[:, None]))


def _nearest_line(twice: NDArray[np.int64], spacing: int) -> NDArray[np.int64]:
    """Return the line of that spacing nearest to the half of a number."""
    return np.asarray(spacing * ((twice + spacing) // (2 * spacing)))


def _first_line(start: NDArray[np.int64], end: NDArray[np.int64], spacing: int) -> NDArray[np.int64]:
    """Return the first line of that spacing on the way from ``start`` to ``end``, else ``start``."""
    up = spacing * -(-start // spacing)
    down = spacing * (start // spacing)
    line = np.where(end >= start, up, down)
    return np.asarray(np.where(np.abs(line - start) <= np.abs(end - start), line, start))
