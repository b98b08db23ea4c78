"""Cache bench: pruned trees, their replay and their listings agree with slower computations."""

import numpy as np
import pytest
from learning_traces import build_labelled_reads, build_positions, label_by_definition
from learning_traces import build_reads as asked_reads

from mudkit.errors import ParameterError, TraceContentError
from mudkit.learning import Always, BatchTree, Bound, CostMatrix, FixedRule, Tree, evaluate_reads, tree_nodes
from mudkit.learning.features import read_features, write_features
from mudkit.learning.replay import SENT, replay
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.worlds import CacheBench, ShuffledLabels

LABELS, READS = build_labelled_reads()


@pytest.fixture(scope="module")
def bench():
    return CacheBench.from_labels(LABELS, READS)


def test_rule_and_bound_match_evaluate_reads(bench):
    rule, bound = evaluate_reads(LABELS, READS, [FixedRule(), Bound()]).to_dict("records")
    result = bench.run(FixedRule())
    for name in ("sent_share", "stale_share", "completeness"):
        assert getattr(result, name) == pytest.approx(rule[name])
    assert result.learnt is None
    curve = bench.bound(result.stale_share)
    assert curve["sent_share"].is_monotonic_decreasing
    assert curve["stale_share"].iloc[0] == 0
    assert curve["sent_share"].iloc[-1] == pytest.approx(bound["sent_share"])


def test_higher_stale_cost_reduces_stale_answers(bench):
    results = [bench.run(CostMatrix(price, 1.0)) for price in (0.02, 1.0, 50.0)]
    stale = [result.stale_share for result in results]
    sent = [result.sent_share for result in results]
    assert stale == sorted(stale, reverse=True)
    assert sent == sorted(sent)
    assert stale[0] > stale[1] + 0.02
    assert bench.bound(stale[1])["sent_share"].iloc[-1] <= sent[1]


def test_devices_are_replayed_with_trees_of_other_folds(bench):
    """Compare with the tree of all devices, which makes fewer mistakes on its own training data."""
    result = bench.run("latency")
    in_sample = result.learnt.local(bench.pairs)
    _, out_of_fold = bench.trees.choose(result.learnt.costs)
    assert (replay(bench.pairs, in_sample) != replay(bench.pairs, out_of_fold)).any()
    assert (result.reads["is_local"] == (replay(bench.pairs, out_of_fold) != SENT)).all()
    mistakes = bench.stale[in_sample].sum() + (~bench.stale[~in_sample]).sum()
    assert mistakes < bench.stale[out_of_fold].sum() + (~bench.stale[~out_of_fold]).sum()
    assert len(result.reads) == len(READS)
    assert result.reads["is_stale"].sum() == round(result.stale_share * len(READS))
    assert not (result.reads["is_stale"] & ~result.reads["is_local"]).any()


def test_half_complete_answers_are_stale_for_thresholds_above_half(bench):
    """Use labels whose incomplete answers all have half of the points."""
    tolerant = CacheBench.from_labels(LABELS, READS, completeness=0.51)
    assert tolerant.run("latency").stale_share == bench.run("latency").stale_share > 0


def test_tree_of_shuffled_labels_sends_nearly_all_reads():
    tree, control, always = evaluate_reads(
        LABELS, READS, [Tree("freshness"), ShuffledLabels(Tree("freshness"), 3), Always()]
    ).to_dict("records")
    assert control["policy"] == "tree, freshness, shuffled labels"
    assert control["sent_share"] > 0.97
    assert control["cost"] == pytest.approx(always["cost"], abs=0.02)
    assert tree["cost"] < 0.7 * always["cost"]  # the true labels can be learnt


def decide(table, row):
    """Return the action of the leaf that a row reaches in a listed tree."""
    node = 0
    while table["feature"][node]:
        right = row[table["feature"][node]] > np.float32(table["threshold"][node])
        below = table[(table["parent"] == node) & (table["is_right"] == right)]
        (node,) = below["node"]
    return table["action"][node]


