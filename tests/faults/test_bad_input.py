"""Bad input on the command line: one clear error, a failing status, and no output that looks complete."""

import gzip
import io
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mudkit import cli, trace
from mudkit.errors import MudkitError

T0 = 1_211_100_000
GOOD = "cab,t,lat,lon,occ\n" + "".join(
    f"{cab},{T0 + 60 * i},{37 + i / 1000},-122.4,{i % 2}\n" for cab in "ab" for i in range(40)
)


def mudkit(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "mudkit", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | environment,
        check=False,
    )


@pytest.fixture
def mudkit_here(monkeypatch, capsys, tmp_path):
    """Run the command in this process, in the test's folder: a process takes longer to start than to refuse."""
    handler, filters = signal.getsignal(signal.SIGTERM), list(logging.getLogger().filters)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["mudkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return SimpleNamespace(returncode=ended.value.code, stderr=capsys.readouterr().err)

    yield run
    signal.signal(signal.SIGTERM, handler)
    logging.getLogger().filters[:] = filters


def assert_one_clear_error(result, *fragments):
    assert result.returncode != 0
    assert "Traceback" not in result.stderr, result.stderr
    assert result.stderr.count("mudkit: ") == 1, result.stderr
    for text in fragments:
        assert text in result.stderr, result.stderr
    for field in ("found:", "expected:"):
        assert field in result.stderr, result.stderr


FILES = {
    "empty": (b"", "is empty"),
    "another format": (b"\x89PNG\r\n\x1a\n" + bytes(99), "known format"),
    "truncated gzip": (gzip.compress(GOOD.encode())[:200], "cut short"),
    "columns missing": (b"cab,t,lat\na,1,2\n", "lon"),
    "times of another clock": (
        re.sub(r",(\d{10}),", r",1\g<1>,", GOOD).encode(),
        "before 1980 or after 2100",
    ),
    "coordinates exchanged": (GOOD.replace("lat,lon", "lon,lat").encode(), "exchanged"),
    "one point": (GOOD.splitlines()[0].encode() + b"\na,%d,37,-122,0\n" % T0, "more than one position"),
}


@pytest.mark.parametrize("case", FILES)
def test_bad_file_is_one_clear_error(mudkit_here, tmp_path, case):
    content, fragment = FILES[case]
    (tmp_path / "trace.csv").write_bytes(content)
    result = mudkit_here("trace", "load", "trace.csv", "--out", "out")
    assert_one_clear_error(result, fragment, "trace.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["trace.csv"]


def test_missing_file_suggests_a_similar_name(tmp_path):
    (tmp_path / "cabs.csv").touch()
    result = mudkit("trace", "load", "cab.csv", "--out", "out", cwd=tmp_path)
    assert_one_clear_error(result, "cab.csv", "cabs.csv")


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--param", "trace=good.csv", "--param", "boxkm=3"], "box_km"),
        (["--param", "trace=good.csv", "--param", "box_km=wide"], "'wide'"),
        (["--param", "trace=nothing.csv"], "nothing.csv"),
        ([], "trace"),
    ],
)
def test_bad_report_parameter_is_one_clear_error(mudkit_here, tmp_path, arguments, fragment):
    (tmp_path / "good.csv").write_text(GOOD)
    result = mudkit_here("report", "trace_profile", *arguments)
    assert_one_clear_error(result, fragment)
    assert [p.name for p in tmp_path.iterdir()] == ["good.csv"]


@pytest.mark.soak(keep=1, group="this machine")
def test_report_refuses_trace_without_reads(tmp_path):
    (tmp_path / "good.csv").write_text(GOOD.replace(",1\n", ",0\n"))
    result = mudkit("report", "trace_profile", "--param", "trace=good.csv", cwd=tmp_path)
    assert_one_clear_error(result, "not one read", "rule=trip_start")
    outputs = sorted(p.name for p in (tmp_path / "reports" / "build").iterdir())
    assert len(outputs) == 1
    assert outputs[0].endswith(".failed")
    assert not list(tmp_path.rglob("report.html"))
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.soak(keep=1, group="this machine")
@pytest.mark.parametrize("version", ["8", "none"])
def test_old_or_missing_java_is_one_clear_error(tmp_path, version):
    """Set JAVA_HOME to an old or a missing Java; no other one is used instead."""
    home = tmp_path / "java"
    if version == "8":
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
        java.chmod(0o755)
    (tmp_path / "good.csv").write_text(GOOD)
    result = mudkit("pipeline", "ingest", "good.csv", "--out", "out", cwd=tmp_path, JAVA_HOME=str(home))
    assert_one_clear_error(result, "17", str(home))
    assert not (tmp_path / "out").exists()


