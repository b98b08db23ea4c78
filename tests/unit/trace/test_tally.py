"""Check of a sample before a load."""

from __future__ import annotations

import pytest

from mudkit import trace
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace import tally
from mudkit.trace.options import Options
from mudkit.trace.tally import MAX_SAMPLED_FILES, check_source

T0 = 1_211_100_000


def write_csv(file, rows, swapped=()):
    lines = []
    for i in range(rows):
        place = (f"{37 + i / 1000}", "-122.4")
        lines.append(",".join([file.stem, f"{T0 + 60 * i}", *(reversed(place) if i in swapped else place)]))
    file.write_text("\n".join(["device,t,lat,lon", *lines]) + "\n")


def check_path(path):
    check_source(Options(rule="none").plan(path))


def test_check_refuses_the_same_files_as_load(tmp_path):
    file = tmp_path / "trace.csv"
    for swapped in (range(0), range(4), range(5), range(6, 10)):
        write_csv(file, 10, swapped)
        check_path(file)
        trace.load(file)
    for swapped in (range(6), range(4, 10), range(10)):
        write_csv(file, 10, swapped)
        with pytest.raises(TraceFormatError, match=f"{len(swapped)} of 10 rows(?s:.)*lat=lon, lon=lat"):
            check_path(file)
        with pytest.raises(TraceFormatError, match="look exchanged"):
            trace.load(file)
    write_csv(file, 0)
    with pytest.raises(TraceContentError, match="holds no rows"):
        check_path(file)


def test_bad_sample_does_not_refuse_a_good_folder(tmp_path):
    for number in range(2 * MAX_SAMPLED_FILES):
        write_csv(tmp_path / f"{number:02}.csv", 10, range(0 if number % 2 else 9))
    check_path(tmp_path)
    assert len(trace.load(tmp_path).positions)
    for number in range(1, 5, 2):
        write_csv(tmp_path / f"{number:02}.csv", 10, range(10))
    with pytest.raises(TraceFormatError, match="92 of 160 rows"):
        check_path(tmp_path)


def test_large_sample_without_usable_rows_is_decisive(tmp_path, monkeypatch):
    monkeypatch.setattr(tally, "MIN_DECISIVE_ROWS", 80)
    for number in range(2 * MAX_SAMPLED_FILES):
        write_csv(tmp_path / f"{number:02}.csv", 10, range(10))
    with pytest.raises(TraceFormatError, match="80 of 80 sampled rows"):
        check_path(tmp_path)
    write_csv(tmp_path / "00.csv", 10, range(9))
    with pytest.raises(TraceFormatError, match="159 of 160 rows"):
        check_path(tmp_path)
