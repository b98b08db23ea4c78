"""Decision trees: decisions at the least expected cost, pruning by cost, and trivial trees for noise."""

import numpy as np
import pytest

from mudkit.learning.costs import CostMatrix
from mudkit.learning.trees import fold_numbers, groups_by, grow, learn

ROWS = 3000


def draw_examples(seed=0, share=0.3):
    """Draw labels: true with 70 % where x > 0, with 10 % elsewhere; the second feature is noise."""
    rng = np.random.default_rng(seed)
    known = rng.normal(0, 1, (ROWS, 2)).astype(np.float32)
    truth = (rng.random(ROWS) < np.where(known[:, 0] > 0, 0.7, 0.1)).astype(np.int64)
    return known, truth, np.arange(ROWS) % 30


POINTS = np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32)


@pytest.mark.parametrize(
    ("stale", "right", "left"),
    [(1.0, 1, 0), (20.0, 1, 1), (0.1, 0, 0), (5.0, 1, 0)],
)
def test_leaf_takes_the_cheapest_decision(stale, right, left):
    """Decide 1 (ask) when the probability of stale exceeds 1 / (1 + price)."""
    tree = learn(*draw_examples(), CostMatrix(stale, 1.0).table())
    assert tree.decide(POINTS).tolist() == [right, left]


def test_all_columns_of_the_cost_matrix_are_used():
    known, truth, groups = draw_examples()
    costs = np.array([[0.0, 0.1, 5.0], [5.0, 0.1, 0.0]])  # decision 1 is nearly as good as either other
    assert set(learn(known, truth, groups, costs).decide(known).tolist()) == {1}


def test_tree_is_pruned_to_splits_that_generalise():
    known, truth, groups = draw_examples()
    trees = grow(known, truth, groups, 2)
    assert np.count_nonzero(trees.whole.left < 0) > 100
    tree, decisions = trees.tree(CostMatrix(1.0, 1.0).table())
    assert 2 <= np.count_nonzero(tree.is_leaf) <= 12
    assert np.mean(decisions == truth) > 0.75  # by trees not trained on the row


def test_shuffled_labels_leave_the_trivial_tree():
    known, truth, groups = draw_examples()
    rng = np.random.default_rng(1)
    for stale, decision in ((1.0, 0), (10.0, 1)):
        tree = learn(known, rng.permutation(truth), groups, CostMatrix(stale, 1.0).table())
        share = np.mean(tree.decide(known) == decision)
        assert share > 0.97
        assert np.count_nonzero(tree.is_leaf) <= 5


def test_subtrees_are_nested_and_their_cost_grows():
    known, truth, groups = draw_examples()
    costs = CostMatrix(3.0, 1.0).table()
    grown = grow(known, truth, groups, 2).whole
    cuts = grown.cuts(costs)
    prices = np.unique(cuts[np.isfinite(cuts)])
    leaves, costs_of_cuts = [], []
    for price in prices:
        tree = grown.cut(costs, cuts, price)
        leaves.append(np.count_nonzero(tree.is_leaf))
        costs_of_cuts.append(costs[truth, tree.decide(known)].mean())
    assert leaves == sorted(leaves, reverse=True)
    assert leaves[-1] == 1
    assert np.all(np.diff(costs_of_cuts) >= -1e-12)
    # Weakest-link pruning: a cut breaks even at its price, so no other subtree has a lower total cost.
    for i, price in enumerate(prices[:-1]):
        total = np.array(costs_of_cuts) + price * np.array(leaves)
        assert total[i] <= total.min() + 1e-9


def test_weights_scale_only_the_second_block_of_costs():
    """Weight the rows of a second block of costs, as if the rare mistakes of some rows cost more."""
    known, truth, groups = draw_examples()
    plain, second = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])
    for price in (0.1, 20.0):
        whole = grow(known, truth, groups, 2).tree(plain + price * second)[0]
        split = grow(known, truth, groups, 2, weight=np.full(ROWS, price)).tree(np.vstack([plain, second]))[0]
        assert np.array_equal(whole.decide(known), split.decide(known))


def test_groups_are_kept_within_one_fold():
    groups = np.array([5, 5, 7, 9, 9, 11, 5])
    folds = fold_numbers(groups)
    assert all(len(set(folds[groups == group])) == 1 for group in groups)
    assert set(folds) == {0, 1, 2}
    device, t_us = np.array([1, 1, 2]), np.array([0, 86_400_000_000, 5])
    assert groups_by("device", device, t_us).tolist() == [1, 1, 2]
    assert groups_by("day", device, t_us).tolist() == [0, 1, 0]
