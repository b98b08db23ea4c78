"""The report propagation: which messages to join, what is left of them, and what aggregates do not tell."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from mudkit import figures, intervals, words
from mudkit.errors import TraceContentError
from mudkit.report.joining import (
    AS_GOOD,
    Cells,
    Choice,
    Limits,
    Messages,
    Search,
    Sizes,
    Sums,
    best_last,
    cell_km,
    error_interval,
    join_different,
    join_last,
    join_own,
    keep_last,
    last_groups,
    left_interval,
    own_groups,
    search,
)
from mudkit.report.page import Answer, FirstScreen, Measure
from mudkit.report.source import TraceSource
from mudkit.trace.schema import epoch_us
from mudkit.units import US_PER_S, middle

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = [
    "MAX_MAP_CELLS",
    "MAX_PICTURES",
    "JoiningStudy",
    "busiest",
    "chosen_quantity",
    "count_cells",
    "pictures",
    "places_answer",
    "study_joining",
]

MAX_PICTURES: Final = 48
"""Maximum number of pictures of a map; neighbouring intervals of a longer trace are joined."""
MAX_MAP_CELLS: Final = 5000
"""Cells in all pictures of a map, with fewer pictures where there are more; a page stays under 6 MB."""
_S_PER_DAY: Final = 86_400
_SUMS: Final = ("messages_in", "aggregates_out", "bytes_in", "bytes_out")
_HALF: Final = 0.5
_DRAWN_SHARE: Final = 0.95
_MEASURES: Final = {
    "way": (
        "",
        "join (messages of a cell), own (a device joins its own of a cell), last (positions) or nothing",
    ),
    "interval_s": ("s", "length of an interval, which is the longest delay"),
    "cells_zoom": ("", "level of the cells"),
    "cell_km": ("km", "side of a cell"),
    "threshold": (
        "messages",
        "a queue is sent as soon as it holds this many; null: not before its interval ends",
    ),
    "bytes_left_share": ("share", "bytes that are sent, of those of all messages"),
    "messages_left_share": ("share", "messages and aggregates that are sent, of all messages"),
    "own_repeats_share": ("share", "part of the bytes saved by joining that is one device repeating itself"),
    "position_error_m": ("m", "distance from what is told within which 95 % of the positions lie"),
    "position_median_m": ("m", "distance from what is told within which half of the positions lie"),
    "quantity_error": ("", "see the quantity"),
    "delay_s": ("s", "mean time that a message waits"),
    "joined_left_share": ("share", "bytes left by the best combination, if messages of a cell are joined"),
    "own_left_share": (
        "share",
        "bytes left with its cells and interval, if a device joins its own messages only",
    ),
    "different_left_share": ("share", "bytes left with them, if no aggregate holds two messages of a device"),
    "last_left_share": ("share", "bytes left by the best interval, if each device sends its last position"),
    "last_interval_s": ("s", "that interval"),
    "half_aggregate_left_share": ("share", "joined_left_share, if an aggregate has half of aggregate_bytes"),
    "double_aggregate_left_share": ("share", "joined_left_share, if an aggregate has twice aggregate_bytes"),
    "receivers": ("devices", "devices of the trace; each receives all that is sent"),
}
"""Units and definitions of the figures of the first screen."""
_QUANTITY_ERRORS: Final = {
    "speed": ("km/h", "root mean square difference of a speed from the one that is told"),
    "devices": ("share", "devices that are counted too many in an interval, of those that are there"),
}
Way: TypeAlias = Literal["nothing", "last", "own", "join"]
_LABELS: Final = {
    "cell_km": "side of a cell, km",
    "threshold": "sent early at",
    "bytes_left_share": "bytes left, %",
    "messages_left_share": "messages left, %",
    "position_error_m": "95 % of positions within, m",
    "speed_error_kmh": "error of speed, km/h",
    "counted_too_many_share": "devices counted too many, %",
    "delay_s": "mean delay, s",
    "own_repeats_share": "own repeats, % of the saving",
}


@dataclass(frozen=True)
class JoiningStudy:
    """Combinations of interval, cell and threshold on one trace, other ways, and what to use.

    Attributes
    ----------
    choice : Choice
        The combination that the page shows: the best within the limits, or the one with the least error.
    is_allowed : bool
        False: nothing keeps the limits, and ``choice`` does not either.
    own : Sums
        The same cells and interval, if each device joins its own messages only.
    last : (int, Sums) or None
        The best interval, in seconds, at which each device sends its last position alone.
    cells : Cells
        The messages in the order of the cells of ``choice``.
    thresholds : sequence of int
        Thresholds that the table compares.
    """

    source: TraceSource
    messages: Messages
    search: Search
    choice: Choice
    is_allowed: bool
    own: Sums
    last: tuple[int, Sums] | None
    cells: Cells
    thresholds: Sequence[int]

    @property
    def quantity(self) -> str:
        """Quantity of a cell: ``speed`` or ``devices``."""
        return self.search.quantity

    @property
    def zoom(self) -> int:
        """Level of the cells that the page shows."""
        return self.cells.zoom

    @cached_property
    def cell_km(self) -> float:
        """Side of these cells in the middle of the trace."""
        return cell_km(self.zoom, middle(self.messages.lat, self.messages.lon)[0])

    @cached_property
    def different(self) -> Sums:
        """Sums of the same cells and interval, if no aggregate holds two messages of one device."""
        return join_different(self.cells, self.choice.interval_s)

    @cached_property
    def verdict(self) -> Way:
        """The simplest way within the limits that leaves at most 5 % more bytes than the best one.

        ``nothing`` is joined; each device sends its ``last`` position, or joins its ``own`` messages of a
        cell; or the messages of a cell are joined (``join``).
        """
        ways: dict[Way, float] = {"nothing": 1.0}
        if self.last is not None:
            ways["last"] = self.last[1].left_share(self.search.sizes)
        if self.is_allowed:
            ways["own"] = self.own.left_share(self.search.sizes)
            ways["join"] = self.search.least
        best = min(ways.values())
        return next(way for way, left in ways.items() if left <= AS_GOOD * best)

    @property
    def sums(self) -> Sums:
        """Sums of what is recommended; of ``choice``, if nothing is joined."""
        if self.verdict == "last" and self.last is not None:
            return self.last[1]
        return self.own if self.verdict == "own" else self.choice.sums

    @property
    def interval_s(self) -> int:
        """Interval of what is recommended."""
        return self.last[0] if self.verdict == "last" and self.last else self.choice.interval_s

    @cached_property
    def left(self) -> intervals.Interval:
        """Share of the bytes that is left by what is recommended, with its interval."""
        messages, sizes = self.cells.messages, self.search.sizes
        if self.verdict in ("join", "nothing"):
            costs = self.cells.costs(self.interval_s, self.choice.threshold, sizes)
        else:
            if self.verdict == "last":
                messages = self.messages.by_device
                group = last_groups(self.messages, self.interval_s)
            else:
                group = own_groups(self.cells, self.interval_s)
            costs = (sizes.message_bytes / np.bincount(group))[group]
        days = _days(messages.t_us, self.source.tz)
        return left_interval(costs, messages.device, days, sizes.message_bytes)

    @cached_property
    def days(self) -> list[Sums]:
        """Sums of what is recommended by local day, to which a queue belongs by the begin of its interval."""
        interval_s = self.interval_s
        day = _days(self.messages.intervals(interval_s) * interval_s * US_PER_S, self.source.tz)
        parts = []
        for number in np.unique(day):
            messages = self.messages.take(day == number)
            if self.verdict == "last":
                parts.append(keep_last(messages, interval_s))
            elif self.verdict == "own":
                parts.append(join_own(Cells(messages, self.zoom), interval_s))
            else:
                parts.append(Cells(messages, self.zoom).sums(interval_s, self.choice.threshold))
        return parts

    def first_screen(self) -> FirstScreen:
        """Return what was read, three figures, the recommendation, what it rests on, and warnings."""
        return FirstScreen(
            self.source.describe(),
            self._tiles(),
            self._headline(),
            self._reason(),
            self._assumption(),
            self.source.warnings(),
            self._measures(),
        )

    def _tiles(self) -> list[tuple[str, str]]:
        is_used = self.verdict != "nothing"
        left = f"of the bytes {'are' if is_used else 'would be'} left"
        if self.left.kind == "interval":
            ends = words.interval(100 * self.left.low, 100 * self.left.high)
            left += f"; {ends} % on other days and with other devices of this fleet (95 %)"
        verb = "is" if is_used else "would be"
        error = (
            f"or less lie between 95 % of the positions and what {verb} told of them; {self._quantity_told()}"
        )
        own = self.choice.sums.own_repeats_share(self.search.sizes)
        repeats = "of what joining saves is one device that repeats itself"
        return [
            (words.percent(self.left.value), left),
            (words.distance(self.sums.error_m() / 1000), error),
            (words.percent(min(own, 1.0)), repeats if own == own else f"{repeats}: it saves nothing"),
        ]

    def _quantity_told(self) -> str:
        error = self.sums.quantity_error(self.quantity)
        if math.isnan(error):
            return "no speed is known"
        if self.quantity == "speed":
            return f"speeds differ by {words.number(error)} km/h (root mean square)"
        if error == 0:
            return "each device is counted once an interval"
        return f"each device is counted {words.number(1 + error)} times an interval"

    def _headline(self) -> str:
        if self.verdict == "nothing":
            return "Send every message by itself: " + (
                "within the limits, joining saves less than 5 % of the bytes."
                if self.is_allowed
                else "no interval and cell keeps the limits."
            )
        every, side = words.duration(self.interval_s), words.distance(self.cell_km)
        early = f", or as soon as {self.choice.threshold:,} wait" if self.choice.threshold else ""
        what = {
            "last": f"Send only the last position of each device every {every}",
            "own": f"Let each device send one message per {every} and cell {side} wide",
            "join": f"Join the messages of cells {side} wide every {every}{early}",
        }[self.verdict]
        return f"{what}: {words.percent(self.left.value)} of the bytes are left."

    def _reason(self) -> str:
        sizes = self.search.sizes
        joined = self.choice.sums.left_share(sizes)
        cells = f"the messages of cells {words.distance(self.cell_km)} wide"
        if self.verdict == "nothing":
            if not self.is_allowed:
                return "Wider limits (`max_error_m`, `max_quantity_error`) allow larger cells."
            if self.choice.sums.sent == len(self.messages):
                return "No two messages share a cell and an interval."
            return (
                f"The best is to join {cells} every {words.duration(self.choice.interval_s)}. Longer "
                "intervals (`max_delay_s`) or larger cells (`max_error_m`) hold more messages."
            )
        parts = []
        if self.verdict == "own" and len(self.messages.names) > 1:
            parts.append(
                "Joining the messages of different devices, too, leaves "
                f"{words.percent(self.search.least)} at best."
            )
        elif self.verdict == "join":
            parts.append(
                f"If each device joins its own messages only, {words.percent(self.own.left_share(sizes))} "
                "are left."
            )
        elif self.verdict == "last" and self.is_allowed:
            parts.append(f"Joining {cells} leaves {words.percent(joined)}.")
        elif self.verdict == "last":
            parts.append("No interval and cell at which messages are joined keeps the limits.")
        if self.verdict != "last" and self.last is None:
            parts.append("Sending only the last position of each device keeps the limits at no interval.")
        elif self.verdict != "last" and self.last is not None:
            parts.append(
                "Sending only the last position of each device keeps the limits if it is sent every "
                f"{words.duration(self.last[0])}, and leaves "
                f"{words.percent(self.last[1].left_share(sizes))}."
            )
        parts.append(
            f"Messages wait {words.duration(self.sums.delay_s)} on average and "
            f"{words.duration(self.interval_s)} at most."
        )
        return " ".join(parts)

    def _assumption(self) -> str:
        sizes, limits = self.search.sizes, self.search.limits
        text = f"Assumed: a message of {words.size(sizes.message_bytes)}"
        if self.verdict == "join":
            half, double = (words.percent(self._left_with(factor)) for factor in (0.5, 2.0))
            text += (
                f" and an aggregate of {words.size(sizes.aggregate_bytes)} (with half of that {half} are "
                f"left, with twice that {double})"
            )
        devices, whole = len(self.messages.names), self.sums.bytes_out(sizes)
        if self.verdict == "nothing":
            whole = len(self.messages) * sizes.message_bytes
        a_day, worst = whole / len(self.days), limits.max_quantity_error
        bound = "any error of the quantity"
        if worst is not None and self.quantity == "speed":
            bound = f"an error of {words.number(worst)} km/h"
        elif worst is not None:
            bound = f"{words.percent(worst)} of the devices counted too many"
        receivers = f"all {devices:,} devices" if devices > 1 else "one device"
        to_all = f" to each and {words.size(a_day * devices)} together" if devices > 1 else ""
        return (
            f"{text}; all that is sent goes to {receivers}, {words.size(a_day)} "
            f"a day{to_all}. Allowed: a delay of {words.duration(limits.max_delay_s)} (`max_delay_s`), "
            f"{words.distance(limits.max_error_m / 1000)} for 95 % of the positions (`max_error_m`), {bound} "
            "(`max_quantity_error`)."
        )

    def _left_with(self, factor: float) -> float:
        """Return what is left if an aggregate has a multiple of its size."""
        sizes = self.search.sizes
        larger = replace(sizes, aggregate_bytes=_times(sizes.aggregate_bytes, factor))
        return self.choice.sums.left_share(larger)

    def _measures(self) -> list[Measure]:
        sums, sizes, days = self.sums, self.search.sizes, self.days
        is_used, has_cells = self.verdict != "nothing", self.verdict in ("own", "join")
        messages = [day.messages for day in days]
        saved = [day.messages * sizes.message_bytes - day.bytes_out(sizes) for day in days]
        repeats = [(day.messages - day.told_devices) * sizes.message_bytes for day in days]
        values = {
            "way": self.verdict,
            "interval_s": self.interval_s if is_used else None,
            "cells_zoom": self.zoom if has_cells else None,
            "cell_km": self.cell_km if has_cells else None,
            "threshold": self.choice.threshold if self.verdict == "join" else None,
            "bytes_left_share": self.left.value,
            "messages_left_share": sums.sent / sums.messages,
            "own_repeats_share": self.choice.sums.own_repeats_share(sizes),
            "position_error_m": sums.error_m(),
            "position_median_m": sums.error_m(_HALF),
            "quantity_error": sums.quantity_error(self.quantity),
            "delay_s": sums.delay_s,
            "joined_left_share": self.choice.sums.left_share(sizes),
            "own_left_share": self.own.left_share(sizes),
            "different_left_share": self.different.left_share(sizes),
            "last_left_share": self.last[1].left_share(sizes) if self.last else None,
            "last_interval_s": self.last[0] if self.last else None,
            "half_aggregate_left_share": self._left_with(0.5),
            "double_aggregate_left_share": self._left_with(2.0),
            "receivers": len(self.messages.names),
        }
        around = {
            "bytes_left_share": self.left,
            "messages_left_share": intervals.ratio([day.sent for day in days], messages),
            "position_error_m": error_interval(days),
            "position_median_m": error_interval(days, _HALF),
            "quantity_error": _quantity_interval(days, self.quantity),
            "delay_s": intervals.ratio([day.wait_s for day in days], messages),
        }
        if self.verdict in ("join", "nothing"):
            around["own_repeats_share"] = intervals.ratio(repeats, saved)
        measures = []
        for name, value in values.items():
            unit, text = _MEASURES[name]
            if name == "quantity_error":
                unit, text = _QUANTITY_ERRORS[self.quantity]
            if name in around and not is_used:
                text += "; of the best combination, which is not recommended"
            of = around.get(name)
            ends = (of.low, of.high) if of is not None and of.kind == "interval" else (None, None)
            measures.append(Measure(name, value, unit, text, *ends))
        return measures

    def grid(self) -> pd.DataFrame:
        """Return what each combination without a threshold leaves and tells, a row each."""
        import pandas as pd

        lat, _ = middle(self.messages.lat, self.messages.lon)
        rows = [
            {"cells_zoom": zoom, "cell_km": cell_km(zoom, lat), "interval_s": interval_s}
            | self._row(sums)
            | {"keeps_limits": self.search.is_allowed(zoom, interval_s)}
            for (zoom, interval_s), sums in sorted(self.search.tried.items())
        ]
        return pd.DataFrame(rows)

    def _row(self, sums: Sums) -> dict[str, float]:
        return {
            "bytes_left_share": sums.left_share(self.search.sizes),
            "messages_left_share": sums.sent / sums.messages,
            "position_median_m": sums.error_m(_HALF),
            "position_error_m": sums.error_m(),
            self._error_column: sums.quantity_error(self.quantity),
            "delay_s": sums.delay_s,
            "own_repeats_share": sums.own_repeats_share(self.search.sizes),
        }

    @property
    def _error_column(self) -> str:
        return "speed_error_kmh" if self.quantity == "speed" else "counted_too_many_share"

    @property
    def best_key(self) -> tuple[int, int]:
        """Zoom level and interval that the page shows."""
        return self.zoom, self.choice.interval_s

    @property
    def label(self) -> str:
        """Cells, interval and threshold that the page shows, in a few words."""
        early = f", at most {self.choice.threshold:,}" if self.choice.threshold else ""
        return f"{words.distance(self.cell_km)}, {words.duration(self.choice.interval_s)}{early}"

    @property
    def shown(self) -> dict[str, Any]:
        """Arguments of :func:`count_cells`."""
        return {
            "zoom": self.zoom, "interval_s": self.choice.interval_s, "threshold": self.choice.threshold
        }  # fmt: skip

    @property
    def labels(self) -> dict[str, str]:
        """Headings of the tables."""
        return _LABELS

    def near(self, grid: pd.DataFrame) -> pd.DataFrame:
        """Return the combinations with the cells or the interval of the page, as a table on screen."""
        zoom, interval_s = self.best_key
        is_near = (grid["cells_zoom"] == zoom) | (grid["interval_s"] == interval_s)
        rows = grid[is_near].sort_values(["cells_zoom", "interval_s"])
        columns = ["cell_km", "interval", "bytes_left_share", "position_error_m", self._error_column,
                   "own_repeats_share", "keeps_limits"]  # fmt: skip
        return rows.assign(interval=[words.duration(s) for s in rows["interval_s"]])[columns]

    def ways_shown(self, baselines: pd.DataFrame) -> pd.DataFrame:
        """Return the other ways as a table on screen."""
        columns = ["way", "bytes_left_share", "messages_left_share", "position_error_m", self._error_column,
                   "delay_s", "keeps_limits"]  # fmt: skip
        return baselines[columns]

    def bars(self, baselines: pd.DataFrame) -> pd.DataFrame:
        """Return the other ways as bars: ``way``, and a column for each of :attr:`measures`."""
        return baselines.assign(left=100 * baselines["bytes_left_share"], error=baselines["position_error_m"])

    @property
    def measures(self) -> dict[str, str]:
        """Columns of :meth:`bars`, with the titles of their axes."""
        return {"left": "bytes left, %", "error": "95 % of positions within, m"}

    def thresholds_shown(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the thresholds as a table on screen."""
        columns = ["threshold", "bytes_left_share", "messages_left_share", "position_error_m",
                   self._error_column, "delay_s", "own_repeats_share"]  # fmt: skip
        return table[columns]

    def assumptions_shown(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return what was assumed as a table on screen."""
        every = [words.duration(s) if math.isfinite(s) else "nothing joined" for s in table["interval_s"]]
        columns = ["assumed", "interval", "cell_km", "threshold", "bytes_left_share"]
        return table.assign(interval=every)[columns]

    def grid_answer(self) -> Answer:
        """Return how much interval and cell move, as a heading."""
        left = [self.search.left(*key) for key in self.search.tried]
        low, high = words.percent(min(left)), words.percent(max(left))
        title = (
            f"Interval and cell decide: {low} to {high} of the bytes are left"
            if low != high
            else f"Interval and cell change nothing: {low} of the bytes are left"
        )
        allowed = len(self.search.allowed())
        return Answer(
            title,
            f"{words.count(len(left), 'combination')} were tried without a threshold; {allowed:,} "
            f"{'keeps' if allowed == 1 else 'keep'} the limits. The second number is the distance from "
            "what is told within which 95 % of the positions lie.",
        )

    def baselines(self) -> pd.DataFrame:
        """Return what other ways leave on the same messages, beside the combination of the page."""
        import pandas as pd

        every = self.choice.interval_s
        ways: list[tuple[str, int, Sums]] = [
            ("last position of each device", every, keep_last(self.messages, every)),
            ("last positions, joined by cell", every, join_last(self.messages, self.zoom, every)),
            ("own messages of a cell joined by each device", every, self.own),
            ("different devices joined, never two messages of one", every, self.different),
            ("messages of a cell joined", every, self.choice.sums),
        ]
        if self.last is not None and self.last[0] != every:
            ways.insert(1, (f"{ways[0][0]} every {words.duration(self.last[0])}", *self.last))
        rows = [
            {"way": name, "interval_s": interval_s}
            | self._row(sums)
            | {"keeps_limits": sums.keeps(self.search.limits, self.quantity)}
            for name, interval_s, sums in ways
        ]
        nothing = {name: 0.0 for name in rows[0] if name not in ("way", "own_repeats_share")}
        nothing |= {"bytes_left_share": 1.0, "messages_left_share": 1.0}
        first = {"way": "every message by itself"} | nothing | {"interval_s": 0, "keeps_limits": True}
        return pd.DataFrame([first, *rows])

    def baselines_answer(self) -> Answer:
        """Return which part of the saving is one device that repeats itself, as a heading."""
        sums, sizes = self.choice.sums, self.search.sizes
        own = sums.own_repeats_share(sizes)
        if math.isnan(own):
            return Answer("Joining saves nothing", "No two messages share a cell and an interval.")
        alone = words.percent(int(sums.sizes[1][sums.sizes[0] == 1].sum()) / sums.sent)
        shared = self.different.left_share(sizes)
        if own >= 1:
            title = "The whole saving is single devices that repeat themselves"
        elif own > 0:
            title = f"{words.percent(own)} of the saving is single devices that repeat themselves"
        else:
            title = "The whole saving comes from different devices"
        return Answer(
            title,
            f"{words.count(sums.sent, 'message')} and aggregates are sent; {alone} of them hold one message. "
            f"If no aggregate held two messages of one device, {words.percent(shared)} of the bytes would be "
            "left.",
        )

    def threshold_table(self) -> pd.DataFrame:
        """Return what thresholds leave at the interval and cell of the page; 1: nothing is joined."""
        import pandas as pd

        interval_s, chosen = self.choice.interval_s, self.choice.threshold
        largest = int(self.search.tried[self.zoom, interval_s].sizes[0].max())
        sizes = sorted(
            {1, *(size for size in self.thresholds if size < largest), *([chosen] if chosen else [])}
        )
        rows = [
            {"threshold": f"{size:,}" if size > 1 else "1, nothing joined"}
            | self._row(self.choice.sums if size == chosen else self.cells.sums(interval_s, size))
            for size in sizes
        ]
        rows.append(
            {"threshold": "any, none is sent early"} | self._row(self.search.tried[self.zoom, interval_s])
        )
        return pd.DataFrame(rows)

    def threshold_answer(self) -> Answer:
        """Return what the threshold of the page costs, as a heading."""
        whole = self.search.tried[self.zoom, self.choice.interval_s]
        if self.choice.threshold is None:
            return Answer(
                "Sending queues early, when they are full, would leave over 5 % more bytes"
                if whole.sizes[0].max() > 1
                else "No queue ever holds two messages",
                f"The largest holds {words.count(int(whole.sizes[0].max()), 'message')}.",
            )
        sizes = self.search.sizes
        cost = 100 * (self.choice.sums.left_share(sizes) - whole.left_share(sizes))
        return Answer(
            f"Sending a queue as soon as it holds {self.choice.threshold:,} messages costs "
            f"{words.number(round(cost, 1))} points",
            f"Then messages wait {words.duration(self.choice.sums.delay_s)} on average, not "
            f"{words.duration(whole.delay_s)}. It is the smallest threshold that leaves at most 5 % more "
            "bytes than the best combination.",
        )

    def assumptions(self) -> pd.DataFrame:
        """Return what would be recommended with other sizes and limits, and what half of the fleet leaves."""
        import pandas as pd

        sizes, limits = self.search.sizes, self.search.limits
        cases: list[tuple[str, Search]] = [("as assumed", self.search)]
        factors = ((0.5, "half"), (2.0, "twice"))
        for factor, word in factors:
            bytes_ = _times(sizes.aggregate_bytes, factor)
            other = self.search.assuming(sizes=replace(sizes, aggregate_bytes=bytes_))
            cases.append((f"an aggregate {word} as large, {words.size(bytes_)}", other))
        for factor, word in factors:
            delay_s = _times(limits.max_delay_s, factor)
            other = self.search.assuming(limits=replace(limits, max_delay_s=delay_s))
            cases.append((f"{word} the delay, {words.duration(delay_s)}", other))
        for factor, word in factors:
            error_m = factor * limits.max_error_m
            other = self.search.assuming(limits=replace(limits, max_error_m=error_m))
            cases.append((f"{word} the distance, {words.distance(error_m / 1000)}", other))
        lat, _ = middle(self.messages.lat, self.messages.lon)
        rows = []
        for name, case in cases:
            choice = case.choose()
            known = dict.fromkeys(("interval_s", "cell_km", "threshold"), math.nan)
            known |= {"bytes_left_share": 1.0}
            if choice is not None:
                left = choice.sums.left_share(case.sizes, choice.threshold)
                known = {
                    "interval_s": float(choice.interval_s),
                    "cell_km": cell_km(choice.zoom, lat),
                    "threshold": float(choice.threshold or math.nan),
                    "bytes_left_share": left,
                }
            rows.append({"assumed": name} | known)
        if (half := self._half_fleet()) is not None:
            rows.append(
                {
                    "assumed": "half of the devices, the same combination",
                    "interval_s": float(self.choice.interval_s),
                    "cell_km": self.cell_km,
                    "threshold": float(self.choice.threshold or math.nan),
                    "bytes_left_share": half.left_share(sizes),
                }
            )
        return pd.DataFrame(rows)

    def _half_fleet(self) -> Sums | None:
        """Return the sums of half of the devices, drawn by a checksum of their names; None: there is one."""
        drawn = np.argsort([zlib.crc32(name.encode()) for name in self.messages.names.tolist()])
        if len(drawn) < 2:
            return None
        is_kept = np.isin(np.arange(len(drawn)), drawn[: (len(drawn) + 1) // 2])
        part = self.messages.take(is_kept[self.messages.device])
        return Cells(part, self.zoom).sums(self.choice.interval_s, self.choice.threshold)

    def assumptions_answer(self, table: pd.DataFrame) -> Answer:
        """Return how far what is left depends on what was assumed, as a heading."""
        low, high = table["bytes_left_share"].min(), table["bytes_left_share"].max()
        return Answer(
            f"With half or twice of what was assumed, {words.percent(low)} to {words.percent(high)} are left"
            if words.percent(low) != words.percent(high)
            else "Half or twice of what was assumed changes nothing",
            "Each row is the best combination, were one assumption another, among those that were tried.",
        )


def _times(value: int, factor: float) -> int:
    return max(round(factor * value), 1)


def _quantity_interval(days: Sequence[Sums], quantity: str) -> intervals.Interval:
    """Return the error of the quantity with its interval over days."""
    if quantity == "speed":
        squares = intervals.ratio([day.value_squares for day in days], [day.values for day in days])
        low, high = (3.6 * math.sqrt(end) for end in (squares.low, squares.high))
        return replace(squares, value=3.6 * math.sqrt(squares.value), low=low, high=high)
    counted = intervals.ratio([day.told_devices for day in days], [day.devices for day in days])
    return replace(counted, value=counted.value - 1, low=counted.low - 1, high=counted.high - 1)


def _days(t_us: NDArray[np.int64], tz: str) -> NDArray[np.int64]:
    """Return the number of each time's local day."""
    import pandas as pd

    hours, at = np.unique(t_us // (900 * US_PER_S), return_inverse=True)
    local = pd.to_datetime(hours * 900, unit="s", utc=True).tz_convert(tz).tz_localize(None)
    return np.asarray(local.to_numpy().astype("datetime64[D]").astype(np.int64)[at])


def study_joining(
    source: TraceSource,
    limits: Limits,
    sizes: Sizes,
    quantity: str,
    *,
    cells_zoom: int | None = None,
    thresholds: Sequence[int] = (1, 20, 50),
) -> JoiningStudy:
    """Search for the combination that leaves the fewest bytes within the limits, and for the baselines."""
    messages = Messages(source.positions)
    searched = search(messages, limits, sizes, quantity, zoom=cells_zoom)
    choice = searched.choose()
    is_allowed = choice is not None
    if choice is None:
        zoom, interval_s = min(searched.tried, key=lambda key: (searched.tried[key].error_m(), key[1]))
        choice = Choice(zoom, interval_s, None, searched.tried[zoom, interval_s])
    cells = Cells(messages, choice.zoom)
    if choice.threshold is not None:
        choice = replace(choice, sums=cells.sums(choice.interval_s, choice.threshold))
    own = join_own(cells, choice.interval_s)
    last = best_last(messages, limits, quantity)
    return JoiningStudy(source, messages, searched, choice, is_allowed, own, last, cells, thresholds)


def count_cells(
    positions: pa.Table,
    *,
    zoom: int,
    interval_s: int,
    threshold: int | None,
    sizes: Sizes,
) -> pd.DataFrame:
    """Count messages and bytes by cell and interval, like :func:`mudkit.pipeline.propagation`."""
    import pandas as pd

    lat, lon = (positions[name].to_numpy() for name in ("lat", "lon"))
    x, y = figures.tiles(zoom, lat, lon)
    since_s = epoch_us(positions["ts"]) // (interval_s * US_PER_S) * interval_s
    keys = ["x", "y", "since_s"]
    cells = pd.DataFrame({"x": x, "y": y, "since_s": since_s}).groupby(keys).size()
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
    first, last = int(counted["since_s"].min()), int(counted["since_s"].max())
    most = MAX_PICTURES
    while True:
        step_s = interval_s * -(-((last - first) // interval_s + 1) // most)
        placed = counted.assign(picture=(counted["since_s"] - first) // step_s)
        table = placed.groupby(["picture", "x", "y"])[[*_SUMS]].sum().reset_index()
        if len(table) <= MAX_MAP_CELLS or most == 1:
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


def busiest(shown: pa.Table) -> int:
    """Return the number of the picture with the most messages."""
    return int(shown.to_pandas().groupby("at", sort=False)["messages_in"].sum().to_numpy().argmax())


def places_answer(counted: pd.DataFrame, shown: pa.Table) -> Answer:
    """Return how unevenly the saving is spread over cells, as a heading."""
    saved = (counted["bytes_in"] - counted["bytes_out"]).groupby([counted["x"], counted["y"]]).sum()
    saved = saved.sort_values(ascending=False)
    if not len(saved) or saved.sum() <= 0:
        return Answer("No cell saves anything")
    enough = int(np.searchsorted(saved.cumsum().to_numpy(), 0.8 * saved.sum())) + 1
    make = "makes" if enough == 1 else "make"
    drawn = shown.select(["south", "west"]).group_by(["south", "west"]).aggregate([]).num_rows
    left_out = f" The {drawn:,} cells with the most messages are drawn." if drawn < len(saved) else ""
    return Answer(
        f"{words.count(enough, 'cell')} of {len(saved):,} {make} four fifths of the saving",
        f"{_idle(int((saved <= 0).sum()))}. In dark cells hardly two messages meet within an interval."
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


def chosen_quantity(positions: pa.Table, quantity: str) -> str:
    """Return the quantity that is reported: ``speed``, or ``devices``, which any trace has."""
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
