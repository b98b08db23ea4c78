"""Web Mercator, the frame of a map, and the lines of TopoJSON that lie in it.

Web Mercator here has the width of the world as its unit: x from 0 at 180 degrees west to 1 at 180 degrees
east, and beyond 1 for longitudes above 180; y from 0 in the north to 1 in the south.

A TopoJSON file stores each border once, as an arc of integers: the first point absolute, each further one as
the difference to the one before (https://github.com/topojson/topojson-specification). A negative index stands
for the arc ``~index`` in reverse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError
from mudkit.figures.tables import Floats, Group
from mudkit.units import KM_PER_DEGREE, distance_km, from_mercator, to_mercator, unwrap

Line = NDArray[np.float64]
"""Points of a line or a closed ring, shape (n, 2): longitude, latitude in degrees."""

_OUTLIER_SHARE = 1e-3
_OUTLIER_FACTOR = 3.0
_MAX_KEPT_SHARE = 0.8  # of the plain width: a frame across the date line must be narrower
MIN_SIDE_KM = 0.5
"""Least side of a frame."""
MIN_TRIMMED = 1_000
"""Number of places from which on the outermost ones may be left out of a view."""
_MAX_SORTED = 200_000
_WINDOW_FACTOR, _WINDOW_SHAPE = 2.0, 3.0
_STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
_GRATICULE_END = 85.0
_POLAR = 89.0
_NEAR = 1e-3


@check_arguments(types=False)
def tiles(zoom: int, lat: ArrayLike, lon: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the map tiles that hold places.

    Parameters
    ----------
    zoom : int
        Zoom level; the world is ``2**zoom`` tiles wide.
    lat, lon : array-like of float
        Places in degrees.

    Returns
    -------
    tuple of ndarray
        Column from the west and row from the north, from 0, as in :func:`tile_bounds`.
    """
    # The poles lie in the last rows, and 180 degrees east in the last column.
    column, row = (
        np.clip(np.floor(part * 2.0**zoom), 0, 2**zoom - 1).astype(np.int64) for part in to_mercator(lat, lon)
    )
    return column, row


@check_arguments(types=False)
def tile_bounds(zoom: ArrayLike, x: ArrayLike, y: ArrayLike) -> dict[str, Floats]:
    """Return the edges of map tiles.

    Parameters
    ----------
    zoom : array-like of int
        Zoom level; the world is ``2**zoom`` tiles wide.
    x, y : array-like of int
        Column from the west and row from the north, from 0.

    Returns
    -------
    dict of str to ndarray
        ``south, west, north, east`` in degrees, columns of :func:`mudkit.figures.cell_map`.
    """
    side = 2.0 ** -np.asarray(zoom, dtype=np.float64)
    column, row = (np.asarray(part, dtype=np.float64) for part in (x, y))
    north, west = from_mercator(column * side, row * side)
    south, east = from_mercator((column + 1) * side, (row + 1) * side)
    return {"south": south, "west": west, "north": north, "east": east}


