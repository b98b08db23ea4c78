"""Search for the longest delay of writes within a limit of stale reads.

Every device delays its writes: what is measured is what happens when all follow the recommendation. A delay
is chosen on the reads of some devices (or days) and scored on those of the others, in ten folds, within the
limit with a margin, as :mod:`mudkit.learning.search` chooses policies for reads. Beside fixed delays stand
delays that depend on place and time: each device follows a tree learnt from a tenth of the devices (or days)
that it does not belong to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.errors import TraceContentError
from mudkit.intervals import Interval
from mudkit.learning.batching import PRICES, Batch, BatchPolicy, BatchTree, delayed
from mudkit.learning.candidates import RISK
from mudkit.learning.costs import CLASSES, delay_costs
from mudkit.learning.devices import MAX_LEARNT_WRITES, Fleet, Writers, count_writes
from mudkit.learning.evaluate_batches import (
    CountLate,
    counts_by_read,
    late_writes,
    too_few,
    with_counted_points,
)
from mudkit.learning.features import write_features
from mudkit.learning.search import MAX_RISK
from mudkit.learning.trees import CostTree, Folds, Groups, fold_numbers, groups_by
from mudkit.learning.writes import NEVER_US, ReadRequests, Writes, batches
from mudkit.trace.recordings import device_codes
from mudkit.trace.schema import device_ids, epoch_us
from mudkit.units import US_PER_S, solar_day

GRID_MINUTES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1440.0)
_FINE: Final = 1.02
"""Delays that differ by a smaller factor are not tried between."""
_FOLDS: Final = 10
_NEVER_COST: Final = 1e6
"""Cost of keeping a write for good, where that is not allowed: more than of any delay."""


@dataclass(frozen=True)
class ReplayedDelay:
    """Delay that every device follows: messages and writes sent by device and day, stale reads.

    ``minutes`` is NaN for learnt delays.
    """

    policy: BatchPolicy
    minutes: float
    messages: NDArray[np.int64]
    points: NDArray[np.int64]
    is_stale: NDArray[np.bool_]


@dataclass(frozen=True)
class _SentDays:
    """Writes of devices, by id, and days of solar time; how many are sent, and in how many messages."""

    device: NDArray[np.int64]
    day: NDArray[np.int64]
    writes: NDArray[np.int64]
    messages: NDArray[np.int64]
    points: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[_SentDays]) -> _SentDays:
        """Put parts of other devices in order."""
        device, day, *counts = (
            np.concatenate([getattr(part, of.name) for part in parts]) for of in fields(cls)
        )
        order = np.lexsort((day, device))
        return cls(device[order], day[order], *(of[order] for of in counts))


@dataclass(frozen=True)
class _SendDays:
    """Sends the writes of some devices by the times at which they are due; late ones are a table."""

    policy: BatchPolicy

    def __call__(self, writes: Writes) -> tuple[_SentDays, pa.Table]:
        device, day = writes.device, solar_day(writes.t_us, writes.lon)
        begins = np.ones(len(day), dtype=np.bool_)  # writes are in the order of devices and times
        begins[1:] = (device[1:] != device[:-1]) | (day[1:] != day[:-1])
        cell, count = np.cumsum(begins) - 1, int(np.count_nonzero(begins))
        sent_us = batches(writes, self.policy.due_us(writes)).sent_us
        sent = np.flatnonzero(sent_us != NEVER_US)
        is_message = np.ones(len(sent), dtype=np.bool_)
        is_message[1:] = (np.diff(device[sent]) != 0) | (np.diff(sent_us[sent]) != 0)
        ids = device_ids(writes.names.to_pylist())[device[begins]]
        sums = [np.bincount(cell[of], minlength=count) for of in (slice(None), sent[is_message], sent)]
        return _SentDays(ids, day[begins], *sums), late_writes(0, writes, sent_us)


@dataclass(frozen=True)
class LearntDelays:
    """Delays by place and time: two trees, of which each decides for what it was not learnt from.

    The second decides for the devices, by id, or days (UTC) from which the first was learnt: ``keys``.
    ``costs`` are those by which the first was cut.
    """

    trees: tuple[CostTree, CostTree]
    costs: NDArray[np.float64]
    by: Groups
    keys: NDArray[np.int64]

    def due_us(self, writes: Writes) -> NDArray[np.int64]:
        """Return the time by which each write must be sent."""
        ids = device_ids(writes.names.to_pylist())
        is_second = np.isin(groups_by(self.by, ids[writes.device], writes.t_us), self.keys)
        known = write_features(writes.t_us, writes.lat, writes.lon)
        decided = np.empty(len(writes.t_us), dtype=np.int8)
        for tree, mine in zip(self.trees, (~is_second, is_second), strict=True):
            decided[mine] = tree.decide(known[mine])
        return delayed(writes, decided)


def _count_steps(writes: Writes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the times between writes of a device, in whole seconds."""
    steps_us = np.diff(writes.t_us)[np.diff(writes.device) == 0]
    return np.unique(steps_us // US_PER_S, return_counts=True)


@dataclass(frozen=True)
class DelaySearch:
    """Writes and reads, prepared for the replay of delays.

    The points of the requests are counted. ``max_stale`` is the largest share of the reads that may become
    stale.
    """

    writers: Writers
    requests: ReadRequests
    completeness: float
    max_stale: float
    folds: Folds

    @cached_property
    def fleet(self) -> Fleet:
        """The devices that write."""
        return Fleet.of(self.writers.map(count_writes))

    @cached_property
    def clusters(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Device and day of each read."""
        table = self.requests.table
        return device_codes(table["device"]), solar_day(epoch_us(table["ts"]), table["lon"].to_numpy())

    @cached_property
    def fold_of(self) -> NDArray[np.int64]:
        """Number of the fold that each read is tested in, by its device or its day."""
        return fold_numbers(self.clusters[0 if self.folds == "device" else 1], _FOLDS)

    @cached_property
    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Device, by id, day and writes of each cell of a device and day."""
        sent = self._send(Batch(0.0))[0]
        return sent.device, sent.day, sent.writes

    @cached_property
    def interval_s(self) -> float:
        """Median time between two writes of a device, in whole seconds; 15 if none writes twice."""
        counted = self.writers.map(_count_steps)
        steps_s, counts = (np.concatenate([part[i] for part in counted]) for i in range(2))
        if not counts.sum():
            return 15.0
        order = np.argsort(steps_s)
        past, half = np.cumsum(counts[order]), counts.sum() / 2
        middle = [np.searchsorted(past, half, side=side) for side in ("left", "right")]
        return float(np.mean(steps_s[order][np.minimum(middle, len(order) - 1)]))

    def _send(self, policy: BatchPolicy) -> tuple[_SentDays, pa.Table]:
        """Send the writes of all devices by a policy.

        Return what was sent by device and day, and late points by read.
        """
        parts, late = self.writers.late(_SendDays(policy), self.requests, CountLate(self.completeness))
        return _SentDays.joined(parts), late

    def replay(self, policy: Batch) -> ReplayedDelay:
        """Replay a fixed delay of all devices."""
        return self._replay(policy.minutes, policy)

    def _replay(self, minutes: float, policy: BatchPolicy) -> ReplayedDelay:
        """Replay any policy as the delay ``minutes``."""
        sent, late = self._send(policy)
        lacking = self.requests.lack(counts_by_read(late, 0, len(self.requests.table)), self.completeness)
        return ReplayedDelay(policy, minutes, sent.messages, sent.points, lacking)

    def share_of_writes(self, counts: NDArray[np.int64]) -> Interval:
        """Return a count by device and day of the writes, and where it lies for as many others (95 %)."""
        device, day, writes = self.cells
        return intervals.clustered(counts, device, day, weights=writes, ahead=True, limits=(0.0, 1.0))

    def stale_share(self, replayed: ReplayedDelay) -> Interval:
        """Return the share of stale reads, and where it lies for as many other devices and days (95 %)."""
        return intervals.clustered(replayed.is_stale, *self.clusters, ahead=True, limits=(0.0, math.inf))

    def best(self, replays: Sequence[ReplayedDelay], left_out: int | None = None) -> ReplayedDelay | None:
        """Return the fewest messages within the limit, with a margin, on all folds but one; None without."""
        rows = np.flatnonzero(self.fold_of != left_out)
        if not len(rows) or not replays:
            return None
        stale = np.stack([one.is_stale[rows] for one in replays], axis=1).astype(np.int64)
        ones = np.ones(len(rows), dtype=np.int64)
        of_rows = intervals.clusterings(stale, ones, *(numbers[rows] for numbers in self.clusters))
        most = intervals.shares_ahead(
            stale.sum(axis=0), len(rows), of_rows, new_cases=len(self.fold_of), risk=RISK
        )
        allowed = [one for one, share in zip(replays, most, strict=True) if share <= self.max_stale]
        return min(allowed, key=lambda one: int(one.messages.sum()), default=None)

    def risk(self, replays: Sequence[ReplayedDelay]) -> float:
        """Return the probability that delays chosen alike miss the limit on other devices and days."""
        nothing = np.zeros(len(self.fold_of), dtype=np.bool_)
        is_stale = nothing.copy()
        for fold in range(int(self.fold_of.max(initial=0)) + 1):
            mine, chosen = self.fold_of == fold, self.best(replays, fold)
            is_stale[mine] = (nothing if chosen is None else chosen.is_stale)[mine]
        ones = np.ones(len(is_stale), dtype=np.int64)
        return intervals.risk_ahead(is_stale.astype(np.int64), ones, *self.clusters, limit=self.max_stale)

    def choose(self, replays: Sequence[ReplayedDelay]) -> tuple[ReplayedDelay | None, float]:
        """Return the best delay that keeps the limit on other folds, too, with its risk of missing it.

        None without one.
        """
        left = list(replays)
        while (chosen := self.best(left)) is not None:
            risk = self.risk(left)
            if risk <= MAX_RISK:
                return chosen, risk
            left = [one for one in left if one.messages.sum() > chosen.messages.sum()]
        return None, 0.0

    def search(self) -> tuple[ReplayedDelay, ...]:
        """Replay fixed delays on a grid that is refined around the best; in order."""
        shortest = self.interval_s / 60.0  # sooner than the next write nothing is joined
        replays = {minutes: self.replay(Batch(minutes)) for minutes in GRID_MINUTES[:6]}
        while True:
            best, _ = self.choose([replays[minutes] for minutes in sorted(replays)])
            minutes = 0.0 if best is None else best.minutes
            new = _between(sorted(replays), minutes, shortest)
            if not new:
                return tuple(replays[minutes] for minutes in sorted(replays))
            replays |= {minutes: self.replay(Batch(minutes)) for minutes in new}

    def learnt(
        self, seed: int = 0, *, keeps: bool = True, weekdays_from: int = 0
    ) -> tuple[ReplayedDelay, ...]:
        """Replay delays by trees that are learnt from tenths of the devices, or days.

        ``keeps``: whether a write may stay on its device for good. Trees ask for weekdays if there are writes
        on as many days as ``weekdays_from``.

        Of the prices of a delay that is too long the lowest that keeps the limit is searched by halves. Of a
        tenth with many writes a sample of the devices is learnt from, drawn by ``seed``.

        Raises
        ------
        TraceContentError
            There is nothing to learn from.
        """
        by: Groups = "device" if self.folds == "device" else "day"
        keys = self.fleet.ids if by == "device" else self.fleet.days
        if len(keys) < 4:
            raise too_few(f"{by}s", len(keys), 4)
        parts = min(_FOLDS, len(keys) // 2)  # one alone would tell nothing about another
        tenth = np.arange(len(keys)) % parts
        tree = BatchTree()
        grown = []
        for number in (0, 1):  # the second tree decides for those from which the first is learnt
            train = self._sample(by, keys[tenth == number], seed)
            has_weekdays = len(self.fleet.days) >= weekdays_from
            grown.append((tree.grown_trees(train, by, has_weekdays=has_weekdays), train.interval_s()))
        replays: list[ReplayedDelay] = []
        low, high = 0, len(PRICES)
        while low < high:
            middle = (low + high) // 2
            costs = [delay_costs(PRICES[middle], interval_s=interval_s) for _, interval_s in grown]
            if not keeps:
                costs = [
                    np.where(np.arange(len(CLASSES)) == len(CLASSES) - 1, _NEVER_COST, of) for of in costs
                ]
            first, second = (
                trees.tree(tree.split(of))[0] for (trees, _), of in zip(grown, costs, strict=True)
            )
            policy = LearntDelays((first, second), costs[0], by, np.sort(keys[tenth == 0]))
            replays.append(self._replay(math.nan, policy))
            low, high = (low, middle) if self.best(replays[-1:]) else (middle + 1, high)
        return tuple(replays)

    def _sample(self, by: Groups, keys: NDArray[np.int64], seed: int) -> Writes:
        """Return the writes of some devices, by id, or days."""
        among = np.isin(self.fleet.ids, keys) if by == "device" else None
        chosen = self.fleet.sample(seed, MAX_LEARNT_WRITES, among)
        writes = self.writers.gather(self.fleet, chosen, NEVER_US)
        if by == "device":
            return writes
        return writes.take(np.isin(groups_by(by, writes.device, writes.t_us), keys))


def search_delays(
    writers: Writers,
    requests: ReadRequests,
    *,
    completeness: float,
    max_stale: float,
    folds: Folds = "device",
) -> DelaySearch:
    """Prepare the search for a delay.

    Parameters
    ----------
    writers : Writers
        Writes with their first reads.
    requests : ReadRequests
        Reads that are judged.
    completeness : float
        Share of what others wrote below which a read is stale.
    max_stale : float
        Largest share of the reads that may become stale because writes wait.
    folds : {'device', 'time'}
        What a delay is scored on: readers, or days, other than those it is chosen on.

    Raises
    ------
    TraceContentError
        All reads are of one device, or day.
    """
    if completeness < 1:
        requests = with_counted_points(writers, requests)
    search = DelaySearch(writers, requests, completeness, max_stale, folds)
    if not search.fold_of.max(initial=0):
        one = "device" if folds == "device" else "day"
        raise TraceContentError(
            f"All reads are of one {one}: nothing would say whether a delay holds for another.",
            found=f"reads of one {one}",
            expected="reads of two at least",
            remedy="take a longer trace, or more devices",
        )
    return search


def _between(minutes: Sequence[float], best: float, shortest: float) -> list[float]:
    """Return the delays to try next, in minutes: between the best and its neighbours; empty: none.

    Beyond the longest one it is the next of the grid; if 0 is best, shorter ones down to ``shortest``.
    """
    at = minutes.index(best)
    new = []
    if best and best > _FINE * (low := minutes[at - 1]) and low:
        new.append(math.sqrt(low * best))
    if at + 1 == len(minutes):
        new += [longer for longer in GRID_MINUTES if longer > best][:1]
    elif best and minutes[at + 1] > _FINE * best:
        new.append(math.sqrt(best * minutes[at + 1]))
    elif not best and minutes[1] > 2.0 * shortest:
        new.append(minutes[1] / 2.0)
    rounded = [round(60.0 * one) / 60.0 for one in new]  # whole seconds
    return [one for one in rounded if one not in minutes]
