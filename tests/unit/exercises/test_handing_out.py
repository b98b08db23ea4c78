"""Chapters handed out to a class, without their solutions."""

from __future__ import annotations

import ast
import re
import shutil
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


def list_bound_and_used_names(cells):
    """Return the names that cells bind, and those that they look up."""
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    statements = [_statement(node, "") for source in code for node in ast.parse(source).body]
    return {name for statement in statements for name in statement.binds}, {
        name for statement in statements for name in statement.names
    }


def test_only_solutions_are_removed(chapter):
    original = nbformat.read(chapter, as_version=4)
    handed_out = without_solutions(nbformat.read(chapter, as_version=4))
    text = "\n".join(cell.source for cell in handed_out.cells)
    assert "A solution" not in text
    assert text.count("<details>") == text.count("<summary>Hint</summary>") + text.count(
        "<summary>For readers"
    )
    assert text.count("<details>") == text.count("</details>")
    solutions = [cell for cell in original.cells if SOLUTION in cell.metadata.get("tags", [])]
    assert len(handed_out.cells) == len(original.cells) - len(solutions)
    assert "## Exercise" in text
    if not solutions:
        return
    after = original.cells[original.cells.index(solutions[0]) :]
    after = [cell for cell in after if SOLUTION not in cell.metadata.get("tags", [])]
    # Later cells do not use names that only solutions bind.
    assert (
        not (list_bound_and_used_names(solutions)[0] - list_bound_and_used_names(handed_out.cells)[0])
        & list_bound_and_used_names(after)[1]
    )


def test_starter_defines_the_function_to_write(chapter):
    if chapter.stem in EXERCISES:
        handed_out = without_solutions(nbformat.read(chapter, as_version=4))
        assert f"def {EXERCISES[chapter.stem].piece()}(" in "\n".join(
            cell.source for cell in handed_out.cells
        )
        assert EXERCISES[chapter.stem].piece() in read_source(chapter).functions


def test_changed_copies_are_kept(tmp_path):
    folder = hand_out(CHAPTERS, tmp_path / "chapters")
    assert {file.name for file in folder.glob("*")} == {
        ".handed_out.json",
        *(file.name for file in CHAPTERS.glob("[0-9]*.ipynb")),
    }
    student_copy = folder / "00_start_here.ipynb"
    student_copy.write_text("mine", encoding="utf-8")
    (folder / "01_mud_tables.ipynb").unlink()
    hand_out(CHAPTERS, folder)
    assert student_copy.read_text(encoding="utf-8") == "mine"
    assert (folder / "01_mud_tables.ipynb").exists()


@pytest.mark.parametrize("solutions", [False, True])
def test_unchanged_copies_follow_the_chapters(tmp_path, solutions):
    chapters, folder = tmp_path / "notebooks", tmp_path / "class" / "work"
    chapters.mkdir()
    for name in ("00_start_here.ipynb", "01_mud_tables.ipynb"):
        shutil.copy(CHAPTERS / name, chapters / name)
    hand_out(chapters, folder, solutions=solutions)
    assert ("A solution" in (folder / "00_start_here.ipynb").read_text(encoding="utf-8")) == solutions
    student_copy = folder / "01_mud_tables.ipynb"
    changed_text = student_copy.read_text(encoding="utf-8") + " "
    student_copy.write_text(changed_text, encoding="utf-8")
    for file in chapters.iterdir():
        file.write_text(file.read_text(encoding="utf-8").replace("# ", "# Newer: ", 1), encoding="utf-8")
    for _ in range(2):
        hand_out(chapters, folder, solutions=solutions)
        assert "# Newer: " in (folder / "00_start_here.ipynb").read_text(encoding="utf-8")
        assert student_copy.read_text(encoding="utf-8") == changed_text


@pytest.mark.parametrize("note", [None, "", "[]", '{"00_start_here.ipynb": 3}'])
def test_copy_without_a_record_is_kept(tmp_path, note):
    copy = tmp_path / "work" / "00_start_here.ipynb"
    copy.parent.mkdir()
    copy.write_text("mine", encoding="utf-8")
    if note is not None:
        (copy.parent / ".handed_out.json").write_text(note, encoding="utf-8")
    hand_out(CHAPTERS, copy.parent, solutions=True)
    assert copy.read_text(encoding="utf-8") == "mine"


def test_samples_are_copied(tmp_path):
    hand_out(CHAPTERS, tmp_path / "class" / "chapters")
    sample_paths = set()
    for file in (tmp_path / "class" / "chapters").iterdir():
        sample_paths |= set(re.findall(r'\\"(\.\./[^"]+)\\"', file.read_text(encoding="utf-8")))
        assert all((file.parent / sample_path).is_file() for sample_path in sample_paths), sample_paths
    assert "../data/sample/picu.yaml" in sample_paths
    sample = tmp_path / "class" / "data" / "sample" / "picu.yaml"
    sample.write_text("mine", encoding="utf-8")
    hand_out(CHAPTERS, tmp_path / "class" / "chapters")
    assert sample.read_text(encoding="utf-8") == "mine"


def test_package_contains_the_samples_of_its_chapters():
    package = Path(mudkit.__file__).parent
    assert (package / "notebooks" / "07_stateful_policies.ipynb").is_file()
    assert (package / "data" / "sample" / "picu.yaml").is_file()


@pytest.mark.parametrize(
    ("folder", "problem"), [("none", "no folder of chapters"), (".", "no chapters to hand out")]
)
def test_missing_chapters_are_refused(tmp_path, folder, problem):
    with pytest.raises(InputMissing, match=problem):
        hand_out(tmp_path / folder, tmp_path / "copies")
    assert not (tmp_path / "copies").exists()
