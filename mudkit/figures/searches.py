"""Searches: the rules that were tried, and which of them are allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mudkit import words
from mudkit.figures.alternative import described
from mudkit.figures.style import INK, ORANGE, colour_steps, styled
from mudkit.figures.tables import require_columns

if TYPE_CHECKING:
    from mudkit.learning import FixedRule

__all__ = ["rule_search"]

_COLUMNS: Final = ("km", "minutes", "sent_share", "stale_share", "is_allowed")
_MARGIN: Final = (80, 20, 60, 60)
_ROW_PX, _MARGINS_PX = 38, 130


@described
def rule_search(table: pd.DataFrame, *, rule: FixedRule, best: FixedRule, title: str) -> go.Figure:
    """Draw the share of reads that rules of many distances and ages send, as a grid.

    Parameters
    ----------
    table : pandas.DataFrame
        As :func:`mudkit.learning.search.search_rules` returns it: ``km, minutes, sent_share, stale_share,
        is_allowed``. Rules that are not allowed are left empty; their share of stale answers is in brackets.
    rule, best : FixedRule
        The rule in use and the best one, which are framed.
    title : str
        Title of the figure.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        The table lacks a column.
    """
    require_columns(table, "table", _COLUMNS)
    km, minutes = sorted(set(table["km"])), sorted(set(table["minutes"]))
    sent, stale, allowed = (
        table.pivot(index="km", columns="minutes", values=name).loc[km, minutes].to_numpy(dtype=np.float64)
        for name in ("sent_share", "stale_share", "is_allowed")
    )
    percent, stale = np.where(allowed == 1, 100 * sent, np.nan), 100 * stale
    ages, distances = [words.duration(60 * age) for age in minutes], [f"{words.number(d)} km" for d in km]
    figure = go.Figure(
        go.Heatmap(
            z=percent,
            x=ages,
            y=distances,
            xgap=2,
            ygap=2,
            colorscale=colour_steps(),
            colorbar={"title": {"text": "sent, %"}, "thickness": 12},
            customdata=stale,
            hovertemplate="%{y}, %{x}: %{z:.1f} % sent, %{customdata:.1f} % stale<extra></extra>",
        )
    )
    low, high = np.nanmin(percent, initial=100), np.nanmax(percent, initial=0)
    if not low < high:  # plotly would show shares above 100 %
        figure.data[0].update(zmin=max(high - 1, 0), zmax=max(high, 1))
    for row in range(len(km)):
        for column in range(len(minutes)):
            value = percent[row, column]
            is_shown = np.isfinite(value)
            is_dark = is_shown and value > low + 0.45 * (high - low)
            figure.add_annotation(
                x=ages[column],
                y=distances[row],
                text=f"{value:.0f}" if is_shown else f"({stale[row, column]:.0f} stale)",
                showarrow=False,
                font={"size": 13, "color": ("#ffffff" if is_dark else "#111111") if is_shown else INK},
            )
    for framed, dash in ((rule, "dot"), (best, "solid")):
        if framed.km in km and framed.minutes in minutes:
            x, y = minutes.index(framed.minutes), km.index(framed.km)
            figure.add_shape(
                type="rect",
                x0=x - 0.5,
                x1=x + 0.5,
                y0=y - 0.5,
                y1=y + 0.5,
                fillcolor="rgba(0,0,0,0)",
                line={"color": ORANGE, "width": 4, "dash": dash},
            )
    figure.update_xaxes(title_text="largest age of the cached answer", type="category", showgrid=False)
    figure.update_yaxes(title_text="largest distance", type="category", showgrid=False)
    return styled(figure, _MARGINS_PX + _ROW_PX * len(km), _MARGIN, title)
