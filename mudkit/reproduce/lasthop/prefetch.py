"""L3 and L4: prefetching up to a limit, and on-demand forwarding, by the share of time without a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mudkit.reproduce.lasthop.runs import falls, figure_sweep, of_seeds, together, worst
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BAND", "OFTEN", "OUTAGES_PER_DAY", "measure_limits", "measure_on_demand"]

BAND: Final = (16, 64)
"""The prefetch limits between which the paper has both below 1 %."""
OUTAGES_PER_DAY: Final = (1, 4, 12, 24)
OFTEN: Final = (12, 24)
"""Outages a day at which the band is there."""
_LITTLE: Final = 0.01


def measure_limits(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    outages_per_day: Sequence[int] = OUTAGES_PER_DAY,
    days: int = 365,
    seeds: Sequence[int] = range(5),
) -> Measured:
    """Measure row L3.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    over : mapping, optional
        Parameters whose values are to differ from those of Figure 3, with these values.
    outages_per_day : sequence of int
        The mean numbers of outages a day to try.
    days : int
        The length of each run, in days of virtual time.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    figures: dict[str, Figure] = {}
    rising = falling = 0
    low, high = BAND
    for often in outages_per_day:
        say(f"waste and loss by prefetch limit, {often} outages a day")
        table = figure_sweep(3, over or {}, {"outages_per_day": often, "days": days}, seeds)
        named = f"{often} a day"
        for value, limit in (("loss", low), ("loss", high), ("waste", low), ("waste", high)):
            figures[f"{value} at {limit}, {named}"] = worst(table, value, "outage", prefetch_limit=limit)
        figures[f"band begins at, {named}"] = Figure.of([_first(table, "loss", _LITTLE)])
        figures[f"waste at the largest limit, {named}"] = worst(
            table, "waste", "outage", prefetch_limit=table["prefetch_limit"].max()
        )
        if often in OFTEN:
            rising += _falls(table, "loss", -1.0, 1, low)
            falling += _falls(table, "waste", 1.0, high, table["prefetch_limit"].max())
    say("the same where the reads a day vary by a quarter")
    wide = figure_sweep(3, {"prefetch_limit": BAND[:1]}, {"days": days, "reads_cv": 0.25}, seeds)
    figures["loss at 16, 12 a day, reads with a spread of a quarter"] = worst(wide, "loss", "outage")
    figures["steps up to 16 at which the loss rises"] = Figure.of([rising])
    figures["steps from 64 on at which the waste falls"] = Figure.of([falling])
    stated = table.attrs["parameters"] | {"outages_per_day": list(outages_per_day)}
    return Measured(figures, stated | {"each figure": "at the outage share at which it is largest"})


def measure_on_demand(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    days: int = 365,
    seeds: Sequence[int] = range(5),
) -> Measured:
    """Measure row L4.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    over : mapping, optional
        Parameters whose values are to differ from those of Figure 2, with these values.
    days : int
        The length of each run, in days of virtual time.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    say("loss by downtime and reads a day")
    table = figure_sweep(2, over or {}, {"days": days}, seeds)
    figures = {
        f"loss at {share:.0%} downtime": worst(table, "loss", "user_frequency", outage=share)
        for share in (0.0, 1.0)
    }
    drops, peaks = 0, []
    for often in table["user_frequency"].unique().tolist():
        shares, losses = together(table, "outage", user_frequency=often)
        drops += falls(losses)
        peaks.append(shares[losses.index(max(losses))])
        lost = dict(zip(shares, losses, strict=True))
        figures[f"loss at 50 % over loss at 95 %, {often:g} a day"] = Figure.of([lost[0.5] / lost[0.95]])
        figures[f"loss at 95 %, {often:g} a day"] = of_seeds(table, "loss", outage=0.95, user_frequency=often)
    figures["steps before total outage at which the loss falls"] = Figure.of([drops])
    figures["downtime at which the loss is largest"] = Figure.of(peaks)
    straight = "a straight line would have 0.526 as loss at 50 % over loss at 95 %"
    return Measured(figures, table.attrs["parameters"] | {"for comparison": straight})


def _first(table: pd.DataFrame, value: str, bound: float) -> float:
    """Give the least limit from which on a value is below a bound at every outage share."""
    first = float("inf")
    for limit in sorted(table["prefetch_limit"].unique().tolist(), reverse=True):
        if worst(table, value, "outage", prefetch_limit=limit).median >= bound:
            break
        first = limit
    return first


def _falls(table: pd.DataFrame, value: str, sign: float, low: float, high: float) -> int:
    """Count the steps between two limits at which a value falls (or, with -1, rises), over all shares."""
    part = table[table["prefetch_limit"].between(low, high)]
    medians = part.groupby(["outage", "prefetch_limit"])[value].median()
    return sum(falls((sign * line).tolist()) for _, line in medians.groupby(level="outage"))
