"""Places: cells of a grid, bounding boxes and distances of (lat, lon) pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from mudkit.checks import number
from mudkit.errors import ParameterError, brief
from mudkit.units import KM_PER_DEGREE, apart_km
from mudkit.wire import Value

_KM_PER_DEGREE: Final = float(KM_PER_DEGREE)


class Cell(NamedTuple):
    """Cell of a grid over the globe."""

    row: int
    """Counted from the equator northward."""
    column: int
    """Counted from the meridian of Greenwich eastward."""
    km: float
    """Height, and width at the equator side of the row."""

    @property
    def centre(self) -> tuple[float, float]:
        """Latitude and longitude of the middle, degrees to a metre."""
        west, east = self._edges
        return round((self.row + 0.5) * _height_and_width_deg(self.row, self.km)[0], 5), round(
            (west + east) / 2, 5
        )

    def is_beside(self, other: Cell) -> bool:
        """Return whether two cells are equal or touch, at a corner at least; also across the date line."""
        if self.km != other.km or abs(self.row - other.row) > 1:
            return False
        (west, east), (others_west, others_east) = self._edges, other._edges
        apart = abs(_on_circle((west + east - others_west - others_east) / 2))
        return apart <= (east - west + others_east - others_west) / 2 + 1e-9

    @property
    def _edges(self) -> tuple[float, float]:
        """Longitudes of the western and eastern edge, cut off at the date line."""
        _, width = _height_and_width_deg(self.row, self.km)
        return max(self.column * width, -180.0), min((self.column + 1) * width, 180.0)


def cell(loc: Sequence[float], *, km: float) -> Cell:
    """Return the grid cell of a place.

    Parameters
    ----------
    loc : (float, float)
        Latitude and longitude, degrees.
    km : float
        Side of the cells, in km.

    Raises
    ------
    ParameterError
        ``loc`` is no pair of numbers, or ``km`` is out of range.
    """
    number("km", km, 1e-6, 1e5)
    try:
        row = math.floor(loc[0] / (km / _KM_PER_DEGREE))
        return Cell(row, math.floor(_on_circle(loc[1]) / _height_and_width_deg(row, km)[1]), km)
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        raise _build_error("loc", loc) from error


def box(places: Iterable[Sequence[float]]) -> list[float]:
    """Return the smallest bounding box of places: south, west, north, east, degrees.

    West is greater than east where the box crosses the date line; of two equally wide boxes, the other wins.
    """
    lats, lons = zip(*places, strict=True)
    around = sorted({_on_circle(lon) for lon in lons})
    west, east = around[0], around[-1]
    width = east - west
    for before, after in pairwise(around):
        if 360 - (after - before) < width:
            west, east, width = after, before, 360 - (after - before)
    return [min(lats), west, max(lats), east]


def distance_km(origin: Sequence[float], destination: Sequence[float]) -> float:
    """Return the great-circle distance of two places in kilometres.

    Parameters
    ----------
    origin, destination : (float, float)
        Latitude and longitude, degrees.

    Raises
    ------
    ParameterError
        A place is no pair of numbers.

    Examples
    --------
    >>> round(distance_km((30.27, -97.74), (30.28, -97.74)), 2)
    1.11
    """
    try:
        return apart_km((origin[0], origin[1]), (destination[0], destination[1]))
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        raise _build_error("origin, destination", (origin, destination)) from error


def _build_error(where: str, given: Value) -> ParameterError:
    """Return the error that a value is no place."""
    return ParameterError(
        "This is no place.", where=where, found=brief(given), expected="(lat, lon), numbers in degrees"
    )


def _on_circle(lon: float) -> float:
    """Return the longitude in [-180, 180)."""
    return lon if -180 <= lon < 180 else (lon + 180) % 360 - 180


def _height_and_width_deg(row: int, km: float) -> tuple[float, float]:
    """Return height and width of the cells of a row, in degrees."""
    height = km / _KM_PER_DEGREE
    near_equator = min(abs(row), abs(row + 1)) * height
    return height, height / max(math.cos(math.radians(near_equator)), 1e-6)
