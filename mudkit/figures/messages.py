"""Message diagrams: a lane per node, time downwards, an arrow per message, as Lamport drew them."""

from __future__ import annotations

import base64
import re
import textwrap
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.display import INK
from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.alternative import described
from mudkit.figures.labels import Box, Sheet, text_px
from mudkit.figures.style import (
    BLUE,
    GREEN,
    LEGEND_BELOW,
    ORANGE,
    SKY,
    TEXT_PX,
    escaped,
    styled,
    text_colour,
)
from mudkit.figures.tables import require_columns, rows_of
from mudkit.figures.times import NO_TIME, TimeAxis, as_us, format_time, times_us
from mudkit.lab import Lab
from mudkit.trace.schema import FATES
from mudkit.units import US_PER_S

MAX_LABELS: Final = 40
"""Maximum number of messages with labels; above it only the pointer shows them."""

MAX_MESSAGES: Final = 400
"""Maximum number of messages of a diagram; the first ones are drawn."""


class _Look(NamedTuple):
    """Look of a fate: line, end mark, and the part of the way to the target that the arrow covers."""

    colour: str
    dash: str
    width_px: float
    symbol: str
    size_px: int
    reach: float


class _Spot(NamedTuple):
    """Possible place of a label: lane, time, and shift to the side and down, px."""

    place: float
    t_us: int
    side: float
    down: float


class _Label(NamedTuple):
    """Text beside a lane or an arrow, with its places, the best first."""

    text: str
    colour: str
    spots: list[_Spot]


_STUB = 0.0  # not towards the target at all: a stub at the sender
_LOOKS = {
    "arrived": _Look(BLUE, "solid", 1.6, "arrow", 11, 1.0),
    "cut": _Look(ORANGE, "dash", 1.8, "x", 10, 0.58),
    "no link": _Look(INK, "solid", 1.8, "x", 10, _STUB),
    "nobody there": _Look("#936ab5", "solid", 1.8, "diamond-x-open", 12, _STUB),
    "lost": _Look("#bf5696", "dot", 2.2, "circle-x-open", 13, 0.73),
    "not let in": _Look("#a17312", "longdash", 1.8, "square-x-open", 12, 0.87),
    "queue full": _Look("#588194", "longdashdot", 1.8, "square-cross-open", 12, 0.93),
    "repeated": _Look(GREEN, "dashdot", 1.1, "arrow", 10, 1.0),
    "under way": _Look(text_colour(SKY), "8px,4px", 1.6, "circle-open", 9, 0.45),
}
_ALONG = np.linspace(0.0, 1.0, 5)  # an arrow can be pointed at in these places

_STRETCHES = {"link down": "link up", "killed": "restarted", "off": "on"}
"""Incidents that begin a state of a node, with those that end it."""

_DOTS = np.linspace(0.0, 1.0, 60)  # labels keep off these places of an arrow
_PLOT_PX = 480.0  # of a figure in a narrow notebook, 590 px wide; in a wider one there is more room
_MARGINS_PX = 190
_LETTER_HIGH: Final = 0.85  # of the size of the text, which has a space above and below its letters
_STUB_LANES = 0.17
_MIN_SPAN_US: Final = 1_000
_ONE_MOMENT_US: Final = 1_000_000
"""Length of the axis where all messages are sent and received at one moment."""


