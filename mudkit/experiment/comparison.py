"""Comparisons: systems on the same seeds, and what differs between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mudkit.errors import ParameterError
from mudkit.events import Network
from mudkit.experiment.running import System, check_system, run
from mudkit.experiment.scenario import Scenario
from mudkit.progress import bar
from mudkit.sources.parameters import of_kind

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare", "interval"]


@dataclass(frozen=True)
class Comparison:
    """Several systems on the same seeds.

    Parameters
    ----------
    runs : pandas.DataFrame
        One row per (system, seed), with the measures of each run.
    baseline : str
        The system that the others are compared with.
    """

    runs: pd.DataFrame
    baseline: str

    def differences(self, confidence: float = 0.95) -> pd.DataFrame:
        """Give what a system changes against the baseline, paired by seed.

        Parameters
        ----------
        confidence : float
            The confidence of the intervals (Student's t over the seeds' differences), which are NaN with
            fewer than two seeds.

        Returns
        -------
        pandas.DataFrame
            ``system, measure, baseline, mean, difference, difference_low, difference_high, seeds``.

        Raises
        ------
        ParameterError
            The confidence is not between 0 and 1.
        """
        import pandas as pd

        given: Any = confidence
        if not isinstance(given, int | float) or not 0 < given < 1:
            raise ParameterError(
                "This confidence is not usable.",
                where="confidence",
                found=repr(confidence),
                expected="between 0 and 1",
            )
        measures = [name for name in self.runs.columns if name not in ("system", "seed")]
        by_system = {name: table.set_index("seed")[measures] for name, table in self.runs.groupby("system")}
        base = by_system[self.baseline]
        rows = []
        for name in dict.fromkeys(self.runs["system"]):
            if name == self.baseline:
                continue
            for measure in measures:
                pairs = pd.DataFrame({"base": base[measure], "mine": by_system[name][measure]}).dropna()
                differs = (pairs["mine"] - pairs["base"]).to_numpy()
                low, high = interval(differs, confidence)
                means = (pairs["base"].mean(), pairs["mine"].mean(), (pairs["mine"] - pairs["base"]).mean())
                rows.append((name, measure, *means, low, high, len(differs)))
        columns = ["system", "measure", "baseline", "mean", "difference", "difference_low", "difference_high",
                   "seeds"]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)


def compare(
    scenario: Scenario,
    systems: Mapping[str, Callable[[Network], System]],
    seeds: Iterable[int] = range(10),
    *,
    map: Callable[..., Iterable[dict[str, float]]] = map,  # noqa: A002 - the name of what it stands for
) -> Comparison:
    """Run systems on the same seeds.

    Parameters
    ----------
    scenario : Scenario
    systems : mapping of str to callable
        The systems by name; the first is the baseline.
    seeds : iterable of int
    map : callable
        How the runs are spread: ``map``, that of a process pool, or one that spreads over Spark.

    Raises
    ------
    ParameterError
        This is no scenario, there is no system or no seed, or one is given twice: it would count as two.
    """
    import pandas as pd

    of_kind("scenario", scenario, Scenario, expected="a scenario, such as Scenario(devices=20, hours=24)")
    if not isinstance(systems, Mapping):
        raise ParameterError(
            "These are no systems.",
            where="systems",
            found=repr(systems),
            expected="what makes each, by name, such as {'relay': StoreAndForward}",
        )
    if not isinstance(seeds, Iterable):
        raise ParameterError(
            "These are no seeds.", where="seeds", found=repr(seeds), expected="several, such as range(10)"
        )
    for make in systems.values():
        check_system(make)
    numbers = list(seeds)
    if len(set(numbers)) < len(numbers):
        raise ParameterError(
            "A seed is given twice.", where="seeds", found=repr(numbers), expected="each once"
        )
    if not systems or not numbers:
        raise ParameterError(
            "There is nothing to compare.",
            where="systems, seeds",
            found=f"{len(systems)} systems, {len(numbers)} seeds",
            expected="one of each at least",
        )
    plan = [(scenario, make, name, seed) for name, make in systems.items() for seed in numbers]
    rows = []
    with bar(len(plan), "runs", "runs") as done:
        for row in map(_measured, plan):
            rows.append(row)
            done(len(rows))
    return Comparison(pd.DataFrame(rows), next(iter(systems)))


def _measured(what: tuple[Scenario, Callable[[Network], System], str, int]) -> dict[str, Any]:
    scenario, make, name, seed = what
    one_run = run(scenario, make, seed, messages=False, held=False)
    return {"system": name, "seed": seed, **one_run.measures()}


def interval(values: Any, confidence: float) -> tuple[float, float]:
    """Give the interval of a mean (Student's t); NaN with fewer than two values."""
    if len(values) < 2:
        return math.nan, math.nan
    from scipy import stats

    mean, error = float(values.mean()), float(stats.sem(values))
    if error == 0.0:
        return mean, mean
    low, high = stats.t.interval(confidence, len(values) - 1, mean, error)
    return float(low), float(high)
