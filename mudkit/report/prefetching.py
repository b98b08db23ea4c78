"""The report prefetch_sizing: how many messages to prefetch, and which expire too soon to be sent."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from mudkit import words
from mudkit.intervals import MIN_REPETITIONS
from mudkit.report.choosing import (
    ENDS,
    MAX_LIMIT,
    MIN_SPLIT_DAYS,
    PRICES,
    SURE,
    buffer,
    count_days,
    count_scored_days,
    find_end_us,
    pays,
    pick_days,
    score,
    search_setting,
    vary_prices,
)
from mudkit.report.page import Answer, FirstScreen, Measure
from mudkit.report.source import dominant
from mudkit.sources import Outages
from mudkit.systems.lasthop import (
    Expiration,
    Forwarding,
    Prices,
    Push,
    Scenario,
    add_outages,
    read_logs,
)
from mudkit.systems.lasthop.spool.ranked import FOREVER_US

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.systems.lasthop.study.scenario import Drawn
    from mudkit.systems.lasthop.study.sizing import Sizing

__all__ = ["BEST", "LABELS", "SizingStudy", "read_events", "study_sizing"]

LABELS: Final = {
    "limit": "prefetch limit",
    "waste": "wasted, % of forwarded",
    "loss": "lost, % of what could be read",
    "empty_read_share": "reads in vain, % of reads",
    "delay_min": "seen later, min",
    "cost_per_day": "cost a day",
}
"""Headings of the tables."""
BEST: Final[dict[str, Literal["low", "high"]]] = {"cost_per_day": "low"}

_RECOMMENDED, _LEARNT, _ALL, _NONE, _PUSH = (
    "recommended",
    "learnt by the server",
    "all at once",
    "only when asked",
    "a push service",
)
_MEASURES: Final = ("waste", "loss", "empty_read_share", "delay_min")
_DELAY_ENDS: Final = ("delay_s_low", "delay_s_high")
_NEAR: Final = 4
"""Rows on screen before and after the recommended setting."""
_MIN_READS: Final = 30
"""Reads below which nothing is recommended."""
_SHORT_DAYS: Final = 7
_CRITICAL: Final = 0.15
"""Difference of what can be read and what arrives, as a share, below which queues wander."""


@dataclass(frozen=True)
class SizingStudy:
    """Settings of a prefetching server that were played on the same events.

    The setting was chosen on odd days (``sized``) and scored on even ones, under other outages (``runs``,
    several where outages were drawn from the process ``assumed``, instead of a log). ``limits``,
    ``thresholds``, ``policies`` and ``by_price`` are the scores of settings and policies; ``extended`` names
    ranges whose edge the best setting had reached.
    """

    name: str
    is_example: bool
    runs: Sequence[Drawn]
    assumed: Outages | None
    max_at_a_time: int
    sized: Sizing
    extended: list[str]
    limits: pd.DataFrame
    thresholds: pd.DataFrame
    policies: pd.DataFrame
    by_price: pd.DataFrame

    @property
    def events(self) -> Drawn:
        """Arrivals and reads, which all runs share."""
        return self.runs[0]

    @property
    def days(self) -> float:
        """Length of the events in days."""
        return max(find_end_us(self.events) / 86_400e6, 1e-9)

    @property
    def down_share(self) -> float:
        """Share of time without a link, over all runs."""
        shares = []
        for run in self.runs:
            end_us = find_end_us(run)
            ends_us = [0, *run.switches_us[run.switches_us < end_us].tolist(), end_us]
            lasts_us = [end - begin for begin, end in itertools.pairwise(ends_us)]
            shares.append(sum(lasts_us[1 if run.starts_up else 0 :: 2]) / end_us)
        return float(np.mean(shares))

    @property
    def lifetime_s(self) -> float:
        """Mean time from arrival to expiration, of the messages that expire; 0 if none does."""
        expires = self.events.expires_us < FOREVER_US
        lasts_us = self.events.expires_us[expires] - self.events.arrivals_us[expires]
        return float(lasts_us.mean()) / 1e6 if len(lasts_us) else 0.0

    def _expiring(self) -> str:
        """Return in brackets how long messages last, or nothing if none expires."""
        if not self.lifetime_s:
            return ""
        share = float((self.events.expires_us < FOREVER_US).mean())
        which = "" if share == 1 else f"{words.percent(share)} "
        return f" ({which}expire after {_about(self.lifetime_s)} on average)"

    @property
    def has_threshold(self) -> bool:
        """True if a threshold was chosen: messages expire, and some are prefetched."""
        return bool(self.sized.limit) and self.sized.table["threshold_s"].nunique() > 1

    @property
    def is_firm(self) -> bool:
        """True if there are enough reads and days, and no other limit is clearly better where it counts."""
        return self._has_enough and self._better_limit is None

    @property
    def _has_enough(self) -> bool:
        return len(self.events.reads_us) >= _MIN_READS and count_scored_days(self.events) >= MIN_REPETITIONS

    @property
    def _better_limit(self) -> int | None:
        """The cheapest limit on the days for scoring, if it costs clearly less than the chosen one."""
        row = self.limits.loc[self.limits["cost_per_day"].idxmin()]
        return int(row["limit"]) if row["saved_per_day_high"] < -SURE else None

    @property
    def _read_counts(self) -> tuple[int, int]:
        """Number of reads that are scored, and of those in vain, over all draws."""
        days = pick_days(self.events, "even")
        reads_us = self.events.reads_us
        kept = reads_us if days == "all" else reads_us[reads_us // 86_400_000_000 % 2 == 1]
        reads = len(kept) * len(self.runs)
        return reads, round(reads * float(self.row(_RECOMMENDED)["empty_read_share"]))

    @property
    def saves(self) -> bool:
        """True if the recommended setting costs less than its rival, beyond doubt."""
        return bool(self._rival["saved_per_day_low"] > 0)

    @property
    def _rival(self) -> pd.Series:
        """Row of sending only when asked, or of the best setting that prefetches if that is recommended."""
        return self.policies.iloc[1]

    @property
    def _is_indifferent(self) -> bool:
        """True if all limits cost the same."""
        return bool(np.ptp(self.limits["cost_per_day"]) < 1e-9)

    def row(self, policy: str) -> pd.Series:
        """Return the scores of a policy."""
        return self.policies[self.policies["policy"] == policy].iloc[0]

    def first_screen(self) -> FirstScreen:
        """Return what was read, three figures, the recommendation, what it rests on, and warnings."""
        arrivals, reads = len(self.events.arrivals_us), len(self.events.reads_us)
        read = " · ".join(
            [
                self.name,
                f"{words.number(self.days)} days",
                words.count(arrivals, "message") + self._expiring(),
                words.count(reads, "read"),
                f"no link for {words.percent(self.down_share)} of the time",
            ]
        )
        best, limit, none = self.row(_RECOMMENDED), self.sized.limit, self.row(_NONE)
        is_dead = self.down_share == 1.0
        without = "" if not limit else f"; {words.percent(none['empty_read_share'])} if nothing is prefetched"
        tiles = [
            (
                words.count(limit, "message") if limit else "none",
                "kept on the device in advance" if limit else "is sent before it is asked for",
            ),
            (
                words.percent(best["empty_read_share"]),
                f"of reads happen offline and miss a waiting message{without}",
            ),
            (words.percent(best["loss"]), "of what could be read is lost")
            if is_dead
            else (
                words.percent(best["waste"]),
                f"of what is forwarded is never read; {words.percent(self.row(_ALL)['waste'])} if all is "
                "sent at once",
            ),
        ]
        return FirstScreen(
            read,
            tiles,
            self._headline(),
            self._reason(),
            self._assumption(),
            self._warnings(),
            self._first_measures(),
        )

    def _setting(self) -> str:
        """Return the chosen setting in words, as what comes after "to"."""
        if not self.sized.limit:
            return "send messages only when they are asked for"
        text = f"prefetch up to {words.count(self.sized.limit, 'message')}"
        if self.has_threshold and self.sized.threshold_s:
            text += f", and none that expires within {words.duration(self.sized.threshold_s)}"
        return text

    def _headline(self) -> str:
        if self.down_share == 1.0:
            return "No setting helps: there is never a link, and every message is lost."
        if len(self.events.reads_us) < _MIN_READS:
            reads = words.count(len(self.events.reads_us), "read")
            return f"Too little to recommend a limit: {reads}, where {_MIN_READS} are needed."
        if not self._has_enough:
            return f"Too little to recommend a limit: the events last {words.number(self.days)} days."
        if (better := self._better_limit) is not None:
            return (
                f"No firm limit: {self.sized.limit:,} costs least on the days for choosing, {better:,} on "
                "those for scoring."
            )
        if not self.sized.limit:
            if not self.down_share:
                return "Prefetch nothing: there is always a link, and messages can wait until asked for."
            return "Prefetch nothing, at these prices: send messages when they are asked for."
        if not self.saves:
            return f"No clear gain from prefetching; what costs least is to {self._setting()}."
        good = self._good_in_words()
        if good and not self._is_indifferent:
            few = words.count(self._read_counts[0] // len(self.runs), "read")
            return f"{self._setting().capitalize()}; by cost, limits {good} cannot be told apart on {few}."
        return f"{self._setting().capitalize()}."

    def _reason(self) -> str:
        best = self.row(_RECOMMENDED)
        if self.down_share == 1.0:
            return "Neither prefetching nor waiting to be asked brings a message to the device."
        if self._has_enough and not self.down_share and not self.sized.limit:
            text = (
                "Every read finds a link, so nothing is lost or late; what is sent ahead can only be wasted."
            )
            return f"{text} {self._saving()}"
        text = f"On these events it costs least to {self._setting()}. " if not self._has_enough else ""
        if self._has_enough and not self.is_firm:
            text = f"The choice was to {self._setting()}. "
        reads, in_vain = self._read_counts
        text += (
            f"With it {_percent(best, 'empty_read_share')} of reads happen offline and miss a waiting "
            f"message ({in_vain:,} of {self._reads_in_words(reads)}), "
            f"{_percent(best, 'loss')} of what could be read is lost, {_percent(best, 'waste')} of what is "
            f"forwarded is wasted, and {_delay(best)}."
        )
        if self._is_indifferent:
            return f"{text} Any other limit does as well."
        text += f" {self._saving()}"
        other = self._best_other()
        saved = float(other["saved_per_day"])
        if saved < -SURE:
            doubt = "" if other["saved_per_day_high"] < 0 else "; the difference may be chance"
            text += f" “{other['policy']}” costs {words.number(-saved)} a day less{doubt}."
        return text

    def _reads_in_words(self, reads: int) -> str:
        """Return a number of reads over all draws in words."""
        draws = len(self.runs)
        if draws == 1:
            return words.count(reads, "read")
        return f"{reads:,}: {words.count(reads // draws, 'read')} under {draws} draws of outages"

    def _saving(self) -> str:
        """Return what the setting costs, and how much less that is than its rival."""
        rival = self._rival
        saved, low, high = (rival[f"saved_per_day{end}"] for end in ("", "_low", "_high"))
        than = (
            "sending only when asked" if self.sized.limit else f"the best limit above 0 ({rival['policy']})"
        )
        ends = f" ({words.interval(low, high)})" if np.isfinite(low) else ""
        if not self.row(_RECOMMENDED)["cost_per_day"]:
            return f"It costs nothing; {than} would cost {self._worth(rival['cost_per_day'])}."
        cost = f"In all it costs {self._worth(self.row(_RECOMMENDED)['cost_per_day'])}"
        if saved < 0:
            return f"{cost}, {words.number(-saved)} more than {than} on the days it is scored on{ends}."
        return f"{cost}, {words.number(saved)}{ends} less than {than}."

    def _worth(self, cost: float) -> str:
        """Return a cost in words."""
        wasted = self.sized.prices.wasted
        if not cost:
            return "nothing"
        if wasted == 1:
            return f"as much as {words.number(cost)} wasted {'message' if cost == 1 else 'messages'} a day"
        return f"{words.number(cost)} a day at these prices"

    def _assumption(self) -> str:
        prices = self.sized.prices
        listed = [
            f"{what} {words.number(getattr(prices, name))} (`{parameter}`)"
            for name, (what, parameter) in PRICES.items()
        ]
        text = (
            f"Prices are assumed: {', '.join(listed[:-1])}, and {listed[-1]}. With one of them halved or "
            f"doubled, {self._by_price()}.{self._idle_prices()}"
        )
        if self.is_example:
            lasts = (
                f", and messages that expire after {_about(self.lifetime_s)} on average (`expiration_h`)"
                if self.lifetime_s
                else ""
            )
            text += (
                f" The example has {words.number(len(self.events.arrivals_us) / self.days)} messages "
                f"(`arrivals_per_day`) and {words.number(len(self.events.reads_us) / self.days)} reads "
                f"(`reads_per_day`) a day{lasts}."
            )
        if self.assumed is None:
            return f"{text} Links are those of the log of outages."
        if not self.assumed.share:
            return f"{text} It is assumed that there is always a link (`outage`)."
        return (
            f"{text} Outages are assumed, too: no link for {words.percent(self.assumed.share)} of the time"
            + (
                " (`outage`)."
                if self.assumed.share == 1
                else f", in {words.number(self.assumed.per_day)} periods a day (`outage`, `outages_per_day`)."
            )
        )

    def _by_price(self) -> str:
        """Return in words where limit and threshold lie when one price is halved or doubled."""
        low, high = self._limits_by_price()
        text = (
            f"the limit stays at {low:,}" if low == high else f"the limit lies between {low:,} and {high:,}"
        )
        table = self.by_price[self.by_price["limit"] > 0]
        least, most = table["threshold_s"].min(), table["threshold_s"].max()
        if not self.has_threshold or least == most:
            return text
        return f"{text}, the threshold between {_threshold(least)} and {_threshold(most)}"

    def _idle_prices(self) -> str:
        """Return a sentence about the prices that change nothing when they are halved or doubled."""
        settings = list(zip(self.by_price["limit"], self.by_price["threshold_s"], strict=True))
        pairs = zip(PRICES.values(), settings[1::2], settings[2::2], strict=True)
        idle = [what for (what, _), *pair in pairs if all(one == settings[0] for one in pair)]
        if not idle or len(idle) == len(PRICES):
            return ""
        return f" Halving or doubling the price of {' or of '.join(idle)} changes nothing."

    def _limits_by_price(self) -> tuple[int, int]:
        return int(self.by_price["limit"].min()), int(self.by_price["limit"].max())

    def _warnings(self) -> list[str]:
        notes = []
        if self.is_example:
            notes.append(
                "Messages and reads are generated: give your own logs (`arrivals`, `reads`) for an answer "
                "about your users."
            )
        if self.events.sorted_rows:
            moved = self.events.sorted_rows
            notes.append(
                f"{words.count(moved, 'row')} of the logs {'was' if moved == 1 else 'were'} out of order; "
                "the logs were sorted by time."
            )
        if count_days(self.events) < MIN_SPLIT_DAYS:
            notes.append(
                f"The events last {words.number(self.days)} days, too few to choose on some and score on "
                "others: both are done on all of them, which flatters the choice."
            )
        if self.days < _SHORT_DAYS:
            notes.append("What is on the device at the end counts as wasted, which is much of a short log.")
        share = len(self.events.reads_us) * self.max_at_a_time / len(self.events.arrivals_us)
        if share < 1:
            notes.append(
                f"With {words.count(self.max_at_a_time, 'message')} per read, at most {words.percent(share)} "
                "of the messages can ever be read (`max_at_a_time`)."
            )
        if abs(share - 1) < _CRITICAL and (self.events.expires_us >= FOREVER_US).mean() > 0.5:
            notes.append(
                "About as many messages arrive as can be read, and most never expire: what waits then grows "
                "and shrinks over weeks, and delays and costs are less certain than their intervals say."
            )
        notes += self._dominance()
        if self.extended:
            notes.append(
                f"A best setting lay at the edge of the {' and '.join(self.extended)} tried first; the "
                "range was extended until it no longer did."
            )
        if self.sized.limit >= MAX_LIMIT:
            notes.append(f"No limit above {MAX_LIMIT:,} was tried: forward all.")
        return notes

    def _dominance(self) -> list[str]:
        days, counts = np.unique(self.events.arrivals_us // 86_400_000_000, return_counts=True)
        few, share = dominant(counts)
        if few:
            return [
                f"{words.count(few, 'day')} of {len(days)} {'holds' if few == 1 else 'hold'} "
                f"{words.percent(share)} of the messages."
            ]
        return []

    def _first_measures(self) -> list[Measure]:
        best, sized = self.row(_RECOMMENDED), self.sized

        def scored(name: str, unit: str, definition: str, row: pd.Series = best, of: str = "") -> Measure:
            column = of or name
            ends = (float(row[f"{column}{end}"]) if f"{column}{end}" in row else np.nan for end in ENDS)
            low, high = (end if np.isfinite(end) else None for end in ends)
            return Measure(name, float(row[column]), unit, definition, low, high)

        in_vain = "of the reads, those offline that miss a waiting message"
        threshold_s = sized.threshold_s if self.has_threshold else None
        low, high = self._limits_by_price()
        least, most = self._good_limits()
        return [
            Measure("recommendation", self._headline(), "", "The recommendation in a sentence."),
            Measure("is_firm", float(self.is_firm), "", "1: enough reads and days, and no better limit."),
            Measure("prefetch_limit", float(sized.limit), "messages", "Messages on the device, at most."),
            Measure("good_limit_lowest", float(least), "messages", "Least limit that is not clearly worse."),
            Measure("good_limit_highest", float(most), "messages", "Largest such limit that was tried."),
            Measure("prefetch_limit_lowest", float(low), "messages", "Least limit, a price x 0.5 or 2."),
            Measure("prefetch_limit_highest", float(high), "messages", "Largest such limit."),
            Measure("expiration_threshold_s", threshold_s, "s", "What expires sooner is not prefetched."),
            scored("waste", "share", "Of the forwarded messages, those never read."),
            scored("loss", "share", "Of what on-line forwarding lets the user read, what was not read."),
            scored("empty_read_share", "share", f"Of the recommended setting: {in_vain}."),
            scored("delay_s", "s", "Mean time from the read that a link would have shown a message at to the "
                   "read that showed it."),
            scored("delay_median_s", "s", "Median of the same."),
            scored("cost_per_day", "price/day", "Cost of the recommended setting at the given prices."),
            scored("saved_per_day", "price/day", "How much less that is than the cost of sending only when "
                   "asked (of the best limit above 0, if that is recommended).", self._rival),
            scored("empty_read_share_without", "share", f"If nothing is prefetched: {in_vain}.",
                   self.row(_NONE), "empty_read_share"),
            scored("waste_all_at_once", "share", "Of the forwarded messages, those never read, if all are "
                   "sent at once.", self.row(_ALL), "waste"),
            Measure("down_share", self.down_share, "share", "Share of the time without a link."),
            Measure("days", self.days, "days", "Length of the events."),
            Measure("messages", float(len(self.events.arrivals_us)), "", "Messages that arrived."),
            Measure("reads", float(len(self.events.reads_us)), "", "Reads."),
            Measure("sorted_rows", float(self.events.sorted_rows), "", "Rows of logs that were sorted."),
        ]  # fmt: skip

    def _good_limits(self) -> tuple[int, int]:
        """Return the range of limits around the recommended one that are not clearly worse."""
        limits = self.limits["limit"].tolist()
        sure = self.limits["saved_per_day_low"].fillna(self.limits["saved_per_day"])
        if not self.row(_RECOMMENDED)["cost_per_day"]:
            sure = self.limits["cost_per_day"]  # what costs nothing cannot be beaten by chance
        is_worse = (sure > SURE).tolist()
        low = high = limits.index(self.sized.limit)
        while low > 0 and not is_worse[low - 1]:
            low -= 1
        while high + 1 < len(limits) and not is_worse[high + 1]:
            high += 1
        return int(limits[low]), int(limits[high])

    def _good_in_words(self) -> str:
        """Return the range of limits that are not clearly worse in words; nothing if it is one limit."""
        low, high = self._good_limits()
        is_open = high == self.limits["limit"].max()
        if low == high:
            return ""
        if is_open:
            return f"from {low:,} up" if low else ""
        return f"from {low:,} to {high:,}" if low else f"up to {high:,}"

    def _best_other(self) -> pd.Series:
        """Return the row of the cheapest policy besides the recommended one."""
        others = self.policies.iloc[1:]
        if not self.sized.limit:
            others = others[others["policy"] != _NONE]  # it is what is recommended
        return others.iloc[int(others["cost_per_day"].to_numpy().argmin())]

    def limit_answer(self) -> Answer:
        """Return the heading of the limits that were tried."""
        limit, table = self.sized.limit, self.limits
        low, high = self._good_limits()
        at = table["limit"].tolist().index(limit)
        beside = [place for place in (at - 1, at + 1) if 0 <= place < len(table)]
        good = self._good_in_words()
        if self._is_indifferent:
            title = "No limit is better than another: all cost the same"
        elif good and not self._has_enough:
            title = f"Too little was scored to tell limits {good} apart"
        elif good:
            title = f"By cost, limits {good} cannot be told apart: the differences may be chance"
        elif low < high:
            title = "No limit is clearly better than another: the differences may be chance"
        else:
            more = [table["cost_per_day"].iloc[place] - table["cost_per_day"].iloc[at] for place in beside]
            title = f"A limit of {limit:,} costs " + " and ".join(
                f"{words.number(abs(value))} {'less' if value > 0 else 'more'} a day than "
                f"{table['limit'].iloc[place]:,}"
                for place, value in zip(beside, more, strict=True)
            )
        text = "A small limit leaves the user without messages when there is no link."
        below = table[table["limit"] < low]
        if len(below) and (below["saved_per_day_low"] > SURE).all():
            worse = f"{below['limit'].iloc[-1]:,}"
            costs = words.number(below["saved_per_day"].iloc[-1])
            text += f" A limit of {worse} or less is clearly worse: {worse} costs {costs} a day more"
            text += f" than {limit:,}."
        waste = table["waste"].to_numpy()
        last = int(table["limit"].to_numpy()[np.argmax(np.abs(waste - waste[-1]) < SURE)])
        if waste[-1] > waste[0]:
            text += (
                f" A large one brings what nobody reads: {words.percent(waste[-1])} of what is forwarded is "
                f"wasted from {last:,} on."
            )
        cheapest = table.loc[table["cost_per_day"].idxmin()]
        less = table["cost_per_day"].iloc[at] - cheapest["cost_per_day"]
        if less > SURE:
            doubt = "" if cheapest["saved_per_day_high"] < 0 else "; the difference may be chance"
            text += (
                f" {limit:,} costs least on the days for choosing; on those for scoring, shown here, "
                f"{cheapest['limit']:,.0f} does, by {words.number(less)} a day{doubt}."
            )
        return Answer(title, text)

    def threshold_answer(self) -> Answer:
        """Return the heading of the thresholds that were tried."""
        text = "A threshold keeps back what expires before it can be read."
        if self.sized.table["threshold_s"].nunique() == 1:
            return Answer("Nothing expires, so there is no threshold to choose", text)
        if not self.sized.limit:
            return Answer("Nothing is prefetched, so no threshold matters", text)
        rows = self.thresholds
        chosen_s = self.sized.threshold_s
        if chosen_s:
            within, none = words.duration(chosen_s), rows.iloc[0]
            saved = float(none["saved_per_day"])
            if saved > SURE:
                doubt = "" if none["saved_per_day_low"] > 0 else ", which may be chance"
                title = (
                    f"Not prefetching what expires within {within} saves {words.number(saved)} a day{doubt}"
                )
            else:
                title = f"A threshold of {within} does not pay on the days it is scored on"
        else:
            best = rows.iloc[int(rows["cost_per_day"].to_numpy().argmin())]
            saved = -float(best["saved_per_day"])
            if saved > SURE:
                doubt = (
                    " on the days for scoring, but did not surely on those for choosing"
                    if best["saved_per_day_high"] < 0
                    else ", which may be chance"
                )
                within = words.duration(best["threshold_s"])
                title = f"A threshold of {within} saves {words.number(saved)} a day{doubt}"
            else:
                title = "No threshold costs less than none"
        return Answer(
            title,
            "What expires before the next read is better not sent; but what expires while there is no "
            "link is lost, if it was not sent before.",
        )

    def policies_answer(self) -> Answer:
        """Return the heading of the comparison with other policies."""
        table = self.policies
        if all(np.ptp(table[name]) < 1e-9 for name in _MEASURES):
            return Answer("All policies do equally well: none of the measures below differs")
        best = self._best_other()
        saved, low, high = (float(best[f"saved_per_day{end}"]) for end in ("", "_low", "_high"))
        name, difference = best["policy"], words.number(abs(saved))
        if not self.row(_RECOMMENDED)["cost_per_day"]:
            costs = self._worth(best["cost_per_day"])
            title = f"The recommended setting costs nothing, “{name}”, the next best, {costs}"
        elif abs(saved) < 1e-9:
            title = f"The recommended setting and “{name}” cost the same"
        elif low > 0:
            title = f"The recommended setting costs {difference} a day less than “{name}”, the next best"
        elif high < 0:
            title = f"“{name}” costs {difference} a day less than the recommended setting"
        else:
            less = "less" if saved > 0 else "more"
            title = (
                f"The recommended setting costs {difference} a day {less} than “{name}”; this may be chance"
            )
        return Answer(title)

    def prices_answer(self) -> Answer:
        """Return how the limit follows the prices, as a heading."""
        return Answer(f"With one price halved or doubled, {self._by_price()}", self._idle_prices().strip())

    def limit_table(self) -> pd.DataFrame:
        """Return the scores by limit, with the recommended threshold."""
        return _shown(self.limits, "limit")

    def threshold_table(self) -> pd.DataFrame:
        """Return the scores by threshold, with the recommended limit."""
        named = list(map(_threshold, self.thresholds["threshold_s"]))
        return _shown(self.thresholds.assign(threshold=named), "threshold")

    def policy_table(self) -> pd.DataFrame:
        """Return the scores of the policies."""
        return _shown(self.policies, "policy")

    def price_table(self) -> pd.DataFrame:
        """Return what would be recommended at other prices, and its scores."""
        named = [
            _threshold(threshold_s) if limit else words.NO_VALUE
            for limit, threshold_s in zip(self.by_price["limit"], self.by_price["threshold_s"], strict=True)
        ]
        return self.by_price.assign(threshold=named)[["price", "limit", "threshold", *_MEASURES]]

    @property
    def threshold_name(self) -> str:
        """The recommended threshold, as tables and figures name it."""
        return _threshold(self.sized.threshold_s)

    def near(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of settings around the recommended one, and the cheapest, at most ten."""
        first = table.columns[0]
        chosen = self.sized.limit if first == "limit" else self.threshold_name
        at = table[first].tolist().index(chosen)
        begin = max(min(at - _NEAR, len(table) - 2 * _NEAR - 1), 0)
        places = {*range(begin, min(begin + 2 * _NEAR + 1, len(table)))}
        return table.iloc[sorted(places | {int(table["cost_per_day"].to_numpy().argmin())})]


