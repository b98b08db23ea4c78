"""The HTML page that a folium map lives in, with everything it needs within it.

In a notebook the page stands in the ``srcdoc`` of an ``iframe``, so that each map has a page of its own.
folium's own page loads ten files from five servers; this one loads none, unless vendored files are missing.
"""

from __future__ import annotations

import html
import json
from typing import Any

import folium
from branca.element import Element, Figure
from folium.plugins import HeatMap

from mudkit.figures import assets

__all__ = ["MapPage", "add_call", "new_map"]

_MISSING = (
    "Files that maps are made of were missing where this one was drawn ({names}), so that it loads Leaflet "
    "from the network and stays empty without one. To mend it, run <code>make setup</code> there."
)


class MapPage(Figure):
    """A page with one map.

    Parameters
    ----------
    height_px : int
        Height of the map's frame in a notebook; in a file of its own the map fills the window.
    title : str
        What the map shows, for the page and for screen readers.
    """

    def __init__(self, height_px: int, title: str) -> None:
        super().__init__(height=f"{height_px}px", title=title)
        self.note = ""

    def add_head(self, text: str, name: str) -> None:
        """Put HTML into the page's head, once per name."""
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
        # JupyterLab removes the frame of a notebook that is not trusted: then the sentence behind it shows.
        title = html.escape(self.title or "", quote=True)
        return (
            f'<div style="position:relative;width:100%;height:{self.height}">'
            '<span style="color:#57606a">To see this map, trust the notebook '
            "(File, Trust Notebook, or run it).</span>"
            f'<iframe title="{title}" srcdoc="{html.escape(self.render(**kwargs), quote=True)}" '
            'style="position:absolute;left:0;top:0;width:100%;height:100%;border:1px solid #d0d7de;'
            'border-radius:6px;box-sizing:border-box;background:#fff" allowfullscreen></iframe></div>'
        )


class _Text(Element):
    """Text that is put out as it is; branca would take an element's text for a template."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def render(self, **kwargs: Any) -> str:
        return self.text


class _Call(Element):
    """A call of one of the functions in ``map.js`` with the map and some data."""

    def __init__(self, function: str, data: dict[str, Any]) -> None:
        super().__init__()
        self._name = function
        self.data = data

    def render(self, **kwargs: Any) -> str:
        page = self.get_root()
        map_name = self._parent.get_name() if self._parent is not None else ""
        data = json.dumps(self.data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        call = f"mudkitMap.{self._name}({map_name}, {_in_script(data)});"
        assert isinstance(page, Figure)
        page.script.add_child(_Text(call), name=self.get_name())
        return ""


def new_map(*, height_px: int, title: str, tiles: str | None, heat: bool = False) -> folium.Map:
    """Make an empty folium map on a page of its own that needs no network.

    Parameters
    ----------
    height_px : int
        Height in a notebook.
    title : str
        What the map shows.
    tiles : str or None
        A tile layer as folium knows it, for those who are on line.
    heat : bool
        Whether the page needs the heat layer.
    """
    page = MapPage(height_px, title)
    leaflet_map = folium.Map(
        location=(0.0, 0.0),
        tiles=tiles,
        prefer_canvas=True,
        font_size="12px",
        maxZoom=18,
        zoomSnap=1.0 if tiles else 0.25,  # tiles blur between their levels
        zoomDelta=1.0 if tiles else 0.5,
    )
    leaflet_map.default_js = []
    leaflet_map.default_css = []
    page.add_child(leaflet_map)
    _add_programs(page, heat)
    return leaflet_map


def add_call(leaflet_map: folium.Map, function: str, data: dict[str, Any]) -> None:
    """Have the page call a function of ``map.js`` with the map and some data (JSON, without NaN)."""
    leaflet_map.add_child(_Call(function, data))


def _add_programs(page: MapPage, heat: bool) -> None:
    missing = [name for name in assets.missing() if name.endswith((".js", ".css", ".png"))]
    if not missing:
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
    if assets.missing():
        page.note = f'<p class="mudkit-note">{_MISSING.format(names=", ".join(assets.missing()))}</p>\n'


def _in_script(data: str) -> str:
    """Write JSON so that an HTML parser passes over it whatever its texts hold."""
    return data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
