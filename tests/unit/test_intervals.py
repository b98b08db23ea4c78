"""Confidence intervals: bounds, coverage, and few repetitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import intervals
from mudkit.errors import ParameterError


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_mean_of_shares_stays_within_their_range(values: list[float]) -> None:
    result = intervals.mean(values)
    assert min(values) - 1e-12 <= result.low <= result.value <= result.high <= max(values) + 1e-12


@pytest.mark.parametrize(("number", "kind"), [(1, "value"), (2, "range"), (4, "range"), (5, "interval")])
def test_few_repetitions_give_a_range(number: int, kind: str) -> None:
    values = np.arange(number, dtype=float)
    result = intervals.mean(values)
    assert result.kind == kind
    if kind == "range":
        assert (result.low, result.high) == (0, number - 1)


def test_missing_measurements_have_no_value() -> None:
    assert math.isnan(intervals.mean([]).value)
    assert math.isnan(intervals.mean([math.nan]).low)
    assert math.isnan(intervals.share(0, 0).value)
    assert math.isnan(intervals.ratio([1.0, 2.0], [0.0, -1.0]).value)


@pytest.mark.soak
def test_interval_covers_the_mean_with_its_confidence() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        result = intervals.mean(generator.normal(5, 2, 30))
        covered += result.low <= 5 <= result.high
    assert 0.88 < covered / 300 < 0.99


def test_weights_shift_the_mean() -> None:
    values = np.linspace(0, 1, 12)
    assert intervals.mean(values) == intervals.mean(values), "the same values give the same interval"
    assert intervals.mean([0.0, 1.0], weights=[3, 1]).value == 0.25


@given(st.integers(0, 50), st.integers(0, 50))
def test_share_stays_between_0_and_1(part: int, rest: int) -> None:
    result = intervals.share(part, part + rest)
    if part + rest:
        assert 0 <= result.low <= result.value <= result.high <= 1
        assert result.low < result.high


def test_one_repetition_has_no_interval() -> None:
    for result in (intervals.mean([3.0]), intervals.ratio([3.0], [1.0])):
        assert (result.value, result.kind) == (3.0, "value")
        assert math.isnan(result.low)
        assert math.isnan(result.high)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 100)), min_size=2, max_size=30))
def test_ratio_lies_between_the_ratios_of_repetitions(pairs: list[tuple[float, float]]) -> None:
    shares, wholes = np.array(pairs).T
    result = intervals.ratio(shares * wholes, wholes)
    assert shares.min() - 1e-9 <= result.low <= result.value <= result.high <= shares.max() + 1e-9
    assert result.kind == ("range" if len(pairs) < intervals.MIN_REPETITIONS else "interval")


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        *((lambda given=given: intervals.mean([1, 2], given), "confidence") for given in (0, 1, 95, "high", None)),
        (lambda: intervals.share(3, 2), "whole"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_error(call, pattern):
    with pytest.raises(ParameterError, match=pattern):
        call()


# -- days and draws


def test_clustered_ratio_is_that_of_the_sums():
    parts, wholes = [[1, 0], [2, 1], [0, 0], [3, 1], [1, 1]], [[4, 4], [5, 5], [2, 2], [6, 6], [3, 3]]
    interval = intervals.by_day(parts, wholes)
    assert interval.value == 0.25
    assert 0 < interval.low < 0.25 < interval.high < 1
    few = intervals.by_day(parts[:4], wholes[:4])
    assert np.isnan(few.low), "four days have no interval"
    assert np.isnan(intervals.by_day(np.zeros((6, 1)), np.zeros((6, 1))).value)


def test_clustered_share_of_none_is_uncertain():
    none = intervals.by_day(np.zeros((10, 3)), np.full((10, 3), 5))
    assert (none.value, none.low) == (0.0, 0.0)
    assert 0.05 < none.high < 0.15, "50 cases, each seen in three draws"
    every = intervals.by_day(np.full((10, 3), 5), np.full((10, 3), 5))
    assert (every.value, every.high) == (1.0, 1.0)
    assert every.low == pytest.approx(1 - none.high)
    one = np.zeros((10, 3))
    one[0, 0] = 1
    assert intervals.by_day(one, np.full((10, 3), 5)).high > none.high, "one is no less than none"


def test_clustered_kinds_keep_to_what_is_possible():
    parts, wholes = np.array([[0.0], [1.0], [0.0], [9.0], [0.0], [2.0]]), np.ones((6, 1))
    positive = intervals.by_day(parts, wholes, "positive")
    assert 0 < positive.low < positive.value == 2.0 < positive.high
    signed = intervals.by_day(parts - 2, wholes, "any")
    assert signed.low < 0 == signed.value < signed.high
    assert np.isnan(intervals.by_day(0 * parts, wholes, "positive").low)


@pytest.mark.parametrize("of_draws", [0.0, 1.0])
def test_clustered_intervals_cover_the_mean(of_draws):
    """Add a part that all days of a draw share: intervals over days alone would not cover it."""
    random, hits = np.random.default_rng(5), 0
    for _ in range(300):
        values = random.normal(size=(20, 5)) + random.normal(size=(20, 1))
        values += of_draws * random.normal(size=(1, 5))
        interval = intervals.by_day(values, np.ones((20, 5)), "any")
        hits += interval.low <= 0 <= interval.high
    assert 0.9 <= hits / 300 <= 0.99


def test_two_draws_that_differ_widen_the_interval():
    """The variance is that of days and of draws, also where there are only two draws."""
    days, ones = np.linspace(-1, 1, 8)[:, None], np.ones((8, 2))
    alike, apart = (intervals.by_day(days + np.array([-shift, shift]), ones, "any") for shift in (0.0, 3.0))
    assert apart.high - apart.low > 2 * (alike.high - alike.low)


def test_sums_of_cases_have_the_interval_of_the_cases():
    random = np.random.default_rng(2)
    counts = random.integers(1, 9, 40)
    device = np.repeat(np.arange(10), 4)
    of_rows = [random.random(count) < 0.3 for count in counts]
    sums = np.array([part.sum() for part in of_rows])
    options = {"ahead": True, "limits": (0.0, 1.0)}
    whole = intervals.clustered(np.concatenate(of_rows), np.repeat(device, counts), **options)
    joined = intervals.clustered(sums, device, weights=counts, **options)
    assert (joined.value, joined.low, joined.high) == pytest.approx((whole.value, whole.low, whole.high))


@pytest.mark.parametrize("parts", [0, 1, 3, 57, 59, 60])
def test_interval_of_a_share_is_that_of_its_logit(parts):
    """One case of 60 shows that the share is not 0, and none does not show that it is."""
    is_part = np.arange(60) < parts
    share = intervals.clustered(is_part, limits=(0.0, 1.0))
    assert share.low <= share.value == parts / 60 <= share.high
    assert (share.low > 0) == (parts > 0)
    assert (share.high < 1) == (parts < 60)
    assert share.high - share.low > 0.01
    rest = intervals.clustered(~is_part, limits=(0.0, 1.0))
    assert (1 - rest.high, 1 - rest.low) == pytest.approx((share.low, share.high))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3])
def test_share_ahead_is_exceeded_with_its_risk(share):
    random = np.random.default_rng(4)
    is_part, device = (random.random(400) < share).astype(np.int64), np.arange(400) % 20
    ones = np.ones(400, dtype=np.int64)
    for risk in (0.01, 0.05, 0.3):
        by_device = intervals.clusterings(is_part[:, None], ones, device)
        limit = intervals.shares_ahead(is_part.sum(keepdims=True), 400, by_device, new_cases=400, risk=risk)
        assert limit[0] > is_part.mean()
        assert intervals.risk_ahead(is_part, ones, device, limit=limit[0]) == pytest.approx(risk)


def test_share_ahead_has_half_a_case_more_of_each_kind():
    """An even risk leaves the share itself, with half a case more that is part, and half a case that is not."""
    by_row = intervals.clusterings(np.array([[3], [0], [1]]), np.array([4, 5, 2]), np.arange(3))
    limit = intervals.shares_ahead(np.array([4]), 11, by_row, new_cases=11, risk=0.5)
    assert limit[0] == pytest.approx(4.5 / 12)


@pytest.mark.parametrize(("devices", "days"), [(12, 9), (12, 3), (3, 9), (3, 2), (1, 1)])
def test_sums_over_clusters_give_the_variance_of_residuals(devices, days):
    """Compare with `clustered_se`, which adds the residuals of rows; sums of parts of the clusters add up."""
    random = np.random.default_rng(devices * days)
    device, day = (of.ravel() for of in np.indices((devices, days)))
    cases = random.integers(1, 500, devices * days)
    parts = random.binomial(cases[:, None], random.random((devices * days, 3)))
    se, freedom = intervals.clustered_se(parts.astype(float), cases.astype(float), device, day)
    smooth, of_sums, freedom_of_sums = intervals._smooth_shares(
        parts.sum(axis=0), int(cases.sum()), intervals.clusterings(parts, cases, device, day)
    )
    least = np.sqrt(smooth * (1 - smooth) / cases.sum())
    assert of_sums == pytest.approx(np.maximum(se, least), rel=1e-12)
    assert freedom_of_sums == pytest.approx(freedom)
    some = device < devices // 2
    whole, *two = (
        intervals.Clustering.of(parts[of], cases[of], device[of]) for of in (some | True, some, ~some)
    )
    assert [np.array_equal(sum(of), one) for one, *of in zip(whole, *two, strict=True)] == [True] * 4


def test_variance_of_two_clusterings_counts_once_what_both_count():
    """See Cameron, Gelbach and Miller, Robust inference with multiway clustering, 2011: V1 + V2 - V12."""
    random = np.random.default_rng(3)
    device, day = random.integers(0, 10, 300), random.integers(0, 8, 300)
    values = random.normal(size=10)[device] + random.normal(size=8)[day] + 0.1 * random.normal(size=300)

    def variance(*clusters):
        return float(intervals.clustered_se(values[:, None], np.ones(300), *clusters)[0][0]) ** 2

    pair = np.unique([f"{one} {other}" for one, other in zip(device, day, strict=True)], return_inverse=True)[
        1
    ]
    assert variance(device, day) == pytest.approx(variance(device) + variance(day) - variance(pair))


def test_intervals_of_medians_and_totals_cover_them():
    """Add a part that all values of a device share: intervals over values alone would not cover the median."""
    random, medians, totals = np.random.default_rng(8), 0, 0
    for _ in range(300):
        of_device = random.normal(size=20)
        device, day = np.indices((20, 12))
        values = of_device[:, None] + random.normal(size=(20, 12))
        median = intervals.median(values.ravel(), device.ravel(), day.ravel())
        medians += median.low <= 0 <= median.high
        counts = random.poisson(np.exp(0.5 * of_device)[:, None] * np.ones((20, 12)))
        total = intervals.total(counts)
        totals += total.low <= 240 * math.exp(0.125) <= total.high
    assert 0.9 <= medians / 300 <= 0.99
    assert 0.88 <= totals / 300 <= 0.99, "a skewed sum of twenty devices"


def test_median_of_equal_or_few_values():
    assert intervals.median([]).kind == "value"
    assert math.isnan(intervals.median([3.0]).low)
    equal = intervals.median(np.full(50, 30.0), np.arange(50) % 7)
    assert (equal.value, equal.low, equal.high) == (30.0, 30.0, 30.0)


@st.composite
def draw_interval(draw: st.DrawFn) -> intervals.Interval:
    low, value, high = sorted(draw(st.tuples(*[st.floats(-1e6, 1e6)] * 3)))
    return intervals.Interval(value, low, high, "interval")


@given(draw_interval(), draw_interval())
def test_difference_lies_within_the_ends_of_both_intervals(
    one: intervals.Interval, other: intervals.Interval
) -> None:
    result = intervals.difference(one, other)
    assert result.value == one.value - other.value
    room = 1e-6 * (1 + abs(result.value))
    assert one.low - other.high - room <= result.low <= result.value
    assert result.value <= result.high <= one.high - other.low + room
    back = intervals.difference(other, one)
    assert (back.value, back.low, back.high) == (-result.value, -result.high, -result.low)


def test_difference_of_shares_is_that_of_the_literature() -> None:
    """Newcombe (1998), table II, method 10: 56/70 less 48/80."""
    result = intervals.difference(intervals.share(56, 70), intervals.share(48, 80))
    assert (result.value, result.low, result.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


def test_difference_without_both_intervals_has_no_interval() -> None:
    known, unknown = intervals.share(1, 2), intervals.mean([1.0])
    assert intervals.difference(known, unknown).kind == "value"
    assert math.isnan(intervals.difference(unknown, known).low)
    assert intervals.difference(known, intervals.mean([1.0, 2.0])).kind == "range"


@pytest.mark.soak
def test_difference_covers_that_of_independent_means() -> None:
    generator = np.random.default_rng(2)
    covered = 0
    for _ in range(300):
        one, other = generator.gamma(2.0, 1.0, 40), generator.exponential(1.0, 60)
        result = intervals.difference(intervals.mean(one), intervals.mean(other))
        covered += result.low <= 1.0 <= result.high
    assert 0.9 <= covered / 300 <= 0.99
