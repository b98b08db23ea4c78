"""Waste and loss of prefetching, and the life of each message on its way to a device."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mudkit import words
from mudkit.checks import check_arguments
from mudkit.display import INK
from mudkit.errors import ParameterError
from mudkit.figures.alternative import described, redescribed
from mudkit.figures.style import (
    BLUE,
    GREY,
    LEGEND_ABOVE,
    LEGEND_BELOW,
    ORANGE,
    PINK,
    TEXT_PX,
    heading,
    ramp,
    styled,
)
from mudkit.figures.tables import require_columns
from mudkit.figures.times import HOUR_US
from mudkit.systems.lasthop import Lifelines

MIN_PERCENT: Final = 0.1
"""Least percentage on a logarithmic axis; smaller values are drawn here."""

LimitPoint = tuple[float, float, float]
"""A prefetch limit, and waste and loss from 0 to 1."""

CurrentPoint = tuple[float | None, float, float]
"""A prefetch limit (None: no limit), and waste and loss from 0 to 1."""

_PERCENT_AXIS: Final = {
    "title_text": "% of messages",
    "type": "log",
    "tickvals": [MIN_PERCENT, 1, 10, 100],
    "ticktext": [f"≤ {MIN_PERCENT:g}", "1", "10", "100"],
    "minor": {"ticks": ""},
}
_LIMIT_TICKS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384)
_SYMBOLS: Final = ("circle", "square", "triangle-up", "diamond", "x", "star", "cross", "pentagon")
_CAPTION_LETTERS: Final = 68

_LIFE_COLUMNS: Final = ("message", "rank", "came_us", "expires_us", "forwarded_us", "read_us")
_MIN_DAYS: Final = 2
_GAP_PX, _LINE_PX, _MARGINS_PX = 45, 9, 215


@described
def waste_and_loss_by_limit(
    table: pd.DataFrame, *, title: str = "Waste and loss by the prefetch limit"
) -> go.Figure:
    """Draw waste (solid) and loss (dashed) over the prefetch limit, a pair of lines per share of outages.

    Lines are medians over seeds, thin bars reach from the lowest to the highest seed, and the caption has the
    parameters of the runs. Figure 3 of the Last hop paper.

    Parameters
    ----------
    table : pandas.DataFrame
        What :func:`mudkit.systems.lasthop.simulate_grid` returns for ``prefetch_limit`` and ``outage``.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        The table is empty, or lacks a column.
    """
    x, by = "prefetch_limit", "outage"
    columns = (x, by, "waste", "loss")
    require_columns(table, "table", columns, remedy="lasthop.simulate_grid returns such a table")
    if table.empty:
        raise ParameterError(
            "The table has no row to draw.",
            where="table",
            found="0 rows",
            expected=f"rows of lasthop.simulate_grid with {', '.join(columns)}",
        )
    figure = go.Figure()
    for measure, dash in (("waste", "solid"), ("loss", "dash")):
        _add_lines(figure, table, measure, dash)
    for name, dash, symbol in (("waste", "solid", "circle"), ("loss", "dash", "circle-open")):
        figure.add_scatter(
            x=[None], y=[None], name=name, mode="lines+markers", line={"color": INK, "dash": dash},
            marker={"symbol": symbol},
        )  # fmt: skip
    figure.add_hline(1.0, line={"dash": "dot", "width": 1, "color": GREY})
    figure.add_vrect(16, 64, fillcolor=GREY, opacity=0.12, line_width=0)
    limits = sorted(table[x].unique())
    limits = limits[:: -(-len(limits) // 10)]
    figure.update_xaxes(
        title_text="prefetch limit, messages (grey: the paper's band)",
        type="log",
        tickvals=limits,
        ticktext=[words.count(int(limit)) for limit in limits],
        minor={"ticks": ""},
    )
    figure.update_yaxes(range=[-1.08, 2.0], **_PERCENT_AXIS)
    lines = textwrap.wrap(_caption(table.attrs.get("parameters", {})), _CAPTION_LETTERS)
    figure.add_annotation(
        text="<br>".join(lines), xref="paper", yref="paper", x=0, y=0, yshift=-80, yanchor="top",
        xanchor="left", align="left", showarrow=False, font={"size": TEXT_PX},
    )  # fmt: skip
    height_px, below_px = 462 + 18 * len(lines), 90 + 18 * len(lines)
    legend = {"title": {"text": "time without a network"}}
    return styled(figure, height_px, (70, 20, 60, below_px), title, legend=legend)


def _add_lines(figure: go.Figure, table: pd.DataFrame, measure: str, dash: str) -> None:
    """Add a line per share of outages; larger shares are darker."""
    shares = sorted(table["outage"].unique())
    colours = ramp(len(shares) + 2)[2:]  # the lightest are hard to see on white
    filled = "" if dash == "solid" else "-open"
    for number, (share, colour) in enumerate(zip(shares, colours, strict=True)):
        rows = table[table["outage"] == share].groupby("prefetch_limit")
        spread, name = 100 * rows[measure].agg(["median", "min", "max"]), words.percent(share)
        low, middle, high = (spread[end].clip(lower=MIN_PERCENT) for end in ("min", "median", "max"))
        figure.add_scatter(
            x=spread.index, y=middle, name=name, meta=measure, legendgroup=name,
            showlegend=dash == "solid", mode="lines+markers", line={"color": colour, "dash": dash},
            marker={"symbol": _SYMBOLS[number % len(_SYMBOLS)] + filled, "size": 7},
            error_y={
                "type": "data", "symmetric": False, "array": high - middle, "arrayminus": middle - low,
                "thickness": 1, "width": 0,
            },
            customdata=spread.to_numpy(),
            hovertemplate=f"{measure} %{{customdata[0]:.2f}} % "
            f"(%{{customdata[1]:.2f}}–%{{customdata[2]:.2f}})<extra>{name}</extra>",
        )  # fmt: skip


def _caption(parameters: Mapping[str, Any]) -> str:
    """Describe the parameters of a sweep, except those that vary."""
    fixed = {name: value for name, value in parameters.items() if not isinstance(value, list)}
    parts = []
    if "event_frequency" in fixed:
        parts.append(f"{fixed['event_frequency']:g} messages a day")
    if "user_frequency" in fixed:
        parts.append(f"{fixed['user_frequency']:g} reads a day")
    if "max" in fixed:
        parts.append("reads of all there is" if fixed["max"] is None else f"reads of at most {fixed['max']}")
    if "outage" in parameters:
        parts.append(_outage_text(parameters))
    if fixed.get("expiration", 0) is None:
        parts.append("nothing expires")
    elif "expiration" in parameters:
        parts.append(_expiration_text(parameters))
    if fixed.get("threshold"):
        parts.append(f"ranks of {fixed['threshold']:g} and more")
    if "policy" in fixed:
        parts.append(f"policy {_policy_text(fixed)}")
    if "reads_cv" in fixed:
        parts.append(f"spread of the reads a day {fixed['reads_cv']:g}")
    if "days" in fixed:
        parts.append(f"{fixed['days']:,} days")
    if seeds := len(parameters.get("seeds", [])):
        parts.append("one seed" if seeds == 1 else f"medians of {seeds} seeds, bars from lowest to highest")
    return "; ".join(parts)


def _outage_text(parameters: Mapping[str, Any]) -> str:
    """Return the outages of a sweep in words."""
    share, per_day, law = parameters["outage"], parameters.get("outages_per_day"), "exponential"
    if isinstance(share, Mapping):
        share, per_day, law = share["share"], share["per_day"], share["distribution"]
    if share == 0.0:
        return "no outages"
    of_time = "" if isinstance(share, list) else f" {words.percent(share)} of the time"
    return f"outages{of_time}, {law}" + (f", {per_day:g} a day" if isinstance(per_day, int | float) else "")


def _expiration_text(parameters: Mapping[str, Any]) -> str:
    """Return the expiration times of a sweep in words."""
    time, share, law = parameters["expiration"], parameters.get("expiring_share", 1.0), "exponential"
    if isinstance(time, Mapping):
        time, law = time["mean_s"], time["law"]
    mean = f", mean {words.duration(time)}" if isinstance(time, int | float) else ""
    of_messages = "" if share == 1.0 else f", for {words.percent(share)} of the messages"
    return f"expiration times {law}{mean}{of_messages}"


def _policy_text(fixed: Mapping[str, Any]) -> str:
    """Return the policy of a sweep in words."""
    policy = fixed["policy"]
    settings = policy if isinstance(policy, Mapping) else fixed
    parts = [str(settings["kind"] if isinstance(policy, Mapping) else policy)]
    limit, threshold_s = settings.get("prefetch_limit"), settings.get("expiration_threshold_s")
    if limit is not None:
        parts.append(f"prefetch limit {limit if isinstance(limit, str) else words.count(limit)}")
    if threshold_s is not None:
        time = threshold_s if isinstance(threshold_s, str) else words.duration(threshold_s)
        parts.append(f"expiration threshold {time}")
    return ", ".join(parts)


@described
def limit_curve(points: Sequence[LimitPoint], now: CurrentPoint, *, title: str) -> go.Figure:
    """Draw waste and loss over the prefetch limit on logarithmic axes, and the current point.

    Parameters
    ----------
    points : sequence of (float, float, float)
        Limits of 1 and more, ascending, with their waste and loss from 0 to 1.
    now : (float or None, float, float)
        Current limit, waste and loss, drawn large. None: there is no limit, and a level line is drawn.
    title : str
        Title of the figure.
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
                marker={"symbol": symbol, "size": 13, "line": {"color": INK, "width": 1.5}},
                hovertemplate=f"now: {name} %{{customdata:.2f}} %<extra></extra>",
            )
        )
    figure.update_xaxes(
        title_text="prefetch limit, messages on the device",
        type="log",
        tickvals=_LIMIT_TICKS,
        ticktext=[f"{limit:,}" for limit in _LIMIT_TICKS],
        minor={"ticks": ""},
    )
    figure.update_yaxes(range=[-1.05, 2.0], **_PERCENT_AXIS)
    figure.add_hline(1.0, line={"dash": "dot", "width": 1})
    styled(figure, 400, (70, 20, 70, 60), legend=LEGEND_ABOVE)
    update_limit_curve(figure, points, now, title=title)
    return figure


