import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from mudkit import trace
from mudkit.errors import TraceFormatError
from mudkit.trace.formats import recognise

PLT = "Geolife trajectory\n" + "x\n" * 5 + "39.98,116.3,0,492,39744.1,2008-10-23,02:53:04\n"
GPX = '<gpx><trkpt lat="1" lon="2"><time>2020-01-01T00:00:00Z</time></trkpt></gpx>'


def test_error_for_a_folder_of_several_kinds_lists_them(tmp_path):
    (tmp_path / "000").mkdir()
    (tmp_path / "000" / "a.plt").write_text(PLT)
    (tmp_path / "b.gpx").write_text(GPX)
    (tmp_path / "c.gpx").write_text(GPX)
    with pytest.raises(TraceFormatError, match="several kinds") as caught:
        trace.load(tmp_path)
    assert "1 *.plt (for instance 000/a.plt), 2 *.gpx (for instance b.gpx)" in caught.value.found
    assert recognise(tmp_path, "gpx").members == ("b.gpx", "c.gpx")
    assert recognise(tmp_path, "geolife").members == ("000/a.plt",)


@pytest.mark.parametrize(
    "kind", ["geolife", "gpx", "csv", "gtfs-rt", "parquet", "gowalla", "cabspotting-txt"]
)
def test_folder_without_files_of_the_format_is_refused(tmp_path, kind):
    (tmp_path / "notes.md").touch()
    with pytest.raises(TraceFormatError, match=r"holds no files of the format") as caught:
        trace.load(tmp_path, format=kind)
    assert "notes.md" in caught.value.found


def test_description_in_json_beside_traces_is_ignored(tmp_path):
    (tmp_path / "about.json").write_text('{"title": "rides"}')
    (tmp_path / "a.gpx").write_text(GPX)
    assert recognise(tmp_path).members == ("a.gpx",)
    (tmp_path / "a.jsonl").write_text('{"device": "a", "t": 1, "lat": 2, "lon": 3}')
    with pytest.raises(TraceFormatError, match="several kinds"):
        recognise(tmp_path)


def test_files_of_a_source_are_sorted(tmp_path):
    for name in ("b.gpx", "a.GPX", "c.gpx.gz"):
        (tmp_path / name).write_text(GPX)
    source = recognise(tmp_path)
    assert [file.name for file in source.files()] == ["a.GPX", "b.gpx", "c.gpx.gz"]
    assert recognise(tmp_path / "b.gpx").files() == [tmp_path / "b.gpx"]
    assert isinstance(source.files()[0], Path)


@pytest.mark.parametrize("head", ["<!DOCTYPE html>\n<html>", "  <HTML><head>", "\ufeff<html>"])
@pytest.mark.parametrize("name", ["t.csv", "t.plt", "t.gpx", "t.txt", "t.parquet"])
def test_web_page_is_named_in_the_error(tmp_path, name, head):
    (tmp_path / name).write_text(head + "<body>Sign in</body></html>", encoding="utf-8")
    with pytest.raises(TraceFormatError, match="is a web page"):
        trace.load(tmp_path / name)


@pytest.mark.parametrize(
    ("names", "devices"),
    [
        (("ann/ride.gpx", "ben/ride.gpx.gz", "own.gpx"), {"ann/ride", "ben/ride", "own"}),
        (("2023/ann/ride.GPX", "2023/ben/ride.gpx"), {"2023/ann/ride", "2023/ben/ride"}),
        (("ann/a.gpx", "ben/b.gpx"), {"a", "b"}),
        (("a.05.gpx", "a.06.gpx", "x/a.07.gpx"), {"a.05", "a.06", "a.07"}),
        (("a.gpx", "a.gpx.gz"), {"a"}),
    ],
)
def test_files_of_one_name_in_different_folders_are_different_devices(tmp_path, names, devices):
    for number, name in enumerate(names):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        points = (
            f'<trkpt lat="1.{i}" lon="2"><time>2020-01-0{i + 1}T{number:02}:00:00Z</time></trkpt>'
            for i in range(3)
        )
        file.write_bytes(
            (gzip.compress if name.endswith(".gz") else bytes)(f"<gpx>{''.join(points)}</gpx>".encode())
        )
    loaded = trace.load(tmp_path)
    assert set(loaded.positions["device"].to_pylist()) == devices
    with trace.scan(tmp_path) as pieces:
        assert pa.concat_tables(piece.positions for piece in pieces).equals(loaded.positions)
    joined = trace.load(tmp_path, device="ann").positions
    assert set(joined["device"].to_pylist()) == {"ann"}
    assert len(joined) == len(loaded.positions) == 3 * len(names)


def test_lists_in_text_beside_traces_are_ignored(tmp_path):
    (tmp_path / "2020.txt").write_text("days\n1\n")
    (tmp_path / "a.gpx").write_text(GPX)
    assert recognise(tmp_path).members == ("a.gpx",)
