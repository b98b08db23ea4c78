"""Template, colours and number formats that all figures share."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
from numpy.typing import NDArray

from mudkit import words
from mudkit.display import INK
from mudkit.errors import ParameterError

BLUE, ORANGE, GREY, GREEN, PINK = "#0072B2", "#D55E00", "#999999", "#009E73", "#CC79A7"
SKY, YELLOW = "#56B4E9", "#E69F00"
"""From the palette of Okabe and Ito, which colour-blind readers can tell apart."""

SEQUENCE: Final = ("#f4e61e", "#b4de2c", "#6dcd59", "#35b779", "#1f9e89", "#26828e", "#31688e")
"""Viridis (S. van der Walt, N. Smith; CC0) from light to dark, without the purple that dark grounds hide."""

_TEXT: Final = {
    BLUE: "#0081c9",
    ORANGE: "#ca5a00",
    GREEN: "#008d65",
    PINK: "#bf5790",
    SKY: "#1982bd",
    YELLOW: "#a47200",
    GREY: "#7b7b7b",
}
"""Text in a colour of the palette, at the lightness of :data:`INK`."""

_MID_LUMINANCE: Final = 0.179
"""Relative luminance at which black and white have the same contrast, 4.6:1."""

_FONT: Final = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
_FAINT: Final = "rgba(128,128,128,0.25)"
_CLEAR: Final = "rgba(0,0,0,0)"

NO_VALUE: Final = "#c4c7ca"
"""Grey of a missing value."""

PLOTLY_CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "plotlyServerURL": "",
    "showEditInChartStudio": False,
    "showLink": False,
    "showSendToCloud": False,
}
"""Configuration of plotly without any button that uploads a figure."""

LEGEND_ABOVE: Final = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1, "xanchor": "right"}
LEGEND_BELOW: Final = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0}
"""Places of a legend in one row: above the plot at its right end, and at the lower edge of the figure."""

_UPLOADS: Final = ["sendChartToCloud", "sendDataToCloud", "editInChartStudio"]
_SHADES: Final = 64

TEXT_PX: Final = 13
"""Size of all text but headings; no text is smaller."""


@functools.cache
def template() -> go.layout.Template:
    """Return the template of all figures: no ground, grey text, no button that uploads.

    A page that knows its theme may make the text darker or lighter; without that it is legible on both. It is
    built once, which takes as long as a figure; each figure has its own copy.
    """
    shared = go.layout.Template(pio.templates["simple_white"])
    axis = {
        "linecolor": INK,
        "tickcolor": INK,
        "gridcolor": _FAINT,
        "zerolinecolor": _FAINT,
        "automargin": True,
        "exponentformat": "none",
        "title": {"font": {"size": 14}},
    }
    shared.data.bar[0].marker.line.width = 0  # it would be white
    shared.layout.update(
        paper_bgcolor=_CLEAR,
        plot_bgcolor=_CLEAR,
        font={"family": _FONT, "size": TEXT_PX, "color": INK},
        colorway=[BLUE, ORANGE, GREEN, PINK, SKY, YELLOW, INK],
        xaxis=axis,
        yaxis=axis,
        legend={"bgcolor": _CLEAR},
        # Buttons are light under the pointer in both themes, so their text is grey in both.
        updatemenudefaults={
            "bgcolor": _CLEAR,
            "bordercolor": INK,
            "font": {"color": INK},
            "showactive": False,
        },
        sliderdefaults={"bgcolor": INK, "bordercolor": INK, "activebgcolor": BLUE, "tickcolor": INK},
        hoverlabel={"bgcolor": "#3a3f47", "bordercolor": INK, "font": {"color": "#ffffff", "family": _FONT}},
        modebar={"remove": _UPLOADS, "bgcolor": _CLEAR, "color": INK, "activecolor": BLUE},
    )
    return shared


def text_colour(colour: str) -> str:
    """Return the colour of a text that belongs to a mark of this colour: legible on light and dark."""
    return _TEXT.get(colour, colour)


def ink_on(colour: str) -> str:
    """Return black or white for a text on a colour: the one of more contrast."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > _MID_LUMINANCE else "#ffffff"


def heading(text: str, subtitle: str | None = None, **place: Any) -> dict[str, Any]:
    """Return the title of a figure as plotly's layout takes it."""
    below = {} if subtitle is None else {"subtitle": {"text": subtitle, "font": {"size": TEXT_PX}}}
    return {"text": text, "font": {"size": 16}} | below | place


