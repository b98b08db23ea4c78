"""Rows of a trace that a report keeps: a predicate and a period."""

from __future__ import annotations

import datetime as dt
import gzip

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import ParameterError, PredicateError, TraceContentError
from mudkit.report import open_source, source
from mudkit.report.parameters import check
from mudkit.report.selection import parse_period

ROOT = "data/sample"
SAMPLE = {"trace": f"{ROOT}/positions.csv.gz", "reads": f"{ROOT}/reads.csv.gz", "tz": "America/Chicago"}


@pytest.fixture(scope="module")
def raw():
    """Return the rows of the files with their local time, by pandas."""
    tables = {}
    for name in ("positions", "reads"):
        with gzip.open(f"{ROOT}/{name}.csv.gz", "rt") as file:
            table = pd.read_csv(file)
        table["local"] = pd.to_datetime(table["t"], unit="s", utc=True).dt.tz_convert("America/Chicago")
        tables[name] = table
    return tables


SELECTIONS = {
    "places": ({"where": "lat > 35.5"}, lambda table: table["lat"] > 35.5),
    "hours and devices": (
        {"where": "hour(ts, 'America/Chicago') < 9 AND device LIKE 'car-0000%'"},
        lambda table: (table["local"].dt.hour < 9) & table["device"].str.startswith("car-0000"),
    ),
    "days": (
        {"period": "2010-03-02/2010-03-04"},
        lambda table: table["local"].dt.strftime("%Y-%m-%d").isin(["2010-03-02", "2010-03-03"]),
    ),
    "a time with another zone": (
        {"period": "2010-03-02T06:30/2010-03-03T00:00Z"},
        lambda table: (
            (table["local"] >= pd.Timestamp("2010-03-02 06:30", tz="America/Chicago"))
            & (table["local"] < pd.Timestamp("2010-03-03", tz="UTC"))
        ),
    ),
    "both": (
        {"period": "2010-03-02/2010-03-03", "where": "lon < -97.5"},
        lambda table: (table["local"].dt.day == 2) & (table["lon"] < -97.5),
    ),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_positions_and_reads_are_those_of_independent_code(raw, name):
    given, keep = SELECTIONS[name]
    selected = open_source(**SAMPLE, **given)
    expected = {table: int(keep(rows).sum()) for table, rows in raw.items()}
    kept = {"positions": len(selected.positions), "reads": len(selected.reads)}
    assert kept == expected
    assert all(kept.values())
    for table, rows in raw.items():
        assert f"{kept[table]:,} of {len(rows):,} {table}" in selected.describe()
        left_out = selected.rows.set_index("what").loc[f"not selected: {table}", "rows"]
        assert left_out == len(rows) - kept[table]


def test_first_line_names_the_selection():
    line = open_source(**SAMPLE, where="lat > 35.5", period="2010-03-02/2010-03-04").describe()
    assert line.endswith("only rows from 2010-03-02 to 2010-03-04, where lat > 35.5")
    assert "only rows" not in open_source(**SAMPLE).describe()


def test_end_of_a_period_does_not_belong_to_it():
    parts = [open_source(**SAMPLE, period=f"2010-03-0{day}/2010-03-0{day + 1}") for day in range(1, 8)]
    whole = open_source(**SAMPLE)
    assert sum(len(part.positions) for part in parts) == len(whole.positions)
    assert sum(len(part.reads) for part in parts) == len(whole.reads)


def test_predicate_on_a_column_of_positions_keeps_all_reads(raw):
    selected = open_source(**SAMPLE, where="speed_mps > 5")
    assert len(selected.positions) == (raw["positions"]["speed_mps"] > 5).sum()
    assert len(selected.reads) == len(raw["reads"])
    assert selected.describe().endswith("(reads have no speed_mps: the predicate keeps them all)")
    assert "reads" not in open_source(SAMPLE["trace"], needs_reads=False, where="speed_mps > 5").describe()


def test_reads_are_derived_before_rows_are_selected():
    """Otherwise each hole that a predicate makes would start a trip."""
    derived = {name: value for name, value in SAMPLE.items() if name != "reads"}
    all_reads = set(open_source(**derived).reads["read_id"].to_pylist())
    chosen = open_source(**derived, where="weekday(ts) = 2 OR lat > 35.5").reads["read_id"].to_pylist()
    assert 0 < len(chosen) < len(all_reads)
    assert set(chosen) <= all_reads


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"where": "lat > 80"}, "leaves no position(?s:.)*lat > 80(?s:.)*0 of 36,031 positions"),
        ({"period": "2020-01-01/2020-01-02"}, "leaves no position(?s:.)*period=2020-01-01/2020-01-02"),
        ({"where": "device = 'car-00003'", "period": "2010-03-02T03:00/2010-03-02T03:30"}, "leaves no"),
    ],
)
def test_selection_that_leaves_nothing_is_refused(selection, message):
    with pytest.raises(TraceContentError, match=message):
        open_source(**SAMPLE, **selection)


