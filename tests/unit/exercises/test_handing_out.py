"""A class gets chapters without their solutions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest

import mudkit
from mudkit.errors import InputMissing
from mudkit.exercises import EXERCISES
from mudkit.exercises.handing_out import SOLUTION, hand_out, without_solutions
from mudkit.exercises.pieces import _statement, read_source

CHAPTERS = Path(__file__).parents[3] / "notebooks"


@pytest.fixture(params=sorted(CHAPTERS.glob("[0-9]*.ipynb")), ids=lambda file: file.stem)
def chapter(request):
    return request.param


def bound_and_named(cells):
    """Give the names that cells bind, and those that they look up."""
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    found = [_statement(node, "") for source in code for node in ast.parse(source).body]
    return {name for each in found for name in each.binds}, {name for each in found for name in each.names}


def test_no_solution_is_left_and_nothing_else_is_gone(chapter):
    whole = nbformat.read(chapter, as_version=4)
    given = without_solutions(nbformat.read(chapter, as_version=4))
    text = "\n".join(cell.source for cell in given.cells)
    assert "A solution" not in text
    assert "</details>" not in text
    gone = [cell for cell in whole.cells if SOLUTION in cell.metadata.get("tags", [])]
    assert gone
    assert len(given.cells) == len(whole.cells) - len(gone)
    assert "## Exercises" in text
    after = whole.cells[whole.cells.index(gone[0]) :]
    after = [cell for cell in after if SOLUTION not in cell.metadata.get("tags", [])]
    # What follows does not need what a solution has made.
    assert not (bound_and_named(gone)[0] - bound_and_named(given.cells)[0]) & bound_and_named(after)[1]


def test_what_is_to_be_written_is_there_to_begin_with(chapter):
    if chapter.stem in EXERCISES:
        given = without_solutions(nbformat.read(chapter, as_version=4))
        assert f"def {EXERCISES[chapter.stem].piece()}(" in "\n".join(cell.source for cell in given.cells)
        assert EXERCISES[chapter.stem].piece() in read_source(chapter).functions


def test_a_reader_keeps_what_she_wrote(tmp_path):
    folder = hand_out(CHAPTERS, tmp_path / "chapters")
    assert {file.name for file in folder.iterdir()} == {file.name for file in CHAPTERS.glob("[0-9]*.ipynb")}
    mine = folder / "00_start_here.ipynb"
    mine.write_text("mine", encoding="utf-8")
    (folder / "01_mud_tables.ipynb").unlink()
    hand_out(CHAPTERS, folder)
    assert mine.read_text(encoding="utf-8") == "mine"
    assert (folder / "01_mud_tables.ipynb").exists()


def test_what_chapters_read_comes_along(tmp_path):
    hand_out(CHAPTERS, tmp_path / "class" / "chapters")
    named = set()
    for file in (tmp_path / "class" / "chapters").iterdir():
        named |= set(re.findall(r'\\"(\.\./[^"]+)\\"', file.read_text(encoding="utf-8")))
        assert all((file.parent / each).is_file() for each in named), named
    assert "../data/sample/picu.yaml" in named
    sample = tmp_path / "class" / "data" / "sample" / "picu.yaml"
    sample.write_text("mine", encoding="utf-8")
    hand_out(CHAPTERS, tmp_path / "class" / "chapters")
    assert sample.read_text(encoding="utf-8") == "mine"


def test_the_package_has_what_its_chapters_read():
    package = Path(mudkit.__file__).parent
    assert (package / "notebooks" / "07_stateful_policies.ipynb").is_file()
    assert (package / "data" / "sample" / "picu.yaml").is_file()


def test_chapters_that_are_not_there_are_told(tmp_path):
    with pytest.raises(InputMissing, match="no folder of chapters"):
        hand_out(tmp_path / "none", tmp_path / "chapters")


def test_a_folder_without_chapters_is_not_handed_out(tmp_path):
    with pytest.raises(InputMissing, match="no chapter to hand out"):
        hand_out(tmp_path, tmp_path / "copies")
    assert not (tmp_path / "copies").exists()
