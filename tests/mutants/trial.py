"""Trials of mutants, each in a process of its own with limits of its time and memory.

A trial is a fork of a pytest session that has collected the tests, with the code of one function exchanged. What
survives there, but whose function ran before the fork, is tried again in a process that imports the mutant.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import psutil
import pytest
from changes import ROOT, Mutant, codes_of, file_of, mutated
from reach import Reach

MAX_BYTES = 6 << 30
"""Memory of a trial with the processes that it starts; a mutant that needs more is noticed."""

_MIN_S, _FACTOR = 30.0, 10.0
"""A test ends after half a minute of computing and ten times what the longest of its file takes otherwise; a mutant that
takes longer is noticed."""
_MIN_WAIT_S = 600.0
"""The same for a trial, which may wait, and whose time counts: the machine may be busy."""
_POLL_S = 0.1
_UNDECIDED = "undecided"
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Plan:
    """Tests of a mutant, in order: those of the module first, then the others that reach the function, by file.

    Parameters
    ----------
    mutant : Mutant or None
        None: the code as it is.
    tests : tuple of str
        Names of tests, or of files all of whose tests are meant.
    times_s : dict
        Time that each takes without the change, as far as it is known.
    """

    mutant: Mutant | None
    tests: tuple[str, ...]
    times_s: dict[str, float]

    def limit_s(self) -> float:
        """Return the time after which the trial ends."""
        return _MIN_WAIT_S + _FACTOR * sum(self.times_s.values())

    def limit_of_test_s(self, file: str) -> float:
        """Return the time of computing after which a test of a file ends."""
        times_s = [time_s for test, time_s in self.times_s.items() if test.startswith(file)]
        return _MIN_S + _FACTOR * max(times_s, default=0.0)

    def choose(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """Return the collected tests that the plan has, in its order; also those newer than the measurement."""
        files = list(dict.fromkeys(test.split("::")[0] for test in self.tests))
        chosen = {*self.tests}
        by_file: dict[str, list[pytest.Item]] = {file: [] for file in files}
        for item in items:
            file = item.nodeid.split("::")[0]
            if file in by_file and ({item.nodeid, file} & chosen or item.nodeid not in self.times_s):
                by_file[file].append(item)
        return [item for file in files for item in by_file[file]]


def plan(mutant: Mutant, reach: Reach) -> Plan:
    """Choose the tests of a mutant: those that reach its function; where none is known, those of its package."""
    *packages, name = mutant.module.split(".")
    folder = ROOT / "tests" / "unit"
    own = str(folder.joinpath(*packages, f"test_{name.lstrip('_')}.py").relative_to(ROOT))
    reached = reach.of(mutant.module, mutant.function)
    if not reached and packages:
        places = [folder.joinpath(*packages), folder / packages[0], folder / f"test_{packages[0]}.py"]
        existing = [place for place in places if place.exists()][:1]
        files = [
            file for place in existing for file in (place.rglob("test_*.py") if place.is_dir() else [place])
        ]
        reached = [str(file.relative_to(ROOT)) for file in sorted(files)]
    if (ROOT / own).is_file() and not any(test.startswith(own) for test in reached):
        reached = [own, *reached]
    of_file_s: dict[str, float] = {}
    for test in reached:
        file = test.split("::")[0]
        of_file_s[file] = of_file_s.get(file, 0.0) + reach.times_s.get(test, 0.0)

    def rank(test: str) -> tuple[bool, float, str]:
        file = test.split("::")[0]
        return file != own, of_file_s[file], test

    files = tuple(of_file_s)
    times_s = {test: time_s for test, time_s in reach.times_s.items() if test.startswith(files)}
    return Plan(mutant, tuple(sorted(reached, key=rank)), times_s)


def run(plans: Sequence[Plan], workers: int) -> Iterator[tuple[Plan, str | None]]:
    """Yield each plan with what noticed its mutant, or None, as they complete."""
    undecided = []
    for plan, by in _run_in_session(plans, workers):
        if by == _UNDECIDED:
            undecided.append(plan)
        else:
            yield plan, by
    yield from _run(undecided, workers, _try_anew)


def _run(
    plans: Sequence[Plan], workers: int, target: Callable[[Plan, Path], str | None]
) -> Iterator[tuple[Plan, str | None]]:
    """Yield each plan with what its trial returns."""
    waiting, running = list(reversed(plans)), []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_Trial(waiting.pop(), target))
            time.sleep(_POLL_S)
            for trial in [trial for trial in running if trial.has_ended()]:
                running.remove(trial)
                yield trial.plan, trial.result()
    finally:
        for trial in running:
            trial.end()


class _Trial:
    """A process that runs the tests of a mutant, and the limits of its time and memory."""

    def __init__(self, plan: Plan, target: Callable[[Plan, Path], str | None]) -> None:
        self.plan, self._why = plan, ""
        self._folder = tempfile.mkdtemp(prefix="mutant-")
        self._receiver, sender = _FORK.Pipe(duplex=False)
        self._process = _FORK.Process(target=_try, args=(plan, Path(self._folder), target, sender))
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


def _try(plan: Plan, folder: Path, target: Callable[[Plan, Path], str | None], sender: Connection) -> None:
    """Send what notices a mutant; processes that the tests start import it, too."""
    os.setsid()
    _silence()
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
    sender.send(target(plan, folder))


def _silence() -> None:
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)


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


class _Collection:
    """Plugin of pytest that calls a function with the collected tests in place of running them."""

    def __init__(self, use: Callable[[pytest.Session], None]) -> None:
        self._use = use
        self.problem = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Store the first file that cannot be imported."""
        if report.failed:
            self.problem = self.problem or f"{report.nodeid or 'conftest.py'} cannot be imported"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Call the function, unless a file cannot be imported."""
        if not self.problem:
            self._use(session)
        return True


def _collect(plans: Sequence[Plan], use: Callable[[pytest.Session], None]) -> str:
    """Call a function with the collected tests of plans; return what cannot be imported, or nothing."""
    files = dict.fromkeys(test.split("::")[0] for plan in plans for test in plan.tests)
    options = ["-q", "-n", "0", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    collection = _Collection(use)
    status = pytest.main([*options, *(str(ROOT / file) for file in files)], plugins=[collection])
    is_run = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return collection.problem or ("" if is_run else f"pytest ends with {status}")


def _failure(plan: Plan, session: pytest.Session) -> str | None:
    """Run the tests of a plan until one fails, and return its name; None if all pass."""
    items = plan.choose(session.items)
    for item, following in zip(items, [*items[1:], None], strict=True):
        signal.setitimer(signal.ITIMER_PROF, plan.limit_of_test_s(item.nodeid.split("::")[0]))
        failed = session.testsfailed
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed > failed:
            return item.nodeid
    return None


def _try_anew(plan: Plan, folder: Path) -> str | None:
    """Return what notices a mutant in a process that imports it."""
    failures: list[str | None] = []
    problem = _collect([plan], lambda session: failures.append(_failure(plan, session)))
    return problem or failures[0]


def _run_in_session(plans: Sequence[Plan], workers: int) -> Iterator[tuple[Plan, str | None]]:
    """Yield each plan with what its trial as a fork of one session returns."""
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_hold_session, args=(plans, workers, receiver, sender))
    process.start()
    sender.close()
    try:
        for _ in plans:
            number, by = receiver.recv()
            if number is None:
                raise SystemExit(f"The tests fail without a change: {by}. Mend them first.")
            yield plans[number], by
    finally:
        receiver.close()
        process.join()


def _hold_session(plans: Sequence[Plan], workers: int, receiver: Connection, sender: Connection) -> None:
    """Collect the tests once, and send the results of trials that are forks of this process."""
    receiver.close()
    _silence()
    sys.path.insert(0, str(ROOT))
    have_run: set[int] = set()
    numbers = {id(plan): number for number, plan in enumerate(plans)}

    def record(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            have_run.add(id(frame.f_code))

    def use(session: pytest.Session) -> None:
        functions = _functions_of([plan.mutant for plan in plans if plan.mutant is not None])
        sys.setprofile(None)
        target = partial(_try_in_fork, session=session, functions=functions, have_run=have_run)
        for plan, by in _run(plans, workers, target):
            sender.send((numbers[id(plan)], by))

    sys.setprofile(record)
    if problem := _collect(plans, use):
        sender.send((None, problem))


def _functions_of(mutants: Sequence[Mutant]) -> dict[tuple[str, str], list[FunctionType]]:
    """Return the functions that mutants change, by file and name, after importing their modules."""
    for mutant in mutants:
        importlib.import_module(f"mudkit.{mutant.module}")
    functions: dict[tuple[str, str], list[FunctionType]] = {_key(mutant): [] for mutant in mutants}
    names = {name for _, name in functions}
    gc.unfreeze()
    for value in gc.get_objects():
        if type(value) is FunctionType and value.__code__.co_qualname in names:
            key = os.path.realpath(value.__code__.co_filename), value.__code__.co_qualname
            functions.get(key, []).append(value)
    gc.freeze()
    return functions


def _key(mutant: Mutant) -> tuple[str, str]:
    return os.path.realpath(file_of(mutant.module)), mutant.function


def _try_in_fork(
    plan: Plan,
    folder: Path,
    *,
    session: pytest.Session,
    functions: dict[tuple[str, str], list[FunctionType]],
    have_run: set[int],
) -> str | None:
    """Return what notices a mutant whose code is exchanged."""
    has_run = False
    if plan.mutant is not None:
        changed, codes = functions[_key(plan.mutant)], codes_of(plan.mutant)
        has_run = not changed or any(id(function.__code__) in have_run for function in changed)
        try:
            for function in changed:
                function.__code__ = codes[function.__code__.co_firstlineno]
        except ValueError:  # the mutant has other variables of the functions around it
            return _UNDECIDED
    return _failure(plan, session) or (_UNDECIDED if has_run else None)