def styled(
    figure: go.Figure, height_px: float, margin: tuple[int, int, int, int], title: Any = None, **layout: Any
) -> go.Figure:
    """Apply template, height, margins (left, right, top, bottom; px) and title to a figure."""
    if title is not None:
        layout["title"] = heading(title) if isinstance(title, str) else title
    sides = dict(zip("lrtb", margin, strict=True))
    return figure.update_layout(template=template(), height=height_px, margin=sides, **layout)


def dots(lon: Any, lat: Any, size_px: float = 2, opacity: float = 0.5) -> go.Scatter:
    """Return grey dots without texts, the ground of a map."""
    return go.Scatter(
        x=lon, y=lat, mode="markers", hoverinfo="skip", showlegend=False,
        marker={"size": size_px, "color": GREY, "opacity": opacity},
    )  # fmt: skip


def span_of(values: Any, margin: float = 0.05) -> list[float]:
    """Return an axis range for nearly all of some degrees, with a margin as a share of it on both sides."""
    low, high = (float(np.quantile(values, share)) for share in (0.002, 0.998))
    room = max(high - low, 0.01) * margin
    return [low - room, high + room]


def map_axes(figure: go.Figure, middle_lat: float, x: Any = None, y: Any = None, **both: Any) -> None:
    """Set titles, ranges and one scale for axes in degrees of longitude and latitude."""
    stretch = 1 / float(np.cos(np.radians(middle_lat)))
    figure.update_xaxes(title_text="longitude, °", range=x, constrain="domain", **both)
    figure.update_yaxes(
        title_text="latitude, °", range=y, scaleanchor="x", scaleratio=stretch, constrain="domain", **both
    )


def lanes(names: Sequence[str], top: float, bottom: float) -> dict[str, Any]:
    """Return the layout of an axis with a named row for each lane, the first one at the top."""
    places = list(range(len(names)))
    return {"tickvals": places, "ticktext": list(names), "range": [len(names) - bottom, top], "ticks": ""}


def ramp(shades: int) -> list[str]:
    """Return evenly spaced colours of the sequence, the lightest first, as ``#rrggbb``."""
    stops = np.array([[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in SEQUENCE], dtype=float)
    places = np.linspace(0.0, len(SEQUENCE) - 1, shades)
    parts = [np.interp(places, np.arange(len(stops)), part).round().astype(int).tolist() for part in stops.T]
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in zip(*parts, strict=True)]


def colour_steps(colours: Any = SEQUENCE) -> list[list[Any]]:
    """Return colours as a continuous scale of plotly, evenly spaced."""
    return [[at / (len(colours) - 1), colour] for at, colour in enumerate(colours)]


def natural_key(name: str) -> list[tuple[int, str]]:
    """Return the sort key that orders car9 before car10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def escaped(text: str) -> str:
    """Escape a text so that plotly does not read it as HTML."""
    return html.escape(text, quote=False)


@dataclass(frozen=True)
class ColourScale:
    """Linear colour scale of a map; values beyond its ends have the colour of the end."""

    low: float
    high: float

    @classmethod
    def of(cls, values: NDArray[np.float64], limits: tuple[float, float] | None = None) -> ColourScale:
        """Build the scale of some values, NaN apart, or of given limits."""
        finite = values[np.isfinite(values)]
        if limits is None:
            limits = (float(finite.min()), float(finite.max())) if finite.size else (1.0, 1.0)
        low, high = (float(limit) for limit in limits)
        if not (np.isfinite([low, high]).all() and low <= high):
            raise ParameterError(
                "The limits of a colour scale are not an interval.",
                where="limits",
                found=f"({low:g}, {high:g})",
                expected="low <= high",
            )
        return cls(low, high)

    def shades(self, values: NDArray[np.float64]) -> list[int]:
        """Return the index in :meth:`colours` of each value; the last index is for missing values."""
        finite = np.isfinite(values)
        if self.high > self.low:
            share = np.clip(
                (np.where(finite, values, self.low) - self.low) / (self.high - self.low), 0.0, 1.0
            )
        else:
            share = np.full(len(values), 0.5)
        shade = np.round(share * (_SHADES - 1)).astype(int)
        return [int(place) for place in np.where(finite, shade, _SHADES)]

    def colours(self) -> list[str]:
        """Return all colours of the scale, then that of missing values."""
        return [*ramp(_SHADES), NO_VALUE]

    def ticks(self) -> list[tuple[float, str]]:
        """Return places on a legend (0 to 1) and the numbers at them."""
        if self.high == self.low:
            return [(0.5, words.number(self.low))]
        middle = (self.low + self.high) / 2
        return [(0.0, words.number(self.low)), (0.5, words.number(middle)), (1.0, words.number(self.high))]
