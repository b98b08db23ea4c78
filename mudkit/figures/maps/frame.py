"""What a map shows: a rectangle of the sphere in Web Mercator, across the date line where the data lie so.

Web Mercator here has the width of the world as its unit: x from 0 at 180 degrees west to 1 at 180 degrees
east, and on beyond 1 for longitudes above 180; y from 0 in the north to 1 in the south.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mudkit.units import KM_PER_DEGREE, distance_km

__all__ = ["MERCATOR_END", "Frame", "from_mercator", "to_mercator"]

MERCATOR_END = 85.0511287798066
"""The latitude at which Web Mercator is a square."""

_FAR_SHARE = 1e-3
_FAR_FACTOR = 3.0
_CLEARLY = 0.8
_LEAST_KM = 0.5
_FEW = 1_000
_ENOUGH = 200_000

Floats = NDArray[np.float64]


def to_mercator(lat: ArrayLike, lon: ArrayLike) -> tuple[Floats, Floats]:
    """Project places in degrees to Web Mercator; latitudes beyond its end are moved to it.

    Returns
    -------
    x, y : ndarray of float64
        The places, in widths of the world.
    """
    phi = np.radians(np.clip(np.asarray(lat, dtype=np.float64), -MERCATOR_END, MERCATOR_END))
    x = np.asarray(lon, dtype=np.float64) / 360.0 + 0.5
    return np.asarray(x), np.asarray(0.5 - np.arctanh(np.sin(phi)) / (2 * np.pi))


def from_mercator(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Return latitude and longitude in degrees of places in Web Mercator."""
    phi = np.arcsin(np.tanh((0.5 - np.asarray(y, dtype=np.float64)) * 2 * np.pi))
    return np.asarray(np.degrees(phi)), np.asarray((np.asarray(x, dtype=np.float64) - 0.5) * 360.0)


