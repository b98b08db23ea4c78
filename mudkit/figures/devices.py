"""Devices over time: links, radio, places that left a device, and a fleet on the move."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from plotly.subplots import make_subplots

from mudkit import words
from mudkit.checks import check_arguments, time_zone
from mudkit.display import INK
from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.alternative import described, set_text
from mudkit.figures.style import (
    BLUE,
    GREY,
    LEGEND_ABOVE,
    LEGEND_BELOW,
    ORANGE,
    PINK,
    TEXT_PX,
    dots,
    heading,
    lanes,
    map_axes,
    natural_key,
    styled,
)
from mudkit.figures.tables import Floats, require_columns, rows_of
from mudkit.figures.times import NO_TIME, Bars, TimeAxis, Times, as_us, format_time, times_us
from mudkit.fleet.coverage import AccessPoint
from mudkit.lab import Lab
from mudkit.trace.schema import epoch_us
from mudkit.units import KM_PER_DEGREE, US_PER_S

MAX_LABELLED: Final = 40
"""Maximum number of devices that a strip chart names."""

_MAX_POINTED: Final = 4000  # stretches with a text under the pointer; more would make a page slow
_EDGES_KBPS: Final = (0, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
_MAX_CLASSES: Final = 6
_SLOW, _FAST = (168, 208, 235), (0, 84, 140)  # light and dark blue; the figures' blue lies between
_LEGEND_ROW_PX: Final = 19
_RADIO_STATES: Final = {"idle": GREY, "promotion": PINK, "active": ORANGE, "tail": BLUE}
"""Colours of a radio's states, from the bottom of the strip to its top."""
_RADIO_NAMES: Final = {"promotion": "ramp"}
"""States whose name on screen is another one."""
_PLACE_MARKS: Final = {"stayed on the device": (GREY, "circle-open"), "left the device": (BLUE, "circle")}
_MAX_STREET_POINTS: Final = 4000  # enough to see streets, few enough to draw at once
_CIRCLE_POINTS: Final = 49
_MARGIN_SHARE: Final = 0.03  # half a marker beside the axis, and some
_MIN_MARGIN_DEG: Final = 5e-4
_MAX_SILENCE_S: Final = 600.0  # a device that has been silent for longer is not drawn
_LINK_SYMBOLS, _LINK_COLOURS, _LINK_SIZES_PX = ("circle", "x"), (BLUE, ORANGE), (9, 11)  # up, down


def link_states(links: pd.DataFrame, *, end_us: int | None = None) -> pd.DataFrame:
    """Return links as stretches of time: ``device, start_us, end_us, up, down_kbps``, none of them empty.

    A state holds until the device's next row, and the last ones until ``end_us`` (None: the table's last
    time).
    """
    require_columns(links, "links", ("device", "ts", "up"))
    speed = links["down_kbps"].astype(float) if "down_kbps" in links.columns else np.nan
    rows = pd.DataFrame(
        {
            "device": links["device"].astype(str),
            "start_us": times_us(links, "ts", "links"),
            "end_us": 0,
            "up": links["up"].astype(bool),
            "down_kbps": speed,
        }
    ).sort_values(["device", "start_us"], kind="stable", ignore_index=True)
    last = int(rows["start_us"].max()) if end_us is None and len(rows) else end_us or 0
    following = rows.groupby("device")["start_us"].shift(-1)
    rows["end_us"] = following.fillna(last).astype(np.int64).clip(upper=last)
    return rows[rows["end_us"] > rows["start_us"]].reset_index(drop=True)


