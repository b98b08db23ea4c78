"""Policies for writes: how long each waits for others, or whether it is sent at all (Mobius 6 and 7.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import check_arguments, number
from mudkit.display import Displayed, View
from mudkit.learning.costs import CLASSES, Costs, delay_costs, write_costs
from mudkit.learning.features import WRITE_FEATURES, write_features
from mudkit.learning.trees import CostTree, CrossValidatedTrees, Groups, groups_by, grow, learnt_view
from mudkit.learning.writes import NEVER_US, ReadRequests, Writes, batches, missed
from mudkit.units import US_PER_S
from mudkit.words import Label, add_labels

add_labels(
    {
        "kept_share": Label("reads kept", "%", 100.0),
        "cost_per_write": Label("cost of a write", "messages"),
    }
)

_DELAYS_US: Final = np.array([*(round(minutes * 60) * US_PER_S for minutes in CLASSES[:-1]), NEVER_US])
PRICES: Final = tuple(np.geomspace(0.001, 10.0, 25).tolist())
"""Prices of a delay that is too long, for the search over prices."""


class BatchPolicy(Protocol):
    """Protocol of a write policy in replay."""

    def due_us(self, writes: Writes) -> NDArray[np.int64]:
        """Return the time by which each write must be sent; ``NEVER_US``: never."""
        ...


@runtime_checkable
class BatchLearner(Protocol):
    """A policy for writes that has to be learnt."""

    def learn(
        self,
        writes: Writes,
        requests: ReadRequests,
        by: Groups = "device",
        completeness: float | None = None,
    ) -> BatchPolicy:
        """Train on labelled writes, for other devices or for other days; see :meth:`BatchTree.learn`."""
        ...


@check_arguments(types=False)
@dataclass(frozen=True)
class Batch:
    """Fixed delay for all writes (the baselines of Mobius 7.3 are 10 and 30 minutes).

    Parameters
    ----------
    minutes : float
        Delay of each write, in minutes, from 0 (sent at once) to 1,000,000.
    """

    minutes: float

    def __post_init__(self) -> None:
        number("minutes", self.minutes, 0.0, 1e6)

    def due_us(self, writes: Writes) -> NDArray[np.int64]:
        """Return the times of writes with the same delay each."""
        return writes.t_us + round(self.minutes * 60 * US_PER_S)

    def __str__(self) -> str:
        return f"{self.minutes:g} min"


@check_arguments(types=False)
@dataclass(frozen=True)
class BatchBound:
    """The fewest messages, and points, with which no read misses a write, found afterwards (Mobius 7.3).

    A write is sent when the first read of another device asks, or never; no other schedule of a device has
    fewer messages. Where a read may miss some points (a completeness below 1), it is no bound.

    Parameters
    ----------
    match : Batch, optional
        Reads that miss a write under this policy may miss any: the fewest messages with which no other
        read misses one. A policy that lets other reads miss writes may send fewer.
    """

    match: Batch | None = None

    def __str__(self) -> str:
        return "bound, no read misses" if self.match is None else f"bound, misses the reads of {self.match}"


@check_arguments(types=False)
@dataclass(frozen=True)
class BatchTree:
    """A decision tree from place and time to the delay that is safe.

    Parameters
    ----------
    cost : str or array_like
        A preset of :data:`~mudkit.learning.WRITE_COSTS`, or a 14 by 14 matrix: rows how long a write may
        wait, columns how long it does.
    match : Batch, optional
        In place of a cost: :func:`~mudkit.learning.delay_costs` with the lowest price of a delay that is too
        long with which no more reads miss writes than under this policy, both replayed on what it learns
        from (each device by a tree that has not seen it). Where no price will do, each write goes at once.
    shared : bool
        Whether a delay that is too long costs each write its part in the read that misses it, instead of the
        whole cost.
    """

    cost: Costs = "latency"
    match: Batch | None = None
    shared: bool = True

    def learn(
        self,
        writes: Writes,
        requests: ReadRequests,
        by: Groups = "device",
        completeness: float | None = None,
    ) -> LearntWrites:
        """Train on labelled writes.

        Parameters
        ----------
        writes : Writes
        requests : ReadRequests
        by : {'device', 'day'}
            What the tree is to hold for: other devices, or other days.
        completeness : float, optional
            With ``match``: share of an answer's points, of those written here, without which a read misses
            writes; by default it does when it lacks one (see :func:`~mudkit.learning.writes.missed`).

        Raises
        ------
        ParameterError
            The costs are not usable.
        TraceContentError
            There is nothing to learn from: no writes, all of one class, one device only.
        """
        costs = write_costs(self.cost)
        trees = self.grown_trees(writes, by)
        if self.match is None:
            return LearntWrites(trees.tree(self.split(costs))[0], costs)
        if completeness is not None:
            requests = requests.counted(writes)

        def missing(due_us: NDArray[np.int64]) -> int:
            return int(missed(writes, batches(writes, due_us).sent_us, requests, completeness).sum())

        most = missing(self.match.due_us(writes))
        interval_s = writes.interval_s()
        for price in PRICES:
            costs = delay_costs(price, interval_s=interval_s)
            tree, decided = trees.tree(self.split(costs))
            if missing(delayed(writes, decided)) <= most:
                return LearntWrites(tree, costs)
        # No price is high enough: whatever waits costs, so that nothing does and no read misses any.
        costs = np.where(np.arange(len(CLASSES)) == 0, 0.0, np.ones((len(CLASSES), 1)))
        return LearntWrites(trees.tree(self.split(costs))[0], costs)

    def grown_trees(
        self, writes: Writes, by: Groups = "device", *, has_weekdays: bool = True
    ) -> CrossValidatedTrees:
        """Grow trees of ``writes`` for any costs; see :func:`~mudkit.learning.trees.grow`.

        Without ``has_weekdays`` they do not ask for weekdays.
        """
        known = write_features(writes.t_us, writes.lat, writes.lon)
        if not has_weekdays:
            known[:, WRITE_FEATURES.index("weekday")] = 0.0
        weight = writes.reads_each() if self.shared else None
        return grow(
            known, writes.classes(), groups_by(by, writes.device, writes.t_us), len(CLASSES), weight=weight
        )

    def split(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Stack the costs as trees weigh them: those of a whole write above those of its part in a read."""
        return np.vstack([np.tril(costs), np.triu(costs, 1)]) if self.shared else costs

    def __str__(self) -> str:
        if self.match is not None:
            return f"tree, misses no more than {self.match} in training"
        return f"tree, {self.cost if isinstance(self.cost, str) else 'own costs'}"


@dataclass(frozen=True, repr=False)
class LearntWrites(Displayed):
    """A learnt tree for writes, with its cost matrix: how long a write may wait by how long it does."""

    tree: CostTree
    costs: NDArray[np.float64]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its features, in order."""
        return WRITE_FEATURES

    @property
    def leaves(self) -> int:
        """Number of leaves of the tree."""
        return int(np.count_nonzero(self.tree.is_leaf))

    def _view(self) -> View:
        delays: list[str | float] = [*(60.0 * minutes for minutes in CLASSES[:-1]), "never"]
        return learnt_view("LearntWrites", self.tree, self.names, delays)

    def due_us(self, writes: Writes) -> NDArray[np.int64]:
        """Return the times of writes with the delays that the tree decides."""
        return delayed(writes, self.tree.decide(write_features(writes.t_us, writes.lat, writes.lon)))


def delayed(writes: Writes, decided: NDArray[Any]) -> NDArray[np.int64]:
    """Return the time by which each write must be sent, from its decided class."""
    never = decided == len(CLASSES) - 1
    return np.where(never, NEVER_US, writes.t_us + np.where(never, 0, _DELAYS_US[decided]))
