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
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.errors import TraceContentError
from mudkit.intervals import Interval
from mudkit.learning.batching import PRICES, Batch, BatchTree, delayed
from mudkit.learning.costs import delay_costs
from mudkit.learning.evaluate_batches import too_few
from mudkit.learning.features import write_features
from mudkit.learning.search import MAX_RISK, RISK
from mudkit.learning.trees import Folds, Groups, fold_numbers, groups_by
from mudkit.learning.writes import NEVER_US, ReadRequests, Writes, batches, missed
from mudkit.trace.recordings import device_codes
from mudkit.trace.schema import epoch_us
from mudkit.units import solar_day

GRID_MINUTES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1440.0)
_FINE: Final = 1.02
"""Delays that differ by a smaller factor are not tried between."""
_FOLDS: Final = 10


@dataclass(frozen=True)
class ReplayedDelay:
    """Delay that every device follows: messages and writes sent by device and day, stale reads.

    ``minutes`` is NaN for learnt delays.
    """

    minutes: float
    messages: NDArray[np.int64]
    points: NDArray[np.int64]
    is_stale: NDArray[np.bool_]


@dataclass(frozen=True)
class DelaySearch:
    """Writes and reads, prepared for the replay of delays.

    The points of the requests are counted. ``max_stale`` is the largest share of the reads that may become
    stale.
    """

    writes: Writes
    requests: ReadRequests
    completeness: float
    max_stale: float
    folds: Folds

    @cached_property
    def clusters(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Device and day of each read."""
        table = self.requests.table
        return device_codes(table["device"]), solar_day(epoch_us(table["ts"]), table["lon"].to_numpy())

    @cached_property
    def fold_of(self) -> NDArray[np.int64]:
        """Fold of each read."""
        return fold_numbers(self.clusters[0 if self.folds == "device" else 1], _FOLDS)

    @cached_property
    def cells(self) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """Cell of each write; device, day and writes of each cell of a device and day."""
        device, day = self.writes.device, solar_day(self.writes.t_us, self.writes.lon)
        begins = np.ones(len(day), dtype=np.bool_)  # writes are in the order of devices and times
        begins[1:] = (device[1:] != device[:-1]) | (day[1:] != day[:-1])
        cell = np.cumsum(begins, dtype=np.int32) - 1
        return cell, device[begins], day[begins], np.bincount(cell)

    def replay(self, policy: Batch) -> ReplayedDelay:
        """Replay a fixed delay of all devices."""
        return self.replay_due(policy.minutes, policy.due_us(self.writes))

    def replay_due(self, minutes: float, due_us: NDArray[np.int64]) -> ReplayedDelay:
        """Send all writes by the times at which they are due; a part of the devices is in memory."""
        cell, _, _, count = self.cells
        sent_us = np.empty_like(due_us)
        messages, points = np.zeros((2, len(count)), dtype=np.int64)
        for rows in self.writes.parts():
            part = self.writes.take(rows)
            sent_us[rows] = at_us = batches(part, due_us[rows]).sent_us
            sent = np.flatnonzero(at_us != NEVER_US)
            begins = np.ones(len(sent), dtype=np.bool_)
            begins[1:] = (np.diff(part.device[sent]) != 0) | (np.diff(at_us[sent]) != 0)
            points += np.bincount(cell[rows][sent], minlength=len(count))
            messages += np.bincount(cell[rows][sent[begins]], minlength=len(count))
        is_stale = missed(self.writes, sent_us, self.requests, self.completeness)
        return ReplayedDelay(minutes, messages, points, is_stale)

    def share_of_writes(self, counts: NDArray[np.int64]) -> Interval:
        """Return a count by device and day of the writes, and where it lies for as many others (95 %)."""
        _, device, day, writes = self.cells
        return intervals.clustered(
            counts / writes, device, day, weights=writes, ahead=True, limits=(0.0, 1.0)
        )

    def stale_share(self, replayed: ReplayedDelay) -> Interval:
        """Return the share of stale reads, and where it lies for as many other devices and days (95 %)."""
        return intervals.clustered(replayed.is_stale, *self.clusters, ahead=True, limits=(0.0, math.inf))

    def best(self, replays: Sequence[ReplayedDelay], left_out: int | None = None) -> ReplayedDelay | None:
        """Return the fewest messages within the limit, with a margin, on all folds but one; None without."""
        rows = np.flatnonzero(self.fold_of != left_out)
        if not len(rows) or not replays:
            return None
        stale = np.stack([one.is_stale[rows] for one in replays], axis=1).astype(np.float64)
        of_rows = [numbers[rows] for numbers in self.clusters]
        most = intervals.shares_ahead(stale, np.ones(len(rows)), *of_rows, cases=len(self.fold_of), risk=RISK)
        allowed = [one for one, share in zip(replays, most, strict=True) if share <= self.max_stale]
        return min(allowed, key=lambda one: int(one.messages.sum()), default=None)

    def risk(self, replays: Sequence[ReplayedDelay]) -> float:
        """Return the probability that delays chosen alike miss the limit on other devices and days."""
        nothing = np.zeros(len(self.fold_of), dtype=np.bool_)
        is_stale = nothing.copy()
        for fold in range(int(self.fold_of.max(initial=0)) + 1):
            mine, chosen = self.fold_of == fold, self.best(replays, fold)
            is_stale[mine] = (nothing if chosen is None else chosen.is_stale)[mine]
        return intervals.risk_ahead(is_stale, *self.clusters, limit=self.max_stale)

    def choose(self, replays: Sequence[ReplayedDelay]) -> tuple[ReplayedDelay | None, float]:
        """Return the fewest messages that keep the limit on other folds, too, with the risk of missing it."""
        left = list(replays)
        while (chosen := self.best(left)) is not None:
            risk = self.risk(left)
            if risk <= MAX_RISK:
                return chosen, risk
            left = [one for one in left if one.messages.sum() > chosen.messages.sum()]
        return None, 0.0

    def search(self) -> tuple[ReplayedDelay, ...]:
        """Replay fixed delays on a grid that is refined around the best; in order."""
        shortest = self.writes.interval_s() / 60.0  # sooner than the next write nothing is joined
        replays = {minutes: self.replay(Batch(minutes)) for minutes in GRID_MINUTES[:6]}
        while True:
            best, _ = self.choose([replays[minutes] for minutes in sorted(replays)])
            minutes = 0.0 if best is None else best.minutes
            new = _between(sorted(replays), minutes, shortest)
            if not new:
                return tuple(replays[minutes] for minutes in sorted(replays))
            replays |= {minutes: self.replay(Batch(minutes)) for minutes in new}

    def learnt(self) -> tuple[ReplayedDelay, ...]:
        """Replay delays by trees that are learnt from tenths of the devices, or days.

        Of the prices of a delay that is too long the lowest that keeps the limit is searched by halves.

        Raises
        ------
        TraceContentError
            There is nothing to learn from.
        """
        by: Groups = "device" if self.folds == "device" else "day"
        writes, tree = self.writes, BatchTree()
        groups = groups_by(by, writes.device, writes.t_us)
        count = len(np.unique(groups))
        if count < 4:
            raise too_few(f"{by}s", count, 4)
        tenth = fold_numbers(groups, min(_FOLDS, count // 2))  # one alone would tell nothing about another
        grown = []
        for number in (0, 1):  # the second tree decides for those from which the first is learnt
            train = writes.take(tenth == number)
            grown.append((tree.grown_trees(train, by), train.interval_s()))
        is_mine = (tenth != 0, tenth == 0)
        leaf = np.empty(len(writes.t_us), dtype=np.int32)
        for rows in writes.parts():
            known = write_features(writes.t_us[rows], writes.lat[rows], writes.lon[rows])
            for (trees, _), mine in zip(grown, is_mine, strict=True):
                leaf[rows][mine[rows]] = trees.whole.leaf_of(known[mine[rows]])
        replays: list[ReplayedDelay] = []
        low, high = 0, len(PRICES)
        while low < high:
            middle = (low + high) // 2
            decided = np.empty(len(writes.t_us), dtype=np.int8)
            for (trees, interval_s), mine in zip(grown, is_mine, strict=True):
                costs = delay_costs(PRICES[middle], interval_s=interval_s)
                decided[mine] = trees.tree(tree.split(costs))[0].action[leaf[mine]]
            replays.append(self.replay_due(math.nan, delayed(writes, decided)))
            low, high = (low, middle) if self.best(replays[-1:]) else (middle + 1, high)
        return tuple(replays)


def search_delays(
    writes: Writes, requests: ReadRequests, *, completeness: float, max_stale: float, folds: Folds = "device"
) -> DelaySearch:
    """Prepare the search for a delay.

    Parameters
    ----------
    writes : Writes
        Writes with their first reads.
    requests : ReadRequests
        Reads that are judged, with their points counted.
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
    search = DelaySearch(writes, requests, completeness, max_stale, folds)
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
    """Return delays between the best one and its neighbours; beyond the longest one the next of the grid."""
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