@described
def message_diagram(
    messages: Lab | pd.DataFrame,
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
    """Draw the messages of a run: sender, receiver, time and fate of each.

    A message of which a part falls into the window is drawn, unless a filter leaves it out. Of more than 400
    messages the first are drawn, and the subtitle says so.

    Parameters
    ----------
    messages : Lab or pandas.DataFrame
        A lab, of which messages and incidents are drawn, or a table with the columns of
        :data:`mudkit.trace.schema.MESSAGES`.
    incidents : pandas.DataFrame, optional
        Columns of :data:`mudkit.trace.schema.INCIDENTS`; those on lanes that are drawn are marked. Pass all
        of a run: a link that went down before the window is then shown down.
    start, end : datetime-like, optional
        Window, both ends included; UTC without a zone. By default from the first message to the last.
    devices : iterable of str, optional
        Only messages from or to one of these.
    key : str, optional
        Only messages with this ``key``; if no message has it, with this text in their ``content``.
    kinds : iterable of str, optional
        Only messages of these kinds.
    lanes : sequence of str, optional
        Lanes from left to right; other nodes follow in the order of their messages.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        A table lacks a column, a time cannot be read, or the window ends before it starts.
    TraceContentError
        No message is left, or one has an unknown fate.
    """
    if isinstance(messages, Lab):
        lab = messages
        messages, incidents = lab.frame("messages"), lab.frame("incidents")
    start_us, end_us = window = _window(start, end)
    rows = _choose(prepare_messages(messages), window, devices, key, kinds)
    drawn = rows.iloc[:MAX_MESSAGES]
    ended = drawn["ended_us"].where(drawn["ended_us"] != NO_TIME, drawn["sent_us"])
    low = int(drawn["sent_us"].min()) if start_us is None else start_us
    high = int(max(drawn["sent_us"].max(), ended.max()))
    if end_us is not None:
        high = end_us if len(rows) == len(drawn) else min(high, end_us)
    origin = low - low % US_PER_S if start_us is None else low
    axis = TimeAxis(origin, high)
    names = _lanes(drawn, devices, lanes)
    marks = _incidents(incidents, names, high)
    span = max(high - low, _MIN_SPAN_US) if high > low else _ONE_MOMENT_US
    edges = (low - round(0.05 * span), max(high, low + span) + round(0.05 * span))
    height_px = int(np.clip(320 + 27 * len(drawn), 500, 960))
    figure = go.Figure()
    for trace in (*_lane_traces(marks, names, edges, axis), *_arrows(drawn, names, high, axis)):
        figure.add_trace(trace)
    shown = marks[(marks["t_us"] >= edges[0]) & (marks["t_us"] <= edges[1])]
    if len(shown):
        figure.add_trace(_marks(shown, axis))
    scale = _PLOT_PX / max(1, len(names)), (height_px - _MARGINS_PX) / (edges[1] - edges[0])
    figure.update_layout(annotations=_labels(drawn, shown, names, high, scale, axis))
    _style(figure, names, axis, edges, height_px)
    figure.update_layout(
        title={
            "text": title or "Messages",
            "font": {"size": 16},
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 40},
            "subtitle": {"text": subtitle_of(len(rows), drawn, low, high), "font": {"size": TEXT_PX}},
        }
    )
    return figure


def _lanes(drawn: pd.DataFrame, devices: Iterable[str] | None, lanes: Sequence[str] | None) -> dict[str, int]:
    """Return the place of each lane; lanes that are asked for have one even without messages."""
    touched = [name for pair in zip(drawn["source"], drawn["target"], strict=True) for name in pair if name]
    names = dict.fromkeys([*(lanes or ()), *touched, *(devices or ())])
    return {name: place for place, name in enumerate(names)}


def _incidents(incidents: pd.DataFrame | None, names: dict[str, int], high_us: int) -> pd.DataFrame:
    """Return the incidents on the lanes until a time, with the lane's place."""
    columns = ("device", "ts", "incident", "detail")
    table = (
        pd.DataFrame(columns=columns)
        if incidents is None
        else require_columns(incidents, "incidents", columns)
    )
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
    """Return where a state holds: (lane, from, to), within the edges."""
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
    """Return the lanes, and over them where a link was down and where a node did not run."""

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
    traces = [lines(down, "link down", "rgba(213,94,0,0.28)", 16, "solid")] if down else []
    traces.append(lines(_running(still, names, edges), "lanes", INK, 1.5, "solid"))
    if still:
        traces.append(lines(still, "not running", INK, 2, "dot"))
    return traces


def _running(
    still: list[tuple[float, int, int]], names: dict[str, int], edges: tuple[int, int]
) -> list[tuple[float, int, int]]:
    """Return the parts of all lanes in which a node runs: (lane, from, to)."""
    parts = []
    for place in names.values():
        begin = edges[0]
        for at, stopped, started in sorted(still):
            if at == place:
                parts.append((float(place), begin, stopped))
                begin = max(begin, started)
        parts.append((float(place), begin, edges[1]))
    return [part for part in parts if part[1] < part[2]]


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
    """Return a trace per fate: lines with gaps, marks at their ends alone."""
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
    """Return the trace of incidents."""
    labels = [
        f"<b>{escaped(row.incident)}</b>, {escaped(row.device)}<br>{clock_time(row.t_us)} UTC"
        + (f"<br>{escaped(row.detail)}" if row.detail else "")
        for row in rows_of(shown)
    ]
    link = shown["incident"].isin(["link down", "link up"])
    return go.Scatter(
        x=shown["place"], y=axis.values(shown["t_us"].to_numpy()), mode="markers", text=labels,
        hoverinfo="text", showlegend=False, name="incidents",
        marker={"symbol": np.where(link, "line-ew", "square").tolist(), "color": INK,
                "size": np.where(link, 16, 8).tolist(), "line": {"width": 2, "color": INK}},
    )  # fmt: skip


