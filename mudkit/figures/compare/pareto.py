"""Systems by two measures, and the front of those that no other one beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, GREY
from mudkit.figures.base.colours import short_number
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["fill", "pareto"]

_FRONT, _BEST, _OTHERS = range(3)
_PLACES: Final = {1: "top center", -1: "bottom center"}
_LETTER, _LINE, _MOST_LINES = 0.01, 0.065, 6
"""Of the figure's width and height."""


def pareto(table: pd.DataFrame, *, x: str, y: str, labels: tuple[str, str], title: str) -> go.Figure:
    """Draw a point for each system; those on the front are filled, and a line joins them.

    Parameters
    ----------
    table : pandas.DataFrame
        ``system``, two columns of numbers, and ``is_best``, as
        :func:`mudkit.experiment.scoreboard.axes.front` gives it. A system without a value is left out, and
        named below the title.
    x, y : str
        The columns.
    labels : (str, str)
        What stands at the axes, units included.
    title : str

    Raises
    ------
    ParameterError
        The table lacks a column.
    """
    figure = go.Figure(
        [
            go.Scatter(name="front", mode="lines", line={"color": BLUE, "dash": "dot"}, hoverinfo="skip"),
            go.Scatter(name="not beaten", mode="markers+text", marker={"color": BLUE, "size": 13}),
            go.Scatter(
                name="beaten",
                mode="markers+text",
                marker={"color": GREY, "size": 12, "symbol": "x-thin", "line": {"width": 3, "color": GREY}},
            ),
        ]
    )
    figure.update_layout(
        template=template(),
        height=420,
        margin={"l": 80, "r": 30, "t": 90, "b": 60},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    fill(figure, table, x=x, y=y, labels=labels, title=title)
    return figure


def fill(
    figure: go.Figure, table: pd.DataFrame, *, x: str, y: str, labels: tuple[str, str], title: str
) -> None:
    """Bring another table into a figure that :func:`pareto` has made; see there."""
    if missing := [name for name in ("system", x, y, "is_best") if name not in table.columns]:
        raise ParameterError(
            "The table lacks a column.",
            where="table",
            found=", ".join(map(str, table.columns)),
            expected=", ".join(missing),
        )
    known = table[table[[x, y]].notna().all(axis=1)]
    left_out = [str(name) for name in table["system"] if name not in set(known["system"])]
    points: dict[tuple[float, float], dict[str, Any]] = {}
    for row in known.to_dict("records"):
        place = points.setdefault((row[x], row[y]), {"names": [], "is_best": bool(row["is_best"])})
        place["names"].append(str(row["system"]))
    best = sorted(place for place, each in points.items() if each["is_best"])
    figure.data[_FRONT].update(x=[each[0] for each in best], y=[each[1] for each in best])
    spans = [_range(known[name].tolist()) for name in (x, y)]
    beside = _beside({place: ", ".join(each["names"]) for place, each in points.items()}, spans)
    for number, is_best in ((_BEST, True), (_OTHERS, False)):
        of = [place for place, each in points.items() if each["is_best"] == is_best]
        figure.data[number].update(
            x=[each[0] for each in of],
            y=[each[1] for each in of],
            text=[beside[each][0] for each in of],
            textposition=[beside[each][1] for each in of],
            customdata=[
                f"{', '.join(points[each]['names'])}<br>{short_number(each[0])}, {short_number(each[1])}"
                for each in of
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    for axis, span, label in zip((figure.layout.xaxis, figure.layout.yaxis), spans, labels, strict=True):
        axis.update(title={"text": label}, range=span)
    note = f"without a value: {', '.join(left_out)}" if left_out else ""
    figure.update_layout(
        title={"text": title, "font": {"size": 16}, "subtitle": {"text": note, "font": {"size": 12}}}
    )


def _beside(
    names: Mapping[tuple[float, float], str], spans: Sequence[Sequence[float]]
) -> dict[tuple[float, float], tuple[str, str]]:
    """Give each point its text and where it stands: above or below, so many lines off that no two meet.

    Sizes are those of letters in a figure that is some 800 by 270 points; empty lines are part of the text.
    """
    taken: list[tuple[float, float, float]] = []
    placed = {}
    for place in sorted(names):
        name = names[place]
        at, height = ((each - low) / (high - low) for each, (low, high) in zip(place, spans, strict=True))
        half = _LETTER * len(name) / 2
        free = [
            (line, side)
            for line in range(_MOST_LINES)
            for side in (1, -1)
            if not any(
                at - half < right
                and left < at + half
                and abs(height + side * _LINE * (line + 1) - other) < 0.9 * _LINE
                for left, right, other in taken
            )
        ]
        line, side = free[0] if free else (0, 1)
        taken.append((at - half, at + half, height + side * _LINE * (line + 1)))
        lines = [name, *[" "] * line][::side]
        placed[place] = "<br>".join(lines), _PLACES[side]
    return placed


def _range(values: list[float]) -> list[float]:
    """Leave room for names above, and for a marker at 0, which is always there."""
    if not values:
        return [0.0, 1.0]
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.15 * (high - low) or 1.0
    return [low - room / 5, high + room]
