"""Trace of a report: its description and warnings about distorted data."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from report_traces import T0_S, draw_reads, source

from mudkit.errors import TraceContentError
from mudkit.report.source import open_source

DAY_S = 86_400


def make_trace(days=(0, 1, 2, 3, 4), lon=10.0, lat=47.0, tz="UTC", reads=None, origin=None):
    times_s = [day * DAY_S + 60 * minute for day in days for minute in range(40)]
    base = source(times_s, reads or draw_reads(12, 110, 40), window_s=600, tz=tz)
    positions = base.positions
    for name, degrees in (("lat", lat), ("lon", lon)):
        column = pa.array(np.broadcast_to(degrees, len(times_s)).astype(float))
        positions = positions.set_column(positions.column_names.index(name), name, column)
    reads_table = base.reads
    if origin:
        reads_table = reads_table.set_column(
            reads_table.column_names.index("origin"), "origin", pa.array([origin] * len(reads_table))
        )
    return type(base)(base.name, positions, reads_table, base.rows, base.tz)


def draw_reads_by_phone(counts):
    return [60 * 7 * np.arange(count) + phone for phone, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (make_trace(), ""),
        (
            make_trace(reads=draw_reads_by_phone([400, *[10] * 11])),
            "1 device of 12 holds 78 % of the reads: phone-00.",
        ),
        (
            make_trace(reads=[np.append(np.arange(60) * 400, day * DAY_S) for day in range(5)] * 3),
            "1 day of 5 holds",
        ),
        (
            # As in the bus trace, two days of 18 hold most of the reads; they are named in order of time.
            make_trace(
                reads=[
                    np.concatenate(
                        [np.arange({3: 20, 4: 22}.get(day, 2)) * 400 + day * DAY_S for day in range(18)]
                    )
                ]
                * 12
            ),
            "2 days of 18 hold 57 % of the reads: 4 March 2010, 5 March 2010.",
        ),
        (
            make_trace(days=(0, 1, 700), reads=draw_reads(12, 24, 40)),
            "Rows lie on 3 of 701 days, in 2 stretches with 7 days or more without rows between them: at most 698,",
        ),
        (
            make_trace(reads=[np.arange(40) * 30] * 12, origin="derived: trip_start"),
            "of the derived reads follow another of the same device within a minute",
        ),
        (
            make_trace(reads=[np.arange(40) * 300] * 12, origin="derived: trip_start(still_s=60)"),
            "takes 1 min between two rows for a stop, nearly every report of a moving device becomes a read",
        ),
        (make_trace(lon=np.linspace(-100, -70, 200)), "Places span 2 time zones, but all hours are UTC."),
        (make_trace(lon=-97.0), "Hours are UTC, but the places lie in America/Chicago: set `tz`."),
        (make_trace(lat=0.83, lon=0.14), "the coordinates may be in radians"),
        (
            make_trace(lat=np.linspace(84, 87, 200)),
            "130 positions lie beyond 85.05° of latitude, where the map ends",
        ),
        (make_trace(reads=draw_reads(12, 24, 5)), "There are only 60 reads"),
        (make_trace(reads=draw_reads(3, 24, 100)), "There are only 3 devices"),
    ],
)
def test_distortions_of_the_data_are_warned_of(trace, message):
    warnings = trace.warnings()
    assert any(message in warning for warning in warnings) if message else warnings == []


def test_zone_of_places_is_estimated_without_timezonefinder(monkeypatch):
    monkeypatch.setitem(sys.modules, "timezonefinder", None)
    assert "Hours are UTC, but the places lie near UTC-6: set `tz`." in make_trace(lon=-97.0).warnings()


@pytest.mark.parametrize(
    "origin", ["derived: trip_start, by hand", "derived: trip_start(still_s=)", "derived: trip_start(600)"]
)
def test_other_origins_of_reads_are_left_alone(origin):
    assert not any("counts as a stop" in warning for warning in make_trace(origin=origin).warnings())


def test_reads_where_the_recording_begins_or_resumes_are_warned_of(tmp_path):
    """Forty cars that drive all day: none starts a trip, but each has a read where it is first seen."""
    rows = [
        f"car{car:02d},{T0_S + 60 * minute + car},{0.01 * minute % 1:.4f},{0.1 * car:.4f}"
        for car in range(40)
        for minute in range(1440)
        if not 600 <= minute < 630
    ]
    file = tmp_path / "cars.csv"
    file.write_text("device,ts,lat,lon\n" + "\n".join(rows) + "\n")
    trace = open_source(str(file), rule="trip_start(still_s=900)")
    assert len(trace.reads) == 80
    assert trace.reads_where_recorded_anew() == (40, 40)
    (warning,) = [text for text in trace.warnings() if "no starts of trips" in text]
    assert warning.startswith("80 of the reads (100 %)")
    assert "40 times within 15 min after the recording begins, and 40 times after it resumes" in warning
    poisson = open_source(str(file), rule="poisson(per_day=24)")
    assert poisson.reads_where_recorded_anew() == (0, 0)
    assert not any("no starts of trips" in text for text in poisson.warnings())


def test_description_is_a_single_line():
    trace = make_trace(origin="derived: trip_start(still_s=600)")
    assert trace.describe() == (
        "made.csv · 1 device · 1 March 2010 to 5 March 2010 · 200 positions · "
        f"{len(trace.reads)} reads, derived by trip_start(still_s=600)"
    )


def test_rates_a_day_are_of_the_days_that_the_page_lists():
    """Do not count by the span, which has no night before the first row and none after the last."""
    trace = make_trace(days=(0, 4))
    assert trace.recorded_days == len(trace.days()) == 5


def test_days_follow_the_time_zone():
    days = make_trace(days=(0,), tz="America/Chicago").days()
    assert next(f"{day:%d %B}" for day in days.index) == "01 March"
    assert days["positions"].sum() == 40


def test_reads_without_overlap_with_positions_are_refused(tmp_path):
    for name, start_s in (("positions", T0_S), ("reads", T0_S + 100 * DAY_S)):
        rows = [f"a,{start_s + 60 * i},{0.001 * i},{0.002 * i}" for i in range(50)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["device,t,lat,lon", *rows, ""]))
    with pytest.raises(TraceContentError, match="do not overlap"):
        open_source(str(tmp_path / "positions.csv"), str(tmp_path / "reads.csv"))
    with pytest.raises(TraceContentError, match="not one read"):
        open_source(str(tmp_path / "positions.csv"), rule="none")


def test_large_traces_are_read_as_a_sample_of_devices(tmp_path, monkeypatch):
    file = tmp_path / "cabs.csv"
    rows = [
        f"cab{cab},{T0_S + 60 * i},{37.7 + i / 1000},-122.4,{i % 2}" for cab in range(40) for i in range(30)
    ]
    file.write_text("\n".join(["cab,t,lat,lon,occ", *rows, ""]))
    whole = open_source(str(file), rule="occupancy")
    assert not whole.devices_read
    monkeypatch.setattr("mudkit.report.source.MAX_ROWS", 300)
    sampled = open_source(str(file), rule="occupancy")
    devices = set(sampled.positions["device"].to_pylist())
    assert sampled.devices_read == 40
    assert 0 < len(devices) < 40
    assert set(sampled.reads["device"].to_pylist()) <= devices
    assert sampled.positions.num_rows == 30 * len(devices), "devices are whole"
    assert f"a sample of {len(devices)} of 40 devices" in sampled.warnings()[0]
    monkeypatch.setattr("mudkit.report.source.MAX_ROWS", 1)
    file.write_text("\n".join(["cab,t,lat,lon,occ", *rows[:30], ""]))
    with pytest.raises(TraceContentError, match="too large for the memory"):
        open_source(str(file), rule="occupancy")


ODD_CABS = 40
BAD_BY_CAB = {cab: cab % 3 for cab in range(ODD_CABS)}


@pytest.fixture
def odd_cabs(tmp_path):
    """Write cabs with 30 good rows each, none to two with an impossible place, and two rows of nobody."""
    rows = []
    for cab in range(ODD_CABS):
        rows += [f"cab{cab},{T0_S + 60 * i},{37.7 + i / 1000},-122.4" for i in range(30)]
        rows += [f"cab{cab},{T0_S + 60 * i},95.0,-122.4" for i in range(BAD_BY_CAB[cab])]
    rows += [f",{T0_S},37.7,-122.4", f",{T0_S + 60},37.7,-122.4"]
    file = tmp_path / "odd.csv"
    file.write_text("\n".join(["device,ts,lat,lon", *rows, ""]))
    return str(file)


def set_aside(trace):
    rows = trace.rows.set_index("what")["rows"]
    return rows[rows.index.str.startswith("rejected")].to_dict()


def test_rows_set_aside_are_counted_for_all_devices(odd_cabs):
    trace = open_source(odd_cabs, needs_reads=False)
    counts = set_aside(trace)
    assert counts["rejected: coordinates out of range"] == sum(BAD_BY_CAB.values())
    assert sum(counts.values()) == len(trace.aside) == sum(BAD_BY_CAB.values()) + 2
    assert trace.aside["device"].value_counts()[""] == 2
    assert not any("unknown device" in what for what in counts)


@pytest.mark.parametrize("where", ["", "device != 'cab1'"])
def test_rows_set_aside_are_counted_for_the_sampled_devices_only(odd_cabs, where, monkeypatch):
    monkeypatch.setattr("mudkit.report.source.MAX_ROWS", 300)
    trace = open_source(odd_cabs, needs_reads=False, where=where)
    assert trace.devices_read == (39 if where else 40)
    here = set(trace.positions["device"].to_pylist())
    assert 0 < len(here) < trace.devices_read
    bad = sum(BAD_BY_CAB[int(name.removeprefix("cab"))] for name in here)
    counts = set_aside(trace)
    assert counts["rejected: coordinates out of range"] == bad > 0
    of_nobody = [n for what, n in counts.items() if "of an unknown device of the whole file" in what]
    assert of_nobody == [2]
    assert sum(counts.values()) == bad + 2 == len(trace.aside)
    assert set(trace.aside["device"]) <= here | {""}


def test_rows_set_aside_have_time_and_place(odd_cabs):
    aside = open_source(odd_cabs, needs_reads=False).aside
    bad = aside[aside["reason"] == "coordinates out of range"]
    assert (bad["lat"] == 95.0).all()
    assert (bad["lon"] == -122.4).all()
    assert set(bad["t_us"]) == {T0_S * 1_000_000, (T0_S + 60) * 1_000_000}


def test_devices_of_a_selection_keep_only_their_rows_set_aside(odd_cabs):
    trace = open_source(odd_cabs, needs_reads=False, where="device = 'cab2' or device = 'cab3'")
    assert set(trace.positions["device"].to_pylist()) == {"cab2", "cab3"}
    assert set(trace.aside["device"]) <= {"cab2", "cab3", ""}
    assert set_aside(trace)["rejected: coordinates out of range"] == 2
    assert trace.rows.set_index("what")["rows"]["not selected: positions"] == 38 * 30


def test_names_with_a_comma_are_found_among_rows_set_aside(tmp_path):
    rows = [f'"cab, red",{T0_S + 60 * i},{37.7 + i / 1000},-122.4' for i in range(30)]
    file = tmp_path / "comma.csv"
    file.write_text(
        "\n".join(["device,ts,lat,lon", *rows, rows[3], f'"cab, red",{T0_S + 90},50.0,-122.4', ""])
    )
    aside = open_source(str(file), needs_reads=False).aside
    assert len(aside) == 2
    assert set(aside["device"]) == {"cab, red"}
