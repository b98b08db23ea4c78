"""Functions of the language over columns: those that NumPy does as a whole, and a way for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.predicates import meaning
from mudkit.predicates.vector import Floats, Masks, Vector, points
from mudkit.units import KM_PER_DEGREE, distance_km

__all__ = ["WHOLE", "each"]


def each(function: Callable[..., Any], args: list[Vector]) -> Vector:
    """Apply a function row by row, where no argument is NULL.

    Parameters
    ----------
    function : callable
        A function of plain values.
    args : list of Vector
        Each of one length, or of one row for all.
    """
    columns = [arg.rows() for arg in args]
    length = max(map(len, columns))
    columns = [column * length if len(column) == 1 else column for column in columns]
    return Vector.of(
        [None if any(item is None for item in row) else function(*row) for row in zip(*columns, strict=True)]
    )


def _numeric(function: Callable[..., Any]) -> Callable[..., Vector]:
    def call(*args: Vector) -> Vector:
        if any(arg.numbers is None for arg in args):
            return Vector()
        numbers = function(*(arg.numbers for arg in args))
        return Vector(numbers=np.where(np.isfinite(numbers), numbers, np.nan))

    return call


def _distance(a: Vector, b: Vector) -> Floats | None:
    if a.lat is None or a.lon is None or b.lat is None or b.lon is None:
        return None
    km = distance_km(a.lat, a.lon, b.lat, b.lon)
    return np.asarray(np.floor(km * meaning.FROM_KM + 0.5) / meaning.FROM_KM)


def _distance_km(a: Vector, b: Vector) -> Vector:
    return Vector(numbers=_distance(a, b))


def _within_km(place: Vector, centre: Vector, km: Vector) -> Vector:
    if place.lat is None or centre.lat is None or km.numbers is None:
        return Vector()
    # Along the meridian alone most places are too far already, and this costs no sine.
    along = np.abs(place.lat - centre.lat) * KM_PER_DEGREE
    there = ~(np.isnan(along) | np.isnan(km.numbers))
    near = along <= km.numbers + 1e-3
    true = np.zeros(there.shape, dtype=np.bool_)
    rows = np.flatnonzero(np.broadcast_to(near, true.shape))
    if len(rows):
        distance = _distance(_rows(place, rows), _rows(centre, rows))
        assert distance is not None
        true[rows] = distance <= (km.numbers if len(km.numbers) == 1 else km.numbers[rows])
    return Vector(true=true, false=there & ~true)


def _rows(vector: Vector, rows: NDArray[np.intp]) -> Vector:
    return vector if vector.length == 1 else vector.take(rows)


def _within_box(place: Vector, south: Vector, west: Vector, north: Vector, east: Vector) -> Vector:
    edges = [side.numbers for side in (south, west, north, east)]
    s, w, n, e = edges
    if place.lat is None or place.lon is None or s is None or w is None or n is None or e is None:
        return Vector()
    lat, lon = place.lat, place.lon

    def between(x: Floats) -> Masks:
        return np.where(w <= e, (w <= x) & (x <= e), (x >= w) | (x <= e))

    inside = (s <= lat) & (lat <= n) & (between(lon) | ((np.abs(lon) == 180.0) & between(-lon)))
    there = ~(np.isnan(lat) | np.isnan(s) | np.isnan(w) | np.isnan(n) | np.isnan(e))
    return Vector(true=inside & there, false=there & ~inside)


def _point(lat: Vector, lon: Vector) -> Vector:
    if lat.numbers is None or lon.numbers is None:
        return Vector()
    return points(*np.broadcast_arrays(lat.numbers, lon.numbers))


def _clock(step_s: int, offset: int, cycle: int, name: str) -> Callable[..., Vector]:
    """Hour and weekday in UTC; other zones go row by row."""

    def call(ts: Vector, zone: Vector | None = None) -> Vector:
        if zone is not None:
            return each(meaning.MEANING[name], [ts, zone])
        if ts.numbers is None:
            return Vector()
        inside = (ts.numbers >= meaning.FIRST_S) & (ts.numbers < meaning.LAST_S)
        numbers = (np.floor(ts.numbers) // step_s + offset) % cycle
        return Vector(numbers=np.where(inside, numbers, np.nan))

    return call


WHOLE: Final[dict[str, Callable[..., Vector]]] = {
    "+": _numeric(np.add), "-": _numeric(np.subtract), "*": _numeric(np.multiply), "/": _numeric(np.divide),
    "negate": _numeric(np.negative), "abs": _numeric(np.abs), "distance_km": _distance_km,
    "within_km": _within_km, "within_box": _within_box, "point": _point,
    "hour": _clock(3_600, 0, 24, "hour"), "weekday": _clock(86_400, 3, 7, "weekday"),
}  # fmt: skip
"""Functions of the language by name, over columns as a whole; the others go row by row."""
