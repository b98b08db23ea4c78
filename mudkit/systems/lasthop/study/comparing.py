"""Policies on the same events, under one condition or several: means and confidence intervals."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.errors import ParameterError
from mudkit.progress import bar
from mudkit.sources.parameters import number
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.spool.push import Push
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.systems.lasthop.study.simulation import Map, Simulated, beginning, most_of, play

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Drawable", "RecordedEvents", "compare", "interval"]


class Drawable(Protocol):
    """What gives the events of a run, such as a :class:`~mudkit.systems.lasthop.study.scenario.Scenario`."""

    def draw(self, seed: int) -> Drawn:
        """Draw everything."""


@dataclass(frozen=True)
class RecordedEvents:
    """Events that are there already, numbered from 0 instead of drawn by a seed.

    Parameters
    ----------
    draws : sequence of Drawn
    """

    draws: Sequence[Drawn]

    def draw(self, seed: int) -> Drawn:
        """Give those of this number."""
        return self.draws[seed]


def compare(
    conditions: Mapping[str, Drawable],
    policies: Mapping[str, Forwarding | Push],
    *,
    max: float | None = 8,  # noqa: A002 - the name of the API
    threshold: float = 0.0,
    seeds: Iterable[int] = range(10),
    map: Map = map,  # noqa: A002 - the name of the API
) -> pd.DataFrame:
    """Run policies under conditions; all policies see the same events of a condition and seed.

    Parameters
    ----------
    conditions, policies : mapping of str
    max : int or None
        Messages at a time; None: all.
    threshold : float
    seeds : iterable of int
    map : callable
        What spreads the runs, for instance ``pipeline.spread(spark)``.

    Returns
    -------
    pandas.DataFrame
        ``condition, policy, runs``, and of ``waste`` and ``loss`` the mean over the seeds and its 95 %
        interval (bootstrap; the range below five seeds; NaN with one) as ``…_low`` and ``…_high``.

    Raises
    ------
    ParameterError
        There is nothing to run.
    """
    import pandas as pd

    numbers, most = list(seeds), most_of(max)
    number("threshold", threshold, -1e9, 1e9)
    if not (conditions and policies and numbers):
        raise ParameterError(
            "There is nothing to run.",
            where="conditions, policies, seeds",
            expected="at least one of each",
            found=f"{len(conditions)} conditions, {len(policies)} policies, {len(numbers)} seeds",
        )
    plan = [(name, conditions[name], seed) for name in conditions for seed in numbers]
    rows: list[dict[str, str | float]] = []
    with bar(len(plan), "runs", "") as done:
        for some in map(partial(_run, dict(policies), most, threshold), plan):
            rows += some
            done(len(rows) // len(policies))
    runs = pd.DataFrame(rows)
    measures = []
    for names, table in runs.groupby(["condition", "policy"], sort=False):
        row: dict[str, Hashable] = dict(zip(("condition", "policy"), names, strict=True)) | {
            "runs": len(table)
        }
        for measure in ("waste", "loss"):
            row |= interval(measure, table[measure].to_numpy())
        measures.append(row)
    return pd.DataFrame(measures)


def interval(measure: str, values: NDArray[np.float64]) -> dict[str, float]:
    """Return the mean over the seeds with its interval (:func:`mudkit.intervals.mean`)."""
    result = intervals.mean(values)
    return {measure: result.value, f"{measure}_low": result.low, f"{measure}_high": result.high}


def _run(
    policies: Mapping[str, Forwarding | Push], most: float, threshold: float, plan: tuple[str, Drawable, int]
) -> list[dict[str, str | float]]:
    name, condition, seed = plan
    drawn = condition.draw(seed)
    online = play(drawn, beginning(Forwarding("on-line"), threshold), most)
    rows: list[dict[str, str | float]] = []
    for policy, given in policies.items():
        run = Simulated(play(drawn, beginning(given, threshold), most), online, {})
        rows.append({"condition": name, "policy": policy, "waste": run.waste, "loss": run.loss})
    return rows
