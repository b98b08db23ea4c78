"""Energy over time: what a radio did and what it took, and what is left in the batteries of a fleet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from mudkit.errors import TraceContentError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.clock import NO_TIME, Bars, TimeAxis, needed, times_us
from mudkit.figures.base.colours import short_number
from mudkit.figures.base.labels import natural
from mudkit.figures.base.template import template
from mudkit.units import US_PER_S

__all__ = ["MAX_LINES", "STATES", "battery", "radio"]

MAX_LINES = 12
"""Above this number of devices batteries are drawn as a median and a band."""

STATES = {"idle": GREY, "promotion": "#CC79A7", "active": ORANGE, "tail": BLUE}
"""The states of a radio, from the bottom of the strip to its top, and their colours."""

_COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#000000")
_DASHES = ("solid", "dash", "dot", "dashdot")
_MOMENTS = 400  # at which a band is computed: more than a screen shows


def radio(timeline: pd.DataFrame, *, title: str = "") -> go.Figure:
    """Draw the states of one radio as a strip, and below it the power that it took.

    The area below the line of power is energy; the legend says how much of it each state took.

    Parameters
    ----------
    timeline : pandas.DataFrame
        ``start, end, state, power_mw`` of one device: times (UTC), one of :data:`STATES`, and the mean power
        over the stretch. Stretches may leave gaps, and do not overlap.
    title : str

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        It has no row, an unknown state, or stretches that end before they start or overlap.
    """
    timeline = needed(timeline, "timeline", ("start", "end", "state", "power_mw"))
    start, end = times_us(timeline, "start", "timeline"), times_us(timeline, "end", "timeline")
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    state = timeline["state"].astype(str).to_numpy()[order]
    power_mw = timeline["power_mw"].to_numpy(float)[order]
    _refuse(start, end, state)
    energy_j = power_mw * (end - start) / US_PER_S / 1e3
    axis = TimeAxis(int(start[0]), int(end.max()))
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.38, 0.62])
    total_j = float(energy_j.sum())
    for rank, (name, colour) in enumerate(STATES.items(), start=1):
        chosen = state == name
        if not chosen.any():
            continue
        bars = Bars()
        bars.add(start[chosen], end[chosen], np.full(chosen.sum(), float(rank - 1)), 0.36)
        took_j = float(energy_j[chosen].sum())
        part = f" ({100 * took_j / total_j:.0f} %)" if total_j > 0 else ""
        label = f"{name}: {short_number(took_j)} J{part}"
        figure.add_trace(bars.trace(axis, label, colour, line_px=1.5, rank=rank), row=1, col=1)
    for trace in (
        _steps(start, end, power_mw, axis),
        _hover_targets(start, end, state, power_mw, energy_j, axis),
    ):
        figure.add_trace(trace, row=2, col=1)
    label = f"{short_number(total_j)} J in all, {axis.span}"
    _style(figure, title or "What the radio did and took", label, 430)
    figure.update_yaxes(
        tickvals=list(range(len(STATES))),
        ticktext=list(STATES),
        range=[-0.6, len(STATES) - 0.4],
        ticks="",
        showline=False,
        showgrid=True,
        row=1,
        col=1,
    )
    figure.update_yaxes(title_text="power, mW", tickformat=",", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(showline=False, ticks="", row=1, col=1)
    figure.update_xaxes(title_text=axis.title, title_standoff=6, row=2, col=1)
    figure.update_xaxes(range=axis.values([axis.origin_us, axis.end_us]))
    return figure


def battery(levels: pd.DataFrame, *, title: str = "") -> go.Figure:
    """Draw what is left in batteries: a line a device, or above ``MAX_LINES`` the median and a band.

    The band holds the devices between the 10th and the 90th percentile. Between two levels a battery empties
    evenly; after its last one it stays as it is, so that a device that is empty goes on to count.

    Parameters
    ----------
    levels : pandas.DataFrame
        ``ts, device, battery_j``: times (UTC) and joules left; rows with a null are left out.
    title : str

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        It has no row with a level.
    """
    levels = needed(levels, "levels", ("ts", "device", "battery_j"))
    table = pd.DataFrame(
        {
            "t_us": times_us(levels, "ts", "levels"),
            "device": levels["device"].astype(str).to_numpy(),
            "battery_j": levels["battery_j"].to_numpy(float),
        }
    )
    table = table[(table["t_us"] != NO_TIME) & table["battery_j"].notna()]
    if not len(table):
        raise TraceContentError(
            "There is no battery to draw.",
            where="levels",
            found=f"{len(levels):,} rows, none with a level",
            expected="at least one time with a level in joules",
        )
    table = table.sort_values(["device", "t_us"], kind="stable")
    axis = TimeAxis(int(table["t_us"].min()), int(table["t_us"].max()))
    lines = {str(name): rows for name, rows in table.groupby("device")}
    lines = {name: lines[name] for name in sorted(lines, key=natural)}
    figure = go.Figure(_lines(lines, axis) if len(lines) <= MAX_LINES else _band(lines, axis))
    label = f"{len(lines):,} device{'s' if len(lines) > 1 else ''}, {axis.span}"
    _style(figure, title or "What is left in the batteries", label, 420)
    figure.update_xaxes(title_text=axis.title, title_standoff=6)
    figure.update_yaxes(title_text="left in the battery, J", tickformat=",", rangemode="tozero")
    return figure


def _refuse(start: NDArray[np.int64], end: NDArray[np.int64], state: NDArray[Any]) -> None:
    """Refuse what would be drawn wrong."""
    problem = None
    if not len(start):
        problem = "has no row"
    elif (start == NO_TIME).any() or (end == NO_TIME).any():
        problem = "has a stretch without a start or an end"
    elif (end < start).any():
        problem = f"has {int((end < start).sum()):,} stretches that end before they start"
    elif (end[:-1] > start[1:]).any():
        problem = f"has {int((end[:-1] > start[1:]).sum()):,} stretches that overlap the next"
    elif unknown := sorted(set(state) - set(STATES)):
        problem = f"has states that no radio knows: {', '.join(unknown[:5])}"
    if problem:
        raise TraceContentError(
            f"This is not the timeline of a radio: it {problem}.",
            where="timeline",
            found=f"{len(start):,} rows",
            expected=f"stretches of one device, one after the other, each {', '.join(STATES)}",
            remedy="choose the rows of one device",
        )


def _steps(
    start: NDArray[np.int64], end: NDArray[np.int64], power_mw: NDArray[np.float64], axis: TimeAxis
) -> Any:
    """Draw power as steps that fall to nothing in a gap."""
    t = np.column_stack([start, end]).ravel()
    mw = np.repeat(power_mw, 2)
    gaps = np.flatnonzero(start[1:] > end[:-1]) * 2 + 2
    t = np.insert(t, np.repeat(gaps, 2), np.column_stack([t[gaps - 1], t[gaps]]).ravel())
    mw = np.insert(mw, np.repeat(gaps, 2), 0.0)
    return go.Scatter(
        x=axis.values(t), y=mw, mode="lines", line={"color": "#333333", "width": 1.5}, fill="tozeroy",
        fillcolor="rgba(153,153,153,0.3)", hoverinfo="skip", showlegend=False, name="power",
    )  # fmt: skip


def _hover_targets(
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    state: NDArray[Any],
    power_mw: NDArray[np.float64],
    energy_j: NDArray[np.float64],
    axis: TimeAxis,
) -> Any:
    """Say under the pointer what a stretch is."""
    labels = [
        f"{name} for {short_number(us / US_PER_S)} s<br>{short_number(mw)} mW, {short_number(joules)} J"
        for name, us, mw, joules in zip(state, end - start, power_mw, energy_j, strict=True)
    ]
    return go.Scatter(
        x=axis.values((start + end) // 2),
        y=power_mw,
        text=labels,
        mode="markers",
        hoverinfo="text",
        marker={"size": 8, "opacity": 0},
        showlegend=False,
        name="stretches",
    )


def _lines(lines: dict[str, pd.DataFrame], axis: TimeAxis) -> list[Any]:
    return [
        go.Scatter(
            x=axis.values(rows["t_us"].to_numpy()),
            y=rows["battery_j"],
            name=name,
            mode="lines",
            line={
                "color": _COLOURS[number % len(_COLOURS)],
                "dash": _DASHES[(number + number // len(_COLOURS)) % len(_DASHES)],
                "width": 2,
            },
        )
        for number, (name, rows) in enumerate(lines.items())
    ]


def _band(lines: dict[str, pd.DataFrame], axis: TimeAxis) -> list[Any]:
    moments = np.linspace(axis.origin_us, axis.end_us, _MOMENTS).round().astype(np.int64)
    levels = np.array(
        [np.interp(moments, rows["t_us"], rows["battery_j"], left=np.nan) for rows in lines.values()]
    )
    known = np.isfinite(levels).any(axis=0)
    low, middle, high = np.nanquantile(levels[:, known], (0.1, 0.5, 0.9), axis=0)
    times = moments[known]
    around = axis.values(np.concatenate([times, times[::-1]]))
    return [
        go.Scatter(
            x=around, y=np.concatenate([low, high[::-1]]), fill="toself", fillcolor="rgba(0,114,178,0.22)",
            line={"color": "rgba(0,114,178,0.6)", "width": 1, "dash": "dot"}, mode="lines", hoverinfo="skip",
            name="10th to 90th percentile",
        ),
        go.Scatter(
            x=axis.values(times), y=middle, name="median", mode="lines", line={"color": BLUE, "width": 2.5},
            hovertemplate="%{x}<br>%{y:.4g} J in the median<extra></extra>",
        ),
    ]  # fmt: skip


def _style(figure: go.Figure, title: str, subtitle: str, height_px: int) -> None:
    figure.update_layout(
        template=template(),
        title={"text": title, "font": {"size": 16}, "subtitle": {"text": subtitle, "font": {"size": 12}}},
        height=height_px,
        margin={"l": 80, "r": 30, "t": 75, "b": 95},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        hovermode="closest",
    )
