"""Trials of mutants: each in a process of its own, in which the mutant stands in place of the module."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from changes import ROOT, Mutant, file_of, mutated
from reach import Reach

MAX_BYTES = 6 << 30
"""Memory of a trial with the processes that it starts; a mutant that needs more is noticed."""

_MIN_S, _FACTOR = 60.0, 10.0
"""A test ends after a minute of computing and ten times what the longest of its file takes otherwise; a mutant that
takes longer is noticed."""
_MIN_WAIT_S = 600.0
"""The same for a trial, which may wait, and whose time counts: the machine may be busy."""
_POLL_S = 0.2
_WARM = (
    "pytest",
    "hypothesis",
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "msgspec",
    "plotly.io",
    "scipy.stats",
    "sqlglot",
)


@dataclass(frozen=True)
class Plan:
    """Tests of a mutant, in order: those of the module first, then the others that reach the function, by file.

    Parameters
    ----------
    mutant : Mutant or None
        None: the code as it is.
    stages : tuple of tuple of str
        Names of tests, or of files all of whose tests are meant.
    times_s : dict
        Time that each takes without the change, as far as it is known.
    """

    mutant: Mutant | None
    stages: tuple[tuple[str, ...], ...]
    times_s: dict[str, float]

    def limit_s(self) -> float:
        """Return the time after which the trial ends."""
        return _MIN_WAIT_S + _FACTOR * sum(self.times_s.values())

    def limit_of_test_s(self, file: str) -> float:
        """Return the time of computing after which a test of a file ends."""
        times_s = [time_s for test, time_s in self.times_s.items() if test.startswith(file)]
        return _MIN_S + _FACTOR * max(times_s, default=0.0)


def plan(mutant: Mutant, reach: Reach) -> Plan:
    """Choose the tests of a mutant: those that reach its function; where none is known, those of its package."""
    *packages, name = mutant.module.split(".")
    folder = ROOT / "tests" / "unit"
    own = str(folder.joinpath(*packages, f"test_{name.lstrip('_')}.py").relative_to(ROOT))
    reached = reach.of(mutant.module, mutant.function)
    if not reached and packages:
        places = [folder.joinpath(*packages), folder / packages[0], folder / f"test_{packages[0]}.py"]
        reached = [str(place.relative_to(ROOT)) for place in places if place.exists()][:1]
    if (ROOT / own).is_file() and not any(test.startswith(own) for test in reached):
        reached = [own, *reached]
    of_file_s: dict[str, float] = {}
    for test in reached:
        file = test.split("::")[0]
        of_file_s[file] = of_file_s.get(file, 0.0) + reach.times_s.get(test, 0.0)
    ordered = sorted(reached, key=lambda test: (of_file_s[test.split("::")[0]], test))
    stages = [
        [test for test in ordered if (test.split("::")[0] == own) == is_first] for is_first in (True, False)
    ]
    files = tuple(of_file_s)
    return Plan(
        mutant,
        tuple(tuple(stage) for stage in stages if stage),
        {test: time_s for test, time_s in reach.times_s.items() if test.startswith(files)},
    )


def run(plans: Sequence[Plan], workers: int) -> Iterator[tuple[Plan, str | None]]:
    """Yield each plan with what noticed its mutant, or None, as they complete."""
    for module in _WARM:
        importlib.import_module(module)
    assert not any(name.split(".")[0] == "mudkit" for name in sys.modules)
    waiting, running = list(reversed(plans)), []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_Trial(waiting.pop()))
            time.sleep(_POLL_S / 10 if len(running) < workers else _POLL_S)
            for trial in [trial for trial in running if trial.has_ended()]:
                running.remove(trial)
                yield trial.plan, trial.result()
    finally:
        for trial in running:
            trial.end()


class _Trial:
    """A process that runs the tests of a mutant, and the limits of its time and memory."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("fork")
        self.plan, self._why = plan, ""
        self._folder = tempfile.mkdtemp(prefix="mutant-")
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_try, args=(plan, Path(self._folder), sender))
        self._begin_s = time.monotonic()
        self._limit_s = plan.limit_s()
        self._process.start()
        sender.close()

    def has_ended(self) -> bool:
        """Return whether the process has ended, after ending it if it is over a limit."""
        if not self._process.is_alive():
            return True
        if time.monotonic() - self._begin_s > self._limit_s:
            self._why = f"it does not end within {self._limit_s:.0f} s"
        elif _memory_bytes(self._process.pid) > MAX_BYTES:
            self._why = f"it takes over {MAX_BYTES >> 30} GiB"
        return bool(self._why)

    def result(self) -> str | None:
        """Return what noticed the mutant; None if nothing did."""
        try:
            failure: str | None = self._why or self._receiver.recv()
        except EOFError:
            code = self._process.exitcode
            failure = "a test does not end" if code == -signal.SIGPROF else f"the tests end with {code}"
        self.end()
        return failure

    def end(self) -> None:
        """End the process with all that it started, and remove its files."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.join()
        shutil.rmtree(self._folder, ignore_errors=True)


def _memory_bytes(pid: int | None) -> int:
    """Return the resident memory of a process and of those that it started."""
    total = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                total += member.memory_info().rss
    return total


def _try(plan: Plan, folder: Path, sender: Connection) -> None:
    """Send what notices a mutant."""
    os.setsid()
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    temporary = folder / "tmp"
    temporary.mkdir()
    tempfile.tempdir = None
    os.environ |= {"TMPDIR": str(temporary), "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "examples")}
    os.environ["PYTHONPATH"] = str(folder)
    os.environ["PYTHONSAFEPATH"] = "1"  # else a process finds the unchanged package in the working folder
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.path.insert(0, str(folder))
    _overlay(plan.mutant, folder)
    for stage in plan.stages:
        if noticed := _failure(stage, plan):
            sender.send(noticed)
            return
    sender.send(None)


def _overlay(mutant: Mutant | None, folder: Path) -> None:
    """Build a package in which all files but the mutant are links."""
    source, target = ROOT / "mudkit", folder / "mudkit"
    changed = file_of(mutant.module) if mutant is not None else None
    while True:
        target.mkdir()
        inner = None
        for entry in source.iterdir():
            if entry == changed and mutant is not None:
                (target / entry.name).write_text(mutated(mutant), encoding="utf-8")
            elif changed is not None and entry in changed.parents:
                inner = entry
            elif entry.name != "__pycache__":
                (target / entry.name).symlink_to(entry)
            elif changed is not None:
                (target / entry.name).mkdir()
                for compiled in entry.iterdir():
                    if not compiled.name.startswith(f"{changed.stem}."):
                        (target / entry.name / compiled.name).symlink_to(compiled)
        if inner is None:
            return
        source, target = inner, target / inner.name


def _failure(tests: Sequence[str], plan: Plan) -> str | None:
    """Run tests until one fails, and return its name; None if all pass."""
    import pytest

    failed: list[str] = []
    chosen = set(tests)
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))

    class Selection:
        def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
            items[:] = [
                item
                for item in items
                if item.nodeid in chosen
                or item.nodeid not in plan.times_s  # newer than the measurement
                or any(item.nodeid.startswith(file) for file in files if file in chosen)
            ]

        def pytest_runtest_logstart(self, nodeid: str) -> None:
            signal.setitimer(signal.ITIMER_PROF, plan.limit_of_test_s(nodeid.split("::")[0]))

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                failed.append(f"{report.nodeid or 'conftest.py'} cannot be imported")

    options = ["-x", "-q", "-n", "0", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # already imported by this process
    status = pytest.main([*options, *(str(ROOT / file) for file in files)], plugins=[Selection()])
    return None if status in (0, 5) else (failed or [f"pytest ends with {status}"])[0]