@redescribed
def update_limit_curve(
    figure: go.Figure, points: Sequence[LimitPoint], now: CurrentPoint, *, title: str
) -> None:
    """Replace the points of a figure that :func:`limit_curve` returned.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        Figure to change.
    points, now, title
        As in :func:`limit_curve`.
    """
    limits = [limit for limit, _, _ in points]
    limit = now[0]
    for place in (0, 1):
        shares = [100 * (waste, loss)[place] for _, waste, loss in points]
        line, mark = figure.data[2 * place], figure.data[2 * place + 1]
        line.update(x=limits, y=[max(share, MIN_PERCENT) for share in shares], customdata=shares)
        share = 100 * (now[1], now[2])[place]
        at = [limit] if limit is not None else [limits[0], limits[-1]] if limits else []
        mark.update(x=at, y=[max(share, MIN_PERCENT)] * len(at), customdata=[share] * len(at))
    figure.update_layout(title=heading(title))


@check_arguments(types=False)
def message_fates(table: pd.DataFrame, best: pd.DataFrame) -> pd.Series[str]:
    """Classify messages by waste and loss.

    Parameters
    ----------
    table, best : pandas.DataFrame
        What :func:`mudkit.systems.lasthop.message_lifecycles` returns for a policy, and for the on-line
        policy on the same events.

    Returns
    -------
    Series of str
        ``read``; ``wasted``: forwarded and never read; ``lost``: neither, but read with the on-line policy;
        ``wasted and lost``; ``neither``.
    """
    is_read, is_forwarded = table["read_us"] >= 0, table["forwarded_us"] >= 0
    is_lost = ~is_read & (best["read_us"] >= 0)
    fate = is_read.map({True: "read", False: "neither"})
    fate[is_forwarded & ~is_read] = "wasted"
    fate[is_lost] = "lost"
    fate[is_forwarded & is_lost] = "wasted and lost"
    return fate


