"""Run times that chapters and their pages for lecturers state."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("stated", "measured_s", "expected"),
    [
        (15, 14.0, 15),
        (15, 19.9, 15),
        (15, 20.1, 25),
        (10, 6.0, 10),
        (20, 41.0, 45),
        (5, 0.2, 5),
        (10, 14.8, 15),
    ],
)
def test_run_time_is_corrected_if_off_by_more_than_a_third(tool, stated, measured_s, expected):
    text = "Before: 04. Run time: about {} seconds; each point is a year."
    assert tool.state(text.format(stated), measured_s) == text.format(expected)
    lecturer_text = "The\nchapter runs in about\n{} seconds."
    assert tool.state(lecturer_text.format(stated), measured_s) == lecturer_text.format(expected)


def test_chapters_and_lecturer_pages_state_the_same_run_time(tool):
    for file in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        first = nbformat.read(file, as_version=4).cells[0].source
        page = (ROOT / "docs" / "teaching" / f"{file.stem}.md").read_text()
        assert tool.STATED.search(page)[2] == tool.STATED.search(first)[2], file.name
        assert all(f"## {part}" in page for part in ("What to ask, and expected answers", "What goes wrong"))
        assert f"\n{file.stem}\n" in (ROOT / "docs" / "teaching" / "index.md").read_text()


def test_notebooks_are_read_without_compiling_a_grammar():
    """Newer validators of JSON compile a grammar of addresses at import, 1.5 s of each process (pyproject.toml)."""
    assert "rfc3987_syntax" not in sys.modules, "nbformat imports what the lock file has not"
