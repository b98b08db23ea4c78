"""Scans of a trace: pieces with the rows of a load, and removal of the work folder."""

import gc

import pyarrow as pa
import pytest

from mudkit import files, trace
from mudkit.errors import (
    OutputProblem,
    ParameterError,
    TraceContentError,
    TraceFormatError,
)
from mudkit.trace.runs import Runs

T0 = 1_211_100_000
ROWS = [f"{cab},{T0 + 60 * i},37.7{i},-122.4,{i % 2}" for i in range(9) for cab in ("abc", "xyz", "mno")]
ROWS[4] = "abc,x,37,-122,0"
ROWS[7] = f"xyz,{T0 + 120},50,-122.4,1"
ROWS += ["mno,1", f"mno,{T0 - 5},37.7,-122.4,0"]


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Redirect work folders to a temporary folder."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(place))
    return place


def concatenate(pieces):
    return [pa.concat_tables(getattr(p, name) for p in pieces) for name in ("positions", "reads", "rejected")]


def assert_same(pieces, loaded):
    positions, reads, rejected = concatenate(pieces)
    key = [("source", "ascending"), ("row", "ascending")]
    assert positions.equals(loaded.positions)
    assert reads.sort_by("read_id").equals(loaded.reads.sort_by("read_id"))
    assert rejected.sort_by(key).equals(loaded.rejected.sort_by(key))
    assert all(piece.source == loaded.source for piece in pieces)


@pytest.mark.parametrize("batch_rows", [1, 10, 20, 1000])
def test_scan_yields_the_same_rows_as_load(csv_file, folders, batch_rows):
    file = csv_file("cab,t,lat,lon,occ", ROWS)
    with trace.scan(file, batch_rows=batch_rows) as pieces:
        assert pieces.devices == 3
        first, second = list(pieces), list(pieces)
    assert_same(first, trace.load(file))
    assert_same(second, trace.load(file))
    device_groups = [sorted(set(piece.positions["device"].to_pylist())) for piece in first]
    expected = {1: [["abc"], ["mno"], ["xyz"]], 20: [["abc", "mno"], ["xyz"]], 1000: [["abc", "mno", "xyz"]]}
    assert [names for names in device_groups if names] == expected.get(batch_rows, expected[1])


def test_unparsable_rows_are_split_into_pieces(csv_file):
    rows = [f"a,{T0 + i},1,2" for i in range(20)] + [f"a,x{i},1,2" for i in range(15)]
    with trace.scan(csv_file("device,t,lat,lon", rows), batch_rows=7) as pieces:
        assert [(len(p.positions), len(p.rejected)) for p in pieces] == [(20, 7), (0, 7), (0, 1)]


def test_scan_of_an_access_log(csv_file):
    rows = [f"{u},{T0 + i % 5},1,2" for i in range(7) for u in "ba"]
    file = csv_file("user,time,lat,lon", rows)
    with trace.scan(file, table="reads", box_km=5, batch_rows=3) as pieces:
        assert_same(list(pieces), trace.load(file, table="reads", box_km=5))


def test_scan_of_a_trace_folder(csv_file, tmp_path):
    rows = [
        f"{cab},{T0 + 60 * i + 86_400 * (i > 4)},37.7{i},-122.4,{i % 2}" for i in range(9) for cab in "cab"
    ]
    loaded = trace.load(csv_file("cab,t,lat,lon,occ", [*rows, "a,1"]))
    saved = loaded.save(tmp_path / "saved")
    with trace.scan(saved, batch_rows=5) as pieces:
        assert_same(list(pieces), trace.load(saved))
    for options in ({"rule": "none"}, {"format": "gpx"}, {"table": "reads"}, {"tz": "Asia/Tokyo"}):
        with pytest.raises(ParameterError, match="already"):
            trace.scan(saved, **options)


def test_work_folder_is_removed_with_the_scan(csv_file, folders):
    file = csv_file("cab,t,lat,lon,occ", ROWS)
    with trace.scan(file) as pieces:
        assert len(list(folders.iterdir())) == 1
        iterator = iter(pieces)
        next(iterator)
    assert list(folders.iterdir()) == []
    with pytest.raises(TraceContentError, match="closed"):
        list(pieces)
    pieces.close()
    unclosed = trace.scan(file)
    assert len(list(folders.iterdir())) == 1
    del unclosed, iterator
    gc.collect()
    assert list(folders.iterdir()) == []


@pytest.mark.parametrize(
    ("header", "rows", "error", "pattern"),
    [
        ("cab,t,lon,lat,occ", ROWS, TraceFormatError, "exchanged"),
        ("cab,t,lat,lon,occ", [], TraceContentError, "no rows"),
        ("cab,t,lat", ROWS, TraceFormatError, "lon"),
        ("cab,t,lat,lon,occ", ["a,b,c,d,e"], TraceFormatError, "cannot be read"),
    ],
)
def test_scan_refuses_invalid_sources_immediately(csv_file, folders, header, rows, error, pattern):
    with pytest.raises(error, match=pattern):
        trace.scan(csv_file(header, rows))
    assert list(folders.iterdir()) == []


def test_errors_of_the_whole_trace_are_raised_after_all_pieces(csv_file):
    file = csv_file("device,t,lat,lon", [f"a{i},{T0},1,2" for i in range(5)])
    with trace.scan(file) as pieces, pytest.raises(TraceContentError, match="more than one position"):
        list(pieces)
    file = csv_file("device,t,lat,lon", [f"a,{T0 + i},{i % 3},2" for i in range(1000)])
    with trace.scan(file) as pieces, pytest.raises(TraceFormatError, match="which column is the device"):
        list(pieces)


def test_full_disk_raises_error_and_leaves_no_files(csv_file, folders, monkeypatch):
    def raise_disk_full(self, table):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Runs, "add", raise_disk_full)
    with pytest.raises(OutputProblem, match="disk is full"):
        trace.scan(csv_file("cab,t,lat,lon,occ", ROWS))
    assert list(folders.iterdir()) == []


def test_scan_of_recorded_taxis(cabspotting, monkeypatch):
    monkeypatch.setenv("MUDKIT_PROGRESS", "0")
    rows = 0
    with trace.scan(cabspotting, batch_rows=500_000) as pieces:
        for piece in pieces:
            assert len(piece.positions) + len(piece.rejected) <= 700_000
            rows += len(piece.positions) + len(piece.rejected)
    assert rows > 1_000_000


def test_device_without_a_readable_row_is_none(csv_file):
    rows = [f"{cab},{T0 + 60 * i},37.7{i},-122.4,0" for i in range(9) for cab in ("abc", "mno")]
    with trace.scan(csv_file("cab,t,lat,lon,occ", [*rows, f"xyz,{T0},99,-122.4,0"])) as pieces:
        assert pieces.devices == 2
