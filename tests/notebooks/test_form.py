"""The chapters follow one form: what the first cell says, and where the last one leads. Nothing is run."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

CHAPTERS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]*.ipynb"))
WAYS = list(zip([None, *CHAPTERS[:-1]], CHAPTERS, [*CHAPTERS[1:], None], strict=True))


def ends(chapter):
    """Give the text of the first cell and of the last."""
    first, *_, last = nbformat.read(chapter, as_version=4).cells
    assert first.cell_type == last.cell_type == "markdown"
    return first.source, last.source


def sentences(text, label):
    """Give what stands behind a label, to the end of its line."""
    (result,) = re.findall(rf"^(?:\*\*)?{label}(?:\*\*)?: (.*)$", text, re.MULTILINE)
    return result


@pytest.fixture(params=CHAPTERS, ids=lambda file: file.stem)
def chapter(request):
    return request.param


def test_the_first_cell_has_the_number_the_question_and_three_or_four_objectives(chapter):
    title, question, *rest = [line for line in ends(chapter)[0].splitlines() if line]
    assert re.fullmatch(rf"# {chapter.stem[:2]} · .+", title)
    assert re.match(r"\*\*[^*]+\?\*\*", question)
    assert rest[0] == "You will"
    objectives = [line for line in rest if line.startswith("- ")]
    assert 3 <= len(objectives) <= 4
    assert [line[-1] for line in objectives] == [";"] * (len(objectives) - 1) + ["."]


@pytest.mark.parametrize(("before", "chapter", "after"), WAYS, ids=[each.stem for each in CHAPTERS])
def test_a_chapter_leads_to_those_beside_it(before, chapter, after):
    first, last = ends(chapter)
    expected = before.stem[:2] if before else "nothing"
    assert re.match(rf"{expected}\b", sentences(first, "Before"))
    follows = sentences(last, "Next")
    if after:
        assert follows.startswith(f"{after.stem[:2]}, ")
        # And says what it is about: with words of its question.
        question = ends(after)[0].splitlines()[2].casefold()
        words = set(re.findall(r"\w{4,}", follows.casefold()))
        assert len(words & set(re.findall(r"\w{4,}", question))) >= min(3, len(words))
    else:
        assert not re.match(r"\d", follows)
