"""Time axes: readable units, and sparse days."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.figures.times import HOUR_US, NO_TIME, TimeAxis, format_time, time_unit

DAY_US = 24 * HOUR_US
T0 = 14_000 * DAY_US


@pytest.mark.parametrize(
    ("span_s", "unit"),
    [(0, "ms"), (2, "ms"), (100, "s"), (400, "min"), (4 * 3600, "h"), (86_400, "h"), (10 * 86_400, "days")],
)
def test_units_have_few_digits(span_s, unit):
    name, unit_s = time_unit(span_s)
    assert name == unit
    assert span_s / unit_s <= 3000


@pytest.mark.parametrize(
    ("span_s", "title", "end"),
    [(100, ", s", 100.0), (1680, ", min", 28.0), (7200, ", UTC", "2008-05-01T02:00:00.000")],
)
def test_axis_counts_below_an_hour_and_shows_clock_time_above(span_s, title, end):
    axis = TimeAxis(T0, T0 + span_s * 1_000_000)
    assert axis.title.endswith(title)
    assert list(axis.values([axis.end_us])) == [end]


def test_clock_times_of_some_hours_have_milliseconds_and_those_of_days_have_seconds():
    short, long = TimeAxis(T0, T0 + 4 * HOUR_US), TimeAxis(T0, T0 + 300 * DAY_US)
    assert short.values([T0 + 1_500_000, NO_TIME]) == ["2008-05-01T00:00:01.500", None]
    assert long.values([T0 + 1_500_000]) == ["2008-05-01T00:00:01"]


@pytest.mark.parametrize(
    ("t_us", "time", "moment"),
    [(T0, "00:00:00", "2008-05-01 00:00:00"), (T0 + 1_500_000, "00:00:01.500", "2008-05-01 00:00:01.500")],
)
def test_time_of_day_has_its_date_where_it_is_asked_for(t_us, time, moment):
    assert (format_time(t_us), format_time(t_us, date=True)) == (time, moment)


SPARSE = T0 + np.linspace(0, 700, 18).round().astype(np.int64)[:, None] * DAY_US + np.arange(8, 18) * HOUR_US


def test_sparse_days_are_drawn_side_by_side():
    axis = TimeAxis.of(SPARSE.ravel())
    assert len(axis.days) == 18
    assert axis.hours == (8, 18)
    assert axis.title == "the 18 days with data side by side, 08:00 to 18:00, UTC"
    places = axis.values(SPARSE)
    assert (places.astype(int) == np.arange(18)[:, None]).all()
    assert (np.ptp(places, axis=1) > 0.8).all(), "no day is a hairline"
    assert axis.layout()["range"] == [0, 18]
    assert 5 <= len(axis.layout()["ticktext"]) <= 9
    assert np.isnan(axis.values([NO_TIME])).all()


@given(st.lists(st.integers(0, 900), min_size=1, max_size=40))
def test_axis_values_keep_the_order_of_times(days):
    times = np.sort(T0 + np.array(days, dtype=np.int64) * DAY_US + 5 * HOUR_US)
    axis = TimeAxis.of(times)
    moments = np.arange(T0, times.max() + DAY_US, DAY_US // 3)
    if axis.days:
        places = axis.values(moments)
        assert (np.diff(places) >= 0).all()
        assert places.min() >= 0
        assert places.max() <= len(axis.days)
    else:
        assert isinstance(axis.title, str)


def test_consecutive_days_have_a_continuous_axis():
    assert TimeAxis.of(T0 + np.arange(0, 9) * DAY_US).days == ()
    assert TimeAxis.of(np.array([T0])).days == ()


def test_shown_time_excludes_days_without_data():
    axis = TimeAxis.of(SPARSE.ravel())
    start = np.array([SPARSE[0, 0]] * 2)
    end = np.array([SPARSE[0, 0] + HOUR_US, SPARSE[-1, -1] + 40 * DAY_US])
    assert axis.shown_s(start, end).tolist() == pytest.approx([3600.0, 18 * 10 * 3600.0])
