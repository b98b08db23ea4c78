"""Planner of reads and writes: estimated costs of plans, and the choice between them."""

from __future__ import annotations

import math

import pytest

from mudkit.systems.mud.device.planning import DELAYS_S, Answerable, Planner, UtilityWrites
from mudkit.systems.mud.policies.utility import (
    Utility,
    bandwidth,
    bias,
    completeness,
    cost_matrix,
    energy,
    freshness,
    latency,
)

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


# -- writes (Mobius 6: delaying a write for too long, against too many messages)


def choose_delay(planner, utility, now_us=0, **context):
    write = {"name": "t", "type": "blind", "utility": utility}
    return UtilityWrites(planner).delay(write, {**context, "now_us": now_us})


@pytest.mark.parametrize(
    ("utility", "expected"),
    [
        (None, None),
        (latency(per_s=1000), None),
        (bandwidth(per_kb_s=1000), None),  # a later write has as many bytes
        (energy(per_j_s=1000), DELAYS_S[-1]),
        (latency() + energy(per_j_s=0.01), None),
        (latency() + energy(per_j_s=5), 60.0),
        (freshness(600) + energy(per_j_s=1000), 300.0),  # readers take what is younger than ten minutes
        (completeness(200) + energy(per_j_s=10), None),
        (completeness(50) + energy(per_j_s=10), DELAYS_S[-1]),
        (cost_matrix(stale_s=10, unnecessary_s=0.1), None),
        (cost_matrix(stale_s=1, unnecessary_s=10), 60.0),
    ],
    ids=str,
)
def test_utility_of_a_write_decides_its_delay(planner, utility, expected):
    assert choose_delay(planner, utility) == expected


def test_write_leaves_at_once_while_the_radio_is_awake(planner):
    planner.record_use(0)
    assert choose_delay(planner, energy(per_j_s=1000), 1_000_000) is None
    assert choose_delay(planner, energy(per_j_s=1000), 12_000_000) == DELAYS_S[-1]


def test_write_over_a_network_without_wake_ups_is_not_delayed(planner):
    planner.record_link_up("wifi")
    assert choose_delay(planner, energy(per_j_s=1000)) is None


def test_plans_of_a_write_lose_more_readers_and_cost_less_the_later_it_leaves(planner):
    planner.record_write(0, "t")
    plans = planner.write_plans(0, "t")
    assert [plan.age_s for plan in plans] == list(DELAYS_S)
    assert [plan.source for plan in plans] == ["remote"] + ["local"] * (len(DELAYS_S) - 1)
    for name, sign in (("latency_s", 1), ("changed_share", 1), ("completeness", -1), ("radio_mj", -1)):
        values = [sign * getattr(plan, name) for plan in plans]
        assert values == sorted(set(values)), name


def test_expected_wait_of_the_first_reader(planner):
    """Reads come at exponential intervals of 600 s: the mean of what remains of a delay after the first."""
    planner.record_write(0, "t")
    at_once, *_, longest = planner.write_plans(0, "t")
    delay_s = DELAYS_S[-1]
    expected_s = delay_s - 600.0 * (1.0 - math.exp(-delay_s / 600.0))
    assert longest.latency_s - at_once.latency_s == pytest.approx(expected_s)
    assert longest.changed_share == pytest.approx(1.0 - math.exp(-delay_s / 600.0))


def test_reads_of_the_table_shorten_the_delay(planner):
    utility = latency() + energy(per_j_s=30)
    before = choose_delay(planner, utility)
    for second in range(100):
        planner.record_read(second * 1_000_000, "t")
        planner.record_read(second * 1_000_000, "u")
    assert (before, choose_delay(planner, utility, 100_000_000)) == (300.0, 60.0)


def test_seldom_reads_of_the_device_do_not_lengthen_the_delay(planner):
    """Others may read the table more often."""
    planner.record_write(0, "t")
    early, late = (planner.write_plans(at_us, "t")[-1].changed_share for at_us in (0, 10**12))
    assert early == late


def test_reads_that_the_cloud_has_measured_replace_those_of_the_device(planner):
    """Reads of others decide; the device sees its own writes in any case."""
    utility = latency() + energy(per_j_s=30)
    delays = []
    for interval_ms in (60_000, 600_000, 6_000_000):
        planner.record_read_interval("t", interval_ms)
        delays.append(choose_delay(planner, utility))
    assert delays == [60.0, 300.0, 600.0]
    planner.record_read(0, "t")
    assert choose_delay(planner, utility) == 600.0


def test_continuous_reads_lose_the_whole_delay(planner):
    planner.record_read_interval("t", 0)
    planner.record_write(0, "t")
    at_once, *_, longest = planner.write_plans(0, "t")
    assert longest.latency_s - at_once.latency_s == pytest.approx(DELAYS_S[-1], abs=0.01)
    assert longest.changed_share == 1.0


def test_only_tables_whose_writes_have_utilities_ask_for_reads(planner):
    choose_delay(planner, None)
    assert not planner.weighs_writes("t")
    choose_delay(planner, latency())
    assert (planner.weighs_writes("t"), planner.weighs_writes("u")) == (True, False)


def test_more_writes_share_a_wake_up(planner):
    planner.record_write(0, "t")
    alone = planner.write_plans(0, "t")[-1].radio_mj
    for _ in range(9):
        planner.record_write(0, "t")
    assert planner.write_plans(0, "t")[-1].radio_mj < alone / 2


class Careful(Utility):
    """Utility of one's own: saves energy while the battery is low."""

    def __init__(self):
        self.seen = []

    def cost(self, plan):
        self.seen.append((plan.query, plan.context))
        return plan.radio_mj if plan.context.get("battery", 1.0) < 0.2 else plan.latency_s


def test_utility_of_a_write_sees_the_write_and_the_context(planner):
    utility = Careful()
    assert choose_delay(planner, utility, battery=0.9) is None
    assert choose_delay(planner, 2 * utility, battery=0.1) == DELAYS_S[-1]
    query, context = utility.seen[-1]
    assert (query.table, query.type, query.predicate) == ("t", "blind", None)
    assert context == {"battery": 0.1, "now_us": 0, "network": "lte"}
    planner.record_link_down(0)
    choose_delay(planner, utility)
    assert utility.seen[-1][1]["network"] is None
