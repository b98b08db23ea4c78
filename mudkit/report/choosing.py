"""Choose a setting of prefetching on some days of a log, and score settings on the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from mudkit import words
from mudkit.intervals import MIN_REPETITIONS
from mudkit.systems.lasthop import Forwarding, Prices, Push, score_policies, size_prefetch
from mudkit.systems.lasthop.study.sizing import MAX_PRICE

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.systems.lasthop.study.readers import Days
    from mudkit.systems.lasthop.study.scenario import Drawn
    from mudkit.systems.lasthop.study.sizing import Sizing

PRICES: Final = {
    "wasted": ("a wasted message", "price_wasted"),
    "lost": ("a lost message", "price_lost"),
    "empty_read": ("a read in vain", "price_empty_read"),
    "delay_hour": ("an hour of delay", "price_delay_hour"),
}
"""Names of what has a price, and the parameters that set it."""
ENDS: Final = ("_low", "_high")
MAX_LIMIT: Final = 1 << 17
_MAX_THRESHOLD_S: Final = 64 * 86_400.0
MIN_SPLIT_DAYS: Final = 4
"""Days from which every other one is kept for scoring."""
MIN_READS: Final = 30
"""Reads below which nothing is recommended."""
SURE: Final = 1e-9
"""Cost a day up to which a difference is one of rounding."""


@dataclass(frozen=True)
class Setting:
    """Prefetch limit, and expiration threshold in seconds.

    A limit of 0: messages are sent only when they are asked for. An infinite one: all are sent at once.
    """

    limit: float
    threshold_s: float = 0.0

    @property
    def policy(self) -> Forwarding:
        """The way of forwarding."""
        if math.isfinite(self.limit):
            return buffer(int(self.limit), self.threshold_s)
        return buffer(MAX_LIMIT, self.threshold_s) if self.threshold_s else Forwarding("on-line")

    @property
    def name(self) -> str:
        """Name in tables and figures."""
        if not self.limit:
            return "only when asked"
        if math.isfinite(self.limit):
            return f"up to {self.limit:,.0f}"
        return (
            f"all but what expires within {words.duration(self.threshold_s)}"
            if self.threshold_s
            else "all at once"
        )

    @property
    def subject(self) -> str:
        """The setting as the subject of a sentence."""
        if not self.limit:
            return "sending only when asked"
        if math.isfinite(self.limit):
            return f"a limit of {self.count}"
        within = f" but what expires within {words.duration(self.threshold_s)}" if self.threshold_s else ""
        return f"sending all{within} at once"

    @property
    def count(self) -> str:
        """Messages on the device, at most, in words."""
        return f"{self.limit:,.0f}" if math.isfinite(self.limit) else "all"

    @property
    def sentence(self) -> str:
        """The setting as an order, without "to"."""
        if not self.limit:
            return "send messages only when they are asked for"
        within = f"none that expires within {words.duration(self.threshold_s)}"
        if not math.isfinite(self.limit):
            return (
                f"send messages as they come, but {within}"
                if self.threshold_s
                else "send all messages at once"
            )
        text = f"prefetch up to {words.count(int(self.limit), 'message')}"
        return f"{text}, and {within}" if self.threshold_s else text


def buffer(limit: int, threshold_s: float) -> Forwarding:
    """Return the way of forwarding with this prefetch limit and expiration threshold; 0: none."""
    return Forwarding("buffer", limit, expiration_threshold_s=threshold_s)


def pays(runs: Sequence[Drawn], sized: Sizing, played: dict[str, Any]) -> bool:
    """Return whether the expiration threshold surely saves, on the days for choosing."""
    without = sized.at(sized.prices, threshold_s=0.0)
    if not (sized.limit and sized.threshold_s):
        return False
    settings = Setting(sized.limit, sized.threshold_s), Setting(without.limit)
    return _surely_saves(runs, *settings, sized.prices, played)


def _surely_saves(
    runs: Sequence[Drawn], setting: Setting, other: Setting, prices: Prices, played: dict[str, Any]
) -> bool:
    """Return whether a setting surely costs less than another one, on the days for choosing."""
    policies = {"setting": setting.policy, "other": other.policy}
    table = score_policies(runs, policies, prices=prices, days=pick_days(runs[0], "odd"), **played)
    return bool(table["saved_per_day_low"].iloc[1] > SURE)


def prefer_simpler(
    chosen_on: Sequence[Drawn], scored_on: Sequence[Drawn], sized: Sizing, played: dict[str, Any]
) -> Setting:
    """Return the simplest setting that does not surely cost more than the chosen one where it is scored.

    Simplest are to send all at once and to send only when asked, which need no number; of these the one that
    costs less on the days for choosing. What is sent at once has an expiration threshold if that surely saves
    on the days for choosing. Then comes an expiration threshold alone. To send only when asked leaves readers
    without a link with nothing, so that it must not cost more on the days for choosing either.
    """
    chosen = Setting(sized.limit, sized.threshold_s)
    if not (chosen.limit and has_enough(scored_on[0])):
        return chosen

    def priced(runs: Sequence[Drawn], which: Days) -> pd.DataFrame:
        policies = {"chosen": chosen.policy, **{setting.name: setting.policy for setting in simpler}}
        days = pick_days(runs[0], which)
        return score_policies(runs, policies, prices=sized.prices, days=days, **played).set_index("policy")

    simpler = [Setting(0), Setting(math.inf)]
    if chosen.threshold_s:
        simpler.append(Setting(math.inf, chosen.threshold_s))
    scores = priced(scored_on, "even")
    # What costs nothing is not beaten by chance.
    column = "saved_per_day_low" if scores.loc["chosen", "cost_per_day"] else "cost_per_day"
    more = {str(name): float(value) for name, value in scores[column].items()}
    costs = priced(chosen_on, "odd")["cost_per_day"].round(9)
    good = [
        setting
        for setting in simpler
        if not more[setting.name] > SURE and (setting.limit or costs[setting.name] <= costs["chosen"])
    ]
    if not good:
        return chosen
    best = min(good, key=lambda setting: (setting.threshold_s > 0, costs[setting.name], setting.limit))
    if best != Setting(math.inf):
        return best
    wide = sized.at(sized.prices, min_limit=int(sized.table["limit"].max()))
    expiring = Setting(math.inf, wide.threshold_s)
    saves = wide.threshold_s and _surely_saves(chosen_on, expiring, best, sized.prices, played)
    return expiring if saves else best


def score(
    runs: Sequence[Drawn],
    policies: Mapping[Any, Forwarding | Push],
    first: str,
    scored: dict[str, Any],
    chosen: Any = None,
) -> pd.DataFrame:
    """Return the scores of policies by what names them, with delays in minutes too.

    What is saved is compared with the ``chosen`` one, or the first.
    """
    compared = [policies[chosen]] if chosen in policies else []
    once = {repr(policy): policy for policy in [*compared, *policies.values()]}
    table = score_policies(runs, once, **scored).set_index("policy")
    table = table.loc[[repr(policy) for policy in policies.values()]].reset_index(drop=True)
    table.insert(0, first, list(policies))
    in_minutes = {f"delay_min{end}": table[f"delay_s{end}"] / 60 for end in ("", *ENDS)}
    return table.assign(**in_minutes)


def vary_prices(prices: Prices) -> dict[str, Prices]:
    """Return the prices, and those of which one is halved or doubled."""
    variants = {"as assumed": prices}
    for entry in fields(prices):
        what, price = PRICES[entry.name][0], getattr(prices, entry.name)
        for named, factor in (("halved", 0.5), ("doubled", 2.0)):
            changed = min(factor * price, MAX_PRICE)
            variants[f"{what} {named}, {words.number(changed)}"] = replace(prices, **{entry.name: changed})
    return variants


def search_setting(
    runs: list[Drawn], prices: list[Prices], played: dict[str, Any], days: Days
) -> tuple[Sizing, list[str]]:
    """Try settings, further ones while a best one is the largest, then some around the best ones.

    The best ones are those of all ``prices``; the first of these are the user's own.
    """
    search = size_prefetch(runs, prices=prices[0], days=days, **played)
    extended = []

    def tried(**which: Any) -> Sizing:
        others = {
            "limits": search.table["limit"].unique().tolist(),
            "thresholds_s": search.table["threshold_s"].unique().tolist(),
        }
        return search.join(size_prefetch(runs, prices=prices[0], days=days, **others | which, **played))

    for name, range_name, most in (
        ("limit", "limits", MAX_LIMIT),
        ("threshold_s", "thresholds_s", _MAX_THRESHOLD_S),
    ):
        while 0 < (edge := search.table[name].max()) < most:
            if all(getattr(search.at(one), name) < edge for one in prices):
                break
            wider = tried(**{range_name: [type(edge)(2 * edge).item()]})
            if not any(_is_cheaper(wider.at(one), search.at(one)) for one in prices):
                break
            search = wider
            extended.append(range_name.removesuffix("_s"))
    for best in {(one.limit, one.threshold_s) for one in map(search.at, prices)}:
        if best[0] > 2:
            near = sorted({round(best[0] * part) for part in (0.625, 0.75, 0.875, 1.25, 1.5, 1.75)})
            thresholds_s = sorted(search.table["threshold_s"].unique().tolist())
            at = thresholds_s.index(best[1])
            search = tried(limits=near, thresholds_s=thresholds_s[max(at - 1, 0) : at + 2])
    return search, list(dict.fromkeys(extended))


def _is_cheaper(one: Sizing, other: Sizing) -> bool:
    """Return whether the best setting of one search costs less a day, by more than rounding."""
    return one.best["cost_per_day"] < other.best["cost_per_day"] - 1e-9


def pick_days(drawn: Drawn, which: Days) -> Days:
    """Return the days that count: all of a log that is too short to be split."""
    return which if count_days(drawn) >= MIN_SPLIT_DAYS else "all"


def count_days(drawn: Drawn) -> int:
    """Return the number of days that the events touch, counted from their begin."""
    return find_end_us(drawn) // 86_400_000_000 + 1


def count_scored_days(drawn: Drawn) -> int:
    """Return the number of days on which settings are scored: every second one, or all of a short log."""
    days = count_days(drawn)
    return days // 2 if days >= MIN_SPLIT_DAYS else days


def has_enough(drawn: Drawn) -> bool:
    """Return whether there are enough reads and days to recommend a setting."""
    return len(drawn.reads_us) >= MIN_READS and count_scored_days(drawn) >= MIN_REPETITIONS


def find_end_us(run: Drawn) -> int:
    """Return the time of the last arrival or read, at least 1 µs."""
    return max(int(run.arrivals_us[-1]), int(run.reads_us[-1]), 1)
