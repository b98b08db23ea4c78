"""Maps that work without a network, in JupyterLab and in exported pages: tables in, folium maps out.

The ground of a map below 200 km is drawn from the trace itself: where vehicles were draws their streets.
Above that Natural Earth's outline of the land and a graticule lie under it. A tile server is an option
(``tiles=``) for those who are on line. The last expression of a notebook's cell shows a map;
``.save(path)`` writes it as one HTML file.
"""

from __future__ import annotations

import folium
import numpy as np
import pyarrow as pa

from mudkit.errors import ParameterError
from mudkit.figures.base.colours import NO_VALUE, Colouring, ramp, short_number
from mudkit.figures.base.page import add_call
from mudkit.figures.base.places import (
    Floats,
    Group,
    column,
    placed,
    places,
    refuse_empty,
    refuse_off_sphere,
    texts,
)
from mudkit.figures.maps.density import thinned
from mudkit.figures.maps.ground import map_with_ground
from mudkit.units import middle

__all__ = ["MAX_HEAT_POINTS", "MAX_POINTS", "MAX_RECTANGLES", "base_map", "cell_map", "heat_map", "point_map"]

MAX_HEAT_POINTS = 5_000
"""Heat maps join neighbouring cells above this number."""

MAX_POINTS = 5_000
"""Point maps join neighbouring points above this number, until a fifth of it is left."""

MAX_RECTANGLES = 20_000
"""Cell maps refuse more rectangles than a browser draws fluently."""


def base_map(positions: pa.Table, *, height_px: int = 480, tiles: str | None = None) -> folium.Map:
    """Draw the ground alone: where the devices of a trace were.

    Parameters
    ----------
    positions : pyarrow.Table
        Columns ``lat`` and ``lon``, degrees; rows with a null are left out.
    height_px : int
        Height in a notebook.
    tiles : str, optional
        A tile layer as folium knows it (``"OpenStreetMap"``), in place of the ground; whoever looks at the
        map loads it from the network.

    Returns
    -------
    folium.Map

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        There is no place in it, or one that is not on the sphere.
    """
    ground = places(positions, "positions")
    everywhere = np.ones(len(ground[0]))
    leaflet_map, _ = map_with_ground("Map of positions", [ground], ground, height_px, tiles, everywhere)
    return leaflet_map


def heat_map(
    cells: pa.Table,
    positions: pa.Table | None = None,
    *,
    weight: str = "weight",
    label: str | None = None,
    height_px: int = 480,
    tiles: str | None = None,
) -> folium.Map:
    """Draw a heat layer over the ground; its full colour is the densest place at each zoom level.

    Parameters
    ----------
    cells : pyarrow.Table
        Columns ``lat`` and ``lon`` of the cells' middles, degrees, and a weight, 0 or more; null counts as 0.
        Above ``MAX_HEAT_POINTS`` rows neighbours are joined and their weights added. Without any the map has
        nothing but its ground, and says so, if there are positions.
    positions : pyarrow.Table, optional
        What the ground is drawn from; without it the ground is empty below 200 km.
    weight : str
        The column of weights.
    label : str, optional
        What the legend says; the column's name without it.
    height_px, tiles
        As in :func:`base_map`.

    Returns
    -------
    folium.Map

    Raises
    ------
    ParameterError
        A table lacks a column, or a weight is below 0.
    TraceContentError
        A table is empty, or holds a place that is not on the sphere.
    """
    title = label or weight
    if positions is not None and not len(cells):
        title += ": none"
        here = middle(*places(placed(positions, "positions"), "positions"))
        cells = pa.table({"lat": [here[0]], "lon": [here[1]], weight: [0.0]})
    kept = placed(cells, "cells")
    weights = np.nan_to_num(column(kept, "cells", weight))
    lat, lon = places(kept, "cells")
    if (weights < 0).any():
        raise ParameterError(
            "A heat map cannot show weights below 0.",
            where=f"cells, column {weight}",
            found=f"{weights.min():g}",
            expected="0 or more",
            remedy="use cell_map, which shows any number",
        )
    leaflet_map, frame = map_with_ground(
        f"Heat map: {title}", [(lat, lon)], _ground(positions), height_px, tiles, weights, heat=True
    )
    lat, lon, weights, _ = thinned(lat, frame.unwrap(lon), weights, MAX_HEAT_POINTS)
    shares = weights / weights.max() if weights.any() else weights
    points = _rounded(lat, lon, shares)
    add_call(leaflet_map, "heat", {"points": points, "radius": 12, "blur": 14, "stops": ramp(8)})
    _add_legend(leaflet_map, title, [(0.0, "low"), (1.0, "high")])
    return leaflet_map


