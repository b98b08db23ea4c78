"""Cache policies for many costs: trees are grown once from a labelled trace, and pruned for each cost matrix.

Pruning and replay take less than a second. Decisions for a device are those of trees that have not seen it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments, number, whole_number
from mudkit.display import shows_fields
from mudkit.errors import TraceContentError
from mudkit.learning import Always, FixedRule, Tree
from mudkit.learning.bound import fewest_sends_by_stale
from mudkit.learning.costs import CostMatrix, Costs, read_costs
from mudkit.learning.evaluate import mistake_costs
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import LearntReads, ReadTrees
from mudkit.learning.replay import SENT, replay, stale_reads
from mudkit.learning.trees import Groups
from mudkit.sources.streams import Stream
from mudkit.words import Label, add_labels

if TYPE_CHECKING:
    import pandas as pd

add_labels(
    {
        "from_min": Label("age from", "min"),
        "to_min": Label("to", "min"),
        "cost_per_read": Label("cost", "a read"),
        "devices_learnt_from": Label("devices that the tree was learnt from"),
    }
)

_BOUNDS: Final = 7


@check_arguments(types=False)
@shows_fields
class CachingRun(NamedTuple):
    """Result of a policy.

    Parameters
    ----------
    reads : pandas.DataFrame
        A row for each read: ``lat, lon``, ``is_local``, ``is_stale`` and ``completeness`` of its answer.
    learnt : LearntReads or None
        Tree of all devices, to be shipped; the replayed trees had not seen the device. None: the fixed rule.
    """

    reads: pd.DataFrame
    learnt: LearntReads | None = None

    @property
    def sent_share(self) -> float:
        """Share of reads that went to the server."""
        return float((~self.reads["is_local"]).mean())

    @property
    def stale_share(self) -> float:
        """Share of reads with a stale answer."""
        return float(self.reads["is_stale"].mean())

    @property
    def completeness(self) -> float:
        """Mean share that an answer had of what others wrote."""
        return float(self.reads["completeness"].mean())

    def measures(self) -> dict[str, float]:
        """Return ``sent_share, stale_share, completeness``."""
        return {name: getattr(self, name) for name in ("sent_share", "stale_share", "completeness")}


@check_arguments(types=False)
@dataclass(frozen=True)
class CacheBench:
    """A labelled trace, and the trees that were grown from it.

    Parameters
    ----------
    pairs : Pairs
    stale : ndarray of bool, shape (pairs,)
    trees : ReadTrees
    """

    pairs: Pairs
    stale: NDArray[np.bool_]
    trees: ReadTrees

    @classmethod
    def from_labels(cls, labels: Any, reads: Any, *, completeness: float | None = None) -> CacheBench:
        """Grow trees.

        Parameters
        ----------
        labels, reads : pyarrow.Table or Spark DataFrame
            Result of ``pipeline.label_reads``, and the reads that were labelled.
        completeness : float, optional
            Below it an answer is stale; by default every answer is that lacks a point.

        Raises
        ------
        TraceContentError
            There is nothing to learn from: see :meth:`mudkit.learning.Tree.learn`.
        """
        if completeness is not None:
            number("completeness", completeness, 1e-9, 1.0)
        pairs = Pairs.of(labels, reads)
        stale = pairs.are_stale(completeness)
        return cls(pairs, stale, ReadTrees.grow(pairs, stale))

    def run(self, cost: Costs | FixedRule) -> CachingRun:
        """Replay the tree for a ``cost`` matrix, or the fixed rule."""
        if isinstance(cost, FixedRule):
            return CachingRun(self._reads(replay(self.pairs, cost.local(self.pairs))))
        learnt, decisions = self.trees.choose(read_costs(cost))
        return CachingRun(self._reads(replay(self.pairs, decisions)), learnt)

    def by_age(self, edges_min: Sequence[float], cost: CostMatrix) -> pd.DataFrame:
        """Return the good and the stale cached answers by age, and the decision of a leaf with them.

        A row for each interval of the ascending ``edges_min``: ``from_min, to_min``, counts ``good, stale``,
        their ``cost`` if they are used and if the server is asked (``cost_of_using, cost_of_asking``), and
        ``decision``.
        """
        import pandas as pd

        age_min, rows = self.pairs.age_s / 60, []
        for low, high in pairwise(edges_min):
            is_within = (age_min > low) & (age_min <= high)
            counts = int((is_within & ~self.stale).sum()), int((is_within & self.stale).sum())
            using, asking = np.asarray(counts) @ cost.table()
            rows.append((low, high, *counts, using, asking, "use it" if using <= asking else "ask"))
        columns = ["from_min", "to_min", "good", "stale", "cost_of_using", "cost_of_asking", "decision"]
        return pd.DataFrame(rows, columns=columns)

    def train_on(
        self, devices: int, cost: CostMatrix, rule: FixedRule, seed: int = 0
    ) -> dict[str, dict[str, float]]:
        """Train a tree on a few devices, and replay it and a rule on all others.

        A tree without examples of both classes always asks the server.

        Parameters
        ----------
        devices : int
            Number of devices to learn from, drawn by the seed: at least 2, fewer than there are.
        cost, rule, seed
            Costs of the tree, and the fixed rule.

        Returns
        -------
        dict
            Of ``rule``, ``tree`` and ``always ask``: ``sent_share, stale_share``, and ``cost_per_read``,
            what its mistakes cost by ``cost``, for each read.
        """
        known = np.unique(self.pairs.device)
        whole_number("devices", devices, 2, len(known) - 1)
        order = np.argsort(Stream(seed, "devices to learn from").uniform(0, np.arange(len(known))))
        taught, tested = (self._of(known[part]) for part in (order[:devices], order[devices:]))
        learnt: LearntReads | Always
        try:
            learnt = Tree(cost).learn(taught.pairs, taught.stale)
        except TraceContentError:
            learnt = Always()
        result = {}
        for name, policy in (("rule", rule), ("tree", learnt), ("always ask", Always())):
            served = replay(tested.pairs, policy.local(tested.pairs))
            run = CachingRun(tested._reads(served))
            mistakes = mistake_costs(tested.pairs, tested.stale, served, cost.table())
            shares = {"sent_share": run.sent_share, "stale_share": run.stale_share}
            result[name] = {**shares, "cost_per_read": float(mistakes.mean())}
        return result

    def _of(self, devices: NDArray[np.int64]) -> CacheBench:
        """Return the bench of some devices, with the trees of all."""
        kept = np.isin(self.pairs.device[self.pairs.read], devices)
        return replace(self, pairs=self.pairs.of_devices(devices), stale=self.stale[kept])

    def bound(self, max_stale_share: Annotated[float, Range(0.0, 1.0)]) -> pd.DataFrame:
        """Return the smallest share of queries of any policy: ``stale_share, sent_share``.

        Rows are ordered by the share of stale answers, which is at most ``max_stale_share``.
        """
        import pandas as pd

        count = len(self.pairs.device)
        largest = int(max_stale_share * count + 1e-6)  # a share of reads may be rounded
        sends = fewest_sends_by_stale(self.pairs, self.stale, largest)
        budgets = np.unique(np.linspace(0, largest, _BOUNDS).astype(int))
        sent = sends[np.minimum(budgets, len(sends) - 1)]
        return pd.DataFrame({"stale_share": budgets / count, "sent_share": sent / count})

    def _reads(self, served: NDArray[np.int64]) -> pd.DataFrame:
        """Return a row for each read; `served` is the pair that serves it, or `SENT`: the cloud does."""
        import pandas as pd

        pairs, is_local = self.pairs, served != SENT
        at = np.where(is_local, served, 0)
        columns = {
            "lat": pairs.lat,
            "lon": pairs.lon,
            "is_local": is_local,
            "is_stale": stale_reads(self.stale, served),
            "completeness": np.where(is_local, pairs.completeness[at], 1.0),
        }
        return pd.DataFrame(columns)


@check_arguments(types=False)
@dataclass(frozen=True)
class ShuffledLabels:
    """Control of a tree: it is trained on shuffled labels, so that only the costs decide.

    A tree that is no better has learnt nothing; a control that is as good as the tree shows a leak.

    Parameters
    ----------
    tree : Tree
    seed : int
    """

    tree: Tree
    seed: int = 0

    def learn(self, pairs: Pairs, stale: NDArray[np.bool_], by: Groups = "device") -> LearntReads:
        """Train on the same pairs, each with the label of another; see :meth:`mudkit.learning.Tree.learn`."""
        order = np.argsort(Stream(self.seed, "shuffled labels").uniform(0, np.arange(len(stale))))
        return self.tree.learn(pairs, stale[order], by)

    def __str__(self) -> str:
        return f"{self.tree}, shuffled labels"
