"""The report prefetch_sizing: how many messages to prefetch, and which expire too soon to be sent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from mudkit import words
from mudkit.report.choosing import (
    ENDS,
    MAX_LIMIT,
    MIN_READS,
    PRICES,
    SURE,
    Setting,
    count_scored_days,
    pays,
    pick_days,
    prefer_simpler,
    score,
    search_setting,
    vary_prices,
)
from mudkit.report.page import Answer, FirstScreen, Measure
from mudkit.report.prefetch_events import PlayedEvents, about
from mudkit.report.tables import merge_equal
from mudkit.systems.lasthop import Forwarding, Prices, Push

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.sources import Outages
    from mudkit.systems.lasthop.study.scenario import Drawn
    from mudkit.systems.lasthop.study.sizing import Sizing

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

_ALL, _NONE, _LEARNT, _PUSH = "all at once", "only when asked", "learnt by the server", "a push service"
_MEASURES: Final = ("waste", "loss", "empty_read_share", "delay_min")
_DELAY_ENDS: Final = ("delay_s_low", "delay_s_high")
_LONG: Final = 110
"""Letters of a heading, at most."""
_NEAR: Final = 3
"""Rows on screen before and after the recommended setting."""
_EXAMPLE: Final = " This is an example: messages and reads are generated, prices assumed."


@dataclass(frozen=True)
class SizingStudy:
    """Settings of a prefetching server that were played on the same events.

    ``sized`` holds the setting that costs least on odd days; ``setting`` is the recommended one (see
    :func:`~mudkit.report.choosing.prefer_simpler`). All are scored on even days, under other outages.
    ``limits``, ``thresholds`` and ``policies``, the recommended one first, are the scores of settings and
    policies, what is saved compared with the recommended one. ``by_price`` has what would be recommended at
    other prices. ``extended`` names ranges whose edge the best setting had reached.
    """

    played: PlayedEvents
    sized: Sizing
    setting: Setting
    extended: list[str]
    limits: pd.DataFrame
    thresholds: pd.DataFrame
    policies: pd.DataFrame
    by_price: pd.DataFrame

    @property
    def has_threshold(self) -> bool:
        """True if a threshold was chosen: messages expire, and some are prefetched."""
        return bool(self.setting.limit) and self.sized.table["threshold_s"].nunique() > 1

    @property
    def best(self) -> pd.Series:
        """Scores of the recommended setting."""
        return self.policies.iloc[0]

    @property
    def _rival(self) -> pd.Series:
        """Scores of sending only when asked, or of the best limit above 0 if that is recommended."""
        return self.policies.iloc[1]

    def row(self, policy: str) -> pd.Series:
        """Return the scores of a policy."""
        return self.policies[self.policies["policy"] == policy].iloc[0]

    @property
    def verdict(self) -> str:
        """Certainty of the recommendation.

        ``firm``: it surely costs less than sending all at once or only when asked. ``default``: what cost
        least on the days for choosing does not surely cost less than this simpler setting.
        ``contradicted``: another limit surely costs less on the days for scoring. ``too little``: too few
        reads or days. ``no link``: there never was one.
        """
        if self.played.down_share == 1.0:
            return "no link"
        if not self.played.has_enough:
            return "too little"
        if self._better_limit is not None:
            return "contradicted"
        others = self.policies[
            self.policies["policy"].isin({_ALL, _NONE, self._chosen.name} - {self.setting.name})
        ]
        return "default" if any(self._is_open(row) for _, row in others.iterrows()) else "firm"

    @property
    def is_firm(self) -> bool:
        """True if the recommendation is surely better than what is as simple or simpler."""
        return self.verdict == "firm"

    @property
    def _chosen(self) -> Setting:
        """The setting that costs least on the days for choosing."""
        return Setting(self.sized.limit, self.sized.threshold_s)

    def _is_open(self, row: pd.Series) -> bool:
        """Return whether a policy does something else, and does not surely cost more."""
        best = self.best
        if all(abs(row[name] - best[name]) < SURE for name in (*_MEASURES, "cost_per_day")):
            return False
        if not best["cost_per_day"]:
            return bool(row["cost_per_day"] <= SURE)
        return not row["saved_per_day_low"] > SURE

    @property
    def _better_limit(self) -> Setting | None:
        """The cheapest limit that surely costs less than the recommended one on the days for scoring."""
        surely = self.limits[self.limits["saved_per_day_high"] < -SURE]
        at = int(surely["cost_per_day"].to_numpy().argmin()) if len(surely) else None
        return None if at is None else Setting(float(surely["limit"].iloc[at]))

    @property
    def _in_vain(self) -> str:
        """Reads in vain of those that are scored, over all draws, in words."""
        reads, draws = self.played.scored_reads, len(self.played.runs)
        of_draws = f"{reads * draws:,}: " if draws > 1 else ""
        return f"{self._reads_in_vain:,} of {of_draws}{self.played.reads_in_words()}"

    @property
    def _reads_in_vain(self) -> int:
        """Number of reads in vain, over all draws."""
        drawn_reads = self.played.scored_reads * len(self.played.runs)
        return round(drawn_reads * float(self.best["empty_read_share"]))

    @property
    def _is_indifferent(self) -> bool:
        """True if all limits cost the same."""
        return bool(np.ptp(self.limits["cost_per_day"]) < 1e-9)

    def first_screen(self) -> FirstScreen:
        """Return what was read, three figures, the recommendation, what it rests on, and warnings."""
        best, limit, none = self.best, self.setting.limit, self.row(_NONE)
        without = "" if not limit else f"; {words.percent(none['empty_read_share'])} if nothing is prefetched"
        at_once = (
            ""
            if self.setting.name == _ALL
            else f"; {words.percent(self.row(_ALL)['waste'])} if all is sent at once"
        )
        first = "none", "is sent before it is asked for"
        if limit:
            first = "all", "messages are sent as they come, without a limit"
        if limit and self.setting.threshold_s:
            late = words.duration(self.setting.threshold_s)
            first = "all", f"messages are sent as they come, but none that expires within {late}"
        if 0 < limit < math.inf:
            first = words.count(int(limit), "message"), "kept on the device in advance"
        tiles = [
            first,
            (
                words.percent(best["empty_read_share"]),
                "of reads find no link and miss a waiting message"
                f"{_ends(best, 'empty_read_share')}{without}; {self.played.reads_in_words()}",
            ),
            (words.percent(best["loss"]), "of what could be read is lost")
            if self.verdict == "no link"
            else (
                words.percent(best["waste"]),
                f"of what is forwarded is never read{_ends(best, 'waste')}{at_once}",
            ),
        ]
        return FirstScreen(
            self.played.describe(),
            tiles,
            self._headline(),
            self._reason(),
            self._assumption(),
            self._warnings(),
            self._first_measures(),
        )

    def _headline(self) -> str:
        """Return the recommendation, and that it is an example if it is one."""
        return self._recommendation() + (_EXAMPLE if self.played.is_example else "")

    def _recommendation(self) -> str:
        """Return what is recommended, as a sentence, or why nothing is."""
        verdict, played = self.verdict, self.played
        if verdict == "no link":
            return "No setting helps: there is never a link, and every message is lost."
        if verdict == "too little":
            if len(played.first.reads_us) < MIN_READS:
                few = words.count(len(played.first.reads_us), "read")
                return f"Too little to recommend a limit: {few}, where {MIN_READS} are needed."
            return f"Too little to recommend a limit: the events last {words.count(played.days, 'day')}."
        if (better := self._better_limit) is not None:
            is_cheapest = better.limit == self.limits.loc[self.limits["cost_per_day"].idxmin(), "limit"]
            less = "" if is_cheapest else f" costs clearly less than {self.setting.subject}"
            return (
                f"No firm limit: {self._chosen.subject} costs least on the days for choosing, "
                f"{better.subject}{less} on those for scoring."
            )
        todo = words.capitalise(self.setting.sentence)
        if self._is_indifferent and verdict == "default":
            return f"{todo}: on these reads every limit costs the same."
        if verdict == "default":
            reads = words.count(played.scored_reads, "read")
            return f"{todo}, by default: none of the limits tried is clearly cheaper on {reads}."
        if not self.setting.limit:
            if not played.down_share:
                return "Prefetch nothing: there is always a link, and messages can wait until asked for."
            return "Prefetch nothing, at these prices: send messages when they are asked for."
        return f"{todo}."

    def _reason(self) -> str:
        """Return why, as sentences."""
        best, verdict = self.best, self.verdict
        if verdict == "no link":
            return "Neither prefetching nor waiting to be asked brings a message to the device."
        text = ""
        if verdict == "too little":
            text = f"On these events it costs least to {self.setting.sentence}. "
        elif verdict == "contradicted":
            text = f"The default is to {self.setting.sentence}. "
        elif not self.played.down_share and not self.setting.limit:
            text = (
                "Every read finds a link, so nothing is lost or late; what is sent ahead can only be wasted."
            )
            return f"{text} {self._saving()}"
        elif verdict == "default":
            text = self._why_default()
        text += (
            f"With it, on {self.played.scored_days}, {_percent(best, 'empty_read_share')} of reads find no "
            f"link and miss a waiting message ({self._in_vain}), "
            f"{_percent(best, 'loss')} of what could be read is lost, {_percent(best, 'waste')} of what is "
            f"forwarded is wasted, and {_delay(best)}.{self._as_cheap()}{self._kept_back()}"
            f"{self._bound_waste()}"
        )
        if self._is_indifferent:
            return f"{text} Any other limit does as well."
        good = self._good_in_words()
        if good and verdict == "firm":
            text += f" By cost, {good} cannot be told apart."
        text += f" {self._saving()}"
        other = self._best_other()
        saved = float(other["saved_per_day"])
        if saved < -SURE:
            doubt = "" if other["saved_per_day_high"] < 0 else "; the difference may be chance"
            text += f" With “{other['policy']}” one saves {self._worth(-saved)}{doubt}."
        return text

    @property
    def equally_cheap(self) -> list[str]:
        """Other limits, with the same threshold, that cost as much as the best on the days for choosing."""
        table, chosen = self.sized.table, self._chosen
        table = table[table["threshold_s"] == chosen.threshold_s]
        cost = table["cost_per_day"].round(9)
        is_equal = (cost == cost[table["limit"] == chosen.limit].iloc[0]) & (table["limit"] != chosen.limit)
        return [Setting(float(limit)).count for limit in sorted(table.loc[is_equal, "limit"])]

    def _as_cheap(self) -> str:
        """Return which other limits cost as much as the best on the days for choosing, as a sentence."""
        if not (others := self.equally_cheap):
            return ""
        named = f"{'the limit' if len(others) == 1 else 'the limits'} {words.listing(others, 8)}"
        return f" On the days for choosing, {named} cost as much as {self._chosen.subject}."

    def _kept_back(self) -> str:
        """Return which share of the messages the threshold keeps back, as a sentence; empty: none."""
        threshold_s = self.setting.threshold_s
        share = self.played.expiring_share(threshold_s)
        if not share:
            return ""
        return (
            f" {words.percent(share)} of the messages expire within {words.duration(threshold_s)}: they are "
            "sent only when asked for."
        )

    def _bound_waste(self) -> str:
        """Return a sentence on the waste that follows from how many messages a read shows; empty: none."""
        share = self.played.readable_share
        if share >= 1 or not self.best["waste"]:
            return ""
        return (
            f" With {words.count(self.played.max_at_a_time, 'message')} per read (`max_at_a_time`), at most "
            f"{words.percent(share)} of the messages of the log can be read; all that is sent beyond that is "
            "wasted."
        )

    def _why_default(self) -> str:
        """Return why a setting is recommended although another may be as good, in sentences."""
        text, chosen = "", self._chosen
        if good := self._good_in_words():
            text = f"These reads do not decide the limit: by cost, {good} cannot be told apart. "
        if chosen.name == self.setting.name:
            return text
        text += f"On the days for choosing, it cost least to {chosen.sentence}"
        row = self.row(chosen.name)
        saved, low, high = (-float(row[f"saved_per_day{end}"]) for end in ("", "_high", "_low"))
        may_be_none = np.isfinite(low) and low <= 0 <= high
        if saved > SURE:
            ends = f" ({words.interval(low, high, 1)})" if np.isfinite(low) else ""
            text += f"; on those for scoring that saves {self._worth(saved)}{ends}, which may be chance"
        elif saved < -SURE:
            ends = f" ({words.interval(-high, -low, 1)})" if np.isfinite(low) else ""
            doubt = ": there may be no difference" if may_be_none else ""
            text += f"; on those for scoring that costs {self._worth(-saved, ' more')}{ends}{doubt}"
        return f"{text}. The default is what needs no limit. "

    def _less_than_all_at_once(self) -> str:
        """Return how much less the setting costs than the obvious rival, as a part of a sentence."""
        if not self.setting.limit or self.setting.name == _ALL:
            return ""
        row = self.row(_ALL)
        saved, low, high = (float(row[f"saved_per_day{end}"]) for end in ("", *ENDS))
        ends = f" ({words.interval(low, high, 1)})" if np.isfinite(low) else ""
        less = "less" if saved >= 0 else "more"
        return f"{words.number(abs(saved), 1)}{ends} {less} than sending all at once, "

    def _saving(self) -> str:
        """Return what the setting costs, and how much less that is than its rivals."""
        rival = self._rival
        saved, low, high = (rival[f"saved_per_day{end}"] for end in ("", "_low", "_high"))
        than = (
            "sending only when asked" if self.setting.limit else f"the best limit above 0 ({rival['policy']})"
        )
        ends = f" ({words.interval(low, high, 1)})" if np.isfinite(low) else ""
        if not self.best["cost_per_day"]:
            return f"It costs nothing; {than} would cost {self._worth(rival['cost_per_day'])}."
        cost = f"In all it costs {self._worth(self.best['cost_per_day'])}"
        if saved < 0:
            return f"{cost}, {words.number(-saved, 1)} more than {than} on the days it is scored on{ends}."
        at_once = self._less_than_all_at_once()
        return f"{cost}, {at_once}{'and ' if at_once else ''}{words.number(saved, 1)}{ends} less than {than}."

    def _worth(self, cost: float, more: str = "") -> str:
        """Return a cost in words; ``more`` stands behind its number."""
        wasted = self.sized.prices.wasted
        if not cost:
            return "nothing"
        if wasted == 1:
            noun = "message" if cost == 1 else "messages"
            return f"as much as {words.number(cost, 1)}{more} wasted {noun} a day"
        return f"{words.number(cost, 1)} a day{more} at these prices"

    def _amount(self, cost: float) -> str:
        """Return a difference of costs with its unit."""
        if self.sized.prices.wasted == 1:
            return f"{words.number(cost, 1)} wasted messages a day"
        return f"{words.number(cost, 1)} a day at these prices"

    def _assumption(self) -> str:
        """Return the prices, and what others would change, as sentences."""
        prices = self.sized.prices
        listed = [
            f"{what} {words.number(getattr(prices, name))} (`{parameter}`)"
            for name, (what, parameter) in PRICES.items()
        ]
        return (
            f"Prices are assumed: {', '.join(listed[:-1])}, and {listed[-1]}. With one of them halved or "
            f"doubled, {self._by_price()}.{self._idle_prices()} {self.played.assumption()}"
        )

    def _settings_by_price(self) -> list[Setting]:
        """Return what would be recommended at each row of prices."""
        rows = self.by_price[["limit", "threshold_s"]].itertuples(index=False)
        return [Setting(limit, threshold_s) for limit, threshold_s in rows]

    def _by_price(self) -> str:
        """Return in words what the recommendation becomes when one price is halved or doubled."""
        others: dict[str, list[str]] = {}
        rows = zip(self.by_price["price"], self._settings_by_price(), strict=True)
        for price, setting in rows:
            if setting != self.setting:
                others.setdefault(setting.sentence, []).append(price.rpartition(", ")[0])
        if not others:
            return "the recommendation stays the same"
        count, cases = sum(map(len, others.values())), words.count(len(self.by_price) - 1, "case")
        return f"the recommendation changes in {count} of {cases}; it becomes: " + "; or: ".join(
            f"{sentence} ({words.joined(prices, 'or')})" for sentence, prices in others.items()
        )

    def _idle_prices(self) -> str:
        """Return a sentence about the prices that change nothing when they are halved or doubled."""
        settings = self._settings_by_price()
        pairs = zip(PRICES.values(), settings[1::2], settings[2::2], strict=True)
        idle = [what for (what, _), *pair in pairs if all(one == settings[0] for one in pair)]
        if not idle or len(idle) == len(PRICES):
            return ""
        return f" Halving or doubling the price of {' or of '.join(idle)} changes nothing."

    def _limits_by_price(self) -> tuple[float, float]:
        """Return the smallest and largest best limit over all prices."""
        return float(self.by_price["limit"].min()), float(self.by_price["limit"].max())

    def _warnings(self) -> list[str]:
        """Return warnings about the log and the range that was tried, as sentences."""
        notes = self.played.warnings()
        if self.extended:
            notes.append(
                f"A best setting lay at the edge of the {' and '.join(self.extended)} tried first; the "
                "range was extended until it no longer did."
            )
        if self.sized.limit >= MAX_LIMIT:
            notes.append(f"No limit above {MAX_LIMIT:,} was tried, but to send all at once.")
        return notes

    def _first_measures(self) -> list[Measure]:
        """Return the figures of the first screen."""
        best, setting, played = self.best, self.setting, self.played

        def scored(name: str, unit: str, definition: str, row: pd.Series = best, of: str = "") -> Measure:
            column = of or name
            ends = (float(row[f"{column}{end}"]) if f"{column}{end}" in row else np.nan for end in ENDS)
            low, high = (end if np.isfinite(end) else None for end in ends)
            return Measure(name, float(row[column]), unit, definition, low, high)

        def limit(name: str, value: float, definition: str) -> Measure:
            return Measure(name, value if math.isfinite(value) else None, "messages", definition)

        in_vain = "of the reads, those offline that miss a waiting message"
        threshold_s = setting.threshold_s if self.has_threshold else None
        low, high = self._limits_by_price()
        least, most = self._good_limits()
        return [
            Measure("recommendation", self._headline(), "", "The recommendation in a sentence."),
            Measure("verdict", self.verdict, "", "firm, default, contradicted, too little, or no link."),
            Measure("is_firm", float(self.is_firm), "", "1: the verdict is firm, it surely costs less than "
                    "sending all at once or only when asked."),
            Measure("setting", setting.name, "", "Recommended setting."),
            limit("prefetch_limit", setting.limit, "Messages on the device, at most; none: no limit."),
            limit("chosen_limit", self._chosen.limit, "Limit of least cost on the days for choosing."),
            Measure("equally_cheap_limits", words.listing(self.equally_cheap, 8) or None, "", "Other limits "
                    "that cost as much as chosen_limit on the days for choosing."),
            limit("good_limit_lowest", least, "Least limit that is not clearly worse; none: no limit."),
            limit("good_limit_highest", most, "Largest such limit; none: no limit."),
            limit("prefetch_limit_lowest", low, "Least limit, a price x 0.5 or 2; none: no limit."),
            limit("prefetch_limit_highest", high, "Largest such limit; none: no limit."),
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
            scored("saved_per_day_all_at_once", "price/day", "How much less that is than the cost of sending "
                   "all at once.", self.row(_ALL), "saved_per_day"),
            scored("empty_read_share_without", "share", f"If nothing is prefetched: {in_vain}.",
                   self.row(_NONE), "empty_read_share"),
            scored("waste_all_at_once", "share", "Of the forwarded messages, those never read, if all are "
                   "sent at once.", self.row(_ALL), "waste"),
            Measure("scored_days", float(count_scored_days(played.first)), "days", "Days for scoring."),
            Measure("scored_reads", float(played.scored_reads), "", "Reads on the days for scoring."),
            Measure("scored_draws", float(len(played.runs)), "", "Draws of outages that are scored."),
            Measure("drawn_reads", float(played.scored_reads * len(played.runs)), "",
                    "Reads that are scored, over all draws."),
            Measure("reads_in_vain", float(self._reads_in_vain), "", "Of these, those offline that miss a "
                    "waiting message."),
            scored("chosen_saved_per_day", "price/day", "How much less the recommended setting costs than "
                   "what cost least on the days for choosing.", self.row(self._chosen.name),
                   "saved_per_day"),
            Measure("expiring_share", played.expiring_share(setting.threshold_s), "share", "Messages that "
                    "expire within expiration_threshold_s: they are sent only when asked for."),
            Measure("readable_share", min(played.readable_share, 1.0), "share", "Messages that all reads can "
                    "show, at max_at_a_time each, at most."),
            Measure("changing_prices", float(sum(one != setting for one in self._settings_by_price())), "",
                    "Prices halved or doubled that change the recommendation."),
            Measure("lifetime_s", played.lifetime_s or None, "s", "Mean time until messages expire; none: no "
                    "message does."),
            Measure("messages_per_day", len(played.first.arrivals_us) / played.days, "messages/day",
                    "Messages that arrive a day."),
            Measure("reads_per_day", len(played.first.reads_us) / played.days, "a day", "Reads a day."),
            Measure("down_share", played.down_share, "share", "Share of the time without a link."),
            Measure("days", played.days, "days", "Length of the events."),
            Measure("messages", float(len(played.first.arrivals_us)), "", "Messages that arrived."),
            Measure("reads", float(len(played.first.reads_us)), "", "Reads."),
            Measure("sorted_rows", float(played.first.sorted_rows), "", "Rows of logs that were sorted."),
        ]  # fmt: skip

    def _good_limits(self) -> tuple[float, float]:
        """Return the range of limits around the recommended one that are not clearly worse."""
        limits = self.limits["limit"].tolist()
        is_good = [
            self._is_open(row) or abs(row["saved_per_day"]) < SURE for _, row in self.limits.iterrows()
        ]
        low = high = limits.index(self.setting.limit)
        while low > 0 and is_good[low - 1]:
            low -= 1
        while high + 1 < len(limits) and is_good[high + 1]:
            high += 1
        return limits[low], limits[high]

    def _good_in_words(self) -> str:
        """Return the range of limits that are not clearly worse in words; nothing if it is one limit."""
        low, high = self._good_limits()
        if low == high:
            return ""
        least = f"{low:,.0f}" if low else "0 (only when asked)"
        if high == math.inf:
            return f"limits from {least} up, and {Setting(math.inf, self.setting.threshold_s).subject},"
        return f"limits from {least} to {high:,.0f}"

    def _best_other(self) -> pd.Series:
        """Return the scores of the cheapest policy besides the recommended one."""
        others = self.policies.iloc[1:]
        return others.iloc[int(others["cost_per_day"].to_numpy().argmin())]

    def limit_answer(self) -> Answer:
        """Return the heading of the limits that were tried."""
        setting, table = self.setting, self.limits
        low, _ = self._good_limits()
        at = table["limit"].tolist().index(setting.limit)
        beside = [place for place in (at - 1, at + 1) if 0 <= place < len(table)]
        good = self._good_in_words()
        if self._is_indifferent:
            title = "No limit is better than another: all cost the same"
        elif good and not self.played.has_enough:
            title = f"Too little was scored to tell {good} apart"
        elif good:
            title = f"By cost, {good} cannot be told apart: the differences may be chance"
        else:
            more = [table["cost_per_day"].iloc[place] - table["cost_per_day"].iloc[at] for place in beside]
            title = f"{words.capitalise(setting.subject)} costs " + " and ".join(
                f"{self._amount(abs(value))} {'less' if value > 0 else 'more'} than "
                f"{Setting(float(table['limit'].iloc[place])).subject}"
                for place, value in zip(beside, more, strict=True)
            )
        text = "A small limit leaves the user without messages when there is no link."
        below = table[table["limit"] < low]
        if len(below) and (below["saved_per_day_low"] > SURE).all():
            worse = f"{below['limit'].iloc[-1]:,.0f}"
            costs = self._worth(float(below["saved_per_day"].iloc[-1]), " more")
            text += f" A limit of {worse} or less is clearly worse: {worse} costs {costs}"
            text += f" than {setting.subject}."
        waste = table["waste"].to_numpy()
        if waste[-1] > waste[0]:
            text += (
                f" A large one brings what nobody reads: {words.percent(waste[-1])} of what is forwarded is "
                f"wasted by {Setting(math.inf, self.setting.threshold_s).subject}."
            )
        cheapest = table.loc[table["cost_per_day"].idxmin()]
        named = Setting(float(cheapest["limit"])).subject
        less = table["cost_per_day"].iloc[at] - cheapest["cost_per_day"]
        if less > SURE:
            doubt = "" if cheapest["saved_per_day_high"] < 0 else "; the difference may be chance"
            text += (
                f" On {self.played.scored_days}, shown here, {named} costs least, "
                f"{self._amount(less)} less than {setting.subject}{doubt}."
            )
        return Answer(title, text)

    def threshold_answer(self) -> Answer:
        """Return the heading of the thresholds that were tried."""
        text = "A threshold keeps back what expires before it can be read."
        if self.sized.table["threshold_s"].nunique() == 1:
            return Answer("Nothing expires, so there is no threshold to choose", text)
        if not self.setting.limit:
            return Answer("Nothing is prefetched, so no threshold matters", text)
        rows = self.thresholds
        chosen_s = self.setting.threshold_s
        if chosen_s:
            within, none = words.duration(chosen_s), rows.iloc[0]
            saved = float(none["saved_per_day"])
            if saved > SURE:
                doubt = "" if none["saved_per_day_low"] > 0 else ", which may be chance"
                title = f"Not prefetching what expires within {within} saves {self._amount(saved)}{doubt}"
            else:
                title = f"A threshold of {within} does not pay on the days it is scored on"
        else:
            best = rows.iloc[int(rows["cost_per_day"].to_numpy().argmin())]
            saved = -float(best["saved_per_day"])
            within = words.duration(best["threshold_s"])
            if saved > SURE and best["saved_per_day_high"] < 0:
                title = (
                    f"A threshold of {within} saves {self._amount(saved)} on the days for scoring, but "
                    "did not surely on those for choosing"
                )
            elif saved > SURE:
                title = (
                    f"No threshold surely saves: {within} costs {self._amount(saved)} less than none, "
                    "which may be chance"
                )
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
        mine, name, difference = self.setting.name, best["policy"], self._amount(abs(saved))
        if not self.best["cost_per_day"]:
            costs = self._worth(best["cost_per_day"])
            title = f"“{mine}” costs nothing, “{name}”, the next best, {costs}"
        elif abs(saved) < 1e-9:
            title = f"“{mine}” and “{name}” cost the same"
        elif low > 0:
            title = f"“{mine}” costs {difference} less than “{name}”, the next best"
        elif high < 0:
            title = f"“{name}” costs {difference} less than “{mine}”"
        else:
            less = "less" if saved > 0 else "more"
            title = f"“{mine}” costs {difference} {less} than “{name}”; this may be chance"
        return Answer(title)

    def prices_answer(self) -> Answer:
        """Return how the limit follows the prices, as a heading."""
        title = f"With one price halved or doubled, {self._by_price()}"
        if len(title) > _LONG:
            others = words.count(len({*self._settings_by_price()} - {self.setting}), "other setting")
            cases = sum(one != self.setting for one in self._settings_by_price())
            of_cases = words.count(len(self.by_price) - 1, "change of one price", "changes of one price")
            title = f"Of {of_cases}, {cases} would lead to {others}"
        return Answer(title, self._idle_prices().strip())

    def limit_table(self) -> pd.DataFrame:
        """Return the scores by limit, with the recommended threshold."""
        return _shown(self.limits, "limit")

    def threshold_table(self) -> pd.DataFrame:
        """Return the scores by threshold, with the recommended limit."""
        named = list(map(_threshold, self.thresholds["threshold_s"]))
        return _shown(self.thresholds.assign(threshold=named), "threshold")

    def policy_table(self) -> pd.DataFrame:
        """Return the scores of the policies.

        A limit with another threshold than the recommended one has it in its name.
        """
        named = [
            f"{name}, {f'threshold {_threshold(threshold_s)}' if threshold_s else 'no threshold'}"
            if name.startswith("up to ") and threshold_s != self.setting.threshold_s
            else name
            for name, threshold_s in zip(self.policies["policy"], self.policies["threshold_s"], strict=True)
        ]
        return _shown(self.policies.assign(policy=named), "policy")

    def price_table(self) -> pd.DataFrame:
        """Return what would be recommended at other prices, and its scores."""
        settings = self._settings_by_price()
        table = self.by_price.assign(setting=[setting.name for setting in settings])
        table["threshold"] = [
            _threshold(setting.threshold_s) if setting.limit else words.NO_VALUE for setting in settings
        ]
        return table[["price", "setting", "threshold", *_MEASURES]]

    def limit_names(self) -> pd.DataFrame:
        """Return :meth:`limit_table` with the limits in words."""
        table = self.limit_table()
        return table.assign(limit=[Setting(limit).count for limit in table["limit"]])

    @property
    def threshold_name(self) -> str:
        """The recommended threshold, as tables and figures name it."""
        return _threshold(self.setting.threshold_s)

    def near(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of settings around the recommended one, and the cheapest, at most eleven.

        Neighbouring settings that do the same are one row. The table is that of thresholds, or of
        :meth:`limit_names`: then with the ends of the range that is as good, and the limit below it.
        """
        first = table.columns[0]
        chosen = self.setting.count if first == "limit" else self.threshold_name
        merged, groups = merge_equal(table)
        at = next(place for place, group in enumerate(groups) if chosen in group)
        begin = max(min(at - _NEAR, len(merged) - 2 * _NEAR - 1), 0)
        places = {*range(begin, min(begin + 2 * _NEAR + 1, len(merged)))}
        places.add(int(merged["cost_per_day"].to_numpy().argmin()))
        if first == "limit":
            low, high = (Setting(limit).count for limit in self._good_limits())
            ends = [place for place, group in enumerate(groups) if low in group or high in group]
            places |= {max(ends[0] - 1, 0), ends[0], ends[-1]}
        return merged.iloc[sorted(places)]


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
    """Choose the limit and the threshold that cost least on odd days, and score settings on even ones.

    No expiration threshold is chosen, unless it surely saves on the days for choosing. ``threshold`` is that
    of the rank. A log of less than four days is not split.
    """
    played: dict[str, Any] = {"max": max_at_a_time, "threshold": threshold}
    variants = vary_prices(prices)
    days = pick_days(chosen_on[0], "odd")
    searched, extended = search_setting(chosen_on, list(variants.values()), played, days)
    threshold_s = None if pays(chosen_on, searched, played) else 0.0
    at_prices = {label: searched.at(variant, threshold_s=threshold_s) for label, variant in variants.items()}
    recommended = {
        label: prefer_simpler(chosen_on, scored_on, one, played) for label, one in at_prices.items()
    }
    sized, setting = at_prices["as assumed"], recommended["as assumed"]
    scored: dict[str, Any] = played | {"prices": prices, "days": pick_days(scored_on[0], "even")}
    tried = sorted(searched.table["limit"].unique().tolist())
    # Powers of two, and what lies around the best of them.
    limits = [limit for limit in tried if not limit & (limit - 1) or 0.5 < limit / (sized.limit or 1) < 2]
    thresholds_s = sorted(searched.table["threshold_s"].unique().tolist())
    by_limit = {limit: Setting(limit, setting.threshold_s).policy for limit in [*limits, math.inf]}
    by_threshold = {threshold_s: Setting(setting.limit, threshold_s).policy for threshold_s in thresholds_s}
    rival = Setting(0)
    if not setting.limit:
        other = searched.at(prices, min_limit=1, threshold_s=threshold_s)
        rival = Setting(other.limit, other.threshold_s)
    chosen = Setting(sized.limit, sized.threshold_s)
    named = {one.name: one for one in (setting, rival, chosen, Setting(0), Setting(math.inf))}
    policies: dict[str, Forwarding | Push] = {name: one.policy for name, one in named.items()}
    policies |= {_LEARNT: Forwarding.of("unified"), _PUSH: Push()}
    by_policy = score(scored_on, policies, "policy", scored)
    by_policy["threshold_s"] = [named[name].threshold_s if name in named else 0.0 for name in policies]
    price_rows = score(scored_on, {label: one.policy for label, one in recommended.items()}, "price", scored)
    price_rows.insert(1, "limit", [one.limit for one in recommended.values()])
    price_rows.insert(2, "threshold_s", [one.threshold_s for one in recommended.values()])
    return SizingStudy(
        PlayedEvents(name, is_example, scored_on, assumed, max_at_a_time),
        sized,
        setting,
        extended,
        score(scored_on, by_limit, "limit", scored, setting.limit),
        score(scored_on, by_threshold, "threshold_s", scored, setting.threshold_s),
        by_policy,
        price_rows[["price", "limit", "threshold_s", *_MEASURES]],
    )


