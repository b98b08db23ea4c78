"""Trees decide at the least expected cost, are cut back by cost, and find nothing where there is nothing."""

import numpy as np
import pytest

from mudkit.learning.costs import CostMatrix
from mudkit.learning.trees import fold_numbers, groups_by, grow, learn

ROWS = 3000


def examples(seed=0, share=0.3):
    """True with 70 % where x is over 0, with 10 % elsewhere; the second feature says nothing."""
    rng = np.random.default_rng(seed)
    known = rng.normal(0, 1, (ROWS, 2)).astype(np.float32)
    truth = (rng.random(ROWS) < np.where(known[:, 0] > 0, 0.7, 0.1)).astype(np.int64)
    return known, truth, np.arange(ROWS) % 30


POINTS = np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32)


@pytest.mark.parametrize(
    ("stale", "right", "left"),
    [(1.0, 1, 0), (20.0, 1, 1), (0.1, 0, 0), (5.0, 1, 0)],
)
def test_a_leaf_decides_what_costs_least(stale, right, left):
    """The decision is 1 (ask) when the probability of stale is over 1 / (1 + price)."""
    tree = learn(*examples(), CostMatrix(stale, 1.0).table())
    assert tree.decide(POINTS).tolist() == [right, left]


def test_the_whole_matrix_counts():
    known, truth, groups = examples()
    costs = np.array([[0.0, 0.1, 5.0], [5.0, 0.1, 0.0]])  # the one in between is nearly as good as either
    assert set(learn(known, truth, groups, costs).decide(known).tolist()) == {1}


def test_it_is_cut_back_to_what_holds_on_others():
    known, truth, groups = examples()
    trees = grow(known, truth, groups, 2)
    assert trees.whole.model.tree_.n_leaves > 100
    tree, decided = trees.tree(CostMatrix(1.0, 1.0).table())
    assert 2 <= np.count_nonzero(tree.is_leaf) <= 12
    assert np.mean(decided == truth) > 0.75  # by trees that have not seen the row


def test_shuffled_labels_leave_the_trivial_tree():
    known, truth, groups = examples()
    rng = np.random.default_rng(1)
    for stale, decision in ((1.0, 0), (10.0, 1)):
        tree = learn(known, rng.permutation(truth), groups, CostMatrix(stale, 1.0).table())
        share = np.mean(tree.decide(known) == decision)
        assert share > 0.97
        assert np.count_nonzero(tree.is_leaf) <= 5


def test_subtrees_are_nested_and_their_cost_grows():
    known, truth, groups = examples()
    costs = CostMatrix(3.0, 1.0).table()
    grown = grow(known, truth, groups, 2).whole
    cuts = grown.cuts(costs)
    prices = np.unique(cuts[np.isfinite(cuts)])
    leaves, spent = [], []
    for price in prices:
        tree = grown.cut(costs, cuts, price)
        leaves.append(np.count_nonzero(tree.is_leaf))
        spent.append(costs[truth, tree.decide(known)].mean())
    assert leaves == sorted(leaves, reverse=True)
    assert leaves[-1] == 1
    assert np.all(np.diff(spent) >= -1e-12)
    # Weakest links: at its price a cut pays exactly, so no price has a subtree that costs less in all.
    for i, price in enumerate(prices[:-1]):
        total = np.array(spent) + price * np.array(leaves)
        assert total[i] <= total.min() + 1e-9


def test_a_weight_counts_for_its_own_costs_only():
    """Rows of a second block of costs count by weight: as if the rare mistakes of some were dearer."""
    known, truth, groups = examples()
    plain, own = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])
    for price in (0.1, 20.0):
        whole = grow(known, truth, groups, 2).tree(plain + price * own)[0]
        split = grow(known, truth, groups, 2, weight=np.full(ROWS, price)).tree(np.vstack([plain, own]))[0]
        assert np.array_equal(whole.decide(known), split.decide(known))


def test_groups_are_never_on_both_sides():
    groups = np.array([5, 5, 7, 9, 9, 11, 5])
    folds = fold_numbers(groups)
    assert all(len(set(folds[groups == group])) == 1 for group in groups)
    assert set(folds) == {0, 1, 2}
    device, t_us = np.array([1, 1, 2]), np.array([0, 86_400_000_000, 5])
    assert groups_by("device", device, t_us).tolist() == [1, 1, 2]
    assert groups_by("day", device, t_us).tolist() == [0, 1, 0]
