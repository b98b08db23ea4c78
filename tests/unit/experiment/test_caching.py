"""Costs are dragged: trees that are cut and replayed at once say what slow ways to the same numbers say."""

import numpy as np
import pytest
from learning_traces import asked as asked_reads
from learning_traces import first_labels, labelled_reads, written

from mudkit.errors import ParameterError, TraceContentError
from mudkit.experiment import CacheBench, ShuffledLabels, tree_nodes
from mudkit.learning import Always, BatchTree, Bound, CostMatrix, FixedRule, Tree, evaluate_reads
from mudkit.learning.features import read_features, write_features
from mudkit.learning.replay import SENT, replay
from mudkit.learning.writes import ReadRequests, Writes

LABELS, READS = labelled_reads()


@pytest.fixture(scope="module")
def bench():
    return CacheBench.from_labels(LABELS, READS)


def test_rule_and_bound_are_those_of_the_evaluation(bench):
    rule, bound = evaluate_reads(LABELS, READS, [FixedRule(), Bound()]).to_dict("records")
    result = bench.run(FixedRule())
    for name in ("sent_share", "stale_share", "completeness"):
        assert getattr(result, name) == pytest.approx(rule[name])
    assert result.learnt is None
    curve = bench.bound(result.stale_share)
    assert curve["sent_share"].is_monotonic_decreasing
    assert curve["stale_share"].iloc[0] == 0
    assert curve["sent_share"].iloc[-1] == pytest.approx(bound["sent_share"])


def test_a_dearer_stale_answer_is_given_less_often(bench):
    tried = [bench.run(CostMatrix(price, 1.0)) for price in (0.02, 1.0, 50.0)]
    stale = [each.stale_share for each in tried]
    sent = [each.sent_share for each in tried]
    assert stale == sorted(stale, reverse=True)
    assert sent == sorted(sent)
    assert stale[0] > stale[1] + 0.02
    assert bench.bound(stale[1])["sent_share"].iloc[-1] <= sent[1]


def test_nobody_is_decided_for_by_a_tree_that_has_seen_her(bench):
    """The replay is by folds: the whole tree, which has seen all, would look better."""
    result = bench.run("latency")
    seen = result.learnt.local(bench.pairs)
    honest = bench.trees.tree(result.learnt.costs)[1] == 0
    assert (replay(bench.pairs, seen) != replay(bench.pairs, honest)).any()
    assert (result.reads["is_local"] == (replay(bench.pairs, honest) != SENT)).all()
    wrong = bench.stale[seen].sum() + (~bench.stale[~seen]).sum()
    assert wrong < bench.stale[honest].sum() + (~bench.stale[~honest]).sum()
    assert len(result.reads) == len(READS)
    assert result.reads["is_stale"].sum() == round(result.stale_share * len(READS))
    assert not (result.reads["is_stale"] & ~result.reads["is_local"]).any()


def test_an_answer_may_lack_a_little(bench):
    """Half of the points are there whenever any are missing."""
    most = CacheBench.from_labels(LABELS, READS, completeness=0.51)
    assert most.run("latency").stale_share == bench.run("latency").stale_share > 0


def test_what_learns_from_shuffled_labels_asks_always():
    tree, control, always = evaluate_reads(
        LABELS, READS, [Tree("freshness"), ShuffledLabels(Tree("freshness"), 3), Always()]
    ).to_dict("records")
    assert control["policy"] == "tree, freshness, shuffled labels"
    assert control["sent_share"] > 0.97
    assert control["cost"] == pytest.approx(always["cost"], abs=0.02)
    assert tree["cost"] < 0.7 * always["cost"]  # with the true labels there is something to learn


def decided(table, row):
    """Walk down a listed tree."""
    node = 0
    while table["feature"][node]:
        right = row[table["feature"][node]] > np.float32(table["threshold"][node])
        below = table[(table["parent"] == node) & (table["is_right"] == right)]
        (node,) = below["node"]
    return table["action"][node]


