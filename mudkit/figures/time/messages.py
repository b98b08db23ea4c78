"""Message diagrams: a lane a node, time downwards, an arrow a message, as Lamport drew them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from mudkit.figures.base.charts import BLUE, ORANGE
from mudkit.figures.base.clock import NO_TIME, TimeAxis, needed, rows_of, times_us
from mudkit.figures.base.labels import Label, Sheet
from mudkit.figures.base.template import template
from mudkit.figures.base.window import Choice, prepared
from mudkit.figures.time.message_texts import (
    MAX_LABELS,
    clock_time,
    details,
    escaped,
    short_text,
    subtitle_of,
)
from mudkit.trace.schema import FATES
from mudkit.units import US_PER_S

__all__ = ["MAX_MESSAGES", "diagram"]

MAX_MESSAGES = 400
"""A diagram draws so many messages, the first ones."""


class _Look(NamedTuple):
    """How a fate is drawn: line, end mark, and how far towards the target the arrow goes."""

    colour: str
    dash: str
    width_px: float
    symbol: str
    size_px: int
    reach: float


_STUB = 0.0  # not towards the target at all: a stub at the sender
_LOOKS = {
    "arrived": _Look(BLUE, "solid", 1.6, "arrow", 11, 1.0),
    "cut": _Look(ORANGE, "dash", 1.8, "x", 10, 0.58),
    "no link": _Look("#000000", "solid", 1.8, "x", 10, _STUB),
    "nobody there": _Look("#7A4E9E", "solid", 1.8, "diamond-x-open", 12, _STUB),
    "lost": _Look("#B8468C", "dot", 2.2, "circle-x-open", 13, 0.73),
    "repeated": _Look("#009E73", "dashdot", 1.1, "arrow", 10, 1.0),
    "under way": _Look("#666666", "8px,4px", 1.6, "circle-open", 9, 0.45),
}
_ALONG = np.linspace(0.0, 1.0, 5)  # an arrow can be pointed at in these places

_STRETCHES = {"link down": "link up", "killed": "restarted", "off": "on"}
"""Incidents that begin a state of a node, and those that end it."""

_PLOT_PX = 780.0  # the lanes in a notebook; labels are laid out for it
_MARGINS_PX = 190
_STUB_LANES = 0.17
_LEAST_SPAN_US = 1_000


def diagram(
    messages: pd.DataFrame,
    incidents: pd.DataFrame | None = None,
    *,
    start: Any = None,
    end: Any = None,
    devices: Iterable[str] | None = None,
    key: str | None = None,
    kinds: Iterable[str] | None = None,
    lanes: Sequence[str] | None = None,
    title: str = "",
) -> go.Figure:
    """Draw who sent what to whom, when, and what became of it.

    A message of which a part falls into the window is drawn, unless a filter leaves it out. Of more than
    ``MAX_MESSAGES`` the first are drawn, and the subtitle says so.

    Parameters
    ----------
    messages : pandas.DataFrame
        Columns of :data:`mudkit.trace.schema.MESSAGES`.
    incidents : pandas.DataFrame, optional
        Columns of :data:`mudkit.trace.schema.INCIDENTS`; those on lanes that are drawn are marked. Give all
        of a run: a link that went down before the window is then shown down.
    start, end : datetime-like, optional
        The window, both ends in it; UTC without a zone. Without them from the first message to the last.
    devices : iterable of str, optional
        Only messages that one of these sent or was to receive.
    key : str, optional
        Only messages with this ``key``, or with this text in their ``content``.
    kinds : iterable of str, optional
        Only messages of these kinds.
    lanes : sequence of str, optional
        The lanes from left to right; who is not named follows, in the order of the messages.
    title : str

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        A table lacks a column, a time is none, or the window ends before it starts.
    TraceContentError
        No message is left, or one has a fate that mudkit does not know.
    """
    chosen = Choice.of(start, end, devices, key, kinds)
    table = prepared(messages)
    rows = chosen.apply(table)
    drawn = rows.iloc[:MAX_MESSAGES]
    ended = drawn["ended_us"].where(drawn["ended_us"] != NO_TIME, drawn["sent_us"])
    low = int(drawn["sent_us"].min()) if chosen.start_us is None else chosen.start_us
    high = int(max(drawn["sent_us"].max(), ended.max()))
    if chosen.end_us is not None:
        high = chosen.end_us if len(rows) == len(drawn) else min(high, chosen.end_us)
    origin = low - low % US_PER_S if chosen.start_us is None else low
    axis = TimeAxis(origin, high)
    names = _lanes(drawn, devices, lanes)
    marks = _incidents(incidents, names, high)
    span = max(high - low, _LEAST_SPAN_US)
    edges = (low - round(0.05 * span), high + round(0.05 * span))
    height_px = int(np.clip(300 + 24 * len(drawn), 460, 900))
    figure = go.Figure()
    for trace in (*_lane_traces(marks, names, edges, axis), *_arrows(drawn, names, high, axis)):
        figure.add_trace(trace)
    shown = marks[(marks["t_us"] >= edges[0]) & (marks["t_us"] <= edges[1])]
    if len(shown):
        figure.add_trace(_marks(shown, axis))
    sheet = Sheet(
        _PLOT_PX / max(1, len(names)), (height_px - _MARGINS_PX) / (edges[1] - edges[0]), len(names)
    )
    figure.update_layout(annotations=_labels(drawn, shown, names, high, sheet, axis))
    _style(figure, names, axis, edges, height_px)
    figure.update_layout(
        title={
            "text": title or "Messages",
            "font": {"size": 16},
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 40},
            "subtitle": {"text": subtitle_of(len(rows), drawn, low, high), "font": {"size": 12}},
        }
    )
    return figure


def _lanes(drawn: pd.DataFrame, devices: Iterable[str] | None, lanes: Sequence[str] | None) -> dict[str, int]:
    """Give each lane its place; those that were asked for have one even if nothing happens on them."""
    touched = [name for pair in zip(drawn["source"], drawn["target"], strict=True) for name in pair if name]
    names = dict.fromkeys([*(lanes or ()), *touched, *(devices or ())])
    return {name: place for place, name in enumerate(names)}


def _incidents(incidents: pd.DataFrame | None, names: dict[str, int], high_us: int) -> pd.DataFrame:
    """Return the incidents on the lanes until a time, with the lane's place."""
    columns = ("device", "ts", "incident", "detail")
    table = pd.DataFrame(columns=columns) if incidents is None else needed(incidents, "incidents", columns)
    rows = pd.DataFrame(
        {
            "t_us": times_us(table, "ts", "incidents"),
            "place": table["device"].map(names).to_numpy(float),
            "device": table["device"].to_numpy(),
            "incident": table["incident"].astype(str).to_numpy(),
            "detail": ["" if pd.isna(detail) else str(detail) for detail in table["detail"]],
        }
    )
    rows = rows[rows["place"].notna() & (rows["t_us"] <= high_us)]
    return rows.sort_values("t_us", kind="stable", ignore_index=True)


