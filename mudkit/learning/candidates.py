"""Many read policies replayed at once over some devices, and the sums from which the best one follows.

The answers of a policy are counted by device and day. Of these counts only sums are kept: fresh and stale
answers, and squares and products, from which the variance over devices and days follows without rounding.
Sums over other devices add up, wherever they were computed, and have the same size for any number of devices
and reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.intervals import Clustering
from mudkit.learning.features import Features, read_features
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import ReadTrees, slots_of_day
from mudkit.learning.replay import SENT, replay_steps
from mudkit.learning.trees import Folds, Groups, GrownTree, groups_by
from mudkit.units import solar_day

RISK: Final = 0.05
"""Probability with which a choice may miss the limit of stale answers on as many other devices and days."""
_FOLDS: Final = 10
_BLOCK: Final = 256
"""Policies that are replayed together, at most."""
_MAX_DECISIONS: Final = 1 << 24
"""Decisions of one step that are in memory at once."""
_MAX_COUNTS: Final = 1 << 22
"""Counts of answers that are in memory at once."""
Limits: TypeAlias = tuple[float, tuple[float, ...]]
"""Distance in km, and ages in minutes for equal parts of the day."""
_Decide: TypeAlias = Callable[[slice, NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]
"""Decides for some policies whether they serve reads from pairs: see :func:`replay_steps`."""


@dataclass(frozen=True)
class Split:
    """Ten folds of devices, by id, or of days: those of ``ids``, or ``days``, are dealt out in their order.

    ``days`` are all days with reads, in solar time.
    """

    by: Folds
    ids: NDArray[np.int64]
    days: NDArray[np.int64]

    @property
    def folds(self) -> int:
        """Number of folds."""
        return max(min(_FOLDS, len(self.ids if self.by == "device" else self.days)), 1)

    def fold(self, ids: NDArray[np.int64], day: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the fold of each device, or of its day of solar time, as the split is by."""
        keys, key = (self.ids, ids) if self.by == "device" else (self.days, day)
        return np.searchsorted(keys, key) % _FOLDS

    def fold_of_reads(self, pairs: Pairs) -> NDArray[np.int64]:
        """Return the number of the fold that each read is tested in."""
        return self.fold(pairs.ids[pairs.device], solar_day(pairs.t_us, pairs.lon))


@dataclass(frozen=True)
class Sums:
    """Reads, and fresh and stale answers of policies, without each fold, and last without none.

    Sums of other devices, and of other policies over the same reads, can be added.

    Attributes
    ----------
    reads : ndarray of int64, shape (folds + 1,)
    fresh, stale : ndarray of int64, shape (folds + 1, policies)
    clusters, squared_reads : ndarray of int64, shape (2, folds + 1)
        Number of devices, and of devices and days; the sums of their squared reads.
    products, squares : ndarray of int64, shape (2, folds + 1, policies)
        The sums of their reads times stale answers, and of their squared stale answers.
    day_reads, day_stale : ndarray of int64, shapes (folds, days), (folds, days, policies)
        Reads and stale answers of each fold by day.
    """

    reads: NDArray[np.int64]
    fresh: NDArray[np.int64]
    stale: NDArray[np.int64]
    clusters: NDArray[np.int64]
    squared_reads: NDArray[np.int64]
    products: NDArray[np.int64]
    squares: NDArray[np.int64]
    day_reads: NDArray[np.int64]
    day_stale: NDArray[np.int64]

    @property
    def policies(self) -> int:
        """Number of policies that the sums are of."""
        return int(self.fresh.shape[1])

    def __add__(self, other: Sums) -> Sums:
        """Add the sums over the reads of other devices."""
        return Sums(*(getattr(self, of.name) + getattr(other, of.name) for of in fields(self)))

    def __or__(self, other: Sums) -> Sums:
        """Join the sums of other policies over the same reads."""
        joined = {
            name: np.concatenate([getattr(self, name), getattr(other, name)], axis=-1) for name in _OF_POLICY
        }
        return replace(self, **joined)

    def of(self, policies: Sequence[int]) -> Sums:
        """Return the sums of some policies, in this order."""
        return replace(self, **{name: getattr(self, name)[..., list(policies)] for name in _OF_POLICY})

    def best(self, left_out: int, max_stale: float) -> int | None:
        """Return the policy with the most fresh answers within the limit, with a margin; None without one.

        It has fewer stale answers than fresh ones. It is chosen without a fold (the last one: without none),
        for as many reads as there are in all. Of equal ones the first is chosen.
        """
        reads, stale, fresh = int(self.reads[left_out]), self.stale[left_out], self.fresh[left_out]
        if not reads or not self.policies:
            return None
        most = intervals.shares_ahead(
            stale, reads, self._clusterings(left_out), new_cases=float(self.reads[-1]), risk=RISK
        )
        within = np.where((most <= max_stale) & (fresh > stale), fresh, -1)
        number = int(np.argmax(within))
        return number if within[number] > 0 else None

    def _clusterings(self, left_out: int) -> list[Clustering]:
        """Return the clusterings of the reads without a fold: by device, day, and both."""
        device, both = (
            Clustering(
                int(self.clusters[i, left_out]),
                int(self.squared_reads[i, left_out]),
                self.products[i, left_out],
                self.squares[i, left_out],
            )
            for i in range(2)
        )
        kept = np.arange(len(self.day_reads)) != left_out
        reads = self.day_reads[kept].sum(axis=0)
        present = np.flatnonzero(reads)
        stale = self.day_stale[kept].sum(axis=0)[present]
        return [device, Clustering.of(stale, reads[present], present), both]


