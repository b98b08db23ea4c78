"""Measures of a fleet by day, while the cloud learns policies and people change what they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit.display import INK
from mudkit.errors import ParameterError
from mudkit.figures.alternative import described
from mudkit.figures.style import BLUE, GREY, LEGEND_BELOW, TEXT_PX, escaped, heading, styled, text_colour
from mudkit.figures.tables import require_columns

_COLUMNS: Final = ("day", "reports", "policy_in_use", "sent_share", "stale_share", "radio_j")
_PANELS: Final = (
    ("sent_share", 100.0, "asked, % of reads"),
    ("stale_share", 100.0, "stale, % of reads"),
    ("radio_j", 1e-3, "radio, kJ"),
)
_ROOM: Final = 0.4
"""Part of a day beside the first and the last point."""
_LOOKS: Final = ((GREY, "dot", "circle-open"), (BLUE, "solid", "circle"))


@described
def learning_days(runs: Mapping[str, pd.DataFrame], *, max_stale_share: float, title: str) -> go.Figure:
    """Draw sent reads, stale answers and energy by day, of a fleet that learns beside one that does not.

    Parameters
    ----------
    runs : mapping of str to pandas.DataFrame
        Two tables as :meth:`mudkit.worlds.LearningDays.run` returns them, by the name of the fleet: the one
        that learns is the second. Its policies are named where they change, and a line is drawn where cars
        report at other times.
    max_stale_share : float
        Largest share of stale answers that the learner allows, from 0 to 1: a dashed line.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        There are not two tables, or one lacks a column.
    """
    if len(runs) != len(_LOOKS):
        raise ParameterError(
            "The figure compares two fleets.",
            where="runs",
            found=f"{len(runs)} tables",
            expected="2 tables, the second of the fleet that learns",
        )
    for name, table in runs.items():
        require_columns(table, name, _COLUMNS)
    figure = make_subplots(rows=len(_PANELS), cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for (name, table), (colour, dash, symbol) in zip(runs.items(), _LOOKS, strict=True):
        for row, (measure, scale, label) in enumerate(_PANELS, start=1):
            line = go.Scatter(
                x=table["day"], y=scale * table[measure], name=name, meta=label, legendgroup=name,
                showlegend=row == 1, mode="lines+markers", line={"color": colour, "dash": dash},
                marker={"symbol": symbol, "size": 8}, customdata=table["policy_in_use"], cliponaxis=False,
                hovertemplate="day %{x}: %{y:.1f}, %{customdata}<extra>" + escaped(name) + "</extra>",
            )  # fmt: skip
            figure.add_trace(line, row, 1)
    learning = list(runs.values())[1]
    for row, (measure, scale, label) in enumerate(_PANELS, start=1):
        most = max(scale * float(table[measure].max()) for table in runs.values())
        top = 1.25 * most or 1.0
        figure.update_yaxes(
            title_text=label, range=[0, min(top, 100.0) if "%" in label else top], row=row, col=1
        )
    figure.add_hline(y=100 * max_stale_share, line={"color": INK, "dash": "dash", "width": 1}, row=2, col=1)
    note: dict[str, Any] = {"showarrow": False, "font": {"size": TEXT_PX}, "row": 2, "col": 1}
    last = learning["day"].max() + _ROOM
    limit = "limit of the learner"
    figure.add_annotation(x=last, y=100 * max_stale_share, text=limit, xanchor="right", yshift=10, **note)
    _name_policies(figure, learning)
    changed = learning[learning["reports"] != learning["reports"].shift()].iloc[1:]
    for day, reports in zip(changed["day"] - 0.5, changed["reports"].map(str), strict=True):
        figure.add_vline(x=day, line={"color": INK, "dash": "dot", "width": 1})
        place = {"x": day, "xanchor": "right", "xshift": -6, "y": 0.98, "yref": "y2 domain"}
        figure.add_annotation(text=f"cars report {escaped(reports)}", **place, **note)
    figure.update_xaxes(dtick=1, range=[learning["day"].min() - _ROOM, last])
    figure.update_xaxes(title_text="day", row=len(_PANELS), col=1)
    return styled(figure, 560, (70, 20, 70, 90), heading(title, y=0.98, yanchor="top"), legend=LEGEND_BELOW)


def _name_policies(figure: go.Figure, learning: pd.DataFrame) -> None:
    """Write the name of a policy below its first day: the line of the other fleet is mostly above."""
    changed = learning[learning["policy_in_use"] != learning["policy_in_use"].shift()]
    for row in changed.to_dict("records"):
        figure.add_annotation(
            x=row["day"],
            y=100 * row["sent_share"],
            text=escaped(str(row["policy_in_use"])),
            showarrow=False,
            yshift=-14,
            font={"size": TEXT_PX, "color": text_colour(BLUE)},
            row=1,
            col=1,
        )