def _ends(row: pd.Series, name: str) -> str:
    """Return `` (interval … %)`` of a share; an empty text without one."""
    shown = _percent(row, name)
    return f" (interval {shown.partition('(')[2][:-1]} %)" if shown.endswith(")") else ""


def _threshold(threshold_s: float) -> str:
    """Return a threshold in words."""
    return words.duration(threshold_s) if threshold_s else "none"


def _shown(table: pd.DataFrame, first: str) -> pd.DataFrame:
    """Return the columns that a table shows: measures and cost, with intervals."""
    names = [f"{name}{end}" for name in (*_MEASURES, "cost_per_day") for end in ("", *ENDS)]
    return table[[first, *names]]


def round_alike(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose numbers have the same decimals as those of the other tables of the page.

    Shares have a tenth of a percent, delays whole minutes, and costs one decimal place.
    """
    places = dict.fromkeys(("waste", "loss", "empty_read_share"), 3) | {"delay_min": 0, "cost_per_day": 1}
    columns = {f"{name}{end}": digits for name, digits in places.items() for end in ("", *ENDS)}
    return table.round({name: digits for name, digits in columns.items() if name in table})


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
    ends = f" ({about(low_s)} to {about(high_s)})" if np.isfinite(low_s) else ""
    median = (
        "at least half of them not late at all" if not median_s else f"half of them {about(median_s)} or more"
    )
    return f"messages are seen {about(mean_s)}{ends} late on average, {median}"