def cell_map(
    cells: pa.Table,
    value: str,
    *,
    label: str | None = None,
    positions: pa.Table | None = None,
    limits: tuple[float, float] | None = None,
    logarithmic: bool = False,
    height_px: int = 480,
    tiles: str | None = None,
) -> folium.Map:
    """Draw rectangles coloured by a value, with a legend, and the value under the pointer.

    Parameters
    ----------
    cells : pyarrow.Table
        Columns ``south``, ``west``, ``north``, ``east`` in degrees, as :func:`mudkit.units.box_bounds` gives
        them (``west > east``: across the date line), and the value; at most ``MAX_RECTANGLES`` rows.
        A null value is grey.
    value : str
        The column that is shown.
    label : str, optional
        What the legend says, with the unit; the column's name without it.
    positions : pyarrow.Table, optional
        What the ground is drawn from; without it the ground is empty below 200 km.
    limits : (float, float), optional
        Ends of the colour scale, for maps that are to be compared; those of the values without it.
    logarithmic : bool
        Whether the colour scale is; values of 0 and below have the colour of the least.
    height_px, tiles
        As in :func:`base_map`.

    Returns
    -------
    folium.Map

    Raises
    ------
    ParameterError
        A table lacks a column, has too many rows, or the limits make no sense.
    TraceContentError
        A table is empty, or holds a place that is not on the sphere.
    """
    edges = [column(cells, "cells", name) for name in ("south", "west", "north", "east")]
    values = column(cells, "cells", value)
    known = np.isfinite(edges).all(axis=0)
    south, west, north, east = (edge[known] for edge in edges)
    values = values[known]
    refuse_empty(len(values), "cells")
    refuse_off_sphere(south, west, "cells")
    refuse_off_sphere(north, east, "cells")
    if len(values) > MAX_RECTANGLES:
        raise ParameterError(
            "There are too many cells for one map.",
            where="cells",
            found=f"{len(values):,} rows",
            expected=f"at most {MAX_RECTANGLES:,}",
            remedy="use larger cells, or heat_map, which joins neighbours",
        )
    colouring = Colouring.of(values, limits, logarithmic)
    title = label or value
    east = np.where(west > east, east + 360.0, east)
    middle = (west + east) / 2
    leaflet_map, frame = map_with_ground(
        f"Map of cells: {title}", [(south, west), (north, east)], _ground(positions), height_px, tiles
    )
    turn = frame.unwrap(middle) - middle
    rows = _rounded(south, west + turn, north, east + turn)
    labels = (f"{title}: {short_number(number)}" for number in values.tolist())
    boxes = [
        [*row, shade, text] for row, shade, text in zip(rows, colouring.shades(values), labels, strict=True)
    ]
    add_call(leaflet_map, "cells", {"boxes": boxes, "colours": colouring.colours()})
    _add_legend(leaflet_map, title, colouring.ticks(), some_without=bool(np.isnan(values).any()))
    return leaflet_map


def point_map(
    points: pa.Table,
    *,
    value: str | None = None,
    text: str | None = None,
    label: str | None = None,
    positions: pa.Table | None = None,
    limits: tuple[float, float] | None = None,
    height_px: int = 480,
    tiles: str | None = None,
) -> folium.Map:
    """Draw a circle for each place; above ``MAX_POINTS`` one for several, which grows with their number.

    Parameters
    ----------
    points : pyarrow.Table
        Columns ``lat`` and ``lon``, degrees, and those that are named below.
    value : str, optional
        A column that gives the colour; of joined points the mean is shown.
    text : str, optional
        A column that stands under the pointer, for instance the device's name; not shown of joined points.
    label : str, optional
        What the legend says, with the unit; the column's name without it.
    positions : pyarrow.Table, optional
        What the ground is drawn from; without it the ground is empty below 200 km.
    limits : (float, float), optional
        Ends of the colour scale, for maps that are to be compared; those of the values without it.
    height_px, tiles
        As in :func:`base_map`.

    Returns
    -------
    folium.Map

    Raises
    ------
    ParameterError
        A table lacks a column, or the limits make no sense.
    TraceContentError
        A table is empty, or holds a place that is not on the sphere.
    """
    title = label or value or "points"
    kept = placed(points, "points")
    lat, lon = places(kept, "points")
    values = column(kept, "points", value) if value else np.zeros(len(lat))
    labels = texts(kept, "points", text) if text else [""] * len(lat)
    leaflet_map, frame = map_with_ground(
        f"Map of {title}", [(lat, lon)], _ground(positions), height_px, tiles
    )
    lon = frame.unwrap(lon)
    radii = np.full(len(lat), 5.0)
    if len(lat) > MAX_POINTS:
        lat, lon, values, number = _joined(lat, lon, values)
        labels = [f"{short_number(count)} point{'s' if count > 1 else ''}" for count in number.tolist()]
        radii = np.round(2.5 + 9.5 * np.sqrt(number / number.max()), 1)
    colouring = Colouring.of(values, limits)
    if value:
        numbers = (f"{title}: {short_number(number)}" for number in values.tolist())
        labels = [
            f"{before}\n{after}" if before else after for before, after in zip(labels, numbers, strict=True)
        ]
    rows = _rounded(lat, lon, radii)
    drawn = [
        [*row, shade, words] for row, shade, words in zip(rows, colouring.shades(values), labels, strict=True)
    ]
    add_call(leaflet_map, "points", {"points": drawn, "colours": colouring.colours()})
    if value:
        _add_legend(leaflet_map, title, colouring.ticks(), some_without=bool(np.isnan(values).any()))
    return leaflet_map


def _ground(positions: pa.Table | None) -> Group | None:
    return None if positions is None else places(positions, "positions")


def _joined(lat: Floats, lon: Floats, values: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Join neighbours: their mean place, the mean of the values that there are, and how many they are."""
    known = np.isfinite(values)
    _, _, sums, _ = thinned(lat, lon, np.where(known, values, 0.0), MAX_POINTS // 5)
    lat, lon, with_value, number = thinned(lat, lon, known.astype(np.float64), MAX_POINTS // 5)
    means = np.divide(sums, with_value, out=np.full(len(sums), np.nan), where=with_value > 0)
    return lat, lon, means, number.astype(np.float64)


def _add_legend(
    leaflet_map: folium.Map, title: str, ticks: list[tuple[float, str]], *, some_without: bool = False
) -> None:
    keys = [(NO_VALUE, "no value")] if some_without else []
    add_call(leaflet_map, "legend", {"title": title, "colours": ramp(32), "ticks": ticks, "keys": keys})


def _rounded(*columns: Floats) -> list[list[float]]:
    """Return rows of numbers, to a decimetre on the ground."""
    rows: list[list[float]] = np.round(np.column_stack(columns), 6).tolist()
    return rows
