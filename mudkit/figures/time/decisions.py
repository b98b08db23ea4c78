"""What policies did with messages over time: a panel a policy, a line a patient, a mark a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.labels import natural
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KINDS", "decisions"]

_COLUMNS: Final = ("t_s", "lane", "what", "told", "is_alarm")
KINDS: Final = {
    "sent whole": ("circle", BLUE, 11),
    "sent in part": ("diamond", "#009E73", 10),
    "held back": ("circle-open", GREY, 7),
    "dropped": ("x-thin-open", GREY, 6),
    "stopped": ("x", "black", 9),
}
"""What may become of a message, and how it is drawn."""
_LANE_PX, _PANEL_PX, _MARGINS_PX = 26, 40, 130


def decisions(
    tables: Mapping[str, pd.DataFrame], *, title: str, wrong: Mapping[str, int] | None = None
) -> go.Figure:
    """Draw each message where its policy decided about it.

    Parameters
    ----------
    tables : mapping of str to pandas.DataFrame
        The decisions by the name of the policy: ``t_s`` (seconds), ``lane`` (of whom it is), ``what`` (one of
        :data:`KINDS`), ``told`` (for the pointer) and ``is_alarm``, which is drawn with a ring around it.
    title : str
    wrong : mapping of str to int, optional
        The row of a policy's table to which a large mark points, by the policy's name.

    Raises
    ------
    ParameterError
        A table lacks a column, or something else became of a message.
    """
    for table in tables.values():
        _check(table)
    lanes = sorted({str(lane) for table in tables.values() for lane in table["lane"]}, key=natural)
    figure = make_subplots(
        rows=len(tables),
        cols=1,
        shared_xaxes=True,
        subplot_titles=list(tables),
        vertical_spacing=min(0.12, 0.5 / max(len(tables), 1)),
    )
    minutes = any(table["t_s"].max() > 600 for table in tables.values())
    scale, unit = (60.0, "minutes") if minutes else (1.0, "seconds")
    shown: set[str] = set()
    for row, (name, table) in enumerate(tables.items(), start=1):
        alarms = table[table["is_alarm"]]
        traces = [
            ("an alarm", alarms, {"symbol": "circle-open", "color": ORANGE, "size": 17, "line": {"width": 2}})
        ]
        for what, (symbol, colour, size) in reversed(KINDS.items()):  # what is sent lies on top
            marker = {
                "symbol": symbol,
                "color": colour,
                "size": size,
                "line": {"width": 1.5, "color": colour},
            }
            traces.append((what, table[table["what"] == what], marker))
        if wrong is not None and name in wrong:
            at = {"symbol": "triangle-down", "color": "black", "size": 13}
            traces.append(("here", table.iloc[[wrong[name]]], at))
        for what, part, marker in traces:
            if not len(part):
                continue
            shift = 0.42 if what == "here" else 0.0  # above the mark that it points to
            figure.add_trace(
                go.Scatter(
                    x=part["t_s"] / scale, y=[lanes.index(str(lane)) - shift for lane in part["lane"]],
                    mode="markers", name=what, legendgroup=what, showlegend=what not in shown, marker=marker,
                    customdata=part["told"], hovertemplate="%{customdata}<extra></extra>",
                ), row, 1,
            )  # fmt: skip
            shown.add(what)
    figure.update_yaxes(
        tickvals=list(range(len(lanes))),
        ticktext=lanes,
        range=[len(lanes) - 0.4, -0.6],
        ticks="",
        showgrid=True,
        zeroline=False,
        automargin=True,
    )
    figure.update_xaxes(title_text=unit, row=len(tables), col=1)
    for note in figure.layout.annotations:
        note.update(x=0, xanchor="left", font={"size": 13})
    least = 5 if len(tables) == 1 else 2  # lanes: the legend stands beside them
    figure.update_layout(
        title={"text": title, "font": {"size": 16}, "y": 0.98, "yanchor": "top"},
        template=template(),
        height=_MARGINS_PX + (_PANEL_PX + _LANE_PX * max(len(lanes), least)) * len(tables),
        margin={"l": 70, "r": 20, "t": 70, "b": 60},
        legend={"itemsizing": "trace"},
    )
    return figure


def _check(table: pd.DataFrame) -> None:
    if missing := [name for name in _COLUMNS if name not in table.columns]:
        raise ParameterError(
            "The table lacks a column.",
            where="table",
            found=", ".join(map(str, table.columns)),
            expected=", ".join(missing),
        )
    if unknown := sorted(set(table["what"]) - set(KINDS)):
        raise ParameterError(
            "Nothing of this kind becomes of a message.",
            where="what",
            found=", ".join(map(str, unknown)),
            expected=", ".join(KINDS),
        )
