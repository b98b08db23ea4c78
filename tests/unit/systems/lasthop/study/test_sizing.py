"""Choice of the prefetch limit: the setting of least cost, and its neighbours."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import Expiration, simulate
from mudkit.systems.lasthop.spool.policies import Forwarding
from mudkit.systems.lasthop.study.logs import drawn_from
from mudkit.systems.lasthop.study.scenario import Scenario
from mudkit.systems.lasthop.study.sizing import (
    LIMITS,
    THRESHOLDS_S,
    Prices,
    add_outages,
    score_policies,
    size_prefetch,
)
from mudkit.systems.lasthop.study.sweeping import RecordedEvents, compare_policies

EVENTS = Scenario(days=40).draw(2)


@pytest.fixture(scope="module")
def sizing():
    return size_prefetch(add_outages(EVENTS, Outages(0.9), range(3)), limits=(0, 4, 16, 64, 1024))


def test_best_setting_has_the_lowest_cost(sizing):
    table = sizing.table
    assert table["limit"].tolist() == [0, 4, 16, 64, 1024]
    assert (table["threshold_s"] == 0.0).all(), "where nothing expires there is no threshold to try"
    assert sizing.limit == 16
    assert sizing.best["cost_per_day"] == table["cost_per_day"].min()
    assert table["waste"].is_monotonic_increasing
    assert table["loss"].is_monotonic_decreasing
    assert table["empty_read_share"].is_monotonic_decreasing
    counts = table[["wasted_per_day", "lost_per_day", "empty_per_day", "delay_h_per_day"]]
    assert (counts @ [1, 5, 5, 0.02]).tolist() == pytest.approx(table["cost_per_day"].tolist())


def test_waste_and_loss_match_the_simulator():
    run = simulate(days=30, seed=4, outage=0.5, policy="buffer", prefetch_limit=8)
    result = size_prefetch([Scenario(days=30, outages=Outages(0.5)).draw(4)], limits=[8])
    assert (result.best["waste"], result.best["loss"]) == (run.waste, run.loss)


def test_prices_move_the_limit(sizing):
    by_lost = [sizing.at(Prices(lost=price)) for price in (0.0, 1.0, 100.0)]
    assert [one.limit for one in by_lost] == sorted(one.limit for one in by_lost)
    assert sizing.at(Prices(1.0, 0.0, 0.0, 0.0)).limit == 0
    assert sizing.at(Prices(0.0, 1.0, 0.0, 0.0)).best["lost_per_day"] == sizing.table["lost_per_day"].min()
    in_vain = sizing.at(Prices(1.0, 0.0, 1e6, 0.0))
    assert in_vain.best["empty_read_share"] == sizing.table["empty_read_share"].min()
    late = sizing.at(Prices(0.0, 0.0, 0.0, 1.0))
    assert late.best["delay_s"] == pytest.approx(sizing.table["delay_s"].min())
    assert sizing.at(Prices(1.0, 0.0, 0.0, 0.0), min_limit=1).limit == 4
    assert sizing.at(sizing.prices, threshold_s=0.0).threshold_s == 0.0


def test_ties_are_resolved_by_least_prefetching():
    always_up = size_prefetch([EVENTS], limits=(0, 4, 16))
    assert always_up.limit == 0, "with a link at any time nothing need be prefetched"
    expiring = Scenario(days=10, expiration=Expiration(7200.0)).draw(1)
    assert size_prefetch([expiring], limits=(0, 4), thresholds_s=(0.0, 900.0)).threshold_s == 900.0


def test_total_outage_gives_a_limit_of_zero():
    never = size_prefetch(add_outages(EVENTS, Outages(1.0), [0]), limits=(4, 0, 16))
    assert never.limit == 0
    assert (never.table["loss"] == 1.0).all()


def test_readers_of_k_messages_need_k_of_them():
    """Send eight messages a day, of which five are read in an outage, before the others expire."""
    day, hour = 86_400_000_000, 3_600_000_000
    arrivals = np.concatenate([d * day + np.arange(8) * 60_000_000 for d in range(20)])
    reads = np.arange(20) * day + 10 * hour
    outages = [[d * day + hour, d * day + 21 * hour] for d in range(20)]
    drawn = drawn_from(arrivals, reads, expires_us=arrivals + 20 * hour, outages_us=outages)
    sized = size_prefetch([drawn], max=5, limits=range(9))
    assert (sized.limit, sized.threshold_s) == (5, 57_600.0), "expirations are 20 h away"
    for prices in (Prices(10.0, 1.0, 1.0, 0.0), Prices(1.0, 10.0, 0.0, 0.0), Prices(1.0, 0.0, 10.0, 0.0)):
        assert sized.at(prices).limit == 5
    assert sized.best["cost_per_day"] == 0.0
    short = sized.table[sized.table["threshold_s"] == sized.threshold_s].set_index("limit")
    assert short["wasted_per_day"].tolist() == [0, 0, 0, 0, 0, 0, 1, 2, 3]
    assert short["lost_per_day"].tolist() == [5, 4, 3, 2, 1, 0, 0, 0, 0]
    assert short["empty_read_share"].tolist() == [1.0] * 5 + [0.0] * 4


def test_thresholds_are_tried_if_messages_expire():
    draws = add_outages(Scenario(days=30, expiration=Expiration(57_600.0)).draw(1), Outages(0.9), range(2))
    result = size_prefetch(draws, limits=(4, 32), prices=Prices(1.0, 1.0, 0.0, 0.0))
    assert len(result.table) == 2 * len(THRESHOLDS_S)
    assert result.threshold_s > 0.0
    curve = result.table[result.table["limit"] == result.limit]
    assert curve["threshold_s"].tolist() == list(THRESHOLDS_S)
    assert curve["waste"].iloc[0] > curve["waste"].iloc[-1]
    assert curve["loss"].iloc[0] < curve["loss"].iloc[-1]


def test_halves_of_the_days_are_counted_apart():
    draws = add_outages(EVENTS, Outages(0.5), range(2))
    odd, even, both = (size_prefetch(draws, limits=[8], days=days).best for days in ("odd", "even", "all"))
    assert odd["lost_per_day"] != even["lost_per_day"]
    assert (odd["lost_per_day"] + even["lost_per_day"]) / 2 == pytest.approx(both["lost_per_day"])


def test_searches_on_the_same_events_are_joined(sizing):
    more = size_prefetch(add_outages(EVENTS, Outages(0.9), range(3)), limits=(32, 64))
    joined = sizing.join(more)
    assert joined.table["limit"].tolist() == [0, 4, 16, 32, 64, 1024]
    assert joined.best["cost_per_day"] <= sizing.best["cost_per_day"]


def test_scores_compare_with_the_first_policy():
    draws = add_outages(EVENTS, Outages(0.5), range(3))
    policies = {
        "eight": Forwarding("buffer", 8),
        "none": Forwarding("on-demand"),
        "all": Forwarding("on-line"),
    }
    table = score_policies(draws, policies).set_index("policy")
    assert table.loc["eight", "saved_per_day"] == 0.0
    cost = table["cost_per_day"]
    assert table.loc["none", "saved_per_day"] == pytest.approx(cost["none"] - cost["eight"])
    assert table.loc["none", "saved_per_day_low"] > 0
    assert table.loc["none", ["waste_low", "waste_high"]].isna().all(), "it cannot waste anything"
    assert table.loc["all", ["loss_low", "loss_high"]].isna().all(), "it cannot lose anything"
    for name in ("waste", "loss", "empty_read_share"):
        ends = table[[f"{name}_low", name, f"{name}_high"]].dropna()
        assert ((ends >= 0) & (ends <= 1)).all(axis=None)
        assert (ends.diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)


def test_scores_of_few_days_have_no_interval():
    table = score_policies(
        [Scenario(days=8, outages=Outages(0.5)).draw(1)], {"a": Forwarding("buffer", 4)}, days="odd"
    )
    assert np.isnan(table["cost_per_day_low"]).all()


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
    table = compare_policies(
        {"mine": RecordedEvents(draws)}, {"buffer": Forwarding("buffer", 16)}, seeds=range(3)
    )
    assert table["waste"].tolist() == pytest.approx(size_prefetch(draws, limits=[16]).table["waste"].tolist())


def test_default_limits_include_those_of_the_paper():
    assert LIMITS[0] == 0
    assert {1, 16, 64, 1024} <= set(LIMITS)


@pytest.mark.soak
@pytest.mark.parametrize("draws", [1, 3])
def test_intervals_cover_fresh_logs(draws):
    """Choose on odd days, score on even ones, and compare with the mean of 300 fresh logs.

    With one draw, choice and score share the outages, as with a log of them.
    """
    scenario = Scenario(16.0, 2.0, expiration=Expiration(48 * 3600.0), days=40)
    outages, names = Outages(0.5, 4.0), ["waste", "loss", "empty_read_share", "delay_s", "cost_per_day"]

    def score(seed, limit, runs):
        return score_policies(runs, {"it": Forwarding("buffer", limit)}, days="even").iloc[0]

    sized = []
    for seed in range(100):
        runs = add_outages(scenario.draw(seed), outages, range(1000 * seed, 1000 * seed + 2 * draws))
        chosen_on, scored_on = (runs[:1], runs[:1]) if draws == 1 else (runs[:draws], runs[draws:])
        limit = size_prefetch(chosen_on, limits=(0, 2, 4, 8), days="odd").limit
        sized.append((limit, score(seed, limit, scored_on)))
    fresh = {
        limit: pd.DataFrame(
            score(seed, limit, add_outages(scenario.draw(seed), outages, [seed]))
            for seed in range(10_000, 10_300)
        ).mean(numeric_only=True)
        for limit in {limit for limit, _ in sized}
    }
    for name in names:
        ends = [(row[f"{name}_low"], fresh[limit][name], row[f"{name}_high"]) for limit, row in sized]
        covered = sum(low <= value <= high for low, value, high in ends)
        width = np.mean([high - low for low, _, high in ends])
        print(f"{draws} draws, {name}: {covered} of 100 covered, mean width {width:.4g}")
        assert 90 <= covered <= 99, name