@pytest.fixture
def tiny_disk(tmp_path):
    """Mount a file system of 600 kB; skip without permission to do so."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root")
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "none", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def big(tmp_path):
    file = tmp_path / "big.csv"
    rng = random.Random(1)  # noise, which compresses badly
    rows = (
        f"c{c},{T0 + 30 * i},{37 + rng.random() / 200:.9f},{-122.4 + rng.random() / 200:.9f},{i % 2}\n"
        for c in range(20)
        for i in range(4000)
    )
    file.write_text("cab,t,lat,lon,occ\n" + "".join(rows))
    return file


@pytest.mark.soak(keep=1, group="this machine")
@pytest.mark.parametrize("job", [["trace", "load"], ["pipeline", "ingest"]], ids=["load", "ingest"])
def test_full_disk_is_one_clear_error(tiny_disk, big, job):
    result = mudkit(*job, big, "--out", tiny_disk / "out", cwd=big.parent)
    assert_one_clear_error(result, "disk is full", "MB free")
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.soak(keep=1, group="this machine")
@pytest.mark.parametrize(
    "job",
    [["trace", "load"], ["pipeline", "ingest"], ["trace", "generate", "--cars", "3", "--days", "1"]],
    ids=["load", "ingest", "generate"],
)
def test_read_only_folder_is_one_clear_error(tiny_disk, tmp_path, job):
    (tmp_path / "good.csv").write_text(GOOD)
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    source = [] if "generate" in job else [tmp_path / "good.csv"]
    result = mudkit(*job, *source, "--out", tiny_disk / "out", cwd=tmp_path)
    assert_one_clear_error(result, "read-only")


@pytest.mark.soak
def test_report_in_read_only_folder_is_one_clear_error(tiny_disk, tmp_path):
    (tmp_path / "good.csv").write_text(GOOD)
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    arguments = ["--param", "trace=good.csv", "--out", tiny_disk / "build"]
    assert_one_clear_error(mudkit("report", "trace_profile", *arguments, cwd=tmp_path), "read-only")


@pytest.mark.soak
def test_report_on_full_disk_leaves_no_manifest(tiny_disk, tmp_path):
    (tmp_path / "good.csv").write_text(GOOD)
    arguments = ["--param", "trace=good.csv", "--out", tiny_disk]
    result = mudkit("report", "trace_profile", *arguments, cwd=tmp_path)
    assert result.returncode != 0
    assert "disk is full" in result.stderr
    assert not list(Path(tiny_disk).rglob("manifest.json"))


def parquet(lines):
    names, *rows = (line.split(",") for line in lines)
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), sink)
    return sink.getvalue()


def iso(i):
    return f"2008-05-18T09:{i:02d}:00Z"


COUNT = range(40)
PLT = [
    "Geolife trajectory",
    "WGS 84",
    "Altitude is in Feet",
    "Reserved 3",
    "0,2,255,My Track,0,0,2,8421376",
    "0",
]
CSV = ["device,t,lat,lon", *(f"a,{iso(i)},{37 + i / 1000},-122.4" for i in COUNT)]
POINTS = [f'<trkpt lat="{37 + i / 1000}" lon="8"><time>{iso(i)}</time></trkpt>' for i in COUNT]
FORMATS = {  # file name, lines, index of the first row
    "cabspotting": ("trace.csv", GOOD.splitlines(), 1),
    "cabspotting-txt": ("new_abc.txt", [f"{37 + i / 1000} -122.4 {i % 2} {T0 + 60 * i}" for i in COUNT], 0),
    "geolife": (
        "1.plt",
        PLT + [f"{37 + i / 1000},116.3,0,-777,39744.1,2008-10-23,02:{i:02d}:00" for i in COUNT],
        6,
    ),
    "gtfs-rt": (
        "trace.csv",
        ["vehicle_id,timestamp,latitude,longitude,trip_id"]
        + [f"a,{T0 + 60 * i},{37 + i / 1000},-97.7,1" for i in COUNT],
        1,
    ),
    "gowalla": ("trace.txt", [f"{i % 3}\t{iso(i)}\t{37 + i / 1000}\t-97.7\t{i}" for i in COUNT], 0),
    "gpx": ("trace.gpx", ["<gpx><trk><trkseg>", *POINTS, "</trkseg></trk></gpx>"], 1),
    "csv": ("trace.csv", CSV, 1),
    "parquet": ("trace.parquet", CSV, 1),
}
WITH_HEADER = ["cabspotting", "gtfs-rt", "csv", "parquet"]
TEXT = [kind for kind in FORMATS if kind != "parquet"]


def content(kind, lines=None):
    lines = FORMATS[kind][1] if lines is None else lines
    return parquet(lines) if kind == "parquet" else ("\n".join(lines) + "\n").encode()


def assert_refused(tmp_path, kind, data, *fragments, name=None, **options):
    """Check that `load` and `scan` raise one clear error that names the file."""
    file = tmp_path / (name or FORMATS[kind][0])
    file.write_bytes(data)
    for read in (trace.load, trace.scan):
        with pytest.raises(MudkitError) as caught:
            list(read(file, **options)) if read is trace.scan else read(file, **options)
        for text in (*fragments, file.name):
            assert text in str(caught.value), str(caught.value)
        assert caught.value.found
        assert caught.value.expected
        assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("kind", FORMATS)
def test_undamaged_files_load(tmp_path, kind):
    name, lines, first = FORMATS[kind]
    (tmp_path / name).write_bytes(content(kind))
    loaded = trace.load(tmp_path / name)
    assert loaded.source["format"] == kind
    assert len(loaded.reads if kind == "gowalla" else loaded.positions) == len(lines) - first - (
        kind == "gpx"
    )


@pytest.mark.parametrize("format", ["auto", "itself"])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("data", [b"", b"\n \n", gzip.compress(b"")], ids=["no byte", "blank", "packed"])
def test_empty_file_is_refused(tmp_path, kind, data, format):  # noqa: A002
    fragments = () if kind == "parquet" or data else ("is empty",)
    assert_refused(tmp_path, kind, data, *fragments, format=kind if format == "itself" else format)


BINARY = {
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9,
    "zeros": bytes(5000),
    "noise": random.Random(3).randbytes(5000),
    "a web page": b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\n</html>\n" * 9,
    "JSON": b'{"type": "FeatureCollection", "features": []}\n' * 9,
    "UTF-16": "This folder holds trajectories.\nPlease cite us.\n".encode("utf-16") * 9,
    "prose": b"This folder holds trajectories.\nPlease cite us.\n" * 9,
}


@pytest.mark.parametrize("format", ["auto", "itself"])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("case", BINARY)
def test_file_of_another_kind_is_refused(tmp_path, kind, case, format):  # noqa: A002
    assert_refused(tmp_path, kind, BINARY[case], format=kind if format == "itself" else format)


@pytest.mark.parametrize("kind", TEXT)
@pytest.mark.parametrize("share", [0.2, 0.7, 0.99])
def test_truncated_gzip_is_refused(tmp_path, kind, share):
    rng = random.Random(1)
    _, lines, first = FORMATS[kind]
    repeated = [*lines[:first], *(rng.choice(lines[first:-1]) for _ in range(9000)), lines[-1]]
    compressed = gzip.compress(content(kind, repeated))
    assert_refused(
        tmp_path,
        kind,
        compressed[: int(len(compressed) * share)],
        "cut short",
        name=FORMATS[kind][0] + ".gz",
        format=kind,
    )


@pytest.mark.parametrize("kind", WITH_HEADER)
def test_missing_columns_and_mappings_to_them_are_refused(tmp_path, kind):
    lines = [line.rsplit(",", 2 if kind in ("cabspotting", "gtfs-rt") else 1)[0] for line in FORMATS[kind][1]]
    assert_refused(tmp_path, kind, content(kind, lines), "lacks columns", "lon", format=kind)
    mapping = {"device": "no_such_column"}
    fragments = ("columns of its own",) if kind == "cabspotting" else ("no_such_column",)
    file = tmp_path / FORMATS[kind][0]
    file.write_bytes(content(kind))
    with pytest.raises(MudkitError, match=fragments[0]):
        trace.load(file, format=kind, columns=mapping)
    with pytest.raises(MudkitError, match="no_such_column"):
        trace.load(file, columns=mapping)


@pytest.mark.parametrize("kind", ["cabspotting-txt", "geolife", "gowalla", "gpx"])
def test_column_mapping_is_refused_for_fixed_formats(tmp_path, kind):
    file = tmp_path / FORMATS[kind][0]
    file.write_bytes(content(kind))
    with pytest.raises(MudkitError, match="columns of its own") as caught:
        trace.load(file, columns={"device": "no_such_column"})
    assert "device=no_such_column" in caught.value.found


@pytest.mark.parametrize("kind", ["csv", "parquet", "gpx", "cabspotting", "gtfs-rt"])
def test_time_zones_may_be_mixed_in_one_column(tmp_path, kind):
    """Use the zone of each row, and `tz` for a row without one."""
    name, lines, _ = FORMATS[kind]
    t = iso if kind in ("csv", "parquet", "gpx") else lambda i: str(T0 + 60 * i)
    time_texts = [
        "2008-05-18T09:03:00Z",
        "2008-05-18T11:04:00+02:00",
        "2008-05-18 02:05:00",
        "2008-05-18T14:36:00+0530",
    ]
    text = "\n".join(lines)
    for i, time_text in enumerate(time_texts, start=3):
        text = text.replace(
            t(i) + ("<" if kind == "gpx" else ","), time_text + ("<" if kind == "gpx" else ","), 1
        )
    (tmp_path / name).write_bytes(content(kind, text.split("\n")))
    loaded = trace.load(tmp_path / name, tz="America/Los_Angeles", rule="none")
    first = loaded.positions["device"][0].as_py()
    times = {row["ts"].isoformat() for row in loaded.positions.to_pylist() if row["device"] == first}
    if kind in ("csv", "parquet", "gpx"):
        assert {iso(i).replace("Z", "+00:00") for i in range(3, 7)} <= times
    else:
        assert len(loaded.rejected) <= 4


@pytest.mark.parametrize("kind", TEXT)
def test_other_encoding_is_refused(tmp_path, kind):
    _, lines, first = FORMATS[kind]
    lines = [*lines[:first], *(line.replace("3", "\xb3", 1) for line in lines[first:])]
    assert_refused(tmp_path, kind, ("\n".join(lines) + "\n").encode("latin-1"), format=kind)


@pytest.mark.parametrize("kind", TEXT)
def test_line_of_ten_megabytes_is_refused_or_rejected(tmp_path, kind):
    """Refuse a file of this line alone; among good rows, reject the line."""
    name, lines, first = FORMATS[kind]
    assert_refused(tmp_path, kind, b"7" * 10_000_000, format=kind)
    middle = len(lines) // 2
    data = content(kind, [*lines[:middle], "<x>" + "7" * 10_000_000 + "</x>", *lines[middle:]])
    (tmp_path / name).write_bytes(data)
    loaded = trace.load(tmp_path / name)
    loaded_rows = loaded.reads if kind == "gowalla" else loaded.positions
    assert len(loaded_rows) + len(loaded.rejected) == len(lines) - first + (0 if kind != "gpx" else -1) + (
        kind != "gpx"
    )


@pytest.mark.parametrize("kind", ["geolife", "gtfs-rt", "gowalla", "gpx"])
def test_command_refuses_web_page_for_each_loader(mudkit_here, tmp_path, kind):
    name = FORMATS[kind][0]
    (tmp_path / name).write_bytes(BINARY["a web page"])
    assert_one_clear_error(mudkit_here("trace", "load", name, "--out", "out"), "web page", name)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_command_refuses_folder_of_several_formats(mudkit_here, tmp_path):
    for kind in ("geolife", "gpx"):
        (tmp_path / FORMATS[kind][0]).write_bytes(content(kind))
    result = mudkit_here("trace", "load", ".", "--out", "out")
    assert_one_clear_error(result, "several kinds", "*.plt", "*.gpx")
