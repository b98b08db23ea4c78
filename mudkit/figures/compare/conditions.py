"""Policies under several conditions: what is wasted and what is lost, with confidence intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_CONDITIONS", "waste_and_loss"]

_MARKS: Final = (
    (GREY, "circle-open"),
    (BLUE, "circle"),
    (ORANGE, "square"),
    ("#009E73", "diamond"),
    ("#CC79A7", "x"),
)
MAX_CONDITIONS: Final = len(_MARKS)
_MEASURES: Final = {"waste": "wasted, % of what was forwarded", "loss": "lost, % of the best service"}
_ROW_PX, _MARGINS_PX = 58, 150


def waste_and_loss(table: pd.DataFrame, *, title: str) -> go.Figure:
    """Draw waste on the left and loss on the right, a row a policy, a mark a condition.

    Parameters
    ----------
    table : pandas.DataFrame
        ``condition, policy, waste, waste_low, waste_high, loss, loss_low, loss_high``: shares from 0 to 1, as
        ``lasthop.comparing.compare`` gives them. Whiskers are the intervals; none where they are not known.
    title : str

    Raises
    ------
    ParameterError
        The table lacks a column, or has more than :data:`MAX_CONDITIONS` conditions.
    """
    ends = [f"{measure}{end}" for measure in _MEASURES for end in ("", "_low", "_high")]
    if missing := [name for name in ("condition", "policy", *ends) if name not in table.columns]:
        raise ParameterError(
            "The table lacks a column.",
            where="table",
            found=", ".join(map(str, table.columns)),
            expected=", ".join(missing),
        )
    policies, conditions = list(dict.fromkeys(table["policy"])), list(dict.fromkeys(table["condition"]))
    if len(conditions) > MAX_CONDITIONS:
        raise ParameterError(
            "These are too many conditions for one figure.",
            where="table",
            found=f"{len(conditions)}",
            expected=f"{MAX_CONDITIONS} at most",
        )
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.05)
    for number, condition in enumerate(conditions):
        rows = table[table["condition"] == condition]
        # Side by side within the row of the policy, so that whiskers do not lie over each other.
        shift = 0.6 * ((number + 0.5) / len(conditions) - 0.5)
        places = [policies.index(name) + shift for name in rows["policy"]]
        colour, symbol = _MARKS[number]
        hover = f"%{{customdata}}: %{{x:.2f}} %<extra>{condition}</extra>"
        for place, measure in enumerate(_MEASURES, start=1):
            percent, low, high = (100 * rows[f"{measure}{end}"] for end in ("", "_low", "_high"))
            figure.add_trace(
                go.Scatter(
                    x=percent, y=places, mode="markers", name=str(condition), legendgroup=str(condition),
                    showlegend=place == 1, marker={"color": colour, "symbol": symbol, "size": 9},
                    error_x={
                        "array": high - percent, "arrayminus": percent - low, "thickness": 1, "width": 3,
                    },
                    customdata=rows["policy"], hovertemplate=hover,
                ), 1, place,
            )  # fmt: skip
    for place, (measure, words) in enumerate(_MEASURES.items(), start=1):
        most = 100 * float(table[f"{measure}_high"].fillna(table[measure]).max())
        figure.update_xaxes(
            title_text=words, range=[-0.03 * (most or 1), 1.08 * (most or 1)], row=1, col=place
        )
    figure.update_yaxes(
        tickvals=list(range(len(policies))),
        ticktext=[str(name) for name in policies],
        ticks="",
        range=[len(policies) - 0.5, -0.5],
        automargin=True,
        showgrid=False,
        zeroline=False,
    )
    figure.update_layout(
        title={"text": title, "font": {"size": 16}, "y": 0.97, "yanchor": "top"},
        template=template(),
        height=_MARGINS_PX + _ROW_PX * max(len(policies), 2),
        margin={"l": 70, "r": 20, "t": 90, "b": 60},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
    )
    return figure
