"""Frontiers: the shares that trees reach at many prices of a mistake, for comparison at equal shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.learning.batching import PRICES, BatchTree, LearntWrites, delayed
from mudkit.learning.costs import CLASSES, CostMatrix, delay_costs
from mudkit.learning.features import Features, read_features
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, replay
from mudkit.learning.trees import Groups, grow
from mudkit.learning.writes import ReadRequests, Writes, batches, missed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["READ_PRICES", "interpolate_frontier", "read_frontier", "write_frontier"]

READ_PRICES: Final = tuple(np.geomspace(0.0005, 200.0, 15).tolist())


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
        The costs of a stale answer to try; an unnecessary query costs 1.
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

    known, groups = read_features(pairs, features), pairs.device[pairs.read]
    devices = np.unique(pairs.device)
    local = np.zeros((len(prices), len(stale)), dtype=np.bool_)
    leaves = np.zeros((len(prices), min(folds, len(devices))))
    for fold in range(leaves.shape[1]):
        mine = np.isin(groups, devices[fold::folds])
        trees = grow(known[~mine], stale[~mine].astype(np.int64), groups[~mine], 2)
        for i, price in enumerate(prices):
            tree = trees.tree(CostMatrix(price, 1.0).table())[0]
            local[i, mine] = tree.decide(known[mine]) == 0
            leaves[i, fold] = np.count_nonzero(tree.is_leaf)
    rows = []
    for i, price in enumerate(prices):
        served = replay(pairs, local[i])
        count = np.count_nonzero(stale[served[served != SENT]])
        rows.append((price, (served == SENT).mean(), count / len(served), np.median(leaves[i])))
    return pd.DataFrame(rows, columns=["price", "sent_share", "stale_share", "leaves"])


def write_frontier(
    train: Writes,
    test: Writes,
    requests: ReadRequests,
    *,
    by: Groups = "device",
    prices: Sequence[float] = PRICES,
) -> pd.DataFrame:
    """Replay write trees for many prices of a delay that is too long, and every fixed delay.

    A fixed delay is a tree of one leaf; which of them costs give is chance.

    Parameters
    ----------
    train, test : Writes
        The writes from which trees are learnt, and those on which they are replayed.
    requests : ReadRequests
    by : {'device', 'day'}
        Which of them the training does not share with the test.
    prices : sequence of float
        As ``over`` of :func:`~mudkit.learning.delay_costs`.

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

    def shares(due_us: NDArray[np.int64]) -> tuple[float, float, float]:
        sent = batches(test, due_us)
        return sent.messages / count, sent.points / count, float(missed(test, sent.sent_us, requests).mean())

    rows: list[tuple[float, ...]] = []
    for price in prices:
        costs = delay_costs(price, interval_s=interval_s)
        learnt = LearntWrites(trees.tree(tree.split(costs))[0], costs)
        leaves = int(np.count_nonzero(learnt.tree.is_leaf))
        rows.append((price, *shares(learnt.due_us(test)), leaves))
    rows += [
        (math.nan, *shares(delayed(test, np.full(count, class_number))), 1)
        for class_number in range(len(CLASSES))
    ]
    return pd.DataFrame(rows, columns=["price", "message_share", "point_share", "missed_share", "leaves"])


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
        Smallest value of ``column`` that a mixture of two trees reaches; infinite if none keeps the limit.
    """
    x, y = frontier[limited].to_numpy(), frontier[column].to_numpy()
    best = float(np.min(y[x <= limit], initial=np.inf))
    for i in np.flatnonzero(x <= limit):
        for j in np.flatnonzero(x > limit):
            part = (limit - x[i]) / (x[j] - x[i])
            best = min(best, float(y[i] + part * (y[j] - y[i])))
    return best
