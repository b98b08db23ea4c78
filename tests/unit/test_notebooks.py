"""The run time that a chapter states is one that was measured."""

from __future__ import annotations

import importlib.util
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
    ("stated", "took_s", "said"),
    [
        (15, 14.0, 15),
        (15, 19.9, 15),
        (15, 20.1, 20),
        (10, 6.0, 5),
        (20, 41.0, 40),
        (5, 0.2, 5),
        (10, 14.8, 15),
    ],
)
def test_a_run_time_is_mended_when_it_is_off_by_more_than_a_third(tool, stated, took_s, said):
    text = "Before: 04. Run time: about {} seconds; each point is a year."
    assert tool.state(text.format(stated), took_s) == text.format(said)


def test_each_chapter_states_one_that_the_tool_can_mend(tool):
    for file in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        first = nbformat.read(file, as_version=4).cells[0].source
        assert tool.STATED.search(first), file.name
