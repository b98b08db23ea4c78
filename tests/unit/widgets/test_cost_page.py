"""Costs page of the policy workbench: tree, map and measures for the chosen costs."""

import re
from html import escape

import numpy as np
import pytest
from learning_traces import build_labelled_reads

from mudkit import figures
from mudkit.learning import FixedRule, tree_nodes
from mudkit.learning.bound import fewest_sends
from mudkit.learning.replay import SENT, replay
from mudkit.widgets import PolicyWorkbench
from mudkit.widgets.cost_page import CostPage
from mudkit.worlds import CacheBench

BENCH = CacheBench.from_labels(*build_labelled_reads())


@pytest.fixture
def page():
    return PolicyWorkbench(trained=BENCH).costs


def read_shares(page):
    """Return the shares of the tree and of the rule."""
    return [float(share) for share in re.findall(r"([\d.]+)%", page.status.value)]


def compute_expected(*costs):
    result = BENCH.run(np.array(costs).reshape(2, 2))
    return [
        round(100 * share, 1) for share in (result.sent_share, result.stale_share, result.completeness)
    ], result


def test_page_shows_the_results_of_the_bench(page):
    for place, value in ((2, 5.0), (1, 0.1), (0, 0.05), (3, 2.0)):
        page.costs[place].value = value
        shares, result = compute_expected(*(slider.value for slider in page.costs))
        assert read_shares(page)[:3] == shares
        leaves = int(tree_nodes(result.learnt)["leaves"][0])
        assert f"all devices: {leaves} lea" in page.tree.value
        assert escape(figures.tree_outline(tree_nodes(result.learnt))) in page.tree.value
        cells = figures.hits_by_cell(figures.reads_near_busiest(result.reads))
        assert list(page.map.data[1].marker.color) == cells["local"].to_pylist()
    rule = BENCH.run(FixedRule())
    assert read_shares(page)[3:5] == [round(100 * rule.sent_share, 1), round(100 * rule.stale_share, 1)]


def test_preset_sets_all_costs_and_dragging_deselects_it(page):
    assert page.preset.value == "latency"
    before = read_shares(page)
    page.preset.value = "freshness"
    assert [slider.value for slider in page.costs] == [0, 1, 5, 0]
    assert page.preset.value == "freshness"
    assert read_shares(page)[0] >= before[0]
    page.costs[2].value = 100.0
    assert read_shares(page)[1] < before[1]
    assert page.preset.value == "own costs"
    page.costs[2].value = 1.0
    assert page.preset.value == "own costs"
    assert read_shares(page) == before
    page.preset.value = "latency"
    assert read_shares(page) == before
    page.preset.value = "own costs"
    assert read_shares(page) == before


def test_zero_costs_leave_no_choice(page):
    page.costs[2].value = 0.0  # a stale answer costs nothing
    assert read_shares(page)[0] == round(100 * (replay(BENCH.pairs, BENCH.stale | True) == SENT).mean(), 1)
    assert "1 leaf<" in page.tree.value
    page.costs[1].value = 0.0
    page.costs[2].value = 100.0  # asking costs nothing
    assert read_shares(page)[:2] == [100, 0]
    assert set(page.map.data[1].marker.color) == {0}


def test_workbench_shows_both_pages_as_tabs():
    bench = PolicyWorkbench("rules:\n  - do: drop\n", {"m": {"a": 1}}, trained=BENCH)
    tab, _ = bench.children
    assert tab.titles == ("rules", "costs")
    assert tab.children[1] is bench.costs
    assert "rule 1 fires" in bench.status.value
    bench.costs.preset.value = "freshness"
    assert "sent" in bench.costs.status.value


def test_custom_rule_and_lower_bound_are_shown():
    rule = FixedRule(2.0, 60.0)
    page = CostPage(BENCH, rule=rule, cost="freshness")
    assert page.preset.value == "freshness"
    assert page.costs[2].value == 5
    assert "the rule 2 km / 60 min: " in page.status.value
    result = BENCH.run(rule)
    served = fewest_sends(
        BENCH.pairs, BENCH.stale, BENCH.pairs.devices(), int(result.reads["is_stale"].sum())
    )
    assert read_shares(page)[-1] == round(100 * (served == SENT).mean(), 1) <= read_shares(page)[3]


def test_results_of_tried_costs_are_cached(page, monkeypatch):
    """Reuse the results of costs that were tried before."""
    calls = []
    run = CacheBench.run
    monkeypatch.setattr(CacheBench, "run", lambda self, cost: calls.append(1) or run(self, cost))
    for value in (2.0, 5.0, 2.0, 5.0, 2.0):
        page.costs[2].value = value
    assert len(calls) <= 2
