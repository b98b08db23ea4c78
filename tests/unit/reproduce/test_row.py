import dataclasses

import pytest

from mudkit.reproduce.outcome import ROWS
from mudkit.reproduce.row import Figure, Measured, Required, Row, judge, say_nothing


def row(*required):
    return Row("X1", "a paper", "says", required, lambda say: Measured({}, {}), minutes=1.0)


def measured(**figures):
    return Measured({name: Figure(value, value, value) for name, value in figures.items()}, {})


def good(required):
    return required.bound - 1e-6 if required.sense == "below" else required.bound


def bad(required):
    return required.bound - 1e-6 if required.sense == "at least" else required.bound + 1e-6


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_figure_that_fails_flips_the_verdict_of_every_row(row):
    for required in row.required:
        assert_flipped(row, required)


def assert_flipped(row, required):
    figures = {other.figure: Figure(good(other), 0, 0) for other in row.required}
    assert judge(row, Measured(figures, {}))[0] == "reproduced"
    figures[required.figure] = Figure(bad(required), 0, 0)
    verdict, reason = judge(row, Measured(figures, {}))
    is_level = not required.is_shape and any(other.is_shape for other in row.required)
    assert verdict == ("shape" if is_level else "not reproducible")
    assert reason.startswith(f"1 of {len(row.required)} do not hold here: {required.figure} ")


def test_only_these_rows_may_have_the_shape_only():
    shaped = {row.name for row in ROWS if any(each.is_shape for each in row.required)}
    assert shaped == {"L6", "C3", "C6", "R1", "R4", "R6"}


def test_every_row_requires_something_and_no_name_is_there_twice():
    assert all(row.required for row in ROWS)
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_the_median_is_judged():
    required = Required("records/s", "at least", 30_000)
    assert judge(row(required), Measured({"records/s": Figure(30_000, 10, 10)}, {}))[0] == "reproduced"
    assert (
        judge(row(required), Measured({"records/s": Figure(29_999, 29_999, 90_000)}, {}))[0] != "reproduced"
    )


def test_nothing_measured_and_an_older_result():
    x = row(Required("new figure", "at least", 1))
    assert judge(x, None) == ("not measured", "mudkit reproduce X1 measures it")
    verdict, reason = judge(x, measured(old=5))
    assert verdict == "not measured"
    assert "without new figure" in reason


def test_the_reason_has_the_figures():
    x = row(Required("records/s", "at least", 30_000), Required("MB", "below", 1000))
    _, reason = judge(x, Measured({"records/s": Figure(41_234, 0, 0), "MB": Figure(1200.4, 0, 0)}, {}))
    assert reason == (
        "1 of 2 do not hold here: MB 1,200 (below 1,000). 1 of 2 hold: records/s 41,234 (at least 30,000)"
    )


def test_a_figure_sums_up_its_runs():
    figure = Figure.of([3.0, 1.0, 10.0])
    assert dataclasses.astuple(figure) == (3.0, 1.0, 10.0)
    assert str(figure) == "3 (1 to 10)"
    assert str(Figure.of([2.5])) == "2.5"
    assert say_nothing("x") is None


@pytest.mark.parametrize(
    ("sense", "value", "holds"),
    [
        ("at least", 3, True),
        ("at most", 3, True),
        ("below", 3, False),
        *((sense, float("nan"), False) for sense in ("at least", "at most", "below")),
    ],
)
def test_bounds_are_what_they_say(sense, value, holds):
    assert Required("x", sense, 3).holds(value) == holds


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
def test_shape_needs_order_and_slope(is_shape, order, level, verdict):
    x = row(Required("order", "at least", 1, is_shape=is_shape), Required("level", "at most", 2))
    assert judge(x, measured(order=order, level=level))[0] == verdict
