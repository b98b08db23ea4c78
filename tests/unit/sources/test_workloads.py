import datetime as dt

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from mudkit.errors import ParameterError
from mudkit.sources.commute import AUSTIN, Commute
from mudkit.sources.streams import Stream, device_number
from mudkit.sources.workloads import Every, Moments, Poisson, Recorded, TripStarts, WakingReads, Workload

US = 1_000_000
HOUR_US = 3600 * US
DAY_US = 24 * HOUR_US
START_US = round(dt.datetime(2010, 3, 1, 8, tzinfo=dt.UTC).timestamp()) * US
FLEET = [f"d{i}" for i in range(1000)]
LOG_US = START_US + np.arange(0, 5 * DAY_US, 7 * HOUR_US + 11)

workloads = st.one_of(
    st.builds(Poisson, st.floats(0, 400)),
    st.builds(
        WakingReads,
        st.floats(0, 50),
        spread=st.floats(0, 1),
        wake_h=st.floats(0, 24),
        awake_h=st.lists(st.floats(0, 24), min_size=2, max_size=2).map(sorted),
        utc_offset_h=st.floats(-12, 14),
    ),
    st.builds(Every, st.floats(60, 1e6)),
    st.just(TripStarts()),
    st.builds(Recorded, st.just(LOG_US), st.floats(-12, 14)),
)
lengths = st.integers(0, 3 * DAY_US)


@examples(60)
@given(
    workloads,
    st.integers(),
    st.integers(-(2**48), 2**51),
    lengths,
    lengths,
    st.permutations(range(9)),
    st.integers(0, 9),
)
def test_moments_do_not_depend_on_run_length_or_fleet(load, seed, start_us, one_us, other_us, order, size):
    short_us, long_us = sorted([one_us, other_us])
    long = load.moments(seed, "reads", FLEET[:9], start_us, long_us)
    assert long.device.dtype == long.t_us.dtype == np.int64
    assert list(zip(*long[::-1], strict=True)) == sorted(zip(*long[::-1], strict=True))
    assert ((long.t_us >= 0) & (long.t_us < long_us)).all()
    short = load.moments(seed, "reads", FLEET[:9], start_us, short_us)
    assert all((a == b[long.t_us < short_us]).all() for a, b in zip(short, long, strict=True))
    assert len(short.t_us) == (long.t_us < short_us).sum()
    part = load.moments(seed, "reads", [FLEET[i] for i in order[:size]], start_us, long_us)
    for row, i in enumerate(order[:size]):
        assert part.t_us[part.device == row].tolist() == long.t_us[long.device == i].tolist()


@pytest.mark.parametrize(
    "load",
    [Poisson(24), WakingReads(8), Every(600), TripStarts(), Recorded(LOG_US)],
    ids=lambda load: type(load).__name__,
)
def test_workload_protocol(load):
    assert isinstance(load, Workload)
    moments = load.moments(7, "reads", FLEET[:50], START_US, DAY_US)
    assert isinstance(moments, Moments)
    assert len(moments.t_us) > 50
    other = load.moments(7, "writes", FLEET[:50], START_US, DAY_US)
    differs = not np.array_equal(moments.t_us, other.t_us)
    assert differs == (not isinstance(load, TripStarts))
    assert not np.array_equal(moments.t_us, load.moments(8, "reads", FLEET[:50], START_US, DAY_US).t_us)
    assert load.moments(7, "reads", [], START_US, DAY_US).t_us.shape == (0,)
    assert load.moments(7, "reads", FLEET[:50], START_US, 0).t_us.shape == (0,)
    with pytest.raises(ParameterError, match="named twice"):
        load.moments(7, "reads", ["a", "a"], START_US, DAY_US)


def test_simultaneous_moments_are_ordered_by_device_in_long_runs():
    far = Every(1e9).moments(7, "x", FLEET[:99], 0, 2**62)
    assert list(zip(*far[::-1], strict=True)) == sorted(zip(*far[::-1], strict=True))
    assert len(far.t_us) > 99 * 4000


def test_poisson_counts_and_gaps():
    moments = Poisson(40).moments(7, "x", FLEET, START_US, 2 * DAY_US)
    count = np.bincount(moments.device, minlength=1000)
    assert count.mean() == pytest.approx(80, rel=0.02)
    assert count.var() == pytest.approx(80, rel=0.15)
    assert kstest(moments.t_us / (2 * DAY_US), "uniform").pvalue > 0.001
    for per_day in (0, 6e-277):
        assert len(Poisson(per_day).moments(0, "reads", FLEET, 0, 10**9).t_us) == 0


def test_poisson_moments_match_the_gap_stream():
    gap = Stream(7, "x: gap")
    t_us, expected = 0, []
    for step in range(200):
        t_us += round(float(gap.exponential(device_number("d5"), step, DAY_US / 50)))
        if t_us < 2 * DAY_US:
            expected.append(t_us)
    moments = Poisson(50).moments(7, "x", FLEET[:10], START_US, 2 * DAY_US)
    assert moments.t_us[moments.device == 5].tolist() == expected
    assert len(expected) > 64


def compute_local_hours(moments, offset_h, start_us=START_US):
    return ((start_us + moments.t_us) / HOUR_US + offset_h) % 24


