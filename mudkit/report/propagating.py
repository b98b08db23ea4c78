"""Tables of the report propagation: sums of the pipeline's job, cells over time, a played application."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit import figures, words
from mudkit.errors import TraceContentError
from mudkit.report.page import Answer, FirstScreen
from mudkit.report.source import TraceSource
from mudkit.systems.radiator import APPLICATIONS, Application, Played, play
from mudkit.trace.schema import epoch_us
from mudkit.units import KM_PER_DEGREE, US_PER_S, distance_km, middle

if TYPE_CHECKING:
    import folium
    import pandas as pd

__all__ = [
    "FAR",
    "MAX_MAP_CELLS",
    "MAX_PICTURES",
    "NEAR",
    "busiest",
    "busiest_positions",
    "chosen_quantity",
    "count_cells",
    "first_screen",
    "joined",
    "known_answer",
    "known_map",
    "pictures",
    "places_answer",
    "played",
    "search_thresholds",
    "shown_threshold",
    "thresholds_answer",
    "totals",
]

MAX_PICTURES: Final = 48
"""Maximum number of pictures of a map; neighbouring intervals of a longer trace are joined."""
MAX_MAP_CELLS: Final = 8000
"""Cells in all pictures of a map, with fewer pictures where there are more; a page stays under 6 MB."""
NEAR: Final = "in the middle"
FAR: Final = "far away"
"""Stationary receivers."""
_MOMENTS: Final = 40
_S_PER_DAY: Final = 86_400
_POINT: Final = 0.01
_SOURCES: Final = {"speed": "traffic", "devices": "popular spots"}
_TOLD: Final = {"speed": "speed, km/h", "devices": "devices in a cell"}
_QUANTITIES: Final = {
    "speed": "the speed of devices, which the trace has",
    "devices": "the number of devices that stand in a cell",
}
_SUMS: Final = ("messages_in", "aggregates_out", "bytes_in", "bytes_out")


def count_cells(
    positions: pa.Table,
    *,
    zoom: int,
    interval_s: int,
    thresholds: Sequence[int],
    message_bytes: int,
    aggregate_bytes: int,
) -> pd.DataFrame:
    """Count messages and bytes by cell, interval and threshold, like :func:`mudkit.pipeline.propagation`."""
    import pandas as pd

    lat, lon = (positions[name].to_numpy() for name in ("lat", "lon"))
    x, y = figures.tiles(zoom, lat, lon)
    since_s = epoch_us(positions["ts"]) // (interval_s * US_PER_S) * interval_s
    keys = ["x", "y", "since_s"]
    cells = pd.DataFrame({"x": x, "y": y, "since_s": since_s}).groupby(keys).size()
    whole = cells.rename("messages_in").reset_index()
    parts = []
    for threshold in sorted(set(thresholds)):
        messages = whole["messages_in"].to_numpy()
        rest = messages % threshold
        alone = messages if threshold == 1 else (rest == 1).astype(np.int64)
        aggregates = messages // threshold + (rest > 0)
        bytes_out = alone * message_bytes + (aggregates - alone) * aggregate_bytes
        sums = {"aggregates_out": aggregates, "bytes_in": messages * message_bytes, "bytes_out": bytes_out}
        parts.append(whole.assign(threshold=threshold, **sums))
    return pd.concat(parts, ignore_index=True)


def search_thresholds(
    positions: pa.Table, thresholds: Sequence[int], **sizes: int
) -> tuple[pd.DataFrame, list[int]]:
    """Count cells as :func:`count_cells` does; double the largest threshold while it is the best.

    The second result holds the thresholds that were added.
    """
    import pandas as pd

    counted, largest = count_cells(positions, thresholds=thresholds, **sizes), max(thresholds)
    added: list[int] = []
    while _best(totals(counted))["threshold"] == largest > 1 and largest < counted["messages_in"].max():
        largest *= 2
        added.append(largest)
        counted = pd.concat(
            [counted, count_cells(positions, thresholds=[largest], **sizes)], ignore_index=True
        )
    return counted, added


def totals(counted: pd.DataFrame) -> pd.DataFrame:
    """Add up all cells and intervals of :func:`count_cells`, for each threshold."""
    grouped = counted.groupby("threshold")
    table = grouped[[*_SUMS]].sum()
    table.insert(0, "cells", grouped.size())
    return table.reset_index().assign(bytes_left_share=(table["bytes_out"] / table["bytes_in"]).to_numpy())


def pictures(counted: pd.DataFrame, zoom: int, interval_s: int, tz: str) -> pa.Table:
    """Add up each cell over as many intervals as keep to ``MAX_PICTURES`` and ``MAX_MAP_CELLS``."""
    import pandas as pd

    first, last = int(counted["since_s"].min()), int(counted["since_s"].max())
    most = MAX_PICTURES
    while True:
        step_s = interval_s * -(-((last - first) // interval_s + 1) // most)
        placed = counted.assign(picture=(counted["since_s"] - first) // step_s)
        table = placed.groupby(["picture", "threshold", "x", "y"])[[*_SUMS]].sum().reset_index()
        if (table["threshold"] > 1).sum() <= MAX_MAP_CELLS or most == 1:
            break
        most = max(2 * most // 3, 1)
    begin_s = first + table["picture"] * step_s
    begin, end = (
        pd.to_datetime(at_s, unit="s", utc=True).dt.tz_convert(tz) for at_s in (begin_s, begin_s + step_s)
    )
    if step_s < _S_PER_DAY:
        at = begin.dt.strftime("%Y-%m-%d %H:%M") + end.dt.strftime(" to %H:%M")
    else:
        at = begin.dt.strftime("%Y-%m-%d") + end.dt.strftime(" to %Y-%m-%d")
    x, y = (table[name].to_numpy(dtype=np.float64) for name in ("x", "y"))
    captions = [
        f"{messages:,} messages as {aggregates:,}"
        for messages, aggregates in zip(table["messages_in"], table["aggregates_out"], strict=True)
    ]
    return pa.table(
        {
            "at": at,
            "threshold": table["threshold"],
            **figures.tile_bounds(zoom, x, y),
            **{name: table[name] for name in _SUMS},
            "told": captions,
            "bytes_left": 100 * table["bytes_out"] / table["bytes_in"],
        }
    )


def joined(shown: pa.Table, threshold: int) -> pa.Table:
    """Return the pictures of thresholds that join messages, those of ``threshold`` first."""
    other = pc.and_(pc.greater(shown["threshold"], 1), pc.not_equal(shown["threshold"], threshold))
    return pa.concat_tables([shown.filter(pc.equal(shown["threshold"], threshold)), shown.filter(other)])


def busiest(shown: pa.Table) -> int:
    """Return the number of the picture with the most messages."""
    return int(shown.to_pandas().groupby("at", sort=False)["messages_in"].sum().to_numpy().argmax())


def first_screen(
    source: TraceSource, table: pd.DataFrame, interval_s: int, added: Sequence[int] = ()
) -> FirstScreen:
    """Return what was read, three figures, and the threshold to use."""
    plain, best = table.iloc[0], _best(table)
    left = best["bytes_left_share"]
    fill = plain["messages_in"] / plain["cells"]
    tiles = [
        (words.percent(left), f"of the bytes are left with {int(best['threshold']):,} messages an aggregate"),
        (words.number(fill), f"messages in a cell within {words.duration(interval_s)}, where there are any"),
        (
            words.size(best["bytes_out"]),
            f"go to each receiver; without aggregation {words.size(plain['bytes_in'])}",
        ),
    ]
    if best["threshold"] == 1 or left >= 1:
        headline = "Do not join messages: no threshold leaves fewer bytes."
        because = "Larger cells (`cells_zoom`) or longer intervals (`interval_s`) hold more messages to join."
    else:
        headline = f"Join {int(best['threshold']):,} messages: {words.percent(left)} of the bytes are left."
        because = f"No message waits longer than {words.duration(interval_s)}."
        if fill < best["threshold"]:
            because += " Most aggregates end with their interval, before they are full."
    assumption = (
        "Each position is a message to everybody, messages of a cell are joined, and an aggregate has a "
        "fixed size, as a mean, a box or a count has."
    )
    warnings = source.warnings()
    if added:
        warnings.append(
            "The best threshold was the largest that was tried first; larger ones were tried, too: "
            f"{words.listing([f'{size:,}' for size in added], 10)}."
        )
    return FirstScreen(source.describe(), tiles, headline, because, assumption, warnings)


def thresholds_answer(table: pd.DataFrame) -> Answer:
    """Return the heading of the comparison of thresholds; the table is that of :func:`totals`."""
    best = _best(table)
    if best["threshold"] == 1:
        return Answer("No threshold saves anything")
    return Answer(
        f"More than {int(best['threshold']):,} messages in an aggregate save less than a point more"
    )


def shown_threshold(table: pd.DataFrame) -> int:
    """Return the threshold that maps begin with: the recommended one, or the smallest that joins messages."""
    return max(int(_best(table)["threshold"]), int(table.loc[table["threshold"] > 1, "threshold"].min()))


def _best(table: pd.DataFrame) -> pd.Series:
    """Return the smallest threshold that leaves at most a point more of the bytes than the best one."""
    good = table[table["bytes_left_share"] <= table["bytes_left_share"].min() + _POINT]
    best: pd.Series = good.iloc[0]
    return best


def places_answer(shown: pa.Table, threshold: int) -> Answer:
    """Return how unevenly the saving is spread over cells, as a heading."""
    table = shown.to_pandas()
    table = table[table["threshold"] == threshold]
    saved = (table["bytes_in"] - table["bytes_out"]).groupby([table["south"], table["west"]]).sum()
    saved = saved.sort_values(ascending=False)
    if not len(saved) or saved.sum() <= 0:
        return Answer("No cell saves anything")
    enough = int(np.searchsorted(saved.cumsum().to_numpy(), 0.8 * saved.sum())) + 1
    make = "makes" if enough == 1 else "make"
    return Answer(
        f"{words.count(enough, 'cell')} of {len(saved):,} {make} four fifths of the saving",
        f"With {threshold:,} messages an aggregate; {_idle(int((saved <= 0).sum()))}. In dark cells hardly "
        "two messages meet within an interval. The slider takes the arrow keys.",
    )


def _idle(cells: int) -> str:
    return (
        f"{words.count(cells, 'cell')} {'saves' if cells == 1 else 'save'} nothing"
        if cells
        else "every cell saves something"
    )


def busiest_positions(positions: pa.Table, minutes: float) -> pa.Table:
    """Return the positions of the busiest stretch of time, which starts at a multiple of its length."""
    number = epoch_us(positions["ts"]) // round(minutes * 60e6)
    stretches, counts = np.unique(number, return_counts=True)
    return positions.filter(pa.array(number == stretches[counts.argmax()]))


def chosen_quantity(positions: pa.Table, quantity: str) -> str:
    """Return the quantity that is played: ``speed``, or ``devices``, which any trace has."""
    has_speed = positions["speed_mps"].null_count < len(positions)
    if quantity == "speed" and not has_speed:
        raise TraceContentError(
            "The trace has no speeds.",
            where="quantity",
            found="a trace without speed_mps",
            expected="quantity=devices, or a file with speeds",
            remedy="--param quantity=devices, or map the column: --param columns.speed_mps=…",
        )
    return ("speed" if has_speed else "devices") if quantity == "auto" else quantity


def _application(quantity: str) -> Application:
    """Return the application that reports a quantity, near by within a minute, elsewhere in half an hour."""
    source = APPLICATIONS[_SOURCES[quantity]]
    return replace(
        APPLICATIONS["noise map"],
        name=quantity,
        sense=source.sense,
        join=source.join,
        quantity=_TOLD[quantity],
    )


def played(positions: pa.Table, quantity: str, far_km: float) -> Played:
    """Run an application on positions with two stationary receivers: in their middle, and north of it."""
    lat, lon = middle(positions["lat"].to_numpy(), positions["lon"].to_numpy())
    north = min(lat + far_km / float(KM_PER_DEGREE), 89.0)
    return play(_application(quantity), positions, stationary={NEAR: (lat, lon), FAR: (north, lon)})


def known_map(run: Played, positions: pa.Table, quantity: str) -> folium.Map | None:
    """Draw what both know over time, in as many pictures as a map may hold; None without a reported cell."""
    if not len(run.cells):
        return None
    cells = len(run.cells.groupby(["lat", "lon"]))
    last_s = float(run.cells["t_s"].max())
    pictures_ = max(min(_MOMENTS, MAX_MAP_CELLS // (2 * cells)), 1)
    return figures.knowledge_map(
        run.cells,
        positions.select(["lat", "lon"]).to_pandas(),
        (NEAR, FAR),
        value="value",
        label=_application(quantity).quantity,
        every_s=last_s / pictures_,
        until_s=last_s,
        first_s=last_s / 2,
    )


def known_answer(run: Played, quantity: str, near_km: float = 5.0) -> Answer:
    """Return how old the reports of the middle are near by and far away, as a heading."""
    received = run.received
    lat, lon = middle(received["lat"], received["lon"])
    of_middle = received[distance_km(received["lat"], received["lon"], lat, lon) <= near_km]
    if not len(received):
        return Answer(
            "Nothing is reported", f"What was played: {_QUANTITIES[quantity]}. None had any to report."
        )
    age_s = of_middle.groupby("receiver")["age_s"].mean()
    ages = {name: words.duration(float(age_s.get(name, np.nan))) for name in (NEAR, FAR)}
    costs = [
        f"who is {row['receiver']} gets {words.count(row['messages'], 'message')} in "
        f"{words.count(row['aggregates'], 'aggregate')}, "
        f"{words.size(row['bytes'])}"
        for row in run.sent.sort_values("receiver", ascending=False).to_dict("records")
    ]
    text = (
        f"The busiest stretch of time, played message by message: {_QUANTITIES[quantity]}. "
        f"{words.count(received['sender'].nunique(), 'device')} report, at most once a minute; "
        f"{'; '.join(costs)}."
    )
    if not len(run.cells):
        text += " In no cell are enough devices to report it."
    if not len(of_middle):
        return Answer("Nothing is reported in the middle", text)
    return Answer(
        f"What happens in the middle is known there after {ages[NEAR]} on average, "
        f"far away after {ages[FAR]}",
        text,
    )