def _stretches(marks: pd.DataFrame, begins: str, edges: tuple[int, int]) -> list[tuple[float, int, int]]:
    """Find where a state holds: (lane, from, to), within the edges."""
    stretches: list[tuple[float, int, int]] = []
    for place in marks["place"].unique():
        rows = marks[marks["place"] == place]
        since: int | None = None
        for t_us, incident in zip(rows["t_us"], rows["incident"], strict=True):
            if incident == begins and since is None:
                since = t_us
            elif incident == _STRETCHES[begins] and since is not None:
                stretches.append((place, since, t_us))
                since = None
        if since is not None:
            stretches.append((place, since, edges[1]))
    return [(at, max(a, edges[0]), b) for at, a, b in stretches if b >= edges[0]]


def _lane_traces(
    marks: pd.DataFrame, names: dict[str, int], edges: tuple[int, int], axis: TimeAxis
) -> list[Any]:
    """Draw the lanes, and over them where a link was down and where a node did not run."""

    def lines(parts: list[tuple[float, int, int]], name: str, colour: str, width: float, dash: str) -> Any:
        x = [value for place, _, _ in parts for value in (place, place, None)]
        y = [value for _, a, b in parts for value in (a, b, NO_TIME)]
        return go.Scatter(
            x=x,
            y=axis.values(y),
            mode="lines",
            name=name,
            hoverinfo="skip",
            legendrank=100,
            line={"color": colour, "width": width, "dash": dash},
            showlegend=name != "lanes",
        )

    down = _stretches(marks, "link down", edges)
    still = _stretches(marks, "killed", edges) + _stretches(marks, "off", edges)
    whole = [(float(place), *edges) for place in names.values()]
    traces = [lines(down, "link down", "rgba(213,94,0,0.28)", 16, "solid")] if down else []
    traces.append(lines(whole, "lanes", "#555555", 1.5, "solid"))
    if still:  # white under the dots takes the lane away
        traces.append(lines(still, "lanes", "#FFFFFF", 3, "solid"))
        traces.append(lines(still, "not running", "#555555", 2, "dot"))
    return traces


