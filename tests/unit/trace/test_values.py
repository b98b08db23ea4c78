"""Conversion of texts and typed values."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import trace
from mudkit.errors import TraceFormatError
from mudkit.trace.values import NO_TIME, moments, numbers, times_us

NOON = "2023-11-14T12:05:09"


@pytest.mark.parametrize(
    ("day", "time", "moment"),
    [
        ("2023-11-14", "12:05:09", NOON),
        ("2023/11/14", " 12:05:09Z", NOON),
        ("20231114", "120509", NOON),
        ("2023-11-14 00:00:00", "12:05:09.25", NOON + ".25"),
        ("2023.11.14", "120509.25", NOON + ".25"),
        ("2023-11-14", "7:05", "2023-11-14T07:05:00"),
        ("2023-11-14", "509", "2023-11-14T00:05:09"),
        ("2023-11-14", "14:05:09+02:00", NOON),
        ("2023-11-15", f"{NOON}Z", NOON),
        ("2023-11-15", "1699963509", NOON),
        ("231114", "120509", None),
        ("141123", "12:05:09", None),
        ("2023-11-14", "25:00:00", None),
        ("", "12:05:09", None),
        (None, "12:05:09", None),
        ("2023-11-14", None, None),
        (dt.date(2023, 11, 14), dt.time(12, 5, 9), NOON),
    ],
)
def test_days_and_times_of_day_are_joined(day, time, moment):
    (t_us,) = times_us(moments(pa.array([day]), pa.array([time])), "UTC")
    assert t_us == (NO_TIME if moment is None else np.datetime64(moment, "us").astype(np.int64))


@given(when=st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2099, 1, 1)))
def test_moments_are_those_of_one_column(when):
    whole = times_us(pa.array([f"{when:%Y-%m-%d %H:%M:%S}"]), "UTC")
    for day, time in (("%Y-%m-%d", "%H:%M:%S"), ("%Y%m%d", "%H%M%S"), ("%Y/%m/%d", "%H:%M:%S")):
        apart = moments(pa.array([when.strftime(day)]), pa.array([when.strftime(time)]))
        assert times_us(apart, "UTC") == whole


def test_local_days_and_times_are_read_in_the_zone(csv_file):
    rows = [f"a,2023-11-14,12:0{i}:00,47,8" for i in range(3)]
    loaded = trace.load(csv_file("device,Date,Time,lat,lon", rows), tz="Europe/Zurich")
    assert [f"{t:%H:%M}" for t in loaded.positions["ts"].to_pylist()] == ["11:00", "11:01", "11:02"]
    mapped = trace.load(
        csv_file("device,DAY,CLOCK,lat,lon", rows, "b.csv"),
        tz="Europe/Zurich",
        columns={"date": "DAY", "ts": "CLOCK"},
    )
    assert mapped.positions.equals(loaded.positions)


def test_days_of_six_digits_are_refused_with_their_column(csv_file):
    with pytest.raises(TraceFormatError, match=r"time that cannot be read(?s:.)*date=DATE"):
        trace.load(csv_file("device,DATE,TIME,lat,lon", [f"a,231114,12050{i},47,8" for i in range(3)]))


@pytest.mark.parametrize(
    ("text", "number", "with_comma"),
    [
        ("47,002", np.nan, 47.002),
        (" -8,5 ", np.nan, -8.5),
        ("47.002", 47.002, 47.002),
        ("1,234,5", np.nan, np.nan),
        ("1.234,5", np.nan, np.nan),
        ("", np.nan, np.nan),
    ],
)
def test_decimal_comma_is_read_where_it_is_allowed(text, number, with_comma):
    column = pa.array([text, "1"])
    for value, is_allowed in ((number, False), (with_comma, True)):
        assert np.array_equal(numbers(column, decimal_comma=is_allowed), [value, 1], equal_nan=True)
