"""Waste and loss over the prefetch limit, both in percent on logarithmic axes, and where one stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import plotly.graph_objects as go

from mudkit.figures.base.charts import BLUE, ORANGE
from mudkit.figures.base.template import template

__all__ = ["LEAST", "Now", "Point", "curve", "limits"]

LEAST: Final = 0.1
"""Percent; what is less is drawn here."""

Point = tuple[float, float, float]
"""A prefetch limit, waste and loss."""
Now = tuple[float | None, float, float]
"""The same; None: there is no limit."""


def limits(points: Sequence[Point], now: Now, *, title: str) -> go.Figure:
    """Draw waste and loss over the prefetch limit.

    Parameters
    ----------
    points : sequence of (float, float, float)
        Limits of 1 and more, in order, with their waste and loss, from 0 to 1.
    now : (float or None, float, float)
        Where one stands: filled and large; a level across all limits where there is no limit.
    title : str
    """
    figure = go.Figure()
    for name, colour, symbol in (("waste", ORANGE, "square"), ("loss", BLUE, "circle")):
        figure.add_trace(
            go.Scatter(
                name=name,
                mode="lines+markers",
                line={"color": colour},
                marker={"symbol": f"{symbol}-open", "size": 7},
                hovertemplate=f"limit %{{x}}: {name} %{{customdata:.2f}} %<extra></extra>",
            )
        )
        figure.add_trace(
            go.Scatter(
                name=f"{name} now",
                mode="lines+markers",
                line={"color": colour, "dash": "dash"},
                marker={"symbol": symbol, "size": 13, "line": {"color": "black", "width": 1.5}},
                hovertemplate=f"now: {name} %{{customdata:.2f}} %<extra></extra>",
            )
        )
    ticks = [1, 4, 16, 64, 256, 1024, 4096, 16384]
    figure.update_xaxes(
        title_text="prefetch limit, messages on the device",
        type="log",
        tickvals=ticks,
        ticktext=[f"{each:,}" for each in ticks],
        minor={"ticks": ""},
    )
    figure.update_yaxes(
        title_text="% of messages",
        type="log",
        range=[-1.05, 2.05],
        tickvals=[LEAST, 1, 10, 100],
        ticktext=[f"≤ {LEAST:g}", "1", "10", "100"],
        minor={"ticks": ""},
    )
    figure.add_hline(1.0, line={"dash": "dot", "width": 1})
    figure.update_layout(
        template=template(),
        height=400,
        margin={"l": 70, "r": 20, "t": 70, "b": 60},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    curve(figure, points, now, title=title)
    return figure


def curve(figure: go.Figure, points: Sequence[Point], now: Now, *, title: str) -> None:
    """Bring other points into a figure that :func:`limits` has made."""
    xs = [limit for limit, _, _ in points]
    limit = now[0]
    for place in (0, 1):
        shares = [100 * (waste, loss)[place] for _, waste, loss in points]
        line, mark = figure.data[2 * place], figure.data[2 * place + 1]
        line.update(x=xs, y=[max(each, LEAST) for each in shares], customdata=shares)
        share = 100 * (now[1], now[2])[place]
        at = [limit] if limit is not None else [xs[0], xs[-1]] if xs else []
        mark.update(x=at, y=[max(share, LEAST)] * len(at), customdata=[share] * len(at))
    figure.update_layout(title={"text": title, "font": {"size": 16}})
