"""The tool of ``make mutants``: what it changes, and what counts as noticed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
TOOL = Path(__file__).parent

MODULE = '''"""A module."""

def begin():
    if not __name__.endswith(".rules"):
        raise ImportError
    return 1

STATE = begin()

def clip(value, high=9):
    """Return a value of at most 9."""
    if value > high:
        raise ValueError(f"{value} is over {9}")
    return min(value, high)

def wait(ends):
    """Return after a while."""
    count = 0
    while count != ends:
        count += 1
    return count

def fill(ends):
    """Return a list that grows."""
    count, rows = 0, []
    while count != ends:
        count += 1
        rows.append(bytearray(1 << 26))
    return rows

def unseen(value):
    """Return whether a value is small."""
    return value < 5

def far(value):
    """Return whether a value is large, which tests of another folder notice."""
    return value > 5

def pair(first, second):
    """Return pairs of rows, which are as many."""
    return dict(zip(first, second, strict=True))
'''
LINKED = '''"""A module in a folder that is a link."""

def near(value):
    """Return whether a value is small, which tests of another folder notice."""
    return value < 5

def apart(value):
    """Return whether a value is small, which a process notices."""
    return value < 5
'''
WIDE = """import subprocess
import sys

from {package}.linked.rules import near
from {package}.part.rules import far

def test_five():
    assert not far(5)

def test_five_is_not_near():
    assert not near(5)

def test_process_in_this_folder():
    code = "from {package}.linked.rules import apart; assert not apart(5)"
    subprocess.run([sys.executable, "-c", code], check=True)
"""
SETTINGS = """
[tool.pytest.ini_options]
addopts = "--import-mode=importlib -p no:nbval"

[tool.coverage.run]
source_pkgs = ["mudkit"]
parallel = true
patch = ["subprocess"]
"""
TESTS = """import pytest
from {package}.part.rules import STATE, clip, fill, unseen, wait

def test_clip():
    assert clip(8) == 8

def test_wait():
    assert wait(2) == 2

def test_fill():
    assert len(fill(1)) == 1

def test_state():
    assert STATE == 1

@pytest.mark.parametrize("value", [1], ids=["1|a name like those of contexts"])
def test_unseen(value):
    assert unseen(value)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a small project with a copy of the tool."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(
        TOOL, folder / "tests" / "mutants", ignore=shutil.ignore_patterns("test_*", "__pycache__")
    )
    files = {
        "mudkit/__init__.py": "",
        "mudkit/part/__init__.py": "",
        "mudkit/part/rules.py": MODULE,
        "linked/__init__.py": "",
        "linked/rules.py": LINKED,
        "tests/unit/part/test_rules.py": TESTS.format(package="mudkit"),
        "tests/wide/test_far.py": WIDE.format(package="mudkit"),
        "pyproject.toml": SETTINGS,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "mudkit" / "linked").symlink_to("../linked")
    return folder


def run_tool(project, *arguments):
    """Run the tool in a project; return its exit status and lines."""
    command = [sys.executable, "tests/mutants", *arguments]
    process = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    return process.returncode, process.stdout.splitlines()


def test_bodies_of_functions_are_changed_but_no_texts_of_errors_and_no_assertions(project):
    _, lines = run_tool(project, "part", "--all", "--list")
    assert [line.split(": ", 2)[1:] for line in lines] == [
        ["begin", "not __name__.endswith('.rules') -> __name__.endswith('.rules')  (line 4)"],
        ["begin", "1 -> 2  (line 6)"],
        ["clip", "value > high -> value <= high  (line 12)"],
        ["clip", "value > high -> value >= high  (line 12)"],
        ["clip", "min(value, high) -> max(value, high)  (line 14)"],
        ["wait", "count != ends -> count == ends  (line 19)"],
        ["wait", "0 -> 1  (line 18)"],
        ["wait", "1 -> 2  (line 20)"],
        ["wait", "count += 1 -> count -= 1  (line 20)"],
        ["wait", "count += 1 -> pass  (line 20)"],
        ["fill", "count != ends -> count == ends  (line 26)"],
        ["fill", "(0, []) -> (1, [])  (line 25)"],
        ["fill", "1 -> 2  (line 27)"],
        ["fill", "1 << 26 -> 2 << 26  (line 28)"],
        ["fill", "1 << 26 -> 1 << 27  (line 28)"],
        ["fill", "count += 1 -> count -= 1  (line 27)"],
        ["fill", "count += 1 -> pass  (line 27)"],
        ["fill", "rows.append(bytearray(1 << 26)) -> pass  (line 28)"],
        ["unseen", "value < 5 -> value >= 5  (line 33)"],
        ["unseen", "value < 5 -> value <= 5  (line 33)"],
        ["unseen", "value < 5 -> value < 6  (line 33)"],
        ["far", "value > 5 -> value <= 5  (line 37)"],
        ["far", "value > 5 -> value >= 5  (line 37)"],
        ["far", "value > 5 -> value > 6  (line 37)"],
    ]


