"""Rows of Contrail at small sizes: required figures, verdicts and their bounds."""

from __future__ import annotations

import math

import pytest

from mudkit.experiment import item_latencies_s
from mudkit.reproduce import contrail
from mudkit.reproduce.contrail import ROWS
from mudkit.reproduce.row import NOT_REPRODUCIBLE, REPRODUCED, SHAPE, judge

SMALL = {
    "C1": lambda: contrail.measure_polling(intervals_s=(1, 8), count=60, seeds=(1,)),
    "C2": lambda: contrail.measure_idle(timeouts_s=(0, 4, 16), count=40, seeds=(1,)),
    "C3": lambda: contrail.measure_battery(hours=0.1),
    "C4": lambda: contrail.measure_throughput(items=100),
    "C5": lambda: contrail.measure_steadiness(seconds=20, seeds=(1,)),
    "C7": lambda: contrail.measure_efficiency(size_bytes=20_000),
}


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("name", SMALL)
def test_small_measurement_has_all_figures_and_its_verdict(name):
    row = next(row for row in ROWS if row.name == name)
    measured = SMALL[name]()
    verdict, reason = judge(row, measured)
    assert {required.quantity for required in row.required} <= set(measured.quantities)
    assert verdict == (SHAPE if name in ("C1", "C4") else REPRODUCED), reason


def test_c1_counts_the_standard_errors_of_a_uniform_wait(monkeypatch):
    """See `measure_polling`: n waits, uniform over an interval and a visit, have a mean within that / √(12 n)."""
    visit_s, count = 1.0, 75

    def latencies_s(seed, interval_s, timeout_s, count, gap_s, transport):
        period_s = interval_s + visit_s
        deviation_s = seed * period_s / math.sqrt(12 * count)
        return [visit_s + period_s / 2 + deviation_s if interval_s else 2 * visit_s] * count

    monkeypatch.setattr(contrail, "item_latencies_s", latencies_s)
    measured = contrail.measure_polling(intervals_s=(1, 8), count=count, seeds=(1, 3))
    assert measured.quantities[
        "standard errors by which a mean differs from the form, at most"
    ].median == pytest.approx(3)


def test_c8_requires_ten_thousand_manipulations():
    row = ROWS[-1]
    measured = contrail.measure_privacy(manipulations=200, items=5)
    (missed,) = [
        required
        for required in row.required
        if not required.holds(measured.quantities[required.quantity].median)
    ]
    assert (missed.quantity, missed.bound, measured.quantities[missed.quantity].median) == (
        "manipulations",
        10_000,
        200,
    )
    assert judge(row, measured)[0] == NOT_REPRODUCIBLE


@pytest.mark.soak
def test_mean_latency_falls_with_more_instances():
    loads = ((10, 1), (60, 1), (60, 10))
    measured = contrail.measure_scale(loads=loads, message_ms=30.0, minutes=0.5)
    means = {
        name: quantity.median for name, quantity in measured.quantities.items() if name.startswith("mean")
    }
    assert means["mean s, 60 clients, 10 instances"] < 0.7 * means["mean s, 60 clients, 1 instance"]


def test_out_of_order_detects_shuffled_loads():
    loads = [(100, 10), (10, 1), (100, 1), (980, 20), (980, 10), (980, 1)]
    paper = dict(zip(loads, (3.4, 3.9, 6.0, 6.5, 9.0, float("inf")), strict=True))
    assert contrail.out_of_order(paper) == (0, 0)
    by_load = {(clients, instances): clients / instances for clients, instances in loads}
    assert contrail.out_of_order(by_load) == (3, 0)  # clients per instance alone has the shape
    shuffled = dict(zip(loads, (6.0, 3.4, 9.0, 3.9, float("inf"), 6.5), strict=True))
    assert contrail.out_of_order(shuffled)[1] > 0
    assert contrail.out_of_order(dict(zip(loads, reversed(paper.values()), strict=True)))[1] > 4


def test_latency_without_polling_is_transfer_time():
    assert sorted(item_latencies_s(1, 0.0, 3600.0, 10, 1.0))[-2] < 1.0  # the first item wakes the radio


def test_rows_are_c1_to_c8():
    assert [row.name for row in ROWS] == [f"C{number}" for number in range(1, 9)]
