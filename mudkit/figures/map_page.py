"""The HTML page of an offline map and the ground that its data lie on.

In a notebook the page stands in the ``srcdoc`` of an ``iframe``, so that each map has a page of its own.
folium's own page loads ten files from five servers; this one loads none, unless vendored files are missing.

Below 200 km the ground is the density of the trace's own positions, which draws its streets; above that,
Natural Earth's outline of the land and a graticule.
"""

from __future__ import annotations

import base64
import html
import json
import math
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import folium
import numpy as np
from branca.element import Element
from branca.element import Figure as Page
from folium.plugins import HeatMap
from numpy.typing import NDArray

from mudkit.figures import assets
from mudkit.figures.background import read_background
from mudkit.figures.geometry import (
    Frame,
    Line,
    clip,
    closed_at_pole,
    coast,
    continuous,
    graticule,
    graticule_step,
    rings,
)
from mudkit.figures.tables import Floats, Group
from mudkit.trace.profile import PixelGrid
from mudkit.units import EARTH_RADIUS_KM, from_mercator, to_mercator

MAX_SIDE_PX = 2048
"""Maximum number of pixels on a side of a density picture."""

_MISSING = (
    "Files that maps are made of were missing where this one was drawn ({names}), so that it loads Leaflet "
    "from the network and stays empty without one. To mend it, run <code>make setup</code> there."
)
_HEIGHT_PX = 480  # in a notebook
_WORLD_KM = 200.0
_COARSE_DEGREES = 60.0
_FAR_SIDE_PX = 800  # a pixel of the picture is about one of the screen
_CELL_KM = 0.05
_LEVELS = 15
_FULL_QUANTILE = 0.995
_MIN_THINNING = 1e-7  # widths of the world: 4 m at the equator
_MAX_FILLED = 0.3
_VEIL = (88, 96, 105)


class MapPage(Page):
    """Page with one map, low in a notebook; in a file of its own the map fills the window."""

    def __init__(self, title: str) -> None:
        super().__init__(height=f"{_HEIGHT_PX}px", title=title)
        self.note = ""

    def add_head(self, text: str, name: str) -> None:
        """Add HTML to the page's head, once per name."""
        self.header.add_child(_Text(text), name=name)

    def render(self, **kwargs: Any) -> str:
        """Return the page as HTML."""
        for child in self._children.values():
            child.render(**kwargs)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n'
            f"<title>{html.escape(self.title or '')}</title>\n{self.header.render(**kwargs)}\n</head>\n"
            "<body>\n"
            f'<div class="mudkit-map">{self.html.render(**kwargs)}</div>\n'
            f"<noscript>This map needs JavaScript.</noscript>\n{self.note}"
            f"<script>\n{self.script.render(**kwargs)}\n</script>\n</body>\n</html>\n"
        )

    def _repr_html_(self, **kwargs: Any) -> str:
        # JupyterLab removes the frame of an untrusted notebook, which uncovers the words behind it.
        title = html.escape(self.title or "", quote=True)
        return (
            '<div style="display:grid;width:100%">'
            f'<div style="grid-area:1/1;opacity:0.75" aria-hidden="true">{title}<br>To see this map, run the '
            "notebook, or trust it (File, Trust Notebook).</div>"
            f'<iframe title="{title}" srcdoc="{html.escape(self.render(**kwargs), quote=True)}" '
            f'style="grid-area:1/1;position:relative;width:100%;height:{self.height};box-sizing:border-box;'
            'border:1px solid rgba(128,128,128,0.4);border-radius:6px" allowfullscreen></iframe></div>'
        )


