"""Signals over time, one below the other on one scale: an electrocardiogram and what is left of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE
from mudkit.figures.base.template import template

__all__ = ["signals"]

_ROW_PX, _MARGINS_PX = 90, 120


def signals(
    drawn: Mapping[str, Sequence[Any]], *, hz: float, title: str, y: str, seconds: float | None = None
) -> go.Figure:
    """Draw signals that cover the same time: each over the whole width, however many samples it has.

    Parameters
    ----------
    drawn : mapping of str to sequence of float
        The samples of each signal, by what stands above it; the first one has ``hz`` samples a second.
    hz : float
    title, y : str
        Above all, and what the values are, unit included.
    seconds : float, optional
        The seconds of the beginning that are shown; by default all of it.

    Raises
    ------
    ParameterError
        There is none, or one has no sample.
    """
    if not drawn or any(len(values) == 0 for values in drawn.values()) or not hz > 0:
        raise ParameterError(
            "There is nothing to draw.",
            where="drawn, hz",
            found=f"{len(drawn)} signals at {hz:g} Hz",
            expected="signals with samples, at more than 0 Hz",
        )
    length_s = len(next(iter(drawn.values()))) / hz
    figure = make_subplots(
        rows=len(drawn),
        cols=1,
        shared_xaxes=True,
        shared_yaxes="all",
        subplot_titles=list(drawn),
        vertical_spacing=0.25 / len(drawn),
    )
    for row, (name, values) in enumerate(drawn.items(), start=1):
        step_s = length_s / len(values)
        times_s = [(place + 0.5) * step_s for place in range(len(values))]
        # Where samples are few they are shown: between them the line is drawn, not measured.
        mode = "lines" if len(values) > 60 * length_s else "lines+markers"
        figure.add_trace(
            go.Scatter(
                x=times_s, y=list(values), mode=mode, name=name, showlegend=False,
                line={"color": BLUE, "width": 1.5}, marker={"size": 4},
            ), row, 1,
        )  # fmt: skip
    for note in figure.layout.annotations:
        note.update(x=0, xanchor="left", font={"size": 12})
    figure.update_xaxes(range=[0, length_s if seconds is None else min(seconds, length_s)])
    figure.update_xaxes(title_text="seconds", row=len(drawn), col=1)
    low = min(min(values) for values in drawn.values())
    high = max(max(values) for values in drawn.values())
    margin = 0.05 * (high - low) or 1.0
    figure.update_yaxes(range=[low - margin, high + margin])
    figure.update_yaxes(title_text=y, nticks=4, row=(len(drawn) + 1) // 2, col=1)
    figure.update_layout(
        title={"text": title, "font": {"size": 16}, "y": 0.98, "yanchor": "top"},
        template=template(),
        height=_MARGINS_PX + _ROW_PX * len(drawn),
        margin={"l": 70, "r": 20, "t": 70, "b": 50},
    )
    return figure
