"""Costs are dragged: the tree, the map and the measures follow, and say what the bench says."""

import re
from html import escape

import numpy as np
import pytest
from learning_traces import labelled_reads

from mudkit import figures
from mudkit.experiment import CacheBench, tree_nodes
from mudkit.learning import FixedRule
from mudkit.learning.replay import SENT, fewest_sends, replay
from mudkit.widgets import PolicyWorkbench
from mudkit.widgets.cost_page import CostPage

BENCH = CacheBench.from_labels(*labelled_reads())


@pytest.fixture
def page():
    return PolicyWorkbench(trained=BENCH).costs


def says(page):
    """Shares of the tree and of the rule."""
    return [float(each) for each in re.findall(r"([\d.]+)%", page.status.value)]


def expected(*costs):
    result = BENCH.run(np.array(costs).reshape(2, 2))
    return [
        round(100 * each, 1) for each in (result.sent_share, result.stale_share, result.completeness)
    ], result


def test_it_says_what_the_bench_says(page):
    for place, value in ((2, 5.0), (1, 0.1), (0, 0.05), (3, 2.0)):
        page.costs[place].value = value
        shares, result = expected(*(each.value for each in page.costs))
        assert says(page)[:3] == shares
        leaves = int(tree_nodes(result.learnt)["leaves"][0])
        assert f"all devices: {leaves} lea" in page.tree.value
        assert escape(figures.tree_outline(tree_nodes(result.learnt))) in page.tree.value
        cells = figures.hits_by_cell(figures.reads_near_busiest(result.reads))
        assert list(page.map.data[1].marker.color) == cells["local"].to_pylist()
    rule = BENCH.run(FixedRule())
    assert says(page)[3:5] == [round(100 * rule.sent_share, 1), round(100 * rule.stale_share, 1)]


def test_a_preset_sets_all_four_and_dragging_leaves_it(page):
    assert page.preset.value == "latency"
    before = says(page)
    page.preset.value = "freshness"
    assert [each.value for each in page.costs] == [0, 1, 5, 0]
    assert says(page)[0] >= before[0]
    page.costs[2].value = 100.0
    assert says(page)[1] < before[1]
    assert page.preset.value == "own costs"
    page.costs[2].value = 1.0
    assert page.preset.value == "own costs"
    assert says(page) == before
    page.preset.value = "latency"
    assert says(page) == before
    page.preset.value = "own costs"
    assert says(page) == before


def test_costs_that_leave_no_choice(page):
    page.costs[2].value = 0.0  # a stale answer costs nothing
    assert says(page)[0] == round(100 * (replay(BENCH.pairs, BENCH.stale | True) == SENT).mean(), 1)
    assert "1 leaf<" in page.tree.value
    page.costs[1].value = 0.0
    page.costs[2].value = 100.0  # asking costs nothing
    assert says(page)[:2] == [100, 0]
    assert set(page.map.data[1].marker.color) == {0}


def test_both_pages_beside_each_other():
    bench = PolicyWorkbench("rules:\n  - do: drop\n", {"m": {"a": 1}}, trained=BENCH)
    tab, _ = bench.children
    assert tab.titles == ("rules", "costs")
    assert tab.children[1] is bench.costs
    assert "rule 1 fires" in bench.status.value
    bench.costs.preset.value = "freshness"
    assert "sent" in bench.costs.status.value


def test_a_rule_of_ones_own_and_what_nobody_beats():
    rule = FixedRule(2.0, 60.0)
    page = CostPage(BENCH, rule=rule, cost="freshness")
    assert page.preset.value == "freshness"
    assert page.costs[2].value == 5
    assert "the rule 2 km / 60 min: " in page.status.value
    result = BENCH.run(rule)
    served = fewest_sends(
        BENCH.pairs, BENCH.stale, BENCH.pairs.devices(), int(result.reads["is_stale"].sum())
    )
    assert says(page)[-1] == round(100 * (served == SENT).mean(), 1) <= says(page)[3]


def test_what_was_tried_is_known(page, monkeypatch):
    """An answer comes at once: costs that were there before are not tried again."""
    asked = []
    tried = CacheBench.run
    monkeypatch.setattr(CacheBench, "run", lambda self, cost: asked.append(1) or tried(self, cost))
    for value in (2.0, 5.0, 2.0, 5.0, 2.0):
        page.costs[2].value = value
    assert len(asked) <= 2