class _Text(Element):
    """Verbatim text; branca reads an element's text as a template."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def render(self, **kwargs: Any) -> str:
        """Return the text."""
        return self.text


class _Call(Element):
    """Call of a function in ``map.js`` with the map and some data."""

    def __init__(self, function: str, data: dict[str, Any]) -> None:
        super().__init__()
        self._name = function
        self.data = data

    def render(self, **kwargs: Any) -> str:
        """Add the call to the script of the page; nothing stands where the element is."""
        page = self.get_root()
        map_name = self._parent.get_name() if self._parent is not None else ""
        data = json.dumps(self.data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        call = f"mudkitMap.{self._name}({map_name}, {_in_script(data)});"
        assert isinstance(page, Page)
        page.script.add_child(_Text(call), name=self.get_name())
        return ""


def add_call(leaflet_map: folium.Map, function: str, data: dict[str, Any]) -> None:
    """Add a call of a function of ``map.js`` with the map and some data (JSON, without NaN)."""
    leaflet_map.add_child(_Call(function, data))


def map_with_ground(
    title: str,
    shown: list[Group],
    ground: Group | None,
    weights: Floats | None = None,
    *,
    background: str | os.PathLike[str] | None = None,
    heat: bool = False,
) -> tuple[folium.Map, Frame]:
    """Return a map with its ground, framed around the places shown and the positions of the ground.

    With ``weights`` of the first group shown, the map opens where nearly all of their weight is.
    ``background`` is a GeoJSON file whose lines are drawn above the ground. ``heat`` loads the heat layer.
    """
    frame = Frame.around([*shown, *([ground] if ground is not None else [])])
    view = frame.part(shown)
    if weights is not None:
        view = frame.core(shown[0][0], frame.unwrap(shown[0][1]), weights)
    counted = None if ground is None else _count(ground, frame)
    return map_in_frame(title, frame, view, counted, background=background, heat=heat), frame


@dataclass(frozen=True)
class Ground:
    """Positions that a map lies on: counts by cell of a grid, the number of all, and of those off the map."""

    grid: Grid
    counts: NDArray[np.int64]
    positions: int
    outside: int


def map_in_frame(
    title: str,
    frame: Frame,
    view: Frame,
    ground: Ground | None,
    *,
    background: str | os.PathLike[str] | None = None,
    heat: bool = False,
) -> folium.Map:
    """Return a map with its ground in a frame, of which a part is seen at first: see map_with_ground."""
    drawn = read_background(background) if background else None
    leaflet_map = _empty_map(title, heat)
    window = frame.surroundings()
    data: dict[str, Any] = {
        "bounds": [[view.south, view.west], [view.north, view.east]],
        "window": [[window.south, window.west], [window.north, window.east]],
        "world": False,
    }
    sources = []
    if ground is not None:
        data["picture"], note = _density(ground)
        data["coarse"] = frame.side_km > _WORLD_KM
        sources.append(note)
    if frame.side_km > _WORLD_KM and "countries-110m.json" not in assets.missing_map_files():
        data |= _land(frame, window)
        sources.append("land: Natural Earth")
    data["attribution"] = html.escape("; ".join(sources))
    add_call(leaflet_map, "base", data)
    if drawn is not None:
        add_call(leaflet_map, "background", drawn.within(window))
    return leaflet_map


def _empty_map(title: str, heat: bool) -> folium.Map:
    """Return a map without tiles, on a page of its own that loads Leaflet."""
    page = MapPage(title)
    leaflet_map = folium.Map(
        location=(0.0, 0.0),
        tiles=None,
        prefer_canvas=True,
        font_size="13px",
        maxZoom=18,
        zoomSnap=0.25,
        zoomDelta=0.5,
    )
    leaflet_map.default_js = []
    leaflet_map.default_css = []
    page.add_child(leaflet_map)
    _add_programs(page, heat)
    return leaflet_map


def _add_programs(page: MapPage, heat: bool) -> None:
    """Add Leaflet to a page, from vendored files, or from the network with a note if any is missing."""
    missing = assets.missing_map_files()
    if not any(name.endswith((".js", ".css", ".png")) for name in missing):
        page.add_head(f"<style>{assets.leaflet_css()}</style>", "leaflet_css")
        page.add_head(f"<script>{assets.leaflet_js()}\n{assets.marker_js()}</script>", "leaflet")
        if heat:
            page.add_head(f"<script>{assets.heat_js()}</script>", "leaflet-heat.js")
    else:
        scripts, styles = dict(folium.Map.default_js), dict(folium.Map.default_css)
        page.add_head(f'<link rel="stylesheet" href="{styles["leaflet_css"]}">', "leaflet_css")
        page.add_head(f'<script src="{scripts["leaflet"]}"></script>', "leaflet")
        if heat:
            page.add_head(f'<script src="{HeatMap.default_js[0][1]}"></script>', "leaflet-heat.js")
    page.add_head(f"<style>{assets.map_css()}</style>\n<script>{assets.map_js()}</script>", "mudkit")
    if missing:
        page.note = f'<p class="mudkit-note">{_MISSING.format(names=", ".join(missing))}</p>\n'


def _in_script(data: str) -> str:
    """Escape JSON so that no text in it ends the script element."""
    return data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _land(frame: Frame, window: Frame) -> dict[str, Any]:
    """Return the land and the coast within the window, and a graticule."""
    is_fine = (
        frame.east - frame.west < _COARSE_DEGREES and "countries-50m.json" not in assets.missing_map_files()
    )
    land: list[list[list[list[float]]]] = []
    lines: list[list[list[float]]] = []
    for ring in rings(assets.land_topology("50m" if is_fine else "110m"), "land"):
        whole = continuous(ring)
        for turn in _turns(whole, window):
            # A polygon per ring: none has holes.
            filled = clip(closed_at_pole(_shifted(whole, turn)), window, is_filled=True)
            land += [[_lat_lon(part)] for part in filled]
            for piece in coast(whole):
                lines += [_lat_lon(part) for part in clip(_shifted(piece, turn), window, is_filled=False)]
    step = graticule_step(max(frame.east - frame.west, frame.north - frame.south))
    latitudes, longitudes = graticule(step, window)
    return {"world": True, "land": land, "coast": lines, "latitudes": latitudes, "longitudes": longitudes}


def _turns(ring: Line, window: Frame) -> list[float]:
    """Return the shifts of a ring that meet the window, degrees in whole turns."""
    west, east = float(ring[:, 0].min()), float(ring[:, 0].max())
    first, last = math.ceil((window.west - east) / 360.0), math.floor((window.east - west) / 360.0)
    return [360.0 * turn for turn in range(first, last + 1)]


def _shifted(line: Line, turn: float) -> Line:
    """Return a line some degrees farther east."""
    return np.column_stack([line[:, 0] + turn, line[:, 1]])


def _lat_lon(line: Line) -> list[list[float]]:
    """Return a line as pairs of latitude and longitude, rounded."""
    pairs: list[list[float]] = np.round(line[:, ::-1], 3).tolist()
    return pairs


def _density(ground: Ground) -> tuple[dict[str, Any], str]:
    """Return the picture of the density of positions, and its attribution."""
    address = base64.b64encode(density_png(ground.counts)).decode("ascii")
    note = f"ground drawn from the trace, {ground.positions:,} positions"
    if ground.outside:
        note += f", {ground.outside:,} off the map"
    return {"url": f"data:image/png;base64,{address}", "bounds": ground.grid.bounds}, note


def _count(ground: Group, frame: Frame) -> Ground:
    """Count positions by cell."""
    lat, lon = ground[0], frame.unwrap(ground[1])
    inside = frame.holds(lat, lon)
    grid = Grid.of_frame(frame)
    return Ground(grid, grid.count(lat[inside], lon[inside]), len(lat), int((~inside).sum()))


@dataclass(frozen=True)
class Grid(PixelGrid):
    """Square cells in Web Mercator over a part of a map."""

    @property
    def plain(self) -> PixelGrid:
        """The same grid for tasks of Spark, which do not load this module."""
        return PixelGrid(self.x, self.y, self.side, self.columns, self.rows)

    @classmethod
    def of_frame(cls, frame: Frame) -> Grid:
        """Return the cells of the ground of a map."""
        return cls.over(frame, MAX_SIDE_PX if frame.side_km <= _WORLD_KM else _FAR_SIDE_PX)

    @classmethod
    def over(cls, frame: Frame, max_side: int, cell_km: float = _CELL_KM) -> Grid:
        """Return cells of about ``cell_km`` in the middle of a frame, at most ``max_side`` on a side."""
        (west, east), (south, north) = to_mercator([frame.south, frame.north], [frame.west, frame.east])
        width, height = float(east - west), float(south - north)
        stretch = np.cos(np.radians((frame.south + frame.north) / 2))
        target = cell_km / (2 * np.pi * EARTH_RADIUS_KM * max(float(stretch), 1e-3))
        side = max(target, width / max_side, height / max_side)
        columns, rows = (min(max(int(np.ceil(length / side)), 1), max_side) for length in (width, height))
        return cls(float(west), float(north), side, columns, rows)

    @property
    def bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """South-west and north-east corner: latitude, longitude in degrees."""
        lat, lon = from_mercator(
            [self.x, self.x + self.columns * self.side], [self.y + self.rows * self.side, self.y]
        )
        return (float(lat[0]), float(lon[0])), (float(lat[1]), float(lon[1]))

    def count(self, lat: Floats, lon: Floats) -> NDArray[np.int64]:
        """Return the number of places in each cell, shape (rows, columns), the northern row first."""
        flat = np.bincount(self.pixel(*to_mercator(lat, lon)), minlength=self.rows * self.columns)
        return np.asarray(flat.reshape(self.rows, self.columns), dtype=np.int64)


def density_png(counts: NDArray[np.int64]) -> bytes:
    """Return a PNG whose opacity grows with the logarithm of counts; empty cells are clear."""
    logs = np.log1p(counts)
    filled = logs[counts > 0]
    if filled.size > _MAX_FILLED * counts.size:  # a grey wall: the streets are where most positions are
        least = np.quantile(filled, 1 - _MAX_FILLED * counts.size / filled.size)
        least = min(least, filled.max(where=filled < filled.max(), initial=0.0))
        logs = np.where(logs > least, logs - least, 0.0)
        filled = logs[logs > 0]
    full = float(np.quantile(filled, _FULL_QUANTILE)) if filled.size else 1.0
    levels = np.ceil(np.clip(logs / full, 0.0, 1.0) * _LEVELS).astype(np.uint8)
    opacities = [0.0] + [0.18 + 0.5 * level / _LEVELS for level in range(1, _LEVELS + 1)]
    return encode_png(levels, [(*_VEIL, round(255 * opacity)) for opacity in opacities])


def encode_png(levels: NDArray[np.uint8], palette: Sequence[tuple[int, int, int, int]]) -> bytes:
    """Encode a picture of at most 16 colours (red, green, blue, alpha) as PNG with four bits a pixel."""
    rows, columns = levels.shape
    even = np.zeros((rows, columns + columns % 2), dtype=np.uint8)
    even[:, :columns] = levels
    packed = (even[:, 0::2] << 4) | even[:, 1::2]
    no_filter = np.zeros((rows, 1), dtype=np.uint8)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 4, 3, 0, 0, 0)),
        (b"PLTE", bytes(part for colour in palette for part in colour[:3])),
        (b"tRNS", bytes(colour[3] for colour in palette)),
        (b"IDAT", zlib.compress(np.hstack([no_filter, packed]).tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(name, body) for name, body in chunks)


def _png_chunk(name: bytes, body: bytes) -> bytes:
    """Return a chunk of PNG with its length and checksum."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def thinned(lat: Floats, lon: Floats, weight: Floats, limit: int) -> tuple[Floats, Floats, Floats]:
    """Join neighbouring places until at most ``limit`` are left: their mean place and summed weight."""
    if len(lat) <= limit:
        return lat, lon, weight
    x, y = to_mercator(lat, lon)
    side = _MIN_THINNING
    while True:
        cell = np.floor(x / side).astype(np.int64) * (1 << 32) + np.floor(y / side).astype(np.int64)
        _, index, number = np.unique(cell, return_inverse=True, return_counts=True)
        if len(number) <= limit:
            break
        side *= 1.5
    lat_mean, lon_mean = (np.bincount(index, values) / number for values in (lat, lon))
    return lat_mean, lon_mean, np.bincount(index, weight).astype(np.float64)
