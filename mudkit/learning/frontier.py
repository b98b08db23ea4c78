"""Frontiers: the shares that policies reach at many prices of a mistake, for comparison at equal shares.

The oracle chooses delays by hour on the writes it is measured on, so nobody can use its table. It estimates
how much of the gap to the bound a policy could close that knows of a write only its hour and whether it is a
weekend; the search is a descent that may stop short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments
from mudkit.learning.batching import PRICES, BatchTree, LearntWrites, delayed
from mudkit.learning.costs import CLASSES, CostMatrix, delay_costs
from mudkit.learning.devices import (
    MAX_LEARNT_PAIRS,
    Devices,
    Fleet,
    Writers,
    count_pairs,
    count_writes,
    no_reads,
    open_devices,
    open_writers,
)
from mudkit.learning.evaluate import (
    Alike,
    Staleness,
    check_staleness,
    decide_alike,
    examples_of_folds,
    pairs_of_folds,
)
from mudkit.learning.evaluate_batches import WriteStudy, draw_turns, groups_of
from mudkit.learning.features import Features, read_features
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import LearntReads, ReadTrees
from mudkit.learning.radio import RadioModel
from mudkit.learning.replay import SENT, replay, stale_answers
from mudkit.learning.trees import Folds, check_folds
from mudkit.learning.writes import ReadRequests, Writes, batch_shares
from mudkit.units import solar_time

if TYPE_CHECKING:
    import pandas as pd

READ_PRICES: Final = tuple(np.geomspace(0.0005, 200.0, 15).tolist())
ORACLE_PRICES: Final = (0.1, 0.2, 0.4)
"""Prices of a read that misses a write, in messages."""
_HOURS: Final = 24
_SATURDAY: Final = 5
_CLASSES: Final = tuple(
    CLASSES.index(minutes) for minutes in (0.0, 10.0, 20.0, 30.0, 60.0, 120.0, CLASSES[-1])
)
_SWEEPS: Final = 2
_POLICIES_AT_ONCE: Final = 8
"""Policies for writes that are replayed together: their late writes are in memory, or on disks, together."""
_POINT: Final = 1e-4
"""A point costs little beside a message: it decides between tables that are else alike."""


@check_arguments(types=False)
def read_frontier(
    labels: Any,
    reads: Any,
    *,
    stale: Staleness = "missing",
    completeness: float | None = None,
    features: Features = "extended",
    prices: Sequence[float] = READ_PRICES,
    positions: Any = None,
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0,
) -> pd.DataFrame:
    """Replay read trees for many prices of a stale answer, in unnecessary queries.

    Ten groups of devices are decided for in turn, each by what was learnt from the others. DataFrames are
    replayed in Spark's tasks, as by :func:`~mudkit.learning.evaluate_reads`, with the same result.

    Parameters
    ----------
    labels, reads : pyarrow.Table or Spark DataFrame
        The result of ``pipeline.label_reads``, and the reads that were labelled.
    stale : {'missing', 'completeness'}
        An answer is stale when at least one point is missing (Mobius 7.3), or when its completeness is
        below a threshold.
    completeness : float, optional
        The threshold for ``stale='completeness'``, above 0 and at most 1.
    features : {'paper', 'extended', 'dense'}
        The set of features, a key of :data:`~mudkit.learning.features.FEATURE_SETS`.
    prices : sequence of float
        Costs of a stale answer to try; an unnecessary query costs 1.
    positions : pyarrow.Table or Spark DataFrame, optional
        What was written: for ``dense`` features.
    seed : int
        Which devices trees are learnt from: as many as have
        :data:`~mudkit.learning.devices.MAX_LEARNT_PAIRS` pairs, all of them if there are fewer pairs.

    Returns
    -------
    pandas.DataFrame
        A row a price: ``price, sent_share, stale_share, leaves`` (median over groups).

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`~mudkit.learning.evaluate_reads`.
    """
    check_staleness(stale, completeness)
    with open_devices(labels, reads, positions) as devices:
        return frontier_of_reads(devices, completeness, features, prices, seed)


def frontier_of_reads(
    devices: Devices,
    completeness: float | None,
    features: Features = "extended",
    prices: Sequence[float] = READ_PRICES,
    seed: int = 0,
) -> pd.DataFrame:
    """Replay read trees of devices as :func:`read_frontier` does."""
    import pandas as pd  # loading it takes longer than loading all of mudkit

    fleet = Fleet.of(devices.map(count_pairs))
    if not len(fleet.ids):
        raise no_reads()
    sample = devices.gather(fleet, fleet.sample_pairs(seed, MAX_LEARNT_PAIRS))
    is_stale = sample.are_stale(completeness)
    are_alike = decide_alike(is_stale) is not None
    of_folds: list[tuple[LearntReads | Alike, ...]] = []
    for of_others, stale in examples_of_folds(sample, is_stale, fleet.ids):
        if not are_alike and (alike := decide_alike(stale)) is not None:
            of_folds.append((alike,) * len(prices))
            continue
        trees = ReadTrees.grow(of_others, stale, features)
        of_folds.append(tuple(trees.choose(CostMatrix(price, 1.0).table())[0] for price in prices))
    (counts,) = devices.total(_ReplayByPrice(completeness, features, fleet.ids, tuple(of_folds)))
    leaves = np.median([[learnt.leaves for learnt in of_fold] for of_fold in of_folds], axis=0)
    table = pd.DataFrame({"price": np.asarray(prices, dtype=np.float64)})
    table[["sent_share", "stale_share"]] = counts / int(fleet.rows.sum())
    return table.assign(leaves=leaves)


@dataclass(frozen=True)
class _ReplayByPrice:
    """Queries sent and stale answers of some devices by price, by the trees of each fold for all prices."""

    completeness: float | None
    features: Features
    fleet_ids: NDArray[np.int64]
    of_folds: tuple[tuple[LearntReads | Alike, ...], ...]

    def __call__(self, pairs: Pairs) -> list[NDArray[np.int64]]:
        is_stale = pairs.are_stale(self.completeness)
        local = np.zeros((len(self.of_folds[0]), len(is_stale)), dtype=np.bool_)
        groups = pairs_of_folds(pairs, self.fleet_ids, len(self.of_folds))
        for by_price, (is_own, own) in zip(self.of_folds, groups, strict=True):
            known = read_features(own, self.features, by_price[0].density)
            for decided, learnt in zip(local, by_price, strict=True):
                if isinstance(learnt, Alike):
                    decided[is_own] = learnt.is_local
                else:
                    decided[is_own] = learnt.tree.decide(known) == 0
        replays = [replay(pairs, decided) for decided in local]
        counts = [((served == SENT).sum(), stale_answers(is_stale, served)) for served in replays]
        return [np.array(counts, dtype=np.int64)]


@check_arguments(types=False)
def write_frontier(
    first_reads: Any,
    positions: Any,
    reads: Any,
    *,
    folds: Folds = "device",
    prices: Sequence[float] = PRICES,
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0,
) -> pd.DataFrame:
    """Replay write trees for many prices of a delay that is too long, and every fixed delay.

    DataFrames are replayed in Spark's tasks, as by :func:`~mudkit.learning.evaluate_writes`, with the same
    result.

    Parameters
    ----------
    first_reads, positions, reads : pyarrow.Table or Spark DataFrame
        The result of ``pipeline.label_writes``, and the positions and reads that it was given.
    folds : {'device', 'time'}
        What trees are learnt from: a tenth of the devices, or the first tenth of the days; two at least. They
        are tested on the rest.
    prices : sequence of float
        Values of ``over`` in :func:`~mudkit.learning.delay_costs`.
    seed : int
        Which devices of a tenth trees are learnt from: as many as have
        :data:`~mudkit.learning.devices.MAX_LEARNT_WRITES` writes, all of them if there are fewer.

    Returns
    -------
    pandas.DataFrame
        A row a price: ``price, message_share, point_share, missed_share, leaves``. Then one for each of
        :data:`~mudkit.learning.costs.CLASSES`, without a price.

    Raises
    ------
    ParameterError, TraceContentError
        As :func:`~mudkit.learning.evaluate_writes`.
    """
    check_folds(folds)
    with open_writers(first_reads, positions) as writers:
        return frontier_of_writes(writers, ReadRequests.of(reads), folds, prices, seed)


def frontier_of_writes(
    writers: Writers,
    requests: ReadRequests,
    folds: Folds = "device",
    prices: Sequence[float] = PRICES,
    seed: int = 0,
) -> pd.DataFrame:
    """Replay write trees of devices as :func:`write_frontier` does."""
    import pandas as pd  # loading it takes longer than loading all of mudkit

    study = WriteStudy(writers, Fleet.of(writers.map(count_writes)), requests, None, RadioModel())
    turn = draw_turns(study.fleet, folds, 1)[0]
    tree, train = BatchTree(), study.sample(turn, seed)
    trees, interval_s = tree.grown_trees(train, groups_of(folds)), train.interval_s()
    policies: list[LearntWrites | _Delay] = []
    for price in prices:
        costs = delay_costs(price, interval_s=interval_s)
        policies.append(LearntWrites(trees.tree(tree.split(costs))[0], costs))
    policies += [_Delay(number) for number in range(len(CLASSES))]
    measured: list[list[float]] = []
    for first in range(0, len(policies), _POLICIES_AT_ONCE):
        some = tuple(policies[first : first + _POLICIES_AT_ONCE])
        measured += study.measure([some], [turn])[0][0]
    table = pd.DataFrame({"price": [*prices, *[math.nan] * len(CLASSES)]})
    table[["message_share", "point_share", "missed_share"]] = [of[:3] for of in measured]
    return table.assign(leaves=[policy.leaves for policy in policies])


@dataclass(frozen=True)
class _Delay:
    """The same delay for all writes: the number of one of :data:`CLASSES`."""

    class_number: int
    leaves = 1

    def due_us(self, writes: Writes) -> NDArray[np.int64]:
        """Return the time by which each write must be sent."""
        return delayed(writes, np.full(len(writes.t_us), self.class_number))


@check_arguments(types=False)
def interpolate_frontier(frontier: pd.DataFrame, column: str, limited: str, limit: float) -> float:
    """Return the smallest value of a column at a limit of another one.

    Between two trees it is interpolated: each tree decides for a part of the devices.

    Parameters
    ----------
    frontier : pandas.DataFrame
        Result of :func:`read_frontier` or :func:`write_frontier`.
    column : str
        Column to read.
    limited : str
        Column that is limited.
    limit : float
        Largest value of the column ``limited``.

    Returns
    -------
    float
        Infinite if no mixture of two trees keeps the limit.
    """
    x, y = frontier[limited].to_numpy(), frontier[column].to_numpy()
    best = float(np.min(y[x <= limit], initial=np.inf))
    for i in np.flatnonzero(x <= limit):
        for j in np.flatnonzero(x > limit):
            part = (limit - x[i]) / (x[j] - x[i])
            best = min(best, float(y[i] + part * (y[j] - y[i])))
    return best


def hours_of(t_us: NDArray[np.int64], lon: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of the hour in solar time: 0 to 23 on weekdays, 24 to 47 at weekends."""
    hour, weekday = solar_time(t_us, lon)
    return hour.astype(np.int64) + _HOURS * (weekday >= _SATURDAY)


