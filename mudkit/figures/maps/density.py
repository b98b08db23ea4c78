"""How many positions lie in each cell of Web Mercator: the ground that maps without tiles stand on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mudkit.figures.base import png
from mudkit.figures.maps.frame import Frame, from_mercator, to_mercator
from mudkit.units import EARTH_RADIUS_KM

__all__ = ["MAX_SIDE_PX", "Grid", "Picture", "counts", "grid_of", "picture", "thinned"]

MAX_SIDE_PX = 2048
"""No side of a density picture has more pixels."""

_LEVELS = 15
_FULL_AT = 0.995
_FINEST = 1e-7  # 4 m at the equator

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Square cells in Web Mercator.

    Parameters
    ----------
    x, y : float
        The upper left corner, in widths of the world.
    side : float
        The side of a cell, in widths of the world.
    columns, rows : int
        How many cells.
    """

    x: float
    y: float
    side: float
    columns: int
    rows: int

    @property
    def bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """South-west and north-east corner of the whole grid: latitude, longitude in degrees."""
        lat, lon = from_mercator(
            [self.x, self.x + self.columns * self.side], [self.y + self.rows * self.side, self.y]
        )
        return (float(lat[0]), float(lon[0])), (float(lat[1]), float(lon[1]))


@dataclass(frozen=True)
class Picture:
    """A PNG and the corners that it is stretched between (latitude, longitude in degrees)."""

    data: bytes
    south_west: tuple[float, float]
    north_east: tuple[float, float]


def grid_of(frame: Frame, cell_km: float = 0.05, max_side: int = MAX_SIDE_PX) -> Grid:
    """Return cells that cover a frame.

    Parameters
    ----------
    frame : Frame
        What is to be covered.
    cell_km : float
        Side of a cell on the ground in the middle of the frame; larger where ``max_side`` asks for it.
    max_side : int
        Most cells along a side.
    """
    (west, east), (south, north) = to_mercator([frame.south, frame.north], [frame.west, frame.east])
    width, height = float(east - west), float(south - north)
    stretch = np.cos(np.radians((frame.south + frame.north) / 2))
    wanted = cell_km / (2 * np.pi * EARTH_RADIUS_KM * max(float(stretch), 1e-3))
    side = max(wanted, width / max_side, height / max_side)
    columns, rows = (min(max(int(np.ceil(length / side)), 1), max_side) for length in (width, height))
    return Grid(float(west), float(north), side, columns, rows)


def counts(lat: Floats, lon: Floats, grid: Grid) -> NDArray[np.int64]:
    """Count the places in each cell, shape (rows, columns), the northern row first.

    Parameters
    ----------
    lat, lon : ndarray of float64
        Places within the grid, degrees, longitudes in the grid's turn.
    grid : Grid
        The cells.
    """
    x, y = to_mercator(lat, lon)
    column = np.clip(((x - grid.x) / grid.side).astype(np.int64), 0, grid.columns - 1)
    row = np.clip(((y - grid.y) / grid.side).astype(np.int64), 0, grid.rows - 1)
    flat = np.bincount(row * grid.columns + column, minlength=grid.rows * grid.columns)
    return np.asarray(flat.reshape(grid.rows, grid.columns), dtype=np.int64)


def picture(number: NDArray[np.int64], grid: Grid, colour: tuple[int, int, int] = (88, 96, 105)) -> Picture:
    """Draw counts as a veil that grows denser with their logarithm; empty cells are clear.

    Parameters
    ----------
    number : ndarray of int64, shape (rows, columns)
        As :func:`counts` gives them.
    grid : Grid
        The cells.
    colour : (red, green, blue)
        The colour of the veil.
    """
    logs = np.log1p(number)
    filled = logs[number > 0]
    full = float(np.quantile(filled, _FULL_AT)) if filled.size else 1.0
    levels = np.ceil(np.clip(logs / full, 0.0, 1.0) * _LEVELS).astype(np.uint8)
    veils = [0.0] + [0.18 + 0.5 * level / _LEVELS for level in range(1, _LEVELS + 1)]
    palette = [(*colour, round(255 * veil)) for veil in veils]
    south_west, north_east = grid.bounds
    return Picture(png.encode(levels, palette), south_west, north_east)


def thinned(
    lat: Floats, lon: Floats, weight: Floats, limit: int
) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """Join neighbouring places until at most ``limit`` are left.

    Parameters
    ----------
    lat, lon, weight : ndarray of float64
        Places in degrees and their weights, 0 or more.
    limit : int
        Most places in the result.

    Returns
    -------
    lat, lon, weight : ndarray of float64
        The mean place of each cell that holds places, and the sum of their weights.
    number : ndarray of int64
        How many places were joined; all 1 when there were few enough.
    """
    if len(lat) <= limit:
        return lat, lon, weight, np.ones(len(lat), dtype=np.int64)
    x, y = to_mercator(lat, lon)
    side = _FINEST
    while True:
        cell = np.floor(x / side).astype(np.int64) * (1 << 32) + np.floor(y / side).astype(np.int64)
        _, index, number = np.unique(cell, return_inverse=True, return_counts=True)
        if len(number) <= limit:
            break
        side *= 1.5
    lat_mean, lon_mean = (np.bincount(index, values) / number for values in (lat, lon))
    return lat_mean, lon_mean, np.bincount(index, weight).astype(np.float64), number.astype(np.int64)
