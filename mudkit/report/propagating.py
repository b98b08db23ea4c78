"""The report propagation: which messages to join, what is left of them, and what aggregates do not tell."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

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
    keep_last,
    left_interval,
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
MAX_MAP_CELLS: Final = 8000
"""Cells in all pictures of a map, with fewer pictures where there are more; a page stays under 6 MB."""
_S_PER_DAY: Final = 86_400
_SUMS: Final = ("messages_in", "aggregates_out", "bytes_in", "bytes_out")
_HALF: Final = 0.5
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
    """Combinations of interval, cell and threshold on one trace, and the one to use.

    Attributes
    ----------
    choice : Choice
        The combination that the page shows: the best within the limits, or the one with the least error.
    is_allowed : bool
        False: nothing keeps the limits, and ``choice`` does not either.
    last : Choice or None
        The best interval at which each device sends its last position alone.
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
    last: Choice | None
    cells: Cells
    thresholds: Sequence[int]

    @property
    def quantity(self) -> str:
        """What devices report: ``speed`` or ``devices``."""
        return self.search.quantity

    @property
    def zoom(self) -> int:
        """Level of the cells that the page shows."""
        return self.cells.zoom

    @cached_property
    def left(self) -> intervals.Interval:
        """Share of the bytes that the combination leaves, with its interval."""
        costs = self.cells.costs(self.choice.interval_s, self.choice.threshold, self.search.sizes)
        messages = self.cells.messages
        days = _days(messages.t_us, self.source.tz)
        return left_interval(costs, messages.device, days, self.search.sizes.message_bytes)

    @cached_property
    def days(self) -> list[Sums]:
        """Sums of the combination by local day; a queue is part of the day on which its interval begins."""
        length_us = self.choice.interval_s * US_PER_S
        day = _days(self.messages.t_us // length_us * length_us, self.source.tz)
        numbers = np.unique(day)
        return [
            Cells(self.messages.take(day == number), self.zoom).sums(
                self.choice.interval_s, self.choice.threshold
            )
            for number in numbers
        ]

    @property
    def verdict(self) -> str:
        """What is recommended: ``join``, ``last`` (keep only the last positions) or ``nothing``."""
        sizes = self.search.sizes
        joined = self.choice.sums.left_share(sizes) if self.is_allowed else math.inf
        last = self.last.sums.left_share(sizes) if self.last else math.inf
        if min(joined, last) * AS_GOOD > 1:
            return "nothing"
        return "last" if last <= AS_GOOD * joined else "join"

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

    @property
    def _used(self) -> tuple[Choice, float]:
        """The combination that is recommended, and the share of bytes that it leaves."""
        if self.verdict == "last" and self.last is not None:
            return self.last, self.last.sums.left_share(self.search.sizes)
        return self.choice, self.left.value

    def _tiles(self) -> list[tuple[str, str]]:
        used, left = self._used
        sums = used.sums
        if self.verdict == "nothing":
            tiles = [(words.percent(1.0), "of the bytes go to each receiver: nothing is joined")]
        else:
            tiles = [(words.percent(left), "of the bytes are left")]
        tiles.append(
            (
                words.distance(sums.error_m() / 1000),
                f"or less from 95 % of the positions to {_told_of(self.verdict)}; {self._quantity_told(sums)}",
            )
        )
        own = sums.own_repeats_share(self.search.sizes)
        if self.verdict == "join":
            tiles.append((words.percent(min(own, 1.0)), "of the saving is one device that repeats itself"))
        else:
            tiles.append((words.duration(used.interval_s), "is the interval of these figures"))
        return tiles

    def _quantity_told(self, sums: Sums) -> str:
        error = sums.quantity_error(self.quantity)
        if math.isnan(error):
            return "no speed is known"
        if self.quantity == "speed":
            return f"speeds differ by {words.number(error)} km/h (root mean square)"
        if error == 0:
            return "each device is counted once an interval"
        return f"each device is counted {words.number(1 + error)} times an interval"

    def _headline(self) -> str:
        used, left = self._used
        if self.verdict == "nothing":
            if not self.is_allowed:
                return "Send every message by itself: no cell and interval that was tried keeps the limits."
            return "Send every message by itself: within the limits joining saves less than 5 % of the bytes."
        every = words.duration(used.interval_s)
        if self.verdict == "last":
            return (
                f"Send the last position of each device every {every}, and join nothing: "
                f"{words.percent(left)} of the bytes are left."
            )
        early = f", or as soon as {used.threshold:,} wait" if used.threshold else ""
        return (
            f"Join the messages of cells {words.distance(self.cell_km)} wide every {every}{early}: "
            f"{words.percent(left)} of the bytes are left."
        )

    @property
    def cell_km(self) -> float:
        """Side of the cells in the middle of the trace."""
        return cell_km(self.zoom, middle(self.messages.lat, self.messages.lon)[0])

    def _reason(self) -> str:
        sizes, limits = self.search.sizes, self.search.limits
        within = (
            f"within the same limits ({words.duration(limits.max_delay_s)}, "
            f"{words.distance(limits.max_error_m / 1000)})"
        )
        if self.verdict == "nothing":
            if not self.is_allowed:
                return "A wider limit, `max_error_m` or `max_quantity_error`, allows larger cells."
            return (
                f"The best combination leaves {words.percent(self.left.value)}. Longer intervals "
                "(`max_delay_s`) or larger cells (`max_error_m`) hold more messages to join."
            )
        if self.verdict == "last":
            joined = f"leaves {words.percent(self.left.value)}" if self.is_allowed else "keeps no limit"
            return f"Joining the messages of cells {joined} {within}, and tells no device from another."
        parts = []
        if self.left.kind == "interval":
            ends = words.interval(100 * self.left.low, 100 * self.left.high)
            parts.append(f"On other days and with other devices of this fleet it is {ends} % (95 %).")
        if self.last is None:
            parts.append(f"Sending only the last position of each device is never {within}.")
        else:
            parts.append(
                f"Sending only the last position of each device, every {words.duration(self.last.interval_s)}, "
                f"leaves {words.percent(self.last.sums.left_share(sizes))} {within}."
            )
        parts.append(
            f"Messages wait {words.duration(self.choice.sums.delay_s)} on average and "
            f"{words.duration(self.choice.interval_s)} at most."
        )
        return " ".join(parts)

    def _assumption(self) -> str:
        sizes, limits = self.search.sizes, self.search.limits
        half, double = (
            self.choice.sums.left_share(replace(sizes, aggregate_bytes=round(part * sizes.aggregate_bytes)))
            for part in (0.5, 2)
        )
        if self.verdict == "join":
            size = (
                f"A message has {words.size(sizes.message_bytes)}, an aggregate "
                f"{words.size(sizes.aggregate_bytes)}; with half of that {words.percent(half)} are left, with "
                f"twice that {words.percent(double)}."
            )
        else:
            size = f"A message has {words.size(sizes.message_bytes)}."
        devices = len(self.messages.names)
        a_day = self._used[0].sums.bytes_out(sizes) / len(self.days)
        if self.verdict == "nothing":
            a_day = len(self.messages) * sizes.message_bytes / len(self.days)
        worst = limits.max_quantity_error
        unit = "km/h" if self.quantity == "speed" else "too many, as a share"
        bound = (
            "any error of the quantity"
            if worst is None
            else f"its quantity errs by {words.number(worst)} {unit}"
        )
        return (
            f"{size} What is sent goes to each of the {words.count(devices, 'device')}: {words.size(a_day)} a "
            f"day to each, {words.size(a_day * devices)} to all. A message may wait "
            f"{words.duration(limits.max_delay_s)} (`max_delay_s`); 95 % of the positions have to lie within "
            f"{words.distance(limits.max_error_m / 1000)} of what is told (`max_error_m`); {bound} is allowed "
            "(`max_quantity_error`)."
        )

    def _measures(self) -> list[Measure]:
        used, left = self._used
        sums, sizes, quantity = used.sums, self.search.sizes, self.quantity
        is_joined = self.verdict == "join"
        days = self.days if used is self.choice else []
        own = intervals.ratio(
            [(day.messages - day.told_devices) * sizes.message_bytes for day in days],
            [day.messages * sizes.message_bytes - day.bytes_out(sizes) for day in days],
        )
        sent = intervals.ratio([day.sent for day in days], [day.messages for day in days])
        waits = intervals.ratio([day.wait_s for day in days], [day.messages for day in days])
        error = error_interval(days) if days else _unknown()
        quantities = _quantity_interval(days, quantity)
        bytes_left = self.left if used is self.choice else _unknown()
        last = self.last.sums.left_share(sizes) if self.last else None
        different = join_different(self.cells, self.choice.interval_s).left_share(sizes)

        def measured(name: str, value: float | None, unit: str, text: str, of: Any = None) -> Measure:
            is_known = of is not None and of.kind == "interval"
            return Measure(name, value, unit, text, *((of.low, of.high) if is_known else ()))

        speed = quantity == "speed"
        return [
            Measure("verdict", self.verdict, "", "join, last (send the last positions only) or nothing"),
            Measure("interval_s", used.interval_s, "s", "interval at whose end queues are sent"),
            Measure("cells_zoom", used.zoom, "", "level of the cells; null: no cells"),
            Measure("cell_km", self.cell_km if used.zoom is not None else None, "km", "side of a cell"),
            Measure("threshold", used.threshold, "messages", "a queue is sent when it holds this many"),
            measured("bytes_left_share", left, "share", "bytes that are sent, of all", bytes_left),
            measured("messages_left_share", sums.sent / sums.messages, "share", "messages and aggregates that "
                     "are sent, of all messages", sent),
            measured("own_repeats_share", sums.own_repeats_share(sizes), "share", "part of the saved bytes "
                     "that is one device repeating itself in its cell and interval", own),
            measured("position_error_m", sums.error_m(), "m", "95 % of the positions lie within this distance "
                     "of what is told of them", error),
            Measure("position_median_m", sums.error_m(_HALF), "m", "half of the positions lie within it"),
            measured("quantity_error", sums.quantity_error(quantity), "km/h" if speed else "share",
                     "root mean square difference from the mean speed that is told" if speed else
                     "devices that are counted too many in an interval, of those that are there", quantities),
            measured("delay_s", sums.delay_s, "s", "mean time that a message waits", waits),
            Measure("last_only_left_share", last, "share", "bytes left if each device sends its last "
                    "position only, at the best interval within the limits"),
            Measure("different_devices_left_share", different if is_joined else None, "share", "bytes left if "
                    "no aggregate holds two messages of a device"),
            Measure("half_aggregate_left_share", self._left_with(0.5), "share", "bytes left if an aggregate "
                    "has half of aggregate_bytes"),
            Measure("double_aggregate_left_share", self._left_with(2.0), "share", "bytes left if it has twice "
                    "of them"),
            Measure("receivers", len(self.messages.names), "", "devices, each of which receives all"),
        ]  # fmt: skip

    def _left_with(self, factor: float) -> float:
        sizes = self.search.sizes
        return self.choice.sums.left_share(
            replace(sizes, aggregate_bytes=max(round(factor * sizes.aggregate_bytes), 1))
        )

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
        columns = ["assumed", "interval", "cell_km", "threshold", "bytes_left_share", "position_error_m"]
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
            f"{'keeps' if allowed == 1 else 'keep'} the limits. The second number of a cell is the distance "
            "within which 95 % of the positions lie of what is told. The closest are averages over a cell: a "
            "larger cell tells less.",
        )

    def baselines(self) -> pd.DataFrame:
        """Return what other ways leave on the same messages, beside the combination of the page."""
        import pandas as pd

        every = self.choice.interval_s
        ways: list[tuple[str, int, Sums]] = [
            (f"last position of each device, every {words.duration(every)}", every,
             keep_last(self.messages, every)),
            ("last positions, joined by cell", every, join_last(self.messages, self.zoom, every)),
            ("different devices joined, never two messages of one", every, join_different(self.cells, every)),
            ("messages of a cell joined", every, self.choice.sums),
        ]  # fmt: skip
        if self.last is not None and self.last.interval_s != every:
            name = f"last position of each device, every {words.duration(self.last.interval_s)}"
            ways.insert(1, (name, self.last.interval_s, self.last.sums))
        rows = [
            {"way": name, "interval_s": interval_s}
            | self._row(sums)
            | {"keeps_limits": sums.keeps(self.search.limits, self.quantity)}
            for name, interval_s, sums in ways
        ]
        nothing = {name: 0.0 for name in rows[0] if name.endswith(("_m", "_s", "_kmh", "_many_share"))}
        nothing |= {"interval_s": 0, "bytes_left_share": 1.0, "messages_left_share": 1.0}
        return pd.DataFrame([{"way": "every message by itself", **nothing, "keeps_limits": True}, *rows])

    def baselines_answer(self) -> Answer:
        """Return which part of the saving is one device that repeats itself, as a heading."""
        sums, sizes = self.choice.sums, self.search.sizes
        own = sums.own_repeats_share(sizes)
        if math.isnan(own):
            return Answer("Joining saves nothing", "No two messages share a cell and an interval.")
        groups = sums.sent
        alone = int(sums.sizes[1][sums.sizes[0] == 1].sum())
        shared = join_different(self.cells, self.choice.interval_s).left_share(sizes)
        if own >= 1:
            title = "The whole saving is single devices that repeat themselves"
        elif own > 0:
            title = f"{words.percent(own)} of the saving is single devices that repeat themselves"
        else:
            title = "The whole saving comes from different devices"
        return Answer(
            title,
            f"Of {words.count(groups, 'message')} and aggregates that are sent, {words.percent(alone / groups)} "
            f"hold a single message. If no aggregate held two messages of one device, {words.percent(shared)} "
            "of the bytes would be left.",
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
                "Sending full queues early would cost more than 5 % of the bytes that are left"
                if whole.sizes[0].max() > 1
                else "No queue ever holds two messages",
                f"So queues wait for the end of their interval; the largest held {int(whole.sizes[0].max()):,}.",
            )
        sizes = self.search.sizes
        cost = 100 * (self.choice.sums.left_share(sizes) - whole.left_share(sizes))
        return Answer(
            f"Sending a queue as soon as it holds {self.choice.threshold:,} messages costs "
            f"{words.number(round(cost, 1))} points",
            f"Then messages wait {words.duration(self.choice.sums.delay_s)} on average, not "
            f"{words.duration(whole.delay_s)}. It is the smallest threshold that costs at most 5 % more bytes than "
            "the best combination.",
        )

    def assumptions(self) -> pd.DataFrame:
        """Return what would be recommended with other sizes and limits, and what half of the fleet leaves."""
        import pandas as pd

        sizes, limits = self.search.sizes, self.search.limits
        cases: list[tuple[str, Search]] = [("as assumed", self.search)]
        for factor, word in ((0.5, "half"), (2.0, "twice")):
            bytes_ = max(round(factor * sizes.aggregate_bytes), 1)
            delay_s, error_m = max(round(factor * limits.max_delay_s), 1), factor * limits.max_error_m
            cases += [
                (f"an aggregate {word} as large: {words.size(bytes_)}",
                 self.search.assuming(sizes=replace(sizes, aggregate_bytes=bytes_))),
                (f"{word} the delay allowed: {words.duration(delay_s)}",
                 self.search.assuming(limits=replace(limits, max_delay_s=delay_s))),
                (f"{word} the distance allowed: {words.distance(error_m / 1000)}",
                 self.search.assuming(limits=replace(limits, max_error_m=error_m))),
            ]  # fmt: skip
        lat, _ = middle(self.messages.lat, self.messages.lon)
        rows = []
        for name, case in cases:
            choice = case.choose()
            known = dict.fromkeys(("interval_s", "cell_km", "threshold", "position_error_m"), math.nan)
            known |= {"bytes_left_share": 1.0}
            if choice is not None and choice.zoom is not None:
                left = choice.sums.left_share(case.sizes, choice.threshold)
                known = {
                    "interval_s": float(choice.interval_s),
                    "cell_km": cell_km(choice.zoom, lat),
                    "threshold": float(choice.threshold or math.nan),
                    "bytes_left_share": left,
                    "position_error_m": choice.sums.error_m(),
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
                    "position_error_m": half.error_m(),
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
            "Each row is the recommendation, were one assumption another, among the combinations tried.",
        )