def test_tree_nodes_decide_as_the_tree(bench):
    learnt = bench.run(CostMatrix(0.5, 1.0)).learnt
    table = tree_nodes(learnt)
    features = read_features(bench.pairs, learnt.features)
    rows = np.arange(0, len(features), 37)
    actions = [decide(table, dict(zip(learnt.names, row, strict=True))) for row in features[rows]]
    assert actions == np.where(learnt.local(bench.pairs)[rows], "local", "remote").tolist()
    assert set(actions) == {"local", "remote"}
    assert table["leaves"][0] == (table["feature"] == "").sum() == np.count_nonzero(learnt.tree.is_leaf)
    assert table["examples"][0] == len(features)
    inner = table[table["feature"] != ""]
    below = table.groupby("parent")["examples"].sum()
    assert (below.loc[inner["node"]].to_numpy() == inner["examples"].to_numpy()).all()


def test_tree_nodes_of_a_write_tree_list_delays():
    rows = [(f"car-{i % 4}", 7 * i, 40.0 * (i % 2)) for i in range(400)]
    positions, reads = build_positions(rows), asked_reads([("phone", 60.0 * i, 0.0) for i in range(1, 40)])
    writes = Writes.of(label_by_definition(positions, reads), positions)
    learnt = BatchTree("freshness").learn(writes, ReadRequests.of(reads))
    table = tree_nodes(learnt)
    features = write_features(writes.t_us, writes.lat, writes.lon)[::13]
    actions = [decide(table, dict(zip(learnt.names, row, strict=True))) for row in features]
    delays_us = learnt.due_us(writes)[::13] - writes.t_us[::13]
    expected = ["never" if delay_us > 1e12 else f"{delay_us / 60e6:g} min" for delay_us in delays_us.tolist()]
    assert actions == expected
    assert "never" in actions
    assert table["examples"][0] == 400


@pytest.mark.parametrize(
    ("call", "error", "pattern"),
    [
        (
            lambda bench: CacheBench.from_labels(LABELS, READS, completeness=0.0),
            ParameterError,
            "completeness",
        ),
        (
            lambda bench: CacheBench.from_labels(LABELS, READS, completeness=2.0),
            ParameterError,
            "completeness",
        ),
        (
            lambda bench: CacheBench.from_labels(LABELS, READS, completeness=0.5),
            TraceContentError,
            "All examples have the same outcome",
        ),
        (
            lambda bench: CacheBench.from_labels(*build_labelled_reads(devices=1)),
            TraceContentError,
            "one device",
        ),
        (lambda bench: bench.bound(1.5), ParameterError, "max_stale_share"),
        (lambda bench: bench.run([[0, 1]]), ParameterError, "cost matrix"),
        (
            lambda bench: bench.train_on(1, CostMatrix(2.0, 1.0), FixedRule(1.0, 10.0)),
            ParameterError,
            "devices",
        ),
    ],
)
def test_invalid_labels_and_parameters_are_refused(bench, call, error, pattern):
    with pytest.raises(error, match=pattern):
        call(bench)


def test_cached_answers_are_counted_by_age(bench):
    table = bench.by_age([0.0, 10.0, 1e6], CostMatrix(1.0, 1.0))
    assert table[["good", "stale"]].to_numpy().sum() == (bench.pairs.age_s > 0).sum()
    assert (table["cost_of_using"] == table["stale"]).all()
    cheaper = table["cost_of_using"] <= table["cost_of_asking"]
    assert (table["decision"].eq("use it") == cheaper).all()
    (empty,) = bench.by_age([1e6, 2e6], CostMatrix(1.0, 1.0)).itertuples()
    assert (empty.good, empty.stale, empty.decision) == (0, 0, "use it"), "asking must be worth its cost"


def test_train_on_learns_from_some_devices_and_replays_on_others(bench):
    measures = bench.train_on(2, CostMatrix(2.0, 1.0), FixedRule(1.0, 10.0), seed=1)
    assert list(measures) == ["rule", "tree", "always ask"]
    for row in measures.values():
        assert 2 * row["stale_share"] <= row["cost_per_read"] <= row["sent_share"] + 2 * row["stale_share"]
    assert measures["always ask"]["sent_share"] == 1.0
    assert measures["always ask"]["cost_per_read"] < 1.0, "queries for what was stale are no mistakes"
    costlier = bench.train_on(2, CostMatrix(4.0, 1.0), FixedRule(1.0, 10.0), seed=1)
    assert costlier["rule"]["cost_per_read"] == pytest.approx(
        measures["rule"]["cost_per_read"] + 2 * measures["rule"]["stale_share"]
    )
