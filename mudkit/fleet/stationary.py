"""Where a device is that stays where it was put."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import ParameterError, brief
from mudkit.sources.courses import Places

__all__ = ["Stationary", "place"]


class Stationary:
    """The course of a device that stays where it is; it reports its place like one that moves."""

    until_us: int | None = None

    def __init__(self, lat: float, lon: float) -> None:
        self._speed_mps: NDArray[np.float64] = np.zeros(1)
        self.move(lat, lon)

    def at(self, t_us: int) -> Places:
        """See :class:`mudkit.sources.courses.Course`."""
        return Places(self._lat, self._lon, self._speed_mps)

    def move(self, lat: float, lon: float) -> None:
        """Put it elsewhere."""
        self._lat, self._lon = np.array([lat]), np.array([lon])


def place(where: str, given: Any) -> tuple[float, float]:
    """Read a latitude and a longitude, degrees.

    Raises
    ------
    ParameterError
        This is no place; ``where`` is what it was given as.
    """
    try:
        lat, lon = (float(each) for each in given)
        is_place = -90 <= lat <= 90 and -180 <= lon <= 180
    except (TypeError, ValueError, OverflowError):
        is_place = False
    if not is_place:
        raise ParameterError(
            "This is no place.", where=where, found=brief(given), expected="(lat, lon) in degrees"
        )
    return lat, lon
