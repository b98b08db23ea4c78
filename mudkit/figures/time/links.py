"""Strip charts of links: who had one when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.base.charts import BLUE, GREY, ORANGE
from mudkit.figures.base.clock import Bars, TimeAxis, as_us, needed, rows_of, times_us, written
from mudkit.figures.base.colours import short_number
from mudkit.figures.base.labels import natural
from mudkit.figures.base.template import template
from mudkit.units import US_PER_S

__all__ = ["MAX_LABELLED", "share", "stretches", "strip"]

MAX_LABELLED = 40
"""Above this number of devices a strip chart names none."""

_MAX_POINTED = 4000  # stretches that say what they are; more would make a page slow
_EDGES_KBPS = (0, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
_MAX_CLASSES = 6
_SLOW, _FAST = (190, 219, 239), (0, 54, 92)  # light and dark blue; the figures' blue lies between


def stretches(links: pd.DataFrame, *, end_us: int | None = None) -> pd.DataFrame:
    """Turn states that hold until a device's next row into stretches of time.

    Parameters
    ----------
    links : pandas.DataFrame
        ``device, ts, up`` and, when it was measured, ``down_kbps``.
    end_us : int, optional
        When the last state of each device ends; the table's last time without it.

    Returns
    -------
    pandas.DataFrame
        ``device, start_us, end_us, up, down_kbps``, by device and time, none of them empty.

    Raises
    ------
    ParameterError
        The table lacks a column.
    """
    links = needed(links, "links", ("device", "ts", "up"))
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


def strip(
    links: pd.DataFrame, *, devices: Sequence[str] | None = None, end: Any = None, title: str = ""
) -> go.Figure:
    """Draw a row a device: its link over time, and the share of time that it was down.

    Where the link was down a row is high and orange; where it was up it is low, and the darker the more it
    carried, if that was measured. A row begins with the device's first state. Above ``MAX_LABELLED`` devices
    the rows have no names, and the one that was down longest stands at the top.

    Parameters
    ----------
    links : pandas.DataFrame
        Columns of :data:`mudkit.trace.schema.LINKS`: a state holds until the device's next row.
    devices : sequence of str, optional
        Which devices, from top to bottom; all, by name, without it.
    end : datetime-like, optional
        When the last states end; without it at the table's last time. UTC without a zone.
    title : str

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        The table lacks a column, or a device has no row.
    TraceContentError
        There is nothing to draw.
    """
    drawn = stretches(links, end_us=None if end is None else as_us(end, "end"))
    if devices is not None:
        _refuse_unknown(devices, links)
        drawn = drawn[drawn["device"].isin(list(devices))].reset_index(drop=True)
    if not len(drawn):
        raise TraceContentError(
            "No link has a state for any length of time.",
            where="links",
            found=f"{len(links):,} rows",
            expected="at least one row before the end",
            remedy="give end= when there is one row a device: a state holds until the next row, or the end",
        )
    length_s = (drawn["end_us"] - drawn["start_us"]) / US_PER_S
    known_s = length_s.groupby(drawn["device"]).sum()
    down: dict[Any, float] = (
        length_s.where(~drawn["up"], 0.0).groupby(drawn["device"]).sum() / known_s
    ).to_dict()
    names = list(map(str, down)) if devices is None else [name for name in devices if name in down]
    named = len(names) <= MAX_LABELLED
    names.sort(key=natural) if devices is None and named else None
    names.sort(key=lambda name: -down[name]) if devices is None and not named else None
    rows = drawn["device"].map({name: row for row, name in enumerate(names)}).astype(float).to_numpy()
    axis = TimeAxis(int(drawn["start_us"].min()), int(drawn["end_us"].max()))
    figure = go.Figure(_bars(drawn, rows, axis, named))
    figure.add_trace(_pointed(drawn, rows, axis, length_s.to_numpy()))
    if named:
        figure.add_trace(
            go.Scatter(
                x=axis.values([axis.end_us] * len(names)),
                y=list(range(len(names))),
                mode="text",
                text=[f" {share(down[name])} down" for name in names],
                textposition="middle right",
                cliponaxis=False,
                hoverinfo="skip",
                showlegend=False,
                textfont={"size": 12},
            )
        )
    shares = np.array([down[name] for name in names])
    label = f"{len(names):,} device{'s' if len(names) > 1 else ''}, {axis.span}"
    if len(names) > 1:
        label += f"; down {share(float(np.median(shares)))} of the time in the median, at most "
        label += share(shares.max())
    figure.update_layout(
        template=template(),
        title={
            "text": title or "Links over time",
            "font": {"size": 16},
            "subtitle": {"text": label, "font": {"size": 12}},
        },
        height=175 + (26 * len(names) if named else min(800, max(420, 4 * len(names)))),
        margin={"l": 80, "r": 95 if named else 30, "t": 75, "b": 95},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        hovermode="closest",
    )
    figure.update_xaxes(
        title_text=axis.title,
        title_standoff=6,
        zeroline=False,
        range=axis.values([axis.origin_us, axis.end_us]),
    )
    figure.update_yaxes(range=[len(names) - 0.4, -0.6], zeroline=False, ticks="", showline=False)
    if named:
        figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, automargin=True)
    else:
        order = "as given" if devices is not None else "most time down at the top"
        figure.update_yaxes(title_text=f"{len(names):,} devices, {order}", showticklabels=False)
    return figure


def share(part: float) -> str:
    """Write a share as a percentage with the digits that count."""
    if 0.0 < part < 0.001:
        return "under 0.1 %"
    return f"{100 * part:.0f} %" if part in (0.0, 1.0) or 0.1 <= part < 0.995 else f"{100 * part:.1f} %"


def _bars(drawn: pd.DataFrame, rows: NDArray[Any], axis: TimeAxis, named: bool) -> list[Any]:
    """Draw what is up in classes of throughput, the slowest first, and what is down over it."""
    start, end = drawn["start_us"].to_numpy(), drawn["end_us"].to_numpy()
    up, kbps = drawn["up"].to_numpy(), drawn["down_kbps"].to_numpy(float)
    traces: list[Any] = []

    def add(name: str, colour: str, chosen: NDArray[np.bool_], half: float, line_px: float = 0.0) -> None:
        if chosen.any():
            bars = Bars()
            bars.add(start[chosen], end[chosen], rows[chosen], half)
            traces.append(bars.trace(axis, name, colour, line_px=line_px, rank=len(traces) + 1))

    low = 0.24 if named else 0.36  # thin rows need their height
    add("up", "#7FB8DA", up & np.isnan(kbps), low)
    measured = up & ~np.isnan(kbps)
    edges = [*_EDGES_KBPS, np.inf]
    place = np.searchsorted(_EDGES_KBPS, np.where(measured, kbps, 0.0), side="right") - 1
    if len(np.unique(place[measured])) > _MAX_CLASSES:
        edges = [0, *_EDGES_KBPS[1::2], np.inf]
        place = np.searchsorted(edges[:-1], np.where(measured, kbps, 0.0), side="right") - 1
    classes = np.unique(place[measured])
    for order, number in enumerate(classes):
        part = order / max(1, len(classes) - 1)
        mixed = (round(a + part * (b - a)) for a, b in zip(_SLOW, _FAST, strict=True))
        colour = "#{:02x}{:02x}{:02x}".format(*mixed) if len(classes) > 1 else BLUE
        first, last = edges[number], edges[number + 1]
        limits = f"{first:,.0f}–{last:,.0f}" if np.isfinite(last) else f"{first:,.0f} and more"
        add(f"up, {limits} kbit/s", colour, measured & (place == number), low)
    add("down", ORANGE, ~up, 0.42 if named else 0.5, 0.6)
    return traces


def _pointed(drawn: pd.DataFrame, rows: NDArray[Any], axis: TimeAxis, length_s: NDArray[np.float64]) -> Any:
    """Say under the pointer what a stretch is; of too many, the longest."""
    chosen = np.argsort(-length_s, kind="stable")[:_MAX_POINTED]
    some = drawn.iloc[chosen]
    labels = []
    for row, seconds in zip(rows_of(some), length_s[chosen], strict=True):
        speed = (
            "" if np.isnan(row.down_kbps) or not row.up else f"<br>{short_number(row.down_kbps)} kbit/s down"
        )
        labels.append(
            f"{row.device}: link {'up' if row.up else 'down'} for {short_number(seconds)} s"
            f"<br>{written(row.start_us)} – {written(row.end_us)} UTC{speed}"
        )
    middle = (some["start_us"].to_numpy() + some["end_us"].to_numpy()) // 2
    return go.Scatter(
        x=axis.values(middle),
        y=rows[chosen],
        mode="markers",
        text=labels,
        hoverinfo="text",
        showlegend=False,
        marker={"size": 8, "opacity": 0, "color": GREY},
        name="stretches",
    )


def _refuse_unknown(devices: Sequence[str], links: pd.DataFrame) -> None:
    known = set(links["device"].astype(str))
    unknown = [name for name in devices if name not in known]
    if unknown:
        raise ParameterError(
            f"The table of links has no row of {', '.join(unknown[:5])}.",
            where="devices",
            found=f"{len(known):,} devices: {', '.join(sorted(known)[:5])}{', …' if len(known) > 5 else ''}",
            expected="devices that have a row",
        )
