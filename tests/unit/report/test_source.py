"""The trace of a report: what was read, and what distorts it."""

import numpy as np
import pyarrow as pa
import pytest
from report_traces import T0_S, looks, source

from mudkit.errors import TraceContentError
from mudkit.report.source import open_source

DAY_S = 86_400


def trace(days=(0, 1, 2, 3, 4), lon=0.0, tz="UTC", reads=None, origin=None):
    every = [day * DAY_S + 60 * minute for day in days for minute in range(40)]
    made = source(every, reads or looks(12, 110, 40), window_s=600, tz=tz)
    positions = made.positions.set_column(3, "lon", pa.array(np.broadcast_to(lon, len(every)).astype(float)))
    asked = made.reads
    if origin:
        asked = asked.set_column(
            asked.column_names.index("origin"), "origin", pa.array([origin] * len(asked))
        )
    return type(made)(made.name, positions, asked, made.rows, made.tz)


def reads_by_phone(counts):
    return [60 * 7 * np.arange(count) + phone for phone, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (trace(), ""),
        (trace(reads=reads_by_phone([400, *[10] * 11])), "1 device of 12 holds 78 % of the reads: phone-00."),
        (
            trace(reads=[np.append(np.arange(60) * 400, day * DAY_S) for day in range(5)] * 3),
            "1 day of 5 holds",
        ),
        (
            # The buses: of 18 days two hold most of the reads.
            trace(
                reads=[
                    np.concatenate(
                        [np.arange(20 if day in (3, 4) else 2) * 400 + day * DAY_S for day in range(18)]
                    )
                ]
                * 12
            ),
            "2 days of 18 hold 56 % of the reads: 4 March 2010, 5 March 2010.",
        ),
        (
            trace(days=(0, 1, 700), reads=looks(12, 24, 40)),
            "Rows lie on 3 days within 701 days; between 2 March 2010 and",
        ),
        (
            trace(reads=[np.arange(40) * 30] * 12, origin="derived: trip_start"),
            "of the derived reads follow another of the same device within a minute",
        ),
        (trace(lon=np.linspace(-100, -70, 200)), "Places span 2 time zones, but all hours are UTC."),
        (trace(lon=-97.0), "Hours are UTC, but the places lie near UTC-6: set `tz`."),
        (trace(reads=looks(12, 24, 5)), "There are only 60 reads"),
        (trace(reads=looks(3, 24, 100)), "There are only 3 devices"),
    ],
)
def test_what_distorts_the_data_is_said(made, says):
    warnings = made.warnings()
    assert any(says in each for each in warnings) if says else warnings == []


def test_what_was_read_is_said_in_a_line():
    made = trace(origin="derived: trip_start(still_s=600)")
    assert made.describe() == (
        "made.csv · 1 device · 1 March 2010 to 5 March 2010 · 200 positions · "
        f"{len(made.reads)} reads, derived by trip_start(still_s=600)"
    )


def test_days_are_those_of_the_time_zone():
    days = trace(days=(0,), tz="America/Chicago").days()
    assert next(f"{day:%d %B}" for day in days.index) == "01 March"
    assert days["positions"].sum() == 40


def test_reads_that_never_meet_the_positions_are_refused(tmp_path):
    for name, at in (("positions", T0_S), ("reads", T0_S + 100 * DAY_S)):
        rows = [f"a,{at + 60 * i},{0.001 * i},{0.002 * i}" for i in range(50)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["device,t,lat,lon", *rows, ""]))
    with pytest.raises(TraceContentError, match="never meet"):
        open_source(str(tmp_path / "positions.csv"), str(tmp_path / "reads.csv"))
    with pytest.raises(TraceContentError, match="not one read"):
        open_source(str(tmp_path / "positions.csv"), rule="none")


def test_a_large_trace_is_read_as_a_sample_of_devices(tmp_path, monkeypatch):
    file = tmp_path / "cabs.csv"
    rows = [
        f"cab{cab},{T0_S + 60 * i},{37.7 + i / 1000},-122.4,{i % 2}" for cab in range(40) for i in range(30)
    ]
    file.write_text("\n".join(["cab,t,lat,lon,occ", *rows, ""]))
    whole = open_source(str(file), rule="occupancy")
    assert not whole.devices_read
    monkeypatch.setattr("mudkit.report.source.MAX_ROWS", 300)
    some = open_source(str(file), rule="occupancy")
    kept = set(some.positions["device"].to_pylist())
    assert some.devices_read == 40
    assert 0 < len(kept) < 40
    assert set(some.reads["device"].to_pylist()) <= kept
    assert some.positions.num_rows == 30 * len(kept), "devices are whole"
    assert f"a sample of {len(kept)} of 40 devices" in some.warnings()[0]
    monkeypatch.setattr("mudkit.report.source.MAX_ROWS", 1)
    file.write_text("\n".join(["cab,t,lat,lon,occ", *rows[:30], ""]))
    with pytest.raises(TraceContentError, match="too large for the memory"):
        open_source(str(file), rule="occupancy")
