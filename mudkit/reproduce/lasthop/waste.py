"""L1 and L2: what on-line forwarding wastes when more comes than is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.reproduce.lasthop.runs import figure_sweep, of_seeds, worst
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing
from mudkit.systems.lasthop import expected_waste

__all__ = ["EXAMPLES", "measure_examples", "measure_formula"]

EXAMPLES: Final = (4, 32)
"""``Max`` of a user who reads once a day of 32 messages."""


def measure_formula(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    days: int = 365,
    seeds: Sequence[int] = range(10),
) -> Measured:
    """Measure row L1.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    over : mapping, optional
        Parameters whose values are to differ from those of Figure 1, with these values.
    days : int
        The length of each run, in days of virtual time.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    say("waste by Max and reads a day")
    table = figure_sweep(1, over or {}, {"days": days}, seeds)
    pairs = list(zip(table["user_frequency"], table["max"], strict=True))
    table["error"] = table["waste"] - [
        expected_waste(user_frequency=often, max=most, event_frequency=32) for often, most in pairs
    ]
    table["error"] = table["error"].abs()
    table["point"] = [f"Max {most}, {often:g} a day" for often, most in pairs]
    figures = {
        "largest error of the formula": worst(table, "error", "point"),
        "points": Figure.of([table["point"].nunique()]),
    }
    at = str(table.groupby("point")["error"].median().idxmax())
    return Measured(figures, table.attrs["parameters"] | {"largest error at": at})


def measure_examples(
    say: Say = say_nothing, *, days: int = 365, seeds: Sequence[int] = range(10)
) -> Measured:
    """Measure row L2.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    days : int
        The length of each run, in days of virtual time.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    """
    say(f"waste by Max {' and '.join(map(str, EXAMPLES))}, read once a day")
    table = figure_sweep(1, {"max": EXAMPLES}, {"user_frequency": 1.0, "days": days}, seeds)
    figures = {f"waste, Max {most}": of_seeds(table, "waste", max=most) for most in EXAMPLES}
    return Measured(figures, table.attrs["parameters"])