def read_events(
    arrivals: str,
    reads: str,
    outages: str,
    *,
    tz: str,
    example: dict[str, Any],
    assumed: Outages,
    draws: int,
) -> tuple[str, list[Drawn], list[Drawn]]:
    """Return a name, the events to choose a setting on, and those to score it on.

    They have the same arrivals and reads: those of the logs, or an example where there is none. Where there
    is no log of outages, they have different ones.
    """
    seed = example["seed"]
    if arrivals:
        events = read_logs(arrivals, reads, outages or None, tz=tz)
        name = ", ".join(Path(entry).name for entry in (arrivals, reads, outages) if entry)
        if outages:
            return name, [events], [events]
    else:
        scenario = Scenario(
            example["arrivals_per_day"],
            example["reads_per_day"],
            expiration=Expiration(3600 * example["expiration_h"]),
            days=example["days"],
        )
        name, events = "a generated example", scenario.draw(seed)
    runs = add_outages(events, assumed, range(seed, seed + 2 * draws))
    return name, runs[:draws], runs[draws:]


def study_sizing(
    name: str,
    chosen_on: list[Drawn],
    scored_on: list[Drawn],
    assumed: Outages | None,
    *,
    is_example: bool,
    max_at_a_time: int,
    threshold: float,
    prices: Prices,
) -> SizingStudy:
    """Choose the limit and the threshold that cost least on odd days, and score them on even ones.

    No expiration threshold is chosen, unless it surely saves on the days for choosing. ``threshold`` is that
    of the rank. A log of less than four days is not split.
    """
    played: dict[str, Any] = {"max": max_at_a_time, "threshold": threshold}
    variants = vary_prices(prices)
    days = pick_days(chosen_on[0], "odd")
    sized, extended = search_setting(chosen_on, list(variants.values()), played, days)
    threshold_s = None if pays(chosen_on, sized, played) else 0.0
    sized = sized.at(prices, threshold_s=threshold_s)
    scored: dict[str, Any] = played | {"prices": prices, "days": pick_days(scored_on[0], "even")}
    tried = sorted(sized.table["limit"].unique().tolist())
    # Powers of two, and what lies around the best of them.
    limits = [limit for limit in tried if not limit & (limit - 1) or 0.5 < limit / (sized.limit or 1) < 2]
    thresholds_s = sorted(sized.table["threshold_s"].unique().tolist())
    by_limit = {limit: buffer(limit, sized.threshold_s) for limit in limits}
    by_threshold = {threshold_s: buffer(sized.limit, threshold_s) for threshold_s in thresholds_s}
    at_prices = {label: sized.at(variant, threshold_s=threshold_s) for label, variant in variants.items()}
    by_price = {label: buffer(one.limit, one.threshold_s) for label, one in at_prices.items()}
    policies: dict[str, Forwarding | Push] = {_RECOMMENDED: buffer(sized.limit, sized.threshold_s)}
    if not sized.limit:
        rival = sized.at(prices, min_limit=1, threshold_s=threshold_s)
        policies[f"up to {rival.limit:,}"] = buffer(rival.limit, rival.threshold_s)
    policies |= {
        _NONE: Forwarding("on-demand"),
        _ALL: Forwarding("on-line"),
        _LEARNT: Forwarding.of("unified"),
        _PUSH: Push(),
    }
    price_rows = score(scored_on, by_price, "price", scored)
    price_rows.insert(1, "limit", [one.limit for one in at_prices.values()])
    price_rows.insert(2, "threshold_s", [one.threshold_s for one in at_prices.values()])
    return SizingStudy(
        name,
        is_example,
        scored_on,
        assumed,
        max_at_a_time,
        sized,
        extended,
        score(scored_on, by_limit, "limit", scored, sized.limit),
        score(scored_on, by_threshold, "threshold_s", scored, sized.threshold_s),
        score(scored_on, policies, "policy", scored),
        price_rows[["price", "limit", "threshold_s", *_MEASURES]],
    )


