"""Measurement of the tests of ``make test`` that reach each function, by coverage with a context for each test.

As a plugin of pytest, this module names the context: the test, or its file while a fixture of several tests is set
up. Processes that a test starts take the name from the environment, in which coverage passes its settings on.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import coverage
import pytest
from changes import ROOT, functions_of, list_files, module_of

FILE = ROOT / "build" / "mutants" / "reach.json"
SETTINGS, TIMES = "COVERAGE_PROCESS_CONFIG", "MUDKIT_TEST_TIMES"
"""Variables with the settings of coverage in processes, and with the folder for the times that tests take."""


@dataclass(frozen=True)
class Reach:
    """Tests by function, and how long they take.

    Parameters
    ----------
    tests : list of str
        Names of the tests, or of files all of whose tests are meant.
    functions : dict
        Numbers of tests by module and function.
    times_s : dict
        Time of each test in seconds.
    """

    tests: list[str]
    functions: dict[str, list[int]]
    times_s: dict[str, float]

    def of(self, module: str, function: str) -> list[str]:
        """Return the tests that reach a function, of the files that are still there."""
        tests = [self.tests[number] for number in self.functions.get(f"{module}: {function}", ())]
        return [test for test in tests if (ROOT / test.split("::")[0]).is_file()]


def load() -> Reach:
    """Return what was measured, and measure first if nothing was."""
    if not FILE.is_file():
        measure()
    return Reach(**json.loads(FILE.read_text(encoding="utf-8")))


def measure(tests: Sequence[str] = ("tests",)) -> None:
    """Run the tests of ``make test``, or some, with coverage; it takes about twice as long."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "COVERAGE_FILE": f"{folder}/data", TIMES: folder,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
        }  # fmt: skip
        command = [sys.executable, "-m", "coverage"]
        options = ["-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "reach"]
        subprocess.run(
            [*command, "run", "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env=environment,
            stdout=sys.stderr,
            check=False,
        )
        subprocess.run([*command, "combine", "-q"], cwd=ROOT, env=environment, check=True)
        reached = _reached(Path(folder, "data"))
        times_s = json.loads(Path(folder, "times.json").read_text(encoding="utf-8"))
    names = sorted(set().union(*reached.values()))
    numbers = {name: number for number, name in enumerate(names)}
    content = {
        "tests": names,
        "functions": {function: sorted(map(numbers.__getitem__, of)) for function, of in reached.items()},
        "times_s": times_s,
    }
    FILE.parent.mkdir(parents=True, exist_ok=True)
    staging = FILE.with_suffix(".new")
    staging.write_text(json.dumps(content), encoding="utf-8")
    staging.replace(FILE)


def _reached(file: Path) -> dict[str, set[str]]:
    """Return the tests that reach each function, from a file of coverage."""
    data = coverage.CoverageData(str(file))
    data.read()
    modules = {str(file.resolve()): module_of(file) for file in list_files()}
    reached: dict[str, set[str]] = {}
    for name in data.measured_files():
        if (module := modules.get(name)) is None:
            continue
        tests_of = data.contexts_by_lineno(name)
        for function, node in functions_of(ast.parse(Path(name).read_text(encoding="utf-8"))):
            lines = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
            contexts = {context for line in lines for context in tests_of.get(line, ())}
            reached[f"{module}: {function}"] = {
                unquote(test) for context in contexts for test in context.split("|") if test
            }
    return reached


# -- plugin

_running = ""
_times_s: dict[str, float] = {}


def _name(test: str) -> None:
    context = quote(test)  # coverage separates contexts by |, which names of tests have, too
    if (measured := coverage.Coverage.current()) is not None:
        measured.switch_context(context)
        settings = copy(measured.config)
        settings.context = context
        os.environ[SETTINGS] = settings.serialize()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Name the context of a test."""
    global _running
    _running = item.nodeid
    _name(_running)
    try:
        return (yield)
    finally:
        _running = ""
        _name("")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[Any]:
    """Name the context of a fixture that other tests of the file use, too."""
    if fixturedef.scope == "function":
        return (yield)
    _name(_running.split("::")[0])
    try:
        return (yield)
    finally:
        _name(_running)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the time of a test."""
    _times_s[report.nodeid] = _times_s.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the times; xdist's workers know those of their tests, the first process all of them."""
    if (folder := os.environ.get(TIMES)) and not hasattr(session.config, "workerinput"):
        Path(folder, "times.json").write_text(json.dumps(_times_s), encoding="utf-8")