def test_reads_occur_in_waking_hours():
    midnight_us = START_US - 8 * HOUR_US + 6 * HOUR_US
    moments = WakingReads(20).moments(7, "x", FLEET, midnight_us, 3 * DAY_US)
    hours = compute_local_hours(moments, -6, midnight_us)
    assert hours.min() >= 7
    assert hours.max() < 24
    assert 0.01 < np.mean(hours > 23) < 1 / 16.5
    assert kstest((hours[hours < 23] - 7) / 16, "uniform").pvalue > 0.001
    day = moments.t_us // DAY_US
    count = np.bincount(3 * moments.device + day, minlength=3000)
    assert count.mean() == pytest.approx(20, rel=0.01)
    assert count.std() == pytest.approx(5, rel=0.1)


def test_waking_hours_may_cross_midnight():
    load = WakingReads(30, wake_h=12, utc_offset_h=0)
    moments = load.moments(7, "x", FLEET[:100], START_US - 8 * HOUR_US, DAY_US)
    hours = moments.t_us / HOUR_US
    assert ((hours < 5) | (hours >= 12)).all()
    # Of 16.5 h awake 4.5 lie after midnight.
    assert np.mean(hours < 5) == pytest.approx(4.5 / 16.5, abs=0.03)


@pytest.mark.parametrize("per_day", [0.3, 2.3, 7.5])
def test_rounding_keeps_the_mean_number_of_reads(per_day):
    moments = WakingReads(per_day).moments(7, "x", FLEET, START_US, 20 * DAY_US)
    assert len(moments.t_us) / 20_000 == pytest.approx(per_day, rel=0.03)


def test_every_has_one_interval_and_random_phases():
    moments = Every(600).moments(7, "x", FLEET, START_US, DAY_US)
    assert (np.bincount(moments.device) == 144).all()
    first = np.array([moments.t_us[moments.device == i] for i in range(1000)])
    assert (np.diff(first, axis=1) == 600 * US).all()
    assert kstest(first[:, 0] / (600 * US), "uniform").pvalue > 0.001
    assert len(Every(10 * 86_400).moments(7, "x", FLEET, START_US, DAY_US).t_us) == pytest.approx(100, abs=30)


def test_trip_starts_match_the_commute():
    names = FLEET[:60]
    moments = TripStarts().moments(7, "x", names, START_US, 2 * DAY_US)
    course = Commute(AUSTIN).course(7, names, START_US)
    for t_us in np.unique(moments.t_us):
        starting = moments.device[moments.t_us == t_us]
        if t_us:
            assert (course.at(int(t_us) - 1).speed_mps[starting] == 0).all()
        assert (course.at(int(t_us)).speed_mps[starting] > 0).all()
    assert 2 < len(moments.t_us) / 60 / 2 < 4


def build_day_log(*hours_by_day):
    """Build a log from noon of one day to noon of another, with whole days in between."""
    hours = [
        12.0,
        *(24 * (k + 1) + h for k, day in enumerate(hours_by_day) for h in day),
        24 * len(hours_by_day) + 36.0,
    ]
    return np.round(np.array(hours) * HOUR_US).astype(np.int64)


def test_recorded_log_repeats_and_keeps_the_time_of_day():
    load = Recorded(build_day_log([1, 2.5], [], [9, 10, 23.5]))
    assert load.days == 3
    whole = load.moments(7, "x", FLEET[:60], 100 * DAY_US, 6 * DAY_US)
    # A run holds its first moment, and not its end.
    later = load.moments(7, "x", FLEET[:60], 101 * DAY_US + HOUR_US, 4 * DAY_US)
    inside = (whole.t_us >= DAY_US + HOUR_US) & (whole.t_us < 5 * DAY_US + HOUR_US)
    assert (later.t_us + DAY_US + HOUR_US).tolist() == whole.t_us[inside].tolist()
    assert {DAY_US + HOUR_US, 5 * DAY_US + HOUR_US} <= {*whole.t_us.tolist()}
    days = [[1, 2.5], [], [9, 10, 23.5]]
    seen = set()
    for i in range(60):
        hours = (whole.t_us[whole.device == i] / HOUR_US).tolist()
        fits = [k for k in range(3) if hours == [24 * d + h for d in range(6) for h in days[(k + d) % 3]]]
        assert len(fits) == 1
        seen.update(fits)
    assert seen == {0, 1, 2}


def test_days_of_a_recorded_log_are_local():
    log_us = build_day_log([1], [2], [3])
    moments = Recorded(log_us[::-1], utc_offset_h=-6).moments(7, "x", FLEET[:40], 100 * DAY_US, DAY_US)
    # In that zone the moments are at 19, 20 and 21 h of the days before, and the first day is not whole.
    assert set((moments.t_us / HOUR_US).tolist()) <= {2, 3, 1}
    assert Recorded(log_us, utc_offset_h=-6).days == 3
    assert Recorded(log_us, utc_offset_h=13).days == 3


def test_reads_do_not_repeat_the_times_of_another_day():
    load = WakingReads(20, awake_h=(16, 16))
    moments = load.moments(7, "x", FLEET[:20], START_US, 5 * DAY_US)
    of_day = moments.device * DAY_US + (START_US + moments.t_us) % DAY_US
    assert len(np.unique(of_day)) == len(of_day)
