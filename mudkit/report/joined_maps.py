"""Maps of the report propagation: what is joined where and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mudkit import figures, words
from mudkit.report.joining import Sizes
from mudkit.report.page import Answer
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd

MAX_PICTURES: Final = 48
"""Maximum number of pictures of a map; neighbouring intervals of a longer trace are joined."""
MAX_MAP_CELLS: Final = 5000
"""Cells in all pictures of a map, with fewer pictures where there are more; a page stays under 6 MB."""
_S_PER_DAY: Final = 86_400
_STEPS_S: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 28_800, 43_200,
)  # fmt: skip
"""Lengths of time of a picture that is shorter than a day."""
_SUMS: Final = ("messages_in", "aggregates_out", "bytes_in", "bytes_out")
_DRAWN_SHARE: Final = 0.95


def count_cells(
    positions: pa.Table,
    *,
    zoom: int,
    interval_s: int,
    threshold: int | None,
    sizes: Sizes,
    is_own: bool = False,
) -> pd.DataFrame:
    """Count messages and bytes by cell and interval, like :func:`mudkit.pipeline.propagation`.

    With ``is_own`` each device joins its own messages into one message.
    """
    import pandas as pd

    lat, lon = (positions[name].to_numpy() for name in ("lat", "lon"))
    x, y = figures.tiles(zoom, lat, lon)
    since_s = epoch_us(positions["ts"]) // (interval_s * US_PER_S) * interval_s
    keys = ["x", "y", "since_s"]
    placed = pd.DataFrame({"x": x, "y": y, "since_s": since_s})
    if is_own:
        device = positions["device"].combine_chunks().dictionary_encode().indices.to_numpy()
        grouped = placed.assign(device=device).groupby([*keys, "device"]).size().groupby(keys)
        own = grouped.agg(messages_in="sum", aggregates_out="size").reset_index()
        return own.assign(
            bytes_in=own["messages_in"] * sizes.message_bytes,
            bytes_out=own["aggregates_out"] * sizes.message_bytes,
        )
    cells = placed.groupby(keys).size()
    whole = cells.rename("messages_in").reset_index()
    messages = whole["messages_in"].to_numpy()
    size = threshold or max(int(messages.max()), 2)
    rest = messages % size
    alone = messages if size == 1 else (rest == 1).astype(np.int64)
    aggregates = messages // size + (rest > 0)
    bytes_out = alone * sizes.message_bytes + (aggregates - alone) * sizes.aggregate_bytes
    return whole.assign(
        aggregates_out=aggregates, bytes_in=messages * sizes.message_bytes, bytes_out=bytes_out
    )


def pictures(counted: pd.DataFrame, zoom: int, interval_s: int, tz: str, label: str) -> pa.Table:
    """Add up each cell over as many intervals as keep to ``MAX_PICTURES`` and ``MAX_MAP_CELLS``.

    Of many cells only those with the most messages are drawn, which hold 95 % of them.
    """
    import pandas as pd

    by_cell = counted.groupby(["x", "y"])["messages_in"].sum().sort_values(ascending=False, kind="stable")
    if len(by_cell) * MAX_PICTURES > MAX_MAP_CELLS:
        enough = int(np.searchsorted(by_cell.cumsum().to_numpy(), _DRAWN_SHARE * by_cell.sum())) + 1
        kept = by_cell.iloc[: min(enough, MAX_MAP_CELLS)].index
        counted = counted[pd.MultiIndex.from_frame(counted[["x", "y"]]).isin(kept)]
    local = pd.to_datetime(counted["since_s"], unit="s", utc=True).dt.tz_convert(tz).dt.tz_localize(None)
    local_s = local.to_numpy().astype("datetime64[s]").astype(np.int64)
    for step_s in _steps(interval_s):
        unit_s = min(step_s, _S_PER_DAY)
        first_s = int(local_s.min()) // unit_s * unit_s
        number = (local_s - first_s) // step_s
        if number.max() >= MAX_PICTURES:
            continue
        placed = counted.assign(picture=number)
        table = placed.groupby(["picture", "x", "y"])[[*_SUMS]].sum().reset_index()
        if len(table) <= MAX_MAP_CELLS:
            break
    begin = pd.to_datetime(first_s + table["picture"] * step_s, unit="s")
    at = begin.map(lambda day: _period(day, step_s)).to_list()
    x, y = (table[name].to_numpy(dtype=np.float64) for name in ("x", "y"))
    captions = [
        f"{words.count(messages, 'message')} as {aggregates:,}"
        for messages, aggregates in zip(table["messages_in"], table["aggregates_out"], strict=True)
    ]
    return pa.table(
        {
            "at": at,
            "joined": [label] * len(table),
            **figures.tile_bounds(zoom, x, y),
            **{name: table[name] for name in _SUMS},
            "text": captions,
            "bytes_left": 100 * table["bytes_out"] / table["bytes_in"],
        }
    )


def _steps(interval_s: int) -> Iterator[int]:
    """Yield usual lengths of time from an interval on, without an end: parts of a day, then days."""
    yield from (step_s for step_s in _STEPS_S if step_s >= interval_s)
    days = 1
    while True:
        if days * _S_PER_DAY >= interval_s:
            yield days * _S_PER_DAY
        days = 7 if days == 4 else 2 * days


def _period(begin: pd.Timestamp, step_s: int) -> str:
    """Return a length of time in words, from its local begin; of days the last one is included."""
    import pandas as pd

    end = begin + pd.Timedelta(seconds=step_s)
    if step_s < _S_PER_DAY:
        clock = "%H:%M" if step_s % 60 == 0 else "%H:%M:%S"
        until = clock if end.date() == begin.date() else f"%Y-%m-%d {clock}"
        return f"{begin:%Y-%m-%d} {begin.strftime(clock)} to {end.strftime(until)}"
    last = end - pd.Timedelta(days=1)
    return f"{begin:%Y-%m-%d}" + (f" to {last:%Y-%m-%d}" if last > begin else "")


def busiest(shown: pa.Table) -> int:
    """Return the number of the picture with the most messages."""
    return int(shown.to_pandas().groupby("at", sort=False)["messages_in"].sum().to_numpy().argmax())


def sum_cells(counted: pd.DataFrame, zoom: int) -> pd.DataFrame:
    """Return messages and bytes of each cell over all intervals; the cells that save most come first."""
    import pandas as pd

    summed = counted.groupby(["x", "y"])[[*_SUMS]].sum().reset_index()
    saved = summed["bytes_in"] - summed["bytes_out"]
    summed = summed.iloc[np.argsort(-saved.to_numpy(), kind="stable")].reset_index(drop=True)
    x, y = (summed.pop(name).to_numpy(dtype=np.float64) for name in ("x", "y"))
    return pd.DataFrame({**figures.tile_bounds(zoom, x, y), **summed})


def places_answer(cells: pd.DataFrame, shown: pa.Table, way: str = "") -> Answer:
    """Return how unevenly the saving is spread over :func:`sum_cells`, as a heading; ``way`` is drawn."""
    saved = cells["bytes_in"] - cells["bytes_out"]
    if saved.sum() <= 0:
        return Answer("No cell saves anything", way)
    enough = int(np.searchsorted(saved.cumsum().to_numpy(), 0.8 * saved.sum())) + 1
    make = "makes" if enough == 1 else "make"
    drawn = shown.select(["south", "west"]).group_by(["south", "west"]).aggregate([]).num_rows
    left_out = f" The {drawn:,} cells with the most messages are drawn." if drawn < len(saved) else ""
    return Answer(
        f"{words.count(enough, 'cell')} of {len(saved):,} {make} four fifths of the saving",
        f"{way + ' ' if way else ''}{_idle(int((saved <= 0).sum()))}. In dark cells nearly every message is "
        "sent by itself."
        f"{left_out} The map begins with {_busiest_label(shown)}, when most is sent; the slider takes the "
        "arrow keys.",
    )


def _busiest_label(shown: pa.Table) -> str:
    labels = list(dict.fromkeys(shown["at"].to_pylist()))
    return str(labels[busiest(shown)])


def _idle(cells: int) -> str:
    return (
        f"{words.count(cells, 'cell')} {'saves' if cells == 1 else 'save'} nothing"
        if cells
        else "Every cell saves something"
    )
