"""Recorded times of a fleet: pauses without a row, of known kinds, and how much of a time they take."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.report.recording import BREAK, HOLE, REST, _fit_shifts, silent_us
from mudkit.report.source import TraceSource
from mudkit.trace.schema import POSITIONS, READS, epoch_us, timestamps

DAY_S = 86_400
T0_S = int(pd.Timestamp("2023-05-01", tz="UTC").timestamp())


def build(second, devices=12):
    """Build a trace in which all devices report at the same seconds."""
    return build_each([second] * devices)


def build_each(seconds):
    """Build a trace from the seconds at which each device reports."""
    n = sum(map(len, seconds))
    positions = pa.table(
        {
            "device": np.repeat([f"d{number:02d}" for number in range(len(seconds))], [*map(len, seconds)]),
            "ts": timestamps((T0_S + np.concatenate(seconds)) * 1_000_000),
            "lat": np.zeros(n),
            "lon": np.zeros(n),
            "speed_mps": pa.nulls(n, pa.float64()),
        },
        schema=POSITIONS,
    )
    counts = pd.DataFrame({"what": ["positions"], "rows": [n]})
    return TraceSource("made.csv", positions, READS.empty_table(), counts, "UTC")


def by_day(days, first_h=0, last_h=24):
    return np.concatenate([day * DAY_S + np.arange(first_h * 3600, last_h * 3600, 60) for day in days])


def kinds(trace):
    return trace.recording.pauses["kind"].tolist()


def test_nights_are_rests_and_days_apart_are_breaks():
    assert kinds(build(by_day(range(5), 7, 19))) == [REST] * 4
    trace = build(by_day([0, 20, 45], 7, 19))
    assert kinds(trace) == [BREAK] * 2
    assert trace.recording.stretches["days"].tolist() == [1, 1, 1]
    ends_h = (trace.recording.stretches[["start_us", "end_us"]] / 1e6 - T0_S) / 3600
    ends = [(24 * day + 7, pytest.approx(24 * day + 19 - 1 / 60)) for day in (0, 20, 45)]
    assert [*ends_h.itertuples(index=False, name=None)] == ends, "from the first row to the last one"


def test_weekends_are_rests_and_a_missing_day_is_a_hole():
    weekdays = [day for day in range(21) if day % 7 < 5]
    assert set(kinds(build(by_day(weekdays)))) == {REST}
    trace = build(by_day([day for day in range(21) if day != 9]))
    (hole,) = trace.recording.pauses.to_dict("records")
    assert (hole["kind"], hole["usual"]) == (HOLE, 12.0)
    assert hole["end_us"] - hole["start_us"] == (DAY_S + 60) * 1_000_000


def test_weekends_are_compared_with_weekends():
    """Three of twelve devices report at weekends; all are silent on a Saturday from 9:00 to 11:00."""
    weekend = np.concatenate([by_day([5], 0, 9), by_day([5], 11, 24), by_day([6])])
    few = [np.concatenate([by_day(range(5)), weekend])] * 3
    assert kinds(build_each([*few, *[by_day(range(5))] * 9])) == [REST]
    assert kinds(build_each([few[0]] * 12)) == [HOLE]


def test_hole_of_a_single_day_is_compared_with_the_times_around():
    second = by_day([0])
    assert kinds(build(second[(second < 36_000) | (second >= 36_600)])) == [HOLE]
    assert kinds(build(second[(second < 36_000) | (second >= 36_060)])) == [], "2 min"


def test_hole_is_three_times_as_long_as_the_steps_of_its_day():
    second = by_day(range(4))
    slow = second[(second // DAY_S != 2) | (second % 600 == 0)]
    gap = (slow >= 2 * DAY_S + 36_000) & (slow < 2 * DAY_S + 36_600)
    assert kinds(build(slow)) == []
    assert kinds(build(slow[~gap])) == [], "20 min, of steps of 10 min"
    gap = (slow >= 2 * DAY_S + 36_000) & (slow < 2 * DAY_S + 39_000)
    assert kinds(build(slow[~gap])) == [HOLE]


def test_few_devices_make_no_hole():
    second = by_day(range(4))
    second = second[(second < 36_000) | (second >= 39_600)]
    assert kinds(build(second, devices=2)) == [REST]
    assert kinds(build(second, devices=3)) == [HOLE]


@pytest.mark.parametrize(("moved", "judged"), [((5, -5), 8), ((5, 5, -5, -5), 0)])
def test_zones_are_judged_only_if_most_devices_keep_the_same_hours(moved, judged):
    """See :func:`~mudkit.report.recording.compare_zones`: the usual lead is that of the devices that are not moved.

    Eight devices report from 8:00 to 16:00, some of them as many hours later as `moved` names.
    """
    hours = [0] * (8 - len(moved)) + [*moved]
    trace = build_each([by_day(range(4), 8 + later, 16 + later) for later in hours])
    assert trace.zones.is_enough
    assert trace.zones.is_judged.sum() == judged


def test_zone_is_not_judged_where_two_fit_as_well():
    """See :func:`~mudkit.report.recording.compare_zones`: half an hour late, a device fits the others and an hour more."""
    trace = build_each([by_day(range(4), 8 + later, 16 + later) for later in (*[0] * 7, 0.5)])
    assert trace.zones.is_judged.tolist() == [True] * 7 + [False]


def test_fit_of_a_shift_is_the_likelihood_of_its_quarters():
    """See :func:`~mudkit.report.recording.compare_zones`: quarter by quarter, with the share of the *other* devices."""
    random = np.random.default_rng(7)
    count, length, shifts_h = 5, 50, np.arange(-3, 4)
    reports = random.random((count, length)) < 0.4
    device, quarter = np.nonzero(reports)

    def likelihood(number, shift_h):
        own = np.flatnonzero(reports[number])
        total = 0.0
        for at in range(own[0], own[-1] + 1):
            moved = at - 4 * shift_h
            others = np.delete(reports, number, axis=0)[:, moved].sum() if 0 <= moved < length else 0
            share = np.clip(others / (count - 1), 0.5 / count, 1 - 0.5 / count)
            total += np.log(share if reports[number, at] else 1 - share)
        return total

    fits = _fit_shifts(device, quarter, count, length, shifts_h)
    expected = [[likelihood(number, shift_h) for number in range(count)] for shift_h in shifts_h.tolist()]
    np.testing.assert_allclose(fits, expected)


moments = st.integers(0, 60)


@given(parts=st.lists(st.tuples(moments, st.integers(0, 20)), max_size=8), span=st.tuples(moments, moments))
def test_silent_time_is_that_of_the_union(parts, span):
    """Count the units of the line one by one."""
    first, last = sorted(span)
    silent = {unit for begin, length in parts for unit in range(begin, begin + length)}
    begin = np.array([begin for begin, _ in parts], dtype=np.int64)
    end = np.array([begin + length for begin, length in parts], dtype=np.int64)
    assert silent_us(begin, end, np.array([first]), np.array([last])).tolist() == [
        len(silent & set(range(first, last)))
    ]


def ask_each(trace, second, window_s=7200.0):
    """Return the trace with reads of one device at some seconds."""
    n = len(second)
    reads = {
        "read_id": np.arange(n),
        "device": ["d00"] * n,
        "ts": timestamps((T0_S + second) * 1_000_000),
        "lat": np.zeros(n),
        "lon": np.zeros(n),
        "box_km": np.full(n, 20.0),
        "window_s": np.full(n, window_s),
        "origin": ["recorded"] * n,
    }
    rows = pd.DataFrame({"what": ["positions", "reads"], "rows": [len(trace.positions), n]})
    table = pa.table({name: reads[name] for name in READS.names}, schema=READS)
    return replace(trace, reads=table, rows=rows)


def test_reads_whose_window_was_not_recorded_are_left_out():
    """A window of 2 h may lack 12 min: before the recording begins, and in a hole from 11:00 to 13:00."""
    days = [by_day([day]) for day in range(21)]
    days[9] = np.concatenate([by_day([9], 0, 11), by_day([9], 13, 24)])
    second = np.concatenate([np.arange(day * DAY_S, (day + 1) * DAY_S, 600) for day in (0, 9)])
    trace = ask_each(build(np.concatenate(days)), second)
    judged = trace.with_whole_windows()
    kept_s = epoch_us(judged.reads["ts"]) // 1_000_000 - T0_S
    of_day_min = [(kept_s[kept_s // DAY_S == day] % DAY_S) // 60 for day in (0, 9)]
    assert set(range(0, 1440, 10)) - set(of_day_min[0]) == set(range(0, 110, 10))
    assert set(range(0, 1440, 10)) - set(of_day_min[1]) == set(range(11 * 60 + 20, 14 * 60 + 50, 10))
    assert judged.left_out == 11 + 21 == trace.rows["rows"][1] - len(judged.reads)
    assert judged.rows["rows"].tolist()[1:] == [len(judged.reads), 32]
    assert judged.unrecorded_share == 0


def test_reads_are_kept_where_hardly_any_has_a_whole_window():
    trace = ask_each(build(by_day([0], 0, 3)), np.arange(0, 3 * 3600, 60))
    assert trace.with_whole_windows() is trace
    assert trace.unrecorded_share > 0
