"""Places of contexts: distances and cells, for one pair at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from mudkit.units import EARTH_RADIUS_KM, KM_PER_DEGREE

__all__ = ["Cell", "cell", "distance_km"]

_KM_PER_DEGREE: Final = float(KM_PER_DEGREE)


class Cell(NamedTuple):
    """A cell of a grid over the globe.

    Parameters
    ----------
    row, column : int
        From the equator northward, and from the meridian of Greenwich eastward.
    km : float
        Height, and width at the equator side of its row.
    """

    row: int
    column: int
    km: float

    @property
    def centre(self) -> tuple[float, float]:
        """Latitude and longitude of its middle, degrees to a metre."""
        height, width = _sides(self.row, self.km)
        return round((self.row + 0.5) * height, 5), round((self.column + 0.5) * width, 5)


def cell(loc: Sequence[float], *, km: float) -> Cell:
    """Give the cell that a place is in.

    Parameters
    ----------
    loc : (float, float)
        Latitude and longitude, degrees.
    km : float
        Side of the cells.
    """
    row = math.floor(loc[0] / (km / _KM_PER_DEGREE))
    return Cell(row, math.floor(loc[1] / _sides(row, km)[1]), km)


def distance_km(here: Sequence[float], there: Sequence[float]) -> float:
    """Great-circle distance of two places in kilometres.

    Parameters
    ----------
    here, there : (float, float)
        Latitude and longitude, in this order, degrees.

    Returns
    -------
    float
        Kilometres.
    """
    phi, psi = math.radians(here[0]), math.radians(there[0])
    half_lambda = math.radians(there[1] - here[1]) / 2
    h = math.sin((psi - phi) / 2) ** 2 + math.cos(phi) * math.cos(psi) * math.sin(half_lambda) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(h, 1.0)))


def _sides(row: int, km: float) -> tuple[float, float]:
    """Give the height and the width of the cells of a row, in degrees."""
    height = km / _KM_PER_DEGREE
    near_equator = min(abs(row), abs(row + 1)) * height
    return height, height / max(math.cos(math.radians(near_equator)), 1e-6)
