"""Prefetch limit and expiration threshold that fit a user's own arrivals and reads.

All pairs of the two are run on the same events. The best has the smallest cost, by the prices of a wasted
message, a lost one, a read in vain and an hour of delay; of equal ones, the one that prefetches least. What
the choice is worth is measured on other days and outages than it was chosen on (:func:`score_policies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.checks import Range, check_arguments
from mudkit.display import shows_fields
from mudkit.errors import ParameterError
from mudkit.progress import bar
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.push import Push
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.readers import COUNTS, Days, Reader
from mudkit.systems.lasthop.study.scenario import Drawn, Scenario
from mudkit.systems.lasthop.study.simulation import Map, read_limit

if TYPE_CHECKING:
    import pandas as pd

LIMITS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Messages; 0 is on-demand."""

THRESHOLDS_S: Final = (0.0, *(900.0 * 2**i for i in range(7)), 86_400.0, 172_800.0, 345_600.0)
"""Seconds, from a quarter of an hour to four days; 0 prefetches all messages that have not expired."""

_DAY_US: Final = 86_400_000_000
_RATIOS: Final = {
    "waste": ("wasted", "forwarded"),
    "loss": ("lost", "readable"),
    "empty_read_share": ("empty", "reads"),
    "delay_s": ("delay_h", "seen"),
}
"""Measures, and the counts whose ratio they are."""
_COSTS: Final = tuple(f"{name}_per_day" for name in ("wasted", "lost", "empty", "delay_h"))
MAX_PRICE: Final = 1e9


