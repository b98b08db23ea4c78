"""Last hop: the sweeps that rows are measured by, on two processes, and what is taken from their tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from mudkit.processes import spread_out
from mudkit.reproduce.row import Figure
from mudkit.systems.lasthop import FIGURES, sweep

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FEW", "falls", "figure_sweep", "of_seeds", "together", "worst"]

_MANY: Final = 100
"""From so many runs on, another process is worth its beginning."""
FEW: Final = 30
"""Of fewer messages no share is taken."""


def figure_sweep(
    number: int, over: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any], seeds: Sequence[int]
) -> pd.DataFrame:
    """Run the sweep of one of the paper's figures.

    Parameters
    ----------
    number : int
        The number of the paper's figure.
    over, fixed : mapping
        Parameters that take other values than in the figure: several values, and one value.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    figure = FIGURES[number]
    whole = {**figure["over"], **over}
    left = {name: values for name, values in whole.items() if name not in fixed}
    settings = {**figure["fixed"], **fixed}
    if math.prod(map(len, left.values())) * len(seeds) < _MANY:
        return sweep(left, settings, seeds)
    with spread_out() as over_processes:
        return sweep(left, settings, seeds, map=over_processes)


def of_seeds(table: pd.DataFrame, value: str, **where: Any) -> Figure:
    """Sum up a value over the seeds of one point."""
    for name, wanted in where.items():
        table = table[table[name] == wanted]
    return Figure.of(table[value].tolist())


def worst(table: pd.DataFrame, value: str, by: str, **where: Any) -> Figure:
    """Sum up a value over the seeds of the point at which its median is largest."""
    points = table[by].unique().tolist()
    return max(
        (of_seeds(table, value, **where, **{by: each}) for each in points), key=lambda each: each.median
    )


def together(table: pd.DataFrame, by: str, **where: Any) -> tuple[list[Any], list[float]]:
    """Give the loss over all seeds together, along one parameter, where enough is read to say anything."""
    for name, wanted in where.items():
        table = table[table[name] == wanted]
    sums = table.assign(lost=table["loss"] * table["best"]).groupby(by)[["lost", "best"]].sum()
    sums = sums[sums["best"] >= FEW]
    return sums.index.tolist(), (sums["lost"] / sums["best"]).tolist()


def falls(values: Sequence[float], by: float = 0.0) -> int:
    """Count the steps at which a series falls by more than some amount."""
    return sum(after < before - by for before, after in pairwise(values))
