"""Journal: one plan for all read types, each checked against its consistency model."""

from __future__ import annotations

import math

import pytest

from mudkit.consistency import History, check
from mudkit.worlds import Journal
from mudkit.worlds.journal import DEVICES

JOURNAL = Journal()


def check_run(model, kind, seed, **options):
    return check(History.from_table(JOURNAL.run(seed, kind, **options).history()), model, reads=[kind]).status


def test_plan_depends_only_on_the_seed():
    plan = JOURNAL.plan(1)
    assert plan.equals(JOURNAL.plan(1))
    assert not plan.equals(JOURNAL.plan(2))
    assert plan["at_s"].is_monotonic_increasing
    assert plan["what"].value_counts()[["cut", "kill", "restart"]].tolist() == [2, 1, 1]
    assert plan["what"].isin(["edit", "look"]).sum() == JOURNAL.operations
    assert set(plan["device"]) == set(DEVICES)


def test_runs_with_one_seed_differ_only_in_reads():
    kinds = ("uncommitted", "committed")
    tables = [JOURNAL.run(1, kind).history() for kind in kinds]
    edits = [table[table["op"] == "write"] for table in tables]
    assert edits[0]["invoked"].reset_index(drop=True).equals(edits[1]["invoked"].reset_index(drop=True))
    assert [set(table["type"].dropna()) - {"conditional"} for table in tables] == [{kind} for kind in kinds]
    assert all((table["status"] == "failed").any() for table in tables), "edits meet other edits"


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(8))
def test_each_read_type_satisfies_its_consistency_model(seed):
    assert check_run("fork-sequential-retracted", "uncommitted", seed) == "OK"
    assert check_run("sequential", "committed", seed) == "OK"
    assert check_run("sequential-wio", "committed_wio", seed) == "OK"
    for kind in ("committed", "committed_wio"):
        assert check_run("linearizable", kind, seed, latest=True) == "OK"


def test_run_lasts_until_every_operation_is_answered():
    """However long the cuts are, of which one may begin late."""
    lab = Journal(minutes=10.0, operations=20, cut_minutes=40.0).run(1, "committed", latest=True)
    assert set(lab.history()["status"]) <= {"ok", "failed"}


def test_replicas_that_lag_behind_show_older_entries():
    at_once, late = (
        Journal.measures(Journal(cut_minutes=0.0, fresh_s=10.0, replica_lag_s=lag_s).run(2, "committed"))[
            "stale_share"
        ]
        for lag_s in (0.0, 60.0)
    )
    assert at_once < late


def test_weaker_read_types_violate_stronger_models():
    assert check_run("fork-sequential", "uncommitted", 1) == "ILLEGAL", "a refused edit was seen before"
    assert check_run("sequential-wio", "committed", 3) == "ILLEGAL", "a pending edit is not seen"
    assert check_run("linearizable", "committed_wio", 1) == "ILLEGAL", "replicas and caches are behind"


def test_latest_reads_wait_longer_and_are_never_stale():
    connected = Journal(cut_minutes=0.0)
    weak, strong = (
        Journal.measures(connected.run(1, kind, latest=latest))
        for kind, latest in (("uncommitted", False), ("committed", True))
    )
    assert strong["stale_share"] == 0.0 < weak["stale_share"] <= 1.0, "the store's latest lacks nothing"
    assert weak["mean_wait_s"] < strong["mean_wait_s"] <= strong["longest_wait_s"]
    assert weak["bytes"] < strong["bytes"]
    assert weak["messages"] < strong["messages"]
    cut = Journal.measures(Journal(cut_minutes=8.0).run(1, "committed", latest=True))
    assert cut["mean_wait_s"] > 10 * strong["mean_wait_s"]


def test_looks_at_edits_refused_later_are_stale():
    lab = JOURNAL.run(1, "uncommitted")
    table = lab.history()
    refused = set(table["value_hash"][(table["op"] == "write") & (table["status"] == "failed")])
    looks = table[(table["op"] == "read") & (table["status"] == "ok")]
    refused_looks = looks["value_hash"].isin(refused).sum()
    assert refused_looks > 0
    assert Journal.measures(lab)["stale_share"] >= refused_looks / len(looks)


def test_cost_is_wait_plus_price_of_stale_looks():
    lab = JOURNAL.run(1, "uncommitted")
    measures = Journal.measures(lab)
    assert measures["stale_share"] > 0
    assert Journal(stale_cost_s=0.0).cost_s(lab) == measures["mean_wait_s"]
    assert (
        Journal(stale_cost_s=100.0).cost_s(lab) == measures["mean_wait_s"] + 100.0 * measures["stale_share"]
    )


def test_stale_share_without_looks_is_nan():
    assert math.isnan(
        Journal.measures(Journal(operations=3, edit_share=1.0).run(1, "committed"))["stale_share"]
    )
