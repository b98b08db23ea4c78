"""Links between neighbouring chapters, and widths of drawings; no chapter is run."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

CHAPTERS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]*.ipynb"))
MAX_DRAWING = 58
"""Characters that fit a cell on 1024 pixels, next to the file browser."""
NEIGHBOURS = list(zip([None, *CHAPTERS[:-1]], CHAPTERS, [*CHAPTERS[1:], None], strict=True))


def read_ends(chapter):
    """Return the texts of the first and last cell."""
    first, *_, last = nbformat.read(chapter, as_version=4).cells
    assert first.cell_type == last.cell_type == "markdown"
    return first.source, last.source


def find_sentence(text, label):
    """Return the text after a label, to the end of its line."""
    (result,) = re.findall(rf"^(?:\*\*)?{label}(?:\*\*)?: (.*)$", text, re.MULTILINE)
    return result


@pytest.mark.parametrize(("before", "chapter", "after"), NEIGHBOURS, ids=[path.stem for path in CHAPTERS])
def test_chapter_names_its_neighbours(before, chapter, after):
    first, last = read_ends(chapter)
    expected = before.stem[:2] if before else "nothing"
    assert re.match(rf"{expected}\b", find_sentence(first, "Before"))
    assert re.match(rf"# {chapter.stem[:2]} · .+", first)
    expected = rf"{after.stem[:2]}, " if after else r"\D"
    assert re.match(expected, find_sentence(last, "Next"))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_drawings_fit_a_small_screen(chapter):
    texts = [
        cell.source for cell in nbformat.read(chapter, as_version=4).cells if cell.cell_type == "markdown"
    ]
    drawings = re.findall(r"^```(\w*)\n(.*?)^```$", "\n".join(texts), re.MULTILINE | re.DOTALL)
    lines = [line for language, drawing in drawings if not language for line in drawing.splitlines()]
    assert [line for line in lines if len(line) > MAX_DRAWING] == []


SIDES = re.compile(
    r"^- \*\*(?:(?:Left|Right) of (?:the crossing|it)|On the (?:left|right)|From \w+ )", re.MULTILINE
)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_claims_about_a_crossing_name_the_defaults(chapter):
    """Check that the list of what wins on each side begins with the words that limit it."""
    texts = [
        cell.source for cell in nbformat.read(chapter, as_version=4).cells if cell.cell_type == "markdown"
    ]
    lists = [text[: match.start()] for text in texts if (match := SIDES.search(text))]
    assert [text for text in lists if "At the defaults" not in text] == []


@pytest.mark.parametrize("chapter", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_intervals_are_said_to_be_where_they_are(chapter):
    """Check that no text seeks the interval of a table in parentheses: it is in small print below its value."""
    texts = "\n".join(cell.source for cell in nbformat.read(chapter, as_version=4).cells)
    assert not re.search(
        r"parenthes[^.]*(?:interval|range over)|(?:interval|range over)[^.]*parenthes", texts
    )
