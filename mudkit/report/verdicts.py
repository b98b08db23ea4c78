"""Measures of systems from the deliveries of a task, with intervals from drawing these again.

Every figure is of all deliveries of all runs together: a sum divided by a sum, or the median of all times.
Its interval, and how certain a choice is, come from drawing again: the runs, the phones of each run, and
the deliveries of each phone. In a recorded task phones and deliveries are the same in each run, and are
drawn once for all runs. The systems of a draw share its runs, phones and deliveries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from mudkit import intervals

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from mudkit.experiment import Scoreboard

Cost = Literal["j_per_useful", "kb_per_useful"]
COSTS: Final[Mapping[Cost, tuple[str, str, str]]] = {
    "j_per_useful": ("radio energy", "J", "radio_j"),
    "kb_per_useful": ("data", "kB", "kb"),
}
"""Names, units and sums of the costs of a delivery in time."""
FATE_LABELS: Final = {
    "useful": "in time",
    "late": "late",
    "stale": "stale",
    "unopened": "never opened",
    "lost": "lost",
}
"""Names of the parts of what was wanted."""
TOLERANCE: Final = 0.02
"""A system may bring so much less in time than the best one, as a share of what was wanted, and be chosen."""
LOOSER: Final = 0.1
"""The same of a looser bar, of which the first screen says what it would choose."""

DRAWS: Final = 1000
_TOGETHER: Final = 100
"""Draws that are in memory together."""
_USEFUL: Final = "useful"

POOLED: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "useful_share": ("useful", ("wanted",)),
    "wasted_share": ("wasted", ("wasted", "useful")),
    "kb_per_useful": ("kb", ("useful",)),
    "j_per_useful": ("radio_j", ("useful",)),
    "server_kb_per_useful": ("server_kb", ("useful",)),
}
"""Ratios of sums: what is divided, and the sum by which. ``latency_s`` is a median."""


@dataclass(frozen=True)
class TaskPool:
    """Deliveries of one task, with a column for each system.

    Attributes
    ----------
    systems : list of str
    seeds, phones : int
        Runs of each system, and phones of each run.
    run, phone, unit : ndarray, shape (deliveries of all runs,)
        Run and phone of each wanted delivery, and its number: in a recorded task a delivery has the same in
        each run.
    useful : ndarray of bool, shape (deliveries, systems)
    latency_s : ndarray, shape (deliveries, systems)
        NaN for what was not useful.
    paid : mapping of str to ndarray, shape (runs, phones, systems)
        ``kb, radio_j, server_kb, wasted``; what feeds send, and what servers do, is spread over the phones.
    is_recorded : bool
        Whether phones and deliveries are the same in each run.
    """

    systems: list[str]
    seeds: int
    phones: int
    run: NDArray[np.int64]
    phone: NDArray[np.int64]
    unit: NDArray[np.int64]
    useful: NDArray[np.bool_]
    latency_s: NDArray[np.float64]
    paid: dict[str, NDArray[np.float64]]
    is_recorded: bool

    @classmethod
    def of(cls, board: Scoreboard, task: str, *, is_recorded: bool = False) -> TaskPool:
        """Return the pool of a task of a scoreboard."""
        import pandas as pd

        rows = board.deliveries[board.deliveries["task"] == task]
        bills = board.bills[board.bills["task"] == task]
        runs = board.runs[board.runs["task"] == task]
        seeds = list(dict.fromkeys(runs["seed"]))
        is_phone = ~bills["device"].str.startswith("feed-")
        phones = sorted(set(bills.loc[is_phone, "device"]))
        of_wanted = rows[rows["fate"] != "unwanted"]
        keys = ["seed", "device", "item"]
        by_system = of_wanted.set_index([*keys, "system"])
        fate, latency_s = (
            by_system[name].unstack("system").reindex(columns=board.systems) for name in ("fate", "latency_s")
        )
        useful = (fate == _USEFUL).to_numpy(dtype=bool)
        index = fate.index.to_frame(index=False)
        unit = index.groupby(keys[1:] if is_recorded else keys, sort=False).ngroup().to_numpy()

        cells = pd.MultiIndex.from_product([seeds, phones], names=["seed", "device"])
        shape = len(seeds), len(phones), len(board.systems)

        def grid(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
            sums = table.groupby(["seed", "device", "system"])[name].sum().unstack("system")
            values = sums.reindex(index=cells, columns=board.systems).to_numpy(dtype=np.float64)
            return np.asarray(np.nan_to_num(values).reshape(shape), dtype=np.float64)

        def spread(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
            sums = table.groupby(["seed", "system"])[name].sum().unstack("system")
            values = sums.reindex(index=seeds, columns=board.systems).to_numpy(dtype=np.float64)
            of_phone = np.nan_to_num(values)[:, None, :] / max(len(phones), 1)
            return np.broadcast_to(np.asarray(of_phone, dtype=np.float64), shape)

        of_no_use = rows[~rows["fate"].isin((_USEFUL, "lost"))]
        bills = bills.assign(kb=bills["up_kb"] + bills["down_kb"])
        paid = {
            "kb": grid(bills[is_phone], "kb") + spread(bills[~is_phone], "kb"),
            "radio_j": grid(bills[is_phone], "radio_j"),
            "server_kb": spread(runs, "server_kb"),
            "wasted": grid(of_no_use.assign(wasted=1.0), "wasted"),
        }
        return cls(
            board.systems,
            len(seeds),
            len(phones),
            index["seed"].map({seed: row for row, seed in enumerate(seeds)}).to_numpy(dtype=np.int64),
            index["device"].map({phone: row for row, phone in enumerate(phones)}).to_numpy(dtype=np.int64),
            unit.astype(np.int64),
            useful,
            np.where(useful, latency_s.to_numpy(dtype=np.float64), np.nan),
            paid,
            is_recorded,
        )

    @property
    def deliveries(self) -> int:
        """Different deliveries that were wanted: what a verdict rests on."""
        return int(self.unit.max(initial=-1)) + 1

    @property
    def readers(self) -> int:
        """Different phones that wanted something, in all runs."""
        phone = self.phone if self.is_recorded else self.run * self.phones + self.phone
        return len(np.unique(phone))

    @cached_property
    def sums(self) -> dict[str, NDArray[np.float64]]:
        """Sums over all runs by system: ``wanted, useful, wasted, kb, radio_j, server_kb``."""
        once = np.ones((1, self.seeds, self.phones))
        return {name: values[0] for name, values in self._sums(np.ones((1, len(self.unit))), once).items()}

    @cached_property
    def drawn(self) -> dict[str, NDArray[np.float64]]:
        """The same sums, of shape (draws, systems), and the median ``latency_s``."""
        generator = np.random.Generator(np.random.PCG64(0))
        parts = []
        for _ in range(0, DRAWS, _TOGETHER):
            weight, cells = self._drawn(generator, _TOGETHER)
            parts.append({**self._sums(weight, cells), "latency_s": self._medians(weight)})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def value(self, measure: str) -> NDArray[np.float64]:
        """Return a measure of each system; NaN with nothing to divide by."""
        if measure == "latency_s":
            medians: NDArray[np.float64] = self._medians(np.ones((1, len(self.unit))))[0]
            return medians
        return _ratio(self.sums, measure)

    def drawn_values(self, measure: str) -> NDArray[np.float64]:
        """Return a measure of each system in each draw, of shape (draws, systems)."""
        return self.drawn["latency_s"] if measure == "latency_s" else _ratio(self.drawn, measure)

    def interval(self, measure: str, confidence: float) -> tuple[NDArray[np.float64], ...]:
        """Return a measure of each system with the ends of its interval: value, low, high."""
        value = self.value(measure)
        low, high = ends(self.drawn_values(measure), confidence)
        if measure == "useful_share":
            # All draws of deliveries that ended alike are alike; others may not be.
            for column in np.flatnonzero((value == 0) | (value == 1)):
                wilson = intervals.share(value[column] * self.deliveries, self.deliveries, confidence)
                low[column], high[column] = wilson.low, wilson.high
        return value, np.fmin(low, value), np.fmax(high, value)

    def saving(self, chosen: int, part: str) -> tuple[str, float] | None:
        """Return the next system that brings nearly as much, and how much less the chosen one costs."""
        sums = self.sums
        useful = np.where(np.arange(len(self.systems)) == chosen, 0.0, sums["useful"])
        rival = choose(useful, sums["wanted"], sums[part], best=float(sums["useful"].max()))
        if rival is None:
            return None
        own, other = (float(sums[part][one] / sums["useful"][one]) for one in (chosen, rival))
        return self.systems[rival], 1 - own / other if other else 0.0

    def _sums(
        self, weight: NDArray[np.float64], cells: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Return sums by draw and system, of weighted deliveries, and of weighted phones and runs."""
        count = len(weight)
        useful = weight @ self.useful.astype(np.float64)
        wanted_count = np.broadcast_to(weight.sum(axis=1)[:, None], useful.shape)
        flat = cells.reshape(count, -1)
        return {"wanted": wanted_count, "useful": useful} | {
            name: flat @ values.reshape(flat.shape[1], -1) for name, values in self.paid.items()
        }

    def _drawn(
        self, generator: np.random.Generator, count: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how often each delivery, and each phone of a run, is in some draws."""
        seeds, phones = self.seeds, self.phones
        even = np.full(phones, 1 / max(phones, 1))
        if self.is_recorded:
            runs = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=count)
            fleet = generator.multinomial(phones, even, size=count)
            first = np.unique(self.unit, return_index=True)[1]
            unit = generator.poisson(fleet[:, self.phone[first]])
            weight = unit[:, self.unit] * runs[:, self.run]
            return weight.astype(np.float64), (runs[:, :, None] * fleet[:, None, :]).astype(np.float64)
        cells = np.zeros((count, seeds, phones))
        rows = np.arange(count)
        for _ in range(seeds):
            run = generator.integers(0, seeds, count)
            cells[rows, run] += generator.multinomial(phones, even, size=count)
        return generator.poisson(cells[:, self.run, self.phone]).astype(np.float64), cells

    def _medians(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted median of the times of useful deliveries, by draw and system."""
        medians = np.full((len(weight), len(self.systems)), np.nan)
        for column in range(len(self.systems)):
            times_s = self.latency_s[:, column]
            order = np.argsort(times_s)[: int(np.isfinite(times_s).sum())]
            if not len(order):
                continue
            below = np.cumsum(weight[:, order], axis=1)
            half, ordered_s = below[:, -1:] / 2, times_s[order]
            low = np.minimum((below < half).sum(axis=1), len(order) - 1)
            high = np.minimum((below <= half).sum(axis=1), len(order) - 1)
            middle = (ordered_s[low] + ordered_s[high]) / 2
            medians[:, column] = np.where(below[:, -1] > 0, middle, np.nan)
        return medians


def choose(
    useful: NDArray[np.float64],
    wanted_count: NDArray[np.float64],
    paid: NDArray[np.float64],
    tolerance: float = TOLERANCE,
    best: float | None = None,
) -> int | None:
    """Return the system with the least cost among those that bring nearly as much in time as the best.

    ``best`` is the useful count of the best, if it is not one of these; None if no system is near it.
    """
    shares, costs = (
        np.divide(values, by, out=np.full_like(values, other), where=by > 0)
        for values, by, other in ((useful, wanted_count, 0.0), (paid, useful, np.inf))
    )
    highest = shares.max() if best is None else best / wanted_count.max()
    near = np.where(shares >= highest - tolerance - 1e-12, costs, np.inf)
    return int(near.argmin()) if np.isfinite(near).any() else None


def ends(drawn: NDArray[np.float64], confidence: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the intervals of drawn values, of shape (draws, systems); NaN where all are."""
    tail = 50 * (1 - confidence)
    low, high = np.full((2, drawn.shape[1]), np.nan)
    for column, values in enumerate(drawn.T):
        known = values[np.isfinite(values)]
        if len(known):
            low[column], high[column] = np.percentile(known, [tail, 100 - tail])
    return low, high


def _ratio(sums: dict[str, NDArray[np.float64]], measure: str) -> NDArray[np.float64]:
    """Return a pooled measure of sums, an element each; NaN where the whole is 0."""
    part, wholes = POOLED[measure]
    whole = np.sum([sums[name] for name in wholes], axis=0)
    ratio: NDArray[np.float64] = np.full(whole.shape, np.nan)
    np.divide(sums[part], whole, out=ratio, where=whole > 0)
    return ratio
