"""Bad input through the command, as a user meets it: one clear error, a status, and nothing that looks whole."""

import gzip
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def assert_one_clear_error(result, *says):
    assert result.returncode != 0
    assert "Traceback" not in result.stderr, result.stderr
    assert result.stderr.count("mudkit: ") == 1, result.stderr
    for text in says:
        assert text in result.stderr, result.stderr
    for field in ("found:", "expected:"):
        assert field in result.stderr, result.stderr


FILES = {
    "empty": (b"", "is empty"),
    "another format": (b"\x89PNG\r\n\x1a\n" + bytes(99), "known format"),
    "truncated gzip": (gzip.compress(GOOD.encode())[:200], "cut short"),
    "columns missing": (b"cab,t,lat\na,1,2\n", "lon"),
    "times in milliseconds": (re.sub(r",(\d{10}),", r",\g<1>000,", GOOD).encode(), "time_unit='ms'"),
    "coordinates exchanged": (GOOD.replace("lat,lon", "lon,lat").encode(), "exchanged"),
    "one point": (GOOD.splitlines()[0].encode() + b"\na,%d,37,-122,0\n" % T0, "more than one position"),
}


@pytest.mark.parametrize("case", FILES)
def test_bad_files(tmp_path, case):
    content, says = FILES[case]
    (tmp_path / "trace.csv").write_bytes(content)
    result = mudkit("trace", "load", "trace.csv", "--out", "out", cwd=tmp_path)
    assert_one_clear_error(result, says, "trace.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["trace.csv"]


def test_missing_file(tmp_path):
    (tmp_path / "cabs.csv").touch()
    result = mudkit("trace", "load", "cab.csv", "--out", "out", cwd=tmp_path)
    assert_one_clear_error(result, "cab.csv", "cabs.csv")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--param", "trace=good.csv", "--param", "boxkm=3"], "box_km"),
        (["--param", "trace=good.csv", "--param", "box_km=wide"], "'wide'"),
        (["--param", "trace=nothing.csv"], "nothing.csv"),
        ([], "trace"),
    ],
)
def test_bad_report_parameters(tmp_path, arguments, says):
    (tmp_path / "good.csv").write_text(GOOD)
    result = mudkit("report", "trace_profile", *arguments, cwd=tmp_path)
    assert_one_clear_error(result, says)
    assert [p.name for p in tmp_path.iterdir()] == ["good.csv"]


def test_a_trace_without_reads(tmp_path):
    (tmp_path / "good.csv").write_text(GOOD.replace(",1\n", ",0\n"))
    result = mudkit("report", "trace_profile", "--param", "trace=good.csv", cwd=tmp_path)
    assert_one_clear_error(result, "not one read", "rule=trip_start")
    left = sorted(p.name for p in (tmp_path / "reports" / "build").iterdir())
    assert len(left) == 1
    assert left[0].endswith(".failed")
    assert not list(tmp_path.rglob("report.html"))
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize("version", ["8", "none"])
def test_wrong_java(tmp_path, version):
    """A Java that was named and is too old, or is not there, is an error and never silently replaced."""
    home = tmp_path / "java"
    if version == "8":
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
        java.chmod(0o755)
    (tmp_path / "good.csv").write_text(GOOD)
    result = mudkit(
        "pipeline", "run", "ingest", "good.csv", "--out", "out", cwd=tmp_path, JAVA_HOME=str(home)
    )
    assert_one_clear_error(result, "17", str(home))
    assert not (tmp_path / "out").exists()


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 600 kB, or a skip for who may not mount one."""
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
    rng = random.Random(1)  # noise, so that it does not pack well
    rows = (
        f"c{c},{T0 + 30 * i},{37 + rng.random() / 200:.9f},{-122.4 + rng.random() / 200:.9f},{i % 2}\n"
        for c in range(20)
        for i in range(4000)
    )
    file.write_text("cab,t,lat,lon,occ\n" + "".join(rows))
    return file


@pytest.mark.parametrize("job", [["trace", "load"], ["pipeline", "run", "ingest"]], ids=["load", "ingest"])
def test_full_disk(tiny_disk, big, job):
    result = mudkit(*job, big, "--out", tiny_disk / "out", cwd=big.parent)
    assert_one_clear_error(result, "disk is full", "MB free")
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.parametrize(
    "job",
    [["trace", "load"], ["pipeline", "run", "ingest"], ["trace", "generate", "--cars", "3", "--days", "1"]],
    ids=["load", "ingest", "generate"],
)
def test_read_only_folder(tiny_disk, tmp_path, job):
    (tmp_path / "good.csv").write_text(GOOD)
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    source = [] if "generate" in job else [tmp_path / "good.csv"]
    result = mudkit(*job, *source, "--out", tiny_disk / "out", cwd=tmp_path)
    assert_one_clear_error(result, "read-only")


def test_read_only_folder_for_a_report(tiny_disk, tmp_path):
    (tmp_path / "good.csv").write_text(GOOD)
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    arguments = ["--param", "trace=good.csv", "--out", tiny_disk / "build"]
    assert_one_clear_error(mudkit("report", "trace_profile", *arguments, cwd=tmp_path), "read-only")


def test_a_full_disk_under_a_report(tiny_disk, tmp_path):
    (tmp_path / "good.csv").write_text(GOOD)
    arguments = ["--param", "trace=good.csv", "--out", tiny_disk]
    result = mudkit("report", "trace_profile", *arguments, cwd=tmp_path)
    assert result.returncode != 0
    assert "disk is full" in result.stderr
    assert not list(Path(tiny_disk).rglob("manifest.json"))
