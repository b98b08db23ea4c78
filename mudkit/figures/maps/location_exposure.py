"""Where a device was, what of it left the device, and what a relay can tell from when something came."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray
from plotly.subplots import make_subplots

from mudkit.errors import TraceContentError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.clock import needed
from mudkit.figures.base.template import template
from mudkit.units import KM_PER_DEGREE

__all__ = ["location_exposure"]

_STATES = {"stayed on the device": (GREY, "circle-open"), "left the device": (BLUE, "circle")}
"""How places are drawn: colour and symbol."""


def location_exposure(
    places: pd.DataFrame, area: tuple[float, float, float, float], *, title: str = ""
) -> go.Figure:
    """Draw the places that a device has published, and below them two strips of the same time.

    Parameters
    ----------
    places : pandas.DataFrame
        A row a place: ``at`` (time), ``lat, lon`` (degrees), ``away`` (outside of the area), ``left`` (the
        device).
    area : (float, float, float, float)
        South, west, north, east, degrees.
    title : str

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        It has no row.
    """
    places = needed(places, "places", ("at", "lat", "lon", "away", "left"))
    if not len(places):
        raise TraceContentError(
            "There is no place to draw.", where="places", found="no rows", expected="a row for each place"
        )
    south, west, north, east = area
    middle = (south + north) / 2, (west + east) / 2
    scale = np.array([KM_PER_DEGREE, KM_PER_DEGREE * np.cos(np.radians(middle[0]))])

    def km(lat: ArrayLike, lon: ArrayLike) -> NDArray[np.float64]:
        degrees = np.stack([np.asarray(lat, np.float64), np.asarray(lon, np.float64)], axis=-1)
        return np.asarray((degrees - np.array(middle)) * scale)

    figure = make_subplots(
        rows=1,
        cols=2,
        column_widths=[0.45, 0.55],
        horizontal_spacing=0.16,
        subplot_titles=("where the child was", "what happened, and what the relay can see"),
    )
    corners = km([south, south, north, north, south], [west, east, east, west, west])
    figure.add_trace(
        go.Scatter(
            x=corners[:, 1],
            y=corners[:, 0],
            mode="lines",
            name="the area",
            hoverinfo="skip",
            line={"color": "#333333", "width": 2},
        )
    )
    at = km(places["lat"], places["lon"])
    left = places["left"].to_numpy(bool)
    for (name, (colour, symbol)), chosen in zip(_STATES.items(), (~left, left), strict=True):
        figure.add_trace(
            go.Scatter(
                x=at[chosen, 1],
                y=at[chosen, 0],
                mode="markers",
                name=f"{name}: {chosen.sum():,}",
                marker={"size": 5, "color": colour, "symbol": symbol},
                text=[f"{each:%H:%M}" for each in places["at"][chosen].tolist()],
                hovertemplate="%{text} UTC<extra></extra>",
            )
        )
    for column, lane, name, colour in (("away", 1.0, "away", ORANGE), ("left", 0.0, "something came", BLUE)):
        shown = places["at"][places[column].to_numpy(bool)]
        figure.add_trace(go.Scatter(
            x=shown, y=np.full(len(shown), lane), mode="markers", name=name, showlegend=False,
            marker={"symbol": "line-ns", "size": 34, "line": {"width": 2, "color": colour}},
            hovertemplate="%{x|%H:%M} UTC<extra>" + name + "</extra>",
        ), 1, 2)  # fmt: skip
    figure.update_xaxes(title_text="km east of the middle", row=1, col=1)
    figure.update_yaxes(title_text="km north", scaleanchor="x", scaleratio=1, row=1, col=1)
    span = places["at"].agg(["min", "max"]).tolist()
    figure.update_xaxes(title_text="time, UTC", range=span, row=1, col=2)
    figure.update_yaxes(
        tickvals=[1, 0],
        ticktext=["the child<br>is away", "the relay gets<br>something"],
        range=[-0.8, 1.8],
        showline=False,
        ticks="",
        row=1,
        col=2,
    )
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        template=template(),
        height=430,
        margin={"l": 70, "r": 20, "t": 90, "b": 110},
        legend={"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0},
    )
    return figure
