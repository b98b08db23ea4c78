"""Lines out of TopoJSON, and the graticule.

A TopoJSON file stores each border once, as an arc of integers: the first point absolute, each further one as
the difference to the one before (https://github.com/topojson/topojson-specification). A negative index stands
for the arc ``~index`` run backwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import ParameterError

__all__ = [
    "Line",
    "clipped",
    "closed_at_pole",
    "coast",
    "continuous",
    "graticule",
    "graticule_step",
    "near",
    "rings",
]

Line = NDArray[np.float64]
"""Points of a line or a closed ring, shape (n, 2): longitude, latitude in degrees."""

_STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
_MERCATOR_END = 85.0
_POLAR = 89.0
_NEAR = 1e-3


def rings(topology: Mapping[str, Any], name: str) -> list[Line]:
    """Return all rings and lines of one object of a topology, in the order in which they stand there.

    Parameters
    ----------
    topology : mapping
        A TopoJSON document, quantised or not.
    name : str
        The object, for instance ``"land"``.

    Raises
    ------
    ParameterError
        The topology has no such object.
    """
    objects = topology.get("objects", {})
    if name not in objects:
        raise ParameterError(
            "The topology has no such object.",
            found=repr(name),
            expected=f"one of {', '.join(sorted(objects))}",
        )
    arcs = [_decoded(arc, topology.get("transform")) for arc in topology["arcs"]]
    return [_joined(arcs, indices) for indices in _index_lists(objects[name])]


def continuous(ring: Line) -> Line:
    """Let longitudes run on beyond 180 degrees where a ring crosses the date line.

    A ring around a pole ends 360 degrees from where it began.
    """
    longitudes = np.unwrap(ring[:, 0], period=360.0)
    return np.column_stack([longitudes, ring[:, 1]])


def closed_at_pole(ring: Line) -> Line:
    """Lead a ring that goes around a pole over that pole, so that it can be filled; others stay as they are.

    Parameters
    ----------
    ring : ndarray, shape (n, 2)
        As :func:`continuous` gives it.
    """
    if abs(ring[-1, 0] - ring[0, 0]) < 180.0:
        return ring
    pole = math.copysign(90.0, float(ring[:, 1].mean()))
    return np.concatenate([ring, [[ring[-1, 0], pole], [ring[0, 0], pole]]])


def coast(ring: Line) -> list[Line]:
    """Return the parts of a ring that are coast, without what runs along the date line or around the pole.

    Some rings are cut at the date line: an edge of the drawing and not of the land.

    Parameters
    ----------
    ring : ndarray, shape (n, 2)
        As :func:`continuous` gives it.
    """
    at_edge = np.abs(np.abs(ring[:, 0]) - 180.0) < _NEAR
    along = at_edge[:-1] & at_edge[1:] & (np.abs(np.diff(ring[:, 1])) > 0)
    polar = np.abs(ring[:, 1]) > _POLAR
    cuts = np.flatnonzero(along | (polar[:-1] & polar[1:])) + 1
    return [piece for piece in np.split(ring, cuts) if len(piece) > 1]


def clipped(ring: Line, south: float, west: float, north: float, east: float) -> Line:
    """Return what of a closed ring lies in a rectangle (Sutherland and Hodgman 1974), shape (n, 2).

    Where the ring leaves the rectangle and comes back, the result runs along the rectangle's edge. Nothing in
    the rectangle: n is 0.
    """
    for axis, limit, keep_above in ((0, west, True), (0, east, False), (1, south, True), (1, north, False)):
        if len(ring) == 0:
            break
        ring = _cut(ring, axis, limit, keep_above)
    return ring


def near(line: Line, south: float, west: float, north: float, east: float) -> list[Line]:
    """Return the pieces of an open line whose segments touch a rectangle or pass close by."""
    low, high = np.minimum(line[:-1], line[1:]), np.maximum(line[:-1], line[1:])
    touches = (high >= [west, south]).all(axis=1) & (low <= [east, north]).all(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], touches, [False]])))
    return [line[start : end + 1] for start, end in edges.reshape(-1, 2)]


def graticule_step(span_degrees: float) -> float:
    """Choose the distance between the lines of a graticule so that about five lie in a span; degrees."""
    return min(_STEPS, key=lambda step: abs(math.log(span_degrees / step / 5.0)))


def graticule(
    step: float, south: float, west: float, north: float, east: float
) -> tuple[list[float], list[float]]:
    """Return latitudes and longitudes of a graticule's lines within a rectangle, its edges included.

    Parameters
    ----------
    step : float
        Degrees between the lines, above 0.
    south, west, north, east : float
        Degrees, ``west < east``; longitudes may lie beyond 180.

    Returns
    -------
    latitudes, longitudes : list of float
        Multiples of ``step``; latitudes stop at 85 degrees, where Web Mercator does.
    """
    if not step > 0:
        raise ParameterError(
            "A graticule needs a step above 0.", where="step", found=str(step), expected="> 0"
        )
    south, north = max(south, -_MERCATOR_END), min(north, _MERCATOR_END)
    return _multiples(step, south, north), _multiples(step, west, east)


def _multiples(step: float, low: float, high: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 6) for index in range(first, last + 1)]


def _index_lists(geometry: Mapping[str, Any]) -> Iterator[Sequence[int]]:
    kind = geometry.get("type")
    if kind == "GeometryCollection":
        for member in geometry["geometries"]:
            yield from _index_lists(member)
    elif kind == "MultiPolygon":
        for polygon in geometry["arcs"]:
            yield from polygon
    elif kind in ("Polygon", "MultiLineString"):
        yield from geometry["arcs"]
    elif kind == "LineString":
        yield geometry["arcs"]


def _decoded(arc: Sequence[Sequence[float]], transform: Mapping[str, Any] | None) -> Line:
    points = np.asarray(arc, dtype=np.float64)[:, :2]
    if transform is None:
        return points
    absolute = np.cumsum(points, axis=0)
    return np.asarray(absolute * np.asarray(transform["scale"]) + np.asarray(transform["translate"]))


def _joined(arcs: Sequence[Line], indices: Sequence[int]) -> Line:
    parts = [arcs[index] if index >= 0 else arcs[~index][::-1] for index in indices]
    return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])  # neighbours share their end point


def _cut(ring: Line, axis: int, limit: float, keep_above: bool) -> Line:
    before = np.roll(ring, 1, axis=0)
    here = ring[:, axis] >= limit if keep_above else ring[:, axis] <= limit
    there = np.roll(here, 1)
    span = ring[:, axis] - before[:, axis]
    share = (limit - before[:, axis]) / np.where(span == 0, 1.0, span)
    crossing = before + share[:, None] * (ring - before)
    crossing[:, axis] = limit
    both = np.stack([crossing, ring], axis=1).reshape(-1, 2)
    kept = np.stack([here != there, here], axis=1).reshape(-1)
    return np.asarray(both[kept])
