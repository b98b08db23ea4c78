"""Places and distances on the sphere, and the zones of the Earth, the same functions everywhere.

Units stand in names: ``_us`` microseconds, ``_s`` seconds, ``_km`` kilometres, ``_mps`` metres a second.
Latitudes and longitudes are degrees.
"""

from __future__ import annotations

import zoneinfo
from functools import lru_cache
from math import asin, cos, radians, sin, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

EARTH_RADIUS_KM = 6371.0088
"""Mean radius of the Earth (IUGG), used as the radius of the sphere."""

KM_PER_DEGREE = EARTH_RADIUS_KM * np.pi / 180.0
"""Length of one degree along a meridian of that sphere."""

MERCATOR_END = 85.0511287798066
"""Latitude of the edges of Web Mercator's square map."""

US_PER_S = 1_000_000
_US_PER_DAY = 86_400 * US_PER_S
_THURSDAY = 3  # 1 January 1970


class Box(NamedTuple):
    """Edges of boxes in degrees; ``west > east`` means that the box crosses the date line.

    Longitudes are in [-180, 180); only the east edge of a box that goes all the way around is 180.
    """

    south: NDArray[np.float64]
    west: NDArray[np.float64]
    north: NDArray[np.float64]
    east: NDArray[np.float64]


def distance_km(lat1: ArrayLike, lon1: ArrayLike, lat2: ArrayLike, lon2: ArrayLike) -> NDArray[np.float64]:
    """Return the great-circle distance (haversine) of degrees; shapes broadcast, NaN in gives NaN out."""
    phi1, phi2 = np.radians(lat1), np.radians(lat2)
    d_phi = phi2 - phi1
    d_lambda = np.radians(lon2) - np.radians(lon1)
    h = np.sin(d_phi / 2) ** 2 + np.cos(phi1) * np.cos(phi2) * np.sin(d_lambda / 2) ** 2
    return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(h, 0.0, 1.0))))


def apart_km(origin: tuple[float, float], destination: tuple[float, float]) -> float:
    """Return the great-circle distance of two places in degrees; for many use :func:`distance_km`."""
    phi, psi = radians(origin[0]), radians(destination[0])
    h = sin((psi - phi) / 2) ** 2 + cos(phi) * cos(psi) * sin(radians(destination[1] - origin[1]) / 2) ** 2
    return float(2 * EARTH_RADIUS_KM * asin(sqrt(min(h, 1.0))))


def box_bounds(lat: ArrayLike, lon: ArrayLike, box_km: ArrayLike) -> Box:
    """Return the edges of squares of side ``box_km`` around points (Mobius 7.3: 20 km by 20 km).

    The half side is measured along the meridian and along the parallel of the centre. A box that reaches
    a pole, as one that goes around its parallel does, spans all longitudes.
    """
    lat, lon, box_km = np.broadcast_arrays(
        np.asarray(lat, dtype=np.float64), np.asarray(lon, dtype=np.float64), np.asarray(box_km, np.float64)
    )
    half_lat = box_km / 2 / KM_PER_DEGREE
    south, north = lat - half_lat, lat + half_lat
    with np.errstate(divide="ignore"):
        half_lon = np.asarray(half_lat / np.cos(np.radians(lat)))
    around = (south <= -90) | (north >= 90)
    west, east = _on_circle(lon - half_lon), _on_circle(lon + half_lon)
    return Box(
        np.maximum(south, -90.0),
        np.where(around, -180.0, west),
        np.minimum(north, 90.0),
        np.where(around, 180.0, east),
    )


def covered_share(
    lat: ArrayLike, lon: ArrayLike, box_km: ArrayLike, lat2: ArrayLike, lon2: ArrayLike, box2_km: ArrayLike
) -> NDArray[np.float64]:
    """Return the share of the squares of side ``box_km`` around points that other squares cover.

    Squares are plane: at 60 degrees of latitude the share is right to a hundredth up to 100 km.
    """
    lat, box_km, box2_km = np.asarray(lat), np.asarray(box_km), np.asarray(box2_km)
    north_km = np.abs(np.asarray(lat2) - lat) * KM_PER_DEGREE
    east_deg = np.abs((np.asarray(lon2) - np.asarray(lon) + 180.0) % 360.0 - 180.0)
    sides = [
        np.clip((box_km + box2_km) / 2 - apart_, 0.0, np.minimum(box_km, box2_km))
        for apart_ in (north_km, east_deg * np.cos(np.radians(lat)) * KM_PER_DEGREE)
    ]
    return np.asarray(sides[0] * sides[1] / np.maximum(box_km, 1e-9) ** 2)


