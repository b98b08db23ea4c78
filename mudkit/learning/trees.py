"""Decision trees that know what mistakes cost: grown by scikit-learn, cut back and labelled by cost.

scikit-learn knows weights of classes only. Here it grows a large tree by entropy, as C4.5 (Weka's J48) does.
A leaf decides for the least expected cost, by the whole cost matrix. Then weakest links are cut (Breiman and
others, CART, 1984, chapter 3), with that cost in place of impurity, and how far is chosen by the cost in
cross-validation over groups: devices, or days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit import words
from mudkit.display import Branch, View, tree
from mudkit.errors import ParameterError, TraceContentError
from mudkit.systems.mud.policies.artefact import Action, action_text, question_text
from mudkit.units import US_PER_S

Groups: TypeAlias = Literal["device", "day"]
"""Groups that cross-validation keeps apart: other devices, or other days (UTC)."""
Folds: TypeAlias = Literal["device", "time"]
"""Folds of an evaluation: devices, or earlier and later times."""

_MAX_LEAVES: Final = 256
FOLDS: Final = 3
_MAX_CUTS: Final = 24
_MAX_EXAMPLES: Final = 60_000
"""Maximum number of examples that choose splits, drawn evenly; leaves are decided by all examples."""
_US_PER_DAY: Final = 86_400 * US_PER_S
_MAX_LEVELS: Final = 3


@dataclass(frozen=True)
class CostTree:
    """A grown tree after cutting: what each node decides (below a cut, as there), and which are leaves."""

    grown: GrownTree
    action: NDArray[np.int64]
    is_leaf: NDArray[np.bool_]

    def decide(self, features: NDArray[np.float32]) -> NDArray[np.int64]:
        """Decide for each row of features: numbers of decisions."""
        return self.action[self.grown.leaf_of(features)]


class GrownTree:
    """A tree that scikit-learn grew, before any costs, with the weight of each class in each node."""

    def __init__(
        self,
        features: NDArray[np.float32],
        truth: NDArray[np.int64],
        weight: NDArray[np.float64] | None,
        classes: int,
    ) -> None:
        from sklearn.tree import DecisionTreeClassifier  # loading it takes longer than loading all of mudkit

        step = -(-len(truth) // _MAX_EXAMPLES) or 1
        smallest = max(5, len(truth[::step]) // 2000)
        model = DecisionTreeClassifier(
            criterion="entropy", max_leaf_nodes=_MAX_LEAVES, min_samples_leaf=smallest, random_state=0
        )
        model.fit(features[::step], truth[::step])
        nodes: Any = model.tree_
        self.feature: NDArray[np.int64] = nodes.feature.copy()  # else it would hold the whole model
        self.threshold: NDArray[np.float64] = nodes.threshold.copy()
        self.left: NDArray[np.int64] = nodes.children_left.copy()
        self.right: NDArray[np.int64] = nodes.children_right.copy()
        self.unknown = np.where(nodes.missing_go_to_left.astype(np.bool_), self.left, self.right)
        self.size, self.classes = len(truth), classes
        self.parent = np.full(nodes.node_count, -1, dtype=np.int64)
        inner = np.flatnonzero(self.left >= 0)
        self.parent[self.left[inner]] = inner
        self.parent[self.right[inner]] = inner
        self.levels = []
        """Nodes of each depth, from below the root on."""
        level = np.zeros(1, dtype=np.int64)
        while len(level := level[self.left[level] >= 0]):
            level = np.concatenate([self.left[level], self.right[level]])
            self.levels.append(level)
        self.counts = class_counts(self.leaf_of(features), truth, weight, nodes.node_count, classes)
        for node in range(nodes.node_count - 1, 0, -1):  # children come after their parents
            self.counts[self.parent[node]] += self.counts[node]

    def leaf_of(self, features: NDArray[np.float32]) -> NDArray[np.int64]:
        """Find the leaf of each row, as scikit-learn does, which Spark's executors may not have."""
        leaf = np.zeros(len(features), dtype=np.int64)
        columns = np.ascontiguousarray(features.T)
        waiting = [(0, np.arange(len(features)))]
        while waiting:
            node, rows = waiting.pop()
            left, right = int(self.left[node]), int(self.right[node])
            if left < 0 or not len(rows):
                leaf[rows] = node
                continue
            values = columns[self.feature[node]][rows].astype(np.float64)
            goes_left = values <= self.threshold[node]
            if self.unknown[node] == left:
                goes_left |= np.isnan(values)
            waiting += [(left, rows[goes_left]), (right, rows[~goes_left])]
        return leaf

    def cuts(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return for each node the price of a leaf, in cost a row, at which it is pruned to one.

        It is infinite for leaves, and for nodes below one that is pruned before them. Subtrees for growing
        prices are nested.
        """
        as_leaf = (self.counts @ costs).min(axis=1) / self.size
        inner = self.left >= 0
        below, leaves = np.where(inner, 0.0, as_leaf), np.where(inner, 0, 1)
        for node in range(len(inner) - 1, 0, -1):
            below[self.parent[node]] += below[node]
            leaves[self.parent[node]] += leaves[node]
        cut_at = np.full(len(inner), np.inf)
        alive = inner.copy()
        price = 0.0
        while alive[0]:
            candidates = np.flatnonzero(alive)
            gain = (as_leaf[candidates] - below[candidates]) / (leaves[candidates] - 1)
            node = int(candidates[np.argmin(gain)])
            price = max(price, float(gain.min()))
            cut_at[node] = price
            saved, fewer = as_leaf[node] - below[node], leaves[node] - 1
            up = node
            while up >= 0:
                below[up] += saved
                leaves[up] -= fewer
                up = int(self.parent[up])
            doomed = [node]
            while doomed:
                node = doomed.pop()
                if self.left[node] >= 0:
                    alive[node] = False
                    doomed += [int(self.left[node]), int(self.right[node])]
        return cut_at

    def cut(self, costs: NDArray[np.float64], cut_at: NDArray[np.float64], price: float) -> CostTree:
        """Cut back all nodes that are not worth the price of their leaves."""
        action, is_leaf = self.cut_each(costs, cut_at, np.array([price]))
        return CostTree(self, action[:, 0], is_leaf[:, 0])

    def cut_each(
        self, costs: NDArray[np.float64], cut_at: NDArray[np.float64], prices: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return for each node, by price, what it decides, and whether it is a leaf."""
        stops = (self.left < 0)[:, None] | (cut_at[:, None] <= prices)
        cheapest = np.asarray((self.counts @ costs).argmin(axis=1), dtype=np.int64)
        action = np.repeat(cheapest[:, None], len(prices), axis=1)
        decided = np.zeros_like(stops)
        for nodes in self.levels:
            parent = self.parent[nodes]
            decided[nodes] = decided[parent] | stops[parent]
            action[nodes] = np.where(decided[nodes], action[parent], action[nodes])
        return action, stops & ~decided


def fold_numbers(groups: NDArray[np.int64], folds: int = FOLDS) -> NDArray[np.int64]:
    """Deal groups out to folds, in turn: a fold's number for each row."""
    return np.unique(groups, return_inverse=True)[1].astype(np.int64) % folds


def check_folds(folds: Folds) -> None:
    """Raise ParameterError unless the folds of an evaluation are ``device`` or ``time``."""
    if folds not in ("device", "time"):
        raise ParameterError(
            "There are no such folds.", where="folds", found=repr(folds), expected="device or time"
        )


def groups_by(by: Groups, device: NDArray[np.int64], t_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """Group examples by what a tree is to hold for: other devices, or other days (UTC)."""
    if by not in ("device", "day"):
        raise ParameterError(
            "There are no such groups.", where="by", found=repr(by), expected="device or day"
        )
    return device if by == "device" else t_us // _US_PER_DAY


@dataclass(frozen=True)
class CrossValidatedTrees:
    """A tree grown on all rows, and one for each fold, grown on the rows of the others.

    ``leaf`` is the leaf of each row in the tree that has not seen its fold. ``counts`` are the classes of the
    rows of each fold by leaf of that tree, with weights as :class:`GrownTree` has them.
    """

    whole: GrownTree
    folds: tuple[GrownTree, ...]
    fold_of: NDArray[np.int8]
    leaf: NDArray[np.int32]
    counts: tuple[NDArray[np.float64], ...]

    def cut(self, costs: NDArray[np.float64]) -> tuple[CostTree, list[NDArray[np.int64]]]:
        """Choose the tree for a cost matrix, and the actions by node of the trees of the folds."""
        whole_cuts = self.whole.cuts(costs)
        prices = np.unique(whole_cuts[np.isfinite(whole_cuts)])
        prices = np.concatenate([[0.0], np.sqrt(prices[:-1] * prices[1:]), prices[-1:]])
        prices = prices[np.unique(np.linspace(0, len(prices) - 1, _MAX_CUTS).round().astype(int))]
        total = np.zeros(len(prices))
        actions: list[NDArray[np.int64]] = []
        for grown, counts in zip(self.folds, self.counts, strict=True):
            of_prices = grown.cut_each(costs, grown.cuts(costs), prices)[0]
            total += np.take_along_axis(counts @ costs, of_prices, axis=1).T.copy().sum(axis=1)
            actions.append(of_prices)
        best = len(prices) - 1 - int(np.argmin(total[::-1]))  # of equally good ones the smallest
        tree = self.whole.cut(costs, whole_cuts, float(prices[best]))
        return tree, [of_prices[:, best] for of_prices in actions]

    def tree(self, costs: NDArray[np.float64]) -> tuple[CostTree, NDArray[np.int64]]:
        """Choose the tree for a cost matrix, and what trees decide that have not seen a row's fold."""
        tree, actions = self.cut(costs)
        decided = np.zeros(len(self.leaf), dtype=np.int64)
        for number, action in enumerate(actions):
            rows = self.fold_of == number
            decided[rows] = action[self.leaf[rows]]
        return tree, decided


def grow(
    features: NDArray[np.float32],
    truth: NDArray[np.int64],
    groups: NDArray[np.int64],
    classes: int,
    *,
    weight: NDArray[np.float64] | None = None,
    folds: int = FOLDS,
) -> CrossValidatedTrees:
    """Grow the trees that are cut for any costs; rows of one group are never on both sides of a fold.

    Unknown features are NaN; the cost matrices will have ``classes`` rows.
    """
    if not len(truth):
        raise _nothing_to_learn("There is nothing to learn from.", "no examples", "some examples")
    if (truth == truth[0]).all():
        raise _nothing_to_learn(
            "All examples have the same outcome, so there is nothing to decide.",
            f"{len(truth):,} examples, all of class {int(truth[0])}",
            "examples of two classes",
        )
    fold_of = fold_numbers(groups, folds)
    if fold_of.max() == 0:
        raise _nothing_to_learn(
            "All examples are of one device (or day): nothing would say whether a tree holds for another.",
            f"{len(truth):,} examples of one",
            "examples of two at least",
        )

    def grown(rows: NDArray[np.bool_]) -> GrownTree:
        mine = None if weight is None else weight[rows]
        return GrownTree(features[rows], truth[rows], mine, classes)

    grown_folds = tuple(grown(fold_of != number) for number in range(int(fold_of.max()) + 1))
    leaf = np.zeros(len(truth), dtype=np.int32)
    counts = []
    for number, tree_ in enumerate(grown_folds):
        rows = fold_of == number
        leaf[rows] = tree_.leaf_of(features[rows])
        mine = None if weight is None else weight[rows]
        counts.append(class_counts(leaf[rows], truth[rows], mine, len(tree_.left), classes))
    whole = grown(np.ones(len(truth), np.bool_))
    return CrossValidatedTrees(whole, grown_folds, fold_of.astype(np.int8), leaf, tuple(counts))


def class_counts(
    leaf: NDArray[np.integer[Any]],
    truth: NDArray[np.int64],
    weight: NDArray[np.float64] | None,
    nodes: int,
    classes: int,
) -> NDArray[np.float64]:
    """Count the classes of rows by leaf, of shape (nodes, classes); weights go to as many columns behind."""
    key = leaf.astype(np.int64) * classes + truth
    shape = nodes, classes
    counts = np.bincount(key, minlength=nodes * classes).reshape(shape).astype(np.float64)
    if weight is None:
        return counts
    return np.hstack([counts, np.bincount(key, weight, minlength=nodes * classes).reshape(shape)])


def learn(
    features: NDArray[np.float32],
    truth: NDArray[np.int64],
    groups: NDArray[np.int64],
    costs: NDArray[np.float64],
) -> CostTree:
    """Train a tree; see :func:`grow`."""
    return grow(features, truth, groups, len(costs)).tree(costs)[0]


def learnt_view(name: str, learnt: CostTree, features: Sequence[str], actions: Sequence[Action]) -> View:
    """Return the display of a learnt tree: its size, and its first levels as a picture."""
    grown = learnt.grown
    total = max(grown.size, 1)

    def branch(node: int, level: int) -> Branch:
        action = action_text(actions[int(learnt.action[node])])
        share = words.percent(float(grown.counts[node, : grown.classes].sum()) / total)
        if learnt.is_leaf[node]:
            return Branch(action, share)
        if level == _MAX_LEVELS:
            return Branch(f"… mostly {action}", share)
        text = f"{question_text(features[int(grown.feature[node])], float(grown.threshold[node]))}?"
        left, right = int(grown.left[node]), int(grown.right[node])
        return Branch(text, "", branch(left, level + 1), branch(right, level + 1))

    leaves = int(np.count_nonzero(learnt.is_leaf))
    facts = {"learnt from": f"{total:,} examples", "leaves": leaves, "features": ", ".join(features)}
    notes = ["The share behind a leaf is that of the examples. figures.tree() draws all levels."]
    return View(name, facts, (), notes, picture=tree(branch(0, 0), f"Decision tree with {leaves} leaves"))


def _nothing_to_learn(summary: str, state: str, expected: str) -> TraceContentError:
    """Return the error for a trace from which no tree can be learnt."""
    return TraceContentError(
        summary, found=state, expected=expected, remedy="take a longer trace, more devices, or Always()"
    )