def test_listed_survivors_are_changes_of_the_code_as_it_is(monkeypatch):
    monkeypatch.syspath_prepend(TOOL)
    changes = import_module("changes")
    rows = tomllib.loads((TOOL / "survivors.toml").read_text())["survivor"]
    kept = {(row["module"], row["function"]): set() for row in rows}
    for module, function in kept:
        for mutant in changes.list_mutants(module, changes.KINDS, function):
            kept[module, function].add((mutant.before, mutant.after, mutant.nth))
    assert [
        row
        for row in rows
        if (row["before"], row["after"], row.get("nth", 1)) not in kept[row["module"], row["function"]]
    ] == []


@pytest.mark.soak(keep=2, group="trials")
def test_survivors_are_named_unless_they_are_listed(project):
    survivors = project / "tests" / "mutants" / "survivors.toml"
    survivors.write_text("")
    chosen = "part", "--only", ": unseen", "--kinds", "boundary", "number", "comparison"
    status, lines = run_tool(project, *chosen)
    assert (status, lines) == (
        1,
        [
            "part: 1 of 3 noticed (33 %); 0 of the others are no mistakes, 2 survive",
            "survives and is not listed: part.rules: unseen: value < 5 -> value <= 5  (mudkit/part/rules.py:33)",
            "survives and is not listed: part.rules: unseen: value < 5 -> value < 6  (mudkit/part/rules.py:33)",
        ],
    )
    row = (
        '[[survivor]]\nmodule = "part.rules"\nfunction = "unseen"\nbefore = "value < 5"\nwhy = "odd values"\n'
    )
    survivors.write_text("".join(f'{row}after = "value {after}"\n' for after in ("<= 5", "< 6", ">= 5")))
    status, lines = run_tool(project, *chosen)
    assert (status, lines) == (
        1,
        [
            "part: 1 of 3 noticed (33 %); 2 of the others are no mistakes, 0 survive",
            "is listed as a survivor, and was noticed: part.rules: unseen: value < 5 -> value >= 5 "
            "(tests/unit/part/test_rules.py::test_unseen[1|a name like those of contexts])",
        ],
    )


@pytest.mark.soak(keep=2, group="trials")
@pytest.mark.parametrize(
    ("package", "function", "kind", "by"),
    [
        ("part", "far", "boundary", ["tests/wide/test_far.py::test_five"]),
        ("part", "begin", "condition", ["tests/unit/part/test_rules.py cannot be imported"]),
        (
            "linked",
            "",
            "boundary",
            [
                f"tests/wide/test_far.py::test_{name}"
                for name in ("five_is_not_near", "process_in_this_folder")
            ],
        ),
    ],
)
def test_other_folders_processes_and_broken_imports_notice(project, package, function, kind, by):
    (project / "tests" / "mutants" / "survivors.toml").write_text("")
    status, lines = run_tool(project, package, "--only", f"{package}.rules: {function}", "--kinds", kind)
    assert (status, lines[0].split(" (")[0]) == (0, f"{package}: {len(by)} of {len(by)} noticed")
    noticed = json.loads((project / "build" / "mutants" / "results.json").read_text())
    assert sorted(test for name, test in noticed.items() if f" {package}.rules: {function}" in name) == by


@pytest.mark.soak(keep=2, group="trials")
def test_new_tests_notice(project):
    (project / "tests" / "mutants" / "survivors.toml").write_text("")
    with (project / "tests" / "unit" / "part" / "test_rules.py").open("a") as file:
        file.write("\ndef test_five():\n    assert not unseen(5)\n")
    status, lines = run_tool(
        project, "part", "--only", ": unseen", "--kinds", "boundary", "number", "comparison"
    )
    assert (status, lines[0].split("; ")[0]) == (0, "part: 3 of 3 noticed (100 %)")


@pytest.mark.soak(keep=2, group="trials")
def test_files_that_import_the_package_are_measured_and_again_when_they_change(project):
    file, other = "tests/wide/test_far.py", "tests/unit/part/test_rules.py"
    (project / "build" / "mutants" / "reach_by_file.json").unlink(missing_ok=True)
    (project / "tests" / "wide" / "test_alone.py").write_text("def test_nothing():\n    pass\n")
    chosen = "--only", ".rules: near", "--kinds", "comparison", "--again"
    run_tool(project, "linked", *chosen)
    measured = project / "build" / "mutants" / "reach_by_file.json"
    assert json.loads(measured.read_text()).keys() == {file}
    run_tool(project, "part", "--only", ": clip", "--kinds", "extreme", "--again")
    before = json.loads(measured.read_text())
    assert before.keys() == {file, other}
    with (project / other).open("a") as tests:
        tests.write("\ndef test_new():\n    assert clip(7) == 7\n")
    run_tool(project, "part", "--only", ": clip", "--kinds", "extreme", "--again")
    after = json.loads(measured.read_text())
    assert after[file] == before[file]  # with the times of its tests
    assert {*after[other]["times_s"]} - {*before[other]["times_s"]} == {f"{other}::test_new"}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("function", "kind", "why"), [("wait", "dropped", "does not end"), ("fill", "arithmetic", "takes over")]
)
def test_endless_and_greedy_mutants_are_ended_and_noticed(project, function, kind, why):
    (project / "tests" / "mutants" / "survivors.toml").write_text("")
    status, lines = run_tool(project, "part", "--only", f": {function}", "--kinds", kind)
    assert (status, lines[0].split("; ")[0]) == (0, "part: 1 of 1 noticed (100 %)")
    assert why in (project / "build" / "mutants" / "results.json").read_text()