_OF_POLICY: Final = ("fresh", "stale", "products", "squares", "day_stale")


@dataclass(frozen=True)
class SlotSums:
    """Reads, and fresh and stale answers of rules, by fold and part of the day.

    Of shape (folds, slots), and (folds, slots, rules); without folds, if they are summed.
    """

    reads: NDArray[np.int64]
    fresh: NDArray[np.int64]
    stale: NDArray[np.int64]

    def __add__(self, other: SlotSums) -> SlotSums:
        """Add the sums over the reads of other devices."""
        return SlotSums(self.reads + other.reads, self.fresh + other.fresh, self.stale + other.stale)

    def joined(self, slots: int) -> SlotSums:
        """Return the sums of fewer parts of the day."""
        folds, finer = self.reads.shape
        shape = folds, slots, finer // slots
        return SlotSums(
            self.reads.reshape(shape).sum(axis=2),
            *(of.reshape(*shape, of.shape[2]).sum(axis=2) for of in (self.fresh, self.stale)),
        )

    def without(self, left_out: int) -> SlotSums:
        """Return the sums of all folds but one; of all, if there is no such fold."""
        kept = np.arange(len(self.reads)) != left_out
        return SlotSums(*(of[kept].sum(axis=0) for of in (self.reads, self.fresh, self.stale)))


class Candidates(Protocol):
    """Protocol of policies that are replayed at once."""

    @property
    def count(self) -> int:
        """Number of policies."""
        ...

    def deciding(self, replayer: Replayer) -> _Decide:
        """Return the function that decides for the pairs of some devices."""
        ...


