"""Maps of the report propagation: what is joined where and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from mudkit import figures, words
from mudkit.report.joined_messages import Block, Messages, Sizes
from mudkit.report.joined_sums import BlockSummary, Setup
from mudkit.report.page import Answer

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.report.propagating import JoiningStudy

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


_CELL: Final = pa.schema([(name, pa.int64()) for name in ("x", "y", *_SUMS, "first_s", "last_s")])
_PICTURE: Final = pa.schema([(name, pa.int64()) for name in ("step_s", "picture", "x", "y", *_SUMS)])
Reduce: TypeAlias = "Callable[[pd.DataFrame], pa.Table]"
Add: TypeAlias = Callable[[Reduce, pa.Schema, Mapping[str, str]], pa.Table]
"""Function that adds up what another makes of counts: columns, and how those that are no keys are joined."""


def count_cells(
    messages: Messages,
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

    x, y = figures.tiles(zoom, messages.lat, messages.lon)
    since_s = messages.intervals(interval_s) * interval_s
    keys = ["x", "y", "since_s"]
    placed = pd.DataFrame({"x": x, "y": y, "since_s": since_s})
    if is_own:
        grouped = placed.assign(device=messages.device).groupby([*keys, "device"]).size().groupby(keys)
        own = grouped.agg(messages_in="sum", aggregates_out="size").reset_index()
        return own.assign(
            bytes_in=own["messages_in"] * sizes.message_bytes,
            bytes_out=own["aggregates_out"] * sizes.message_bytes,
        )
    cells = placed.groupby(keys).size()
    whole = cells.rename("messages_in").reset_index()
    queued = whole["messages_in"].to_numpy()
    size = threshold or max(int(queued.max()), 2)
    rest = queued % size
    alone = queued if size == 1 else (rest == 1).astype(np.int64)
    aggregates = queued // size + (rest > 0)
    bytes_out = alone * sizes.message_bytes + (aggregates - alone) * sizes.aggregate_bytes
    return whole.assign(aggregates_out=aggregates, bytes_in=queued * sizes.message_bytes, bytes_out=bytes_out)


@dataclass(frozen=True)
class CellCounts:
    """Messages and bytes by cell and interval, of which only sums by cell or picture leave the tasks.

    Attributes
    ----------
    zoom, interval_s : int
    tz : str
        Time zone of the pictures.
    add : callable
        Function that adds up what a function makes of the counts.
    """

    zoom: int
    interval_s: int
    tz: str
    add: Add

    @classmethod
    def of_study(cls, study: JoiningStudy) -> CellCounts:
        """Count what the map of a page shows."""

        def add(reduce: Reduce, columns: pa.Schema, values: Mapping[str, str]) -> pa.Table:
            of = partial(_of_block, reduce, {**study.shown, "sizes": study.search.sizes}, columns)
            return study.joined_sums.summarise({"cells": BlockSummary(of, columns, values)})["cells"]

        return cls(study.zoom, study.choice.interval_s, study.source.tz, add)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Sums over all intervals, ``x, y``, and ``first_s, last_s``: local time of the first and last."""
        values = {**dict.fromkeys(_SUMS, "sum"), "first_s": "min", "last_s": "max"}
        frame: pd.DataFrame = self.add(partial(_by_cell, self.tz), _CELL, values).to_pandas()
        return frame

    def pictures(self, kept: pd.MultiIndex | None, begins_s: Mapping[int, int]) -> pd.DataFrame:
        """Return sums by ``step_s, picture, x, y``.

        Parameters
        ----------
        kept : pandas.MultiIndex, optional
            The cells that are counted; by default all.
        begins_s : mapping of int to int
            Lengths of pictures in seconds, and when the first picture begins, local time.
        """
        reduce = partial(_by_picture, self.tz, kept, dict(begins_s))
        frame: pd.DataFrame = self.add(reduce, _PICTURE, dict.fromkeys(_SUMS, "sum")).to_pandas()
        return frame


def _of_block(
    reduce: Reduce,
    shown: Mapping[str, Any],
    columns: pa.Schema,
    setup: Setup,
    block: Block,
) -> pa.Table:
    """Count the cells of a block, and reduce them to a table; runs in Spark's tasks, too."""
    messages = block.part(shown["interval_s"])
    if not len(messages):
        return columns.empty_table()
    return reduce(count_cells(messages, **shown)).select(columns.names)


