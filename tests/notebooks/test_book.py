"""The book: chapters run, pages open by themselves and lead to each other."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mudkit.errors import InputMissing, OutputExists
from mudkit.report.book import ChapterFailed, make_book

pytestmark = pytest.mark.notebook


@pytest.fixture
def chapters(tmp_path):
    files = []
    for number, code in enumerate(
        ("print('ready'[::-1])", "from pathlib import Path\nprint(Path().absolute().name)")
    ):
        cells = [
            new_markdown_cell(f"# 0{number} · Part\n\n**What is it?**\n\nYou will see."),
            new_code_cell(code),
        ]
        file = tmp_path / "chapters" / f"0{number}_part.ipynb"
        file.parent.mkdir(exist_ok=True)
        nbformat.write(new_notebook(cells=cells), file)
        files.append(file)
    return files


def test_a_book_is_made_and_made_again(chapters, tmp_path):
    index = make_book(chapters, tmp_path / "book")
    assert make_book(chapters, tmp_path / "book") == index
    pages = {file.name: file.read_text(encoding="utf-8") for file in index.parent.iterdir()}
    assert set(pages) == {"00_part.html", "01_part.html", "index.html"}
    assert "ydaer" in pages["00_part.html"]  # what ran, not what was written
    assert "chapters" in pages["01_part.html"]
    for text in ("00 · Part", "01 · Part", "What is it?"):
        assert text in pages["index.html"]
    for name, page in pages.items():
        links = re.findall(r'href="([^"#]+)"', page)
        assert set(links) <= set(pages), name
        assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    assert 'href="01_part.html"' in pages["00_part.html"]
    assert 'href="00_part.html"' in pages["01_part.html"]


@pytest.mark.soak
def test_a_chapter_that_fails_leaves_what_was_there(chapters, tmp_path):
    index = make_book(chapters[:1], tmp_path / "book")
    notebook = nbformat.read(chapters[1], as_version=4)
    notebook.cells.append(new_code_cell("1 / 0"))
    nbformat.write(notebook, chapters[1])
    before = index.read_text(encoding="utf-8")
    with pytest.raises(ChapterFailed, match=r"(?s)01_part\.ipynb.*ZeroDivisionError"):
        make_book(chapters, tmp_path / "book")
    assert index.read_text(encoding="utf-8") == before
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_what_is_no_book_is_not_replaced(chapters, tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(OutputExists, match=r"thesis\.tex"):
        make_book(chapters[:1], tmp_path / "book")


def test_a_book_has_chapters(tmp_path):
    with pytest.raises(InputMissing, match="no chapter"):
        make_book([], tmp_path / "book")
    assert not (tmp_path / "book").exists()
