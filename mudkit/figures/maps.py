"""Offline maps of tables: heat, cells, cells over time, and an area with its readers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import folium
import numpy as np
import pyarrow as pa

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.errors import ParameterError
from mudkit.figures.map_page import add_call, map_with_ground, thinned
from mudkit.figures.style import (
    BLUE,
    NO_VALUE,
    ORANGE,
    PINK,
    SKY,
    YELLOW,
    ColourScale,
    ramp,
)
from mudkit.figures.tables import (
    Floats,
    Group,
    number_column,
    places,
    refuse_empty,
    refuse_off_sphere,
    text_column,
    with_place,
)
from mudkit.units import KM_PER_DEGREE, middle

MAX_HEAT_POINTS: Final = 5_000
"""Maximum number of points of a heat map; above it neighbouring cells are joined."""

MAX_RECTANGLES: Final = 20_000
"""Maximum number of cells of a cell map, which a browser still draws fluently."""

MAX_SLIDE_CELLS: Final = 60_000
"""Maximum number of cells of a map over time, in all of its pictures."""

STATE_COLOURS: Final = (BLUE, SKY, PINK, ORANGE, YELLOW, "#444444")
"""Colours of the states of :func:`area_map`, in their order."""

_EDGES: Final = ("south", "west", "north", "east")


@check_arguments(types=False)
def heat_map(
    cells: pa.Table,
    positions: pa.Table | None = None,
    *,
    weight: str = "weight",
    label: str | None = None,
) -> folium.Map:
    """Draw a heat layer over the ground; the densest place at each zoom level has the full colour.

    Parameters
    ----------
    cells : pyarrow.Table
        Columns ``lat`` and ``lon`` of the cells' middles, degrees, and a weight, 0 or more; null counts as 0.
        Above 5,000 rows neighbours are joined and their weights added. An empty table is drawn as the ground
        alone, if there are positions.
    positions : pyarrow.Table, optional
        Columns ``lat`` and ``lon``, degrees, from which the ground is drawn; by default the ground is empty
        below 200 km.
    weight : str
        Column of weights.
    label : str, optional
        Title of the legend; by default the name of the column.

    Raises
    ------
    ParameterError
        A table lacks a column, or a weight is below 0.
    TraceContentError
        Both tables are empty, or a place is not on the sphere.
    """
    title = label or weight
    if positions is not None and not len(cells):
        title += ": none"
        lat_middle, lon_middle = middle(*places(positions, "positions"))
        cells = pa.table({"lat": [lat_middle], "lon": [lon_middle], weight: [0.0]})
    kept = with_place(cells, "cells")
    weights = np.nan_to_num(number_column(kept, "cells", weight))
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
        f"Heat map: {title}; {_counted(weights, 'place')}",
        [(lat, lon)],
        _ground(positions),
        weights,
        heat=True,
    )
    lat, lon, weights = thinned(lat, frame.unwrap(lon), weights, MAX_HEAT_POINTS)
    shares = weights / weights.max() if weights.any() else weights
    points = _rounded(lat, lon, shares)
    most = float(weights.max()) if len(weights) else 0.0
    add_call(
        leaflet_map, "heat", {"points": points, "most": most, "radius": 12, "blur": 14, "stops": ramp(8)}
    )
    # The page replaces the higher number: that of the densest place at the zoom of the map.
    _add_legend(leaflet_map, f"{title} near a place", ramp(32), [(0.0, "0"), (1.0, words.number(most))])
    return leaflet_map


@check_arguments(types=False)
def cell_map(
    cells: pa.Table,
    value: str,
    *,
    label: str | None = None,
    positions: pa.Table | None = None,
    limits: tuple[float, float] | None = None,
    background: str | os.PathLike[str] | None = None,
) -> folium.Map:
    """Draw rectangles coloured by a value, which the pointer shows, with a legend.

    Parameters
    ----------
    cells : pyarrow.Table
        Columns ``south``, ``west``, ``north``, ``east`` in degrees, as :func:`mudkit.units.box_bounds`
        returns them (``west > east``: across the date line), and the value; at most 20,000 rows. A null value
        is grey.
    value : str
        Column of numbers that is shown.
    label : str, optional
        Title of the legend, with the unit; by default the name of the column.
    positions : pyarrow.Table, optional
        As in :func:`heat_map`.
    limits : (float, float), optional
        Ends of the colour scale; by default those of the values.
    background : path-like, optional
        As in :func:`density_map`.

    Raises
    ------
    ParameterError
        A table lacks a column or has too many rows, or the limits are not an interval.
    TraceContentError
        A table is empty, or a place is not on the sphere.
    """
    edges = np.column_stack([number_column(cells, "cells", name) for name in _EDGES])
    values = number_column(cells, "cells", value)
    known = np.isfinite(edges).all(axis=1)
    edges, values = edges[known], values[known]
    _check_edges(edges)
    if len(values) > MAX_RECTANGLES:
        raise ParameterError(
            "There are too many cells for one map.",
            where="cells",
            found=f"{len(values):,} rows",
            expected=f"at most {MAX_RECTANGLES:,}",
            remedy="use larger cells, or heat_map, which joins neighbours",
        )
    scale = ColourScale.of(values, limits)
    title = label or value
    leaflet_map = _map_of_cells(
        f"Map of cells: {title}; {_counted(values, 'cell')}", edges, positions, background
    )
    rows = _rounded(*edges.T)
    labels = (f"{title}: {words.number(number)}" for number in values.tolist())
    boxes = [[*row, shade, text] for row, shade, text in zip(rows, scale.shades(values), labels, strict=True)]
    add_call(leaflet_map, "cells", {"boxes": boxes, "colours": scale.colours()})
    _add_legend(leaflet_map, title, ramp(32), scale.ticks(), _no_value_key(values))
    return leaflet_map


@check_arguments(types=False)
def cell_slides(
    cells: pa.Table,
    value: str,
    *,
    time: str,
    by: str,
    text: str | None = None,
    label: str | None = None,
    positions: pa.Table | None = None,
    limits: tuple[float, float] | None = None,
    background: str | os.PathLike[str] | None = None,
    first: int = 0,
) -> folium.Map:
    """Draw rectangles coloured by a value, a picture per time; slider and choice work by keyboard.

    Parameters
    ----------
    cells : pyarrow.Table
        Columns ``south, west, north, east`` in degrees, the value, and those named below; at most 60,000
        rows. A null value is grey.
    value : str
        Column of numbers that is shown.
    time : str
        Column of the slider's labels, in the order of their first rows.
    by : str
        Column to choose from, for instance receivers: each has pictures of its own.
    text : str, optional
        Column that the pointer shows after the value.
    label : str, optional
        Title of the legend, with the unit; by default the name of the column.
    positions : pyarrow.Table, optional
        As in :func:`heat_map`.
    limits : (float, float), optional
        Ends of the colour scale; by default those of the values.
    background : path-like, optional
        As in :func:`density_map`.
    first : int
        Number of the picture that is shown first, from 0.

    Raises
    ------
    ParameterError
        The table lacks a column or has too many rows, or there is no picture ``first``.
    TraceContentError
        A table is empty, or a place is not on the sphere.
    """
    edges = np.column_stack([number_column(cells, "cells", name) for name in _EDGES])
    values = number_column(cells, "cells", value)
    missing = [name for name in (time, by, text) if name is not None and name not in cells.column_names]
    if missing or len(values) > MAX_SLIDE_CELLS:
        raise ParameterError(
            "These cells cannot be shown over time.",
            where="cells",
            found=f"{len(values):,} rows with {', '.join(cells.column_names)}",
            expected=", ".join(missing) if missing else f"at most {MAX_SLIDE_CELLS:,} rows",
            remedy=None if missing else "larger cells or longer intervals",
        )
    _check_edges(edges)
    labels, choices = (list(dict.fromkeys(cells.column(name).to_pylist())) for name in (time, by))
    if not 0 <= first < len(labels):
        raise ParameterError(
            "There is no such picture.", where="first", found=str(first), expected=f"0 to {len(labels) - 1}"
        )
    title = label or value
    pictured = words.count(len(labels), "picture")
    leaflet_map = _map_of_cells(
        f"Map over time: {title}; {_counted(values, 'cell')} in {pictured}", edges, positions, background
    )
    boxes, which = np.unique(np.round(edges, 6), axis=0, return_inverse=True)
    scale = ColourScale.of(values, limits)
    colours = scale.colours()
    pictures: list[list[list[Any]]] = [[[] for _ in labels] for _ in choices]
    at_label, at_choice = ({name: at for at, name in enumerate(names)} for names in (labels, choices))
    notes = [words.number(number) for number in values.tolist()]
    if text is not None:
        more = text_column(cells, "cells", text)
        notes = [f"{number}, {note}" for number, note in zip(notes, more, strict=True)]
    rows = zip(
        cells.column(by).to_pylist(),
        cells.column(time).to_pylist(),
        which.ravel().tolist(),
        scale.shades(values),
        notes,
        strict=True,
    )
    for choice, moment, *cell in rows:
        pictures[at_choice[choice]][at_label[moment]].append(cell)
    _add_legend(leaflet_map, title, colours[:-1], scale.ticks(), _no_value_key(values))
    data = {
        "boxes": boxes.tolist(),
        "pictures": pictures,
        "colours": colours,
        "first": first,
        "labels": [str(label) for label in labels],
        "choices": [str(choice) for choice in choices],
        "title": title,
        "by": by,
    }
    add_call(leaflet_map, "slides", data)
    return leaflet_map


@check_arguments(types=False)
def area_map(
    points: pa.Table,
    state: str,
    *,
    area: tuple[float, float, float],
    states: Sequence[str],
    title: str,
    text: str | None = None,
    positions: pa.Table | None = None,
) -> folium.Map:
    """Draw an area as a dashed circle, and a disc per point, coloured by its state.

    Parameters
    ----------
    points : pyarrow.Table
        Columns ``lat`` and ``lon``, degrees, and those named below.
    state : str
        Column of states.
    area : (float, float, float)
        Latitude and longitude of the middle, degrees, and radius, km.
    states : sequence of str
        All states, at most six, in the order of the legend, which counts the points of each. Points in the
        last state are small.
    title : str
        Title of the legend.
    text : str, optional
        Column that the pointer shows before the state.
    positions : pyarrow.Table, optional
        As in :func:`heat_map`.

    Raises
    ------
    ParameterError
        A table lacks a column, a state is not listed, or there are more states than colours.
    TraceContentError
        No point has a place.
    """
    lat, lon = places(points, "points")
    kept = with_place(points, "points")
    labels = text_column(kept, "points", state)
    unknown = sorted(set(labels) - set(states))
    if unknown or len(states) > len(STATE_COLOURS):
        raise ParameterError(
            "These states cannot be drawn.",
            where="states",
            found=", ".join(unknown or states),
            expected=f"states that are listed, at most {len(STATE_COLOURS)}: {', '.join(states)}",
        )
    lat_middle, lon_middle, radius_km = area
    half_lat = radius_km / KM_PER_DEGREE
    half_lon = half_lat / max(float(np.cos(np.radians(lat_middle))), 0.01)
    around = (
        np.array([lat_middle - half_lat, lat_middle + half_lat]),
        np.array([lon_middle - half_lon, lon_middle + half_lon]),
    )
    counts = ", ".join(f"{name} {labels.count(name):,}" for name in states)
    leaflet_map, frame = map_with_ground(
        f"Map: {title}; {words.count(len(labels), 'point')}, {counts}",
        [(lat, lon), around],
        _ground(positions),
    )
    notes = text_column(kept, "points", text) if text else [""] * len(labels)
    drawn = [
        [
            round(float(y), 6),
            round(float(x), 6),
            4 if label == states[-1] else 7,
            states.index(label),
            f"{note}\n{label}" if note else label,
        ]
        for y, x, label, note in zip(lat, frame.unwrap(lon), labels, notes, strict=True)
    ]
    drawn.sort(key=lambda point: point[2])  # small points lie below
    (lon_unwrapped,) = frame.unwrap(np.array([lon_middle]))
    circle = [lat_middle, float(lon_unwrapped), 1000 * radius_km, f"the writer, and {radius_km:g} km around"]
    add_call(leaflet_map, "areas", {"areas": [circle]})
    add_call(leaflet_map, "points", {"points": drawn, "colours": list(STATE_COLOURS)})
    keys = [
        [colour, f"{name}: {labels.count(name):,}"]
        for colour, name in zip(STATE_COLOURS, states, strict=False)
    ]
    _add_legend(leaflet_map, title, [], [], keys)
    return leaflet_map


def _ground(positions: pa.Table | None) -> Group | None:
    """Return the places of positions; None for None."""
    return None if positions is None else places(positions, "positions")


def _check_edges(edges: Floats) -> None:
    """Raise TraceContentError if there is no cell, or a corner is not on the sphere."""
    refuse_empty(len(edges), "cells")
    for lat, lon in (edges[:, :2].T, edges[:, 2:].T):
        refuse_off_sphere(lat, lon, "cells")


def _map_of_cells(
    title: str, edges: Floats, positions: pa.Table | None, background: str | os.PathLike[str] | None
) -> folium.Map:
    """Return a map around cells, whose longitudes are changed to the turn of its frame."""
    edges[:, 3] += np.where(edges[:, 1] > edges[:, 3], 360.0, 0.0)
    corners = [(edges[:, 0], edges[:, 1]), (edges[:, 2], edges[:, 3])]
    leaflet_map, frame = map_with_ground(title, corners, _ground(positions), background=background)
    middles = (edges[:, 1] + edges[:, 3]) / 2
    edges[:, 1::2] += (frame.unwrap(middles) - middles)[:, None]
    return leaflet_map


def _counted(values: Floats, one: str) -> str:
    """Return the number of places and the range of their values, for a reader who does not see the map."""
    known = values[np.isfinite(values)]
    if not len(known):
        return words.count(len(values), one)
    low, high = (words.number(float(end)) for end in (known.min(), known.max()))
    return f"{words.count(len(values), one)}, {low}" + (f" to {high}" if high != low else "")


def _no_value_key(values: Floats) -> list[list[str]]:
    """Return the legend's entry for cells without a value; nothing if all have one."""
    return [[NO_VALUE, "no value"]] if np.isnan(values).any() else []


def _add_legend(
    leaflet_map: folium.Map, title: str, colours: Sequence[str], ticks: Any, keys: Sequence[list[str]] = ()
) -> None:
    """Add a legend to a map."""
    data = {"title": title, "colours": list(colours), "ticks": ticks, "keys": list(keys)}
    add_call(leaflet_map, "legend", data)


def _rounded(*columns: Floats) -> list[list[float]]:
    """Return rows of numbers, rounded to a decimetre on the ground."""
    rows: list[list[float]] = np.round(np.column_stack(columns), 6).tolist()
    return rows