@check_arguments(types=False)
@dataclass(frozen=True)
class Prices:
    """Prices of what goes wrong, in any one currency; by default that of a wasted message is the unit.

    Parameters
    ----------
    wasted : float
        A message that is forwarded and never read.
    lost : float
        A message that is not read, and would have been under on-line forwarding.
    empty_read : float
        A read without a link that misses something that waits.
    delay_hour : float
        An hour for which a message is seen later than a link would have shown it. By default a lost message
        is worth ten days.

    Raises
    ------
    ParameterError
        A price is below 0.
    """

    wasted: Annotated[float, Range(0.0, MAX_PRICE)] = 1.0
    lost: Annotated[float, Range(0.0, MAX_PRICE)] = 5.0
    empty_read: Annotated[float, Range(0.0, MAX_PRICE)] = 5.0
    delay_hour: Annotated[float, Range(0.0, MAX_PRICE)] = 0.02

    def of_counts(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the cost of counts, whose last axis is that of :data:`~…readers.COUNTS`."""
        weights = {
            "wasted": self.wasted, "lost": self.lost, "empty": self.empty_read, "delay_h": self.delay_hour,
        }  # fmt: skip
        return np.asarray(counts @ np.array([weights.get(name, 0.0) for name in COUNTS]), dtype=np.float64)


@shows_fields
@dataclass(frozen=True)
class Sizing:
    """Result of :func:`size_prefetch`: the ``limit`` and ``threshold_s`` of least cost, and all settings.

    ``table`` has a row per ``limit`` and ``threshold_s``: ``waste``, ``loss``, ``empty_read_share`` and
    ``delay_s`` (mean), what each price is for, by day (``wasted_per_day, lost_per_day, empty_per_day,
    delay_h_per_day``), and ``cost_per_day``.
    """

    table: pd.DataFrame
    limit: int
    threshold_s: float
    prices: Prices

    @property
    def best(self) -> dict[str, float]:
        """Row of the best setting."""
        table = self.table
        row = table[(table["limit"] == self.limit) & (table["threshold_s"] == self.threshold_s)].iloc[0]
        return {str(name): float(value) for name, value in row.items()}

    def at(self, prices: Prices, *, min_limit: int = 0, threshold_s: float | None = None) -> Sizing:
        """Return the best setting at other prices, among limits from ``min_limit`` on, with any threshold."""
        table = _with_costs(self.table, prices)
        limits, thresholds_s = table["limit"].to_numpy(), table["threshold_s"].to_numpy()
        is_tried = limits >= min_limit
        if threshold_s is not None:
            is_tried &= thresholds_s == threshold_s
        among = np.flatnonzero(is_tried)
        costs = table["cost_per_day"].to_numpy()[among].round(9)
        best = among[np.lexsort((-thresholds_s[among], limits[among], costs))[0]]
        return Sizing(table, int(limits[best]), float(thresholds_s[best]), prices)

    def join(self, other: Sizing) -> Sizing:
        """Merge the settings of two searches on the same events."""
        import pandas as pd

        keys = ["limit", "threshold_s"]
        table = pd.concat([self.table, other.table]).drop_duplicates(keys).sort_values(keys)
        return replace(self, table=table.reset_index(drop=True)).at(self.prices)


@check_arguments
def size_prefetch(
    draws: Sequence[Drawn],
    *,
    max: float | None = 8,  # noqa: A002 - the name of the API
    threshold: Annotated[float, Range(-1e9, 1e9)] = 0.0,
    limits: Iterable[int] = LIMITS,
    thresholds_s: Iterable[float] = THRESHOLDS_S,
    prices: Prices = Prices(),
    days: Days = "all",
    map: Map = map,  # noqa: A002 - the name of the API
) -> Sizing:
    """Find the prefetch limit and the expiration threshold with the smallest cost.

    Parameters
    ----------
    draws : sequence of Drawn
        Events; several draws where outages are not known and were drawn.
    max, threshold, map
        As for :func:`compare`.
    limits : iterable of int
    thresholds_s : iterable of float
        Expiration thresholds to try; only 0 if nothing expires.
    prices : Prices
    days : {'all', 'odd', 'even'}
        Days that count: choose on one half, and score (:func:`score_policies`) on the other.

    Returns
    -------
    Sizing
        The best setting, and the table of all.

    Raises
    ------
    ParameterError
        There is nothing to try.

    Examples
    --------
    >>> from mudkit.sources import Outages
    >>> from mudkit.systems.lasthop import Scenario
    >>> scenario = Scenario(days=30, outages=Outages(0.3))
    >>> size_prefetch([scenario.draw(seed) for seed in range(3)], limits=(0, 8, 32)).limit
    8
    """
    import pandas as pd

    expires = any((drawn.expires_us < FOREVER_US).any() for drawn in draws)
    tried_limits = sorted(set(limits))
    tried_s = sorted(set(thresholds_s)) if expires else [0.0]
    if not (tried_limits and tried_s and len(draws)):
        raise ParameterError(
            "There is nothing to try.",
            where="draws, limits, thresholds_s",
            expected="at least one of each",
            found=f"{len(draws)} draws, {len(tried_limits)} limits, {len(tried_s)} thresholds",
        )
    settings = [
        # Where nothing is prefetched, the threshold has no effect. Limits rise: those that keep nothing back
        # follow each other.
        (limit, threshold_s)
        for threshold_s in tried_s
        for limit in tried_limits
        if limit or threshold_s == tried_s[0]
    ]
    sums = np.zeros((len(settings), len(COUNTS)))
    played = partial(_sum_counts, settings, read_limit(max), threshold, days)
    counted_days = 0
    with bar(len(draws), "draws", "") as done:
        for number_of_draws, (summed, lasting) in enumerate(map(played, draws), start=1):
            sums += summed
            counted_days += lasting
            done(number_of_draws)
    by_setting = dict(zip(settings, sums, strict=True))
    rows = [
        {"limit": limit, "threshold_s": threshold_s}
        | _measures_of(by_setting[limit, threshold_s if limit else tried_s[0]], counted_days)
        for limit in tried_limits
        for threshold_s in tried_s
    ]
    return Sizing(pd.DataFrame(rows), 0, 0.0, prices).at(prices)


def _sum_counts(
    settings: Sequence[tuple[int, float]], max_messages: float, threshold: float, days: Days, drawn: Drawn
) -> tuple[NDArray[np.float64], int]:
    """Return the counts of each setting over the days that count, and how many days that are."""
    reader = Reader.of(drawn, threshold, max_messages)
    sums = []
    for limit, threshold_s in settings:
        policy = Forwarding("buffer", limit, expiration_threshold_s=threshold_s)
        by_day = reader.view(policy).by_day(days)
        sums.append(by_day.sum(axis=0))
    return np.array(sums), len(by_day)


def _measures_of(sums: NDArray[np.float64], days: int) -> dict[str, float]:
    """Return shares, mean delay and counts per day from the sums of some days."""
    counts = dict(zip(COUNTS, sums.tolist(), strict=True))
    measures = {
        name: counts[part] / counts[whole] if counts[whole] else 0.0
        for name, (part, whole) in _RATIOS.items()
    }
    measures["delay_s"] *= 3600
    of_days = days or 1
    return measures | {name: counts[name.removesuffix("_per_day")] / of_days for name in _COSTS}


def _with_costs(table: pd.DataFrame, prices: Prices) -> pd.DataFrame:
    """Return the table of settings with their costs per day at these prices."""
    of_each = (prices.wasted, prices.lost, prices.empty_read, prices.delay_hour)
    return table.assign(
        cost_per_day=sum(price * table[name] for price, name in zip(of_each, _COSTS, strict=True))
    )


@check_arguments
def score_policies(
    draws: Sequence[Drawn],
    policies: Mapping[str, Forwarding | Push],
    *,
    max: float | None = 8,  # noqa: A002 - the name of the API
    threshold: Annotated[float, Range(-1e9, 1e9)] = 0.0,
    prices: Prices = Prices(),
    days: Days = "all",
) -> pd.DataFrame:
    """Measure policies on the same events, with intervals over days and draws.

    Parameters
    ----------
    draws : sequence of Drawn
        Draws of outages for the same arrivals and reads.
    policies : mapping of str to Forwarding or Push
        The others are compared with the first.
    max, threshold
        As for :func:`compare`.
    prices : Prices
    days : {'all', 'odd', 'even'}
        Days that count.

    Returns
    -------
    pandas.DataFrame
        ``policy``; ``waste``, ``loss``, ``empty_read_share`` and ``delay_s`` (mean), each with the ends of
        its 95 % interval (:func:`mudkit.intervals.by_day`; NaN below five days, and where a measure cannot
        differ from what it is); ``delay_median_s``; ``cost_per_day`` with its interval; ``saved_per_day``, by
        how much the first policy costs less than this one, with its interval.

    Raises
    ------
    ParameterError
        There is nothing to run.
    """
    import pandas as pd

    max_messages = read_limit(max)
    if not (len(draws) and policies):
        raise ParameterError(
            "There is nothing to run.",
            where="draws, policies",
            expected="at least one of each",
            found=f"{len(draws)} draws, {len(policies)} policies",
        )
    readers = [Reader.of(drawn, threshold, max_messages) for drawn in draws]
    has_outage = any(len(drawn.switches_us) or not drawn.starts_up for drawn in draws)
    rows, first = [], None
    with bar(len(policies), "policies", "") as done:
        for name, policy in policies.items():
            seen = [reader.view(policy) for reader in readers]
            counts = np.stack([one.by_day(days) for one in seen], axis=1)
            delays_s = np.concatenate([one.delays_s(days) for one in seen])
            row: dict[str, str | float] = {"policy": name}
            for measure, (part, whole) in _RATIOS.items():
                scale, kind = (3600.0, "positive") if measure == "delay_s" else (1.0, "share")
                is_fixed = measure in _certain_measures(policy, has_outage=has_outage)
                row |= _interval_columns(measure, counts[..., COUNTS.index(part)] * scale,
                                 counts[..., COUNTS.index(whole)], kind, is_fixed=is_fixed)  # fmt: skip
            row["delay_median_s"] = float(np.median(delays_s)) if len(delays_s) else np.nan
            costs = prices.of_counts(counts)
            first = costs if first is None else first
            row |= _interval_columns("cost_per_day", costs, np.ones(costs.shape), "positive")
            row |= _interval_columns("saved_per_day", costs - first, np.ones(costs.shape), "any")
            rows.append(row)
            done(len(rows))
    return pd.DataFrame(rows)


def _interval_columns(
    name: str, parts: NDArray[np.float64], wholes: NDArray[np.float64], kind: str, *, is_fixed: bool = False
) -> dict[str, float]:
    """Return a measure with the ends of its interval over days and draws, as columns of a table."""
    measured = intervals.by_day(parts, wholes, kind)  # type: ignore[arg-type]
    value = 0.0 if np.isnan(measured.value) else measured.value
    low, high = (np.nan, np.nan) if is_fixed else (measured.low, measured.high)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _certain_measures(policy: Forwarding | Push, *, has_outage: bool) -> set[str]:
    """Return the measures that are 0 by their definition: no sample makes them uncertain."""
    fixed = set() if has_outage else {"empty_read_share"}
    if isinstance(policy, Forwarding):
        if policy.kind == "on-demand" or (policy.kind == "buffer" and policy.prefetch_limit == 0):
            fixed.add("waste")
        if policy.kind == "on-line" or not has_outage:
            fixed.add("loss")
    return fixed


@check_arguments
def add_outages(drawn: Drawn, outages: Outages, seeds: Iterable[int]) -> list[Drawn]:
    """Return the same arrivals and reads with random outages, once for each seed.

    Parameters
    ----------
    drawn : Drawn
    outages : Outages
    seeds : iterable of int
    """
    end_us = int(np.concatenate([drawn.arrivals_us, drawn.reads_us]).max(initial=0))
    days = end_us // _DAY_US + 1
    runs = []
    for seed in seeds:
        links = Scenario(0.0, 0.0, outages, days=days).draw(seed)
        switches_us = links.switches_us[links.switches_us <= end_us]
        runs.append(replace(drawn, switches_us=switches_us, starts_up=links.starts_up))
    return runs
