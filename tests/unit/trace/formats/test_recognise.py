import gzip
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_samples import SAMPLES, T0, cab_lines, dump, gpx, lines

from mudkit import trace
from mudkit.errors import TraceContentError, TraceFormatError
from mudkit.trace.formats import recognise
from mudkit.trace.parse import UNZONED

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


CABS = {device: lines("device,time,lat,lon", *cab_lines("{d},{iso},{lat},{lon}", device)) for device in "abc"}
BLANK = {"nothing": b"", "blank lines": b"\n\n", "a header": b"device,time,lat,lon\n"}


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("content", BLANK)
@pytest.mark.parametrize("name", ["0.csv", "z.csv"])
def test_file_without_rows_in_a_folder_is_counted(tmp_path, name, content):
    loaded = trace.load(write(tmp_path, {"a.csv": CABS["a"], name: BLANK[content], "b.csv": CABS["b"]}))
    assert len(loaded.positions) == 20
    assert loaded.rejected.select(["source", "reason"]).to_pylist() == [
        {"source": name, "reason": "file without rows"}
    ]
    with trace.scan(tmp_path) as pieces:
        assert pa.concat_tables(piece.rejected for piece in pieces).equals(loaded.rejected)


@pytest.mark.parametrize("content", [b"", b"\n", gpx()])
def test_track_without_points_in_a_folder_is_counted(tmp_path, content):
    (sample,) = SAMPLES["gpx"].files.values()
    loaded = trace.load(write(tmp_path, {"a.gpx": content, "b.gpx": sample}))
    assert loaded.rejected_by_reason() == {**SAMPLES["gpx"].aside, "file without rows": 1}


def test_folder_of_empty_files_is_refused(tmp_path):
    for suffix in ("csv", "gpx"):
        with pytest.raises(
            TraceFormatError if suffix == "csv" else TraceContentError, match=r"is empty|no pos"
        ):
            trace.load(write(tmp_path / suffix, {f"a.{suffix}": b"", f"b.{suffix}": b" "}))


@pytest.mark.parametrize("others", [(), ("c.csv",)])
@pytest.mark.parametrize("local", ["a.csv", "b.csv"])
def test_local_times_beside_files_of_zoned_ones_are_set_aside(tmp_path, local, others):
    files = {name: CABS[name[0]] for name in ("a.csv", "b.csv", *others)}
    write(tmp_path, {**files, local: files[local].replace(b"Z,", b",")})
    loaded = trace.load(tmp_path)
    assert loaded.rejected_by_reason() == {UNZONED: 10}
    assert local[0] not in loaded.positions["device"].to_pylist()
    assert len(trace.load(tmp_path, tz="Europe/Zurich").positions) == 10 * len(files)


@pytest.mark.parametrize("local", ["a.parquet", "b.parquet"])
def test_timestamps_without_a_zone_beside_those_with_one_are_set_aside(tmp_path, local):
    for name in ("a.parquet", "b.parquet"):
        ts = pa.array([(T0 + 60 * n) * 10**6 for n in range(5)], pa.int64())
        ts = ts.cast(pa.timestamp("us", None if name == local else "UTC"))
        columns = {"device": [name] * 5, "ts": ts, "lat": [1.0] * 5, "lon": [2.0] * 5}
        pq.write_table(pa.table(columns), tmp_path / name)
    loaded = trace.load(tmp_path)
    assert (len(loaded.positions), loaded.rejected_by_reason()) == (5, {UNZONED: 5})


def test_files_passed_over_in_a_folder_are_named(tmp_path):
    others = {"b.txt": CABS["b"], "c": b"x", "README.md": b"x", "notes.TXT": b"x", ".hidden": b"x"}
    loaded = trace.load(
        write(tmp_path, {"a.csv": CABS["a"], "x/b.tsv": CABS["b"].replace(b",", b"\t"), **others})
    )
    assert set(loaded.positions["device"].to_pylist()) == {"a", "b"}
    named = "1 without a suffix, 1 .md, 2 .txt"
    assert dict(loaded.summary().to_numpy())["files passed over"] == named
    assert f"files passed over {named}" in repr(loaded)
    loaded.save(tmp_path / "trace")
    assert dict(trace.load(tmp_path / "trace").summary().to_numpy())["files passed over"] == named
    assert trace.load(tmp_path).positions.equals(loaded.positions)  # the trace folder in it is no source


