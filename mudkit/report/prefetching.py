"""The report prefetch_sizing: how many messages to prefetch, and which expire too soon to be sent."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from mudkit import words
from mudkit.report.page import Answer, FirstScreen
from mudkit.report.source import dominant
from mudkit.sources import Outages
from mudkit.systems.lasthop import (
    Expiration,
    Forwarding,
    Push,
    RecordedEvents,
    Scenario,
    add_outages,
    compare,
    read_logs,
    size_prefetch,
)

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.systems.lasthop.study.scenario import Drawn
    from mudkit.systems.lasthop.study.sizing import Sizing

__all__ = ["BEST", "LABELS", "SizingStudy", "read_events", "study_sizing"]

LABELS: Final = {
    "limit": "prefetch limit",
    "waste": "wasted, % of forwarded",
    "loss": "lost, % of what could be read",
    "cost_percent": "waste + weight × loss, %",
    "loss_weight": "a lost one is worth",
}
"""Headings of the tables."""
BEST: Final[dict[str, Literal["low", "high"]]] = {"cost_percent": "low"}

_RECOMMENDED, _LEARNT, _ALL, _NONE, _PUSH = (
    "recommended",
    "learnt by the server",
    "all at once",
    "only when asked",
    "a push service",
)
_MAX_LIMIT: Final = 1 << 17
_MAX_THRESHOLD_S: Final = 64 * 86_400.0
_WEIGHTS: Final = (0.1, 0.3, 1.0, 3.0, 10.0)
_NEAR: Final = 4
"""Rows on screen before and after the best setting."""
_FEW_READS: Final = 30
_SHORT_DAYS: Final = 7


@dataclass(frozen=True)
class SizingStudy:
    """Settings of a prefetching server that were played on the same events.

    There are several ``runs`` where outages were drawn from the process ``assumed``, instead of a log;
    ``extended`` names ranges whose edge the best setting had reached.
    """

    name: str
    is_example: bool
    runs: Sequence[Drawn]
    assumed: Outages | None
    max_at_a_time: int
    sized: Sizing
    extended: list[str]
    policies: pd.DataFrame

    @property
    def events(self) -> Drawn:
        """Arrivals and reads, which all runs share."""
        return self.runs[0]

    @property
    def days(self) -> float:
        """Length of the events in days."""
        return max(_end_us(self.events) / 86_400e6, 1e-9)

    @property
    def down_share(self) -> float:
        """Share of time without a link, over all runs."""
        shares = []
        for run in self.runs:
            end_us = _end_us(run)
            ends_us = [0, *run.switches_us[run.switches_us < end_us].tolist(), end_us]
            lasts_us = [end - begin for begin, end in itertools.pairwise(ends_us)]
            shares.append(sum(lasts_us[1 if run.starts_up else 0 :: 2]) / end_us)
        return float(np.mean(shares))

    @property
    def has_threshold(self) -> bool:
        """True if a threshold was chosen: messages expire, and some are prefetched."""
        return bool(self.sized.limit) and self.sized.table["threshold_s"].nunique() > 1

    @property
    def _is_indifferent(self) -> bool:
        """True if no limit wastes or loses anything."""
        return bool(self.sized.by_limit["cost"].max() < 1e-9)

    def row(self, policy: str) -> pd.Series:
        """Return the row of a policy."""
        return self.policies[self.policies["policy"] == policy].iloc[0]

    def first_screen(self) -> FirstScreen:
        """Return what was read, three figures, the recommendation, what it rests on, and warnings."""
        arrivals, reads = len(self.events.arrivals_us), len(self.events.reads_us)
        read = " · ".join(
            [
                self.name,
                f"{words.number(self.days)} days",
                words.count(arrivals, "message"),
                words.count(reads, "read"),
                f"no link for {words.percent(self.down_share)} of the time",
            ]
        )
        best, limit = self.sized.best, self.sized.limit
        tiles = [
            (
                words.count(limit, "message") if limit else "none",
                "on the device before any is asked for" if limit else "is sent before it is asked for",
            ),
            (
                words.percent(best["waste"]),
                f"of what is forwarded is never read; {words.percent(self.row(_ALL)['waste'])} if all is "
                "sent at once",
            ),
            (
                words.percent(best["loss"]),
                f"of what could be read is lost; {words.percent(self.row(_NONE)['loss'])} if nothing is sent "
                "before it is asked for",
            ),
        ]
        return FirstScreen(
            read, tiles, self._headline(), self._reason(), self._assumption(), self._warnings()
        )

    def _headline(self) -> str:
        if not self.sized.limit:
            return "Prefetch nothing: send messages when they are asked for."
        text = f"Prefetch up to {words.count(self.sized.limit, 'message')}"
        if self.has_threshold and self.sized.threshold_s:
            text += f", and none that expires within {words.duration(self.sized.threshold_s)}"
        return f"{text}."

    def _reason(self) -> str:
        best = self.sized.best
        parts = [
            f"{words.percent(best[name])}{_interval(best, name)} {says}"
            for name, says in (
                ("waste", "of what is forwarded is wasted"),
                ("loss", "of what could be read is lost"),
            )
        ]
        text = f"With it {parts[0]} and {parts[1]}."
        low, high = self.sized.good_limits()
        if self._is_indifferent:
            text += " Any other limit does as well."
        elif low < high:
            text += f" The choice is not sharp: limits from {low:,} to {high:,} cost at most a point more."
        else:
            text += " Every other limit that was tried costs more than a point more."
        return text

    def _assumption(self) -> str:
        weight = self.sized.loss_weight
        text = (
            f"A lost message counts as much as {words.number(weight)} wasted "
            f"{'one' if weight == 1 else 'ones'} (`loss_weight`)."
        )
        if self.assumed is not None:
            text += (
                f" It is assumed that there is no link for {words.percent(self.assumed.share)} of the time, "
                f"in {words.number(self.assumed.per_day)} periods a day (`outage`, `outages_per_day`)."
            )
        else:
            text += " Links are those of the log of outages."
        return text

    def _warnings(self) -> list[str]:
        notes = []
        if self.is_example:
            notes.append(
                "Messages and reads are generated: give your own logs (`arrivals`, `reads`) for an answer "
                "about your users."
            )
        elif len(self.events.reads_us) < _FEW_READS:
            notes.append(
                f"There are only {words.count(len(self.events.reads_us), 'read')}: shares are coarse."
            )
        if self.days < _SHORT_DAYS:
            notes.append(
                f"The events last {words.number(self.days)} days: what is on the device at the end counts as "
                "wasted, which is much of a short log."
            )
        share = len(self.events.reads_us) * self.max_at_a_time / len(self.events.arrivals_us)
        if share < 1:
            notes.append(
                f"At most {words.count(self.max_at_a_time, 'message')} at a time, no more than "
                f"{words.percent(share)} of the messages can be read (`max_at_a_time`)."
            )
        notes += self._dominance()
        if self.extended:
            notes.append(
                f"The best setting lay at the edge of the {' and '.join(self.extended)} tried first; the "
                "range was extended until it no longer did."
            )
        if self.sized.limit >= _MAX_LIMIT:
            notes.append(f"No limit above {_MAX_LIMIT:,} was tried: forward all.")
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

    def limit_answer(self) -> Answer:
        """Return the heading of the limits that were tried."""
        low, high = self.sized.good_limits()
        limit = self.sized.limit
        if self._is_indifferent:
            title = "No limit is better than another: nothing is wasted or lost with any"
        elif not limit:
            title = "Whatever is prefetched costs more than it saves"
        elif low == high:
            title = f"Fewer than {limit:,} messages lose some, more are wasted"
        else:
            title = f"Limits from {low:,} to {high:,} cost about the same"
        return Answer(
            title,
            "A small limit leaves the user without messages when there is no link; a large one fills the "
            "device with what nobody reads.",
        )

    def threshold_answer(self) -> Answer:
        """Return the heading of the thresholds that were tried."""
        if self.sized.table["threshold_s"].nunique() == 1:
            return Answer(
                "Nothing expires, so there is no threshold to choose",
                "A threshold keeps back what expires before it can be read.",
            )
        if not self.sized.limit:
            return Answer(
                "Nothing is prefetched, so no threshold matters",
                "A threshold keeps back what expires before it can be read.",
            )
        costs = self.sized.by_threshold.set_index("threshold_s")["cost"].to_dict()
        saved = 100 * (float(costs[0.0]) - self.sized.best["cost"])
        title = (
            f"What expires within {words.duration(self.sized.threshold_s)} is better not prefetched"
            if self.sized.threshold_s
            else "Nothing expires too soon to be prefetched"
        )
        return Answer(
            title,
            "What expires before the next read is better not sent; but what expires while there is no "
            f"link is lost, if it was not sent before. The threshold saves "
            f"{words.number(round(saved, 1))} points.",
        )

    def policies_answer(self) -> Answer:
        """Return the heading of the comparison with other policies."""
        table = self.policy_table()
        costs = dict(zip(table["policy"], table["cost_percent"].tolist(), strict=True))
        recommended = costs.pop(_RECOMMENDED)
        best = min(costs, key=lambda name: costs[name])
        differs = costs[best] - recommended
        if self._is_indifferent:
            return Answer("All policies do equally well")
        if differs < 0.05:
            return Answer(f"“{best}” does as well without a limit to choose")
        return Answer(
            f"The recommended setting costs {words.number(round(differs, 1))} points less than “{best}”"
        )

    def weights_answer(self) -> Answer:
        """Return how the limit follows the worth of a lost message, as a heading."""
        table = self.weights()
        low, high = int(table["limit"].min()), int(table["limit"].max())
        if low == high:
            return Answer("The limit is the same whatever a lost message is worth")
        return Answer(
            f"The limit lies between {low:,} and {high:,} if a lost message is worth "
            f"{words.number(_WEIGHTS[0])} to {words.number(_WEIGHTS[-1])} wasted ones"
        )

    def limit_table(self) -> pd.DataFrame:
        """Return waste, loss and cost by limit, with the recommended threshold."""
        return _with_cost(self.sized.by_limit, self.sized.loss_weight, "limit")

    def threshold_table(self) -> pd.DataFrame:
        """Return waste, loss and cost by threshold, with the recommended limit."""
        table = self.sized.by_threshold
        table["threshold"] = [words.duration(entry) if entry else "none" for entry in table["threshold_s"]]
        return _with_cost(table, self.sized.loss_weight, "threshold")

    def near(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a table of settings around the one with the least cost, at most nine."""
        at = int(table["cost_percent"].to_numpy().argmin())
        begin = max(min(at - _NEAR, len(table) - 2 * _NEAR - 1), 0)
        return table.iloc[begin : begin + 2 * _NEAR + 1]

    def policy_table(self) -> pd.DataFrame:
        """Return waste, loss and cost of the policies."""
        return _with_cost(self.policies, self.sized.loss_weight, "policy")

    def weights(self) -> pd.DataFrame:
        """Return what would be recommended, were a lost message worth more wasted ones, or fewer."""
        table = self.sized.by_weight(_WEIGHTS)
        limits = zip(table["limit"], table["threshold_s"], strict=True)
        table["threshold"] = [
            (words.duration(entry) if entry else "none") if limit else words.NO_VALUE
            for limit, entry in limits
        ]
        names = ["waste", "loss"]
        bounds = [f"{name}{end}" for name in names for end in ("_low", "_high")]
        return table[["loss_weight", "limit", "threshold", *names, *bounds]]


