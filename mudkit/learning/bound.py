"""The bound: the fewest sends that any policy could make with a number of stale answers, with hindsight.

A schedule of a device is a chain of sends; the reads between two of them are answered from the first. The
fewest stale answers with ``k`` sends before a read follow from those with ``k - 1``: of all chains only two
layers are in memory, and of each layer only the reads whose fewest sends change with the stale answers
allowed. To follow a schedule back some layers are kept and the others computed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT

_MAX_CELLS = 1 << 20
"""Chains that are compared at once."""
_MAX_STEPS = 1 << 28
"""Sums of two numbers of sends up to which a budget is divided by dynamic programming over all devices."""
_NEAR_EDGES = (64, 512)
"""Edges of hulls before and after the last one that is taken, among which the rest of a budget is divided."""
_ROUNDING = 1e-9
_FEW_READS = 1024
"""Reads of a device up to which all its layers are kept."""


def fewest_sends(
    pairs: Pairs, stale: NDArray[np.bool_], devices: list[slice], budget: int
) -> NDArray[np.int64]:
    """Choose the sends of some devices with hindsight: the fewest with at most ``budget`` stale answers.

    Dynamic programming gives each device's fewest sends for every number of stale answers, then divides the
    budget; so the result is exact. It has the form of :func:`~mudkit.learning.replay.replay`; reads of other
    devices are ``SENT``.
    """
    tables = [device_sends(pairs, stale, rows, budget) for rows in devices]
    return schedule(pairs, stale, devices, divide_budget(tables, budget))


def fewest_sends_by_stale(pairs: Pairs, stale: NDArray[np.bool_], budget: int) -> NDArray[np.int64]:
    """Return the fewest sends of all devices with 0, 1, … stale answers, while more of them save any."""
    return fewest_of_all([device_sends(pairs, stale, rows, budget) for rows in pairs.devices()], budget)


def fewest_of_all(tables: Sequence[NDArray[np.int32]], budget: int) -> NDArray[np.int64]:
    """Return the fewest sends of all devices with 0, 1, … stale answers, while more of them save any.

    ``tables`` are those of :func:`device_sends`.
    """
    best = np.zeros(1, dtype=np.int64)
    for table in tables:
        best, _ = _joined(best, table, budget)
    return best


def within_budget(table: NDArray[np.int32], budget: int) -> NDArray[np.int32]:
    """Return what :func:`device_sends` returns for a smaller budget."""
    kept = table[: budget + 1]
    return kept[: int(np.argmax(kept == kept[-1])) + 1]


def device_sends(pairs: Pairs, stale: NDArray[np.bool_], rows: slice, budget: int) -> NDArray[np.int32]:
    """Return the fewest sends of one device with at most 0, 1, … stale answers, while more save any."""
    chains = _Chains.of(pairs, stale, rows, budget)
    steps = []
    fewest_stale = chains.inf
    for sends, layer in enumerate(chains.layers(_Layer.of_nothing(chains.inf))):
        if (count := layer.at(chains.reads)) < fewest_stale:
            steps.append((count, sends + 1))
            fewest_stale = count
    table = np.empty(steps[0][0] + 1, dtype=np.int32)
    for count, sends in reversed(steps):
        table[count:] = sends
    return table


def divide_budget(tables: Sequence[NDArray[np.int32]], budget: int) -> list[int]:
    """Return the stale answers of each device, for the fewest sends of all with at most ``budget``.

    Parameters
    ----------
    tables : sequence of ndarray of int32
        Result of :func:`device_sends` for each device.
    budget : int
        Number of stale answers of all devices.
    """
    total = min(budget, sum(len(table) - 1 for table in tables))
    if total * sum(map(len, tables)) > _MAX_STEPS:
        spent = _divide_by_saving(tables, budget)
        if spent is not None:
            return spent
    return _divide_exactly(tables, budget)


def _divide_exactly(tables: Sequence[NDArray[np.int32]], budget: int) -> list[int]:
    """Divide a budget by dynamic programming over the devices; the last ones spend the least."""
    size = math.isqrt(len(tables)) + 1
    kept = []
    best = np.zeros(1, dtype=np.int64)
    for number, table in enumerate(tables):
        if number % size == 0:
            kept.append(best)
        best, _ = _joined(best, table, budget)
    spent: list[int] = []
    left = budget
    for number in range(len(kept) - 1, -1, -1):
        best, choices = kept[number], []
        for table in tables[number * size : (number + 1) * size]:
            best, choice = _joined(best, table, budget)
            choices.append(choice)
        for choice in reversed(choices):
            spent.append(int(choice[min(left, len(choice) - 1)]))
            left -= spent[-1]
    return spent[::-1]


def _divide_by_saving(tables: Sequence[NDArray[np.int32]], budget: int) -> list[int] | None:
    """Divide a budget by what stale answers save; None if it is not proven that nothing saves more.

    Each device's table is replaced by its lower convex hull, whose edges are taken by their saving for each
    stale answer. The edge that is too long gives a bound for any division. What is left is spent exactly on
    the devices with edges of about this saving; that the bound is reached is the proof.
    """
    edges = [_hull(table) for table in tables]
    owner = np.repeat(np.arange(len(tables)), [len(of) - 1 for of in edges])
    length = np.concatenate([np.diff(of) for of in edges])
    saved = np.concatenate([-np.diff(table[of]) for table, of in zip(tables, edges, strict=True)])
    order = np.argsort(-saved / length, kind="stable")
    used = np.cumsum(length[order])
    taken = int(np.searchsorted(used, budget, side="right"))
    spent = np.bincount(owner[order[:taken]], length[order[:taken]], minlength=len(tables)).astype(np.int64)
    if taken == len(order):
        return [int(of) for of in spent]
    sends = sum(int(table[of]) for table, of in zip(tables, spent.tolist(), strict=True))
    left = budget - int(spent.sum())
    fewest = math.ceil(sends - left * saved[order[taken]] / length[order[taken]] - _ROUNDING)
    for near in _NEAR_EDGES:
        some = np.unique(owner[order[max(taken - near, 0) : taken + near]]).tolist()
        of_some = [tables[number] for number in some]
        divided = _divide_exactly(of_some, left + int(spent[some].sum()))
        before = sum(int(tables[number][spent[number]]) for number in some)
        after = sum(int(table[of]) for table, of in zip(of_some, divided, strict=True))
        if sends - before + after == fewest:
            spent[some] = divided
            return [int(of) for of in spent]
    return None


def _hull(table: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the corners of the lower convex hull of a table, from its first entry to its last."""
    corners: list[int] = []
    values = table.tolist()
    for at, value in enumerate(values):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (values[b] - values[a]) * (at - a) < (value - values[a]) * (b - a):
                break
            corners.pop()
        corners.append(at)
    return np.array(corners)