@dataclass(frozen=True)
class Frame:
    """Rectangle in degrees, across the date line where the data lie so.

    Longitudes are in the turn that starts at ``cut`` (degrees), so that ``west <= east`` and ``east`` may be
    above 180. No data lie at the cut, unless they go all the way around.
    """

    south: float
    west: float
    north: float
    east: float
    cut: float

    @classmethod
    def around(cls, groups: Sequence[Group]) -> Frame:
        """Return the frame of groups of places.

        Of a group of 1,000 places and more, the outermost thousandth on each side is left out if it would
        make the frame three times as large: gross outliers do not decide what a map shows.
        """
        lon = np.concatenate([lon for _, lon in groups])
        cut = best_cut(float(lon.min()), float(lon.max()), np.floor(lon % 360.0).astype(np.int64) % 360)
        frame = cls(0.0, 0.0, 0.0, 0.0, cut).part(groups)
        return frame if frame.best_turn == cut else cls(0.0, 0.0, 0.0, 0.0, frame.best_turn).part(groups)

    @property
    def best_turn(self) -> float:
        """Cut of the turn in which the middle of this frame lies in (-180, 180], as layers expect."""
        return self.cut - 360.0 * math.ceil(((self.west + self.east) / 2 - 180.0) / 360.0)

    def part(self, groups: Sequence[Group]) -> Frame:
        """Return the frame of groups of places as :meth:`around` does, in the turn of this one."""
        south, north = _common_limits([lat for lat, _ in groups])
        west, east = _common_limits([self.unwrap(lon) for _, lon in groups])
        return Frame(south, west, north, east, self.cut).at_least(MIN_SIDE_KM)

    def unwrap(self, lon: ArrayLike) -> Floats:
        """Return longitudes in the turn of this frame, degrees."""
        return unwrap(lon, self.cut)

    def holds(self, lat: Floats, lon: Floats) -> NDArray[np.bool_]:
        """Return which places (unwrapped) lie in the frame, its edges included."""
        inside = (lat >= self.south) & (lat <= self.north) & (lon >= self.west) & (lon <= self.east)
        return np.asarray(inside, dtype=np.bool_)

    def core(self, lat: Floats, lon: Floats, weight: Floats, share: float = 0.01) -> Frame:
        """Return the part of this frame, with a margin, that holds nearly all weight of some places.

        On each side ``share`` of the weight is left out, and nothing of fewer than 1,000 places. Longitudes
        are unwrapped.
        """
        if len(lat) < MIN_TRIMMED:
            return self
        some = slice(None, None, max(len(lat) // _MAX_SORTED, 1))  # sorting millions takes seconds
        lat, lon, weight = lat[some], lon[some], weight[some]
        (south, north), (west, east) = (
            np.quantile(part, (share, 1.0 - share), weights=weight, method="inverted_cdf").tolist()
            for part in (lat, lon)
        )
        return self.with_margin(south, west, north, east)

    def with_margin(self, south: float, west: float, north: float, east: float) -> Frame:
        """Return the part of this frame within some limits and a margin of a tenth."""
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
        """Longer side, along the parallel of the middle or along a meridian."""
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

    def surroundings(self) -> Frame:
        """Return the frame that a reader may pan and zoom to: twice as large, with room for any window."""
        (west, east), (south, north) = to_mercator([self.south, self.north], [self.west, self.east])
        width, height = float(east - west), float(south - north)
        half_x = min(max(width, height * _WINDOW_SHAPE) * _WINDOW_FACTOR / 2, 0.55)
        half_y = max(height, width / _WINDOW_SHAPE) * _WINDOW_FACTOR / 2
        x, y = float(west + east) / 2, float(south + north) / 2
        lat, lon = from_mercator([x - half_x, x + half_x], [max(y - half_y, 0.0), min(y + half_y, 1.0)])
        return Frame(float(lat[1]), float(lon[0]), float(lat[0]), float(lon[1]), self.cut)


def best_cut(west: float, east: float, degrees: NDArray[np.int64]) -> float:
    """Return where a turn should start: at the date line, unless a gap elsewhere saves a lot.

    ``west`` and ``east`` are the least and the largest longitude; ``degrees`` are the whole degrees, from 0
    to 359, that hold a place.
    """
    plain = east - west
    if plain <= 180.0 and west >= -180.0 and east <= 180.0:
        return -180.0
    filled = np.unique(degrees)
    gaps = np.diff(np.append(filled, filled[0] + 360)) - 1
    widest = int(gaps.argmax())
    if 360.0 - gaps[widest] > _MAX_KEPT_SHARE * min(plain, 360.0):
        return -180.0
    return float(filled[widest] + 1 + gaps[widest] / 2)


def _common_limits(groups: Sequence[Floats]) -> tuple[float, float]:
    """Return the limits of several groups of values together, each without its far outliers."""
    lows, highs = zip(*(_robust_limits(values) for values in groups if len(values)), strict=True)
    return min(lows), max(highs)


def _robust_limits(values: Floats) -> tuple[float, float]:
    """Return the limits of values without far outliers."""
    low, high = float(values.min()), float(values.max())
    outliers = outermost(len(values))
    parted = np.partition(values, [outliers, len(values) - 1 - outliers])
    return robust_limits(low, high, float(parted[outliers]), float(parted[len(values) - 1 - outliers]))


def outermost(count: int) -> int:
    """Return how many of some places may be outliers at each side."""
    return int(count * _OUTLIER_SHARE)


def robust_limits(low: float, high: float, inner_low: float, inner_high: float) -> tuple[float, float]:
    """Return the limits of places, or those without the outermost ones, if these are far away."""
    return (inner_low, inner_high) if high - low > _OUTLIER_FACTOR * (inner_high - inner_low) else (low, high)


def rings(topology: Mapping[str, Any], name: str) -> list[Line]:
    """Return all rings and lines of one object of a TopoJSON document, in its order."""
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
    """Return a ring with longitudes that run on beyond 180 degrees at the date line.

    A ring around a pole ends 360 degrees from its beginning.
    """
    longitudes = np.unwrap(ring[:, 0], period=360.0)
    return np.column_stack([longitudes, ring[:, 1]])


def closed_at_pole(ring: Line) -> Line:
    """Return a continuous ring around a pole closed over that pole, so that it can be filled."""
    if abs(ring[-1, 0] - ring[0, 0]) < 180.0:
        return ring
    pole = math.copysign(90.0, float(ring[:, 1].mean()))
    return np.concatenate([ring, [[ring[-1, 0], pole], [ring[0, 0], pole]]])


def coast(ring: Line) -> list[Line]:
    """Return the parts of a continuous ring that are coast.

    Some rings are cut at the date line or around a pole: such edges are part of the drawing, not of the land.
    """
    at_edge = np.abs(np.abs(ring[:, 0]) - 180.0) < _NEAR
    along = at_edge[:-1] & at_edge[1:] & (np.abs(np.diff(ring[:, 1])) > 0)
    polar = np.abs(ring[:, 1]) > _POLAR
    cuts = np.flatnonzero(along | (polar[:-1] & polar[1:])) + 1
    return [piece for piece in np.split(ring, cuts) if len(piece) > 1]


def clip(line: Line, frame: Frame, *, is_filled: bool) -> list[Line]:
    """Return the parts of a line, or of the area that a ring encloses, that lie in a frame."""
    shape = shapely.Polygon(line) if is_filled else shapely.LineString(line)
    parts = shapely.get_parts(shapely.clip_by_rect(shape, frame.west, frame.south, frame.east, frame.north))
    kind = "Polygon" if is_filled else "LineString"
    return [shapely.get_coordinates(part) for part in parts if part.geom_type == kind]


def graticule_step(span_degrees: float) -> float:
    """Return the distance between the lines of a graticule, degrees, so that about five lie in a span."""
    return min(_STEPS, key=lambda step: abs(math.log(span_degrees / step / 5.0)))


def graticule(step: float, frame: Frame) -> tuple[list[float], list[float]]:
    """Return latitudes (up to 85 degrees) and longitudes within a frame that are multiples of ``step``."""
    if not step > 0:
        raise ParameterError(
            "A graticule needs a step above 0.", where="step", found=str(step), expected="> 0"
        )
    south, north = max(frame.south, -_GRATICULE_END), min(frame.north, _GRATICULE_END)
    return _multiples(step, south, north), _multiples(step, frame.west, frame.east)


def _multiples(step: float, low: float, high: float) -> list[float]:
    """Return the multiples of a step between two numbers, both included."""
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 6) for index in range(first, last + 1)]


def _index_lists(geometry: Mapping[str, Any]) -> Iterator[Sequence[int]]:
    """Yield the lists of arcs of a geometry of TopoJSON."""
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
    """Return the points of an arc in degrees."""
    points = np.asarray(arc, dtype=np.float64)[:, :2]
    if transform is None:
        return points
    absolute = np.cumsum(points, axis=0)
    return np.asarray(absolute * np.asarray(transform["scale"]) + np.asarray(transform["translate"]))


def _joined(arcs: Sequence[Line], indices: Sequence[int]) -> Line:
    """Return arcs one after the other, those with a negative index reversed."""
    parts = [arcs[index] if index >= 0 else arcs[~index][::-1] for index in indices]
    return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])  # neighbours share their end point
