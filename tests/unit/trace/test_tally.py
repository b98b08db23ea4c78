"""Check of a sample before a load."""

from __future__ import annotations

import json

import pytest

from mudkit import trace
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace import tally
from mudkit.trace.clean import clean
from mudkit.trace.options import Options
from mudkit.trace.parse import parsed_batches
from mudkit.trace.tally import MAX_SAMPLED_FILES, Tally, check_source

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


NAMES = "device,ts,lat,lon"
REFUSED = {
    "no device": (f"{NAMES}\n", ",{t},47,8", r"9 no device; t\.csv, line 2: ',1211100000,47,8'(?s:.)*device='ann'"),
    "no time": ("vehicle_id,trip_id,latitude,longitude,timestamp\n", "7,t,47,8,", r"9 of 9 rows have nothing in 'timestamp'"),
    "an unreadable time": (f"{NAMES}\n", "a,at {t},47,8", r"9 time that cannot be read"),
    "a latitude that is no number": (NAMES.replace(",", ";") + "\n", "a;{t};N47;8,5", r"no number; t\.csv, line 2: 'a;1211100000;N47;8,5'"),
    "longitudes to 360": (f"# a\n\n{NAMES}\n", "a,{t},47,188", r"0 to 360; t\.csv, line 4:(?s:.)*subtract 360"),
    "fast": (f"{NAMES},speed_mps\n", "a,{t},47,8,400", r"9 speed over 340 m/s(?s:.)*metres per second"),
    "a box of 0": (f"{NAMES},box_km\n", "a,{t},47,8,0", r"9 box or window out of range"),
    "the wrong number of fields": (f"{NAMES}\n", "a,{t},47,8,5", r"9 wrong number of fields(?s:.)*4 fields separated by ','"),
    "other columns": ("who,id,time,x,y\n", '"a, b",,{t},8,47', r"""line 2: '"a, b",,1211100000,8,47'(?s:.)*device=id, ts=time, lat=y, lon=x"""),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_shows_reasons_row_and_columns(tmp_path, case):
    header, row, pattern = REFUSED[case]
    file = tmp_path / "t.csv"
    file.write_text(header + "".join(row.format(t=T0 + 60 * i) + "\n" for i in range(9)))
    for load in (trace.load, trace.scan):
        with pytest.raises(TraceFormatError, match=pattern):
            load(file)


def test_refusal_counts_the_leading_reasons(tmp_path):
    rows = [f"a,{T0},47,188", *[f",{T0},47,8"] * 4, *["a,x,47,8"] * 3, *["a,1"] * 2, f"a,{T0},47,8"]
    (tmp_path / "t.csv").write_text("\n".join([NAMES, *rows]))
    with pytest.raises(TraceFormatError) as caught:
        trace.load(tmp_path / "t.csv")
    assert caught.value.found == (
        "10 of 11 rows: 4 no device, 3 time that cannot be read, 2 wrong number of fields; "
        f"t.csv, line 3: ',{T0},47,8'"
    )


def test_refusal_of_a_format_without_lines_shows_the_row(tmp_path):
    points = "".join(f'<trkpt lat="N" lon="{i}"><time>2020-01-01T00:00:00Z</time></trkpt>' for i in range(3))
    (tmp_path / "t.gpx").write_text(f"<gpx>{points}</gpx>")
    with pytest.raises(TraceFormatError, match=r"3 latitude .*; t\.gpx, row 1: 't,2020"):
        trace.load(tmp_path / "t.gpx")


def test_counts_survive_json_and_add_up(csv_file):
    file = csv_file(
        "device,t,lat,lon", [f"a,{T0 + 60 * i},37.{i},20" for i in range(5)] + ["b,x,1,2", f"a,{T0},37.0,20"]
    )
    plan = Options(rule="none").plan(file)
    tally = Tally()
    for parsed in parsed_batches(plan):
        tally.add_parsed(parsed)
        tally.add_cleaned(clean(parsed.good, plan))
    again = Tally.of(json.loads(json.dumps(vars(tally))))
    assert again == tally
    assert (tally.rows, tally.positions, tally.devices) == (7, 5, 1)
    tally.add(again)
    assert (tally.rows, tally.aside) == (14, {"duplicate": 2, "time that cannot be read": 2})
