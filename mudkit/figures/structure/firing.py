"""Which rule fires: messages down, states across, the number of the rule in each cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go

from mudkit.errors import ParameterError
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MARKS", "fill", "firing"]

_COLUMNS: Final = ("message", "state", "rule", "outcome", "fields", "bytes")
MARKS: Final = {"sent": "", "dropped": "✗", "held back": "…", "stopped": "!"}
"""What stands behind the number of a rule, by what it did with the message."""
_COLOURS: Final = (
    "#f0f0f0",
    "#e8b4a0",
    "#a6c8e0",
    "#f3dc8c",
    "#a8d8c0",
    "#dcbcd4",
    "#c8c8a0",
    "#b4b4e4",
    "#d0d0d0",
)
"""Pale, so that the number on them can be read; the first is for no rule, and rules beyond begin again."""
_ROW_PX, _MARGINS_PX, _NAME_LENGTH = 30, 140, 30
_ALL_NAMED: Final = 15
"""Of more states only the first and every second one is named: names would lie over each other."""


def firing(table: pd.DataFrame, names: Sequence[str], *, title: str, x: str) -> go.Figure:
    """Draw which rule fires for each message in each state; ✗ is dropped, … held back, ! stopped.

    Parameters
    ----------
    table : pandas.DataFrame
        ``message, state, rule, outcome, fields, bytes``, as ``systems.sublim.firing.fired`` gives it: each
        message in each state.
    names : sequence of str
        The names of the rules, the first of which is rule 1.
    title, x : str
        Above it, and what the states are.

    Raises
    ------
    ParameterError
        The table lacks a column.
    """
    figure = go.Figure(
        go.Heatmap(xgap=2, ygap=2, texttemplate="%{text}", textfont={"size": 11, "color": "black"})
    )
    figure.update_xaxes(title_text=x, type="category", side="bottom", ticks="", showgrid=False, tickangle=0)
    figure.update_yaxes(autorange="reversed", automargin=True, ticks="", type="category", showgrid=False)
    figure.update_layout(template=template(), margin={"l": 70, "r": 20, "t": 50, "b": 60})
    fill(figure, table, names, title=title)
    return figure


def fill(
    figure: go.Figure, table: pd.DataFrame, names: Sequence[str], *, title: str, now: Any = None
) -> None:
    """Bring another table into a figure that :func:`firing` has made.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
    table, names, title
        As there.
    now : (str, str), optional
        The message and the state at which one looks: framed.
    """
    if missing := [name for name in _COLUMNS if name not in table.columns]:
        raise ParameterError(
            "The table lacks a column.",
            where="table",
            found=", ".join(map(str, table.columns)),
            expected=", ".join(missing),
        )
    messages, states = list(dict.fromkeys(table["message"])), list(dict.fromkeys(table["state"]))
    cells: dict[tuple[Any, Any], Any] = {(row.message, row.state): row for row in table.itertuples()}
    grid = [[cells[message, state] for state in states] for message in messages]
    named = ["no rule", *names]
    colours = [_COLOURS[0], *(_COLOURS[1 + place % (len(_COLOURS) - 1)] for place in range(len(names)))]
    edges = [place / len(colours) for place in range(len(colours) + 1)]
    scale = [(edges[place + end], colour) for place, colour in enumerate(colours) for end in (0, 1)]
    figure.data[0].update(
        x=states, y=messages, z=[[cell.rule for cell in row] for row in grid],
        text=[[f"{cell.rule or '–'}{MARKS.get(cell.outcome, '')}" for cell in row] for row in grid],
        customdata=[[_label(cell, named) for cell in row] for row in grid],
        hovertemplate="%{y}, %{x}<br>%{customdata}<extra></extra>",
        zmin=-0.5, zmax=len(names) + 0.5, colorscale=scale,
        colorbar={
            "tickvals": list(range(len(named))), "ticks": "", "thickness": 14, "len": 1.0, "outlinewidth": 0,
            "ticktext": [_short(f"{place or '–'} {name}") for place, name in enumerate(named)],
        },
    )  # fmt: skip
    shown = [*states[:1], *states[3::2]] if len(states) > _ALL_NAMED else states
    figure.update_xaxes(tickvals=shown, ticktext=shown)
    frame = []
    if now is not None and now[0] in messages and now[1] in states:
        x, y = states.index(now[1]), messages.index(now[0])
        frame = [
            {
                "type": "rect",
                "x0": x - 0.5,
                "x1": x + 0.5,
                "y0": y - 0.5,
                "y1": y + 0.5,
                "line": {"color": "black", "width": 3},
                "fillcolor": "rgba(0,0,0,0)",
                "opacity": 1,
            }
        ]
    # Not by update_layout: an empty list would leave the old frame.
    figure.layout.shapes = frame
    figure.update_layout(
        title={"text": title, "font": {"size": 16}},
        height=_MARGINS_PX + _ROW_PX * max(len(messages), len(named) // 2 + 1),
    )


def _label(cell: Any, names: Sequence[str]) -> str:
    sent = f": {cell.fields}; {cell.bytes:,} bytes" if cell.bytes else ""
    return f"{names[cell.rule]}<br>{cell.outcome}{sent}"


def _short(text: str) -> str:
    return text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 1]}…"
