"""Search for the read policy with the most fresh answers from the cache, within a share of stale ones.

Stale answers do not count as saved: a policy that answered at random would use up the share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mudkit.display import shows_fields
from mudkit.learning.costs import CostMatrix
from mudkit.learning.features import read_features
from mudkit.learning.frontier import READ_PRICES
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import FixedRule, LearntReads
from mudkit.learning.replay import SENT, replay
from mudkit.learning.trees import Groups, groups_by, grow

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_SEARCHED_READS", "RuleSearch", "TreeSearch", "search_rules", "search_trees"]

MAX_SEARCHED_READS: Final = 20_000
"""Reads on which rules are searched; of a larger trace every n-th device is taken."""

_KM: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
_MINUTES: Final = (2.0, 5.0, 10.0, 20.0, 40.0)
_MAX_EXTENSIONS: Final = 12
_REFINEMENTS: Final = 4
_LOCAL: Final = 0


@shows_fields
@dataclass(frozen=True)
class RuleSearch:
    """Rules of all tried distances and ages.

    ``best`` has the most fresh answers among those that are allowed, of equal ones the nearest and youngest
    (0 km and 0 minutes: none has any); ``extended`` names ranges it lies beyond, ``distance`` or ``age``.
    """

    table: pd.DataFrame
    best: FixedRule
    is_better: bool
    extended: tuple[str, ...]
    devices: int
    all_devices: int


@shows_fields
@dataclass(frozen=True)
class TreeSearch:
    """Trees by price of a stale answer, decisions on unseen devices at the best allowed one, and its tree."""

    table: pd.DataFrame
    local: NDArray[np.bool_]
    learnt: LearntReads


def search_rules(pairs: Pairs, stale: NDArray[np.bool_], start: FixedRule, max_stale: float) -> RuleSearch:
    """Replay rules of many distances and ages, and extend the range while the best one lies at its edge.

    Of more than :data:`MAX_SEARCHED_READS` reads those of every n-th device are replayed.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    all_devices = np.unique(pairs.device)
    devices = all_devices[:: -(-len(pairs.device) // MAX_SEARCHED_READS)]
    if len(devices) < len(all_devices):
        stale = stale[np.isin(pairs.device[pairs.read], devices)]
        pairs = pairs.of_devices(devices)
    distances, ages = pairs.distance_km, pairs.age_s / 60
    km, minutes = sorted({*_KM, start.km}), sorted({*_MINUTES, start.minutes})
    first = {"distance": (km[0], km[-1]), "age": (minutes[0], minutes[-1])}
    tried: dict[tuple[float, float], tuple[float, float]] = {}
    for _ in range(_MAX_EXTENSIONS):
        for rule in ((a, b) for a in km for b in minutes if (a, b) not in tried):
            tried[rule] = _shares(stale, replay(pairs, FixedRule(*rule).local(pairs)))
        allowed = [(sum(tried[rule]), *rule) for rule in tried if tried[rule][1] <= max_stale + 1e-12]
        _, *best = min([(1.0, 0.0, 0.0), *allowed])
        # Where no rule helps yet, the longest one still may.
        at = best if best[0] > 0 else [km[-1], minutes[-1]]
        if tried[at[0], at[1]][1] > max_stale + 1e-12:
            break
        if not (_extend(km, at[0], distances) or _extend(minutes, at[1], ages)):
            break
    extended = [
        name
        for (name, (low, high)), value in zip(first.items(), best, strict=True)
        if best[0] > 0 and not low <= value <= high
    ]
    of_start = tried[start.km, start.minutes]
    rows = [(*rule, *shares, shares[1] <= max_stale + 1e-12) for rule, shares in sorted(tried.items())]
    columns = ["km", "minutes", "sent_share", "stale_share", "is_allowed"]
    return RuleSearch(
        pd.DataFrame(rows, columns=columns),
        FixedRule(*best),
        best[0] > 0 and (not of_start[1] <= max_stale or sum(of_start) - sum(tried[best[0], best[1]]) > 1e-3),
        tuple(extended),
        len(devices),
        len(all_devices),
    )


def search_trees(
    pairs: Pairs, stale: NDArray[np.bool_], max_stale: float, *, by: Groups = "device"
) -> TreeSearch:
    """Grow trees once, and choose the price of a stale answer with the most fresh ones."""
    import pandas as pd

    trees = grow(
        read_features(pairs, "extended"),
        stale.astype(np.int64),
        groups_by(by, pairs.device, pairs.t_us)[pairs.read],
        2,
    )
    rows: dict[float, tuple[float, float]] = {}

    def try_price(price: float) -> bool:
        _, decided = trees.tree(CostMatrix(price, 1.0).table())
        rows[price] = _shares(stale, replay(pairs, decided == _LOCAL))
        return rows[price][1] <= max_stale + 1e-12

    allowed = [price for price in READ_PRICES if try_price(price)]
    if allowed and allowed[0] > READ_PRICES[0]:
        high = allowed[0]
        low = max(price for price in READ_PRICES if price < high)
        for _ in range(_REFINEMENTS):
            price = float(np.sqrt(low * high))
            low, high = (low, price) if try_price(price) else (price, high)
    best = min(
        (price for price in rows if rows[price][1] <= max_stale + 1e-12),
        key=lambda price: sum(rows[price]),
        default=READ_PRICES[-1],
    )
    costs = CostMatrix(best, 1.0).table()
    tree, decided = trees.tree(costs)
    table = pd.DataFrame(
        [(price, *rows[price]) for price in sorted(rows)], columns=["price", "sent_share", "stale_share"]
    )
    return TreeSearch(table, decided == _LOCAL, LearntReads(tree, "extended", costs))


def _extend(values: list[float], best: float, known: NDArray[np.float64]) -> bool:
    """Add a value beyond the edge at which the best one lies, where that makes a difference to some pairs."""
    if best == values[-1] and (known > best).any():
        values.append(2 * best)
    elif best == values[0] and ((known > 0) & (known < best)).any():
        values.insert(0, best / 2)
    else:
        return False
    return True


def _shares(stale: NDArray[np.bool_], served: NDArray[np.int64]) -> tuple[float, float]:
    """Return the shares of reads that were sent, and that were answered stale."""
    is_local = served != SENT
    return float(1 - is_local.mean()), float(stale[served[is_local]].sum() / len(served))
