"""What chapters show and say: a bill, one way to name rules, one zone, and starters that solve nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest

from mudkit.exercises.handing_out import SOLUTION

CHAPTERS = Path(__file__).parents[3] / "notebooks"
FILES = sorted(CHAPTERS.glob("[0-9]*.ipynb"))


def cells(name, kind="code"):
    (file,) = CHAPTERS.glob(f"{name}*.ipynb")
    return [each for each in nbformat.read(file, as_version=4).cells if each.cell_type == kind]


def lines(source):
    """Give the statements of all functions of a cell, each without its blocks."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    bodies = [each for function in functions for each in ast.walk(function) if isinstance(each, ast.stmt)]
    return [ast.unparse(each).split("\n")[0] for each in bodies if not isinstance(each, ast.FunctionDef)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_starter_is_not_half_of_the_solution(file):
    """What is to be written is written by the reader: of a solution of some lines, hardly one is there."""
    code = [each for each in nbformat.read(file, as_version=4).cells if each.cell_type == "code"]
    judged = [each for each in code if "judge(" in each.source]
    solutions = [each for each in judged if SOLUTION in each.metadata.get("tags", [])]
    starters = [each for each in judged if SOLUTION not in each.metadata.get("tags", [])]
    given = {line for each in starters for line in lines(each.source)}
    for each in solutions:
        tree = ast.walk(ast.parse(each.source))
        assert any(isinstance(node, ast.FunctionDef | ast.Lambda) for node in tree), "only constants change"
        written = lines(each.source)
        if len(written) >= 4:
            assert len(given.intersection(written)) <= len(written) / 3, sorted(given.intersection(written))


def test_the_first_chapter_shows_its_bill():
    shown = [ast.unparse(each) for cell in cells("00") for each in ast.parse(cell.source).body]
    assert any(re.match(r"(display\()?show\(.*\.bill", each) for each in shown)


def test_the_sample_of_who_is_meant_has_both_answers():
    (sample,) = (each for each in cells("02") if 'moved["write"] == 1' in each.source)
    assert 'groupby("state")' in sample.source


def test_rules_are_named_in_one_way():
    text = "\n".join(each.source for kind in ("code", "markdown") for each in cells("07", kind))
    assert not re.search(r"\b[Rr]ule [0-9]", text)
    assert "enumerate(picu.rules" not in text


def test_chapters_use_one_time_zone():
    for each in cells("08"):
        for call in re.findall(
            r"\b(?:FleetMap|cells_over_time|rows_over_time|rows_by_time)\([^\n]*", each.source
        ):
            assert "tz=tz" in call, call
