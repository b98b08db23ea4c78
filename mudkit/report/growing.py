"""Cost of larger fleets, for systems that send each item to every phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from mudkit import words
from mudkit.experiment import ADAPTERS, Task, scoreboard
from mudkit.processes import spread_out
from mudkit.report.verdicts import COSTS, LOOSER, TOLERANCE, Cost, TaskPool, choose

if TYPE_CHECKING:
    from numpy.typing import NDArray

TO_ALL: Final = ("to everyone", "Radiator")
"""Systems that send each item to every phone."""
_SEEDS: Final = 2
"""Runs of the larger fleet."""


@dataclass(frozen=True)
class Growth:
    """Cost of a delivery in time in a fleet of ``devices``, and in one of twice as many where that was run.

    ``system`` sends each item to every phone. ``rival``, which does not, costs least of those that bring at
    most 10 points less in time than the best; empty without one. Pairs are of the system and the rival.
    """

    task: str
    system: str
    rival: str
    devices: int
    cost: tuple[float, float]
    larger_cost: tuple[float, float] | None
    shares: tuple[float, float]
    """Share in time, in the largest fleet that was run."""

    @property
    def crossing_devices(self) -> int | None:
        """Size from which the rival costs less, on a straight line between both fleets; None: not known."""
        if not self.rival or self.cost[1] <= self.cost[0]:
            return self.devices if self.rival else None
        if self.larger_cost is None:
            return None
        now, later = (other - mine for mine, other in (self.cost, self.larger_cost))
        return round(self.devices * (1 + now / (now - later))) if later < 0 else None

    def describe(self, cost: Cost) -> str:
        """Return it in sentences."""
        named, unit, _ = COSTS[cost]
        system, rival = words.quoted(self.system), words.quoted(self.rival)
        text = f"{words.capitalise(self.task)}: {system} sends each item to every phone."
        if not self.rival:
            return f"{text} No system that sends to fewer comes within {100 * LOOSER:.0f} points in time."
        if self.larger_cost is None:
            at_least = self.devices * self.cost[1] / self.cost[0]
            return (
                f"{text} If the fleet grows and as many phones as now want each item, the {named} for a "
                f"delivery in time grows at most as the fleet does: it passes that of {rival} "
                f"({words.number(self.cost[1])} {unit}) at {at_least:,.0f} phones at the earliest."
                f"{self._by_rule('this fleet')}"
            )
        mine, other = (
            f"{words.number(value)} {unit} ({words.percent(share)} in time)"
            for value, share in zip(self.larger_cost, self.shares, strict=True)
        )
        twice = 2 * self.devices
        text += (
            f" Run again with {twice:,} phones in the same area, it takes {mine} for a delivery, {rival} "
            f"{other}: "
        )
        by_rule = self._by_rule(f"{twice:,} phones")
        if self.cost[1] <= self.cost[0]:
            now = f"at {self.devices:,} phones already"
            return f"{text}{rival} takes less {named} {now}, but brings less in time.{by_rule}"
        if (crossing := self.crossing_devices) is None:
            return f"{text}{system} still takes less; where that ends is not known."
        return (
            f"{text}from about {crossing:,} phones on, by a straight line between both fleets, {rival} takes "
            f"less {named}.{by_rule}"
        )

    def _by_rule(self, fleet: str) -> str:
        """Return whether the rival brings enough in time to be chosen in the largest fleet, as a sentence."""
        fewer = self.shares[0] - self.shares[1]
        system, rival = words.quoted(self.system), words.quoted(self.rival)
        allowed = f"{100 * TOLERANCE:.0f} points that a choice may bring less"
        points = words.number(round(100 * fewer, 1 if fewer < 0.1 else 0))
        if fewer > TOLERANCE:
            return (
                f" That is no reason to switch: with {fleet} {rival} brings {points} points less in time "
                f"than {system}, more than the {allowed}."
            )
        if fewer <= 0:
            return f" With {fleet} {rival} brings no less in time than {system}."
        noun = "point" if points == "1" else "points"
        less = f"{points} {noun} less in time than {system}"
        return f" With {fleet} {rival} brings {less}, within the {allowed}."


def grow(
    pools: Mapping[str, TaskPool], given: Sequence[Task], cost: Cost, seeds: Sequence[int]
) -> dict[str, Growth]:
    """Return by task what a larger fleet changes, where the chosen system sends each item to every phone.

    A task is run again with twice the phones; one that was recorded is not, since its fleet is in its log.
    """
    part = COSTS[cost][2]
    grown = {}
    for task in given:
        pool = pools[task.name]
        sums = pool.sums
        chosen = choose(sums["useful"], sums["wanted"], sums[part])
        if chosen is None or pool.systems[chosen] not in TO_ALL:
            continue
        system, rival = pool.systems[chosen], _rival(pool, cost)
        devices = task.scenario.devices
        if not rival:
            none = (float("nan"), float("nan"))
            grown[task.name] = Growth(task.name, system, "", devices, none, None, none)
            continue
        names, larger = [system, rival], None
        values = pool
        if task.recording is None:
            with spread_out(part=1) as spread:
                twice = task.over(devices=2 * devices)
                board = scoreboard(
                    [twice], {name: ADAPTERS[name] for name in names}, seeds[:_SEEDS], map=spread
                )
            values = TaskPool.of(board, task.name)
            larger = _pair(values, names, values.value(cost))
        grown[task.name] = Growth(
            task.name, system, rival, devices, _pair(pool, names, pool.value(cost)), larger,
            _pair(values, names, values.value("useful_share")),
        )  # fmt: skip
    return grown


def _rival(pool: TaskPool, cost: Cost) -> str:
    """Return the cheapest system that chooses what a phone gets, within the looser bar; empty without one."""
    shares, costs = pool.value("useful_share"), pool.value(cost)
    is_rival = np.array([name not in TO_ALL for name in pool.systems]) & np.isfinite(costs)
    is_rival &= shares >= np.nanmax(shares) - LOOSER
    return pool.systems[int(np.where(is_rival, costs, np.inf).argmin())] if is_rival.any() else ""


def _pair(pool: TaskPool, names: Sequence[str], values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the values of two systems of a pool."""
    one, other = (float(values[pool.systems.index(name)]) for name in names)
    return one, other
