import dataclasses

import pytest

from mudkit.reproduce.outcome import ROWS
from mudkit.reproduce.row import Measured, Quantity, Required, Row, judge, say_nothing


def make_row(*required):
    return Row("X1", "a paper", "says", required, lambda say: Measured({}, {}), minutes=1.0)


def make_measured(**quantities):
    return Measured({name: Quantity(value, value, value) for name, value in quantities.items()}, {})


def make_passing_value(required):
    return required.bound - 1e-6 if required.sense == "below" else required.bound


def make_failing_value(required):
    return (
        required.bound - 1e-6 if required.sense == "at least" else required.bound + required.tolerance + 1e-6
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_failing_figure_flips_the_verdict_of_every_row(row):
    for required in row.required:
        assert_verdict_flips(row, required)


def assert_verdict_flips(row, required):
    quantities = {other.quantity: Quantity(make_passing_value(other), 0, 0) for other in row.required}
    assert judge(row, Measured(quantities, {}))[0] == "reproduced"
    quantities[required.quantity] = Quantity(make_failing_value(required), 0, 0)
    verdict, reason = judge(row, Measured(quantities, {}))
    is_level = not required.is_shape and any(other.is_shape for other in row.required)
    assert verdict == ("shape" if is_level else "not reproducible")
    assert reason.startswith(f"1 of {len(row.required)} do not hold here: {required.quantity} ")


def test_only_these_rows_may_reproduce_the_shape_only():
    shaped = {row.name for row in ROWS if any(required.is_shape for required in row.required)}
    assert shaped == {"M1", "M3", "L3", "L4", "L6", "C1", "C3", "C4", "C6", "R1", "R2", "R3", "R4", "R6"}


def test_rows_with_a_known_deviation_name_its_reason():
    for name in ("M1", "M3", "L3", "L4", "C1", "C4", "R2", "R3"):
        (row,) = [row for row in ROWS if row.name == name]
        quantities = {
            required.quantity: Quantity(make_passing_value(required), 0, 0) for required in row.required
        }
        assert "Why: " not in judge(row, Measured(quantities, {}))[1]
        level = next(required for required in row.required if not required.is_shape)
        quantities[level.quantity] = Quantity(make_failing_value(level), 0, 0)
        assert judge(row, Measured(quantities, {}))[1].endswith(f"Why: {row.known}")


@pytest.mark.parametrize(
    ("name", "quantity", "paper", "ours"),
    [
        ("M1", "evaluations/s one by one", 70_000, 1_912_177),
        ("M3", "times bare SQLite's time, local write, FULL", 94.10 / 64.99, 1.17),
        ("M3-remote", "% over bare, write, LTE", 39, 40),
        ("L3", "waste at 64, 12 a day", 0.0099, 0.0108),
        ("L4", "loss at 50 % over loss at 95 %, 0.25 a day", 0.2, 0.511),
        ("C1", "mean s at 1 s", 4.0, 0.848),
        ("C4", "share of the slower direction", 300 / 350, 0.989),
        ("R2", "share saved at k = 0.02 %", 0.26, 0.885),
        ("R3", "times less outbound", 20.0, 483.0),
    ],
)
def test_only_the_figure_of_the_paper_is_reproduced(name, quantity, paper, ours):
    required = [
        required
        for row in ROWS
        if row.name == name
        for required in row.required
        if required.quantity == quantity
    ]
    assert all(bound.holds(paper) for bound in required)
    assert not all(bound.holds(ours) for bound in required)


def test_rows_have_requirements_and_unique_names():
    assert all(row.required for row in ROWS)
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_median_decides_the_verdict():
    required = Required("records/s", "at least", 30_000)
    assert judge(make_row(required), Measured({"records/s": Quantity(30_000, 10, 10)}, {}))[0] == "reproduced"
    assert (
        judge(make_row(required), Measured({"records/s": Quantity(29_999, 29_999, 90_000)}, {}))[0]
        != "reproduced"
    )


def test_missing_figures_are_judged_not_measured():
    x = make_row(Required("new figure", "at least", 1))
    assert judge(x, None) == ("not measured", "mudkit reproduce X1 measures it")
    verdict, reason = judge(x, make_measured(old=5))
    assert verdict == "not measured"
    assert "without new figure" in reason


def test_reason_lists_the_figures():
    x = make_row(Required("records/s", "at least", 30_000), Required("MB", "below", 1000))
    _, reason = judge(x, Measured({"records/s": Quantity(41_234, 0, 0), "MB": Quantity(1200.4, 0, 0)}, {}))
    assert reason == (
        "1 of 2 do not hold here: MB 1,200 (below 1,000). 1 of 2 hold: records/s 41,234 (at least 30,000)"
    )


def test_figure_summarises_its_runs():
    quantity = Quantity.of([3.0, 1.0, 10.0])
    assert dataclasses.astuple(quantity) == (3.0, 1.0, 10.0)
    assert str(quantity) == "3 (1 to 10)"
    assert str(Quantity.of([2.5])) == "2.5"
    assert say_nothing("x") is None


@pytest.mark.parametrize(
    ("sense", "value", "holds"),
    [
        ("at least", 3, True),
        ("at most", 3, True),
        ("below", 3, False),
        ("within", 2.5, True),
        ("within", 3.5, True),
        ("within", 2.4, False),
        ("within", 3.6, False),
        *((sense, float("nan"), False) for sense in ("at least", "at most", "below", "within")),
    ],
)
def test_bounds_compare_as_named(sense, value, holds):
    assert Required("x", sense, 3, 0.5).holds(value) == holds


@pytest.mark.parametrize(
    ("is_shape", "order", "level", "verdict"),
    [
        (True, 1, 2, "reproduced"),
        (True, 1, 3, "shape"),
        (True, 0, 2, "not reproducible"),
        (True, 0, 3, "not reproducible"),
        (False, 1, 3, "not reproducible"),
    ],
)
def test_shape_requires_order_and_slope(is_shape, order, level, verdict):
    x = make_row(Required("order", "at least", 1, is_shape=is_shape), Required("level", "at most", 2))
    assert judge(x, make_measured(order=order, level=level))[0] == verdict
