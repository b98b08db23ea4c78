"""The report trace_profile: what a trace holds, how clean it is, where and when its rows lie."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import words
from mudkit.figures import tile_bounds, tiles
from mudkit.report.page import Answer, FirstScreen
from mudkit.report.source import TraceSource
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

__all__ = [
    "cells",
    "device_answer",
    "devices",
    "first_screen",
    "interval_answer",
    "intervals",
    "place_answer",
    "time_answer",
]

_CLEAN: Final = 0.01
_LONG_GAP_S: Final = 600.0
_EDGES_S: Final = (
    0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0,
    28_800.0, 86_400.0, 604_800.0, np.inf,
)  # fmt: skip


def first_screen(source: TraceSource) -> FirstScreen:
    """Return what was read, three figures, how clean the trace is, and what distorts it."""
    kept = int(source.rows.loc[source.rows["what"] == "positions", "rows"].sum())
    aside = source.rows[source.rows["what"].str.startswith("rejected")]
    share = float(aside["rows"].sum()) / max(kept + aside["rows"].sum(), 1)
    gaps_s = _gaps_s(source)
    every = words.duration(float(np.median(gaps_s))) if len(gaps_s) else words.NO_VALUE
    days = source.days()
    per_device = source.positions["device"].to_pandas().value_counts()
    tiles = [
        (
            words.count(len(per_device), "device"),
            f"with a median of {words.number(per_device.median())} positions each",
        ),
        (every, "is the median time between two positions of a device"),
        (
            words.count(len(days), "day"),
            f"with rows; {words.number(float(days['devices'].median()))} devices report on the median day",
        ),
    ]
    headline = (
        f"The trace is clean: {words.percent(1 - share)} of its rows were kept."
        if share <= _CLEAN
        else f"{words.percent(share)} of the rows were set aside: read why before you use the others."
    )
    because = "Nothing was set aside."
    if len(aside):
        worst = aside.sort_values("rows", ascending=False).iloc[0]
        because = (
            f"{words.count(int(aside['rows'].sum()), 'row')} were set aside, most because: "
            f"{worst['what'].removeprefix('rejected: ')}."
        )
    assumption = "What a cache on the devices could save is another report: `mudkit report cache_policy`."
    return FirstScreen(source.describe(), tiles, headline, because, assumption, source.warnings())


def intervals(source: TraceSource) -> pd.DataFrame:
    """Count times between two positions of a device, in bins from the first to the last that holds any."""
    counts, _ = np.histogram(_gaps_s(source), _EDGES_S)
    occupied = np.flatnonzero(counts)
    kept = slice(occupied[0], occupied[-1] + 1) if len(occupied) else slice(0)
    table = pd.DataFrame({"from_s": _EDGES_S[:-1], "to_s": _EDGES_S[1:], "intervals": counts})
    return table[kept].reset_index(drop=True)


def cells(source: TraceSource, zoom: int) -> pa.Table:
    """Count positions by cell of a zoom level: ``lat, lon`` (the middle of the cell), ``positions``."""
    lat, lon = (source.positions[name].to_numpy() for name in ("lat", "lon"))
    x, y = tiles(zoom, lat, lon)
    key, counts = np.unique(x * 2**zoom + y, return_counts=True)
    bounds = tile_bounds(zoom, key // 2**zoom, key % 2**zoom)
    lat, lon = (bounds["south"] + bounds["north"]) / 2, (bounds["west"] + bounds["east"]) / 2
    return pa.table({"lat": lat, "lon": lon, "positions": counts.astype(np.float64)})


def devices(source: TraceSource) -> pd.DataFrame:
    """List devices with most positions first: ``device, positions, reads, first, last`` in local time."""
    frame = source.positions.select(["device", "ts"]).to_pandas()
    grouped = frame.groupby("device", sort=False)["ts"]
    local = {
        end: getattr(grouped, end)().dt.tz_convert(source.tz).dt.tz_localize(None) for end in ("min", "max")
    }
    reads = source.reads["device"].to_pandas().value_counts()
    table = pd.DataFrame({"positions": grouped.size(), "first": local["min"], "last": local["max"]})
    table.insert(1, "reads", reads.reindex(table.index).fillna(0).astype(int))
    return table.sort_values("positions", ascending=False).rename_axis("device").reset_index()


def time_answer(source: TraceSource) -> Answer:
    """Return when the rows lie, as a heading."""
    hours = source.hours()["positions"]
    hours = hours[hours > 0]
    by_hour = hours.groupby(pd.DatetimeIndex(hours.index).hour).sum()
    most, total = by_hour.nlargest(6), max(by_hour.sum(), 1)
    named = words.listing([f"{hour:02d}:00" for hour in sorted(most.index)], 6)
    if len(by_hour) <= len(most):
        return Answer(
            f"All positions lie in {words.count(len(by_hour), 'hour')} of the day",
            f"They begin at {named} ({source.tz}).",
        )
    return Answer(
        f"The six busiest hours of the day hold {words.percent(most.sum() / total)} of the positions",
        f"They begin at {named} ({source.tz}).",
    )


def place_answer(table: pa.Table, zoom: int) -> Answer:
    """Return how much the places differ, as a heading; the table is that of :func:`cells`."""
    counts = np.sort(table["positions"].to_numpy())[::-1]
    half = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1
    bounds = tile_bounds(zoom, np.zeros(1), np.full(1, 2.0 ** (zoom - 1)))
    side_km = (
        111.2
        * float(np.cos(np.radians(np.median(table["lat"].to_numpy()))))
        * float(bounds["east"][0] - bounds["west"][0])
    )
    return Answer(
        f"Half of the positions lie in {words.count(half, 'cell')} of {len(counts):,}",
        f"A cell is {words.number(float(f'{side_km:.2g}'))} km wide. The grey base is the trace itself: "
        "vehicles draw their own streets.",
    )


def device_answer(table: pd.DataFrame) -> Answer:
    """Return how the positions of :func:`devices` are spread over devices, as a heading."""
    counts = table["positions"].to_numpy()
    half = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1
    return Answer(f"Half of the positions are those of {words.count(half, 'device')} of {len(counts):,}")


def interval_answer(source: TraceSource) -> Answer:
    """Return how regularly devices report, as a heading."""
    gaps_s = _gaps_s(source)
    if not len(gaps_s):
        return Answer("No device reports twice")
    share = float((gaps_s > _LONG_GAP_S).mean())
    return Answer(
        f"{words.percent(share)} of the steps from one position to the next take longer than ten minutes",
        f"Half of them take {words.duration(float(np.median(gaps_s)))} or less.",
    )


def _gaps_s(source: TraceSource) -> NDArray[np.float64]:
    """Return the times between two positions of a device, which are ordered by device and time."""
    device = source.positions["device"].combine_chunks().dictionary_encode()
    is_same = np.diff(device.indices.to_numpy(zero_copy_only=False)) == 0
    return np.asarray(np.diff(epoch_us(source.positions["ts"]))[is_same] / US_PER_S)