@described
def message_lifecycles(
    tables: Lifelines | Mapping[str, pd.DataFrame],
    best: pd.DataFrame | None = None,
    *,
    reads_us: Sequence[int] = (),
    switches_us: Sequence[int] = (),
    starts_up: bool = True,
    until_us: int = 0,
    from_us: int = 0,
    max_messages: int = 60,
    title: str,
) -> go.Figure:
    """Draw each message as a line: thin while it waits at the server, thick while it is on the device.

    Messages that are on a device in the window are drawn, and those that the on-line policy has read in it.

    Parameters
    ----------
    tables : Lifelines, or mapping of str to pandas.DataFrame
        What :func:`mudkit.systems.lasthop.lifelines` returns, which has all that follows but the title; or
        what :func:`mudkit.systems.lasthop.message_lifecycles` returns for policies on the same events, by the
        heading of their panel.
    best : pandas.DataFrame, optional
        The same for the on-line policy.
    reads_us : sequence of int
        Times at which the user reads, µs (dotted lines).
    switches_us : sequence of int
        Times at which the link goes down or up, µs (grey: no link).
    starts_up : bool
        Whether the link is up at time 0.
    until_us : int
        End of the window, µs.
    from_us : int
        Beginning of the window, µs.
    max_messages : int
        Largest number of messages; of more, half are those that the first policy wastes or loses, and
        all are nearest to the middle of the window.
    title : str
        Title of the figure.
    """
    if isinstance(tables, Lifelines):
        lives = tables
        tables, best, until_us = lives.tables, lives.best, lives.until_us
        reads_us, switches_us = lives.drawn.reads_us.tolist(), lives.drawn.switches_us.tolist()
        starts_up = lives.drawn.starts_up
    if best is None:
        raise ParameterError("The table of the on-line policy is missing.", where="best", expected="a table")
    for name, table in tables.items():
        require_columns(table, name, _LIFE_COLUMNS)
    is_drawn = best["read_us"].between(from_us, until_us)
    for table in tables.values():
        over_us = table["read_us"].where(table["read_us"] >= 0, table["expires_us"])
        is_drawn |= table["forwarded_us"].between(0, until_us) & (over_us >= from_us)
    note = ""
    if (count := int(is_drawn.sum())) > max_messages:
        is_drawn = _nearest(
            next(iter(tables.values())), best, is_drawn, (from_us + until_us) // 2, max_messages
        )
        note = f"{max_messages} of {count:,} messages"
    elif count < len(best):
        note = f"{count:,} of {len(best):,} messages; the others are on no device in this time"
    drawn = {
        name: _life_rows(table[is_drawn], best[is_drawn], from_us, until_us) for name, table in tables.items()
    }
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
    outages = _outage_spans(switches_us, starts_up, from_us, until_us)
    named: set[str] = set()
    shapes: list[dict[str, Any]] = []
    for place, (panel, rows) in enumerate(drawn.items(), start=1):
        for trace in _life_traces(rows):
            trace.meta = panel
            trace.showlegend = trace.name not in named
            named.add(trace.name)
            figure.add_trace(trace, place, 1)
        shapes += _shades(place, [time for time in reads_us if from_us <= time <= until_us], outages)
        figure.update_yaxes(
            range=[len(rows) - 0.3, -0.7],
            showticklabels=False,
            ticks="",
            title_text="messages",
            row=place,
            col=1,
        )
    ticks = _day_ticks(from_us, until_us)
    unit = "time" if ticks else "hours"
    figure.update_xaxes(range=[from_us / HOUR_US, until_us / HOUR_US], **ticks)
    figure.update_xaxes(title_text=f"{unit} (grey: no link; dotted: the user reads)", row=len(drawn), col=1)
    top = heading(title, note, y=1 - 12 / height_px, yanchor="top")
    return styled(figure, height_px, (50, 20, 90, 125), top, shapes=shapes, legend=LEGEND_BELOW)