def _threshold(threshold_s: float) -> str:
    """Return a threshold in words."""
    return words.duration(threshold_s) if threshold_s else "none"


def _shown(table: pd.DataFrame, first: str) -> pd.DataFrame:
    names = [f"{name}{end}" for name in (*_MEASURES, "cost_per_day") for end in ("", *ENDS)]
    return table[[first, *names]]


def _percent(row: pd.Series, name: str) -> str:
    """Return a share with its interval."""
    low, high = (100 * float(row[f"{name}{end}"]) for end in ENDS)
    places = 0 if high >= 10 and not 0 < row[name] < 0.1 else 1
    if not np.isfinite(low) or round(low, places) == round(high, places):
        return words.percent(row[name])
    return f"{words.percent(row[name])} ({words.interval(low, high, places)})"


def _delay(row: pd.Series) -> str:
    """Return in words how much later messages are seen."""
    mean_s, median_s, low_s, high_s = (row[name] for name in ("delay_s", "delay_median_s", *_DELAY_ENDS))
    if not mean_s:
        return "every message that is read is seen as soon as it could be"
    ends = f" ({_about(low_s)} to {_about(high_s)})" if np.isfinite(low_s) else ""
    median = (
        "at least half of them not late at all"
        if not median_s
        else f"half of them {_about(median_s)} or more"
    )
    return f"messages are seen {_about(mean_s)}{ends} late on average, {median}"


def _about(seconds: float) -> str:
    """Return a duration to the minute from ten minutes on."""
    return words.duration(60 * round(seconds / 60) if seconds >= 600 else seconds)