def _path(message: Any, names: dict[str, int], high_us: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the points of a message's line: places between lanes, and times."""
    look = _LOOKS[message.fate]
    begin = float(names[message.source])
    target = names.get(message.target, begin) if message.target is not None else begin
    last = message.ended_us if message.ended_us != NO_TIME else message.sent_us
    if message.fate == "under way":
        last = max(high_us, message.sent_us)
    times = message.sent_us + np.round((last - message.sent_us) * _ALONG).astype(np.int64)
    if look.reach == _STUB or message.target is None:
        # Where there is no target it points to the right, unless no lane is there.
        right = target > begin or (target == begin and begin < max(1, len(names) - 1))
        if look.reach == _STUB:  # level, as it never left, however late that was known
            times = np.full(len(_ALONG), message.sent_us, np.int64)
        return begin + (_STUB_LANES if right else -_STUB_LANES) * _ALONG, times
    if target == begin:  # to itself: a bow beside the lane
        return begin + 0.3 * np.sin(np.pi * look.reach * _ALONG), times
    return begin + (target - begin) * look.reach * _ALONG, times


def _arrows(drawn: pd.DataFrame, names: dict[str, int], high_us: int, axis: TimeAxis) -> list[Any]:
    """Draw all messages of a fate as one trace: lines with gaps, marks at their ends alone."""
    traces = []
    several = drawn["system"].nunique() > 1
    for fate in FATES:
        rows = drawn[drawn["fate"] == fate]
        if not len(rows):
            continue
        look = _LOOKS[fate]
        x: list[float | None] = []
        y: list[int] = []
        labels: list[str] = []
        for message in rows_of(rows):
            places, times = _path(message, names, high_us)
            x += [*places.tolist(), None]
            y += [*times.tolist(), NO_TIME]
            labels += [details(message, several)] * (len(_ALONG) + 1)
        sizes = ([0] * (len(_ALONG) - 1) + [look.size_px, 0]) * len(rows)
        line = {"color": look.colour, "dash": look.dash, "width": look.width_px}
        mark = {
            "symbol": look.symbol,
            "color": look.colour,
            "opacity": 1,
            "line": {"width": 1.5, "color": look.colour},
        }
        if look.symbol == "arrow":
            mark |= {"angleref": "previous", "line": {"width": 0}}
        # The legend shows the mean of sizes, which most points do not have; so it gets a trace of its own.
        traces.append(
            go.Scatter(
                x=x, y=axis.values(y), mode="lines+markers", text=labels, hoverinfo="text", name=fate,
                legendgroup=fate, showlegend=False, line=line, marker=mark | {"size": sizes},
            )
        )  # fmt: skip
        mark.pop("angleref", None)
        traces.append(
            go.Scatter(
                x=[None],
                y=[None],
                mode="lines+markers",
                name=f"{fate}: {len(rows):,}",
                legendgroup=fate,
                line=line,
                marker=mark | {"size": look.size_px, "angle": 90 if look.symbol == "arrow" else 0},
            )
        )
    return traces


def _marks(shown: pd.DataFrame, axis: TimeAxis) -> Any:
    labels = [
        f"<b>{escaped(row.incident)}</b>, {escaped(row.device)}<br>{clock_time(row.t_us)} UTC"
        + (f"<br>{escaped(row.detail)}" if row.detail else "")
        for row in rows_of(shown)
    ]
    link = shown["incident"].isin(["link down", "link up"])
    return go.Scatter(
        x=shown["place"], y=axis.values(shown["t_us"].to_numpy()), mode="markers", text=labels,
        hoverinfo="text", showlegend=False, name="incidents",
        marker={"symbol": np.where(link, "line-ew", "square").tolist(), "color": "#333333",
                "size": np.where(link, 16, 8).tolist(), "line": {"width": 2, "color": "#333333"}},
    )  # fmt: skip


def _labels(
    drawn: pd.DataFrame,
    shown: pd.DataFrame,
    names: dict[str, int],
    high_us: int,
    sheet: Sheet,
    axis: TimeAxis,
) -> list[dict[str, Any]]:
    """Write what happened beside the lanes, and on each arrow what it carries, where there is room."""
    labels: list[Label | None] = []
    if len(shown) <= MAX_LABELS:
        for row in rows_of(shown):
            sides = [(row.place, row.t_us, 11.0), (row.place, row.t_us, -11.0)]
            labels.append(sheet.put(row.incident, sides, "#333333"))
    if len(drawn) <= MAX_LABELS:
        for message in rows_of(drawn):
            places, times = _path(message, names, high_us)
            look = _LOOKS[message.fate]
            if look.reach == _STUB or message.target is None:
                side = 9.0 if places[-1] > places[0] else -9.0
                spots = [(places[-1], int(times[-1]), side), (places[0], int(times[0]), -side)]
            else:
                spots = [
                    (float(np.interp(part, _ALONG, places)), int(np.interp(part, _ALONG, times)), 0.0)
                    for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8)
                ]
            labels.append(sheet.put(short_text(message), spots, look.colour))
    return [
        {
            "x": label.place,
            "y": axis.values([label.t_us])[0],
            "text": escaped(label.text),
            "xshift": label.shift_px,
            "showarrow": False,
            "borderpad": 1,
            "xanchor": "center" if not label.shift_px else "left" if label.shift_px > 0 else "right",
            "font": {"size": 11, "color": label.colour},
            "bgcolor": "rgba(255,255,255,0.85)",
        }
        for label in labels
        if label is not None
    ]


def _style(
    figure: go.Figure, names: dict[str, int], axis: TimeAxis, edges: tuple[int, int], height_px: int
) -> None:
    longest_px = 7.5 * max(map(len, names))
    is_tilted = longest_px > _PLOT_PX / len(names)
    above_px = round(longest_px / 2) if is_tilted else 0  # or names would lie on the title
    figure.update_layout(
        template=template(),
        height=height_px + above_px,
        margin={"l": 80, "r": 30, "t": 110 + above_px, "b": 80},
        legend={"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom", "x": 0},
        hovermode="closest",
        hoverlabel={"align": "left", "bgcolor": "white", "font": {"color": "#222222"}},
    )
    figure.update_xaxes(
        side="top",
        tickvals=list(names.values()),
        ticktext=[f"<b>{escaped(name)}</b>" for name in names],
        tickangle=-30 if is_tilted else 0,
        range=[-0.5, len(names) - 0.5],
        showline=False,
        ticks="",
        zeroline=False,
        automargin=True,
    )
    figure.update_yaxes(
        title_text=axis.title, range=axis.values([edges[1], edges[0]]), showgrid=True, zeroline=False
    )
