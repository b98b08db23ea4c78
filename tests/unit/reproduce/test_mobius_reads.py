"""Findings of row M4, computed from outcomes; the measurement runs in tests/spark."""

from __future__ import annotations

import numpy as np
import pytest
from learning_traces import build_labelled_reads

from mudkit.learning import COSTS, FixedRule, Tree, evaluate_reads
from mudkit.learning.pairs import Pairs
from mudkit.processes import spread_out
from mudkit.reproduce import mobius_reads
from mudkit.reproduce.mobius_reads import (
    FEATURES,
    M4,
    TREES,
    LearntOutcome,
    ReadOutcome,
    Shares,
    read_outcome,
)
from mudkit.reproduce.mobius_traces import CARS, DAYS


def make_read_outcome(bound_factor, tree_factor=1.0):
    of_trees = LearntOutcome(Shares(0.7, 0.2), Shares(0.9, 0.02), 0.6, 0.8 / tree_factor)
    learnt = dict.fromkeys(FEATURES, of_trees)
    return ReadOutcome(100, Shares(0.8, 0.1), Shares(0.7, 0.2), learnt, 0.5, 0.8 / bound_factor)


@pytest.mark.parametrize(("factor", "message"), [(1.5, "no policy can reach 4"), (4.5, "might reach 4")])
def test_read_finding_compares_the_bound_with_the_factor(factor, message):
    by_name = {
        "few cars": [make_read_outcome(1.1)],
        "many cars": [
            make_read_outcome(factor - 0.1),
            make_read_outcome(factor),
            make_read_outcome(factor + 3),
        ],
    }
    finding = mobius_reads._read_finding(by_name)
    assert f"at most {factor:.2f} times fewer queries" in finding
    assert "(many cars)" in finding
    assert message in finding


def test_factors_and_trees_of_an_outcome():
    outcome = make_read_outcome(4.0, 2.0)
    better = outcome.learnt["extended"]._replace(few=0.2)
    outcome = outcome._replace(learnt=outcome.learnt | {"extended": better})
    assert (outcome.bound_factor, outcome.tree_factor) == pytest.approx((4.0, 4.0))
    assert set(outcome.trees()) == set(TREES)
    assert outcome.trees()["tree for freshness, paper's features"] == Shares(0.9, 0.02)


def test_figures_have_each_tree_and_rule():
    quantities = mobius_reads._read_figures({"a": [make_read_outcome(2.0), make_read_outcome(2.0, 1.5)]})
    assert quantities["rule of 30 min is stale, a"].median == 0.2
    assert quantities["tree for latency, extended features sends, a"].median == 0.7
    assert quantities["share of the gap closed, a"].median == pytest.approx((0.8 - 0.6) / (0.8 - 0.5))
    best = quantities["times fewer queries, 3.5 times fewer stale, tree, best regime"]
    assert best.median == pytest.approx(1.25)


def test_outcome_is_that_of_the_evaluation():
    """The two trees of a set of features are those of `evaluate_reads`, and mixtures are no worse."""
    labels, reads = build_labelled_reads(noise=0.1)
    outcome = read_outcome(Pairs.of(labels, reads), None)
    policies = [FixedRule(), FixedRule(minutes=30.0), *(Tree(cost, "paper") for cost in COSTS)]
    table = evaluate_reads(labels, reads, policies)
    measured = [
        outcome.rule,
        outcome.rule_30,
        outcome.learnt["paper"].latency,
        outcome.learnt["paper"].freshness,
    ]
    np.testing.assert_allclose(measured, table[["sent_share", "stale_share"]].to_numpy())
    assert outcome.bound <= outcome.bound_few <= 1
    for learnt in outcome.learnt.values():
        assert outcome.bound <= learnt.as_rule <= learnt.few <= 1
        assert outcome.bound_few <= learnt.few


@pytest.mark.parametrize(("missing", "is_sent"), [(0, False), (1, True)])
def test_where_all_answers_are_alike_a_tree_has_one_leaf(missing, is_sent):
    labels, reads = build_labelled_reads()
    column = labels.column_names.index("missing")
    labels = labels.set_column(column, "missing", [np.full(len(labels), missing)])
    outcome = read_outcome(Pairs.of(labels, reads), None)
    for tree in outcome.trees().values():
        assert (tree.sent == 1.0) == is_sent
        assert tree.stale == 0.0
    assert outcome.learnt["paper"].few >= outcome.bound_few


def test_m4_is_no_row_of_speed():
    assert not M4.is_speed
    assert set(DAYS) == set(CARS)


def test_spread_over_one_process_maps_locally():
    with spread_out(1) as map_:
        assert [*map_(lambda x: x + 1, iter([1, 2]))] == [2, 3]
