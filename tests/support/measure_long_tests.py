"""Measure which tests take long: a plugin of pytest that writes `tests/long_tests.txt` (`make long-tests`).

What the list has of files that were not run stays there.
Seconds are those that a worker and the processes that it has started compute, so a busy machine changes little. A
fixture of a file or a class has its own entry, because any test may be the first that uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psutil
import pytest
from long_tests import LIST, file_of, function_of, read_times

MIN_S, MIN_CASE_S = 0.7, 0.1
"""Least seconds of a function or fixture that is listed, and on average of its cases: many short ones are not."""
ALWAYS_RUN = (
    "tests/faults/test_mud_campaign.py",
    "tests/mutants/test_mutants.py::test_listed_survivors",
    "tests/notebooks/test_chapters.py",
    "tests/unit/test_displays.py",
    "tests/unit/test_docs.py",
    "tests/unit/test_doctests.py",
    "tests/unit/test_prose.py",
    "tests/unit/test_public_names.py",
    "tests/unit/test_references.py",
    "tests/unit/test_words.py",
)
"""Tests of which none is left out: a sample of runs or of chapters, and what reads the whole repository."""
_HEAD = """\
# Tests, and fixtures that several tests share, with the seconds that they compute. `make long-tests` writes this list.
# `make test` runs a part of them, drawn by the hash of the tree.
"""
_SECONDS, _CASES = "seconds of long tests", "cases of long tests"

_seconds: Counter[str] = Counter()
_cases: Counter[str] = Counter()
_inner_s = [0.0]


def computed_s() -> float:
    """Return the seconds that this process and its children, running or ended, have computed."""
    process = psutil.Process()
    total_s = 0.0
    for running in (process, *process.children(recursive=True)):
        try:
            times = running.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[object]:
    """Measure a fixture that several tests share, without those that it uses."""
    if fixturedef.scope == "function":
        return (yield)
    begin_s = computed_s()
    _inner_s.append(0.0)
    try:
        return (yield)
    finally:
        whole_s = computed_s() - begin_s
        _seconds[f"{fixturedef.baseid}::{fixturedef.argname}"] += whole_s - _inner_s.pop()
        _inner_s[-1] += whole_s


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Measure a test without the fixtures that it shares."""
    begin_s = computed_s()
    _inner_s[:] = [0.0]
    try:
        return (yield)
    finally:
        _seconds[function_of(item)] += computed_s() - begin_s - _inner_s[0]
        _cases[function_of(item)] += 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Add what a worker of xdist has measured."""
    output = getattr(node, "workeroutput", {})
    _seconds.update(output.get(_SECONDS, {}))
    _cases.update(output.get(_CASES, {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the list, or send what a worker of xdist has measured to the process that writes it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput |= {_SECONDS: dict(_seconds), _CASES: dict(_cases)}
        return
    measured = {file_of(name) for name in _cases}
    times = {
        name: seconds
        for name, seconds in read_times(LIST.read_text()).items()
        if file_of(name) not in measured
    }
    times |= {
        name: seconds
        for name, seconds in _seconds.items()
        if seconds >= MIN_S
        and seconds >= MIN_CASE_S * _cases[name]
        and file_of(name) in measured
        and not name.startswith(ALWAYS_RUN)
    }
    LIST.write_text(_HEAD + "".join(f"{seconds:6.1f}  {name}\n" for name, seconds in sorted(times.items())))