def in_box(lat: ArrayLike, lon: ArrayLike, box: Box) -> NDArray[np.bool_]:
    """Return which points lie in a box, edges included; 180 and -180 degrees of longitude are one line."""
    lat, lon = np.asarray(lat), np.asarray(lon)
    lon = np.where(lon == 180.0, -180.0, lon)
    east_of, west_of = lon >= box.west, lon <= box.east
    between = np.where(box.west <= box.east, east_of & west_of, east_of | west_of)
    return np.asarray((lat >= box.south) & (lat <= box.north) & between, dtype=np.bool_)


def to_mercator(lat: ArrayLike, lon: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x and y in Web Mercator of places in degrees; latitudes beyond its end are moved to it."""
    phi = np.radians(np.clip(np.asarray(lat, dtype=np.float64), -MERCATOR_END, MERCATOR_END))
    x = np.asarray(lon, dtype=np.float64) / 360.0 + 0.5
    return np.asarray(x), np.asarray(0.5 - np.arctanh(np.sin(phi)) / (2 * np.pi))


def from_mercator(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return latitude and longitude in degrees of places in Web Mercator."""
    phi = np.arcsin(np.tanh((0.5 - np.asarray(y, dtype=np.float64)) * 2 * np.pi))
    return np.asarray(np.degrees(phi)), np.asarray((np.asarray(x, dtype=np.float64) - 0.5) * 360.0)


def unwrap(lon: ArrayLike, cut: float) -> NDArray[np.float64]:
    """Return longitudes in the turn that starts at ``cut`` and ends with it, degrees."""
    degrees = np.asarray(lon, dtype=np.float64)
    turns = np.where(degrees == cut + 360.0, 0.0, np.floor((degrees - cut) / 360.0))
    unwrapped = degrees - 360.0 * turns
    return np.where(unwrapped < cut, unwrapped + 360.0, unwrapped)  # the quotient may be rounded up


def solar_time(t_us: ArrayLike, lon: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return hour (0 to 24) and weekday (Monday: 0) in mean solar time: UTC plus an hour per 15 degrees."""
    local_us = _solar_us(t_us, lon)
    return (
        np.asarray(local_us % _US_PER_DAY / (3600.0 * US_PER_S)),
        np.asarray((local_us // _US_PER_DAY + _THURSDAY) % 7),
    )


def solar_day(t_us: ArrayLike, lon: ArrayLike) -> NDArray[np.int64]:
    """Return the days since 1970 in mean solar time."""
    return np.asarray(_solar_us(t_us, lon) // _US_PER_DAY)


def _solar_us(t_us: ArrayLike, lon: ArrayLike) -> NDArray[np.int64]:
    """Return times, in µs since 1970, in mean solar time at these longitudes."""
    ahead_us = np.rint(np.asarray(lon) / 360.0 * _US_PER_DAY).astype(np.int64)
    return np.asarray(np.asarray(t_us, dtype=np.int64) + ahead_us)


def middle(lat: ArrayLike, lon: ArrayLike) -> tuple[float, float]:
    """Return the median latitude and longitude of places but NaN, also across the date line."""
    places = np.array([lat, lon], dtype=np.float64)
    lats, lons = places[:, ~np.isnan(places).any(axis=0)]
    if not len(lons):
        return np.nan, np.nan
    if np.ptp(lons) > 180.0:
        lons = np.where(lons < 0.0, lons + 360.0, lons)
    return float(np.median(lats)), float(_on_circle(np.median(lons)))


def _on_circle(lon: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """Bring longitudes in [-360, 360) to [-180, 180), those that are there already untouched."""
    return np.where(lon < -180.0, lon + 360.0, np.where(lon >= 180.0, lon - 360.0, lon))


@lru_cache(maxsize=256)
def zone(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the time zone of a name; None if there is none of this name."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        return None
