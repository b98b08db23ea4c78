"""The simulator, and on-line forwarding computed without a spool."""

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


def times(*given):
    return np.array(given, dtype=np.int64)


def drawn(arrivals, ranks, reads, switches=(), starts_up=True):
    forever = np.full(len(arrivals), 1 << 62)
    return Drawn(times(*arrivals), forever, np.array(ranks), times(*reads), times(*switches), starts_up)


def played(story, policy, most=8):
    return play(story, lambda forward, retract: Spool(0.0, policy, forward, retract), most)


def test_waste_and_loss_are_what_the_paper_says():
    run = Simulated(Outcome((1, 2, 3, 4), (1, 2)), Outcome((1, 2, 3, 4, 5), (2, 5)), {})
    assert (run.waste, run.loss) == (0.5, 0.5)
    assert (run.forwarded, run.read, run.forwarded_ids, run.read_ids) == (4, 2, (1, 2, 3, 4), (1, 2))
    nothing = Simulated(Outcome((), ()), Outcome((), ()), {})
    assert (nothing.waste, nothing.loss) == (0.0, 0.0)


def test_a_device_reads_what_it_holds_while_the_link_is_down():
    story = drawn([1, 2, 3], [0.1, 0.9, 0.5], [5, 9], switches=[4])
    assert played(story, Forwarding("on-line"), 2) == Outcome((0, 1, 2), (1, 2, 0))
    assert played(story, Forwarding("on-demand"), 2) == Outcome((), ())
    assert played(story, Forwarding("buffer", 1), 2) == Outcome((0,), (0,))


def test_what_was_read_offline_is_told_when_the_link_is_back():
    story = drawn([1, 2, 3], [0.1, 0.9, 0.5], [5], switches=[4, 6])
    assert played(story, Forwarding("buffer", 1), 2) == Outcome((0, 1), (0,))


def test_the_examples_of_the_paper():
    assert expected_waste(user_frequency=1, max=4, event_frequency=32) == 0.875
    assert expected_waste(user_frequency=1, max=32, event_frequency=32) == 0
    assert expected_waste(user_frequency=1, max=None, event_frequency=32) == 0
    assert expected_waste(user_frequency=0, max=4, event_frequency=32) == 1
    assert expected_waste(user_frequency=0, max=4, event_frequency=0) == 0


def test_the_waste_by_overflow_is_near_the_formula():
    for often, most in ((0.25, 1), (1.0, 4), (2.0, 8), (8.0, 8)):
        run = simulate(user_frequency=often, max=most, policy="on-line", seed=3)
        expected = expected_waste(user_frequency=often, max=most, event_frequency=32)
        assert run.waste == pytest.approx(expected, abs=0.02)


def test_the_band_of_figure_3():
    for seed in (1, 2):
        run = simulate(outage=0.9, policy="buffer", prefetch_limit=16, seed=seed)
        assert run.loss < 0.01
        assert run.waste < 0.01
        assert simulate(outage=0.9, policy="buffer", prefetch_limit=64, seed=seed).waste < 0.011
        assert (
            simulate(outage=0.9, outages_per_day=1, policy="buffer", prefetch_limit=16, seed=seed).loss > 0.2
        )


def test_the_unified_policy_is_as_good_without_being_told_a_limit():
    run = simulate(outage=0.9, policy="unified", seed=1)
    assert run.loss < 0.02
    assert run.waste < 0.01


def test_a_total_outage_is_legal():
    run = simulate(outage=1.0, policy="buffer", prefetch_limit=16)
    assert (run.forwarded, run.read, run.waste, run.loss) == (0, 0, 0.0, 0.0)


def test_max_0_reads_nothing_and_wastes_all():
    run = simulate(max=0, policy="on-line", days=20)
    assert (run.read, run.waste) == (0, 1.0)
    assert simulate(max=0, policy="on-demand", days=20).forwarded == 0


