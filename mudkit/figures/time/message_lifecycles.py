"""Messages between a server and a device: where each was when, and whether it was read, wasted or lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit.errors import ParameterError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.template import template

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["fates", "message_lifecycles"]

_COLUMNS: Final = ("message", "rank", "came_us", "expires_us", "forwarded_us", "read_us")
_HOUR_US: Final = 3_600_000_000
_LOST: Final = "#CC79A7"
_GAP_PX, _LINE_PX, _MARGINS_PX = 45, 9, 160


def fates(table: pd.DataFrame, best: pd.DataFrame) -> pd.Series[str]:
    """Say what became of each message.

    Parameters
    ----------
    table, best : pandas.DataFrame
        What ``systems.lasthop.lives`` gives for a policy, and for the on-line policy on the same events.

    Returns
    -------
    Series of str
        ``read``; ``wasted``: forwarded and never read; ``lost``: neither, though on-line it would have been
        read; ``wasted and lost``; ``neither``.
    """
    is_read, is_forwarded = table["read_us"] >= 0, table["forwarded_us"] >= 0
    is_lost = ~is_read & (best["read_us"] >= 0)
    fate = is_read.map({True: "read", False: "neither"})
    fate[is_forwarded & ~is_read] = "wasted"
    fate[is_lost] = "lost"
    fate[is_forwarded & is_lost] = "wasted and lost"
    return fate


def message_lifecycles(
    tables: Mapping[str, pd.DataFrame],
    best: pd.DataFrame,
    *,
    reads_us: Sequence[int],
    switches_us: Sequence[int],
    starts_up: bool,
    until_us: int,
    from_us: int = 0,
    title: str,
) -> go.Figure:
    """Draw each message as a line: thin while it waits at the server, thick while it lies on the device.

    Parameters
    ----------
    tables : mapping of str to pandas.DataFrame
        What ``systems.lasthop.lives`` gives for some policies: a panel each, on the same events.
    best : pandas.DataFrame
        The same for the on-line policy.
    reads_us, switches_us : sequence of int
        When the user reads (dotted), and when the link goes and comes (no link: grey).
    starts_up : bool
    until_us, from_us : int
        The part of the time that is drawn, with the messages that lie on a device in it, or would be read in
        it on-line.
    title : str

    Raises
    ------
    ParameterError
        A table lacks a column.
    """
    for name, table in tables.items():
        if missing := set(_COLUMNS) - set(table.columns):
            raise ParameterError(
                "The table lacks a column.",
                where=name,
                found=", ".join(table.columns),
                expected=", ".join(sorted(missing)),
            )
    happens = best["read_us"].between(from_us, until_us)
    for table in tables.values():
        over_us = table["read_us"].where(table["read_us"] >= 0, table["expires_us"])
        happens |= table["forwarded_us"].between(0, until_us) & (over_us >= from_us)
    drawn = {name: _rows(table[happens], best[happens], from_us, until_us) for name, table in tables.items()}
    heights = [max(len(rows), 2) for rows in drawn.values()]
    height_px = _MARGINS_PX + _GAP_PX * len(drawn) + _LINE_PX * sum(heights)
    figure = make_subplots(
        rows=len(drawn),
        cols=1,
        shared_xaxes=True,
        subplot_titles=list(drawn),
        row_heights=heights,
        vertical_spacing=_GAP_PX / height_px,
    )
    outages = _outages(switches_us, starts_up, from_us, until_us)
    named: set[str] = set()
    shapes: list[dict[str, Any]] = []
    for place, rows in enumerate(drawn.values(), start=1):
        for trace in _traces(rows):
            trace.showlegend = trace.name not in named
            named.add(trace.name)
            figure.add_trace(trace, place, 1)
        shapes += _shades(place, [each for each in reads_us if from_us <= each <= until_us], outages)
        figure.update_yaxes(
            range=[len(rows) - 0.3, -0.7],
            showticklabels=False,
            ticks="",
            title_text="messages",
            row=place,
            col=1,
        )
    figure.update_xaxes(range=[from_us / _HOUR_US, until_us / _HOUR_US])
    figure.update_xaxes(title_text="hours (grey: no link; dotted: the user reads)", row=len(drawn), col=1)
    figure.update_layout(
        title={"text": title, "font": {"size": 16}, "y": 1 - 12 / height_px, "yanchor": "top"},
        template=template(),
        shapes=shapes,
        height=height_px,
        margin={"l": 50, "r": 20, "t": 100, "b": 60},
        legend={
            "orientation": "h",
            "y": 1.0 + 30 / height_px,
            "yanchor": "bottom",
            "x": 1,
            "xanchor": "right",
        },
    )
    return figure


def _rows(table: pd.DataFrame, best: pd.DataFrame, from_us: int, until_us: int) -> list[dict[str, Any]]:
    """Give what is drawn of each message, in hours."""
    rows = []
    missed_us = best["read_us"].tolist()
    for each, fate, best_us in zip(table.to_dict("records"), fates(table, best), missed_us, strict=True):
        came_us, forwarded_us, read_us = each["came_us"], each["forwarded_us"], each["read_us"]
        over_us = read_us if read_us >= 0 else min(each["expires_us"], until_us)
        left_us = forwarded_us if forwarded_us >= 0 else over_us
        rows.append(
            {
                "message": f"message {each['message']}, rank {each['rank']:.2f}",
                "is_read": read_us >= 0,
                "is_forwarded": from_us <= over_us and 0 <= forwarded_us <= until_us,
                "came": max(came_us, from_us) / _HOUR_US,
                "left": max(min(left_us, until_us), from_us) / _HOUR_US,
                "over": max(min(over_us, until_us), from_us) / _HOUR_US,
                "missed": best_us / _HOUR_US,
                "read": read_us >= 0 and from_us <= read_us <= until_us,
                "expires": read_us < 0 and from_us <= each["expires_us"] <= until_us,
                "lost": "lost" in fate and from_us <= best_us <= until_us,
            }
        )
    return rows


def _traces(rows: list[dict[str, Any]]) -> list[go.Scatter]:
    waits = _lines(rows, "came", "left", lambda row: True)
    traces = [go.Scatter(**waits, name="waits at the server", mode="lines", line={"color": GREY, "width": 1})]
    for name, colour, wanted in (
        ("on the device, and read", BLUE, True),
        ("on the device for nothing: waste", ORANGE, False),
    ):
        lies = _lines(rows, "left", "over", lambda row, w=wanted: row["is_forwarded"] and row["is_read"] == w)
        if lies["x"]:
            traces.append(go.Scatter(**lies, name=name, mode="lines", line={"color": colour, "width": 5}))
    for what, at, name, symbol, colour in (
        ("read", "over", "read", "circle", BLUE),
        ("expires", "over", "expires", "line-ns-open", "black"),
        ("lost", "missed", "lost: read on-line, not here", "x", _LOST),
    ):
        marked = [(row, place) for place, row in enumerate(rows) if row[what]]
        if marked:
            traces.append(
                go.Scatter(
                    x=[row[at] for row, _ in marked],
                    y=[place for _, place in marked],
                    name=name,
                    mode="markers",
                    marker={"symbol": symbol, "color": colour, "size": 8},
                    text=[row["message"] for row, _ in marked],
                    hoverinfo="text+name",
                )
            )
    return traces


def _lines(rows: list[dict[str, Any]], begin: str, end: str, wanted: Any) -> dict[str, list[Any]]:
    x: list[float | None] = []
    y: list[int | None] = []
    for place, row in enumerate(rows):
        if wanted(row):
            x += [row[begin], row[end], None]
            y += [place, place, None]
    return {"x": x, "y": y}


def _outages(
    switches_us: Sequence[int], starts_up: bool, from_us: int, until_us: int
) -> list[tuple[int, int]]:
    edges = [0, *switches_us, until_us]
    is_up, outages = starts_up, []
    for begin_us, end_us in pairwise(edges):
        if not is_up and begin_us < until_us and end_us > from_us:
            outages.append((max(begin_us, from_us), min(end_us, until_us)))
        is_up = not is_up
    return outages


def _shades(place: int, reads_us: Sequence[int], outages: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Shade outages of a panel and line its reads; one by one they would take seconds."""
    number = "" if place == 1 else str(place)
    across = {"xref": f"x{number}", "yref": f"y{number} domain", "layer": "below", "opacity": 1}
    grey = {"type": "rect", "fillcolor": "#e6e6e6", "line": {"width": 0}}
    dotted = {"type": "line", "line": {"dash": "dot", "width": 1, "color": "#555555"}}
    spans = [*((grey, *each) for each in outages), *((dotted, each, each) for each in reads_us)]
    return [
        across | look | {"x0": begin_us / _HOUR_US, "x1": end_us / _HOUR_US, "y0": 0, "y1": 1}
        for look, begin_us, end_us in spans
    ]
