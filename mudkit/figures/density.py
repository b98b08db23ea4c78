"""Offline map of positions: cells and streets that become finer as the map is enlarged."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import folium
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.figures.geometry import (
    MIN_SIDE_KM,
    MIN_TRIMMED,
    Frame,
    best_cut,
    outermost,
    robust_limits,
)
from mudkit.figures.map_page import Grid, Ground, add_call, density_png, map_in_frame
from mudkit.figures.style import ramp
from mudkit.figures.tables import Floats, refuse_empty, refuse_off_sphere, with_place
from mudkit.places import ATTRIBUTION, cities_within
from mudkit.trace.profile import (
    FINEST,
    PARTS,
    degrees_of_longitude,
    finest_cells,
    pixels,
    place_values,
    square_pixels,
    squares,
    unwrapped_values,
)
from mudkit.trace.summaries import Distributed, Ranks, Rows, Summary, summarise
from mudkit.units import EARTH_RADIUS_KM

MAX_CELLS: Final = 16_000
"""Maximum number of cells of all levels; beyond it only those with most positions are divided."""

MAX_PICTURE_BYTES: Final = 300_000
"""Maximum size of the finer pictures of streets, encoded."""

_COARSEST_CELLS: Final = 150
_FINE_KM: Final = (0.05, 0.012)
"""Pixels of the finer pictures of streets, one level after the other."""

_FINE_PX: Final = 1024
_PICTURES: Final = 3
_FINER: Final = 0.6  # of the pixel before: a picture that is hardly finer is left out
_MAX_CITIES: Final = 200
_CORE: Final = 0.01
_TURN: Final = 1 << 31


@check_arguments(types=False)
def density_map(
    positions: Rows,
    *,
    label: str = "positions",
    background: str | os.PathLike[str] | None = None,
) -> folium.Map:
    """Draw how many positions lie where, as discs whose cells are finer the nearer one looks.

    A disc stands where positions are: at the finest cell with some that is nearest to the mean of its own.
    Below lie the streets that the positions draw, also finer where most positions are, and the names of
    cities.

    Parameters
    ----------
    positions : pyarrow.Table or Distributed
        Columns ``lat`` and ``lon``, degrees; or rows on Spark.
    label : str
        What is counted, for the legend.
    background : path-like, optional
        GeoJSON file whose lines and edges of polygons are drawn below
        (:func:`mudkit.figures.background.read_background`).

    Raises
    ------
    ParameterError
        The positions are no such table, or lack a column.
    TraceContentError
        There is no position, a place is not on the sphere, or the background has no line or polygon here.
    InputMissing, TraceFormatError
        The background cannot be read.
    """
    rows = positions if isinstance(positions, Distributed) else with_place(positions, "positions")
    lat_values, degrees = place_values("lat"), {"degrees": degrees_of_longitude}
    summaries = {"lat": lat_values.ranges, "lon": place_values("lon").ranges} | degrees
    results = summarise(rows, summaries)
    lat = Ranks(rows, lat_values, results["lat"])
    refuse_empty(lat.count(), "positions")
    (west, east), (south, north) = Ranks(rows, place_values("lon"), results["lon"]).ends(), lat.ends()
    refuse_off_sphere(np.array([south, north]), np.array([west, east]), "positions")
    cut = best_cut(west, east, results["degrees"]["degree"].to_numpy())
    lon = _longitudes(rows, cut)
    frame = _frame(lat, lon, cut)
    if frame.best_turn != cut:
        lon = _longitudes(rows, frame.best_turn)
        frame = _frame(lat, lon, frame.best_turn)
    grid, sides = Grid.of_frame(frame), _sides(frame)
    edges = frame.south, frame.west, frame.north, frame.east
    counts: dict[str, Callable[[], Summary]] = {
        "cells": partial(finest_cells, frame.cut),
        "ground": partial(pixels, frame.cut, grid.plain, edges),
    }
    counts |= {f"squares {side}": partial(squares, frame.cut, side) for side in sides}
    counted = summarise(rows, counts)
    picture = grid.picture(counted["ground"])
    ground = Ground(grid, picture, lat.count(), lat.count() - int(picture.sum()))
    view = _core(frame, lat, lon)
    title = f"Map: {words.count(lat.count(), 'position')}"
    leaflet_map = map_in_frame(title, frame, view, ground, background=background)
    window = frame.surroundings()
    of_squares = {side: counted[f"squares {side}"] for side in sides}
    add_call(leaflet_map, "streets", {"pictures": _streets(rows, frame.cut, of_squares)})
    levels = _levels(_Cells.finest(counted["cells"]))
    add_call(leaflet_map, "density", {"levels": levels, "colours": ramp(32), "label": label})
    named = cities_within(window.south, window.west, window.north, window.east, _MAX_CITIES)
    cities = [[name, round(y, 4), round(x, 4)] for name, y, x in named]
    add_call(leaflet_map, "cities", {"cities": cities, "attribution": ATTRIBUTION})
    return leaflet_map


def _longitudes(rows: Rows, cut: float) -> Ranks:
    """Return the ranks of longitudes in the turn that starts at ``cut``."""
    values = unwrapped_values(cut)
    return Ranks(rows, values, summarise(rows, {"lon": values.ranges})["lon"])


def _frame(lat: Ranks, lon: Ranks, cut: float) -> Frame:
    """Return the frame of places as :meth:`Frame.around` does; longitudes are those of its turn."""
    limits = []
    for values in (lat, lon):
        outliers = outermost(values.count())
        inner = values.at(np.array([outliers, values.count() - 1 - outliers])).tolist()
        limits.append(robust_limits(*values.ends(), *inner))
    (south, north), (west, east) = limits
    return Frame(south, west, north, east, cut).at_least(MIN_SIDE_KM)


def _core(frame: Frame, lat: Ranks, lon: Ranks) -> Frame:
    """Return the part that holds nearly all places, as :meth:`Frame.core` does."""
    count = lat.count()
    if count < MIN_TRIMMED:
        return frame
    ranks = np.array([max(math.ceil(level * count) - 1, 0) for level in (_CORE, 1.0 - _CORE)])
    (south, north), (west, east) = (values.at(ranks).tolist() for values in (lat, lon))
    return frame.with_margin(south, west, north, east)


Whole: TypeAlias = NDArray[np.int64]


def _key(column: Whole, row: Whole) -> Whole:
    """Return a number for each cell; columns are negative west of the map's turn."""
    return (row << 32) + (column + _TURN)