@dataclass(frozen=True)
class Frame:
    """A rectangle in degrees, and the meridian at which longitudes start.

    Parameters
    ----------
    south, west, north, east : float
        Degrees; ``west <= east``, both in the turn that starts at ``cut``, so that ``east`` may be above 180.
    cut : float
        Where the turn starts, degrees; no data lie there unless they go all the way around.
    """

    south: float
    west: float
    north: float
    east: float
    cut: float

    @classmethod
    def around(cls, groups: Sequence[tuple[Floats, Floats]]) -> Frame:
        """Find the frame of some groups of places (latitudes, longitudes in degrees), one place at least.

        Of a group of 1,000 places and more, the outermost thousandth on each side counts only when the frame
        does not grow to three times its size by it: gross outliers do not decide what a map shows.
        """
        cut = _best_cut(np.concatenate([lon for _, lon in groups]))
        frame = cls(0.0, 0.0, 0.0, 0.0, cut).part(groups)
        back = 360.0 * math.ceil(((frame.west + frame.east) / 2 - 180.0) / 360.0)
        # The middle is to lie in (-180, 180], where whoever adds layers of their own expects it.
        return frame if back == 0 else cls(0.0, 0.0, 0.0, 0.0, cut - back).part(groups)

    def part(self, groups: Sequence[tuple[Floats, Floats]]) -> Frame:
        """Find the frame of some places as :meth:`around` does, in the turn of this one."""
        south, north = _common_limits([lat for lat, _ in groups])
        west, east = _common_limits([self.unwrap(lon) for _, lon in groups])
        return Frame(south, west, north, east, self.cut).at_least(_LEAST_KM)

    def unwrap(self, lon: ArrayLike) -> Floats:
        """Return longitudes in the turn of this frame, degrees."""
        degrees = np.asarray(lon, dtype=np.float64)
        turns = np.where(degrees == self.cut + 360.0, 0.0, np.floor((degrees - self.cut) / 360.0))
        return np.asarray(degrees - 360.0 * turns)

    def holds(self, lat: Floats, lon: Floats) -> NDArray[np.bool_]:
        """Tell which places lie in the frame, its edges included; longitudes are unwrapped."""
        inside = (lat >= self.south) & (lat <= self.north) & (lon >= self.west) & (lon <= self.east)
        return np.asarray(inside, dtype=np.bool_)

    def core(self, lat: Floats, lon: Floats, weight: Floats, share: float = 0.01) -> Frame:
        """Return the part of this frame that holds nearly all of some weight, with a margin.

        Parameters
        ----------
        lat, lon : ndarray of float64
            Places, longitudes unwrapped.
        weight : ndarray of float64
            The weight of each place, 0 or more.
        share : float
            What is left out on each side; nothing of fewer than 1,000 places.
        """
        if len(lat) < _FEW:
            return self
        some = slice(None, None, max(len(lat) // _ENOUGH, 1))  # of millions every few: they are to be sorted
        lat, lon, weight = lat[some], lon[some], weight[some]
        south, north = _weighted_limits(lat, weight, share)
        west, east = _weighted_limits(lon, weight, share)
        margin_lat, margin_lon = (north - south) / 10, (east - west) / 10
        return Frame(
            max(south - margin_lat, self.south),
            max(west - margin_lon, self.west),
            min(north + margin_lat, self.north),
            min(east + margin_lon, self.east),
            self.cut,
        )

    @property
    def side_km(self) -> float:
        """The longer side, along the parallel of the middle or along a meridian."""
        middle = (self.south + self.north) / 2
        across = (self.east - self.west) * KM_PER_DEGREE * float(np.cos(np.radians(middle)))
        return max(across, float(distance_km(self.south, 0.0, self.north, 0.0)))

    def at_least(self, side_km: float) -> Frame:
        """Return a frame around the same middle whose sides have at least this length."""
        south, west, north, east = self.south, self.west, self.north, self.east
        half_lat = side_km / KM_PER_DEGREE / 2
        half_lon = min(half_lat / max(float(np.cos(np.radians((south + north) / 2))), 1e-3), 180.0)
        if north - south < 2 * half_lat:
            middle = (south + north) / 2
            south, north = max(middle - half_lat, -90.0), min(middle + half_lat, 90.0)
        if east - west < 2 * half_lon:
            west, east = (west + east) / 2 - half_lon, (west + east) / 2 + half_lon
        return Frame(south, west, north, east, self.cut)

    def surroundings(self, factor: float = 2.0, shape: float = 3.0) -> Frame:
        """Return a larger frame around the same middle of the map: what a reader may pan and zoom to.

        Parameters
        ----------
        factor : float
            How many times as long its sides are.
        shape : float
            The window may be up to so many times as wide as high, or as high as wide.
        """
        (west, east), (south, north) = to_mercator([self.south, self.north], [self.west, self.east])
        width, height = float(east - west), float(south - north)
        half_x = min(max(width, height * shape) * factor / 2, 0.55)
        half_y = max(height, width / shape) * factor / 2
        x, y = float(west + east) / 2, float(south + north) / 2
        lat, lon = from_mercator([x - half_x, x + half_x], [max(y - half_y, 0.0), min(y + half_y, 1.0)])
        return Frame(float(lat[1]), float(lon[0]), float(lat[0]), float(lon[1]), self.cut)


def _best_cut(lon: Floats) -> float:
    """Find where a turn should start: at the date line, unless a gap elsewhere saves a lot."""
    plain = float(lon.max() - lon.min())
    if plain <= 180.0 and lon.min() >= -180.0 and lon.max() <= 180.0:
        return -180.0
    filled = np.unique(np.floor(lon % 360.0).astype(np.int64) % 360)  # whole degrees that hold a place
    gaps = np.diff(np.append(filled, filled[0] + 360)) - 1
    widest = int(gaps.argmax())
    if 360.0 - gaps[widest] > _CLEARLY * min(plain, 360.0):
        return -180.0
    return float(filled[widest] + 1 + gaps[widest] / 2)


def _common_limits(groups: Sequence[Floats]) -> tuple[float, float]:
    lows, highs = zip(*(_limits(values) for values in groups if len(values)), strict=True)
    return min(lows), max(highs)


def _limits(values: Floats) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    far = int(len(values) * _FAR_SHARE)
    if far:
        parted = np.partition(values, [far, len(values) - 1 - far])
        inner_low, inner_high = float(parted[far]), float(parted[len(values) - 1 - far])
        if high - low > _FAR_FACTOR * (inner_high - inner_low):
            return inner_low, inner_high
    return low, high


def _weighted_limits(values: Floats, weight: Floats, share: float) -> tuple[float, float]:
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    low, high = np.searchsorted(below, [share * below[-1], (1.0 - share) * below[-1]])
    return float(values[order[low]]), float(values[order[min(high, len(order) - 1)]])