def test_max_may_be_unlimited():
    assert simulate(max=None, days=20, seed=1).read_ids == simulate(max=math.inf, days=20, seed=1).read_ids


def test_the_same_seed_gives_the_same():
    one, two, three = (simulate(outage=0.5, days=40, seed=seed) for seed in (5, 5, 6))
    assert (one.forwarded_ids, one.read_ids) == (two.forwarded_ids, two.read_ids)
    assert one.read_ids != three.read_ids


def test_both_scenarios_are_of_the_same_events():
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


def test_an_expiration_threshold_holds_back_what_expires_soon():
    same = {
        "expiration": 36_000.0,
        "outage": 0.5,
        "max": None,
        "days": 60,
        "policy": "buffer",
        "prefetch_limit": 99,
    }
    wastes = [simulate(**same, expiration_threshold_s=hours * 3600.0).waste for hours in (0, 8, 200)]
    assert wastes[0] > wastes[1] > wastes[2] == 0.0


def test_a_threshold_leaves_out_low_ranks():
    run = simulate(threshold=0.75, policy="on-line", max=None, user_frequency=4, seed=1)
    ranks = Scenario(32.0, 4.0).draw(1).ranks
    assert min(ranks[list(run.read_ids)]) >= 0.75
    assert run.forwarded == (ranks >= 0.75).sum()


def test_a_run_says_what_it_was():
    answer = simulate(
        outage=Outages(0.25, per_day=4), max=None, policy="buffer", prefetch_limit=3, days=2, seed=8
    ).parameters
    assert answer["outages"]["per_day"] == 4
    assert (answer["max"], answer["seed"], answer["days"], answer["reads_cv"]) == (None, 8, 2, 0.1)
    assert answer["policy"] == Forwarding("buffer", 3)


TIMES = st.lists(st.integers(0, 12), max_size=15).map(sorted)  # so that much happens at one time


def events_of(arrivals, ranks, reads, switches, starts_up):
    forever = np.full(len(arrivals), FOREVER_US, dtype=np.int64)
    times = (np.array(each, dtype=np.int64) for each in (arrivals, reads, switches))
    arrivals_us, reads_us, switches_us = times
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
def test_it_forwards_and_reads_what_a_spool_does_in_the_same_order(
    arrivals, ranks, reads, switches, starts_up, threshold, most
):
    events = events_of(arrivals, ranks[: len(arrivals)], reads, switches, starts_up)
    spool = play(events, spool_factory(Forwarding("on-line"), threshold), most)
    assert play_online(events, threshold, most) == spool


def test_what_expires_and_what_may_be_too_much_are_left_to_the_spool(monkeypatch):
    assert play_online(Scenario(days=3, expiration=Expiration(3600.0)).draw(1), 0.0, 8) is None
    events = Scenario(days=3).draw(1)
    for most, is_known in ((len(events.ranks), True), (len(events.ranks) - 1, False)):
        monkeypatch.setattr(simulation, "MAX_DIRECT_MESSAGES", most)
        assert (play_online(events, 0.0, 8) is not None) == is_known


@pytest.mark.parametrize("is_on", [True, False])
def test_a_run_leaves_the_search_for_cycles_as_it_was(is_on):
    def begins_badly(forward, retract):
        spool = spool_factory(Forwarding("on-line"), 0.0)(forward, retract)
        spool.notification = None  # what a spool cannot do
        return spool

    (gc.enable if is_on else gc.disable)()
    try:
        events = events_of([1], [0.5], [2], [], True)
        assert play(events, spool_factory(Forwarding("on-line"), 0.0), 1).read_ids == (0,)
        assert gc.isenabled() == is_on
        with pytest.raises(TypeError):
            play(events, begins_badly, 1)
        assert gc.isenabled() == is_on
    finally:
        gc.enable()


@pytest.mark.parametrize("starts_up", [True, False])
def test_nothing_comes_of_nothing(starts_up):
    assert play_online(events_of([], [], [1, 2], [1], starts_up), 0.0, 8) == Outcome((), ())
