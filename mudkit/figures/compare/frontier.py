"""What policies send against how often they answer stale: a curve of trees, the bound, and points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["frontier"]

_NEEDED: Final = ("sent_share", "stale_share")
_SYMBOLS: Final = ("square", "triangle-up", "diamond", "x", "star", "cross")
_COLOURS: Final = (ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "black")
_TOLD: Final = "%{x:.1f} % sent, %{y:.1f} % stale"


def frontier(
    trees: pd.DataFrame, bound: pd.DataFrame, policies: pd.DataFrame, *, title: str, most: float | None = None
) -> go.Figure:
    """Draw the trees for all prices as a line, the bound as another, and policies as points.

    Nearer to the lower left is better, and nothing can be left of the bound.

    Parameters
    ----------
    trees : pandas.DataFrame
        ``sent_share, stale_share``, as ``learning.frontier.read_frontier`` gives them.
    bound : pandas.DataFrame
        The same columns.
    policies : pandas.DataFrame
        ``policy`` and the same columns.
    title : str
    most : float, optional
        The largest share of stale answers that is shown.

    Raises
    ------
    ParameterError
        A table lacks a column.
    """
    for name, table, needed in (
        ("trees", trees, _NEEDED),
        ("bound", bound, _NEEDED),
        ("policies", policies, ("policy", *_NEEDED)),
    ):
        if missing := [each for each in needed if each not in table.columns]:
            raise ParameterError(
                "The table lacks a column.",
                where=name,
                found=", ".join(map(str, table.columns)),
                expected=", ".join(missing),
            )
    figure = go.Figure()
    _line(figure, bound, "bound: nobody sends less", {"color": GREY, "dash": "dash"}, "circle-open")
    _line(figure, trees, "trees, a price each", {"color": BLUE}, "circle")
    for place, row in enumerate(policies.to_dict("records")):
        figure.add_trace(
            go.Scatter(
                x=[100 * row["sent_share"]],
                y=[100 * row["stale_share"]],
                name=str(row["policy"]),
                mode="markers",
                hovertemplate=f"{_TOLD}<extra>{row['policy']}</extra>",
                marker={
                    "size": 13,
                    "symbol": _SYMBOLS[place % len(_SYMBOLS)],
                    "color": _COLOURS[place % len(_COLOURS)],
                },
            )
        )
    figure.update_xaxes(title_text="queries sent, % of reads", rangemode="tozero")
    figure.update_yaxes(title_text="stale answers, % of reads", rangemode="tozero")
    if most is not None:
        figure.update_yaxes(range=[-100 * most / 40, 100 * most])
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        template=template(),
        height=420,
        margin={"l": 70, "r": 20, "t": 60, "b": 60},
        legend={"x": 1, "xanchor": "right", "y": 1, "yanchor": "top", "bgcolor": "rgba(255,255,255,0.7)"},
    )
    return figure


def _line(figure: go.Figure, table: pd.DataFrame, name: str, line: dict[str, Any], symbol: str) -> None:
    rows = table.sort_values(["stale_share", "sent_share"], ascending=[True, False])
    figure.add_trace(
        go.Scatter(
            x=100 * rows["sent_share"],
            y=100 * rows["stale_share"],
            name=name,
            mode="lines+markers",
            line=line,
            marker={"size": 6, "symbol": symbol},
            hovertemplate=f"{_TOLD}<extra>{name}</extra>",
        )
    )
