"""Times of files: units, spellings and zones."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import trace
from mudkit.trace.times import NO_TIME, TIME_UNITS, lacks_zone, times_us

SEC_US = 1_000_000
AT = dt.datetime(2023, 11, 14, 22, 13, 20, 250_000, dt.UTC)
AT_US = round(AT.timestamp() * SEC_US)


@pytest.mark.parametrize(
    "text",
    [
        "2023-11-14T22:13:20.25Z",
        "2023-11-14T22:13:20,250Z",
        "2023-11-14t22:13:20.250z",
        "2023-11-14 22:13:20.250 UTC",
        "2023-11-14 22:13:20.250000 gmt",
        "2023-11-14 23:13:20,25+01:00",
        "20231114T221320.25",
        "  2023-11-14 22:13:20.25 ",
        "2023/11/14 22:13:20.25",
        "2023.11.14 22:13:20.25",
        "14 Nov 2023 22:13:20.25",
        "14-Nov-2023 10:13:20.25 PM",
        "Tue, 14 Nov 2023 22:13:20.25 +0000",
        "Tue Nov 14 22:13:20.25 +0000 2023",
        "Tue Nov 14 22:13:20.25 2023",
        "November 14, 2023 10:13:20.25 p.m.",
        "1700000000.25",
        "1700000000250",
    ],
)
def test_spellings_of_a_moment(text):
    assert times_us(pa.array([text]), "UTC").tolist() == [AT_US]


@pytest.mark.parametrize(
    "text", ["03/04/2023 10:00:00", "May 2023", "Nov 14", "14 Foo 2023 10:00", "10:00", "day 7", ""]
)
def test_no_moment_is_guessed(text):
    assert times_us(pa.array([text, "2023-11-14T22:13:20.25Z"]), "UTC").tolist() == [NO_TIME, AT_US]


def test_clock_of_twelve_hours():
    texts = [f"14 Nov 2023 {hour}:05 {half}" for half in ("AM", "pm") for hour in (12, 1, 11)]
    hours = [time_us // (3600 * SEC_US) % 24 for time_us in times_us(pa.array(texts), "UTC").tolist()]
    assert hours == [0, 1, 11, 12, 13, 23]


@given(
    st.lists(
        st.tuples(st.integers(315_964_800, 4_102_444_799), st.sampled_from(list(TIME_UNITS)), st.booleans()),
        min_size=1,
    )
)
def test_unit_of_each_number_is_recognised(moments):
    """The time is the same in every unit, as a number, as a text, and if the unit is given."""
    numbers = [second * 10 ** (3 * list(TIME_UNITS).index(unit)) for second, unit, _ in moments]
    expected = [second * SEC_US for second, _, _ in moments]
    assert times_us(pa.array(numbers), "UTC").tolist() == expected
    texts = pa.array(
        [
            f"+{number}" if signed else str(number)
            for number, (*_, signed) in zip(numbers, moments, strict=True)
        ]
    )
    assert times_us(texts, "UTC").tolist() == expected
    for number, (_, unit, _), time_us in zip(numbers, moments, expected, strict=True):
        assert times_us(pa.array([number]), "UTC", unit).tolist() == [time_us]
        near = times_us(pa.array([float(number)]), "UTC")
        assert np.abs(near - time_us).max() <= 1


def test_numbers_that_are_no_times():
    values = pa.array([None, float("nan"), float("inf"), 1e300, 5.0])
    assert times_us(values, "UTC").tolist()[:3] == [NO_TIME] * 3
    assert times_us(pa.array([1 << 62, -(1 << 62), None]), "UTC", "s")[2] == NO_TIME


def test_dates_and_timestamps_of_parquet():
    day = dt.date(2023, 11, 14)
    midnight = [AT_US // (86_400 * SEC_US) * 86_400 * SEC_US]
    assert times_us(pa.array([day]), "UTC").tolist() == midnight
    for column in (
        pa.array([AT]),
        pa.array([AT.replace(tzinfo=None)]),
        pa.array([AT.isoformat()]).dictionary_encode(),
    ):
        assert times_us(column, "UTC").tolist() == [AT_US]


def test_local_times_among_zoned_ones_are_set_aside(csv_file):
    """They are not guessed; whoever names the zone says what they are."""
    texts = ["2023-11-14T22:13:20Z", "2023-11-14 22:14:20", "2023-11-14T22:15:20+00:00", "1700000180"]
    assert lacks_zone(pa.array(texts)).tolist() == [False, True, False, False]
    assert not lacks_zone(pa.array(texts[1:2])).any()
    file = csv_file("device,ts,lat,lon", [f"a,{text},10.5,20.5" for text in texts])
    loaded = trace.load(file)
    assert loaded.rejected_by_reason() == {"local time among times with a zone": 1}
    assert len(trace.load(file, tz="Europe/London").positions) == 4
