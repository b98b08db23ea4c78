"""L5 and L6: what expirations waste and lose, and a threshold below which nothing is prefetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mudkit.reproduce.lasthop.runs import FEW, falls, figure_sweep, of_seeds, together
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.systems.lasthop.study.sweeping import HOUR_S

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DOWNTIMES", "LITTLE", "LONG_H", "SHORT_H", "THRESHOLD_H", "measure_thresholds", "measure_times"]

SHORT_H: Final = 4.2
"""The expiration time that the paper finds near the top of the loss, and without a gap."""
LONG_H: Final = 136.8
"""5.7 days."""
THRESHOLD_H: Final = 8.0
"""The waking time between two reads a day."""
DOWNTIMES: Final = (0.9, 0.95)
"""The caption has the one, the text the other."""
LITTLE: Final = 0.05
"""A threshold is in the gap where waste and loss are both at most this: the paper has "very small"."""
_NOISE: Final = 0.002
"""Of waste and loss: with one threshold other messages are left over than with another."""


def measure_times(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    days: int = 365,
    seeds: Sequence[int] = range(5),
) -> Measured:
    """Measure row L5.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    over : mapping, optional
        Parameters whose values are to differ from those of Figures 4 and 5, with these values.
    days : int
        The length of each run, in days of virtual time.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    say("waste by expiration time and reads a day")
    wasted = figure_sweep(4, over or {}, {"days": days}, seeds)
    say("loss by expiration time and reads a day, 95 % downtime")
    lost = figure_sweep(5, over or {}, {"days": days}, seeds)
    say("loss by expiration time, 50 % downtime")
    less = figure_sweep(5, over or {}, {"days": days, "outage": 0.5, "user_frequency": 2.0}, seeds)
    rises = turns = sooner = 0
    figures: dict[str, Figure] = {}
    previous: list[float] = []
    for often in sorted(wasted["user_frequency"].unique().tolist()):
        line = wasted[wasted["user_frequency"] == often].groupby("expiration")["waste"].median().tolist()
        rises += falls(line[::-1])
        sooner += sum(more > fewer for fewer, more in zip(previous, line, strict=False))
        previous = line
        times_s, losses = together(lost, "expiration", user_frequency=often)
        peak = losses.index(max(losses))
        turns += falls(losses[: peak + 1]) + falls(losses[peak:][::-1])
        figures[f"h at which the loss is largest, {often:g} a day"] = Figure.of([times_s[peak] / HOUR_S])
        figures[f"largest loss, {often:g} a day"] = Figure.of([losses[peak]])
        figures[f"loss at 3 days over the largest, {often:g} a day"] = Figure.of([losses[-1] / losses[peak]])
    figures |= {
        "steps at which waste rises with the time": Figure.of([rises]),
        "points at which waste rises with the reads a day": Figure.of([sooner]),
        "steps at which the loss turns, its peak apart": Figure.of([turns]),
    }
    figures |= {
        f"waste at {name}, 2 a day": of_seeds(wasted, "waste", user_frequency=2.0, expiration=time_s)
        for name, time_s in (("16 s", wasted["expiration"].min()), ("3 days", wasted["expiration"].max()))
    }
    lower = max(together(less, "expiration")[1])
    figures["largest loss, 2 a day, 50 % downtime over 95 %"] = Figure.of(
        [lower / figures["largest loss, 2 a day"].median]
    )
    figures["share of all that comes that is lost at 4 min, 2 a day"] = _of_all(lost, 256.0, days)
    stated = lost.attrs["parameters"] | {
        "outage": "0 for waste, 0.95 for loss",
        "policy": "on-line for waste, on-demand for loss",
        "law of the times": "exponential",
        "loss": f"over all seeds together, where {FEW} messages at least are read",
    }
    return Measured(figures, stated)


def measure_thresholds(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    days: int = 365,
    seeds: Sequence[int] = range(5),
) -> Measured:
    """Measure row L6.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    over : mapping, optional
        Other values than those of Figure 6; with 8 hours among the thresholds, and 4.2 hours and 5.7 days.
    days : int
        The length of each run, in days of virtual time.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    figures: dict[str, Figure] = {}
    for down in DOWNTIMES:
        say(f"waste and loss by expiration threshold, {down:.0%} downtime")
        table = figure_sweep(6, over or {}, {"outage": down, "days": days}, seeds)
        named = f"{down:.0%} downtime"
        long = table[table["expiration"] == LONG_H * HOUR_S]
        for value in ("waste", "loss"):
            figure = of_seeds(long, value, expiration_threshold_s=THRESHOLD_H * HOUR_S)
            figures[f"{value} at 8 h, 5.7 days, {named}"] = figure
        figures[f"the best threshold's waste or loss, 4.2 h, {named}"] = _best(table, SHORT_H)
        for time_s in sorted(table["expiration"].unique().tolist()):
            gap_h = _gap_h(table[table["expiration"] == time_s])
            figures[f"thresholds in the gap, {time_s / HOUR_S:.3g} h, {named}"] = Figure.of([len(gap_h)])
            for end, hours in zip(("from", "to"), gap_h[:: max(len(gap_h) - 1, 1)], strict=False):
                figures[f"gap {end}, h, {time_s / HOUR_S:.3g} h, {named}"] = Figure.of([hours])
        turns = 0
        for _, line in table.groupby("expiration"):
            medians = line.groupby("expiration_threshold_s")[["waste", "loss"]].median()
            turns += falls(medians["waste"].tolist()[::-1], _NOISE) + falls(medians["loss"].tolist(), _NOISE)
        figures[f"steps at which waste rises or loss falls, {named}"] = Figure.of([turns])
        one = {"expiration": LONG_H * HOUR_S, "expiration_threshold_s": "learnt"}
        learnt = figure_sweep(6, {}, one | {"outage": down, "days": days}, seeds)
        for value in ("waste", "loss"):
            figures[f"{value} with the threshold learnt, 5.7 days, {named}"] = of_seeds(learnt, value)
    stated = table.attrs["parameters"] | {
        "outage": list(DOWNTIMES),
        "law of the times": "exponential",
        "a gap": f"both at most {LITTLE:.0%}",
        "a step": f"by more than {_NOISE:.1%}",
    }
    return Measured(figures, stated)


def _of_all(table: pd.DataFrame, time_s: float, days: int) -> Figure:
    """Give what is lost over what comes: of what hardly anybody can read, little can be lost."""
    line = table[(table["expiration"] == time_s) & (table["user_frequency"] == 2.0)]
    return Figure.of((line["loss"] * line["best"] / (32.0 * days)).tolist() or [0.0])


def _medians(table: pd.DataFrame) -> pd.Series[float]:
    return table.groupby("expiration_threshold_s")[["waste", "loss"]].median().max(axis=1)


def _best(table: pd.DataFrame, hours: float) -> Figure:
    """Give what the best of all thresholds leaves, the larger one of waste and loss."""
    line = table[table["expiration"] == hours * HOUR_S]
    least = _medians(line).idxmin()
    of_seed = line[line["expiration_threshold_s"] == least][["waste", "loss"]].max(axis=1)
    return Figure.of(of_seed.tolist())


def _gap_h(table: pd.DataFrame) -> list[float]:
    """Give the thresholds that are in the gap, hours."""
    medians = _medians(table)
    return [float(each) / HOUR_S for each in medians[medians <= LITTLE].index]
