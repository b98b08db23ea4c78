"""Times of files: units, spellings and zones."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import trace
from mudkit.errors import TraceFormatError
from mudkit.trace.formats import delimited
from mudkit.trace.options import Options
from mudkit.trace.parse import UNZONED, parsed_batches
from mudkit.trace.times import NO_TIME, TIME_UNITS, lacks_zone, moments, names_zone, times_us

SEC_US = 1_000_000
AT = dt.datetime(2023, 11, 14, 22, 13, 20, 250_000, dt.UTC)
NOON = "2023-11-14T12:05:09"
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
        "45244.92592881945",
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


@pytest.mark.parametrize(("tz", "hour"), [("UTC", 2), ("Europe/Zurich", 0)])
def test_digits_and_days_of_a_workbook_are_local_moments(tz, hour):
    moment_us = round(dt.datetime(2008, 10, 23, hour, 53, 4, tzinfo=dt.UTC).timestamp()) * SEC_US
    for column in ("20081023025304", 20081023025304, 39744.1201851851875, "39744.120185185187"):
        assert times_us(pa.array([column]), tz).tolist() == [moment_us]
    assert lacks_zone(pa.array(["20081023025304", "1700000000250", "1700000000250000", "5"])).tolist() == [
        *[True],
        *[False] * 3,
    ]
    assert times_us(pa.array([20081023025304]), tz, "ms").tolist() == [20081023025304000]


def test_whole_days_of_a_workbook_are_read_among_others():
    days = ["45244.99931", "45245", "45245.00069", "", "12.5"]
    assert (
        times_us(pa.array(days), "UTC").tolist()[1]
        == dt.datetime(2023, 11, 15, tzinfo=dt.UTC).timestamp() * SEC_US
    )


def test_seconds_since_midnight_are_no_days():
    seconds = pa.array([45_244.926 + n for n in range(9)])
    assert times_us(seconds, "UTC").tolist() == np.rint(seconds.to_numpy() * SEC_US).tolist()


def test_column_named_for_utc_comes_before_local_times(csv_file):
    rows = [f"a,2023-11-14 23:{n:02}:20,2023-11-14 22:{n:02}:20,47.{n},8.5" for n in range(5)]
    for names in ("time,time_utc", "Timestamp,UTC Timestamp", "dateTime,dateTimeGmt"):
        loaded = trace.load(csv_file(f"device,{names},lat,lon", rows), tz="Europe/Zurich")
        assert loaded.positions["ts"][0].as_py() == dt.datetime(2023, 11, 14, 22, 0, 20, tzinfo=dt.UTC)
        assert loaded.source["options"]["tz"] == "UTC"
        local = trace.load(csv_file(f"device,{names},lat,lon", rows), columns={"ts": names.split(",")[0]})
        assert local.positions["ts"][0].as_py().hour == 23


def test_dates_and_timestamps_of_parquet():
    day = dt.date(2023, 11, 14)
    midnight = [AT_US // (86_400 * SEC_US) * 86_400 * SEC_US]
    assert times_us(pa.array([day]), "UTC").tolist() == midnight
    for column in (
        pa.array([AT]),
        pa.array([AT.replace(tzinfo=None)]),
        pa.array([AT.isoformat()]),
    ):
        assert times_us(column, "UTC").tolist() == [AT_US]


def test_local_times_among_zoned_ones_are_set_aside(csv_file):
    """They are not guessed; the option tz says what they are."""
    texts = ["2023-11-14T22:13:20Z", "2023-11-14 22:14:20", "2023-11-14T22:15:20+00:00", "1700000180"]
    assert lacks_zone(pa.array(texts)).tolist() == [False, True, False, False]
    assert [names_zone(pa.array(texts[i:])) for i in (0, 1, 3)] == [True, True, False]
    file = csv_file("device,ts,lat,lon", [f"a,{text},10.5,20.5" for text in texts])
    loaded = trace.load(file)
    assert loaded.rejected_by_reason() == {"local time among times with a zone": 1}
    assert len(trace.load(file, tz="Europe/London").positions) == 4


@pytest.mark.parametrize("zoned", [range(1), range(1, 2), range(2, 3), range(0)])
def test_times_with_a_zone_may_be_in_any_batch(csv_file, monkeypatch, zoned):
    """A file is read in blocks; a zone in one of them makes the local times of all others useless."""
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 1 << 10)
    rows = [
        f"a,2023-11-14 {i // 60:02}:{i % 60:02}:00{'Z' if i // 100 in zoned else ''},10.5,{20 + i / 1000}"
        for i in range(300)
    ]
    file = csv_file("device,ts,lat,lon", rows)
    plan = Options().plan(file)
    assert sum(1 for _ in plan.source.batches()) > 6
    local = {UNZONED: 300 - 100 * len(zoned)} if zoned else {}
    counts: Counter[str] = Counter()
    for parsed in parsed_batches(plan):
        counts.update(parsed.bad["reason"].to_pylist())
    assert counts == local


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


def test_texts_of_whole_numbers_are_read_as_numbers_unless_they_are_digits_of_a_moment():
    """Rule of :func:`times_us`: row by row, numbers or texts; hexadecimal ones and blanks are no numbers."""
    texts = ["1700000000", "1700000000000", "20231114221320", "0x10"]
    expected = [1_700_000_000 * SEC_US, 1_700_000_000 * SEC_US, 1_700_000_000 * SEC_US, NO_TIME]
    assert times_us(pa.array(texts), "UTC").tolist() == expected
    for text, t_us in zip(texts, expected, strict=True):
        assert times_us(pa.array([text]), "UTC").tolist() == [t_us]
    assert lacks_zone(pa.array(texts[:3])).tolist() == [False, False, True]


@pytest.mark.parametrize(
    "numbers",
    [
        [1.5e9, 20081023025304.0],
        [1.5e9, 45000.123456],
        [20081023025304.0],
        [45000.123456],
        [1.5e9, None],
        [None],
    ],
)
def test_moments_among_counts_are_read_as_alone(numbers):
    together = times_us(pa.array(numbers, pa.float64()), "UTC")
    alone = [times_us(pa.array([number], pa.float64()), "UTC")[0] for number in numbers]
    assert together.tolist() == alone
