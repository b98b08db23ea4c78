"""Frontiers: the shares that policies reach at many prices of a mistake, for comparison at equal shares.

The oracle chooses delays by hour on the writes it is measured on, so nobody can use its table. It estimates
how much of the gap to the bound a policy could close that knows of a write only its hour and whether it is a
weekend; the search is a descent that may stop short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments
from mudkit.learning.batching import PRICES, BatchTree, LearntWrites, delayed
from mudkit.learning.costs import CLASSES, CostMatrix, delay_costs
from mudkit.learning.features import Features, read_features
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import ReadTrees
from mudkit.learning.replay import SENT, replay, stale_answers
from mudkit.learning.trees import Groups
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
_POINT: Final = 1e-4
"""A point costs little beside a message: it decides between tables that are else alike."""


@check_arguments(types=False)
def read_frontier(
    pairs: Pairs,
    stale: NDArray[np.bool_],
    *,
    features: Features = "extended",
    prices: Sequence[float] = READ_PRICES,
    folds: int = 10,
) -> pd.DataFrame:
    """Replay read trees for many prices of a stale answer, in unnecessary queries.

    Parameters
    ----------
    pairs : Pairs
    stale : ndarray of bool, shape (pairs,)
        Whether serving each pair is stale.
    features : {'paper', 'extended'}
        The set of features, a key of :data:`~mudkit.learning.features.FEATURE_SETS`.
    prices : sequence of float
        Costs of a stale answer to try; an unnecessary query costs 1.
    folds : int
        Groups of devices; each is decided for by what was learnt from the others.

    Returns
    -------
    pandas.DataFrame
        A row a price: ``price, sent_share, stale_share, leaves`` (median over folds).

    Raises
    ------
    ParameterError, TraceContentError
        As :meth:`~mudkit.learning.Tree.learn`.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    local = np.zeros((len(prices), len(stale)), dtype=np.bool_)
    leaves = np.zeros((len(prices), min(folds, len(np.unique(pairs.device)))))
    for fold, (mine, others, own) in enumerate(pairs.folds(folds)):
        trees, known = ReadTrees.grow(others, stale[~mine], features), read_features(own, features)
        for i, price in enumerate(prices):
            learnt, _ = trees.choose(CostMatrix(price, 1.0).table())
            local[i, mine] = learnt.tree.decide(known) == 0
            leaves[i, fold] = learnt.leaves
    rows = []
    for i, price in enumerate(prices):
        served = replay(pairs, local[i])
        stale_share = stale_answers(stale, served) / len(served)
        rows.append((price, (served == SENT).mean(), stale_share, np.median(leaves[i])))
    return pd.DataFrame(rows, columns=["price", "sent_share", "stale_share", "leaves"])


@check_arguments(types=False)
def write_frontier(
    train: Writes,
    test: Writes,
    requests: ReadRequests,
    *,
    by: Groups = "device",
    prices: Sequence[float] = PRICES,
) -> pd.DataFrame:
    """Replay write trees for many prices of a delay that is too long, and every fixed delay.

    Parameters
    ----------
    train, test : Writes
        The writes from which trees are learnt, and those on which they are replayed.
    requests : ReadRequests
    by : {'device', 'day'}
        Which of them the training does not share with the test.
    prices : sequence of float
        Values of ``over`` in :func:`~mudkit.learning.delay_costs`.

    Returns
    -------
    pandas.DataFrame
        A row a price: ``price, message_share, point_share, missed_share, leaves``. Then one for each of
        :data:`~mudkit.learning.costs.CLASSES`, without a price.

    Raises
    ------
    TraceContentError
        As :meth:`~mudkit.learning.BatchTree.learn`.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    tree = BatchTree()
    trees, interval_s, count = tree.grown_trees(train, by), train.interval_s(), len(test.t_us)

    rows: list[tuple[float, ...]] = []
    for price in prices:
        costs = delay_costs(price, interval_s=interval_s)
        learnt = LearntWrites(trees.tree(tree.split(costs))[0], costs)
        leaves = int(np.count_nonzero(learnt.tree.is_leaf))
        rows.append((price, *batch_shares(test, learnt.due_us(test), requests), leaves))
    rows += [
        (math.nan, *batch_shares(test, delayed(test, np.full(count, class_number)), requests), 1)
        for class_number in range(len(CLASSES))
    ]
    return pd.DataFrame(rows, columns=["price", "message_share", "point_share", "missed_share", "leaves"])


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
