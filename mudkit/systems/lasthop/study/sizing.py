"""Prefetch limit and expiration threshold that fit a user's own arrivals and reads.

All pairs of the two are run on the same events. The best has the smallest ``waste + loss_weight * loss``; of
equal ones, the one that prefetches least.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from mudkit.arguments import check_arguments
from mudkit.display import shows_fields
from mudkit.errors import ParameterError
from mudkit.progress import bar
from mudkit.sources.outages import Outages
from mudkit.sources.parameters import number
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn, Scenario
from mudkit.systems.lasthop.study.simulation import Map, Simulated, play, read_limit, spool_factory
from mudkit.systems.lasthop.study.sweeping import interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LIMITS", "THRESHOLDS_S", "Sizing", "add_outages", "size_prefetch"]

LIMITS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Messages; 0 is on-demand."""

THRESHOLDS_S: Final = (0.0, *(900.0 * 2**i for i in range(7)), 86_400.0, 172_800.0, 345_600.0)
"""Seconds, from a quarter of an hour to four days; 0 prefetches all messages that have not expired."""

_DAY_US: Final = 86_400_000_000


@shows_fields
@dataclass(frozen=True)
class Sizing:
    """Result of :func:`size_prefetch`: the recommended ``limit`` and ``threshold_s``, and all settings.

    ``table`` has a row per ``limit`` and ``threshold_s``: ``waste`` and ``loss`` with their intervals over
    the draws (``…_low``, ``…_high``; NaN with one), and ``cost``.
    """

    table: pd.DataFrame
    limit: int
    threshold_s: float
    loss_weight: float

    @property
    def best(self) -> dict[str, float]:
        """Row of the recommended setting."""
        row = self._rows(limit=self.limit, threshold_s=self.threshold_s).iloc[0]
        return {str(name): float(value) for name, value in row.items()}

    @property
    def by_limit(self) -> pd.DataFrame:
        """Rows with the recommended threshold."""
        return self._rows(threshold_s=self.threshold_s)

    @property
    def by_threshold(self) -> pd.DataFrame:
        """Rows with the recommended limit."""
        return self._rows(limit=self.limit)

    def good_limits(self, within: float = 0.01) -> tuple[int, int]:
        """Return the range of limits around the best one whose cost is at most ``within`` higher."""
        table = self.by_limit.sort_values("limit")
        good = (table["cost"] <= self.best["cost"] + within).tolist()
        limits = table["limit"].tolist()
        low = high = limits.index(self.limit)
        while low > 0 and good[low - 1]:
            low -= 1
        while high + 1 < len(limits) and good[high + 1]:
            high += 1
        return int(limits[low]), int(limits[high])

    def by_weight(self, weights: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0)) -> pd.DataFrame:
        """Return the recommended setting for several weights of the loss, with its waste and loss."""
        import pandas as pd

        rows = [{"loss_weight": weight, **_cheapest(self.table, weight)} for weight in weights]
        return pd.DataFrame(rows).astype({"limit": int})

    def join(self, other: Sizing) -> Sizing:
        """Merge the settings of two searches on the same events."""
        import pandas as pd

        keys = ["limit", "threshold_s"]
        table = pd.concat([self.table, other.table]).drop_duplicates(keys).sort_values(keys)
        best = _cheapest(table, self.loss_weight)
        return Sizing(table.reset_index(drop=True), int(best["limit"]), best["threshold_s"], self.loss_weight)

    def _rows(self, **of: float) -> pd.DataFrame:
        table = self.table
        for name, value in of.items():
            table = table[table[name] == value]
        return table.reset_index(drop=True)


@check_arguments
def size_prefetch(
    draws: Sequence[Drawn],
    *,
    max: float | None = 8,  # noqa: A002 - the name of the API
    threshold: float = 0.0,
    limits: Iterable[int] = LIMITS,
    thresholds_s: Iterable[float] = THRESHOLDS_S,
    loss_weight: float = 1.0,
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
    loss_weight : float
        The cost is ``waste + loss_weight * loss``, both shares.

    Returns
    -------
    Sizing
        The recommended setting, and the table of all.

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

    number("loss_weight", loss_weight, 0.0, 1e9)
    number("threshold", threshold, -1e9, 1e9)
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
    points: list[list[tuple[float, float]]] = []
    plan = [(drawn, limit) for limit in tried_limits for drawn in draws]
    with bar(len(plan), "runs", "") as done:
        for measured in map(partial(_measured, tried_s, read_limit(max), threshold), plan):
            points.append(measured)
            done(len(points))
    shares = np.array(points).reshape(len(tried_limits), len(draws), len(tried_s), 2)
    rows = [
        {"limit": limit, "threshold_s": threshold_s}
        | interval("waste", shares[i, :, j, 0])
        | interval("loss", shares[i, :, j, 1])
        for i, limit in enumerate(tried_limits)
        for j, threshold_s in enumerate(tried_s)
    ]
    table = pd.DataFrame(rows)
    table["cost"] = table["waste"] + loss_weight * table["loss"]
    best = _cheapest(table, loss_weight)
    return Sizing(table, int(best["limit"]), best["threshold_s"], loss_weight)


def _cheapest(table: pd.DataFrame, loss_weight: float) -> dict[str, float]:
    """Return the row with the smallest cost; of equal ones, the one that prefetches least."""
    cost = (table["waste"] + loss_weight * table["loss"]).round(9)
    order = (
        table.drop(columns="cost")
        .assign(_cost=cost)
        .sort_values(["_cost", "limit", "threshold_s"], ascending=[True, True, False])
    )
    return {str(name): float(value) for name, value in order.drop(columns="_cost").iloc[0].items()}


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


def _measured(
    thresholds_s: Sequence[float], max_messages: float, threshold: float, plan: tuple[Drawn, int]
) -> list[tuple[float, float]]:
    """Return waste and loss with one limit and each threshold."""
    drawn, limit = plan
    online = play(drawn, spool_factory(Forwarding("on-line"), threshold), max_messages)
    measured = []
    for threshold_s in (
        thresholds_s if limit else thresholds_s[:1]
    ):  # nothing is prefetched: the threshold has no effect
        policy = Forwarding("buffer", limit, expiration_threshold_s=threshold_s)
        run = Simulated(play(drawn, spool_factory(policy, threshold), max_messages), online, {})
        measured.append((run.waste, run.loss))
    return measured if limit else measured * len(thresholds_s)
