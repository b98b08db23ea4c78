"""Leaflet, its heat layer and the outlines of the land, read from files of this package.

``tools/fetch_assets.py`` (part of ``make setup``) copies the files that ``package.json`` names from npm
packages into ``vendor/``; they are in the wheel, but not in the repository. ``map.js`` and ``map.css`` are
mudkit's own.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any, Literal

from mudkit.errors import EnvironmentProblem

__all__ = [
    "Scale",
    "heat_js",
    "land_topology",
    "leaflet_css",
    "leaflet_js",
    "map_css",
    "map_js",
    "marker_js",
    "missing_map_files",
]

Scale = Literal["110m", "50m"]
"""Natural Earth at 1:110 million (the world) or 1:50 million (a country)."""

_HERE = Path(__file__).parent
_VENDOR = _HERE / "vendor"


def missing_map_files() -> list[str]:
    """Return the names of the vendored files of maps that are missing.

    Returns
    -------
    list of str
        Empty if maps work without a network.
    """
    vendor = json.loads((_HERE / "package.json").read_text("utf-8"))["vendor"]
    return sorted(name for name in vendor if not (_VENDOR / name).is_file())


def leaflet_js() -> str:
    """Return Leaflet as the text of a ``<script>`` element."""
    return _script("leaflet.js")


def heat_js() -> str:
    """Return Leaflet.heat as the text of a ``<script>`` element that follows Leaflet's."""
    return _script("leaflet-heat.js")


def marker_js() -> str:
    """Return a script that sets the images of Leaflet's default marker to data addresses.

    Leaflet reads the folder of its images from its style sheet, where :func:`leaflet_css` leaves none.
    """
    images = {
        "iconUrl": _data_address("marker-icon.png"),
        "iconRetinaUrl": _data_address("marker-icon-2x.png"),
        "shadowUrl": _data_address("marker-shadow.png"),
    }
    return f"delete L.Icon.Default.prototype._getIconUrl;\nL.Icon.Default.mergeOptions({json.dumps(images)});"


def leaflet_css() -> str:
    """Return Leaflet's style sheet, with its images as data addresses."""
    css = _vendored_text("leaflet.css")
    return re.sub(r"url\(images/([\w.-]+)\)", lambda match: f"url({_data_address(match[1])})", css)


def map_js() -> str:
    """Return mudkit's own script, which draws land, cells, points, heat and legends."""
    return (_HERE / "map.js").read_text("utf-8")


def map_css() -> str:
    """Return the style sheet of a map's page."""
    return (_HERE / "map.css").read_text("utf-8")


def land_topology(scale: Scale = "110m") -> dict[str, Any]:
    """Return Natural Earth as TopoJSON, with the objects ``land`` and ``countries``."""
    topology: dict[str, Any] = json.loads(_vendored(f"countries-{scale}.json"))
    return topology


def _vendored(name: str) -> bytes:
    """Return the bytes of a vendored file; EnvironmentProblem if it is missing."""
    try:
        return (_VENDOR / name).read_bytes()
    except OSError as error:
        raise EnvironmentProblem(
            "A file that maps are made of is missing.",
            where=str(_VENDOR / name),
            found=error.strerror,
            remedy="run `make setup`, or `python tools/fetch_assets.py`, in the checkout of mudkit",
        ) from error


def _vendored_text(name: str) -> str:
    """Return a vendored file as text, with line ends of one kind."""
    return _vendored(name).decode("utf-8").replace("\r\n", "\n")


def _script(name: str) -> str:
    """Return a vendored script so that it can stand in a ``<script>`` element."""
    text = _vendored_text(name)
    text = re.sub(r"\n//# sourceMappingURL=.*", "", text)
    return text.replace("</script", r"<\/script")  # which would end the element, even within a string


def _data_address(name: str) -> str:
    """Return a vendored PNG as a data address."""
    return "data:image/png;base64," + base64.b64encode(_vendored(name)).decode("ascii")