def _local_s(since_s: pd.Series, tz: str) -> pd.Series:
    """Return times as seconds of local time."""
    import pandas as pd

    local = pd.to_datetime(since_s, unit="s", utc=True).dt.tz_convert(tz).dt.tz_localize(None)
    return local.astype("datetime64[s]").astype("int64")


def _by_cell(tz: str, counted: pd.DataFrame) -> pa.Table:
    """Sum over time: a row a cell, with its first and last local time."""
    local_s = _local_s(counted["since_s"], tz)
    sums = dict.fromkeys(_SUMS, "sum") | {"first_s": "min", "last_s": "max"}
    summed = counted.assign(first_s=local_s, last_s=local_s).groupby(["x", "y"]).agg(sums).reset_index()
    return pa.Table.from_pandas(summed, _CELL, preserve_index=False)


def _by_picture(
    tz: str, kept: pd.MultiIndex | None, begins_s: Mapping[int, int], counted: pd.DataFrame
) -> pa.Table:
    """Sum by picture of the map over time; a row for each length of steps, picture and cell."""
    import pandas as pd

    if kept is not None:
        counted = counted[pd.MultiIndex.from_frame(counted[["x", "y"]]).isin(kept)]
    local_s = _local_s(counted["since_s"], tz)
    tables = [_PICTURE.empty_table()]
    for step_s, first_s in begins_s.items():
        placed = counted.assign(step_s=step_s, picture=(local_s - first_s) // step_s)
        summed = placed.groupby(["step_s", "picture", "x", "y"])[[*_SUMS]].sum().reset_index()
        tables.append(pa.Table.from_pandas(summed, _PICTURE, preserve_index=False))
    return pa.concat_tables(tables)


def pictures(counts: CellCounts, label: str) -> pa.Table:
    """Add up each cell over as many intervals as keep to ``MAX_PICTURES`` and ``MAX_MAP_CELLS``.

    Of many cells only those with the most messages are drawn, which hold 95 % of them.
    """
    import pandas as pd

    drawn, kept, zoom = counts.cells, None, counts.zoom
    if len(drawn) * MAX_PICTURES > MAX_MAP_CELLS:
        by_cell = drawn.sort_values("messages_in", ascending=False, kind="stable")
        enough = int(
            np.searchsorted(by_cell["messages_in"].cumsum(), _DRAWN_SHARE * by_cell["messages_in"].sum())
        )
        drawn = by_cell.iloc[: min(enough + 1, MAX_MAP_CELLS)]
        kept = pd.MultiIndex.from_frame(drawn[["x", "y"]])
    begins_s = _begins_s(counts.interval_s, int(drawn["first_s"].min()), int(drawn["last_s"].max()))
    if kept is None:  # all lengths keep to the number of cells
        begins_s = dict([next(iter(begins_s.items()))])
    summed = counts.pictures(kept, begins_s)
    rows = summed.groupby("step_s").size()
    step_s = next(step_s for step_s in begins_s if rows[step_s] <= MAX_MAP_CELLS)
    first_s, table = begins_s[step_s], summed[summed["step_s"] == step_s].reset_index(drop=True)
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


def _begins_s(interval_s: int, first_s: int, last_s: int) -> dict[int, int]:
    """Return lengths of pictures, up to that of a single one, and when the first picture begins."""
    begins_s: dict[int, int] = {}
    for step_s in _steps(interval_s):
        unit_s = min(step_s, _S_PER_DAY)
        begin_s = first_s // unit_s * unit_s
        number = (last_s - begin_s) // step_s
        if number < MAX_PICTURES:
            begins_s[step_s] = begin_s
        if number == 0:
            break
    return begins_s


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


def sum_cells(counts: CellCounts) -> pd.DataFrame:
    """Return messages and bytes of each cell over all intervals; the cells that save most come first."""
    import pandas as pd

    summed = counts.cells
    saved = summed["bytes_in"] - summed["bytes_out"]
    summed = summed.iloc[np.argsort(-saved.to_numpy(), kind="stable")].reset_index(drop=True)
    x, y = (summed[name].to_numpy(dtype=np.float64) for name in ("x", "y"))
    return pd.DataFrame({**figures.tile_bounds(counts.zoom, x, y), **summed[[*_SUMS]]})


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
    """Return the time of the picture with most messages."""
    labels = list(dict.fromkeys(shown["at"].to_pylist()))
    return str(labels[busiest(shown)])


def _idle(cells: int) -> str:
    """Return how many cells save nothing, as a clause."""
    return (
        f"{words.count(cells, 'cell')} {'saves' if cells == 1 else 'save'} nothing"
        if cells
        else "Every cell saves something"
    )