def test_selection_without_reads_is_refused_where_reads_are_needed(raw):
    t_s = next(iter(set(raw["positions"]["t"]) - set(raw["reads"]["t"])))
    with pytest.raises(TraceContentError, match=r"leaves no read(?s:.)*0 of 839 reads"):
        open_source(**SAMPLE, where=f"ts = {t_s}")
    assert len(open_source(SAMPLE["trace"], needs_reads=False, where=f"ts = {t_s}").positions)


@pytest.mark.parametrize("template", ["trace_profile", "cache_policy", "propagation"])
@pytest.mark.parametrize(
    ("where", "marked"),
    [
        ("lat >", "lat >\n                ^"),
        ("latt > 3", "latt > 3\n            ^^^^"),
        ("lat > 3; DROP", "lat > 3; DROP\n                   ^"),
        ("box_km < 5", "box_km < 5\n            ^^^^^^"),
    ],
)
def test_unreadable_predicate_is_refused_with_its_place(template, where, marked):
    with pytest.raises(PredicateError, match=f"'where' of the report {template} cannot be read") as caught:
        check(template, {"trace": "x.csv", "where": where})
    assert marked in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "period", ["2008-05-17", "2008-05-17/", "2008-05-18/2008-05-17", "2008-05-17/2008-05-17", "a/b", "1/2/3"]
)
def test_unreadable_period_is_refused(period):
    with pytest.raises(ParameterError, match="2008-05-17/2008-05-24"):
        check("propagation", {"trace": "x.csv", "period": period})
    with pytest.raises(ParameterError, match="is not a period"):
        parse_period(period, "UTC")


@given(
    st.datetimes(dt.datetime(1980, 1, 1), dt.datetime(2080, 1, 1)),
    st.timedeltas(dt.timedelta(seconds=1), dt.timedelta(days=999)),
)
def test_written_period_is_read_back(begin, length):
    end = begin + length
    utc = begin.replace(tzinfo=dt.UTC), end.replace(tzinfo=dt.UTC)
    assert parse_period(f"{begin.isoformat()}/{end.isoformat()}", "UTC") == utc
    assert parse_period(f"{utc[0].isoformat()}/{utc[1].isoformat()}", "Asia/Tokyo") == utc


def test_selection_of_a_large_trace_keeps_all_its_devices(monkeypatch):
    """A selection that fits in memory is no sample; one that does not is drawn from what is selected."""
    monkeypatch.setattr(source, "MAX_ROWS", 12_000)
    whole = open_source(**SAMPLE, where="lat > 35.5")
    assert whole.devices_read == 0
    assert "11,039 of 36,031 positions" in whole.describe()
    part = open_source(**SAMPLE, where="lat > 35.45")
    assert 0 < len(part.positions) <= 12_000
    assert part.devices_read > len(set(part.positions["device"].to_pylist()))
    with pytest.raises(TraceContentError, match="leaves no position"):
        open_source(**SAMPLE, where="lat > 80")


def test_periods_of_recorded_taxis_are_those_of_independent_code(cabspotting):
    with gzip.open(cabspotting, "rt") as file:
        t_s = pd.read_csv(file, usecols=["t"])["t"]
    begin, end = (
        pd.Timestamp(day, tz="America/Los_Angeles").timestamp() for day in ("2008-05-19", "2008-05-20")
    )
    selected = open_source(
        str(cabspotting), needs_reads=False, tz="America/Los_Angeles", period="2008-05-19/2008-05-20"
    )
    assert selected.rows["rows"].sum() == len(t_s)
    aside = int(selected.rows.loc[selected.rows["what"].str.contains("rejected"), "rows"].sum())
    assert abs(len(selected.positions) - int(((t_s >= begin) & (t_s < end)).sum())) <= aside
