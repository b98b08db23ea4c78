"""Chapters: incomplete starters, the bill, names of rules, and time zones."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest

from mudkit.exercises.handing_out import SOLUTION

CHAPTERS = Path(__file__).parents[3] / "notebooks"
FILES = sorted(CHAPTERS.glob("[0-9]*.ipynb"))


def read_cells(name, kind="code"):
    (file,) = CHAPTERS.glob(f"{name}*.ipynb")
    return [cell for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == kind]


def list_statements(source):
    """Return the statements of all functions of a cell, each without its blocks."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    bodies = [
        statement
        for function in functions
        for statement in ast.walk(function)
        if isinstance(statement, ast.stmt)
    ]
    return [
        ast.unparse(statement).split("\n")[0]
        for statement in bodies
        if not isinstance(statement, ast.FunctionDef)
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_starter_has_at_most_a_third_of_the_solution(file):
    """Compare the statements of starter and solution, except for short solutions."""
    code = [cell for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "code"]
    judged = [cell for cell in code if "judge(" in cell.source]
    solutions = [cell for cell in judged if SOLUTION in cell.metadata.get("tags", [])]
    starters = [cell for cell in judged if SOLUTION not in cell.metadata.get("tags", [])]
    starter_statements = {line for cell in starters for line in list_statements(cell.source)}
    for cell in solutions:
        tree = ast.walk(ast.parse(cell.source))
        assert any(isinstance(node, ast.FunctionDef | ast.Lambda) for node in tree), "only constants change"
        statements = list_statements(cell.source)
        if len(statements) >= 4:
            assert len(starter_statements.intersection(statements)) <= len(statements) / 3, sorted(
                starter_statements.intersection(statements)
            )


def test_first_chapter_shows_its_bill():
    shown = [ast.unparse(statement) for cell in read_cells("00") for statement in ast.parse(cell.source).body]
    assert any(re.match(r"(display\()?show\(.*\.bill", statement) for statement in shown)


def test_reader_sample_is_grouped_by_state():
    (sample,) = (cell for cell in read_cells("02") if 'moved["write"] == 1' in cell.source)
    assert 'groupby("state")' in sample.source


def test_rules_are_not_named_by_number():
    text = "\n".join(cell.source for kind in ("code", "markdown") for cell in read_cells("07", kind))
    assert not re.search(r"\b[Rr]ule [0-9]", text)
    assert "enumerate(picu.rules" not in text


def test_chapter_08_uses_one_time_zone():
    for cell in read_cells("08"):
        for call in re.findall(
            r"\b(?:FleetMap|cells_over_time|rows_over_time|rows_by_time)\([^\n]*", cell.source
        ):
            assert "tz=tz" in call, call
