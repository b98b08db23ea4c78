"""Cells of a trace over time, cache hits by cell, and the boxes of cached answers."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa

from mudkit import words
from mudkit.checks import check_arguments, time_zone
from mudkit.display import INK
from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.alternative import described, redescribed
from mudkit.figures.geometry import tile_bounds, tiles
from mudkit.figures.style import (
    BLUE,
    GREY,
    ORANGE,
    TEXT_PX,
    colour_steps,
    dots,
    escaped,
    heading,
    map_axes,
    ramp,
    span_of,
    styled,
    text_colour,
)
from mudkit.figures.tables import require_columns
from mudkit.units import distance_km, from_mercator, middle

MAX_FRAMES: Final = 48
"""Maximum number of pictures of :func:`cells_over_time`; a longer trace has longer buckets."""
MAX_CELLS: Final = 600
"""Maximum number of cells per picture; those with the highest values are drawn."""

_CELL_COLUMNS: Final = ("bucket_ts", "lat", "lon")
_READ_COLUMNS: Final = ("lat", "lon", "is_local", "is_stale")
_MIN_CELL_PX, _MAX_CELL_PX = 6.0, 30.0
_MAX_DOTS: Final = 3000
_DAY_S: Final = 86_400.0
_TOWN_ZOOM, _TOWN_KM = 9, 60.0  # such a cell is 78 km wide at the equator: its corners are within 60 km


@described
def cells_over_time(
    cells: pd.DataFrame, *, value: str = "positions", tz: str = "UTC", title: str = ""
) -> go.Figure:
    """Draw cells bucket by bucket, with a slider and a play button; grey dots are the places of all cells.

    Parameters
    ----------
    cells : pandas.DataFrame
        As ``pipeline.cells`` returns it, of one zoom level: ``bucket_ts, lat, lon`` and the value.
    value : str
        Column of numbers that gives size and colour, for instance ``positions`` or ``reads``. Buckets that
        are joined are added up.
    tz : str
        Time zone of the slider's labels.
    title : str
        Title of the figure.

    Raises
    ------
    ParameterError
        A column is missing, there are several zoom levels, or the time zone is unknown.
    TraceContentError
        There are no cells.
    """
    time_zone("tz", tz)
    columns = (*_CELL_COLUMNS, value)
    remedy = "pipeline.cells(positions, reads, zooms=[14]).toPandas()"
    require_columns(cells, "cells", columns, remedy=remedy)
    if "zoom" in cells.columns and cells["zoom"].nunique() > 1:
        raise ParameterError(
            "The cells are not of one zoom level.",
            where="cells",
            found=f"zooms {sorted(set(cells['zoom']))}",
            expected=f"{', '.join(columns)}, of one zoom",
            remedy=remedy,
        )
    if not len(cells):
        raise TraceContentError("There are no cells to draw.", expected="at least one")
    shown = cells[[*columns]].copy()
    ts = pd.to_datetime(shown["bucket_ts"], utc=True)
    first = ts.min()
    since_s, bucket_s = (ts - first).dt.total_seconds(), _bucket_s(ts)
    step_s = bucket_s * math.ceil((since_s.max() / bucket_s + 1) / MAX_FRAMES)
    shown["frame"] = (since_s // step_s).astype(int)
    shown = shown.groupby(["frame", "lat", "lon"])[value].sum().reset_index()
    most = float(shown[value].max()) or 1.0
    is_long = since_s.max() >= _DAY_S
    stopped = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}}
    frames, steps = [], []
    for number in sorted(set(shown["frame"])):
        rows = shown[shown["frame"] == number]
        at = (first + pd.Timedelta(seconds=number * step_s)).tz_convert(tz)
        label = f"{at:%Y-%m-%d %H:%M}" if is_long else f"{at:%H:%M}"
        frames.append(go.Frame(name=label, data=[_cells(rows, value, most)], traces=[1]))
        steps.append({"method": "animate", "label": label, "args": [[label], stopped]})
    busiest = int(shown.groupby("frame")[value].sum().reset_index(drop=True).argmax())
    places = shown[["lat", "lon"]].drop_duplicates()
    ground = dots(places["lon"], places["lat"], 3, 0.35)
    figure = go.Figure([ground, frames[busiest].data[0]], frames=frames)
    play = {"frame": {"duration": 400, "redraw": True}, "fromcurrent": True}
    slider = {
        "steps": steps, "active": busiest, "pad": {"t": 60}, "x": 0.2, "len": 0.8,
        "currentvalue": {"prefix": f"{tz}: " if is_long else f"{first.tz_convert(tz):%Y-%m-%d}, {tz}: "},
    }  # fmt: skip
    buttons = {
        "type": "buttons", "direction": "left", "x": 0.16, "y": 0, "xanchor": "right", "yanchor": "top",
        "pad": {"t": 90},
        "buttons": [
            {"label": "play", "method": "animate", "args": [None, play]},
            {"label": "stop", "method": "animate", "args": [[None], stopped]},
        ],
    }  # fmt: skip
    styled(figure, 540, (60, 20, 60, 40), title, sliders=[slider], updatemenus=[buttons])
    map_axes(figure, places["lat"].median(), span_of(places["lon"]), span_of(places["lat"]))
    return figure


def _cells(rows: pd.DataFrame, value: str, most: float) -> go.Scatter:
    """Return the trace of one bucket; area and colour grow with the value."""
    top = rows.nlargest(MAX_CELLS, value)
    share = np.sqrt(top[value].to_numpy(dtype=np.float64) / most)
    marker: dict[str, Any] = {
        "size": (4 + 22 * share).round(1).tolist(),
        "color": top[value].to_numpy(dtype=np.float64),
        "colorscale": colour_steps(ramp(9)),
        "cmin": 0.0,
        "cmax": most,
        "colorbar": {"title": {"text": value}, "thickness": 12, "x": 1.06},
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
    """Return the length of a bucket, the smallest gap between their times; an hour for one bucket."""
    gaps = np.diff(np.sort(ts.unique()))
    return float(pd.Timedelta(gaps.min()).total_seconds()) if len(gaps) else 3600.0


@check_arguments(types=False)
def hits_by_cell(reads: pd.DataFrame, zoom: int = 14) -> pa.Table:
    """Count reads, local answers and stale answers by cell.

    Parameters
    ----------
    reads : pandas.DataFrame
        ``lat, lon`` (degrees), ``is_local, is_stale``, as :class:`mudkit.worlds.CachingRun` has
        them. With a column ``reads`` each row stands for some reads, and has their number and sums.
    zoom : int
        Zoom level of the cells, as of map tiles: at 14 they are about 2.4 km wide at the equator.

    Returns
    -------
    pyarrow.Table
        ``south, west, north, east`` and ``lat, lon`` (middle of the cell), degrees; ``reads``; ``local,
        stale``, percent of its reads; and ``text``, these numbers in words.

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        There is no read.
    """
    _check_reads(reads)
    x, y = tiles(zoom, reads["lat"], reads["lon"])
    counted = reads[["is_local", "is_stale"]].astype(float).assign(x=x, y=y, reads=reads.get("reads", 1))
    table = counted.groupby(["x", "y"], as_index=False).sum()
    x, y = (table[name].to_numpy(dtype=np.float64) for name in ("x", "y"))
    bounds = tile_bounds(zoom, x, y)
    lat, lon = from_mercator((x + 0.5) * 2.0**-zoom, (y + 0.5) * 2.0**-zoom)
    count = table["reads"]
    local, stale = (100 * table[name] / count for name in ("is_local", "is_stale"))
    labels = [
        f"{words.count(number, 'read')}: {hits:.0f} % answered locally, {misses:.0f} % stale"
        for number, hits, misses in zip(count, local, stale, strict=True)
    ]
    return pa.table(
        {
            **bounds, "lat": lat, "lon": lon, "reads": count, "local": local, "stale": stale, "text": labels,
        }
    )  # fmt: skip


@check_arguments(types=False)
def reads_near_busiest(reads: pd.DataFrame, km: float = 30.0) -> pd.DataFrame:
    """Return the reads around the place with most reads, for instance one town of several.

    Parameters
    ----------
    reads : pandas.DataFrame
        ``lat, lon``, degrees.
    km : float
        Largest distance from the middle of these reads, km.

    Returns
    -------
    pandas.DataFrame
        The rows of ``reads`` within that distance.

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        There is no read.
    """
    cells = hits_by_cell(reads.assign(is_local=False, is_stale=False), _TOWN_ZOOM).to_pandas()
    busiest = cells.loc[cells["reads"].idxmax()]
    is_near = distance_km(reads["lat"], reads["lon"], busiest["lat"], busiest["lon"]) <= _TOWN_KM
    lat, lon = middle(reads.loc[is_near, "lat"], reads.loc[is_near, "lon"])
    return reads[distance_km(reads["lat"], reads["lon"], lat, lon) <= km]


@described
def cache_hits(reads: pd.DataFrame, *, title: str, zoom: int = 14) -> go.Figure:
    """Draw cells sized by their reads and coloured by the share that was answered locally.

    Parameters
    ----------
    reads : pandas.DataFrame
        As in :func:`hits_by_cell`.
    title : str
        Title of the figure.
    zoom : int
        As in :func:`hits_by_cell`.

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        There is no read.
    """
    _check_reads(reads)
    figure = go.Figure()
    some = reads.iloc[:: max(1, len(reads) // _MAX_DOTS)]
    figure.add_trace(dots(some["lon"], some["lat"]))
    figure.add_scatter(x=[], y=[], mode="markers", hoverinfo="text", showlegend=False)
    colours = {
        "cmin": 0,
        "cmax": 100,
        "colorbar": {"title": {"text": "answered locally, %", "side": "right"}, "thickness": 12},
        "colorscale": colour_steps(),
    }
    styled(figure, 440, (60, 20, 60, 50), meta={"zoom": zoom}, coloraxis=colours)
    map_axes(figure, reads["lat"].median(), nticks=5)
    update_cache_hits(figure, reads, title=title)
    return figure


@redescribed
def update_cache_hits(figure: Any, reads: pd.DataFrame, *, title: str) -> None:
    """Show the answers of another policy to the same reads in a figure that :func:`cache_hits` returned.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        Figure to change.
    reads, title
        As in :func:`cache_hits`.

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        There is no read.
    """
    cells = hits_by_cell(reads, figure.layout.meta["zoom"]).to_pandas()
    share = (cells["reads"] / cells["reads"].max()) ** 0.5
    figure.data[1].update(
        x=cells["lon"].tolist(),
        y=cells["lat"].tolist(),
        text=cells["text"].tolist(),
        marker={
            "symbol": "square",
            "size": (_MIN_CELL_PX + (_MAX_CELL_PX - _MIN_CELL_PX) * share).round(1).tolist(),
            "color": cells["local"].tolist(),
            "coloraxis": "coloraxis",
            "line": {"width": 1, "color": INK},
        },
    )
    figure.update_layout(title=heading(title))


def _check_reads(reads: pd.DataFrame) -> None:
    """Raise an error of mudkit unless a table has reads with all needed columns."""
    remedy = "CacheBench.from_labels(labels, reads).run('latency').reads is such a table"
    require_columns(reads, "reads", _READ_COLUMNS, remedy=remedy)
    if not len(reads):
        raise TraceContentError("There are no reads to draw.", expected="at least one")


@described
def answer_boxes(
    table: pd.DataFrame, *, title: str, missing_point: tuple[float, float, str] | None = None
) -> go.Figure:
    """Draw the box that a read asks for and the boxes of cached answers, as squares on a flat map.

    Parameters
    ----------
    table : pandas.DataFrame
        A row per box: ``name``, ``x_km, y_km`` (its middle), ``box_km`` (its side), ``is_requested``.
    title : str
        Title of the figure.
    missing_point : (float, float, str), optional
        A point that no answer holds: km east, km north, and its name in the legend.
    """
    require_columns(table, "table", ("name", "x_km", "y_km", "box_km", "is_requested"))
    figure = go.Figure()
    for row in table.to_dict("records"):
        half = row["box_km"] / 2
        west, east = row["x_km"] - half, row["x_km"] + half
        south, north = row["y_km"] - half, row["y_km"] + half
        colour, dash, fill = (
            (ORANGE, "solid", "rgba(213,94,0,0.10)")
            if row["is_requested"]
            else (BLUE, "dash", "rgba(0,114,178,0.10)")
        )
        figure.add_trace(
            go.Scatter(
                x=[west, east, east, west, west],
                y=[south, south, north, north, south],
                name=str(row["name"]),
                mode="lines",
                showlegend=False,
                line={"color": colour, "width": 2, "dash": dash},
                fill="toself",
                fillcolor=fill,
            )
        )
        figure.add_trace(
            go.Scatter(
                x=[row["x_km"]],
                y=[row["y_km"]],
                mode="markers",
                marker={"size": 9, "color": colour},
                hovertext=str(row["name"]),
                hoverinfo="text",
                showlegend=False,
            )
        )
    if missing_point is not None:
        figure.add_trace(
            go.Scatter(
                x=[missing_point[0]],
                y=[missing_point[1]],
                name=missing_point[2],
                mode="markers",
                marker={"size": 14, "symbol": "x", "color": INK, "line": {"color": GREY, "width": 1}},
            )
        )
    # A name is inside of the lower left corner of its box; names of boxes that share one stand in a column.
    half = table["box_km"] / 2
    corners = table.assign(west=table["x_km"] - half, south=table["y_km"] - half)
    corners["above"] = corners.groupby(["west", "south"]).cumcount()
    names = [
        {
            "x": row["west"], "y": row["south"], "xshift": 3, "yshift": 16 * row["above"],
            "text": escaped(str(row["name"])), "xanchor": "left", "yanchor": "bottom", "showarrow": False,
            "font": {"size": TEXT_PX, "color": text_colour(ORANGE if row["is_requested"] else BLUE)},
        }
        for row in corners.to_dict("records")
    ]  # fmt: skip
    for axis, name in ((figure.layout.xaxis, "x_km"), (figure.layout.yaxis, "y_km")):
        low, high = (table[name] - table["box_km"] / 2).min(), (table[name] + table["box_km"] / 2).max()
        if len(table):
            axis.range = [low - 0.05 * (high - low), high + 0.05 * (high - low)]
    figure.update_xaxes(title_text="east, km", constrain="domain")
    figure.update_yaxes(title_text="north, km", scaleanchor="x", scaleratio=1, constrain="domain")
    return styled(
        figure, 440, (60, 20, 60, 50), title, annotations=names, showlegend=missing_point is not None
    )
