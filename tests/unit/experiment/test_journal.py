"""The journal: one plan for all read types, each of which keeps its promise on it."""

from __future__ import annotations

import math

import pytest

from mudkit.consistency import History, check
from mudkit.experiment import Journal
from mudkit.experiment.journal import DEVICES

JOURNAL = Journal()


def judged(model, kind, seed, **more):
    return check(History.from_table(JOURNAL.run(seed, kind, **more).history()), model, reads=[kind]).status


def test_the_plan_is_a_function_of_the_seed():
    plan = JOURNAL.plan(1)
    assert plan.equals(JOURNAL.plan(1))
    assert not plan.equals(JOURNAL.plan(2))
    assert plan["at_s"].is_monotonic_increasing
    assert plan["what"].value_counts()[["cut", "kill", "restart"]].tolist() == [2, 1, 1]
    assert plan["what"].isin(["edit", "look"]).sum() == JOURNAL.operations
    assert set(plan["device"]) == set(DEVICES)


def test_runs_of_one_seed_differ_in_their_reads_alone():
    kinds = ("uncommitted", "committed")
    tables = [JOURNAL.run(1, kind).history() for kind in kinds]
    edits = [table[table["op"] == "write"] for table in tables]
    assert edits[0]["invoked"].reset_index(drop=True).equals(edits[1]["invoked"].reset_index(drop=True))
    assert [set(table["type"].dropna()) - {"conditional"} for table in tables] == [{kind} for kind in kinds]
    assert all((table["status"] == "failed").any() for table in tables), "edits meet other edits"


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(8))
def test_each_way_to_read_keeps_its_promise(seed):
    assert judged("fork-sequential-retracted", "uncommitted", seed) == "OK"
    assert judged("sequential", "committed", seed) == "OK"
    assert judged("sequential-wio", "committed_wio", seed) == "OK"
    for kind in ("committed", "committed_wio"):
        assert judged("linearizable", kind, seed, latest=True) == "OK"


def test_some_run_shows_that_the_promises_differ():
    assert judged("fork-sequential", "uncommitted", 1) == "ILLEGAL", "a refused edit was seen before"
    assert judged("sequential-wio", "committed", 3) == "ILLEGAL", "a pending edit is not seen"
    assert judged("linearizable", "committed_wio", 1) == "ILLEGAL", "replicas and caches are behind"


def test_measures_charge_waits_and_count_stale_looks():
    still = Journal(cut_minutes=0.0)
    weak, strong = (
        Journal.measures(still.run(1, kind, latest=latest))
        for kind, latest in (("uncommitted", False), ("committed", True))
    )
    assert strong["stale_share"] == 0.0 < weak["stale_share"] <= 1.0, "the store's latest lacks nothing"
    assert weak["mean_wait_s"] < strong["mean_wait_s"] <= strong["longest_wait_s"]
    assert weak["bytes"] < strong["bytes"]
    assert weak["messages"] < strong["messages"]
    cut = Journal.measures(Journal(cut_minutes=8.0).run(1, "committed", latest=True))
    assert cut["mean_wait_s"] > 10 * strong["mean_wait_s"]


def test_a_look_at_an_edit_that_is_refused_later_is_stale():
    lab = JOURNAL.run(1, "uncommitted")
    table = lab.history()
    refused = set(table["value_hash"][(table["op"] == "write") & (table["status"] == "failed")])
    looks = table[(table["op"] == "read") & (table["status"] == "ok")]
    seen = looks["value_hash"].isin(refused).sum()
    assert seen > 0
    assert Journal.measures(lab)["stale_share"] >= seen / len(looks)


def test_a_look_costs_its_wait_and_the_price_of_a_stale_answer():
    lab = JOURNAL.run(1, "uncommitted")
    found = Journal.measures(lab)
    assert found["stale_share"] > 0
    assert Journal(stale_cost_s=0.0).cost_s(lab) == found["mean_wait_s"]
    assert Journal(stale_cost_s=100.0).cost_s(lab) == found["mean_wait_s"] + 100.0 * found["stale_share"]


def test_a_journal_without_looks_has_no_share_of_stale_ones():
    assert math.isnan(
        Journal.measures(Journal(operations=3, edit_share=1.0).run(1, "committed"))["stale_share"]
    )