def _told_of(verdict: str) -> str:
    return {
        "join": "what their aggregate tells",
        "last": "the last one that is sent",
        "nothing": "what an aggregate would tell",
    }[verdict]


def _unknown() -> intervals.Interval:
    return intervals.Interval(math.nan, math.nan, math.nan, "value")


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
    found = search(messages, limits, sizes, quantity, zoom=cells_zoom)
    choice = found.choose()
    is_allowed = choice is not None
    if choice is None:
        zoom, interval_s = min(found.tried, key=lambda key: (found.tried[key].error_m(), key[1]))
        choice = Choice(zoom, interval_s, None, found.tried[zoom, interval_s])
    cells = Cells(messages, choice.zoom or 0)
    if choice.threshold is not None:
        choice = replace(choice, sums=cells.sums(choice.interval_s, choice.threshold))
    last = best_last(messages, limits, sizes, quantity)
    return JoiningStudy(source, messages, found, choice, is_allowed, last, cells, thresholds)


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

    Of more cells than one picture may hold, those with the most messages are kept.
    """
    import pandas as pd

    by_cell = counted.groupby(["x", "y"])["messages_in"].transform("sum")
    if counted.groupby(["x", "y"]).ngroups > MAX_MAP_CELLS:
        sums = counted.groupby(["x", "y"])["messages_in"].sum().nlargest(MAX_MAP_CELLS)
        counted = counted[by_cell >= sums.min()]
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
