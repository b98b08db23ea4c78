"""Planner of reads: estimated costs of plans, and the choice between them."""

from __future__ import annotations

import math

import pytest

from mudkit.systems.mud.device.planning import Answerable, Planner
from mudkit.systems.mud.policies.utility import bias, completeness, cost_matrix, energy, freshness, latency

CACHED = Answerable(60.0, 1.0, 0.0)


@pytest.fixture
def planner():
    planner = Planner()
    planner.record_link_up("lte")
    return planner


def test_local_plan_costs_nothing(planner):
    local, remote = planner.plans(0, "t", freshness(600), CACHED)
    assert (local.source, local.latency_s, local.size_kb, local.radio_mj) == ("local", 0.0, 0.0, 0.0)
    assert remote.source == "remote"
    assert min(remote.latency_s, remote.size_kb, remote.radio_mj) > 0.0


def test_remote_is_the_only_plan_without_a_cached_answer(planner):
    assert [plan.source for plan in planner.plans(0, "t", freshness(600), None)] == ["remote"]


def test_remote_plan_without_cached_answer_is_never_unnecessary(planner):
    matrix = cost_matrix(stale_s=100.0, unnecessary_s=8.0)
    (remote,) = planner.plans(0, "t", matrix, None)
    assert matrix.cost(remote) == 0.0


def test_outage_is_expected_to_last_as_long_again(planner):
    planner.record_link_down(1_000_000)
    early, late = (planner.remote_plan(at_us, "t") for at_us in (2_000_000, 601_000_000))
    assert early.source == late.source == "wait"
    assert 60 < early.latency_s < 61
    assert 600 < late.latency_s < 601


def test_slower_networks_have_higher_latency(planner):
    waits = []
    for network in ("wifi", "lte", "umts_3g", "edge"):
        planner.record_link_up(network)
        waits.append(planner.remote_plan(0, "t").latency_s)
    assert waits == sorted(waits)
    planner.record_link_up("of the future")
    assert planner.remote_plan(0, "t").latency_s == waits[1]


def test_awake_radio_costs_less_energy(planner):
    planner.record_use(10_000_000)
    awake, asleep = (planner.remote_plan(at_us, "t").radio_mj for at_us in (21_000_000, 22_000_000))
    assert asleep - awake == pytest.approx(12_600)
    just_asleep = planner.remote_plan(10_000_000 + 11_600_000, "t").radio_mj  # the tail of 11.6 s has ended
    assert just_asleep == asleep
    planner.record_link_up("lte")
    assert planner.remote_plan(10_000_001, "t").radio_mj == asleep


def test_answer_size_is_estimated_from_earlier_answers(planner):
    sizes = [planner.remote_plan(0, "t").size_kb]
    for answer_kb in (100.0, 100.0, 10.0):
        planner.record_answer_size("t", answer_kb)
        sizes.append(planner.remote_plan(0, "t").size_kb)
    assert sizes == pytest.approx([1.5, 100.5, 100.5, 73.5])
    assert planner.remote_plan(0, "u").size_kb == 1.5


def test_changed_share_follows_observed_changes(planner):
    assert planner.changed_share("t", 0.0) == planner.changed_share("t", -1.0) == 0.0
    assert planner.changed_share("t", 600.0) == pytest.approx(1 - math.exp(-1))
    for _ in range(100):
        planner.record_comparison("t", 60.0, has_changed=True)
        planner.record_comparison("u", 60.0, has_changed=False)
    assert planner.changed_share("t", 60.0) > 0.6
    assert planner.changed_share("u", 60.0) < 0.01


@pytest.mark.parametrize(("utility", "expected"), [
    (None, "remote"), (freshness(61), "local"), (freshness(60), "remote"), (energy(1.0), "local"),
    (latency(), "local"), (cost_matrix(1.0, 1.0), "local"), (cost_matrix(100.0, 1.0), "remote"),
])  # fmt: skip
def test_plan_with_highest_utility_is_chosen(planner, utility, expected):
    assert planner.choose_source(0, "t", utility, CACHED) == expected


def test_pending_writes_are_always_fresh(planner):
    pending = Answerable(-1e-6, 1.0, 0.0)
    assert planner.choose_source(0, "t", None, pending) == "local"


def test_incomplete_answer_needs_a_utility_of_completeness(planner):
    half = Answerable(1.0, 0.5, 1.0)
    assert planner.choose_source(0, "t", freshness(600), half) == "remote"
    assert planner.choose_source(0, "t", latency(10) + completeness(1.0), half) == "local"
    assert planner.choose_source(0, "t", latency(10) + completeness(10.0), half) == "remote"
    assert planner.choose_source(0, "t", latency(10) + completeness(1.0) + bias(5.0), half) == "remote"
    assert planner.choose_source(0, "t", latency(10) + completeness(1.0, min_share=0.6), half) == "local"
    assert planner.choose_source(0, "t", latency() + completeness(1.0, min_share=0.6), half) == "remote"


def test_utility_weighs_local_answer_against_waiting(planner):
    planner.record_link_down(0)
    assert planner.choose_source(0, "t", freshness(10), CACHED) == "wait"
    half = Answerable(1.0, 0.5, 0.0)
    assert planner.choose_source(0, "t", latency() + completeness(100.0), half) == "local"
    assert planner.choose_source(0, "t", latency() + completeness(1000.0), half) == "wait"