def schedule(
    pairs: Pairs, stale: NDArray[np.bool_], devices: Sequence[slice], spent: Sequence[int]
) -> NDArray[np.int64]:
    """Return the pair that serves each read, or ``SENT``: the fewest sends of devices with stale answers.

    Parameters
    ----------
    pairs : Pairs
    stale : ndarray of bool, shape (pairs,)
    devices : sequence of slice
        Reads of each device, as :meth:`Pairs.devices` returns them.
    spent : sequence of int
        Stale answers of each, as :func:`divide_budget` returns them.
    """
    served = np.full(len(pairs.device), SENT, dtype=np.int64)
    for rows, most in zip(devices, spent, strict=True):
        sends = _Chains.of(pairs, stale, rows, most).follow()
        number = rows.start + np.repeat(sends, np.diff(sends, append=rows.stop - rows.start))
        local = np.ones(len(number), dtype=np.bool_)
        local[sends] = False
        read, last = rows.start + np.flatnonzero(local), number[local]
        first = pairs.first[read]
        served[read] = first + last - pairs.cached[first]
    return served


def _joined(
    best: NDArray[np.int64], sends: NDArray[np.int32], budget: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Add a device to the fewest sends by stale answers allowed; return how many it spends of each, too."""
    size = min(budget, len(best) + len(sends) - 2) + 1
    total = np.full(size, np.iinfo(np.int64).max, dtype=np.int64)
    choice = np.zeros(size, dtype=np.int32)
    grown = np.concatenate([best, np.full(max(0, size - len(best)), best[-1])])[:size]
    for spent, count in enumerate(sends[:size].tolist()):
        candidate = grown[: size - spent] + count
        better = candidate < total[spent:]
        total[spent:][better] = candidate[better]
        choice[spent:][better] = spent
    return total, choice


@dataclass(frozen=True)
class _Layer:
    """The fewest stale answers among the reads before each of some, with a number of sends."""

    first: int
    stale: NDArray[np.unsignedinteger]
    inf: int

    @classmethod
    def of_nothing(cls, inf: int) -> _Layer:
        """Return the layer without sends: before the first read no answer is stale."""
        return cls(0, np.zeros(1, dtype=_kind(inf)), inf)

    @property
    def past(self) -> int:
        """Number after the last of the reads."""
        return self.first + len(self.stale)

    def at(self, read: int) -> int:
        """Return the fewest stale answers before a read; infinity if the layer does not have it."""
        return int(self.stale[read - self.first]) if self.first <= read < self.past else self.inf


def _kind(inf: int) -> type[np.unsignedinteger]:
    """Return the type of array that holds numbers up to ``inf``."""
    return np.uint16 if inf < 1 << 16 else np.uint32


@dataclass(frozen=True)
class _Chains:
    """Sends of one device that may follow each other.

    ``costs[d - 1, j]`` is the number of stale answers between the reads ``j - d`` and ``j`` if both are sent
    and none between them; ``inf`` if one cannot be answered, or too many are stale. Read ``reads`` is the
    end.
    """

    reads: int
    most: int
    inf: int
    costs: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, pairs: Pairs, stale: NDArray[np.bool_], rows: slice, budget: int) -> _Chains:
        """Count stale answers between sends of one device, up to a budget."""
        reads = rows.stop - rows.start
        most = min(budget, reads)
        inf = (1 << 15) - 1 if most < (1 << 15) - 1 else (1 << 31) - 1  # twice of it does not overflow
        width = sum(1 for _ in _rows_of_costs(pairs, stale, rows, most, inf))
        costs = np.empty((width, reads + 1), dtype=_kind(inf))
        for row, of_distance in zip(costs, _rows_of_costs(pairs, stale, rows, most, inf), strict=True):
            row[:] = of_distance
        return cls(reads, most, inf, costs)

    def layers(self, layer: _Layer) -> Iterator[_Layer]:
        """Yield the layers after one, up to the one with which no answer is stale.

        A read before which no answer is stale with fewer sends is in none of them: more would be wasted.
        """
        width = len(self.costs)
        while layer.at(self.reads) > 0:
            is_left = layer.stale > 0
            fresh = int(is_left.argmax()) if is_left.any() else len(is_left)
            first = layer.first + max(fresh, 1)
            past = min(layer.past + width, self.reads + 1)
            # The stale answers before each read, as far back as a chain may begin.
            before = np.full(past - first + width - 1, self.inf, dtype=layer.stale.dtype)
            low = first - width
            begins, ends = max(layer.first, low), min(layer.past, past - 1)
            before[begins - low : ends - low] = layer.stale[begins - layer.first : ends - layer.first]
            fewest = np.empty(past - first, dtype=layer.stale.dtype)
            size = max(_MAX_CELLS // width, 1)
            for a in range(0, past - first, size):
                some = slice(a, min(a + size, past - first))
                # Row d - 1 holds the values d reads before each.
                item = before.itemsize
                from_each = np.ndarray(
                    (width, some.stop - a), before.dtype, before, (a + width - 1) * item, (-item, item)
                )
                fewest[some] = (from_each + self.costs[:, first + a : first + some.stop]).min(axis=0)
            fewest[fewest > self.most] = self.inf
            reached = np.flatnonzero(fewest < self.inf)
            layer = _Layer(first, fewest[: int(reached[-1]) + 1], self.inf)
            yield layer

    def follow(self) -> NDArray[np.int64]:
        """Return the sends of the schedule with the fewest; of equal ones the earliest before each send."""
        size = self.reads if self.reads <= _FEW_READS else math.isqrt(self.reads) + 1
        kept, block = [_Layer.of_nothing(self.inf)], [_Layer.of_nothing(self.inf)]
        for layer in self.layers(kept[0]):
            if len(block) == size:
                kept.append(layer)
                block = []
            block.append(layer)
            if layer.at(self.reads) <= self.most:
                break
        sends = []
        at, stale = self.reads, block[-1].at(self.reads)
        block.pop()
        for number in range(len(kept) - 1, -1, -1):
            if number < len(kept) - 1:
                block = [kept[number], *islice(self.layers(kept[number]), size - 1)]
            for layer in reversed(block):
                begins, ends = max(layer.first, at - len(self.costs)), min(layer.past, at)
                back = at - np.arange(begins, ends)
                total = layer.stale[begins - layer.first : ends - layer.first] + self.costs[back - 1, at]
                at = begins + int((total == stale).argmax())
                stale = layer.at(at)
                sends.append(at)
        return np.array(sends[::-1], dtype=np.int64)


def _rows_of_costs(
    pairs: Pairs, stale: NDArray[np.bool_], rows: slice, most: int, inf: int
) -> Iterator[NDArray[np.unsignedinteger]]:
    """Yield the rows of :attr:`_Chains.costs`, while any chain is that long."""
    reads = rows.stop - rows.start
    first, past = pairs.first[rows], pairs.first[rows.start + 1 : rows.stop + 1]
    cached = pairs.cached[np.minimum(first, len(pairs.cached) - 1)] if len(pairs.cached) else first
    of_distance = np.full(reads + 1, inf, dtype=_kind(inf))
    of_distance[1:] = 0
    for distance in range(1, reads + 1):
        yield of_distance
        # A chain that is longer by one answers one read more, which is the last before its end.
        read = np.arange(distance, reads)
        pair = first[read] + (rows.start + read - distance) - cached[read]
        known = (pair >= first[read]) & (pair < past[read]) & (of_distance[read] < inf)
        if not known.any():
            return
        longer = np.full(reads + 1, inf, dtype=of_distance.dtype)
        longer[read[known] + 1] = of_distance[read[known]] + stale[pair[known]]
        longer[longer > most] = inf
        of_distance = longer
