"""Where phones answer by themselves: reads in cells, and which share of them a policy answered locally."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.base.charts import GREY
from mudkit.figures.base.colours import STOPS
from mudkit.figures.base.template import template
from mudkit.figures.maps.frame import from_mercator, to_mercator
from mudkit.units import distance_km, middle

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["answers", "by_cell", "fill", "near_most"]

_NEEDED: Final = ("lat", "lon", "is_local", "is_stale")
_LEAST_PX, _MOST_PX = 6.0, 30.0
_HEIGHT_PX: Final = 440
_TOWN_ZOOM, _TOWN_KM = 9, 60.0
"""A cell of this level is 78 km wide at the equator: all of it lies within so many km of its middle."""


def by_cell(reads: pd.DataFrame, zoom: int = 14) -> pa.Table:
    """Count reads in cells.

    Parameters
    ----------
    reads : pandas.DataFrame
        ``lat, lon, is_local, is_stale``, as :class:`mudkit.experiment.cache_bench.Tried` has them.
    zoom : int
        Level of the cells, as map tiles: at 14 they are about 2.4 km wide at the equator.

    Returns
    -------
    pyarrow.Table
        ``south, west, north, east, lat, lon`` (the cell's middle), ``reads, local, stale`` (the latter two
        in percent of its reads) and ``labels``, these in words.

    Raises
    ------
    ParameterError
        The table lacks a column.
    TraceContentError
        There is no read.
    """
    import pyarrow as pa

    _check(reads)
    side = 2.0**-zoom
    x, y = (np.floor(each / side).astype(np.int64) for each in to_mercator(reads["lat"], reads["lon"]))
    both = reads[["is_local", "is_stale"]].astype(float).assign(x=x, y=y, reads=1)
    table = both.groupby(["x", "y"], as_index=False).sum()
    x, y = (table[name].to_numpy(dtype=np.float64) for name in ("x", "y"))
    north, west = from_mercator(x * side, y * side)
    south, east = from_mercator((x + 1) * side, (y + 1) * side)
    lat, lon = from_mercator((x + 0.5) * side, (y + 0.5) * side)
    count = table["reads"]
    local, stale = (100 * table[name] / count for name in ("is_local", "is_stale"))
    labels = [
        f"{number:,} reads: {here:.0f} % answered locally, {bad:.0f} % stale"
        for number, here, bad in zip(count, local, stale, strict=True)
    ]
    return pa.table(
        {
            "south": south, "west": west, "north": north, "east": east, "lat": lat, "lon": lon,
            "reads": count, "local": local, "stale": stale, "told": labels,
        }
    )  # fmt: skip


def near_most(reads: pd.DataFrame, km: float = 30.0) -> pd.DataFrame:
    """Keep the reads around the place where most are: one town of several that are far apart.

    Parameters
    ----------
    reads : pandas.DataFrame
        ``lat, lon``.
    km : float
        The largest distance from the middle of these, in km.

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`by_cell`.
    """
    cells = by_cell(reads.assign(is_local=False, is_stale=False), _TOWN_ZOOM).to_pandas()
    busiest = cells.loc[cells["reads"].idxmax()]
    there = distance_km(reads["lat"], reads["lon"], busiest["lat"], busiest["lon"]) <= _TOWN_KM
    lat, lon = middle(reads.loc[there, "lat"], reads.loc[there, "lon"])
    return reads[distance_km(reads["lat"], reads["lon"], lat, lon) <= km]


def answers(reads: pd.DataFrame, *, title: str, zoom: int = 14) -> go.Figure:
    """Draw cells: the larger, the more reads; the darker, the more of them were answered locally.

    Parameters
    ----------
    reads : pandas.DataFrame
        As in :func:`by_cell`.
    title : str
    zoom : int
        As there.

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`by_cell`.
    """
    _check(reads)
    figure = go.Figure()
    dots = reads.iloc[:: max(1, len(reads) // 3000)]
    figure.add_scatter(
        x=dots["lon"],
        y=dots["lat"],
        mode="markers",
        hoverinfo="skip",
        showlegend=False,
        marker={"size": 2, "color": GREY, "opacity": 0.5},
    )
    figure.add_scatter(x=[], y=[], mode="markers", hoverinfo="text", showlegend=False)
    figure.update_layout(
        template=template(),
        height=_HEIGHT_PX,
        margin={"l": 60, "r": 20, "t": 60, "b": 50},
        meta={"zoom": zoom},
        coloraxis={
            "cmin": 0,
            "cmax": 100,
            "colorbar": {"title": {"text": "answered locally, %", "side": "right"}, "thickness": 12},
            "colorscale": [[at / (len(STOPS) - 1), colour] for at, colour in enumerate(STOPS)],
        },
    )
    figure.update_xaxes(title_text="longitude, °", nticks=5)
    stretch = 1 / float(np.cos(np.radians(reads["lat"].median())))
    figure.update_yaxes(title_text="latitude, °", nticks=5, scaleanchor="x", scaleratio=stretch)
    fill(figure, reads, title=title)
    return figure


def fill(figure: Any, reads: pd.DataFrame, *, title: str) -> None:
    """Show what another policy did with the same reads, in a figure that :func:`answers` has made."""
    cells = by_cell(reads, figure.layout.meta["zoom"]).to_pandas()
    share = (cells["reads"] / cells["reads"].max()) ** 0.5
    figure.data[1].update(
        x=cells["lon"].tolist(),
        y=cells["lat"].tolist(),
        text=cells["told"].tolist(),
        marker={
            "symbol": "square",
            "size": (_LEAST_PX + (_MOST_PX - _LEAST_PX) * share).round(1).tolist(),
            "color": cells["local"].tolist(),
            "coloraxis": "coloraxis",
            "line": {"width": 1, "color": "#444444"},
        },
    )
    figure.update_layout(title={"text": title, "font": {"size": 16}})


def _check(reads: pd.DataFrame) -> None:
    if missing := [name for name in _NEEDED if name not in reads.columns]:
        raise ParameterError(
            "This is no table of reads.",
            where="reads",
            found=", ".join(map(str, reads.columns)),
            expected=", ".join(missing),
            remedy="CacheBench.of(labels, reads).tried('latency').reads is one",
        )
    if not len(reads):
        raise TraceContentError("There are no reads to draw.", expected="at least one")
