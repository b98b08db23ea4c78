"""Choice of the prefetch limit: the setting of least cost, and its neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import Expiration, simulate
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.study.scenario import Scenario
from mudkit.systems.lasthop.study.sizing import LIMITS, THRESHOLDS_S, add_outages, size_prefetch
from mudkit.systems.lasthop.study.sweeping import RecordedEvents, compare

EVENTS = Scenario(days=40).draw(2)


@pytest.fixture(scope="module")
def sizing():
    return size_prefetch(add_outages(EVENTS, Outages(0.9), range(3)), limits=(0, 4, 16, 64, 1024))


def test_best_setting_has_the_lowest_cost(sizing):
    table = sizing.table
    assert table["limit"].tolist() == [0, 4, 16, 64, 1024]
    assert (table["threshold_s"] == 0.0).all(), "where nothing expires there is no threshold to try"
    assert sizing.limit == 16
    assert sizing.best["cost"] == table["cost"].min()
    assert sizing.best["cost"] == pytest.approx(sizing.best["waste"] + sizing.best["loss"])
    assert table["waste"].is_monotonic_increasing
    assert table["loss"].is_monotonic_decreasing


def test_waste_and_loss_match_the_simulator():
    run = simulate(days=30, seed=4, outage=0.5, policy="buffer", prefetch_limit=8)
    result = size_prefetch([Scenario(days=30, outages=Outages(0.5)).draw(4)], limits=[8])
    assert (result.best["waste"], result.best["loss"]) == (run.waste, run.loss)
    assert np.isnan(result.table["waste_low"]).all(), "one run has no interval"


def test_higher_loss_weight_raises_the_limit(sizing):
    weights = sizing.by_weight((0.0, 1.0, 100.0))
    assert weights["limit"].tolist() == sorted(weights["limit"])
    assert weights["limit"].iloc[[0, 1]].tolist() == [0, 16]
    assert weights["loss"].is_monotonic_decreasing
    assert size_prefetch([EVENTS], limits=(0, 16), loss_weight=0.0).limit == 0


def test_ties_are_resolved_by_least_prefetching():
    always_up = size_prefetch([EVENTS], limits=(0, 4, 16))
    assert always_up.limit == 0, "with a link at any time nothing need be prefetched"
    expiring = Scenario(days=10, expiration=Expiration(7200.0)).draw(1)
    assert size_prefetch([expiring], limits=(0, 4), thresholds_s=(0.0, 900.0)).threshold_s == 900.0


def test_total_outage_gives_a_limit_of_zero():
    assert size_prefetch(add_outages(EVENTS, Outages(1.0), [0]), limits=(4, 0, 16)).limit == 0


def test_good_limits_cost_hardly_more(sizing):
    low, high = sizing.good_limits()
    assert low <= sizing.limit <= high
    costs = sizing.by_limit.set_index("limit")["cost"]
    assert (costs[low:high] <= sizing.best["cost"] + 0.01).all()
    assert sizing.good_limits(10.0) == (0, 1024)


def test_thresholds_are_tried_if_messages_expire():
    draws = add_outages(Scenario(days=30, expiration=Expiration(57_600.0)).draw(1), Outages(0.9), range(2))
    result = size_prefetch(draws, limits=(4, 32))
    assert len(result.table) == 2 * len(THRESHOLDS_S)
    assert result.threshold_s > 0.0
    curve = result.by_threshold
    assert curve["threshold_s"].tolist() == list(THRESHOLDS_S)
    assert curve["waste"].iloc[0] > curve["waste"].iloc[-1]
    assert curve["loss"].iloc[0] < curve["loss"].iloc[-1]
    assert (result.by_limit["threshold_s"] == result.threshold_s).all()


def test_outages_are_drawn_up_to_the_last_event():
    draws = add_outages(EVENTS, Outages(0.5), range(4))
    end_us = max(EVENTS.arrivals_us[-1], EVENTS.reads_us[-1])
    assert all(draw.switches_us[-1] <= end_us < draw.switches_us[-1] + 86_400_000_000 for draw in draws)
    assert len({len(draw.switches_us) for draw in draws}) > 1
    assert all(draw.arrivals_us is EVENTS.arrivals_us for draw in draws)
    assert not add_outages(EVENTS, Outages(1.0), [0])[0].starts_up


def test_unlimited_reads_reduce_waste():
    assert (
        size_prefetch([EVENTS], max=None, limits=[1024]).best["waste"]
        < size_prefetch([EVENTS], max=8, limits=[1024]).best["waste"]
    )


def test_compare_accepts_recorded_events():
    draws = add_outages(EVENTS, Outages(0.5), range(3))
    table = compare({"mine": RecordedEvents(draws)}, {"buffer": Forwarding("buffer", 16)}, seeds=range(3))
    assert table["waste"].tolist() == pytest.approx(size_prefetch(draws, limits=[16]).table["waste"].tolist())


def test_default_limits_include_those_of_the_paper():
    assert LIMITS[0] == 0
    assert {1, 16, 64, 1024} <= set(LIMITS)
