"""Measurement of the tests of ``make test`` that reach each function, by coverage with a context for each test.

As a plugin of pytest, this module names the context: the test, or its file while a fixture of several tests is set
up. Processes that a test starts take the name from the environment, in which coverage passes its settings on.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import coverage
import pytest
from changes import ROOT, functions_of, list_files, module_of

FILE = ROOT / "build" / "mutants" / "reach_by_file.json"
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


def list_tests(modules: Collection[str] | None = None) -> list[str]:
    """Return the files of all tests, or of those that stand in the folder of a module or import one.

    An import by the tests' support or by the conftest of an inner folder counts, too; one by mudkit does not.
    """
    files = [file.relative_to(ROOT) for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    if modules is None:
        return [str(file) for file in files]
    folders = [Path("tests", "unit", *module.split(".")) for module in modules]
    full_names = {f"mudkit.{module}" for module in modules}
    support = {file.stem: file.relative_to(ROOT) for file in (ROOT / "tests" / "support").glob("*.py")}

    def imported_by(file: Path) -> set[str]:
        waiting, read = [file, *(folder / "conftest.py" for folder in file.parents[:-2])], set()
        while waiting:
            if (other := waiting.pop()) not in read:
                read.add(other)
                waiting += [support[name] for name in _imported(other) & {*support}]
        return set().union(*map(_imported, read))

    return [
        str(file)
        for file in files
        if any(folder in file.parents for folder in folders) or not full_names.isdisjoint(imported_by(file))
    ]


@functools.cache
def _imported(file: Path) -> frozenset[str]:
    """Return the names of all that a file of tests imports, at its top or later; none if it is not there."""
    if not (ROOT / file).is_file():
        return frozenset()
    nodes = list(ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))))
    of_import = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return frozenset(of_import).union(
        *(
            {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module
        )
    )


def load(files: Sequence[str]) -> Reach:
    """Return what is measured, after measuring those of some files that have changed since."""
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    hashes = {file: hashlib.sha256((ROOT / file).read_bytes()).hexdigest() for file in files}
    if changed := [file for file in files if known.get(file, {}).get("hash") != hashes[file]]:
        for file, measured in measure(changed).items():
            known[file] = {"hash": hashes[file], **measured}
        FILE.parent.mkdir(parents=True, exist_ok=True)
        staging = FILE.with_suffix(".new")
        staging.write_text(json.dumps(known), encoding="utf-8")
        staging.replace(FILE)
    tests: list[str] = []
    functions: dict[str, list[int]] = {}
    for measured in known.values():
        for function, numbers in measured["functions"].items():
            functions.setdefault(function, []).extend(len(tests) + number for number in numbers)
        tests += measured["tests"]
    return Reach(
        tests, functions, {test: s for measured in known.values() for test, s in measured["times_s"].items()}
    )


def measure(files: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Run files of tests as `make test` does, with coverage, and return the fields of `Reach` for each.

    It takes about twice as long as without.
    """
    print(f"measures which functions the tests of {len(files)} files reach", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "COVERAGE_FILE": f"{folder}/data", TIMES: folder,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
        }  # fmt: skip
        command = [sys.executable, "-m", "coverage"]
        options = ["-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "reach"]
        status = subprocess.run(
            [*command, "run", "-m", "pytest", *options, *files],
            cwd=ROOT,
            env=environment,
            stdout=sys.stderr,
            check=False,
        ).returncode
        if status not in (0, 1, 5):  # tests passed, tests failed, all are of the soak
            raise SystemExit(f"The reach of the tests is not measured: pytest ends with {status}, see above.")
        subprocess.run([*command, "combine", "-q"], cwd=ROOT, env=environment, check=status != 5)
        reached = _reached(Path(folder, "data")) if Path(folder, "data").is_file() else {}
        times_s = json.loads(Path(folder, "times.json").read_text(encoding="utf-8"))
    return _by_file(files, reached, times_s)


def _by_file(
    files: Sequence[str], reached: Mapping[str, Collection[str]], times_s: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """Return the tests of each file, the functions that they reach, and their times."""
    functions: dict[str, dict[str, list[str]]] = {file: {} for file in files}
    for function, tests in reached.items():
        for test in tests:
            functions[test.split("::")[0]].setdefault(function, []).append(test)
    times: dict[str, dict[str, float]] = {file: {} for file in files}
    for test, time_s in times_s.items():
        times[test.split("::")[0]][test] = time_s
    return {file: _of_file(functions[file], times[file]) for file in files}


def _of_file(functions: Mapping[str, Collection[str]], times_s: Mapping[str, float]) -> dict[str, Any]:
    """Return the fields of `Reach` for the tests of one file."""
    names = sorted(set().union(*functions.values()))
    numbers = {name: number for number, name in enumerate(names)}
    return {
        "tests": names,
        "functions": {function: sorted(map(numbers.__getitem__, of)) for function, of in functions.items()},
        "times_s": times_s,
    }


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