OWN = lines("time,lat,lon", *cab_lines("{iso},{lat},{lon}", "a"))
FOLDERS = {
    "tables in folders": (
        {"2023/ann/a.csv": CABS["a"], "2024/b.csv.gz": gzip.compress(CABS["b"]), "c.csv": CABS["c"]},
        30,
    ),
    "devices in paths": ({f"device={name}/1/cabs.csv": OWN for name in "abc"}, 30),
    "other names in paths": ({f"day=1/vehicle_id={name}/0.csv": OWN for name in "abc"}, 30),
    "names in paths and files": ({f"device={name}/0.csv": CABS[name] for name in "abc"}, 30),
    "days in paths": (
        {
            f"date=2008-05-1{day}/{name}.csv": lines(
                "device,time,lat,lon", *cab_lines("{d},08:4{n}:00,{lat},{lon}", name)
            )
            for name in "abc"
            for day in range(2)
        },
        60,
    ),
}


@pytest.mark.parametrize("layout", FOLDERS)
def test_nested_folders_of_tables_are_read(tmp_path, layout):
    files, rows = FOLDERS[layout]
    loaded = trace.load(write(tmp_path, files))
    assert set(loaded.positions["device"].to_pylist()) == set("abc")
    assert (len(loaded.positions), loaded.rejected_by_reason()) == (rows, {})
    assert len(set(loaded.positions["ts"].to_pylist())) == rows // 3
    with trace.scan(tmp_path) as pieces:
        assert pa.concat_tables(piece.positions for piece in pieces).equals(loaded.positions)


def test_tables_in_folders_beside_traces_are_passed_over(tmp_path):
    (sample,) = SAMPLES["gpx"].files.values()
    write(tmp_path, {"rides/a.gpx": sample, "x/stats.csv": b"a,b\n1,2\n", "x/y.parquet": b"PAR1"})
    source = recognise(tmp_path)
    assert (source.format, source.members) == ("gpx", ("rides/a.gpx",))
    row = {"device": "a", "t": 1, "lat": 2, "lon": 3}
    assert recognise(write(tmp_path / "b", {"a.json": dump(row), "x/stats.csv": b""})).members == ("a.json",)
    shutil.rmtree(tmp_path / "b")
    assert source.passed_over == {".csv": 1, ".parquet": 1}
    (tmp_path / "rides" / "a.gpx").unlink()
    with pytest.raises(TraceFormatError, match="several kinds"):
        recognise(tmp_path)


def test_values_in_paths_are_unquoted_and_may_be_missing(tmp_path):
    null = "__HIVE_DEFAULT_PARTITION__"
    loaded = trace.load(write(tmp_path, {f"device={name}/0.csv": OWN for name in ("a%20b", null)}))
    assert set(loaded.positions["device"].to_pylist()) == {"a b"}
    assert loaded.rejected_by_reason() == {"no device": 10}


def test_positions_are_found_in_the_folder_of_takeout(tmp_path):
    (records,) = SAMPLES["takeout"].files.values()
    month = dump({"timelineObjects": [{"placeVisit": {"location": {"latitudeE7": 1, "longitudeE7": 2}}}]})
    files = {"Location History/Records.json": records, "Location History/Settings.json": dump({"a": 1})}
    files |= {
        "Location History/Semantic Location History/2008/2008_MAY.json": month,
        "archive_browser.html": b"<html>",
        "YouTube/history.csv": b"a,b\n1,2\n",
    }
    loaded = trace.load(write(tmp_path / "Takeout", files))
    assert loaded.source["format"] == "takeout"
    assert loaded.source["passed_over"] == {".csv": 1, ".html": 1, ".json": 2}
    assert loaded.rejected_by_reason() == SAMPLES["takeout"].aside
    assert len(loaded.positions) == 10
