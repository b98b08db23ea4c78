"""Cells of a trace over time: a picture a time bucket, with a slider and a play button."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.base.charts import GREY
from mudkit.figures.base.colours import ramp
from mudkit.figures.base.template import template
from mudkit.sources.parameters import time_zone

__all__ = ["MAX_CELLS", "MAX_FRAMES", "over_time"]

MAX_FRAMES = 48
"""A figure has so many pictures; of a longer trace neighbouring buckets are joined."""
MAX_CELLS = 600
"""A picture shows so many cells, those with the highest values."""

_COLUMNS = ("bucket_ts", "lat", "lon")


def over_time(
    cells: pd.DataFrame,
    *,
    value: str = "positions",
    tz: str = "UTC",
    title: str = "",
    height_px: int = 520,
) -> go.Figure:
    """Draw cells on a map, bucket by bucket.

    Parameters
    ----------
    cells : pandas.DataFrame
        As ``pipeline.cells`` gives it, of one zoom level: ``bucket_ts, lat, lon`` and the value.
    value : str
        The column that gives size and colour, for instance ``positions``, ``reads``; buckets that are joined
        are added up.
    tz : str
        Time zone of the slider's labels.
    title : str
    height_px : int

    Returns
    -------
    plotly.graph_objects.Figure
        The places of all cells in grey, and over them those of one bucket.

    Raises
    ------
    ParameterError
        A column is missing, there are several zoom levels, or there is no such time zone.
    TraceContentError
        There are no cells.
    """
    time_zone("tz", tz)
    missing = [name for name in (*_COLUMNS, value) if name not in cells.columns]
    if missing or ("zoom" in cells.columns and cells["zoom"].nunique() > 1):
        raise ParameterError(
            "These are not cells of one zoom level.",
            where="cells",
            found=", ".join(cells.columns) + (f"; zooms {sorted(set(cells['zoom']))}" if not missing else ""),
            expected=", ".join((*_COLUMNS, value)) + ", of one zoom",
            remedy="pipeline.cells(positions, reads, zooms=[14]).toPandas()",
        )
    if not len(cells):
        raise TraceContentError("There are no cells to draw.", expected="at least one")
    shown = cells[[*_COLUMNS, value]].copy()
    ts = pd.to_datetime(shown["bucket_ts"], utc=True)
    first = ts.min()
    since_s, bucket_s = (ts - first).dt.total_seconds(), _bucket_s(ts)
    step_s = bucket_s * math.ceil((since_s.max() / bucket_s + 1) / MAX_FRAMES)
    shown["frame"] = (since_s // step_s).astype(int)
    shown = shown.groupby(["frame", "lat", "lon"])[value].sum().reset_index()
    most = float(shown[value].max()) or 1.0
    frames, steps = [], []
    for number in sorted(set(shown["frame"])):
        rows = shown[shown["frame"] == number]
        at = (first + pd.Timedelta(seconds=number * step_s)).tz_convert(tz)
        label = f"{at:%Y-%m-%d %H:%M}"
        frames.append(go.Frame(name=label, data=[_cells(rows, value, most)], traces=[1]))
        steps.append(
            {
                "method": "animate",
                "label": label,
                "args": [[label], {"mode": "immediate", "frame": {"duration": 0, "redraw": True}}],
            }
        )
    busiest = int(shown.groupby("frame")[value].sum().reset_index(drop=True).argmax())
    places = shown[["lat", "lon"]].drop_duplicates()
    ground = go.Scatter(
        x=places["lon"],
        y=places["lat"],
        mode="markers",
        hoverinfo="skip",
        showlegend=False,
        marker={"size": 3, "color": GREY, "opacity": 0.35},
    )
    figure = go.Figure([ground, frames[busiest].data[0]], frames=frames)
    play = {"frame": {"duration": 400, "redraw": True}, "fromcurrent": True}
    figure.update_layout(
        template=template(),
        height=height_px,
        title={"text": title, "font": {"size": 16}},
        margin={"l": 60, "r": 20, "t": 60, "b": 40},
        sliders=[
            {"steps": steps, "active": busiest, "currentvalue": {"prefix": f"{tz}: "},
             "pad": {"t": 40}, "x": 0.14, "len": 0.86}
        ],
        updatemenus=[
            {"type": "buttons", "direction": "left", "x": 0.12, "y": 0, "xanchor": "right", "yanchor": "top",
             "pad": {"t": 70},
             "buttons": [
                 {"label": "play", "method": "animate", "args": [None, play]},
                 {"label": "stop", "method": "animate",
                  "args": [[None], {"mode": "immediate", "frame": {"duration": 0, "redraw": True}}]},
             ]}
        ],
    )  # fmt: skip
    low, high = _limits(places["lon"]), _limits(places["lat"])
    figure.update_xaxes(title_text="longitude, °", range=low)
    figure.update_yaxes(
        title_text="latitude, °",
        range=high,
        scaleanchor="x",
        scaleratio=1 / np.cos(np.radians(float(places["lat"].median()))),
    )
    return figure


def _cells(rows: pd.DataFrame, value: str, most: float) -> go.Scatter:
    """Draw the cells of one bucket: area and colour grow with the value."""
    top = rows.nlargest(MAX_CELLS, value)
    share = np.sqrt(top[value].to_numpy(dtype=np.float64) / most)
    colours = ramp(9)
    marker: dict[str, Any] = {
        "size": (4 + 22 * share).round(1).tolist(),
        "color": top[value].to_numpy(dtype=np.float64),
        "colorscale": [[place / 8, colour] for place, colour in enumerate(colours)],
        "cmin": 0.0,
        "cmax": most,
        "colorbar": {"title": {"text": value}, "thickness": 12},
        "opacity": 0.85,
        "line": {"width": 0},
    }
    labels = [f"{count:,g} {value}" for count in top[value]]
    return go.Scatter(
        x=top["lon"],
        y=top["lat"],
        mode="markers",
        text=labels,
        hoverinfo="text",
        marker=marker,
        showlegend=False,
    )


def _bucket_s(ts: pd.Series) -> float:
    gaps = np.diff(np.sort(ts.unique()))
    return float(pd.Timedelta(gaps.min()).total_seconds()) if len(gaps) else 3600.0


def _limits(values: pd.Series) -> list[float]:
    low, high = values.quantile(0.002), values.quantile(0.998)
    margin = max(high - low, 0.01) * 0.05
    return [low - margin, high + margin]