@dataclass(frozen=True)
class Rules:
    """Rules of distance and age, by equal parts of the day; with folds, other ones for the reads of each.

    ``km`` and ``minutes`` are the limits, of shape (slots, policies), or (folds * slots, policies).
    """

    km: NDArray[np.float64]
    minutes: NDArray[np.float64]
    slots: int

    @classmethod
    def of(cls, rules: Sequence[Limits]) -> Rules:
        """Return rules that are the same in all folds."""
        return cls.of_folds([rules])

    @classmethod
    def of_folds(cls, rules: Sequence[Sequence[Limits]]) -> Rules:
        """Return the rules of each fold, as many as there are of another one."""
        slots = math.lcm(*(len(ages) for of_fold in rules for _, ages in of_fold))
        km = np.array([[of for of, _ in of_fold] for of_fold in rules]).repeat(slots, axis=0)
        minutes = [[np.repeat(ages, slots // len(ages)) for _, ages in of_fold] for of_fold in rules]
        by_slot = np.array(minutes).transpose(0, 2, 1)
        return cls(km, by_slot.reshape(-1, by_slot.shape[2]), slots)

    @property
    def count(self) -> int:
        """Number of policies."""
        return int(self.km.shape[1])

    def deciding(self, replayer: Replayer) -> _Decide:
        """Return the function that decides by the limits of the fold and the time of each read."""
        row = replayer.slot(self.slots)
        if len(self.km) > self.slots:
            row = row + self.slots * replayer.fold_of_read
        limit_s, pairs = 60.0 * self.minutes, replayer.pairs

        def decide(block: slice, reads: NDArray[np.int64], pair: NDArray[np.int64]) -> NDArray[np.bool_]:
            is_near: NDArray[np.bool_] = pairs.distance_km[pair] <= self.km[row[reads], block]
            return is_near & (pairs.age_s[pair] <= limit_s[row[reads], block])

        return decide


@dataclass(frozen=True)
class Forest:
    """Trees that have not seen a fold each of the devices, or days, that they were grown from.

    ``keys`` are the ids of these devices, or the days (UTC), in order, and ``fold`` is that of each. Others
    are dealt out to the folds. Nodes are numbered through all trees.
    """

    trees: tuple[GrownTree, ...]
    features: Features
    by: Groups
    keys: NDArray[np.int64]
    fold: NDArray[np.int64]

    @classmethod
    def of(cls, grown: ReadTrees, pairs: Pairs, by: Groups) -> Forest:
        """Return the trees of the folds that were grown from pairs."""
        keys, first = np.unique(_keys(pairs, by), return_index=True)
        fold = grown.trees.fold_of[first].astype(np.int64)
        return cls(grown.trees.folds, grown.features, by, keys, fold)

    def nodes(self, pairs: Pairs) -> NDArray[np.int32]:
        """Return the leaf of each pair in the tree that has not seen its device, or day."""
        key, known = _keys(pairs, self.by), read_features(pairs, self.features)
        place = np.searchsorted(self.keys, key)
        at = np.minimum(place, len(self.keys) - 1)
        fold_of = np.where(self.keys[at] == key, self.fold[at], place % len(self.trees))
        node = np.zeros(len(key), dtype=np.int32)
        begin = 0
        for number, tree in enumerate(self.trees):
            mine = fold_of == number
            node[mine] = begin + tree.leaf_of(known[mine])
            begin += len(tree.left)
        return node


def _keys(pairs: Pairs, by: Groups) -> NDArray[np.int64]:
    """Return the device's id, or the day, of each pair."""
    return groups_by(by, pairs.ids[pairs.device], pairs.t_us)[pairs.read]


@dataclass(frozen=True)
class TreePrices:
    """Trees cut for prices of a stale answer; ``is_local``, of shape (nodes, prices): what nodes decide."""

    forest: Forest
    is_local: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of policies."""
        return int(self.is_local.shape[1])

    def deciding(self, replayer: Replayer) -> _Decide:
        """Return the function that decides as the trees do."""
        node = self.forest.nodes(replayer.pairs)

        def decide(block: slice, reads: NDArray[np.int64], pair: NDArray[np.int64]) -> NDArray[np.bool_]:
            decided: NDArray[np.bool_] = self.is_local[node[pair], np.arange(block.start, block.stop)]
            return decided

        return decide


@dataclass(frozen=True)
class Replayer:
    """Reads of some devices with their labels, prepared for the replay of many policies."""

    pairs: Pairs
    is_stale: NDArray[np.bool_]
    split: Split

    @cached_property
    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Cell of each read; id of the device, day and reads of each cell of a device and day."""
        return cells_of_reads(self.pairs)

    @cached_property
    def fold_of_read(self) -> NDArray[np.int64]:
        """Number of the fold that each read is tested in."""
        return self.split.fold_of_reads(self.pairs)

    def slot(self, slots: int) -> NDArray[np.int64]:
        """Return the part of the day of each read, of equal ones."""
        return slots_of_day(self.pairs.t_us, self.pairs.lon, slots)

    def counts(
        self, candidates: Candidates, by: NDArray[np.int64]
    ) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[np.int64]]]:
        """Replay some policies after the others; yield which, and their fresh and stale answers.

        Answers are counted by a number of each read, of one device, of shape (numbers, policies).
        """
        rows = int(by.max(initial=-1)) + 1
        decide = candidates.deciding(self)
        # A step decides on the pairs of one read of each device.
        pairs = len(self.pairs.read) * len(self.pairs.ids) // max(len(self.pairs.device), 1)
        size = min(_BLOCK, max(min(_MAX_DECISIONS // max(pairs, 1), _MAX_COUNTS // max(rows, 1)), 1))
        for first in range(0, candidates.count, size):
            block = slice(first, min(first + size, candidates.count))
            fresh, stale = (np.zeros((rows, block.stop - first), dtype=np.int64) for _ in range(2))
            for reads, served in replay_steps(self.pairs, block.stop - first, partial(decide, block)):
                local = served != SENT
                bad = local & self.is_stale[np.where(local, served, 0)] if len(self.is_stale) else local
                fresh[by[reads]] += local & ~bad
                stale[by[reads]] += bad
            yield block, fresh, stale

    def sums(self, candidates: Candidates) -> Sums:
        """Replay policies, and add their answers for the choice without each fold."""
        cell, ids, day, reads = self.cells
        fold = self.split.fold(ids, day)
        by_device = np.unique(ids, return_inverse=True)[1]
        by_both = np.arange(len(ids))
        folds, days = self.split.folds, len(self.split.days)
        of_fold_day = fold * days + np.searchsorted(self.split.days, day)
        of_blocks = []
        for _, fresh, stale in self.counts(candidates, cell):
            clustered = [_LeftOut.of(by, fold, reads, stale, folds) for by in (by_device, by_both)]
            of_blocks.append(
                Sums(
                    *(_without(of, fold, folds) for of in (reads, fresh, stale)),
                    *(np.stack([getattr(one, of.name) for one in clustered]) for of in fields(_LeftOut)),
                    *(
                        _added(of_fold_day, of, folds * days).reshape(folds, days, *of.shape[1:])
                        for of in (reads, stale)
                    ),
                )
            )
        return reduce(or_, of_blocks)

    def slot_sums(self, candidates: Rules, slots: int) -> SlotSums:
        """Replay rules, and add their answers by fold and part of the day."""
        folds = self.split.folds
        at = self.fold_of_read * slots + self.slot(slots)
        keys, by = np.unique(self.pairs.device * folds * slots + at, return_inverse=True)
        fresh, stale = np.zeros((2, folds * slots, candidates.count), dtype=np.int64)
        for block, of_fresh, of_stale in self.counts(candidates, by):
            for whole, of_device in ((fresh, of_fresh), (stale, of_stale)):
                whole[:, block] = _added(keys % (folds * slots), of_device, folds * slots)
        reads = np.bincount(at, minlength=folds * slots)
        shape = folds, slots
        return SlotSums(reads.reshape(shape), fresh.reshape(*shape, -1), stale.reshape(*shape, -1))


def cells_of_reads(
    pairs: Pairs,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the cell of each read; the device's id, solar day and reads of each cell of a device and day."""
    day = solar_day(pairs.t_us, pairs.lon)
    first_day = int(day.min(initial=0))
    key = pairs.device * (int(day.max(initial=0)) - first_day + 1) + day - first_day
    _, first, cell, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return cell, pairs.ids[pairs.device[first]], day[first], count.astype(np.int64)


def _without(values: NDArray[np.int64], fold: NDArray[np.int64], folds: int) -> NDArray[np.int64]:
    """Add rows of all folds but one, for each; last, of all folds."""
    of_fold = np.stack([values[fold == number].sum(axis=0) for number in range(folds)])
    total = of_fold.sum(axis=0)
    return np.concatenate([total - of_fold, total[None]])


@dataclass(frozen=True)
class _LeftOut:
    """Sums over clusters of the rows of all folds but one, for each; last, of all: see :class:`Sums`."""

    clusters: NDArray[np.int64]
    squared_reads: NDArray[np.int64]
    products: NDArray[np.int64]
    squares: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        cluster: NDArray[np.int64],
        fold: NDArray[np.int64],
        reads: NDArray[np.int64],
        stale: NDArray[np.int64],
        folds: int,
    ) -> _LeftOut:
        """Return the sums of rows; a cluster may have rows of several folds."""
        key, group = np.unique(cluster * folds + fold, return_inverse=True)
        reads, stale = (_added(group, of, len(key)) for of in (reads, stale))
        owners, owner = np.unique(key // folds, return_inverse=True)
        whole_reads, whole_stale = (_added(owner, of, len(owners)) for of in (reads, stale))
        # What a cluster has less without a fold is told by its rows of that fold.
        left_reads, left_stale = whole_reads[owner] - reads, whole_stale[owner] - stale
        sums = (
            (np.ones_like(whole_reads), left_reads > 0),
            (whole_reads**2, left_reads**2),
            (whole_reads[:, None] * whole_stale, left_reads[:, None] * left_stale),
            (whole_stale**2, left_stale**2),
        )
        return cls(*(_less(whole, whole[owner] - left, key % folds, folds) for whole, left in sums))


def _added(number: NDArray[np.int64], rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the sums of the rows that have each number, of shape (count, …)."""
    total = np.zeros((count, *rows.shape[1:]), dtype=np.int64)
    if len(number):
        order = np.argsort(number, kind="stable")
        starts = np.flatnonzero(np.diff(number[order], prepend=-1))
        total[number[order][starts]] = np.add.reduceat(rows[order], starts, axis=0)
    return total


def _less(
    whole: NDArray[np.int64], lost: NDArray[np.int64], fold: NDArray[np.int64], folds: int
) -> NDArray[np.int64]:
    """Return the sum of the rows of a whole less what is lost without each fold; last, the sum."""
    total = whole.sum(axis=0)
    of_fold = np.stack([lost[fold == number].sum(axis=0) for number in range(folds)])
    return np.concatenate([total - of_fold, total[None]])