def _sums(index: Whole, values: Floats) -> Floats:
    """Return the sum of the values that have each index, from 0; no index may be missing."""
    return np.bincount(index, values).astype(np.float64)


def _column_and_row(key: Any) -> tuple[Any, Any]:
    """Return the cells of numbers."""
    return (key & 0xFFFFFFFF) - _TURN, key >> 32


@dataclass(frozen=True)
class _Cells:
    """Cells of a level that hold positions.

    Of each column, row, number of positions, sums of their x and y, and the place of its disc. That is the
    mean in cells of the finest level, and in others the place of the part nearest to the mean: the mean of
    two shores lies in the sea.
    """

    zoom: int
    column: Whole
    row: Whole
    count: Floats
    sum_x: Floats
    sum_y: Floats
    x: Floats
    y: Floats

    @classmethod
    def finest(cls, counted: pa.Table) -> _Cells:
        """Return the cells of the finest level from their summary."""
        column, row, rows = (counted[name].to_numpy() for name in ("column", "row", "rows"))
        count, side = rows.astype(np.float64), 2.0**FINEST
        x = (column + counted["across"].to_numpy() / PARTS / count) / side
        y = (row + counted["down"].to_numpy() / PARTS / count) / side
        return cls(FINEST, column, row, count, x * count, y * count, x, y)

    def coarser(self) -> _Cells:
        """Return the cells of the level above."""
        key, index = np.unique(_key(self.column >> 1, self.row >> 1), return_inverse=True)
        count, sum_x, sum_y = (_sums(index, part) for part in (self.count, self.sum_x, self.sum_y))
        apart = np.hypot(self.x - (sum_x / count)[index], self.y - (sum_y / count)[index])
        nearest_first = np.lexsort((apart, index))
        part = nearest_first[np.searchsorted(index[nearest_first], np.arange(len(key)))]
        return _Cells(self.zoom - 1, *_column_and_row(key), count, sum_x, sum_y, self.x[part], self.y[part])