def oracle_frontier(writes: Writes, requests: ReadRequests) -> pd.DataFrame:
    """Choose the delay of each hour by coordinate descent, for some prices of a read that misses a write.

    The columns are those of :func:`write_frontier` but for ``leaves``; at price 0 nothing is sent.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    hour = hours_of(writes.t_us, writes.lon)

    def shares(table: NDArray[np.int64]) -> tuple[float, float, float]:
        return batch_shares(writes, delayed(writes, table[hour]), requests)

    def chosen(price: float) -> NDArray[np.int64]:
        def cost(table: NDArray[np.int64]) -> float:
            messages, points, late = shares(table)
            return messages + _POINT * points + price * late

        table = np.full(2 * _HOURS, CLASSES.index(30.0))
        least = cost(table)
        for _ in range(_SWEEPS):
            before = table.copy()
            for hour_number in np.unique(hour):
                for number in _CLASSES:
                    other = table.copy()
                    other[hour_number] = number
                    if number != table[hour_number] and (its_cost := cost(other)) < least:
                        least, table = its_cost, other
            if np.array_equal(before, table):
                break
        return table

    nothing = np.full(2 * _HOURS, len(CLASSES) - 1)
    rows = [(price, *shares(chosen(price) if price else nothing)) for price in (0.0, *ORACLE_PRICES)]
    return pd.DataFrame(rows, columns=["price", "message_share", "point_share", "missed_share"])
