"""Rows of Last hop at small sizes, untimed."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from measured_rows import check_complete

from mudkit.reproduce import lasthop, lasthop_learning, lasthop_ranks, lasthop_speed
from mudkit.reproduce.lasthop import L1, L2, L3, L4, L5, L6
from mudkit.reproduce.lasthop_learning import L8
from mudkit.reproduce.lasthop_ranks import L9
from mudkit.reproduce.lasthop_speed import L7, simulate_in_simpy
from mudkit.reproduce.row import Measured, Quantity, judge
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import Scenario, simulate, simulate_grid
from mudkit.systems.lasthop.study.sweeping import HOUR_S


def test_l1_reports_the_largest_error_of_all_points():
    measured = check_complete(
        L1,
        lasthop.measure_formula(
            over={"max": [4, 32], "user_frequency": [1.0, 4.0]}, days=60, seeds=[1, 2, 3]
        ),
    )
    assert measured.quantities["points"].median == 4
    assert measured.parameters["largest error at"] == "Max 32, 1 a day"
    assert 0 < measured.quantities["largest error of the formula"].median < 0.1


def test_l2_reproduces_the_papers_example():
    measured = check_complete(L2, lasthop.measure_examples(days=365, seeds=[1, 2, 3]))
    assert judge(L2, measured)[0] == "reproduced"


def test_l3_finds_the_band():
    measured = check_complete(
        L3,
        lasthop.measure_limits(
            over={"prefetch_limit": [1, 4, 16, 64, 256], "outage": [0.0, 0.9]},
            outages_per_day=[1, 12, 24],
            days=200,
            seeds=[1, 2],
        ),
    )
    quantities = measured.quantities
    assert quantities["loss at 16, 12 a day"].median < 0.02 < 0.2 < quantities["loss at 16, 1 a day"].median
    assert quantities["band begins at, 24 a day"].median == 16 < quantities["band begins at, 1 a day"].median
    assert quantities["steps up to 16 at which the loss rises"].median == 0
    assert measured.parameters["outages_per_day"] == [1, 12, 24]


@pytest.mark.parametrize("frequency", ["12 a day", "24 a day"])
def test_l3_requires_small_loss_from_limit_16(frequency):
    quantities = {
        required.quantity: Quantity.of([0.9 * required.bound])
        for required in L3.required
        if required.sense in ("at most", "below")
    }
    quantities |= {
        required.quantity: Quantity.of([required.bound])
        for required in L3.required
        if required.sense in ("at least", "within")
    }
    assert judge(L3, Measured(quantities, {}))[0] == "reproduced"
    late = quantities | {
        f"band begins at, {frequency}": Quantity.of([32])
    }  # below 1 % at 16 and at 64, but not in between
    assert judge(L3, Measured(late, {}))[0] == "not reproducible"


def test_l3_varies_the_reads_by_a_quarter(monkeypatch):
    """The name of the quantity: the reads a day have a spread of a quarter of their mean."""
    settings = []

    def sweep(number, over, fixed, seeds):
        settings.append(fixed)
        return simulate_grid({"prefetch_limit": [1, 16, 64], "outage": [0.5]}, {"days": 2, **fixed}, seeds)

    monkeypatch.setattr(lasthop, "figure_sweep", sweep)
    lasthop.measure_limits(outages_per_day=[1], days=2, seeds=[1])
    assert [fixed.get("reads_cv") for fixed in settings] == [None, 0.25]


def test_lost_share_is_that_of_all_that_comes():
    """Last hop 4.2: 32 messages come a day (ef), of which the loss is a share of the best that can be read."""
    table = pd.DataFrame(
        {"expiration": [4.0, 4.0, 9.0], "user_frequency": [2.0, 8.0, 2.0], "loss": [0.5, 1, 1], "best": 64}
    )
    assert lasthop._lost_share(table, 4.0, days=10) == Quantity(0.1, 0.1, 0.1)


@pytest.mark.soak
def test_l4_loss_rises_until_just_below_total_outage():
    measured = check_complete(
        L4,
        lasthop.measure_on_demand(over={"outage": [0.0, 0.5, 0.95, 0.99, 1.0]}, days=200, seeds=[1, 2]),
    )
    verdict, reason = judge(L4, measured)
    assert verdict == "shape"  # in proportion up to four reads a day
    assert reason.startswith("5 of 12 do not hold here: loss at 50 % over loss at 95 %, 0.25 a day")
    assert 0.4 < measured.quantities["loss at 50 % over loss at 95 %, 2 a day"].median < 0.65


@pytest.mark.soak
def test_l5_loss_peaks_at_middle_expirations():
    measured = check_complete(
        L5,
        lasthop.measure_times(
            over={"expiration": [16.0, 256.0, 4096.0, 16384.0, 262144.0], "user_frequency": [2.0, 8.0]},
            days=200,
            seeds=[1, 2],
        ),
    )
    assert judge(L5, measured)[0] == "reproduced"
    assert measured.quantities["share of all that comes that is lost at 4 min, 2 a day"].median < 0.01


@pytest.mark.soak
def test_l6_has_a_threshold_gap_only_for_long_expirations():
    measured = check_complete(
        L6,
        lasthop.measure_thresholds(
            over={
                "expiration": [lasthop.SHORT_H * HOUR_S, lasthop.LONG_H * HOUR_S],
                "expiration_threshold_s": [HOUR_S * hours for hours in (0.25, 2, 8, 32)],
            },
            days=200,
            seeds=[1, 2],
        ),
    )
    assert judge(L6, measured)[0] == "reproduced"
    assert measured.quantities["thresholds in the gap, 4.2 h, 90% downtime"].median == 0
    assert measured.quantities["gap from, h, 137 h, 95% downtime"].median == 8
    assert measured.quantities["waste with the threshold learnt, 5.7 days, 90% downtime"].median < 0.06


def test_l6_may_reproduce_the_shape_only():
    quantities = {required.quantity: Quantity(required.bound, 0, 0) for required in L6.required}
    assert judge(L6, Measured(quantities, {}))[0] == "reproduced"
    level = quantities | {"waste at 8 h, 5.7 days, 90% downtime": Quantity(0.3, 0, 0)}
    assert judge(L6, Measured(level, {}))[0] == "shape"
    shuffled = quantities | {"steps at which waste rises or loss falls, 95% downtime": Quantity(4, 0, 0)}
    assert judge(L6, Measured(shuffled, {}))[0] == "not reproducible"


def test_l7_compares_with_the_same_model_in_simpy():
    measured = lasthop_speed.measure_speed(
        days=20, runs=2, fleets=1, seeds=[1], processes=1, over={"prefetch_limit": [1, 4], "outage": [0.5]}
    )
    check_complete(L7, measured)
    assert measured.quantities["share of runs in which simpy's model forwards and reads the same"].median == 1
    assert measured.quantities["share of years in which the kernel forwards and reads the same"].median == 1
    assert measured.quantities["runs of Figure 3"].median == 2


@pytest.mark.parametrize(("outage", "limit"), [(0.0, 4), (0.5, 16), (0.9, 1), (1.0, 5), (0.95, math.inf)])
def test_simulation_agrees_with_the_simpy_model(outage, limit):
    run = simulate(outage=outage, policy="buffer", prefetch_limit=int(min(limit, 1e6)), days=100, seed=3)
    forwarded, read = simulate_in_simpy(Scenario(outages=Outages(outage), days=100).draw(3), 8, limit)
    assert (list(run.forwarded_ids), list(run.read_ids)) == (forwarded, read)


@pytest.mark.soak
def test_runs_spread_over_processes_give_the_same_table(monkeypatch):
    over, fixed, seeds = {"max": [4, 8], "user_frequency": [2.0]}, {"days": 3}, [1, 2, 3]
    table = lasthop.figure_sweep(1, over, fixed, seeds)
    pd.testing.assert_frame_equal(table, simulate_grid(over, fixed | {"policy": "on-line"}, seeds))
    monkeypatch.setattr(lasthop, "_MIN_SPREAD_RUNS", 1)
    pd.testing.assert_frame_equal(table, lasthop.figure_sweep(1, over, fixed, seeds))
    assert table.attrs["parameters"]["policy"] == "on-line"


def test_figures_are_computed_from_sweep_tables():
    table = pd.DataFrame(
        {"by": [1, 1, 2, 2], "at": [7, 7, 7, 7], "loss": [0.1, 0.2, 0.5, 0.0], "best": [10, 30, 10, 10]}
    )
    assert lasthop.of_seeds(table, "loss", by=2) == Quantity(0.25, 0.0, 0.5)
    assert lasthop.worst(table, "loss", "by", at=7) == Quantity(0.25, 0.0, 0.5)
    assert lasthop.pooled_losses(table, "by") == (
        [1],
        [pytest.approx(7 / 40)],
    )  # the row with a best of 20 messages has no pool


@pytest.mark.parametrize(("series", "count"), [([1, 2, 2, 3], 0), ([3, 1, 2], 1), ([3, 2, 1], 2), ([1], 0)])
def test_falls_counts_descending_steps(series, count):
    assert lasthop.falls(series) == count


def test_l8_compares_with_the_limit_that_is_best_in_each_cell():
    measured = check_complete(
        L8,
        lasthop_learning.measure_learning(
            days=40, seeds=[1], limits=[4, 16, 64], users=[2.0, 4.0], downtimes=[0.9]
        ),
    )
    quantities = measured.quantities
    of_best = quantities["waste and loss of the best limit at 90 %, 2 a day, 1 a day"].median
    at = "at 90 %, 2 a day, 1 a day"
    gap = quantities[f"waste of unified {at}"].median + quantities[f"loss of unified {at}"].median - of_best
    assert quantities["unified above the best limit, 1 a day"].median >= gap - 1e-12 > 0
    assert quantities["predict above the best limit, 1 a day"].median < gap


def test_l9_weighs_waste_against_timeliness():
    measured = check_complete(
        L9, lasthop_ranks.measure_delays(days=90, seeds=[1], minutes=[0.0, 60.0, 480.0])
    )
    quantities = {name: quantity.median for name, quantity in measured.quantities.items()}
    assert quantities["waste, delay 480 min"] < 0.02 < 0.1 < quantities["waste, delay 0 min"]
    assert (
        quantities["hours until on the device, delay 0 min"]
        < 2
        < 8
        < quantities["hours until on the device, delay 480 min"]
    )
    assert quantities["waste with the delay learnt, over without"] < 0.25
