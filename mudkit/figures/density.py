"""Offline map of positions: cells and streets that become finer as the map is enlarged."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import folium
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.figures.geometry import Frame
from mudkit.figures.map_page import Grid, add_call, density_png, map_with_ground
from mudkit.figures.style import ramp
from mudkit.figures.tables import Floats, places
from mudkit.places import ATTRIBUTION, cities_within
from mudkit.units import EARTH_RADIUS_KM, to_mercator

MAX_CELLS: Final = 16_000
"""Maximum number of cells of all levels; beyond it only those with most positions are divided."""

MAX_PICTURE_BYTES: Final = 300_000
"""Maximum size of the finer pictures of streets, encoded."""

_FINEST: Final = 18
_COARSEST_CELLS: Final = 150
_FINE_KM: Final = (0.05, 0.012)
"""Pixels of the finer pictures of streets, one level after the other."""

_FINE_PX: Final = 1024
_PICTURES: Final = 3
_FINER: Final = 0.6  # of the pixel before: a picture that is hardly finer is left out
_MAX_CITIES: Final = 200
_TURN: Final = 1 << 31


@check_arguments(types=False)
def density_map(
    positions: pa.Table,
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
    positions : pyarrow.Table
        Columns ``lat`` and ``lon``, degrees.
    label : str
        What is counted, for the legend.
    background : path-like, optional
        GeoJSON file whose lines and edges of polygons are drawn below
        (:func:`mudkit.figures.background.read_background`).

    Raises
    ------
    TraceContentError
        There is no position, a place is not on the sphere, or the background has no line or polygon here.
    InputMissing, TraceFormatError
        The background cannot be read.
    """
    lat, lon = places(positions, "positions")
    leaflet_map, frame = map_with_ground(
        f"Map: {words.count(len(lat), 'position')}",
        [(lat, lon)],
        (lat, lon),
        np.ones(len(lat)),
        background=background,
    )
    lon = frame.unwrap(lon)
    window = frame.surroundings()
    add_call(leaflet_map, "streets", {"pictures": _streets(lat, lon, frame)})
    levels = _levels(lat, lon)
    add_call(leaflet_map, "density", {"levels": levels, "colours": ramp(32), "label": label})
    named = cities_within(window.south, window.west, window.north, window.east, _MAX_CITIES)
    rows = [[name, round(y, 4), round(x, 4)] for name, y, x in named]
    add_call(leaflet_map, "cities", {"cities": rows, "attribution": ATTRIBUTION})
    return leaflet_map


Whole: TypeAlias = NDArray[np.int64]


def _key(column: Whole, row: Whole) -> Whole:
    """Return a number for each cell; columns are negative west of the map's turn."""
    return (row << 32) + (column + _TURN)


def _sums(index: Whole, values: Floats) -> Floats:
    """Return the sum of the values of each index; each index is there."""
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
    def finest(cls, x: Floats, y: Floats) -> _Cells:
        """Join places, in widths of the world, into cells."""
        side = 2.0**_FINEST
        column = np.floor(x * side).astype(np.int64)
        row = np.clip(np.floor(y * side), 0, side - 1).astype(np.int64)
        key, index, counts = np.unique(_key(column, row), return_inverse=True, return_counts=True)
        count, sum_x, sum_y = counts.astype(np.float64), _sums(index, x), _sums(index, y)
        return cls(_FINEST, *_column_and_row(key), count, sum_x, sum_y, sum_x / count, sum_y / count)

    def coarser(self) -> _Cells:
        """Return the cells of the level above."""
        key, index = np.unique(_key(self.column >> 1, self.row >> 1), return_inverse=True)
        count, sum_x, sum_y = (_sums(index, part) for part in (self.count, self.sum_x, self.sum_y))
        apart = np.hypot(self.x - (sum_x / count)[index], self.y - (sum_y / count)[index])
        nearest_first = np.lexsort((apart, index))
        part = nearest_first[np.searchsorted(index[nearest_first], np.arange(len(key)))]
        return _Cells(self.zoom - 1, *_column_and_row(key), count, sum_x, sum_y, self.x[part], self.y[part])


def _levels(lat: Floats, lon: Floats) -> list[dict[str, Any]]:
    """Return cells by level, from few to fine ones; of each whether it is divided at the next.

    Cells with most positions are divided first, until there are :data:`MAX_CELLS`.
    """
    x, y = to_mercator(lat, lon)
    all_levels = [_Cells.finest(x, y)]
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


def _streets(lat: Floats, lon: Floats, frame: Frame) -> list[dict[str, Any]]:
    """Return finer pictures of the places with most positions, those of a level beside each other."""
    x, y = to_mercator(lat, lon)
    stretch = max(float(np.cos(np.radians((frame.south + frame.north) / 2))), 1e-3)
    width_km = 2 * np.pi * EARTH_RADIUS_KM * stretch
    before_km = max(Grid.over(frame, 2048 if frame.side_km <= 200.0 else 800).side * width_km, _FINE_KM[0])
    pictures: list[dict[str, Any]] = []
    size = 0
    for pixel_km in _FINE_KM:
        if pixel_km > _FINER * before_km:
            continue
        side = _FINE_PX * pixel_km / width_km
        key, index, counts = np.unique(
            _key(np.floor(x / side).astype(np.int64), np.floor(y / side).astype(np.int64)),
            return_inverse=True,
            return_counts=True,
        )
        for tile in np.argsort(-counts, kind="stable")[:_PICTURES].tolist():
            inside = index == tile
            column, row = (int(part) for part in _column_and_row(key[tile]))
            grid = Grid(column * side, row * side, side / _FINE_PX, _FINE_PX, _FINE_PX)
            png = base64.b64encode(density_png(grid.count(lat[inside], lon[inside]))).decode("ascii")
            if size + len(png) > MAX_PICTURE_BYTES:
                continue
            size += len(png)
            # A pixel in widths of the world: the page shows the picture where that is a pixel of the screen.
            url = f"data:image/png;base64,{png}"
            pictures.append({"url": url, "bounds": grid.bounds, "side": grid.side})
        before_km = pixel_km
    return pictures
