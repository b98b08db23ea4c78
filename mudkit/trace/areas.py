"""Areas of a GeoJSON file, and the positions that lie in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from mudkit.checks import check_arguments, fits, unusable
from mudkit.errors import ParameterError, TraceContentError, TraceFormatError, brief, did_you_mean
from mudkit.files import PlaceLike, existing, input_problem
from mudkit.trace.loaded import Loaded, places_of, table_of
from mudkit.words import Label, add_labels, listing

_MAX_PAIRS: Final = 1 << 20
"""Pairs of a position and an area whose box holds it that are examined at once, in about 100 bytes each."""

_CELLS: Final = 512
_LINE: Final = 180.0
_MAX_LON: Final = 3 * _LINE
_NESTING: Final = "check how deep its lists are nested"
_KINDS: Final = ("Polygon", "MultiPolygon")

AREA_COLUMNS: Final = pa.schema([("area_number", pa.int64()), ("area", pa.string())])
"""Columns that a join adds; null for positions in no area."""

add_labels({"area_number": Label("number of the area")})


class _Unusable(Exception):
    """Reason why a feature cannot be used: the texts of the error."""


@dataclass(frozen=True)
class Areas:
    """Areas by the number of their feature, from 1, prepared for the search of positions.

    Attributes
    ----------
    coordinates, offsets : ndarray, tuple of ndarray
        Polygons, the parts of areas, as :func:`shapely.to_ragged_array` returns them; a part beyond the date
        line is there once for each side.
    number : ndarray of int64, shape (parts,)
        Number of the feature of each part.
    names : sequence of str or None
        Name of each feature.
    """

    coordinates: NDArray[np.float64]
    offsets: tuple[NDArray[np.int64], ...]
    number: NDArray[np.int64]
    names: Sequence[str | None]

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: the tree is built again where they arrive."""
        return {name: getattr(self, name) for name in ("coordinates", "offsets", "number", "names")}

    @cached_property
    def _names(self) -> pa.Array:
        """Names of all areas as an Arrow array, null without a name."""
        return pa.array(self.names, pa.string())

    @cached_property
    def _tree(self) -> shapely.STRtree:
        """Search tree over the prepared polygons."""
        kind = shapely.GeometryType.POLYGON
        parts = shapely.from_ragged_array(kind, self.coordinates, self.offsets)
        shapely.prepare(parts)
        return shapely.STRtree(parts)

    @cached_property
    def _crowd(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Edges of a grid in both directions, and the number of boxes that touch each of its cells."""
        west, south, east, north = shapely.bounds(self._tree.geometries).T
        shares = np.linspace(0, 1, _CELLS)
        across, up = (
            np.unique(np.quantile(np.concatenate(ends), shares, method="nearest"))
            for ends in ((west, east), (south, north))
        )
        (left, right), (low, high) = (
            [_cells_of(edges, values) for values in ends]
            for edges, ends in ((across, (west, east)), (up, (south, north)))
        )
        counts = np.zeros((2 * len(across) + 2, 2 * len(up) + 2), dtype=np.int64)
        for x, sign in ((left, 1), (right + 1, -1)):
            np.add.at(counts, (x, low), sign)
            np.add.at(counts, (x, high + 1), -sign)
        return across, up, counts.cumsum(axis=0).cumsum(axis=1)

    def joined(self, table: pa.Table, places: tuple[str, str]) -> Iterator[pa.Table]:
        """Yield the rows of a table with their areas, in order, as :func:`join` returns them."""
        lat, lon, is_place = places_of(table, *places)
        for first, past in self._blocks(lat, lon, is_place):
            at = first + np.flatnonzero(is_place[first:past])
            row, number = self._pairs(lat[at], lon[at])
            row = at[row]
            alone = np.setdiff1d(np.arange(first, past), row)
            rows = np.concatenate([row, alone])
            numbers = np.concatenate([number, np.zeros(len(alone), dtype=np.int64)])
            order = np.lexsort((numbers, rows))
            rows, numbers = rows[order], pa.array(numbers[order], mask=numbers[order] == 0)
            names = self._names.take(pc.subtract(numbers, 1))
            yield table.take(rows).append_column("area_number", numbers).append_column("area", names)

    def _blocks(
        self, lat: NDArray[np.float64], lon: NDArray[np.float64], is_place: NDArray[np.bool_]
    ) -> Iterator[tuple[int, int]]:
        """Divide rows into blocks with at most :data:`_MAX_PAIRS` pairs, or with one row."""
        across, up, counts = self._crowd
        pairs = np.ones(len(lat), dtype=np.int64)
        for x in (lon, np.where(np.abs(lon) == _LINE, -lon, np.nan)):
            at = np.flatnonzero(is_place & np.isfinite(x))
            pairs[at] += counts[_cells_of(across, x[at]), _cells_of(up, lat[at])]
        total = np.cumsum(pairs)
        first = past = 0
        while not past or past < len(lat):  # a table without rows is one block
            first, before = past, int(total[past - 1]) if past else 0
            past = int(np.searchsorted(total, before + _MAX_PAIRS, side="right"))
            past = min(max(past, first + 1), len(lat))
            yield first, past
            if first == past:
                return

    def _pairs(
        self, lat: NDArray[np.float64], lon: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each pair of a place and an area that holds it: number of the place, number of the area."""
        # The date line is at 180 and at -180 degrees.
        on_line = np.flatnonzero(np.abs(lon) == _LINE)
        place = np.concatenate([np.arange(len(lat)), on_line])
        x, y = np.concatenate([lon, -lon[on_line]]), lat[place]
        candidate, part = self._tree.query(shapely.points(x, y))
        is_in = shapely.intersects_xy(self._tree.geometries[part], x[candidate], y[candidate])
        keys = place[candidate[is_in]] * (len(self.names) + 1) + self.number[part[is_in]]
        row, number = np.divmod(np.unique(keys), len(self.names) + 1)  # once, also where parts meet
        return row, number


def _cells_of(edges: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return cells of a line that is cut at edges; an edge is a cell of its own."""
    return np.asarray(np.searchsorted(edges, values) + np.searchsorted(edges, values, side="right"))


def read_areas(areas: PlaceLike | Mapping[str, Any], name: str | None) -> Areas:
    """Read areas as :func:`join` takes them, and raise what it raises."""
    if isinstance(areas, Mapping):
        where, document = "areas", dict(areas)
    else:
        file = existing(areas, "areas")
        where = file.name
        try:
            document = json.loads(file.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise input_problem(file, error, "file of areas") from error
        except ValueError as error:
            raise _not_geojson(where, str(error).split("\n")[0][:200]) from error
    features = _features(document, where)
    rings = _Rings()
    for number, feature in enumerate(features, start=1):
        try:
            rings.add(feature, number)
        except _Unusable as reason:
            raise _unusable_feature(where, number, *reason.args) from None
    if not rings.number:
        raise TraceFormatError(
            f"There is no area in {where}.",
            where=where,
            found=f"{len(features):,} features, none with a polygon",
            expected="features with a Polygon or a MultiPolygon",
        )
    try:
        shapes = rings.shapes()
    except _Unusable as reason:
        number, *texts = reason.args
        raise _unusable_feature(where, number, *texts) from None
    parts, of = shapely.get_parts(shapes, return_index=True)
    west, _, east, _ = shapely.bounds(parts).T
    copies = [(parts, of)]
    for beyond, degrees in ((east > _LINE, -360.0), (west < -_LINE, 360.0)):
        turned = shapely.transform(parts[beyond], lambda points, by=degrees: points + np.array([by, 0.0]))
        copies.append((turned, of[beyond]))
    parts, of = (np.concatenate(pieces) for pieces in zip(*copies, strict=True))
    _, coordinates, offsets = shapely.to_ragged_array(parts)
    number = np.array(rings.number, dtype=np.int64)[of]
    return Areas(coordinates, offsets, number, _names(features, name, where))


class _Rings:
    """Rings of features, and which polygons and features they belong to.

    Attributes
    ----------
    number : list of int
        Numbers of the features that have a place.
    """

    def __init__(self) -> None:
        self.number: list[int] = []
        self._points: list[NDArray[Any]] = []
        self._rings_of: list[int] = []
        self._polygons_of: list[int] = []

    def add(self, feature: Any, number: int) -> None:
        """Add the rings of a feature; one without a geometry has none (RFC 7946, sections 3.1 and 3.2)."""
        if not isinstance(feature, dict) or feature.get("type") != "Feature" or "geometry" not in feature:
            raise _Unusable(brief(feature), "an object of type Feature with a geometry", "remove it")
        geometry = feature["geometry"]
        if geometry is None:
            return
        kind = geometry.get("type") if isinstance(geometry, dict) else brief(geometry)
        coordinates = geometry.get("coordinates") if kind in _KINDS else None
        if not isinstance(coordinates, list):
            shown = f"{kind} without coordinates" if kind in _KINDS else str(kind)
            raise _Unusable(shown, "a Polygon or a MultiPolygon with coordinates", "remove it")
        polygons = [rings for rings in ([coordinates] if kind == "Polygon" else coordinates) if rings]
        for rings in polygons:
            if not isinstance(rings, list):
                raise _Unusable(brief(rings), "lists of rings", _NESTING)
            self._points += map(_points_of, rings)
            self._rings_of.append(len(rings))
        if polygons:
            self.number.append(number)
            self._polygons_of.append(len(polygons))

    def shapes(self) -> NDArray[Any]:
        """Return a valid geometry for each number.

        Raises
        ------
        _Unusable
            A ring or a geometry is not usable: the number of the feature, and the texts.
        """
        points = np.concatenate([part[:, :2] for part in self._points]).astype(np.float64)
        ends, of_polygons, of_features = (
            np.append(0, np.cumsum(sizes))
            for sizes in ([len(part) for part in self._points], self._rings_of, self._polygons_of)
        )
        first, last = ends[:-1], ends[1:] - 1
        is_open = (last - first < 3) | (points[first] != points[last]).any(axis=1)
        is_beyond = ~(np.abs(points) <= [_MAX_LON, 90.0]).all(axis=1)
        turn = np.abs(np.diff(points[:, 0], append=np.nan))
        turn[last] = 0.0
        is_long = (turn > _LINE) & (turn < 2 * _LINE)
        for is_wrong, describe in (
            (is_open[np.repeat(np.arange(len(first)), last - first + 1)], _open_ring),
            (is_beyond, _no_degrees),
            (is_long, _long_edge),
        ):
            if is_wrong.any():
                at = int(np.argmax(is_wrong))
                ring = int(np.searchsorted(last, at))
                polygon = np.searchsorted(of_polygons, ring, side="right") - 1
                place = int(np.searchsorted(of_features, polygon, side="right")) - 1
                ring_points = points[first[ring] : last[ring] + 1]
                raise _Unusable(self.number[place], *describe(ring_points, at - int(first[ring])))
        kind = shapely.GeometryType.MULTIPOLYGON
        shapes = shapely.from_ragged_array(kind, points, (ends, of_polygons, of_features))
        is_valid = shapely.is_valid(shapes)
        if not is_valid.all():
            place = int(np.argmin(is_valid))
            problem = shapely.is_valid_reason(shapes[place])
            remedy = "repair it, for instance by shapely.make_valid"
            raise _Unusable(self.number[place], problem, "a valid polygon", remedy)
        return np.asarray(shapes)


def _points_of(ring: Any) -> NDArray[Any]:
    """Return the positions of a ring: longitude, latitude, and perhaps a height."""
    try:
        points = np.asarray(ring)
    except ValueError:
        points = np.zeros(0)
    if points.ndim != 2 or points.shape[1] < 2 or points.dtype.kind not in "if":
        raise _Unusable(f"a ring {brief(ring)}", "positions [longitude, latitude]", _NESTING)
    return points


def _open_ring(points: NDArray[np.float64], at: int) -> tuple[str, str, str]:
    """Return the texts of the error for a ring that is not closed or too short."""
    ends = " and ".join(f"[{x:g}, {y:g}]" for x, y in points[[0, -1]])
    return (
        f"a ring of {len(points)} positions with the ends {ends}",
        "four or more positions, the first one again at the end",
        "close the ring",
    )


def _no_degrees(points: NDArray[np.float64], at: int) -> tuple[str, str, str]:
    """Return the texts of the error for a position that is not in degrees."""
    return (
        f"the position [{points[at, 0]:g}, {points[at, 1]:g}]",
        "degrees, longitude first",
        "exchange them, or convert a projection: ogr2ogr -f GeoJSON -t_srs EPSG:4326 areas.geojson FILE",
    )


def _long_edge(points: NDArray[np.float64], at: int) -> tuple[str, str, str]:
    """Return the texts of the error for an edge of over 180 degrees."""
    return (
        f"an edge from longitude {points[at, 0]:g} to {points[at + 1, 0]:g}",
        "edges of at most 180 degrees, which cannot mean the other way around the Earth",
        "cut the area at the date line (RFC 7946, section 3.1.9), or count on: 181 for -179",
    )


def _not_geojson(where: str, problem: str) -> TraceFormatError:
    """Return the error for a document that is no GeoJSON."""
    return TraceFormatError(
        f"{where} is not GeoJSON.",
        where=where,
        found=problem,
        expected="a FeatureCollection, a Feature, a Polygon or a MultiPolygon (RFC 7946)",
        remedy="convert it, for instance: ogr2ogr -f GeoJSON -t_srs EPSG:4326 areas.geojson FILE",
    )


def _unusable_feature(where: str, number: int, found: str, expected: str, remedy: str) -> TraceFormatError:
    """Return the error for a feature that cannot be used."""
    return TraceFormatError(
        f"Feature {number:,} of {where} is not usable.",
        where=f"{where}, feature {number:,}",
        found=found,
        expected=expected,
        remedy=remedy,
    )


def _features(document: Any, where: str) -> list[Any]:
    """Return the features of a document.

    A geometry alone is made one; TraceFormatError for other documents.
    """
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection" and isinstance(document.get("features"), list):
        features: list[Any] = document["features"]
        return features
    if kind == "Feature":
        return [document]
    if kind in _KINDS:
        return [{"type": "Feature", "geometry": document}]
    raise _not_geojson(where, f"type {kind!r}" if isinstance(document, dict) else brief(document))


def _names(features: Sequence[Any], name: str | None, where: str) -> list[str | None]:
    """Return the names of features: a property; without ``name`` the id, or else the number."""
    if name is None:
        ids = [feature.get("id") for feature in features]
        return [str(number) if given is None else _text(given) for number, given in enumerate(ids, start=1)]
    properties = [feature.get("properties") or {} for feature in features]
    if not any(name in known for known in properties):
        known_names = list(dict.fromkeys(key for known in properties for key in known))
        raise ParameterError(
            f"No feature of {where} has the property {name}.",
            where="name",
            found=repr(name),
            expected=listing(known_names, 20) or "None, since its features have no properties",
            remedy=did_you_mean(name, known_names),
        )
    return [_text(known.get(name)) for known in properties]


def _text(value: Any) -> str | None:
    """Return a value of JSON as text; None stays None."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def check_places(places: Any) -> None:
    """Raise ParameterError unless two columns are named."""
    if not fits(places, tuple[str, str]) or places[0] == places[1]:
        raise unusable("places", places, "the names of two columns, of latitude and longitude")


def check_columns(names: Sequence[str]) -> None:
    """Raise TraceContentError if a table has the columns that a join adds."""
    if taken := [name for name in AREA_COLUMNS.names if name in names]:
        raise TraceContentError(
            "The table has columns of areas already.",
            found=", ".join(taken),
            expected="a table without " + ", ".join(AREA_COLUMNS.names),
            remedy="rename them first, for instance to start_area and start_area_number",
        )


@check_arguments(types=False)
def join(
    positions: Loaded | pa.Table,
    areas: PlaceLike | Mapping[str, Any],
    *,
    name: str | None = None,
    places: tuple[str, str] = ("lat", "lon"),
) -> pa.Table:
    """Join positions with the areas that they lie in: districts, zones, campuses.

    Areas are the polygons of GeoJSON (RFC 7946), whose edges are straight lines in degrees. An edge belongs
    to its area: a position on a border of two areas lies in both, one on the edge of a hole in the area
    around it. The test is exact. A search tree finds the areas near a position, so a hundred thousand of them
    may be joined; memory is bounded even where all of them overlap.

    Parameters
    ----------
    positions : Loaded or pyarrow.Table
        A trace, or a table with any columns, of which two are a place in degrees: stops, reads or trips, too.
    areas : path-like or mapping
        GeoJSON file, also at an address, or what it holds: a FeatureCollection, a Feature, a Polygon or a
        MultiPolygon. Features without a geometry hold no position. An area over the date line is cut there,
        or has longitudes over 180 or below -180.
    name : str, optional
        Property of the features that names them; by default their ``id``, or their number.
    places : tuple of str
        Columns of latitude and longitude, such as ``("start_lat", "start_lon")`` for trips.

    Returns
    -------
    pyarrow.Table
        The columns of the table, ``area_number`` (number of the feature in the file, from 1), ``area`` (its
        name). Rows keep their order. A position in several areas has a row for each, by number; one in no
        area, or without a possible place, has one row with null in both columns.

    Raises
    ------
    InputMissing, TraceFormatError
        The file does not exist or is not GeoJSON, or a feature is not usable: the error says which and why.
    ParameterError, TraceContentError
        No feature has the property ``name``; the table lacks a column, or has ``area`` already.

    Notes
    -----
    :func:`mudkit.pipeline.join` computes the same rows by Spark.

    Examples
    --------
    >>> by_district = trace.join(trace.stops(loaded), "districts.geojson", name="NAME")  # doctest: +SKIP
    """
    check_places(places)
    table = table_of(positions, tuple(places), places=places)
    check_columns(table.column_names)
    return pa.concat_tables(read_areas(areas, name).joined(table, places))
