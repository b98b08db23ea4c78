"""Lines and polygons of a GeoJSON file, as the background of a map."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import shapely

from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.figures.geometry import Frame
from mudkit.files import existing_path

_DETAIL: Final = 2_000
"""Parts of a map's width below which the lines of a background are not told apart."""

_MAX_POINTS: Final = 15_000
_GEOMETRIES: Final = "Polygon, MultiPolygon, LineString or MultiLineString"


@dataclass(frozen=True)
class Background:
    """Lines of a file: the edges of its polygons, and its lines, in degrees."""

    name: str
    lines: shapely.Geometry

    def within(self, frame: Frame) -> dict[str, Any]:
        """Return the lines in a frame for the page, as fine as they can be seen.

        Raises
        ------
        TraceContentError
            None lies there.
        """
        box = (frame.west, frame.south, frame.east, frame.north)
        turned = (_turned(self.lines, degrees) for degrees in (-360.0, 0.0, 360.0))
        pieces = shapely.get_parts([shapely.clip_by_rect(lines, *box) for lines in turned])
        parts = [part for part in shapely.get_parts(pieces) if part.geom_type == "LineString"]
        if not parts:
            west, south, east, north = self.lines.bounds
            raise TraceContentError(
                f"The background {self.name} lies elsewhere than the trace.",
                where=self.name,
                found=f"latitudes {south:.4g} to {north:.4g}, longitudes {west:.4g} to {east:.4g}",
                expected=f"some within {frame.south:.4g} to {frame.north:.4g} and {frame.west:.4g} to "
                f"{frame.east:.4g}",
                remedy="name the file of this place; GeoJSON has the longitude first",
            )
        tolerance = (frame.east - frame.west) / _DETAIL
        while True:
            fine = shapely.simplify(parts, tolerance)
            if shapely.get_num_coordinates(fine).sum() <= _MAX_POINTS or tolerance > frame.east - frame.west:
                break
            tolerance *= 2
        lines = [np.round(shapely.get_coordinates(line)[:, ::-1], 5).tolist() for line in fine]
        return {"lines": lines, "attribution": f"background: {self.name}"}


def read_background(path: str | os.PathLike[str]) -> Background:
    """Read the lines and polygons of a GeoJSON file (RFC 7946: degrees, longitude first).

    Raises
    ------
    InputMissing
        The file does not exist.
    TraceFormatError
        It is no GeoJSON, has no line and no polygon, or other coordinates than degrees.
    """
    file = existing_path(path, "background")
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
        kinds, shapes = _shapes(document)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, shapely.errors.ShapelyError) as error:
        raise _refused(file, "cannot be read", str(error).split("\n")[0][:200]) from error
    lines = [
        shapely.boundary(shape) if "Polygon" in shape.geom_type else shape
        for shape in shapes
        if "Polygon" in shape.geom_type or "LineString" in shape.geom_type
    ]
    lines = [line for line in lines if not shapely.is_empty(line)]
    if not lines:
        content = ", ".join(f"{kinds.count(kind):,} {kind}" for kind in dict.fromkeys(kinds))
        raise _refused(file, "has no polygons and no lines", content or "no geometry")
    bounds = shapely.total_bounds(lines)
    if not np.isfinite(bounds).all() or (np.abs(bounds) > [540.0, 90.0, 540.0, 90.0]).any():
        raise _refused(
            file, "is not in degrees", "coordinates from " + " to ".join(f"{part:g}" for part in bounds[::2])
        )
    return Background(file.name, shapely.multilinestrings(shapely.get_parts(lines).tolist()))


def _turned(lines: shapely.Geometry, degrees: float) -> shapely.Geometry:
    """Return lines some degrees farther east."""
    return shapely.transform(lines, lambda points: points + np.array([degrees, 0.0]))


def _shapes(document: Any) -> tuple[list[str], list[shapely.Geometry]]:
    """Return the kinds and the shapes of all geometries of a document."""
    if document["type"] == "FeatureCollection":
        geometries = [feature.get("geometry") for feature in document["features"]]
    elif document["type"] == "Feature":
        geometries = [document.get("geometry")]
    else:
        geometries = [document]
    shapes = []
    for geometry in geometries:
        if geometry is not None:
            whole = shapely.from_geojson(json.dumps(geometry))
            parts = shapely.get_parts(whole) if whole.geom_type == "GeometryCollection" else [whole]
            shapes += [shapely.force_2d(part) for part in parts]
    return [shape.geom_type for shape in shapes], shapes


def _refused(file: Path, problem: str, content: str) -> TraceFormatError:
    """Return the error for a background that cannot be used."""
    return TraceFormatError(
        f"The background {file.name} {problem}.",
        where=str(file),
        found=content,
        expected=f"GeoJSON (RFC 7946) with geometries of the types {_GEOMETRIES}, longitude and latitude in "
        "degrees",
        remedy="convert it, for instance: ogr2ogr -f GeoJSON -t_srs EPSG:4326 map.geojson INPUT; or leave "
        "background away",
    )