def _labels(
    drawn: pd.DataFrame,
    shown: pd.DataFrame,
    names: dict[str, int],
    high_us: int,
    scale: tuple[float, float],
    axis: TimeAxis,
) -> list[dict[str, Any]]:
    """Return annotations of incidents beside the lanes and of arrows above them, where there is room.

    ``scale`` has the pixels of a lane and of a microsecond.
    """
    lane_px, us_px = scale
    incidents: list[_Label] = []
    if len(shown) <= MAX_LABELS:
        for row in rows_of(shown):
            spots = [_Spot(row.place, row.t_us, side, 0.0) for side in (11.0, -11.0)]
            incidents.append(_Label(row.incident, INK, spots))
    arrows: list[_Label] = []
    dots: list[tuple[float, float]] = []
    if len(drawn) <= MAX_LABELS:
        for message in rows_of(drawn):
            places, times = _path(message, names, high_us)
            x, y = (np.interp(_DOTS, _ALONG, part).tolist() for part in (places * lane_px, times * us_px))
            dots += zip(x, y, strict=True)
            look = _LOOKS[message.fate]
            spots = []
            if look.reach == _STUB or message.target is None:
                side = 9.0 if places[-1] > places[0] else -9.0
                spots = [
                    _Spot(places[-1], int(times[-1]), side, 0.0), _Spot(places[0], int(times[0]), -side, 0.0)
                ]  # fmt: skip
            for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1, 0.9, 0.05, 0.95):
                place, t_us = float(np.interp(part, _ALONG, places)), int(np.interp(part, _ALONG, times))
                spots += [_Spot(place, t_us, side, down) for side in (0.0, 8.0, -8.0) for down in (-8.0, 8.0)]
            arrows.append(_Label(short_text(message), text_colour(look.colour), spots))
    placed = _place(incidents, arrows, range(len(arrows)), dots, len(names), scale)
    missing = [number for number in range(len(arrows)) if len(incidents) + number not in placed]
    if missing:  # those without room choose first
        order = [*missing, *(number for number in range(len(arrows)) if number not in missing)]
        again = _place(incidents, arrows, order, dots, len(names), scale)
        placed = max(placed, again, key=len)
    labels = [*incidents, *arrows]
    return [
        {
            "x": spot.place, "y": axis.values([spot.t_us])[0], "text": escaped(labels[number].text),
            "xshift": spot.side, "yshift": -spot.down, "showarrow": False, "borderpad": 0,
            "xanchor": "center" if not spot.side else "left" if spot.side > 0 else "right",
            "font": {"size": TEXT_PX, "color": labels[number].colour},
        }
        for number, spot in sorted(placed.items())
    ]  # fmt: skip


def _place(
    incidents: Sequence[_Label],
    arrows: Sequence[_Label],
    order: Iterable[int],
    dots: Iterable[tuple[float, float]],
    lanes: int,
    scale: tuple[float, float],
) -> dict[int, _Spot]:
    """Return free spots by the labels' numbers; incidents choose first, then arrows in this order."""
    lane_px, us_px = scale
    sheet = Sheet(-0.5 * lane_px, -np.inf, (lanes - 0.5) * lane_px, np.inf)
    placed: dict[int, _Spot] = {}

    def crosses_lane(box: Box) -> bool:
        return any(box[0] < lane * lane_px < box[2] for lane in range(lanes))

    def put(number: int, label: _Label) -> None:
        wide, high = text_px(label.text)[0], _LETTER_HIGH * TEXT_PX
        spots, boxes = label.spots, []
        for place, t_us, side, down in spots:
            x, y = place * lane_px + side, t_us * us_px + down
            left = x - (wide / 2 if not side else 0 if side > 0 else wide)
            boxes.append((left, y - high / 2, left + wide, y + high / 2))
        if wide + 8 < lane_px:  # there is room between two lanes
            spots = [spot for spot, box in zip(spots, boxes, strict=True) if not crosses_lane(box)]
            boxes = [box for box in boxes if not crosses_lane(box)]
        chosen = sheet.put(boxes, crosses_lane)
        if chosen is not None:
            placed[number] = spots[chosen]

    for number, label in enumerate(incidents):
        put(number, label)
    for x, y in dots:  # texts keep off the arrows
        sheet.block((x - 1, y - 1, x + 1, y + 1))
    for number in order:
        put(len(incidents) + number, arrows[number])
    return placed


