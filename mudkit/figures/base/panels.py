"""Bars of several measures side by side: the same rows in each panel, each panel with a unit of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, ORANGE
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["panels"]

_ROW_PX, _MARGINS_PX = 32, 150


def panels(
    table: pd.DataFrame, measures: Mapping[str, str], *, title: str, y: str, marked: str | None = None
) -> go.Figure:
    """Draw a bar from left to right for each row in a panel for each measure, its number beside it.

    Parameters
    ----------
    table : pandas.DataFrame
        The first row stands on top.
    measures : mapping of str to str
        Columns of numbers, 0 or more, and what stands at their axes, units included.
    title : str
    y : str
        Column that names the rows.
    marked : str, optional
        Column of booleans: these rows are orange, hatched and named with ✗.

    Raises
    ------
    ParameterError
        The table lacks a column.
    """
    wanted = [y, *measures, *([marked] if marked else [])]
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise ParameterError(
            "The table lacks a column.",
            where="table",
            found=", ".join(map(str, table.columns)),
            expected=", ".join(missing),
        )
    bad = table[marked].astype(bool).tolist() if marked else [False] * len(table)
    names = [f"✗ {name}" if off else str(name) for name, off in zip(table[y], bad, strict=True)]
    figure = make_subplots(rows=1, cols=len(measures), shared_yaxes=True, horizontal_spacing=0.06)
    marker = {
        "color": [ORANGE if off else BLUE for off in bad],
        "pattern": {"shape": ["/" if off else "" for off in bad]},
    }
    for place, (measure, words) in enumerate(measures.items(), start=1):
        values = table[measure]
        figure.add_trace(
            go.Bar(
                x=values, y=names, orientation="h", marker=marker, showlegend=False, name=words,
                text=[_short(value) for value in values], textposition="outside", cliponaxis=False,
            ), 1, place,
        )  # fmt: skip
        most = max(float(values.max()), 0.0) if len(values) else 0.0
        figure.update_xaxes(title_text=words, range=[0, 1.35 * most or 1.0], nticks=4, row=1, col=place)
    figure.update_yaxes(autorange="reversed", automargin=True, ticks="")
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        template=template(),
        height=_MARGINS_PX + _ROW_PX * max(len(table), 2),
        margin={"l": 70, "r": 30, "t": 60, "b": 60},
    )
    return figure


def _short(value: Any) -> str:
    return f"{value:,.0f}" if value >= 99.5 or value == int(value) else f"{value:.2g}"