def read_events(
    arrivals: str,
    reads: str,
    outages: str,
    *,
    tz: str,
    example: dict[str, Any],
    assumed: Outages,
    seeds: range,
) -> tuple[str, list[Drawn]]:
    """Read the logs (empty: none), or draw an example; draw outages unless there is a log of them."""
    if arrivals:
        events = read_logs(arrivals, reads, outages or None, tz=tz)
        name = ", ".join(Path(entry).name for entry in (arrivals, reads, outages) if entry)
        return name, [events] if outages else add_outages(events, assumed, seeds)
    scenario = Scenario(
        example["arrivals_per_day"],
        example["reads_per_day"],
        expiration=Expiration(3600 * example["expiration_h"]),
        days=example["days"],
    )
    return "a generated example", add_outages(scenario.draw(example["seed"]), assumed, seeds)


def study_sizing(
    name: str,
    runs: list[Drawn],
    assumed: Outages | None,
    *,
    is_example: bool,
    max_at_a_time: int,
    threshold: float,
    loss_weight: float,
) -> SizingStudy:
    """Search for the limit and the threshold that cost least, and compare them with other policies.

    A lost message is worth ``loss_weight`` wasted ones; ``threshold`` is that of the rank.
    """
    played: dict[str, Any] = {"max": max_at_a_time, "threshold": threshold}
    sized, extended = _search(runs, loss_weight, played)
    policies: dict[str, Forwarding | Push] = {
        _RECOMMENDED: Forwarding("buffer", sized.limit, expiration_threshold_s=sized.threshold_s),
        _LEARNT: Forwarding.of("unified"),
        _ALL: Forwarding("on-line"),
        _NONE: Forwarding("on-demand"),
        _PUSH: Push(),
    }
    table = compare({"these events": RecordedEvents(runs)}, policies, seeds=range(len(runs)), **played)
    return SizingStudy(
        name,
        is_example,
        runs,
        assumed,
        max_at_a_time,
        sized,
        extended,
        table.drop(columns=["condition", "runs"]),
    )


