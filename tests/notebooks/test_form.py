"""A chapter names the one before it and the one after it, and its drawings fit. Nothing is run."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

CHAPTERS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]*.ipynb"))
MAX_DRAWING = 58
"""Characters that are as wide as a cell on 1024 pixels, beside the file browser."""
WAYS = list(zip([None, *CHAPTERS[:-1]], CHAPTERS, [*CHAPTERS[1:], None], strict=True))


def ends(chapter):
    """Return the text of the first cell and of the last."""
    first, *_, last = nbformat.read(chapter, as_version=4).cells
    assert first.cell_type == last.cell_type == "markdown"
    return first.source, last.source


def sentences(text, label):
    """Return what stands behind a label, to the end of its line."""
    (result,) = re.findall(rf"^(?:\*\*)?{label}(?:\*\*)?: (.*)$", text, re.MULTILINE)
    return result


@pytest.mark.parametrize(("before", "chapter", "after"), WAYS, ids=[each.stem for each in CHAPTERS])
def test_a_chapter_leads_to_those_beside_it(before, chapter, after):
    first, last = ends(chapter)
    expected = before.stem[:2] if before else "nothing"
    assert re.match(rf"{expected}\b", sentences(first, "Before"))
    assert re.match(rf"# {chapter.stem[:2]} · .+", first)
    expected = rf"{after.stem[:2]}, " if after else r"\D"
    assert re.match(expected, sentences(last, "Next"))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=[each.stem for each in CHAPTERS])
def test_a_drawing_is_not_broken_into_lines_on_a_small_screen(chapter):
    texts = [
        cell.source for cell in nbformat.read(chapter, as_version=4).cells if cell.cell_type == "markdown"
    ]
    drawings = re.findall(r"^```(\w*)\n(.*?)^```$", "\n".join(texts), re.MULTILINE | re.DOTALL)
    lines = [line for language, drawing in drawings if not language for line in drawing.splitlines()]
    assert [line for line in lines if len(line) > MAX_DRAWING] == []