def test_the_list_of_nodes_decides_as_the_tree_does(bench):
    learnt = bench.run(CostMatrix(0.5, 1.0)).learnt
    table = tree_nodes(learnt)
    known = read_features(bench.pairs, learnt.features)
    at = np.arange(0, len(known), 37)
    mine = [decided(table, dict(zip(learnt.names, row, strict=True))) for row in known[at]]
    assert mine == np.where(learnt.local(bench.pairs)[at], "local", "remote").tolist()
    assert set(mine) == {"local", "remote"}
    assert table["leaves"][0] == (table["feature"] == "").sum() == np.count_nonzero(learnt.tree.is_leaf)
    assert table["examples"][0] == len(known)
    inner = table[table["feature"] != ""]
    below = table.groupby("parent")["examples"].sum()
    assert (below.loc[inner["node"]].to_numpy() == inner["examples"].to_numpy()).all()


def test_a_tree_for_writes_is_listed_with_its_delays():
    rows = [(f"car-{i % 4}", 7 * i, 40.0 * (i % 2)) for i in range(400)]
    positions, reads = written(rows), asked_reads([("phone", 60.0 * i, 0.0) for i in range(1, 40)])
    writes = Writes.of(first_labels(positions, reads), positions)
    learnt = BatchTree("freshness").learn(writes, ReadRequests.of(reads))
    table = tree_nodes(learnt)
    known = write_features(writes.t_us, writes.lat, writes.lon)[::13]
    mine = [decided(table, dict(zip(learnt.names, row, strict=True))) for row in known]
    due_us = learnt.due_us(writes)[::13] - writes.t_us[::13]
    answer = ["never" if each > 1e12 else f"{each / 60e6:g} min" for each in due_us.tolist()]
    assert mine == answer
    assert "never" in mine
    assert table["examples"][0] == 400


@pytest.mark.parametrize(
    ("call", "error", "says"),
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
            "Only one thing",
        ),
        (lambda bench: CacheBench.from_labels(*labelled_reads(devices=1)), TraceContentError, "one device"),
        (lambda bench: bench.bound(1.5), ParameterError, "max_stale_share"),
        (lambda bench: bench.run([[0, 1]]), ParameterError, "cost matrix"),
        (
            lambda bench: bench.train_on(1, CostMatrix(2.0, 1.0), FixedRule(1.0, 10.0)),
            ParameterError,
            "devices",
        ),
    ],
)
def test_what_nothing_can_be_learnt_from_is_refused(bench, call, error, says):
    with pytest.raises(error, match=says):
        call(bench)


def test_cached_answers_are_counted_by_age(bench):
    table = bench.by_age([0.0, 10.0, 1e6], CostMatrix(1.0, 1.0))
    assert table[["good", "stale"]].to_numpy().sum() == (bench.pairs.age_s > 0).sum()
    assert (table["cost_of_using"] == table["stale"]).all()
    cheaper = table["cost_of_using"] <= table["cost_of_asking"]
    assert (table["decision"].eq("use it") == cheaper).all()


def test_a_tree_is_learnt_from_some_devices_and_replayed_on_the_others(bench):
    measures = bench.train_on(2, CostMatrix(2.0, 1.0), FixedRule(1.0, 10.0), seed=1)
    assert list(measures) == ["rule", "tree", "always ask"]
    for row in measures.values():
        assert 2 * row["stale_share"] <= row["cost_per_read"] <= row["sent_share"] + 2 * row["stale_share"]
    assert measures["always ask"]["sent_share"] == 1.0
    assert measures["always ask"]["cost_per_read"] < 1.0, "queries for what was stale are no mistakes"
    dearer = bench.train_on(2, CostMatrix(4.0, 1.0), FixedRule(1.0, 10.0), seed=1)
    assert dearer["rule"]["cost_per_read"] == pytest.approx(
        measures["rule"]["cost_per_read"] + 2 * measures["rule"]["stale_share"]
    )
