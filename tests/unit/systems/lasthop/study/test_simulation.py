"""Simulator, and on-line forwarding computed without a spool."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import (
    Expiration,
    Forwarding,
    Outcome,
    Scenario,
    Simulated,
    Spool,
    expected_waste,
    simulate,
)
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study import simulation
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.systems.lasthop.study.simulation import play, play_online, spool_factory


def int_array(*values):
    return np.array(values, dtype=np.int64)


def build_simple_events(arrivals, ranks, reads, switches=(), starts_up=True):
    forever = np.full(len(arrivals), 1 << 62)
    return Drawn(
        int_array(*arrivals), forever, np.array(ranks), int_array(*reads), int_array(*switches), starts_up
    )


def play_with_spool(events, policy, max_messages=8):
    return play(events, lambda forward, retract: Spool(0.0, policy, forward, retract), max_messages)


def test_waste_and_loss_match_the_definitions_of_the_paper():
    run = Simulated(Outcome((1, 2, 3, 4), (1, 2)), Outcome((1, 2, 3, 4, 5), (2, 5)), {})
    assert (run.waste, run.loss) == (0.5, 0.5)
    assert (run.forwarded, run.read, run.forwarded_ids, run.read_ids) == (4, 2, (1, 2, 3, 4), (1, 2))
    empty = Simulated(Outcome((), ()), Outcome((), ()), {})
    assert (empty.waste, empty.loss) == (0.0, 0.0)


def test_offline_read_takes_the_messages_on_the_device():
    events = build_simple_events([1, 2, 3], [0.1, 0.9, 0.5], [5, 9], switches=[4])
    assert play_with_spool(events, Forwarding("on-line"), 2) == Outcome((0, 1, 2), (1, 2, 0))
    assert play_with_spool(events, Forwarding("on-demand"), 2) == Outcome((), ())
    assert play_with_spool(events, Forwarding("buffer", 1), 2) == Outcome((0,), (0,))


def test_offline_reads_are_reported_on_reconnection():
    events = build_simple_events([1, 2, 3], [0.1, 0.9, 0.5], [5], switches=[4, 6])
    assert play_with_spool(events, Forwarding("buffer", 1), 2) == Outcome((0, 1), (0,))


def test_expected_waste_matches_the_examples_of_the_paper():
    assert expected_waste(user_frequency=1, max=4, event_frequency=32) == 0.875
    assert expected_waste(user_frequency=1, max=32, event_frequency=32) == 0
    assert expected_waste(user_frequency=1, max=None, event_frequency=32) == 0
    assert expected_waste(user_frequency=0, max=4, event_frequency=32) == 1
    assert expected_waste(user_frequency=0, max=4, event_frequency=0) == 0


def test_simulated_waste_is_near_the_expected_waste():
    for reads_per_day, max_messages in ((0.25, 1), (1.0, 4), (2.0, 8), (8.0, 8)):
        run = simulate(user_frequency=reads_per_day, max=max_messages, policy="on-line", seed=3)
        expected = expected_waste(user_frequency=reads_per_day, max=max_messages, event_frequency=32)
        assert run.waste == pytest.approx(expected, abs=0.02)


def test_buffer_policy_reproduces_the_band_of_figure_3():
    for seed in (1, 2):
        run = simulate(outage=0.9, policy="buffer", prefetch_limit=16, seed=seed)
        assert run.loss < 0.01
        assert run.waste < 0.01
        assert simulate(outage=0.9, policy="buffer", prefetch_limit=64, seed=seed).waste < 0.011
        assert (
            simulate(outage=0.9, outages_per_day=1, policy="buffer", prefetch_limit=16, seed=seed).loss > 0.2
        )


def test_unified_policy_is_as_good_without_a_set_limit():
    run = simulate(outage=0.9, policy="unified", seed=1)
    assert run.loss < 0.02
    assert run.waste < 0.01


@pytest.mark.parametrize("outages_per_day", [1, 12])
def test_learnt_limit_loses_hardly_more_than_a_fixed_one(outages_per_day):
    """Last hop 4.2: reads that find nothing in an outage do not let the limit fall (by at most 3 points)."""
    settings = {"outage": 0.9, "outages_per_day": outages_per_day, "days": 180, "seed": 1}
    fixed = simulate(policy="buffer", prefetch_limit=16, **settings).loss
    for policy in ("buffer", "unified"):
        assert simulate(policy=policy, **settings).loss < fixed + 0.03


def test_on_demand_policy_that_remembers_reads_loses_a_sixth_of_what_it_lost():
    """Last hop 4.5: in Figure 2 reads in outages were forgotten."""
    settings = {"outage": 0.9, "days": 180, "seed": 1}
    forgets = simulate(policy="on-demand", **settings)
    remembers = simulate(policy=Forwarding("on-demand", remembers_reads=True), **settings)
    assert remembers.loss < forgets.loss / 5
    assert remembers.waste < 0.01


def test_total_outage_forwards_nothing():
    run = simulate(outage=1.0, policy="buffer", prefetch_limit=16)
    assert (run.forwarded, run.read, run.waste) == (0, 0, 0.0)


@pytest.mark.parametrize("policy", ["buffer", "on-line", "on-demand", "unified", "push"])
def test_total_outage_loses_everything(policy):
    assert simulate(outage=1.0, policy=policy, days=30).loss == 1.0
    assert simulate(outage=1.0, policy=policy, days=30, max=0).loss == 0.0, "nobody reads"


def test_outcome_counts_the_messages_of_each_read():
    events = build_simple_events([1, 2, 3], [0.1, 0.9, 0.5], [5, 9], switches=[4])
    assert play_with_spool(events, Forwarding("on-line"), 2).per_read == (2, 1)
    assert play_with_spool(events, Forwarding("on-demand"), 2).per_read == (0, 0)
    assert play_online(events, 0.0, 2).per_read == (2, 1)


def test_max_0_reads_nothing_and_wastes_all():
    run = simulate(max=0, policy="on-line", days=20)
    assert (run.read, run.waste) == (0, 1.0)
    assert simulate(max=0, policy="on-demand", days=20).forwarded == 0


def test_max_may_be_unlimited():
    assert simulate(max=None, days=20, seed=1).read_ids == simulate(max=math.inf, days=20, seed=1).read_ids


def test_seed_determines_the_result():
    one, two, three = (simulate(outage=0.5, days=40, seed=seed) for seed in (5, 5, 6))
    assert (one.forwarded_ids, one.read_ids) == (two.forwarded_ids, two.read_ids)
    assert one.read_ids != three.read_ids


def test_policies_run_on_the_same_events():
    one = simulate(outage=0.5, policy="buffer", prefetch_limit=4, days=40, seed=2)
    two = simulate(outage=0.5, policy="on-demand", days=40, seed=2)
    assert one.online == two.online
    online = simulate(outage=0.5, policy="on-line", days=40, seed=2)
    assert online.outcome is online.online


def test_expirations_are_seconds_or_a_distribution():
    by_seconds = simulate(expiration=3600, days=20)
    assert by_seconds.parameters["expiration"]["law"] == "exponential"
    assert by_seconds.read_ids == simulate(expiration=Expiration(3600.0), days=20).read_ids
    assert simulate(expiration=Expiration(3600.0, "uniform"), days=20).read_ids != by_seconds.read_ids


def test_higher_expiration_threshold_reduces_waste():
    settings = {
        "expiration": 36_000.0,
        "outage": 0.5,
        "max": None,
        "days": 60,
        "policy": "buffer",
        "prefetch_limit": 99,
    }
    wastes = [simulate(**settings, expiration_threshold_s=hours * 3600.0).waste for hours in (0, 8, 200)]
    assert wastes[0] > wastes[1] > wastes[2] == 0.0


def test_threshold_excludes_low_ranks():
    run = simulate(threshold=0.75, policy="on-line", max=None, user_frequency=4, seed=1)
    ranks = Scenario(32.0, 4.0).draw(1).ranks
    assert min(ranks[list(run.read_ids)]) >= 0.75
    assert run.forwarded == (ranks >= 0.75).sum()


def test_result_contains_its_parameters():
    values = simulate(
        outage=Outages(0.25, per_day=4), max=None, policy="buffer", prefetch_limit=3, days=2, seed=8
    ).parameters
    assert values["outages"]["per_day"] == 4
    assert (values["max"], values["seed"], values["days"], values["reads_cv"]) == (None, 8, 2, 0.1)
    assert values["policy"] == Forwarding("buffer", 3)


TIMES = st.lists(st.integers(0, 12), max_size=15).map(sorted)  # many events coincide


def build_events(arrivals, ranks, reads, switches, starts_up):
    forever = np.full(len(arrivals), FOREVER_US, dtype=np.int64)
    arrays = (np.array(times, dtype=np.int64) for times in (arrivals, reads, switches))
    arrivals_us, reads_us, switches_us = arrays
    return Drawn(arrivals_us, forever, np.array(ranks, dtype=float), reads_us, switches_us, starts_up)


@given(
    TIMES,
    st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.9]), min_size=15, max_size=15),
    TIMES,
    TIMES,
    st.booleans(),
    st.sampled_from([0.0, 0.2, 0.7]),
    st.sampled_from([0, 1, 3, math.inf]),
)
def test_play_online_equals_a_spool_also_in_order(
    arrivals, ranks, reads, switches, starts_up, threshold, max_messages
):
    events = build_events(arrivals, ranks[: len(arrivals)], reads, switches, starts_up)
    spool = play(events, spool_factory(Forwarding("on-line"), threshold), max_messages)
    assert play_online(events, threshold, max_messages) == spool


def test_play_online_declines_expirations_and_large_runs(monkeypatch):
    assert play_online(Scenario(days=3, expiration=Expiration(3600.0)).draw(1), 0.0, 8) is None
    events = Scenario(days=3).draw(1)
    for max_messages, is_played in ((len(events.ranks), True), (len(events.ranks) - 1, False)):
        monkeypatch.setattr(simulation, "MAX_DIRECT_MESSAGES", max_messages)
        assert (play_online(events, 0.0, 8) is not None) == is_played


@pytest.mark.parametrize("is_enabled", [True, False])
def test_play_restores_the_state_of_the_garbage_collector(is_enabled):
    def create_broken_spool(forward, retract):
        spool = spool_factory(Forwarding("on-line"), 0.0)(forward, retract)
        spool.notification = None  # fails when called
        return spool

    (gc.enable if is_enabled else gc.disable)()
    try:
        events = build_events([1], [0.5], [2], [], True)
        assert play(events, spool_factory(Forwarding("on-line"), 0.0), 1).read_ids == (0,)
        assert gc.isenabled() == is_enabled
        with pytest.raises(TypeError):
            play(events, create_broken_spool, 1)
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()


@pytest.mark.parametrize("starts_up", [True, False])
def test_play_online_without_arrivals_reads_nothing(starts_up):
    assert play_online(build_events([], [], [1, 2], [1], starts_up), 0.0, 8) == Outcome((), ())