def _levels(finest: _Cells) -> list[dict[str, Any]]:
    """Return cells by level, from few to fine ones; of each whether it is divided at the next.

    Cells with most positions are divided first, until there are :data:`MAX_CELLS`.
    """
    all_levels = [finest]
    while len(all_levels[-1].count) > _COARSEST_CELLS and all_levels[-1].zoom > 1:
        all_levels.append(all_levels[-1].coarser())
    all_levels.reverse()
    shown = np.ones(len(all_levels[0].count), dtype=np.bool_)
    room = MAX_CELLS - len(shown)
    encoded = []
    for at, cells in enumerate(all_levels):
        here = np.flatnonzero(shown)
        divided = np.zeros(len(cells.count), dtype=np.bool_)
        if at + 1 < len(all_levels):
            finer = all_levels[at + 1]
            key = _key(cells.column, cells.row)
            parent = np.searchsorted(key, _key(finer.column >> 1, finer.row >> 1))
            parts = np.bincount(parent, minlength=len(key))
            most_first = here[np.argsort(-cells.count[here], kind="stable")]
            allowed = room / (len(all_levels) - at - 1)
            kept = most_first[np.cumsum(parts[most_first]) <= allowed]
            divided[kept] = True
            room -= int(parts[kept].sum())
            shown = divided[parent]
        encoded.append(_encoded(cells, here, divided[here]))
    return [level for level in encoded if level["n"]]


def _encoded(cells: _Cells, rows: Whole, divided: NDArray[np.bool_]) -> dict[str, Any]:
    """Return cells as differences of column and row, which are short; the place in a cell is in tenths."""
    side, count = 2.0**cells.zoom, cells.count[rows]
    column, row = cells.column[rows], cells.row[rows]
    within = [
        np.clip(np.floor((part[rows] * side - first) * 10), 0, 9).astype(int).tolist()
        for part, first in ((cells.x, column), (cells.y, row))
    ]
    return {
        "z": cells.zoom,
        "x": np.diff(column, prepend=0).tolist(),
        "y": np.diff(row, prepend=0).tolist(),
        "in": [10 * across + down for across, down in zip(*within, strict=True)],
        "n": count.astype(np.int64).tolist(),
        "leaf": "".join("0" if is_divided else "1" for is_divided in divided.tolist()),
    }


def _sides(frame: Frame) -> list[float]:
    """Return the sides, in widths of the world, of the finer pictures of streets, level by level."""
    stretch = max(float(np.cos(np.radians((frame.south + frame.north) / 2))), 1e-3)
    width_km = 2 * np.pi * EARTH_RADIUS_KM * stretch
    before_km = max(Grid.of_frame(frame).side * width_km, _FINE_KM[0])
    sides = []
    for pixel_km in _FINE_KM:
        if pixel_km <= _FINER * before_km:
            sides.append(_FINE_PX * pixel_km / width_km)
            before_km = pixel_km
    return sides


def _streets(rows: Rows, cut: float, of_squares: Mapping[float, pa.Table]) -> list[dict[str, Any]]:
    """Return finer pictures of the squares with most positions, those of a level beside each other."""
    summaries: dict[str, Callable[[], Summary]] = {}
    grids: dict[str, Grid] = {}
    for side, counted in of_squares.items():
        most = np.argsort(-counted["rows"].to_numpy(), kind="stable")[:_PICTURES]
        for column, row in (tuple(counted[name][at].as_py() for name in ("column", "row")) for at in most):
            name = f"{side} {column} {row}"
            grids[name] = Grid(column * side, row * side, side / _FINE_PX, _FINE_PX, _FINE_PX)
            summaries[name] = partial(square_pixels, cut, (column, row), side, grids[name].plain)
    results = summarise(rows, summaries) if summaries else {}
    pictures: list[dict[str, Any]] = []
    size = 0
    for name, grid in grids.items():
        png = base64.b64encode(density_png(grid.picture(results[name]))).decode("ascii")
        if size + len(png) > MAX_PICTURE_BYTES:
            continue
        size += len(png)
        # A pixel in widths of the world: the page shows the picture where that is a pixel of the screen.
        url = f"data:image/png;base64,{png}"
        pictures.append({"url": url, "bounds": grid.bounds, "side": grid.side})
    return pictures
