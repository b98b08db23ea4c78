"""What lies under a map's data: the trace's own density, and above 200 km the land."""

from __future__ import annotations

import base64
import html
import math
from typing import Any

import folium
import numpy as np

from mudkit.errors import ParameterError
from mudkit.figures import assets
from mudkit.figures.base.page import add_call, new_map
from mudkit.figures.base.places import Floats, Group
from mudkit.figures.maps import topology
from mudkit.figures.maps.density import MAX_SIDE_PX, counts, grid_of, picture
from mudkit.figures.maps.frame import Frame

__all__ = ["map_with_ground"]

_LEAST_HEIGHT_PX = 100
_WORLD_KM = 200.0
_COARSE_DEGREES = 60.0
_FAR_SIDE_PX = 800  # a pixel of the picture is about one of the screen


def map_with_ground(
    title: str,
    shown: list[Group],
    ground: Group | None,
    height_px: int,
    tiles: str | None,
    weights: Floats | None = None,
    *,
    heat: bool = False,
) -> tuple[folium.Map, Frame]:
    """Make a map with its ground, framed around what is shown and around the positions.

    Parameters
    ----------
    title : str
        What the map shows.
    shown : list of (latitudes, longitudes)
        What will lie over the ground, degrees.
    ground : (latitudes, longitudes), optional
        The trace's positions.
    height_px : int
        Height in a notebook, at least 100.
    tiles : str, optional
        A tile layer in place of the ground.
    weights : ndarray, optional
        The weights of the places in the first group that is shown: the map starts with where nearly all of
        their weight is, and not with all that is shown.
    heat : bool
        Whether a heat layer follows.
    """
    if height_px < _LEAST_HEIGHT_PX:
        raise ParameterError(
            "The map would be too low to read.",
            where="height_px",
            found=str(height_px),
            expected=f"{_LEAST_HEIGHT_PX} or more",
        )
    frame = Frame.around([*shown, *([ground] if ground is not None else [])])
    leaflet_map = new_map(height_px=height_px, title=title, tiles=tiles, heat=heat)
    window = frame.surroundings()
    view = frame.part(shown)
    if weights is not None:
        view = frame.core(shown[0][0], frame.unwrap(shown[0][1]), weights)
    data: dict[str, Any] = {
        "bounds": [[view.south, view.west], [view.north, view.east]],
        "window": [[window.south, window.west], [window.north, window.east]],
        "tiles": bool(tiles),
        "world": False,
    }
    sources = []
    if ground is not None and not tiles:
        data["picture"], note = _picture(ground, frame)
        sources.append(note)
    if frame.side_km > _WORLD_KM and not tiles and "countries-110m.json" not in assets.missing():
        data |= _land(frame, window)
        sources.append("land: Natural Earth")
    data["attribution"] = html.escape("; ".join(sources))
    add_call(leaflet_map, "base", data)
    return leaflet_map, frame


def _picture(ground: Group, frame: Frame) -> tuple[dict[str, Any], str]:
    """Draw the density of positions; say what it is."""
    lat, lon = ground[0], frame.unwrap(ground[1])
    inside = frame.holds(lat, lon)
    grid = grid_of(frame, max_side=MAX_SIDE_PX if frame.side_km <= _WORLD_KM else _FAR_SIDE_PX)
    drawn = picture(counts(lat[inside], lon[inside], grid), grid)
    address = "data:image/png;base64," + base64.b64encode(drawn.data).decode("ascii")
    note = f"ground drawn from the trace, {len(lat):,} positions"
    if not inside.all():
        note += f", {int((~inside).sum()):,} off the map"
    return {"url": address, "bounds": [drawn.south_west, drawn.north_east]}, note


def _land(frame: Frame, window: Frame) -> dict[str, Any]:
    """Gather the land within the window, and a graticule."""
    fine = frame.east - frame.west < _COARSE_DEGREES and "countries-50m.json" not in assets.missing()
    box = (window.south, window.west, window.north, window.east)
    land: list[list[list[float]]] = []
    coast: list[list[list[float]]] = []
    for ring in topology.rings(assets.land_topology("50m" if fine else "110m"), "land"):
        whole = topology.continuous(ring)
        for turn in _turns(whole, window):
            moved = _moved(whole, turn)
            filled = topology.clipped(topology.closed_at_pole(moved), *box)
            land += [_lat_lon(filled)] if len(filled) > 2 else []
            for piece in topology.coast(whole):
                coast += [_lat_lon(part) for part in topology.near(_moved(piece, turn), *box)]
    step = topology.graticule_step(max(frame.east - frame.west, frame.north - frame.south))
    latitudes, longitudes = topology.graticule(step, *box)
    return {
        "world": True,
        "land": [[ring] for ring in land],  # a ring for itself is a polygon without holes
        "coast": coast,
        "latitudes": latitudes,
        "longitudes": longitudes,
    }


def _turns(ring: topology.Line, window: Frame) -> list[float]:
    """By how many degrees, in whole turns, a ring has to be moved to meet the window."""
    west, east = float(ring[:, 0].min()), float(ring[:, 0].max())
    first, last = math.ceil((window.west - east) / 360.0), math.floor((window.east - west) / 360.0)
    return [360.0 * turn for turn in range(first, last + 1)]


def _moved(line: topology.Line, turn: float) -> topology.Line:
    return np.column_stack([line[:, 0] + turn, line[:, 1]])


def _lat_lon(line: topology.Line) -> list[list[float]]:
    pairs: list[list[float]] = np.round(line[:, ::-1], 3).tolist()
    return pairs
