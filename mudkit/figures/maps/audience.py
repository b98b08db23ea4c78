"""Who is reached around a place: an area, and readers by what came of it for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import folium
import numpy as np
import pyarrow as pa

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, ORANGE
from mudkit.figures.base.page import add_call
from mudkit.figures.base.places import placed, places, texts
from mudkit.figures.maps.ground import map_with_ground
from mudkit.units import KM_PER_DEGREE

__all__ = ["COLOURS", "area_map"]

COLOURS: Final = (BLUE, "#56B4E9", "#CC79A7", ORANGE, "#E69F00", "#444444")
"""Of the states in their order; the last one is drawn small."""


def area_map(
    points: pa.Table,
    state: str,
    *,
    area: tuple[float, float, float],
    states: Sequence[str],
    title: str,
    text: str | None = None,
    positions: pa.Table | None = None,
    height_px: int = 480,
) -> folium.Map:
    """Draw an area as a dashed circle, and a disc for each point, coloured by its state.

    Parameters
    ----------
    points : pyarrow.Table
        Columns ``lat`` and ``lon``, degrees, and those that are named here.
    state : str
        The column of states.
    area : (float, float, float)
        Latitude and longitude of its middle, degrees, and its radius, km.
    states : sequence of str
        All states, in the order of the legend; the legend says how many points have each.
    title : str
        The title of the legend.
    text : str, optional
        A column that stands under the pointer, before the state.
    positions : pyarrow.Table, optional
        What the ground is drawn from.
    height_px : int
        Height in a notebook.

    Raises
    ------
    ParameterError
        A table lacks a column, a state is not listed, or there are more states than colours.
    TraceContentError
        No point has a place.
    """
    lat, lon = places(points, "points")
    kept = placed(points, "points")
    labels = texts(kept, "points", state)
    unknown = sorted(set(labels) - set(states))
    if unknown or len(states) > len(COLOURS):
        raise ParameterError(
            "These states cannot be drawn.",
            where="states",
            found=", ".join(unknown or states),
            expected=f"states that are listed, at most {len(COLOURS)}: {', '.join(states)}",
        )
    middle_lat, middle_lon, reach_km = area
    high = reach_km / KM_PER_DEGREE
    wide = high / max(float(np.cos(np.radians(middle_lat))), 0.01)
    around = (
        np.array([middle_lat - high, middle_lat + high]),
        np.array([middle_lon - wide, middle_lon + wide]),
    )
    ground = None if positions is None else places(positions, "positions")
    leaflet_map, frame = map_with_ground(f"Map: {title}", [(lat, lon), around], ground, height_px, None)
    notes = texts(kept, "points", text) if text else [""] * len(labels)
    drawn = [
        [
            round(float(y), 6),
            round(float(x), 6),
            4 if each == states[-1] else 7,
            states.index(each),
            f"{name}\n{each}" if name else each,
        ]
        for y, x, each, name in zip(lat, frame.unwrap(lon), labels, notes, strict=True)
    ]
    drawn.sort(key=lambda each: each[2])  # the small ones lie below
    (turned,) = frame.unwrap(np.array([middle_lon]))
    circle = [middle_lat, float(turned), 1000 * reach_km, f"the writer, and {reach_km:g} km around"]
    add_call(leaflet_map, "areas", {"areas": [circle]})
    add_call(leaflet_map, "points", {"points": drawn, "colours": list(COLOURS)})
    keys = [
        [colour, f"{each}: {labels.count(each):,}"] for colour, each in zip(COLOURS, states, strict=False)
    ]
    add_call(leaflet_map, "legend", {"title": title, "colours": [], "ticks": [], "keys": keys})
    return leaflet_map
