"""The report propagation: which messages to join, what is left of them, and what aggregates do not tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from mudkit import intervals, words
from mudkit.errors import TraceContentError
from mudkit.report.joined_accuracy import distance_m, left_interval
from mudkit.report.joined_measures import first_measures
from mudkit.report.joined_messages import Combination, Limits, Sizes, Sums, Way
from mudkit.report.joined_sums import JoinedSums
from mudkit.report.joining import AS_GOOD, Choice, Search, best_last, cell_km, lengths_of, search
from mudkit.report.page import Answer, FirstScreen
from mudkit.report.recording import HOLE
from mudkit.report.source import TraceSource
from mudkit.trace import profile
from mudkit.trace.summaries import Rows, summarise
from mudkit.units import US_PER_S

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

Verdict: TypeAlias = Literal["nothing", "last", "own", "join"]
WAYS: Final[dict[Verdict, str]] = {
    "nothing": "every message by itself",
    "last": "last position of each device",
    "own": "own messages of a cell joined by each device",
    "join": "messages of a cell joined",
}
_LABELS: Final = {
    "side": "side of a cell",
    "threshold": "sent early at",
    "bytes_left_share": "bytes left, %",
    "messages_left_share": "messages left, %",
    "position_error_m": "95 % within, when reported, m",
    "position_sent_error_m": "95 % within, when sent, m",
    "speed_error_kmh": "error of speed, km/h",
    "counted_too_many_share": "devices counted too many, %",
    "delay_s": "mean delay, s",
    "repeated_messages_share": "repeats of a device, % of messages saved",
}
_WORTH: Final = 0.5
"""Queues are sent early only if the mean wait is at most this times as long, or if a limit demands it."""
_FAR_COUNT: Final = 0.1
"""Counts of devices that exceed the truth by more than this share are of no use."""


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
    thresholds : sequence of int
        Thresholds that the table compares.
    early : Choice, optional
        The smallest threshold that leaves at most 5 % more bytes than the best, if it is not recommended.
    """

    joined_sums: JoinedSums
    search: Search
    choice: Choice
    is_allowed: bool
    own: Sums
    last: tuple[int, Sums] | None
    thresholds: Sequence[int]
    early: Choice | None = None

    @property
    def source(self) -> TraceSource:
        """The trace."""
        return self.joined_sums.source

    @property
    def quantity(self) -> str:
        """Quantity of a cell: ``speed`` or ``devices``."""
        return self.search.quantity

    @property
    def zoom(self) -> int:
        """Level of the cells that the page shows."""
        return self.choice.zoom

    @cached_property
    def cell_km(self) -> float:
        """Side of these cells in the middle of the trace."""
        return cell_km(self.zoom, self.joined_sums.lat)

    @cached_property
    def different(self) -> Sums:
        """Sums of the same cells and interval, if no aggregate holds two messages of one device."""
        return self.joined_sums.sums(self._combination("different"))

    @cached_property
    def verdict(self) -> Verdict:
        """The simplest way within the limits that leaves at most 5 % more bytes than the best one.

        ``nothing`` is joined; each device sends its ``last`` position, or joins its ``own`` messages of a
        cell; or the messages of a cell are joined (``join``).
        """
        ways: dict[Verdict, float] = {"nothing": 1.0}
        if self.last is not None:
            ways["last"] = self.last[1].left_share(self.search.sizes)
        if self.is_allowed and self.own.keeps(self.search.limits, self.quantity):
            ways["own"] = self.own.left_share(self.search.sizes)
        if self.is_allowed:
            ways["join"] = self.search.least
        best = min(ways.values())
        return next(way for way, left in ways.items() if left <= AS_GOOD * best)

    @cached_property
    def last_same(self) -> Sums:
        """Sums of the interval of the page, if each device sends its last position alone."""
        return self.joined_sums.sums(Combination("last", self.choice.interval_s))

    @property
    def sums(self) -> Sums:
        """Sums of what is recommended; of ``choice``, if nothing is joined."""
        if self.verdict == "last" and self.last is not None:
            return self.last[1]
        return self.own if self.verdict == "own" else self.choice.sums

    @property
    def left_share(self) -> float:
        """Share of the bytes that is left by what is recommended: all, if nothing is joined."""
        return 1.0 if self.verdict == "nothing" else self.sums.left_share(self.search.sizes)

    @property
    def joined(self) -> Sums:
        """Sums of the cells and interval of the page, if the messages of different devices are joined.

        Queues are sent early only if that is recommended, or if the limits demand it.
        """
        return self.choice.sums if self._is_early else self.search.tried[self.best_key]

    @property
    def _is_early(self) -> bool:
        """True if messages of the recommended way may leave before the end of the interval."""
        return self.verdict != "own" or not self.search.is_allowed(*self.best_key)

    def _combination(self, way: Way) -> Combination:
        """Return a way with the cells and the interval of the page, and none sent early."""
        return Combination(way, self.choice.interval_s, self.zoom)

    @property
    def joined_sent(self) -> NDArray[np.int64]:
        """Counts of messages by local day and by distance from :attr:`joined` when that is sent."""
        threshold = self.choice.threshold if self._is_early else None
        return self.joined_sums.sent(self._combination("join")._replace(threshold=threshold or 0))

    @property
    def own_sent(self) -> NDArray[np.int64]:
        """The same from :attr:`own`."""
        return self.joined_sums.sent(self._combination("own"))

    @property
    def recommended(self) -> Combination:
        """Recommended combination; that of the page, if nothing is joined."""
        if self.verdict == "last":
            return Combination("last", self.interval_s)
        if self.verdict == "own":
            return self._combination("own")
        return self._combination("join")._replace(threshold=self.choice.threshold or 0)

    @cached_property
    def sent_distances(self) -> NDArray[np.int64]:
        """Counts of messages by local day and by distance from what is recommended when that is sent.

        It is the distance of a device's last report; a last position is that report.
        """
        if self.verdict in ("join", "nothing"):
            return self.joined_sent
        return self.joined_sums.sent(self.recommended)

    @property
    def sent_error_m(self) -> float:
        """Distance within which 95 % of the devices' last reports lie when what is recommended is sent."""
        return distance_m(self.sent_distances.sum(axis=0))

    @property
    def interval_s(self) -> int:
        """Interval of what is recommended."""
        return self.last[0] if self.verdict == "last" and self.last else self.choice.interval_s

    @cached_property
    def left(self) -> intervals.Interval:
        """Share of the bytes that is left by what is recommended, with its interval."""
        sizes, costs = self.search.sizes, self.joined_sums.costs(self.recommended)
        is_mixed = self.recommended.way == "join"
        bytes_out = costs.bytes_out(
            sizes.message_bytes, sizes.aggregate_bytes if is_mixed else sizes.message_bytes
        )
        value = self.sums.left_share(sizes)
        return left_interval(value, bytes_out, costs.messages, costs.device, costs.day, sizes.message_bytes)

    @cached_property
    def days(self) -> list[Sums]:
        """Sums of what is recommended by local day, to which a queue belongs by the begin of its interval."""
        return self.joined_sums.days(self.recommended)

    def first_screen(self) -> FirstScreen:
        """Return what was read, three figures, the recommendation, what it rests on, and warnings."""
        return FirstScreen(
            self.source.describe(),
            self._tiles(),
            self._headline(),
            self._reason(),
            self._assumption(),
            [*self.source.warnings(), *_holes(self.source)],
            first_measures(self),
        )

    def _tiles(self) -> list[tuple[str, str]]:
        """Return value and text of the first screen's tiles."""
        is_used, repeated = self.verdict != "nothing", self.joined.repeated_share
        left = f"of the bytes {'are' if is_used else 'would be'} left"
        if self.left.kind == "interval":
            ends = words.interval(100 * self.left.low, 100 * self.left.high, 1)
            left += f"; {ends} % on other days and with other devices of this fleet (95 %)"
        if self.half_fleet is not None:
            half = _percent(self.half_fleet.left_share(self.search.sizes))
            left += f"; {half} with half of the devices"
        apart = (
            "is the largest error of 95 % of the positions, when they were reported; "
            f"{_apart(self.sent_error_m)}, if they are taken for where devices are when messages are sent"
        )
        third = (
            words.percent(repeated),
            "of the messages that joining saves repeat one of their device in the same aggregate",
        )
        if math.isnan(repeated):
            third = "0", "messages are saved by joining those of cells"
        elif self.is_last_better_now:
            third = (
                _percent(self.last_now.left_share(self.search.sizes)),
                "of the bytes are left if you only need to know where devices are when messages are sent: "
                + ("send last positions, joined by cell" if self.joins_last else "send only last positions"),
            )
        return [(_percent(self.left.value), left), (_apart(self.sums.error_m()), apart), third]

    @cached_property
    def last_joined(self) -> Sums:
        """Last positions at the interval of the page, joined by cell."""
        return self.joined_sums.sums(self._combination("join last"))

    @cached_property
    def last_joined_sent(self) -> NDArray[np.int64]:
        """Counts of last reports by local day and by distance from :attr:`last_joined` when sent."""
        return self.joined_sums.sent(self._combination("join last"))

    @cached_property
    def last_joined_sent_m(self) -> float:
        """Distance within which 95 % of these reports are."""
        return distance_m(self.last_joined_sent.sum(axis=0))

    @property
    def joins_last(self) -> bool:
        """True if last positions that a server joins by cell leave clearly less than those of each device."""
        sizes = self.search.sizes
        return self.last_same.left_share(sizes) > AS_GOOD * self.last_joined.left_share(sizes)

    @property
    def last_now(self) -> Sums:
        """Last positions at the interval of the page, in the simplest way that is as good."""
        return self.last_joined if self.joins_last else self.last_same

    @property
    def last_now_sent_m(self) -> float:
        """Distance within which 95 % of the devices' last reports lie when these are sent."""
        return self.last_joined_sent_m if self.joins_last else 0.0

    @property
    def is_last_better_now(self) -> bool:
        """True if last positions take less, and are nearer at the moment of sending."""
        sent_m = self.last_now_sent_m
        is_near = sent_m <= self.search.limits.max_error_m and sent_m < self.sent_error_m
        takes_less = self.last_now.left_share(self.search.sizes) < self.left_share
        return self.verdict in ("join", "own") and is_near and takes_less

    def _now_told(self) -> str:
        """Return how near joined last positions are when they are sent; empty: they are not recommended."""
        if not (self.is_last_better_now and self.joins_last):
            return ""
        return (
            f"Last positions, joined by cell, {_within(self.last_now_sent_m)} the device's last report "
            "when they are sent, for 95 % of the positions, and count each device once."
        )

    def _quantity_told(self) -> str:
        """Return how far the quantity of aggregates is from the truth, as a clause."""
        error = self.sums.quantity_error(self.quantity)
        if math.isnan(error):
            return "no speed is known"
        if self.quantity == "speed":
            return f"reported speeds are off by {words.number(error)} km/h (root mean square)"
        if error == 0:
            return "each device is counted once an interval"
        return f"counts of devices are {words.number(1 + error)} times the truth"

    def _price(self) -> str:
        """Return what receivers get instead of the messages, in a sentence."""
        what = "the last place" if self.verdict == "last" else "a mean place"
        whose = " of a cell, without names of devices" if self.verdict == "join" else " of each device"
        reported, sent = (_within(distance, "lies") for distance in (self.sums.error_m(), self.sent_error_m))
        quantity = "" if self._warning() else f" Also, {self._quantity_told()}."
        warning = self._warning() if self.is_last_better_now else ""
        return (
            f"The price: receivers get {what}{whose}. For 95 % of the positions it {reported} where the "
            f"device was when it reported; when it is sent, it {sent} the device's last report."
            f"{quantity}{warning}"
        )

    def _warning(self) -> str:
        """Return a sentence that counts of devices are of no use, if they are far from the truth."""
        is_far = self.quantity == "devices" and self.sums.quantity_error("devices") > _FAR_COUNT
        what = "messages" if self.verdict == "own" else "aggregates"
        return f" Do not count devices by these {what}: {self._quantity_told()}." if is_far else ""

    def _last_told(self) -> str:
        """Return a sentence on sending last positions instead, at the same interval and within the limits."""
        every, sizes = words.duration(self.choice.interval_s), self.search.sizes
        left = _percent(self.last_same.left_share(sizes))
        away = _apart(self.last_same.error_m())
        text = (
            f"Sending only the last position of each device every {every} leaves {left}, and is exact at the "
            f"moment of sending, but up to {away} from where 95 % of the positions were reported"
        )
        if self.last is None:
            return f"{text}; it keeps the limits at no interval."
        if self.last[0] == self.choice.interval_s:
            return f"{text}, which is within the limits."
        return (
            f"{text}; within the limits it is sent every {words.duration(self.last[0])} and leaves "
            f"{_percent(self.last[1].left_share(sizes))}."
        )

    def instead(self) -> str:
        """Return a sentence for sections on joining the messages of cells, if that is not recommended."""
        if self.verdict == "join":
            return ""
        if self.verdict == "own":
            return (
                "Here the messages of different devices are joined, too, which is not recommended: with the "
                "framed cells and interval a device that joins only its own leaves "
                f"{_percent(self.left_share)}. "
            )
        return f"Not what is recommended ({WAYS[self.verdict]}): here the messages of a cell are joined. "

    def _headline(self) -> str:
        """Return what is recommended, as a sentence."""
        if self.verdict == "nothing":
            return "Send every message by itself: " + (
                "within the limits, joining saves less than 5 % of the bytes."
                if self.is_allowed
                else "no interval and cell keeps the limits."
            )
        every, side = words.duration(self.interval_s), words.distance(self.cell_km)
        early = f", or as soon as {self.choice.threshold:,} wait" if self.choice.threshold else ""
        left = _percent(self.left.value)
        what = {
            "last": f"Send only the last position of each device every {every}",
            "own": f"Let each device send one message per {every} and cell {side} wide",
            "join": f"Join the messages of cells {side} wide every {every}{early}",
        }[self.verdict]
        if not self.is_last_better_now:
            return f"{what}: {left} of the bytes are left.{self._warning()}"
        count = ", or to count them then" if self._warning() else ""
        now = _percent(self.last_now.left_share(self.search.sizes))
        whom = "devices were" if self.verdict == "own" else "there were devices"
        by_cell = ", joined by cell" if self.joins_last else ""
        return (
            f"To know where {whom}, {what[0].lower()}{what[1:]}: {left} of the bytes are left. To know where "
            f"they are when messages are sent{count}, send only last positions{by_cell}: {now} are left, "
            f"{self._between_told()}."
        )

    def _between_told(self) -> str:
        """Return in words how near last positions are to those that were reported before them."""
        away_m, most_m = self.last_now.error_m(), self.search.limits.max_error_m
        limit = f"the limit of {words.distance(most_m / 1000)}"
        if away_m <= most_m:
            return f"and 95 % of all positions are within {limit} of them, too"
        return f"but 95 % of all positions are only within {_apart(away_m)} of them, beyond {limit}"

    def _reason(self) -> str:
        """Return what that leaves and costs, or why nothing is joined, as sentences."""
        sizes = self.search.sizes
        joined = self.joined.left_share(sizes)
        cells = f"the messages of cells {words.distance(self.cell_km)} wide"
        if self.verdict == "nothing":
            if not self.is_allowed:
                return "Wider limits (`max_error_m`, `max_quantity_error`) allow larger cells."
            if self.choice.sums.sent == self.source.count:
                return "No two messages share a cell and an interval."
            return (
                f"The best is to join {cells} every {words.duration(self.choice.interval_s)}. Longer "
                "intervals (`max_delay_s`) or larger cells (`max_error_m`) hold more messages."
            )
        parts = [self._price(), self._now_told()]
        if self.verdict == "own" and len(self.source.devices) > 1:
            points = words.number(round(100 * (self.left_share - joined), 1))
            parts.append(
                f"Joining the messages of different devices, too, leaves {_percent(joined)}: "
                + (
                    f"{points} {'point is' if points == '1' else 'points are'} not worth a server that joins."
                    if 100 * (self.left_share - joined) >= 0.05
                    else "a server that joins saves nothing more."
                )
            )
        elif self.verdict == "join":
            parts.append(
                f"If each device joins its own messages only, {_percent(self.own.left_share(sizes))} "
                "are left."
            )
        elif self.verdict == "last" and self.is_allowed:
            parts.append(f"Joining {cells} leaves {_percent(joined)}.")
        elif self.verdict == "last":
            parts.append("No interval and cell at which messages are joined keeps the limits.")
        if self.verdict != "last":
            parts.append(self._last_told())
        parts.append(
            f"Messages wait {words.duration(self.sums.delay_s)} on average and "
            f"{words.duration(self.interval_s)} at most."
        )
        return " ".join(part for part in parts if part)

    @property
    def bytes_per_day(self) -> float:
        """Bytes that are sent a day: all messages, if nothing is recommended."""
        sizes = self.search.sizes
        whole = self.sums.bytes_out(sizes)
        if self.verdict == "nothing":
            whole = self.source.count * sizes.message_bytes
        return float(whole / self.source.recorded_days)

    def _assumption(self) -> str:
        """Return the assumed sizes and limits, and what others would change, as sentences."""
        sizes, limits = self.search.sizes, self.search.limits
        text = f"Assumed, not measured: a message of {words.size(sizes.message_bytes)} (`message_bytes`)"
        if self.verdict == "join":
            half, double = (_percent(case["bytes_left_share"]) for case in self.sized.values())
            text += (
                f" and an aggregate of {words.size(sizes.aggregate_bytes)} (with half of that {half} are "
                f"left, with twice that {double})"
            )
        devices, a_day, worst = len(self.source.devices), self.bytes_per_day, limits.max_quantity_error
        bound = "; no limit is set on " + (
            "the error of the speed" if self.quantity == "speed" else "devices counted too many"
        )
        if worst is not None and self.quantity == "speed":
            bound = f", an error of {words.number(worst)} km/h"
        elif worst is not None:
            bound = f", {words.percent(worst)} of the devices counted too many"
        receivers = f"all {devices:,} devices" if devices > 1 else "one device"
        to_all = f" to each and {words.size(a_day * devices)} together" if devices > 1 else ""
        return (
            f"{text}; all that is sent goes to {receivers}. With these sizes that is {words.size(a_day)} "
            f"a day{to_all}. Allowed: a delay of {words.duration(limits.max_delay_s)} (`max_delay_s`), "
            f"{words.distance(limits.max_error_m / 1000)} from where 95 % of the positions were reported "
            f"(`max_error_m`){bound} "
            "(`max_quantity_error`)."
        )

    @cached_property
    def sized(self) -> dict[float, dict[str, Any]]:
        """Recommendations with an aggregate of half or twice its size, by that factor."""
        sizes, factors = self.search.sizes, (0.5, 2.0)
        others = [replace(sizes, aggregate_bytes=_times(sizes.aggregate_bytes, factor)) for factor in factors]
        cases = [partial(self._assuming, replace(self.search, sizes=other)) for other in others]
        return dict(zip(factors, self.joined_sums.together(cases), strict=True))

    def grid(self) -> pd.DataFrame:
        """Return what each combination without a threshold leaves and tells, a row each."""
        import pandas as pd

        rows = [
            {
                "cells_zoom": zoom,
                "cell_km": cell_km(zoom, self.joined_sums.lat),
                "interval_s": interval_s,
            }
            | self.row(sums)
            | {"keeps_limits": self.search.is_allowed(zoom, interval_s)}
            for (zoom, interval_s), sums in sorted(self.search.tried.items())
        ]
        return pd.DataFrame(rows)

    def row(self, sums: Sums) -> dict[str, float]:
        """Return what a way leaves and tells, as a row of a table."""
        return {
            "bytes_left_share": sums.left_share(self.search.sizes),
            "messages_left_share": sums.sent / sums.messages,
            "position_median_m": sums.error_m(0.5),
            "position_error_m": sums.error_m(),
            self.error_column: sums.quantity_error(self.quantity),
            "delay_s": sums.delay_s,
            "repeated_messages_share": sums.repeated_share,
        }

    @property
    def error_column(self) -> str:
        """Column of the error of the quantity."""
        return "speed_error_kmh" if self.quantity == "speed" else "counted_too_many_share"

    @property
    def best_key(self) -> tuple[int, int]:
        """Zoom level and interval that the page shows."""
        return self.zoom, self.choice.interval_s

    @property
    def label(self) -> str:
        """Cells, interval and threshold that the page shows, in a few words."""
        early = f", at most {self.choice.threshold:,}" if self.choice.threshold else ""
        early = ", by device" if self.verdict == "own" else early
        return f"{words.distance(self.cell_km)}, {words.duration(self.choice.interval_s)}{early}"

    @property
    def shown(self) -> dict[str, Any]:
        """Arguments of :func:`mudkit.report.joined_maps.count_cells`."""
        is_own = self.verdict == "own"
        return {
            "zoom": self.zoom,
            "interval_s": self.choice.interval_s,
            "threshold": None if is_own else self.choice.threshold,
            "is_own": is_own,
        }

    @property
    def labels(self) -> dict[str, str]:
        """Headings of the tables."""
        return _LABELS

    @property
    def drawn(self) -> str:
        """Sentence on the way that the map shows."""
        if self.verdict == "own":
            return "The map shows what is recommended: each device joins its own messages."
        return self.instead().strip() or "The map shows what is recommended."

    def near(self, grid: pd.DataFrame) -> pd.DataFrame:
        """Return the combinations with the cells or the interval of the page, as a table on screen."""
        zoom, interval_s = self.best_key
        is_near = (grid["cells_zoom"] == zoom) | (grid["interval_s"] == interval_s)
        rows = grid[is_near].sort_values(["cells_zoom", "interval_s"])
        columns = ["side", "interval", "bytes_left_share", "position_error_m", self.error_column,
                   "repeated_messages_share", "keeps_limits"]  # fmt: skip
        return _in_words(rows)[columns]

    def assumptions_shown(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return what was assumed as a table on screen."""
        columns = ["assumed", "way", "interval", "side", "threshold", "bytes_left_share"]
        return _in_words(table)[columns]

    def grid_answer(self) -> Answer:
        """Return how much interval and cell move, as a heading."""
        keys = self.search.allowed()
        left = [self.search.left(*key) for key in keys or self.search.tried]
        low, high = words.percent(min(left)), words.percent(max(left))
        if not keys:
            title = "No interval and cell keeps the limits"
        elif low == high:
            title = f"Within the limits, interval and cell change nothing: {low} of the bytes are left"
        else:
            title = f"Within the limits, interval and cell decide: {low} to {high} of the bytes are left"
        keep = "keeps" if len(keys) == 1 else "keep"
        kept = f"{len(keys):,} {keep} the limits" if keys else f"they leave {low} to {high} of the bytes"
        return Answer(
            title,
            f"{self.instead()}{words.count(len(self.search.tried), 'combination')} were tried without "
            f"sending early; {kept}. The second number of a cell: 95 % of the positions were reported within "
            "this distance of their aggregate.",
        )

    def assumptions(self) -> pd.DataFrame:
        """Return what would be recommended with other sizes and limits, and what half of the fleet leaves."""
        import pandas as pd

        sizes, limits = self.search.sizes, self.search.limits
        rows = [{"assumed": "as assumed"} | self._recommended()]
        factors = ((0.5, "half"), (2.0, "twice"))
        for factor, word in factors:
            bytes_ = _times(sizes.aggregate_bytes, factor)
            rows.append(
                {"assumed": f"an aggregate {word} as large, {words.size(bytes_)}"} | self.sized[factor]
            )
        other: dict[str, Limits] = {}
        for factor, word in factors:
            delay_s = _times(limits.max_delay_s, factor)
            other[f"{word} the delay, {words.duration(delay_s)}"] = replace(limits, max_delay_s=delay_s)
        for factor, word in factors:
            error_m = factor * limits.max_error_m
            assumed = f"{word} the distance, {words.distance(error_m / 1000)}"
            other[assumed] = replace(limits, max_error_m=error_m)
        cases = self.joined_sums.together([partial(self._limited, case) for case in other.values()])
        rows += [{"assumed": assumed} | case for assumed, case in zip(other, cases, strict=True)]
        if (half := self.half_fleet) is not None:
            left = {"bytes_left_share": half.left_share(sizes)}
            rows.append({"assumed": "half of the devices, the same way"} | self._recommended() | left)
        return pd.DataFrame(rows)

    def _recommended(self) -> dict[str, Any]:
        """Return what is recommended as a row: way, interval, cells, threshold and what is left."""
        way = self.verdict
        has_cells, threshold = way in ("own", "join"), self.choice.threshold if way == "join" else None
        return {
            "way": WAYS[way],
            "interval_s": math.nan if way == "nothing" else float(self.interval_s),
            "cell_km": self.cell_km if has_cells else math.nan,
            "threshold": float(threshold or math.nan),
            "bytes_left_share": self.left_share,
        }

    def _assuming(self, case: Search) -> dict[str, Any]:
        """Return what is recommended with other sizes or limits."""
        return _conclude(self.joined_sums, case, self.thresholds)._recommended()

    def _limited(self, limits: Limits) -> dict[str, Any]:
        """Return what is recommended with other limits; intervals and cells are searched again."""
        sizes, tried = self.search.sizes, self.search
        zooms = {zoom for zoom, _ in tried.tried}
        only = zooms.pop() if len(zooms) == 1 else None
        return self._assuming(search(self.joined_sums, limits, sizes, self.quantity, zoom=only, known=tried))

    @cached_property
    def half_fleet(self) -> Sums | None:
        """Sums of what is recommended with half of the devices, drawn by a checksum of their names.

        None: there is one device, or nothing is joined.
        """
        if len(self.source.devices) < 2 or self.verdict == "nothing":
            return None
        return self.joined_sums.sums(self.recommended._replace(is_half=True))

    def assumptions_answer(self, table: pd.DataFrame) -> Answer:
        """Return how far what is left depends on what was assumed, as a heading."""
        cases = table[~table["assumed"].str.startswith("half of the devices")]
        low, high = cases["bytes_left_share"].min(), cases["bytes_left_share"].max()
        ways = cases["way"].nunique()
        other = "" if ways == 1 else " Another way may then be recommended: see the column of ways."
        if self.verdict == "own":
            size = words.size(self.search.sizes.message_bytes)
            other += (
                f" The mean of a device's own messages is a message of {size}; only those of different "
                "devices make an aggregate."
            )
        return Answer(
            f"With each assumption halved or doubled, {words.percent(low)} to {words.percent(high)} are left"
            if words.percent(low) != words.percent(high)
            else "Halving or doubling each assumption changes nothing",
            f"What is recommended if one assumption changes, among the combinations that were tried.{other}",
        )


def _in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with ``interval`` and ``side`` of its ``interval_s`` and ``cell_km``, in words."""
    interval, side = (
        [in_words(value) if math.isfinite(value) else "–" for value in table[name]]
        for name, in_words in (("interval_s", words.duration), ("cell_km", words.distance))
    )
    return table.assign(interval=interval, side=side)


def _percent(share: float) -> str:
    """Return a share of the bytes as the first screen rounds them all."""
    return words.percent(share, 1)


def _apart(distance: float) -> str:
    """Return a distance in metres in words."""
    return words.distance(distance / 1000) if distance else "0 m"


def _within(distance: float, verb: str = "lie") -> str:
    """Return how far something lies from a place at most, with its verb."""
    return f"{verb} within {_apart(distance)} of" if distance else f"{verb} exactly at"


def _holes(source: TraceSource) -> list[str]:
    """Return a sentence on the times in which no device reports; none without one."""
    holes = source.recording.of_kind(HOLE)
    if not len(holes):
        return []
    lengths_s = (holes["end_us"] - holes["start_us"]).to_numpy() / US_PER_S
    whole, longest = (words.duration(60 * round(part / 60)) for part in (lengths_s.sum(), lengths_s.max()))
    of_all = f"{whole} in all, the longest {longest}" if len(holes) > 1 else whole
    times = "Once" if len(holes) == 1 else f"{len(holes):,} times"
    return [
        f"{times} no device reports, though many usually do ({of_all}; see the report trace_profile): what "
        "would have been sent then is not counted."
    ]


def _times(value: int, factor: float) -> int:
    """Return a multiple of a size or duration, rounded, at least 1."""
    return max(round(factor * value), 1)


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
    joined = JoinedSums(source, max(lengths_of(_times(limits.max_delay_s, 2.0))))

    def conclude() -> JoiningStudy:
        searched = search(joined, limits, sizes, quantity, zoom=cells_zoom)
        return _conclude(joined, searched, thresholds)

    study: JoiningStudy = joined.together([conclude])[0]
    joined.together([partial(getattr, study, name) for name in _OF_FIRST_SCREEN])
    return study


_OF_FIRST_SCREEN: Final = (
    "left", "days", "different", "last_same", "last_joined", "last_joined_sent", "sent_distances",
    "joined_sent", "own_sent", "half_fleet", "sized",
)  # fmt: skip
"""Attributes of a study that take a pass over the rows, each, if they are asked for one by one."""


def _conclude(joined: JoinedSums, searched: Search, thresholds: Sequence[int]) -> JoiningStudy:
    """Choose among what was tried, compute the other ways, and return the study.

    Without an allowed combination, it has the one with the smallest error; a threshold that gains too little
    is not recommended, but shown.
    """
    choice = searched.choose()
    is_allowed = choice is not None
    if choice is None:
        zoom, interval_s = min(searched.tried, key=lambda key: (searched.tried[key].error_m(), key[1]))
        choice = Choice(zoom, interval_s, None, searched.tried[zoom, interval_s])
    early = None
    if choice.threshold is not None:
        of = Combination("join", choice.interval_s, choice.zoom, choice.threshold)
        choice = replace(choice, sums=joined.sums(of))
        key = choice.zoom, choice.interval_s
        whole, is_demanded = searched.tried[key], not searched.is_allowed(*key)
        is_worth = choice.sums.delay_s <= _WORTH * whole.delay_s
        if not (is_demanded or (is_worth and choice.sums.keeps(searched.limits, searched.quantity))):
            early, choice = choice, replace(choice, threshold=None, sums=whole)
    own, last = joined.together(
        [
            partial(joined.sums, Combination("own", choice.interval_s, choice.zoom)),
            partial(best_last, joined, searched.limits, searched.quantity),
        ]
    )
    return JoiningStudy(joined, searched, choice, is_allowed, own, last, thresholds, early)


def chosen_quantity(positions: Rows, quantity: str) -> str:
    """Return the quantity that is reported: ``speed``, or ``devices``, which any trace has."""
    has_speed = bool(summarise(positions, {"speeds": profile.speeds})["speeds"]["rows"].to_pylist()[0])
    if quantity == "speed" and not has_speed:
        raise TraceContentError(
            "The trace has no speeds.",
            where="quantity",
            found="a trace without speed_mps",
            expected="quantity=devices, or a file with speeds",
            remedy="--param quantity=devices, or map the column: --param columns.speed_mps=…",
        )
    return ("speed" if has_speed else "devices") if quantity == "auto" else quantity
