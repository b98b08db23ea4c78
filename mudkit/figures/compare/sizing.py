"""Waste and loss over a setting, and where the best value lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, ORANGE
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["tradeoff"]

_MEASURES = (
    ("waste", ORANGE, "circle", "solid", "rgba(213, 94, 0, 0.15)"),
    ("loss", BLUE, "square", "dash", "rgba(0, 114, 178, 0.15)"),
)


def tradeoff(table: pd.DataFrame, *, x: str, best: object, title: str, unit: str) -> go.Figure:
    """Draw waste and loss over the values of a setting, at even distances, and mark the best value.

    Parameters
    ----------
    table : pandas.DataFrame
        The rows in the order of the values: ``waste, waste_low, waste_high, loss, loss_low, loss_high``,
        shares from 0 to 1, and the column ``x``. Bands are the intervals; none where they are not known.
    x : str
        Column of the values, as they stand at the axis.
    best : object
        One of them.
    title : str
    unit : str
        What stands at the axis of values.

    Raises
    ------
    ParameterError
        The table lacks a column or the best value.
    """
    ends = [f"{measure}{end}" for measure, *_ in _MEASURES for end in ("", "_low", "_high")]
    if missing := [name for name in (x, *ends) if name not in table.columns]:
        raise ParameterError(
            "The table lacks a column.",
            where="table",
            found=", ".join(map(str, table.columns)),
            expected=", ".join(missing),
        )
    values = table[x].tolist()
    if best not in values:
        raise ParameterError(
            "The best value is not in the table.",
            where="best",
            found=repr(best),
            expected=", ".join(map(str, values)),
        )
    places, figure = list(range(len(values))), go.Figure()
    for measure, colour, symbol, dash, band in _MEASURES:
        low, high = (100 * table[f"{measure}{end}"] for end in ("_low", "_high"))
        if low.notna().all():
            figure.add_trace(
                go.Scatter(
                    x=[*places, *places[::-1]],
                    y=[*high, *low[::-1]],
                    fill="toself",
                    fillcolor=band,
                    line={"width": 0},
                    hoverinfo="skip",
                    showlegend=False,
                    name=f"{measure}, 95 % interval",
                )
            )
        figure.add_trace(
            go.Scatter(
                x=places,
                y=100 * table[measure],
                name=measure,
                mode="lines+markers",
                line={"color": colour, "dash": dash},
                marker={"symbol": symbol, "size": 8},
                customdata=[str(value) for value in values],
                hovertemplate="%{customdata}: %{y:.2f} %",
            )
        )
    figure.add_vline(
        x=values.index(best),
        line={"color": "#444444", "width": 1, "dash": "dot"},
        annotation={"text": f"recommended: {best}", "font": {"size": 12}, "yanchor": "bottom", "y": 1.0},
        annotation_position="top",
    )
    figure.update_xaxes(
        title_text=unit,
        tickvals=places,
        ticktext=[str(value) for value in values],
        range=[-0.4, len(values) - 0.6],
    )
    figure.update_yaxes(title_text="%", rangemode="tozero")
    figure.update_layout(
        title={"text": title, "font": {"size": 16}, "y": 0.97, "yanchor": "top"},
        template=template(),
        height=400,
        margin={"l": 70, "r": 20, "t": 90, "b": 60},
        hovermode="x unified",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
    )
    return figure