def _style(
    figure: go.Figure, names: dict[str, int], axis: TimeAxis, edges: tuple[int, int], height_px: int
) -> None:
    """Set the size, the axes and the names of the lanes of a figure."""
    longest_px = 7.5 * max(map(len, names))
    is_tilted = longest_px > _PLOT_PX / len(names)
    above_px = round(longest_px / 2) if is_tilted else 0  # or names would lie on the title
    styled(
        figure,
        height_px + above_px,
        (80, 30, 110 + above_px, 80),
        legend=LEGEND_BELOW | {"y": 0.01},
        hovermode="closest",
        hoverlabel={"align": "left"},
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


def _choose(
    table: pd.DataFrame,
    window: tuple[int | None, int | None],
    devices: Iterable[str] | None,
    key: str | None,
    kinds: Iterable[str] | None,
) -> pd.DataFrame:
    """Return the messages in a window (µs, both ends included) that fit the filters, by time."""
    filters = {"devices": devices, "kinds": kinds}
    for name, given in filters.items():
        if isinstance(given, str):
            raise ParameterError(
                "A text is not a list of names.", where=name, found=repr(given), expected=f"[{given!r}]"
            )
    chosen = {name: list(map(str, given)) for name, given in filters.items() if given is not None}
    start_us, end_us = window
    inside, fits = (pd.Series(True, index=table.index) for _ in range(2))
    if start_us is not None:
        inside &= (table["ended_us"] == NO_TIME) | (table["ended_us"] >= start_us)
    if end_us is not None:
        inside &= table["sent_us"] <= end_us
    if "devices" in chosen:
        fits &= table["source"].isin(chosen["devices"]) | table["target"].isin(chosen["devices"])
    if "kinds" in chosen:
        fits &= table["kind"].isin(chosen["kinds"])
    if key is not None:
        has_key = table["key"] == str(key)
        # Where no message has it as its key, it may be another word of theirs.
        fits &= has_key if has_key.any() else table["content"].str.contains(str(key), regex=False)
    if (inside & fits).any():
        return table[inside & fits].sort_values("sent_us", kind="stable", ignore_index=True)
    texts = [f"{name} {', '.join(names)}" for name, names in chosen.items()]
    texts += [] if key is None else [f"key {key}"]
    raise TraceContentError(
        "No message is in this window and fits these filters.",
        where=f"from {_moment(start_us, 'the beginning')} to {_moment(end_us, 'the end')}; "
        f"{'; '.join(texts) or 'no filters'}",
        found="no messages at all"
        if table.empty
        else f"{inside.sum():,} messages in the window and {(~inside).sum():,} outside it; {fits.sum():,} in "
        f"the whole run fit the filters; the first of all was sent {_moment(table['sent_us'].min())}, "
        f"the last {_moment(table['sent_us'].max())}",
        expected="at least one message",
        remedy="widen the window, or leave a filter out",
    )


def _window(start: Any, end: Any) -> tuple[int | None, int | None]:
    """Return the ends of a window in µs, None for an open one.

    Raise ParameterError if it ends before it starts.
    """
    first = None if start is None else as_us(start, "start")
    last = None if end is None else as_us(end, "end")
    if first is not None and last is not None and last < first:
        raise ParameterError(
            "The window ends before it starts.",
            where="start, end",
            found=f"{_moment(first)} to {_moment(last)}",
            expected="start <= end",
        )
    return first, last


def _moment(t_us: int | None, otherwise: str = "") -> str:
    """Return a time with its date as text, or another text for None."""
    return otherwise if t_us is None else f"{format_time(int(t_us), date=True)} UTC"


def prepare_messages(messages: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that are drawn, texts as texts and times as microseconds."""
    columns = ("source", "target", "sent", "ended", "size_bytes", "fate", "kind", "key", "content")
    table = require_columns(messages, "messages", columns)
    unknown = sorted(set(table["fate"].astype(str)) - set(FATES))
    if unknown:
        raise TraceContentError(
            "Messages have fates that mudkit does not know.",
            where="messages, column fate",
            found=", ".join(unknown[:5]),
            expected=f"one of {', '.join(FATES)}",
        )
    texts = ("source", "target", "kind", "key", "content")
    # None and not NaN for a null: NaN is true, and would be a lane.
    plain = {name: [None if pd.isna(value) else str(value) for value in table[name]] for name in texts}
    return pd.DataFrame(
        {name: pd.Series(values, dtype=object) for name, values in plain.items()}
        | {
            "sent_us": times_us(table, "sent", "messages"),
            "ended_us": times_us(table, "ended", "messages"),
            "size_bytes": table["size_bytes"].to_numpy(),
            "fate": table["fate"].astype(str).to_numpy(),
            "system": table["system"].astype(str).to_numpy() if "system" in table.columns else "",
        }
    ).assign(content=lambda rows: rows["content"].fillna(""))


def details(message: Any, several: bool) -> str:
    """Return all about a message for the pointer, in plotly's HTML."""
    to = message.target if message.target is not None else "nobody"
    lines = [
        f"<b>{escaped(short_text(message))}, {message.fate}</b>",
        f"{escaped(message.source)} → {escaped(to)}",
    ]
    lines += [f"sent {clock_time(message.sent_us)} UTC"]
    if message.ended_us != NO_TIME:
        took = (message.ended_us - message.sent_us) / 1e3
        lines += [f"ended {clock_time(message.ended_us)} UTC, {took:,.{0 if took >= 100 else 1}f} ms later"]
    lines += [f"system {escaped(message.system)}"] if several else []
    lines += [f"key {escaped(message.key)}"] if message.key is not None else []
    wrapped = textwrap.wrap(message.content, 60, max_lines=6, placeholder=" …")
    return "<br>".join([*lines, *map(escaped, wrapped)])


def subtitle_of(count: int, drawn: pd.DataFrame, low_us: int, high_us: int) -> str:
    """Return the number of messages of a diagram and its span."""
    number = f"{count:,} message{'s' if count > 1 else ''}"
    if count > len(drawn):
        number = f"the first {len(drawn):,} of {number}"
    subtitle = f"{number}, {TimeAxis(low_us, high_us).span}"
    return subtitle if len(drawn) <= MAX_LABELS else f"{subtitle}; the pointer shows what each is"


def short_text(message: Any) -> str:
    """Return kind and size of a message."""
    return f"{message.kind or 'message'} {message.size_bytes:,} B"


def clock_time(t_us: int) -> str:
    """Format date and time of day with milliseconds."""
    return str(np.datetime64(t_us, "us").astype("datetime64[ms]")).replace("T", " ")


@check_arguments(types=False)
def radiator_pushes(messages: pd.DataFrame, server: str = "radiator") -> pd.DataFrame:
    """Return the contexts sent to a Radiator server and its pushes, with these kinds.

    Messages that a lab records have only their beginning, which often lacks their kind.

    Parameters
    ----------
    messages : pandas.DataFrame
        As ``lab.frame("messages")`` returns them.
    server : str
        Name of the server. In chains clients push as well.

    Returns
    -------
    pandas.DataFrame
        The messages with ``kind`` set to ``context`` or ``push``, without registrations and confirmations.
    """
    kinds = [
        _kind(content) or ("context" if target == server else "push")
        for content, target in zip(messages["content"], messages["target"], strict=True)
    ]
    named = messages.assign(kind=kinds)
    return named[named["kind"].isin(["context", "push"])].reset_index(drop=True)


def _kind(content: str) -> str | None:
    """Return the kind in the beginning of a message, or None if it is further on."""
    text = content.strip('"')
    raw = base64.b64decode(text[: len(text) // 4 * 4])
    if raw[:2] == b"\x1f\x8b":
        raw = zlib.decompressobj(31).decompress(raw)
    match = re.search(rb'"kind":"(\w+)"', raw)
    return match[1].decode() if match else None
