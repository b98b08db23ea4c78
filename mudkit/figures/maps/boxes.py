"""What answers hold: the boxes of reads on a flat map, and a point that one of them lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import plotly.graph_objects as go

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["boxes"]

_NEEDED: Final = ("name", "x_km", "y_km", "box_km", "is_asked")


def boxes(table: pd.DataFrame, *, title: str, lacking: tuple[float, float, str] | None = None) -> go.Figure:
    """Draw squares: what is asked for, and what cached answers hold.

    Parameters
    ----------
    table : pandas.DataFrame
        ``name``, ``x_km, y_km`` (the middle), ``box_km`` (the side), ``is_asked``.
    title : str
    lacking : (float, float, str), optional
        A point that is missing, east and north in km, and what it is.

    Raises
    ------
    ParameterError
        The table lacks a column.
    """
    if missing := [name for name in _NEEDED if name not in table.columns]:
        raise ParameterError(
            "The table lacks a column.",
            where="table",
            found=", ".join(map(str, table.columns)),
            expected=", ".join(missing),
        )
    figure = go.Figure()
    for row in table.to_dict("records"):
        half = row["box_km"] / 2
        x, y = (
            [row["x_km"] + sign * half for sign in (-1, 1)],
            [row["y_km"] + sign * half for sign in (-1, 1)],
        )
        colour, dash = (ORANGE, "solid") if row["is_asked"] else (BLUE, "dash")
        figure.add_trace(
            go.Scatter(
                x=[x[0], x[1], x[1], x[0], x[0]],
                y=[y[0], y[0], y[1], y[1], y[0]],
                name=str(row["name"]),
                mode="lines",
                line={"color": colour, "width": 2, "dash": dash},
                fill="toself",
                fillcolor="rgba(213,94,0,0.10)" if row["is_asked"] else "rgba(0,114,178,0.10)",
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[row["x_km"]],
                y=[row["y_km"]],
                mode="markers",
                marker={"size": 9, "color": colour},
                hovertext=str(row["name"]),
                hoverinfo="text",
                showlegend=False,
            )
        )
    if lacking is not None:
        figure.add_trace(
            go.Scatter(
                x=[lacking[0]],
                y=[lacking[1]],
                name=lacking[2],
                mode="markers",
                marker={"size": 14, "symbol": "x", "color": "black", "line": {"color": GREY, "width": 1}},
            )
        )
    figure.update_xaxes(title_text="east, km")
    figure.update_yaxes(title_text="north, km", scaleanchor="x", scaleratio=1)
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        template=template(),
        height=440,
        margin={"l": 60, "r": 20, "t": 60, "b": 50},
    )
    return figure
