"""Plotly charts of tables; axes carry their units, colours are told apart by colour-blind readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BLUE", "GREY", "ORANGE", "growth", "histogram", "policies", "rows_over_time", "shares"]

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"
"""From the palette of Okabe and Ito."""


def _styled(figure: go.Figure, title: str, height_px: int = 380) -> go.Figure:
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        template=template(),
        height=height_px,
        margin={"l": 70, "r": 20, "t": 60, "b": 60},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    return figure


def rows_over_time(table: pd.DataFrame, *, title: str, tz: str) -> go.Figure:
    """Draw positions and reads over time, one above the other.

    Parameters
    ----------
    table : pandas.DataFrame
        ``start, positions, reads``.
    title : str
    tz : str
        Time zone of ``start``, for the axis.
    """
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    for row, (name, colour) in enumerate((("positions", BLUE), ("reads", ORANGE)), start=1):
        figure.add_trace(
            go.Bar(x=table["start"], y=table[name], name=name, marker_color=colour, showlegend=False), row, 1
        )
        figure.update_yaxes(title_text=f"{name} an hour", rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title_text=f"hour, {tz}", row=2, col=1)
    figure.update_layout(bargap=0)
    return _styled(figure, title, 440)


def histogram(table: pd.DataFrame, *, title: str, unit: str) -> go.Figure:
    """Draw counts in bins that double.

    Parameters
    ----------
    table : pandas.DataFrame
        ``from_s, to_s`` and one column of counts, the last.
    title, unit : str
        ``unit`` names what is binned, for the axis.
    """
    counts = table.columns[-1]
    labels = [f"{low:g}–{high:g}" for low, high in zip(table["from_s"], table["to_s"], strict=True)]
    figure = go.Figure(go.Bar(x=labels, y=table[counts], marker_color=BLUE))
    figure.update_xaxes(title_text=unit, type="category")
    figure.update_yaxes(title_text=counts, rangemode="tozero")
    return _styled(figure, title)


def policies(table: pd.DataFrame, *, title: str) -> go.Figure:
    """Draw policies by what they send and how often they answer stale; nearer to the lower left is better.

    Parameters
    ----------
    table : pandas.DataFrame
        As ``learning.evaluate_reads`` gives it.
    title : str
    """
    figure = go.Figure()
    for number, row in enumerate(table.to_dict("records")):
        bound = str(row["policy"]).startswith("bound")
        figure.add_trace(
            go.Scatter(
                x=[100 * row["sent_share"]],
                y=[100 * row["stale_share"]],
                error_x=_error(row, "sent_share"),
                error_y=_error(row, "stale_share"),
                name=str(row["policy"]),
                mode="markers",
                marker={
                    "size": 13,
                    "symbol": ["circle", "square", "triangle-up", "diamond", "x"][number % 5],
                    "color": GREY if bound else (BLUE, ORANGE, "#009E73", "#CC79A7")[number % 4],
                },
            )
        )
    figure.update_xaxes(title_text="queries sent, % of reads", rangemode="tozero")
    figure.update_yaxes(title_text="stale answers, % of reads", rangemode="tozero")
    return _styled(figure, title, 420)


def growth(table: pd.DataFrame, *, title: str, x: str, y: str, by: str) -> go.Figure:
    """Draw lines on two logarithmic axes: what grows in proportion has a slope of one.

    Parameters
    ----------
    table : pandas.DataFrame
        A row a point.
    title : str
    x, y : str
        Columns of positive numbers; their names stand at the axes, units included.
    by : str
        Column that names the lines; those that begin with ``the paper`` are grey and dashed.
    """
    figure = go.Figure()
    for number, (name, line) in enumerate(table.groupby(by, sort=False)):
        of_paper = str(name).startswith("the paper")
        figure.add_trace(
            go.Scatter(
                x=line[x],
                y=line[y],
                name=str(name),
                mode="lines+markers",
                line={"dash": "dash" if of_paper else "solid"},
                marker={
                    "size": 9,
                    "symbol": ["circle", "square", "triangle-up", "diamond", "x"][number % 5],
                    "color": GREY if of_paper else (BLUE, ORANGE, "#009E73", "#CC79A7")[number % 4],
                },
            )
        )
    figure.update_xaxes(title_text=x.replace("_", " "), type="log", dtick=1, exponentformat="power")
    figure.update_yaxes(title_text=y.replace("_", " "), type="log", dtick=1, exponentformat="power")
    return _styled(figure, title, 440)


def shares(table: pd.DataFrame, *, title: str, x: str, y: str) -> go.Figure:
    """Draw a bar from left to right for each row, the first one on top, with its share beside it.

    Parameters
    ----------
    table : pandas.DataFrame
    title : str
    x : str
        Column of shares between 0 and 1; its name stands at the axis, which is in percent.
    y : str
        Column that names the bars.
    """
    percent = 100 * table[x]
    figure = go.Figure(
        go.Bar(
            x=percent,
            y=table[y],
            orientation="h",
            marker_color=BLUE,
            textposition="outside",
            text=[f"{value:.0f} %" for value in percent],
            cliponaxis=False,
        )
    )
    figure.update_xaxes(title_text=f"{x.replace('_', ' ')}, %", range=[0, 108])
    figure.update_yaxes(autorange="reversed", automargin=True, ticks="")
    return _styled(figure, title, 120 + 28 * max(len(table), 3))


def _error(row: Mapping[Any, Any], name: str) -> dict[str, object]:
    half = 100 * (row[f"{name}_high"] - row[name])
    return {"type": "data", "array": [half], "visible": half == half and half > 0, "thickness": 1}