@described
def link_strip(
    links: Lab | pd.DataFrame, *, devices: Sequence[str] | None = None, end: Any = None, title: str = ""
) -> go.Figure:
    """Draw a row per device: its link over time, and the share of time that it was down.

    Where the link was down a row is high and orange; where it was up it is low, and darker for a higher
    measured throughput. A row begins with the device's first state. Above 40 devices the rows have no names,
    and the device that was down longest is at the top.

    Parameters
    ----------
    links : Lab or pandas.DataFrame
        A lab, or a table with the columns of :data:`mudkit.trace.schema.LINKS`: a state holds until the
        device's next row.
    devices : sequence of str, optional
        Devices from top to bottom; by default all, by name.
    end : datetime-like, optional
        End of the last states, UTC without a zone; by default the present of the lab, or the table's last
        time.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        The table lacks a column, or a device has no row.
    TraceContentError
        There is nothing to draw.
    """
    if isinstance(links, Lab):
        end, links = links.now if end is None else end, links.frame("links")
    drawn = link_states(links, end_us=None if end is None else as_us(end, "end"))
    if devices is not None:
        _refuse_unknown(devices, links)
        drawn = drawn[drawn["device"].isin(list(devices))].reset_index(drop=True)
    if not len(drawn):
        raise TraceContentError(
            "No link has a state for any length of time.",
            where="links",
            found=f"{len(links):,} rows",
            expected="at least one row before the end",
            remedy="give end= if each device has a single row: a state holds until the next row, or the end",
        )
    # Rows count for the days with data: a state may hold for weeks after its row.
    axis = TimeAxis.of(drawn["start_us"].to_numpy(), int(drawn["end_us"].max()))
    length_s = (drawn["end_us"] - drawn["start_us"]) / US_PER_S
    shown_s = pd.Series(axis.shown_s(drawn["start_us"].to_numpy(), drawn["end_us"].to_numpy()), drawn.index)
    down: dict[Any, float] = (
        shown_s.where(~drawn["up"], 0.0).groupby(drawn["device"]).sum()
        / shown_s.groupby(drawn["device"]).sum()
    ).to_dict()
    names = list(map(str, down)) if devices is None else [name for name in devices if name in down]
    is_named = len(names) <= MAX_LABELLED
    if devices is None:
        names.sort(key=natural_key if is_named else lambda name: -down[name])
    rows = drawn["device"].map({name: row for row, name in enumerate(names)}).astype(float).to_numpy()
    figure = go.Figure(_link_bars(drawn, rows, axis, is_named))
    figure.add_trace(_link_hover(drawn, rows, axis, length_s.to_numpy()))
    if is_named:
        figure.add_trace(
            go.Scatter(
                x=[axis.layout()["range"][1]] * len(names),
                y=list(range(len(names))),
                mode="text",
                text=[f" {words.percent(down[name])} down" for name in names],
                textposition="middle right",
                cliponaxis=False,
                hoverinfo="skip",
                showlegend=False,
                textfont={"size": TEXT_PX},
            )
        )
    # Beside a file browser a row holds two names.
    legend_px = _LEGEND_ROW_PX * -(-sum(trace.showlegend is not False for trace in figure.data) // 2)
    shares = np.array([down[name] for name in names])
    label = f"{words.count(len(names), 'device')}, {axis.span}"
    if len(names) > 1:
        middle, most = words.percent(float(np.median(shares))), words.percent(shares.max())
        label += f"<br>down {middle} of the time in the median, at most {most}"
    styled(
        figure,
        160 + legend_px + (26 * len(names) if is_named else min(800, max(420, 4 * len(names)))),
        (80, 95 if is_named else 30, 95, 65 + legend_px),
        heading(title or "Links over time", label),
        legend=LEGEND_BELOW,
        hovermode="closest",
    )
    figure.update_xaxes(title_standoff=6, zeroline=False, **axis.layout())
    figure.update_yaxes(range=[len(names) - 0.4, -0.6], zeroline=False, ticks="", showline=False)
    if is_named:
        figure.update_yaxes(**lanes(names, -0.6, 0.4), automargin=True)
    else:
        order = "as given" if devices is not None else "most time down at the top"
        figure.update_yaxes(title_text=f"{len(names):,} devices, {order}", showticklabels=False)
    return figure


def link_colours(classes: int) -> list[str]:
    """Return the colours of links by class of throughput, from the slowest."""
    if classes == 1:
        return [BLUE]
    return [
        f"#{red:02x}{green:02x}{blue:02x}"
        for red, green, blue in np.linspace(_SLOW, _FAST, classes).round().astype(int)
    ]


def _link_bars(drawn: pd.DataFrame, rows: NDArray[Any], axis: TimeAxis, is_named: bool) -> list[Any]:
    """Return traces of links that are up, by class of throughput from the slowest, then of those down."""
    start, end = drawn["start_us"].to_numpy(), drawn["end_us"].to_numpy()
    up, kbps = drawn["up"].to_numpy(), drawn["down_kbps"].to_numpy(float)
    traces: list[Any] = []

    def add(name: str, colour: str, chosen: NDArray[np.bool_], half: float, line_px: float = 0.0) -> None:
        if chosen.any():
            bars = Bars()
            bars.add(start[chosen], end[chosen], rows[chosen], half)
            traces.append(bars.trace(axis, name, colour, line_px=line_px, rank=len(traces) + 1))

    low = 0.24 if is_named else 0.36  # thin rows need their height
    add("up", "#7FB8DA", up & np.isnan(kbps), low)
    measured = up & ~np.isnan(kbps)
    edges = [*_EDGES_KBPS, np.inf]
    place = np.searchsorted(_EDGES_KBPS, np.where(measured, kbps, 0.0), side="right") - 1
    if len(np.unique(place[measured])) > _MAX_CLASSES:
        edges = [0, *_EDGES_KBPS[1::2], np.inf]
        place = np.searchsorted(edges[:-1], np.where(measured, kbps, 0.0), side="right") - 1
    classes = np.unique(place[measured])
    for number, colour in zip(classes, link_colours(len(classes)), strict=True):
        first, last = edges[number], edges[number + 1]
        unit, size = ("kbit/s", 1) if last <= 1_000 else ("Mbit/s", 1_000)
        low_edge = words.number(first / size)
        limits = f"{low_edge}–{words.number(last / size)}" if np.isfinite(last) else f"over {low_edge}"
        add(f"up, {limits} {unit}", colour, measured & (place == number), low)
    add("down", ORANGE, ~up, 0.42 if is_named else 0.5, 0.6)
    return traces


def _link_hover(drawn: pd.DataFrame, rows: NDArray[Any], axis: TimeAxis, length_s: NDArray[Any]) -> Any:
    """Return an invisible trace with the text of each stretch; of too many, the longest."""
    chosen = np.argsort(-length_s, kind="stable")[:_MAX_POINTED]
    some = drawn.iloc[chosen]
    labels = []
    for row, seconds in zip(rows_of(some), length_s[chosen], strict=True):
        is_measured = row.up and not np.isnan(row.down_kbps)
        speed = f"<br>{words.number(row.down_kbps)} kbit/s down" if is_measured else ""
        labels.append(
            f"{row.device}: link {'up' if row.up else 'down'} for {words.number(seconds)} s"
            f"<br>{format_time(row.start_us)} – {format_time(row.end_us)} UTC{speed}"
        )
    middle = (some["start_us"].to_numpy() + some["end_us"].to_numpy()) // 2
    return go.Scatter(
        x=axis.values(middle), y=rows[chosen], mode="markers", text=labels, hoverinfo="text",
        showlegend=False, marker={"size": 8, "opacity": 0, "color": GREY}, name="stretches",
    )  # fmt: skip


def _refuse_unknown(devices: Sequence[str], links: pd.DataFrame) -> None:
    """Raise ParameterError if a named device has no row in the table of links."""
    known = set(links["device"].astype(str))
    unknown = [name for name in devices if name not in known]
    if unknown:
        raise ParameterError(
            f"The table of links has no row of {', '.join(unknown[:5])}.",
            where="devices",
            found=f"{len(known):,} devices: {', '.join(sorted(known)[:5])}{', …' if len(known) > 5 else ''}",
            expected="devices that have a row",
        )


@described
def radio_timeline(timeline: pd.DataFrame, *, title: str = "") -> go.Figure:
    """Draw the states of one radio as a strip, and below it its power.

    The area below the line of power is energy; the legend has the energy of each state.

    Parameters
    ----------
    timeline : pandas.DataFrame
        ``start, end, state, power_mw`` of one device, as ``Lab.radio`` returns it: times (UTC), ``idle``,
        ``promotion``, ``active`` or ``tail``, and the mean power over the stretch. Stretches may leave gaps,
        and do not overlap.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        It has no row, an unknown state, or stretches that end before they start or overlap.
    """
    require_columns(timeline, "timeline", ("start", "end", "state", "power_mw"))
    start, end = times_us(timeline, "start", "timeline"), times_us(timeline, "end", "timeline")
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    state = timeline["state"].astype(str).to_numpy()[order]
    power_mw = timeline["power_mw"].to_numpy(float)[order]
    _check_timeline(start, end, state)
    energy_j = power_mw * (end - start) / US_PER_S / 1e3
    axis = TimeAxis(int(start[0]), int(end.max()))
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.38, 0.62])
    total_j = float(energy_j.sum())
    for rank, (name, colour) in enumerate(_RADIO_STATES.items(), start=1):
        chosen = state == name
        if not chosen.any():
            continue
        bars = Bars()
        bars.add(start[chosen], end[chosen], np.full(chosen.sum(), float(rank - 1)), 0.36)
        state_j = float(energy_j[chosen].sum())
        part = f" ({100 * state_j / total_j:.0f} %)" if 200 * state_j >= total_j > 0 else ""  # not 0 %
        label = f"{_RADIO_NAMES.get(name, name)}: {words.number(state_j)} J{part}"
        figure.add_trace(bars.trace(axis, label, colour, line_px=1.5, rank=rank), row=1, col=1)
    labels = [
        f"{_RADIO_NAMES.get(name, name)} for {words.number(us / US_PER_S)} s<br>"
        f"{words.number(mw)} mW, {words.number(joules)} J"
        for name, us, mw, joules in zip(state, end - start, power_mw, energy_j, strict=True)
    ]
    hover = go.Scatter(
        x=axis.values((start + end) // 2), y=power_mw, text=labels, mode="markers", hoverinfo="text",
        marker={"size": 8, "opacity": 0}, showlegend=False, name="stretches",
    )  # fmt: skip
    figure.add_trace(_power_steps(start, end, power_mw, axis), row=2, col=1)
    figure.add_trace(hover, row=2, col=1)
    label = f"{words.number(total_j)} J in all, {axis.span}"
    top = heading(title or "What the radio did and took", label)
    styled(figure, 430, (80, 30, 75, 95), top, legend=LEGEND_BELOW, hovermode="closest")
    rows = lanes([_RADIO_NAMES.get(name, name) for name in _RADIO_STATES], -0.6, 0.4)
    rows["range"].reverse()  # the first state at the bottom
    figure.update_yaxes(**rows, showline=False, showgrid=True, row=1, col=1)
    figure.update_yaxes(title_text="power, mW", tickformat=",", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(showline=False, ticks="", row=1, col=1)
    figure.update_xaxes(title_standoff=6, row=2, col=1, **axis.layout())
    figure.update_xaxes(range=axis.layout()["range"])
    return figure


def _check_timeline(start: Times, end: Times, state: NDArray[Any]) -> None:
    """Raise TraceContentError unless stretches are in order, do not overlap, and have known states."""
    problem = None
    if not len(start):
        problem = "has no row"
    elif (start == NO_TIME).any() or (end == NO_TIME).any():
        problem = "has a stretch without a start or an end"
    elif (end < start).any():
        problem = f"has {int((end < start).sum()):,} stretches that end before they start"
    elif (end[:-1] > start[1:]).any():
        problem = f"has {int((end[:-1] > start[1:]).sum()):,} stretches that overlap the next"
    elif unknown := sorted(set(state) - set(_RADIO_STATES)):
        problem = f"has unknown states: {', '.join(unknown[:5])}"
    if problem:
        raise TraceContentError(
            f"This is not the timeline of a radio: it {problem}.",
            where="timeline",
            found=f"{len(start):,} rows",
            expected=f"stretches of one device, one after the other, each {', '.join(_RADIO_STATES)}",
            remedy="choose the rows of one device",
        )


def _power_steps(start: Times, end: Times, power_mw: Floats, axis: TimeAxis) -> Any:
    """Return power as steps that fall to 0 in gaps."""
    t = np.column_stack([start, end]).ravel()
    mw = np.repeat(power_mw, 2)
    gaps = np.flatnonzero(start[1:] > end[:-1]) * 2 + 2
    t = np.insert(t, np.repeat(gaps, 2), np.column_stack([t[gaps - 1], t[gaps]]).ravel())
    mw = np.insert(mw, np.repeat(gaps, 2), 0.0)
    return go.Scatter(
        x=axis.values(t), y=mw, mode="lines", line={"color": INK, "width": 1.5}, fill="tozeroy",
        fillcolor="rgba(153,153,153,0.3)", hoverinfo="skip", showlegend=False, name="power",
    )  # fmt: skip


@described
def location_exposure(
    places: pd.DataFrame, area: tuple[float, float, float, float], *, title: str = ""
) -> go.Figure:
    """Draw the places that a device has published, and what a relay can tell from their times.

    Parameters
    ----------
    places : pandas.DataFrame
        A row per place: ``at`` (time), ``lat, lon`` (degrees), ``is_away`` (outside of the area) and
        ``is_sent`` (to the relay).
    area : (float, float, float, float)
        South, west, north, east, degrees.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        It has no row.
    """
    require_columns(places, "places", ("at", "lat", "lon", "is_away", "is_sent"))
    if not len(places):
        raise TraceContentError(
            "There is no place to draw.", where="places", found="no rows", expected="a row for each place"
        )
    south, west, north, east = area
    middle = (south + north) / 2, (west + east) / 2
    scale = np.array([KM_PER_DEGREE, KM_PER_DEGREE * np.cos(np.radians(middle[0]))])

    def km(lat: ArrayLike, lon: ArrayLike) -> Floats:
        degrees = np.stack([np.asarray(lat, np.float64), np.asarray(lon, np.float64)], axis=-1)
        return np.asarray((degrees - np.array(middle)) * scale)

    figure = make_subplots(
        rows=1,
        cols=2,
        column_widths=[0.45, 0.55],
        horizontal_spacing=0.16,
        subplot_titles=("where the child was", "away, and what the relay gets"),
    )
    corners = km([south, south, north, north, south], [west, east, east, west, west])
    figure.add_trace(
        go.Scatter(
            x=corners[:, 1],
            y=corners[:, 0],
            mode="lines",
            name="the area",
            hoverinfo="skip",
            line={"color": INK, "width": 2},
        )
    )
    at = km(places["lat"], places["lon"])
    is_sent = places["is_sent"].to_numpy(bool)
    for (name, (colour, symbol)), chosen in zip(_PLACE_MARKS.items(), (~is_sent, is_sent), strict=True):
        figure.add_trace(
            go.Scatter(
                x=at[chosen, 1],
                y=at[chosen, 0],
                mode="markers",
                name=f"{name}: {chosen.sum():,}",
                marker={"size": 5, "color": colour, "symbol": symbol},
                text=[f"{time:%H:%M}" for time in places["at"][chosen].tolist()],
                hovertemplate="%{text} UTC<extra></extra>",
            )
        )
    for column, lane, name, colour in (
        ("is_away", 1.0, "away", ORANGE),
        ("is_sent", 0.0, "something came", BLUE),
    ):
        shown = places["at"][places[column].to_numpy(bool)]
        figure.add_trace(go.Scatter(
            x=shown, y=np.full(len(shown), lane), mode="markers", name=name, showlegend=False,
            marker={"symbol": "line-ns", "size": 34, "line": {"width": 2, "color": colour}},
            hovertemplate="%{x|%H:%M} UTC<extra>" + name + "</extra>",
        ), 1, 2)  # fmt: skip
    figure.update_xaxes(title_text="km east of the middle", constrain="domain", row=1, col=1)
    figure.update_yaxes(
        title_text="km north", scaleanchor="x", scaleratio=1, constrain="domain", row=1, col=1
    )
    span = places["at"].agg(["min", "max"]).tolist()
    is_one_day = span[0].date() == span[1].date()
    figure.update_xaxes(
        title_text=f"{span[0]:%d %B %Y}, UTC" if is_one_day else "time, UTC",
        tickformat="%H:%M" if is_one_day else "%d %b<br>%H:%M",
        tickangle=0,
        nticks=5,
        range=span,
        row=1,
        col=2,
    )
    figure.update_yaxes(
        tickvals=[1, 0],
        ticktext=["the child<br>is away", "the relay gets<br>something"],
        range=[-0.8, 1.8],
        showline=False,
        ticks="",
        row=1,
        col=2,
    )
    return styled(figure, 430, (70, 20, 90, 110), title, legend=LEGEND_BELOW)


@check_arguments(types=False)
@dataclass(frozen=True)
class Fleet:
    """Positions of a fleet, indexed by device for a figure that moves through time.

    Parameters
    ----------
    t_us : ndarray of int64, shape (positions,)
        Times, µs since 1970, ascending within each device.
    lat, lon : ndarray of float64, shape (positions,)
        Degrees.
    device : ndarray of int64, shape (devices + 1,)
        The positions of device ``i`` are ``device[i]:device[i + 1]``.
    names : list of str
        Names of the devices.
    links : dict of str to (ndarray of int64, ndarray of bool), optional
        By device, the times of a link's states, ascending, and whether it is up after each. None: links are
        unknown.
    tz : str
        Time zone of titles.
    access_points : sequence of AccessPoint
        Drawn with their ranges.
    """

    t_us: NDArray[np.int64]
    lat: Floats
    lon: Floats
    device: NDArray[np.int64]
    names: list[str]
    links: dict[str, tuple[NDArray[np.int64], NDArray[np.bool_]]] | None = None
    tz: str = "UTC"
    access_points: Sequence[AccessPoint] = ()

    @classmethod
    def from_tables(
        cls,
        positions: pa.Table,
        links: pa.Table | None = None,
        tz: str = "UTC",
        access_points: Iterable[AccessPoint] = (),
    ) -> Fleet:
        """Build a fleet from tables.

        Parameters
        ----------
        positions : pyarrow.Table
            Columns ``device, ts, lat, lon``, degrees.
        links : pyarrow.Table, optional
            Columns of :data:`mudkit.trace.schema.LINKS`. A state holds until the device's next row; before
            its first row, and without any, a device has a link.
        tz : str
            Time zone of titles.
        access_points : iterable of AccessPoint
            Drawn with their ranges: those of a lab are ``lab.access_points.values()``.

        Raises
        ------
        TraceContentError
            There are no positions.
        ParameterError
            The table of links lacks a column, or the time zone is unknown.
        """
        time_zone("tz", tz)
        if not len(positions):
            raise TraceContentError("There are no positions to draw.", expected="at least one")
        positions = positions.sort_by([("device", "ascending"), ("ts", "ascending")])
        names = positions["device"].combine_chunks().dictionary_encode()
        codes = names.indices.to_numpy(zero_copy_only=False)
        edges = np.searchsorted(codes, np.arange(len(names.dictionary) + 1))
        lat, lon = (np.asarray(positions[name].to_numpy(), dtype=np.float64) for name in ("lat", "lon"))
        t_us, devices = epoch_us(positions["ts"]), names.dictionary.to_pylist()
        states = _states_by_device(links)
        return cls(t_us, lat, lon, edges, devices, states, tz, tuple(access_points))

    def at(self, t_us: int) -> tuple[Floats, Floats, list[str]]:
        """Return latitudes, longitudes and names of the devices heard of in the ten minutes before a time."""
        rows, names = [], []
        for name, a, b in zip(self.names, self.device[:-1], self.device[1:], strict=True):
            row = int(np.searchsorted(self.t_us[a:b], t_us, side="right")) + int(a) - 1
            if row >= a and t_us - self.t_us[row] <= _MAX_SILENCE_S * US_PER_S:
                rows.append(row)
                names.append(name)
        return self.lat[rows], self.lon[rows], names

    def down(self, t_us: int, names: list[str]) -> NDArray[np.bool_]:
        """Return which of some devices have no link at a time."""
        down = np.zeros(len(names), dtype=np.bool_)
        for number, name in enumerate(names):
            times, up = (self.links or {}).get(name, ((), ()))
            row = int(np.searchsorted(times, t_us, side="right")) - 1
            down[number] = row >= 0 and not up[row]
        return down

    def headline(self, t_us: int) -> str:
        """Return the number of devices at a time and, if links are known, of those without a link."""
        names = self.at(t_us)[2]
        down = f"{int(self.down(t_us, names).sum()):,} without a link, " if self.links is not None else ""
        return f"{len(names):,} devices, {down}{self.format_moment(t_us)}"

    def format_moment(self, t_us: int) -> str:
        """Format a time (µs since 1970) in the time zone of the fleet."""
        local = dt.datetime.fromtimestamp(t_us // US_PER_S, ZoneInfo(self.tz))
        return f"{local:%Y-%m-%d %H:%M} {self.tz}"

    @described
    def figure(self, t_us: int) -> go.Figure:
        """Draw the fleet at a time: blue circles, and orange crosses for devices without a link.

        Ranges of access points are grey discs.

        Parameters
        ----------
        t_us : int
            Time, µs since 1970.

        Returns
        -------
        plotly.graph_objects.Figure
            The second trace holds the devices.
        """
        step = max(1, len(self.lat) // _MAX_STREET_POINTS)
        figure = go.Figure(
            [
                dots(self.lon[::step], self.lat[::step]).update(name="everywhere"),
                go.Scatter(
                    **self._trace(t_us), mode="markers", name="devices", hoverinfo="text", showlegend=False,
                ),
            ]
        )  # fmt: skip
        for number, name in enumerate(("with a link", "without a link") if self.links is not None else ()):
            mark = {
                "symbol": _LINK_SYMBOLS[number],
                "color": _LINK_COLOURS[number],
                "size": _LINK_SIZES_PX[number],
            }
            figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=mark))
        x, y = _extent(self.lon), _extent(self.lat)
        if self.access_points:
            ranges = _ranges(self.access_points)
            figure.add_trace(ranges)
            x, y = _extent(np.append(ranges.x, x), 0.0), _extent(np.append(ranges.y, y), 0.0)
        has_legend = self.links is not None or bool(self.access_points)
        styled(figure, 480, (60, 20, 60, 50), self.headline(t_us), showlegend=has_legend, legend=LEGEND_ABOVE)
        map_axes(figure, float(np.median(self.lat)), x, y)
        return figure

    def move(self, figure: Any, t_us: int) -> None:
        """Move the devices of a figure of this fleet to another time (µs since 1970)."""
        with figure.batch_update():
            figure.data[1].update(**self._trace(t_us))
            figure.layout.title.text = self.headline(t_us)
        set_text(figure)

    def _trace(self, t_us: int) -> dict[str, Any]:
        """Return the changes that move the devices of a figure to a time."""
        lat, lon, names = self.at(t_us)
        down = self.down(t_us, names)
        marker = {
            part: np.where(down, off, on).tolist()
            for part, (on, off) in (
                ("symbol", _LINK_SYMBOLS),
                ("color", _LINK_COLOURS),
                ("size", _LINK_SIZES_PX),
            )
        }
        labels = [f"{name}, no link" if off else name for name, off in zip(names, down, strict=True)]
        return {"x": lon, "y": lat, "text": labels, "marker": marker | {"opacity": 1}}

    def busiest_us(self) -> int:
        """Return the middle of the ten minutes with the most positions."""
        bins = (self.t_us - self.t_us.min()) // round(_MAX_SILENCE_S * US_PER_S)
        middle = int(np.argmax(np.bincount(bins))) + 0.5
        return int(self.t_us.min()) + round(middle * _MAX_SILENCE_S * US_PER_S)

    def span_us(self) -> tuple[int, int]:
        """Return the first and the last time."""
        return int(self.t_us.min()), int(self.t_us.max())


def _extent(degrees: Floats, stray_share: float = 0.002) -> list[float]:
    """Return the range of an axis: all values and a margin, without the strays at both ends.

    Strays are among ``stray_share`` of the values, and a quarter of the others' range away from these.
    """
    values = degrees[np.isfinite(degrees)]
    low, high = np.quantile(values, [stray_share, 1.0 - stray_share])
    reach = (high - low) / 4
    low, high = max(values.min(), low - reach), min(values.max(), high + reach)
    margin = max(_MARGIN_SHARE * (high - low), _MIN_MARGIN_DEG)
    return [float(low - margin), float(high + margin)]


def _ranges(points: Sequence[AccessPoint]) -> go.Scatter:
    """Return a disc for the range of each access point."""
    angles = np.linspace(0.0, 2 * np.pi, _CIRCLE_POINTS)
    lat, lon, text = list[float](), list[float](), list[str]()
    for point in points:
        reach_deg = point.range_m / 1000.0 / KM_PER_DEGREE
        lat += [*(point.at[0] + reach_deg * np.sin(angles)), np.nan]
        lon += [*(point.at[1] + reach_deg * np.cos(angles) / np.cos(np.radians(point.at[0]))), np.nan]
        text += [f"{point.name}, range {words.number(point.range_m)} m"] * (len(angles) + 1)
    return go.Scatter(
        x=lon,
        y=lat,
        text=text,
        mode="lines",
        fill="toself",
        name="range of an access point",
        hoverinfo="text",
        line={"color": INK, "width": 1},
        fillcolor="rgba(128, 128, 128, 0.25)",
    )


def _states_by_device(
    links: pa.Table | None,
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.bool_]]] | None:
    """Return the times and states of each device's link; None for None, ParameterError for another table."""
    if links is None:
        return None
    columns = ("device", "ts", "up")
    if not isinstance(links, pa.Table) or not {*columns} <= {*links.column_names}:
        raise ParameterError(
            "These are not the links of a fleet.",
            where="links",
            found=", ".join(links.column_names) if isinstance(links, pa.Table) else type(links).__name__,
            expected=f"a pyarrow.Table with the columns {', '.join(columns)}",
            remedy="pa.Table.from_pandas(frame) converts a pandas DataFrame",
        )
    links = links.select(columns).sort_by([("device", "ascending"), ("ts", "ascending")])
    times, up = epoch_us(links["ts"]), np.asarray(links["up"].to_numpy(), dtype=np.bool_)
    names = np.asarray(links["device"].to_pylist(), dtype=object)
    begins = np.flatnonzero(np.concatenate([names[:1] == names[:1], names[1:] != names[:-1]]))
    edges = [*begins.tolist(), len(names)]
    return {str(names[a]): (times[a:b], up[a:b]) for a, b in pairwise(edges)}