def _nearest(
    table: pd.DataFrame, best: pd.DataFrame, is_drawn: pd.Series[bool], middle_us: int, most: int
) -> pd.Series[bool]:
    """Return which of the messages are kept: half of them wasted or lost, the others as they came."""
    harmed = message_fates(table, best).isin(["wasted", "lost", "wasted and lost"])
    distance = (table["came_us"] - middle_us).abs()[is_drawn]
    first = distance[harmed[is_drawn]].nsmallest(most // 2).index
    rest = distance.drop(first).nsmallest(most - len(first)).index
    kept: pd.Series[bool] = is_drawn & table.index.isin(first.union(rest))
    return kept


def _day_ticks(from_us: int, until_us: int) -> dict[str, Any]:
    """Return ticks of an axis of hours at the beginning of days, at most ten; none for less than two days."""
    first, last = -(-from_us // (24 * HOUR_US)), until_us // (24 * HOUR_US)
    if until_us - from_us < _MIN_DAYS * 24 * HOUR_US:
        return {}
    days = range(first, last + 1, 1 + (last - first) // 10)
    return {"tickvals": [24 * day for day in days], "ticktext": [f"day {day + 1}" for day in days]}


def _life_rows(table: pd.DataFrame, best: pd.DataFrame, from_us: int, until_us: int) -> list[dict[str, Any]]:
    """Return what is drawn of each message, times in hours within the window."""
    rows = []
    missed_us = best["read_us"].tolist()
    fates = message_fates(table, best)
    for row, fate, best_us in zip(table.to_dict("records"), fates, missed_us, strict=True):
        forwarded_us, read_us = row["forwarded_us"], row["read_us"]
        over_us = read_us if read_us >= 0 else min(row["expires_us"], until_us)
        left_us = forwarded_us if forwarded_us >= 0 else over_us
        rows.append(
            {
                "message": f"message {row['message']}, rank {row['rank']:.2f}",
                "is_read": read_us >= 0,
                "is_forwarded": from_us <= over_us and 0 <= forwarded_us <= until_us,
                "begin": max(row["came_us"], from_us) / HOUR_US,
                "left": max(min(left_us, until_us), from_us) / HOUR_US,
                "over": max(min(over_us, until_us), from_us) / HOUR_US,
                "missed": best_us / HOUR_US,
                "read": read_us >= 0 and from_us <= read_us <= until_us,
                "expires": read_us < 0 and from_us <= row["expires_us"] <= until_us,
                "lost": "lost" in fate and from_us <= best_us <= until_us,
            }
        )
    return rows


def _life_traces(rows: list[dict[str, Any]]) -> list[go.Scatter]:
    """Return the traces of messages' lives, and of the marks on them."""
    waits = _segments(rows, "begin", "left", lambda row: True)
    traces = [go.Scatter(**waits, name="waits at the server", mode="lines", line={"color": GREY, "width": 1})]
    for name, colour, is_read in (
        ("on the device, and read", BLUE, True),
        ("on the device for nothing: waste", ORANGE, False),
    ):
        on_device = _segments(
            rows, "left", "over", lambda row, read=is_read: row["is_forwarded"] and row["is_read"] == read
        )
        if on_device["x"]:
            traces.append(
                go.Scatter(**on_device, name=name, mode="lines", line={"color": colour, "width": 5})
            )
    for what, at, name, symbol, colour in (
        ("read", "over", "read", "circle", BLUE),
        ("expires", "over", "expires", "line-ns-open", INK),
        ("lost", "missed", "lost: read on-line, not here", "x", PINK),
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


def _segments(rows: list[dict[str, Any]], begin: str, end: str, is_wanted: Any) -> dict[str, list[Any]]:
    """Return the lines of chosen rows from one time to another, with gaps between them."""
    chosen = [(place, row) for place, row in enumerate(rows) if is_wanted(row)]
    x = [value for _, row in chosen for value in (row[begin], row[end], None)]
    return {"x": x, "y": [value for place, _ in chosen for value in (place, place, None)]}


def _outage_spans(
    switches_us: Sequence[int], starts_up: bool, from_us: int, until_us: int
) -> list[tuple[int, int]]:
    """Return the outages within a window."""
    is_up, outages = starts_up, []
    for begin_us, end_us in pairwise([0, *switches_us, until_us]):
        if not is_up and begin_us < until_us and end_us > from_us:
            outages.append((max(begin_us, from_us), min(end_us, until_us)))
        is_up = not is_up
    return outages


def _shades(place: int, reads_us: Sequence[int], outages: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the shapes of a panel's outages and reads; plotly needs seconds to add them one by one."""
    number = "" if place == 1 else str(place)
    across = {"xref": f"x{number}", "yref": f"y{number} domain", "layer": "below", "opacity": 1}
    grey = {"type": "rect", "fillcolor": "rgba(128,128,128,0.2)", "line": {"width": 0}}
    dotted = {"type": "line", "line": {"dash": "dot", "width": 1, "color": INK}}
    spans = [*((grey, *outage) for outage in outages), *((dotted, time, time) for time in reads_us)]
    return [
        across | look | {"x0": begin_us / HOUR_US, "x1": end_us / HOUR_US, "y0": 0, "y1": 1}
        for look, begin_us, end_us in spans
    ]