def _search(runs: list[Drawn], loss_weight: float, played: dict[str, Any]) -> tuple[Sizing, list[str]]:
    """Try limits and thresholds, further ones while the best is the largest, then limits around the best."""
    search = size_prefetch(runs, loss_weight=loss_weight, **played)
    extended = []

    def tried(**which: Any) -> Sizing:
        others = {
            "limits": search.table["limit"].unique(),
            "thresholds_s": search.table["threshold_s"].unique(),
        }
        return search.join(size_prefetch(runs, loss_weight=loss_weight, **others | which, **played))

    while search.limit == search.table["limit"].max() and search.limit < _MAX_LIMIT:
        wider = tried(limits=[2 * search.limit])
        if not _is_cheaper(wider, search):
            break
        search = wider
        extended.append("limits")
    while (
        0 < search.threshold_s == search.table["threshold_s"].max() and search.threshold_s < _MAX_THRESHOLD_S
    ):
        wider = tried(thresholds_s=[2 * search.threshold_s])
        if not _is_cheaper(wider, search):
            break
        search = wider
        extended.append("thresholds")
    if search.limit > 2:
        near = {round(search.limit * part) for part in (0.625, 0.75, 0.875, 1.25, 1.5, 1.75)}
        thresholds_s = sorted(search.table["threshold_s"].unique())
        at = thresholds_s.index(search.threshold_s)
        search = tried(limits=near, thresholds_s=thresholds_s[max(at - 1, 0) : at + 2])
        search = tried(limits=[search.limit])
    return search, list(dict.fromkeys(extended))


def _is_cheaper(one: Sizing, other: Sizing) -> bool:
    return one.best["cost"] < other.best["cost"] - 1e-9


def _with_cost(table: pd.DataFrame, weight: float, first: str) -> pd.DataFrame:
    bounds = [f"{name}{end}" for name in ("waste", "loss") for end in ("", "_low", "_high")]
    cost = 100 * (table["waste"] + weight * table["loss"])
    return table.assign(cost_percent=cost)[[first, *bounds, "cost_percent"]]


def _interval(best: dict[str, float], name: str) -> str:
    low, high = (100 * best[f"{name}_{end}"] for end in ("low", "high"))
    if not np.isfinite(low) or round(low, 1) == round(high, 1):
        return ""
    return f" ({words.interval(low, high, 1)})"


def _end_us(run: Drawn) -> int:
    return max(int(run.arrivals_us[-1]), int(run.reads_us[-1]), 1)
