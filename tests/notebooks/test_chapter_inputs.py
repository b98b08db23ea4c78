"""Chapters with other parameters, without a kernel: legal ones run, illegal ones are refused."""

from __future__ import annotations

import math
import random
from ast import literal_eval
from pathlib import Path
from typing import Any

import nbformat
import pytest
from chapter_ranges import RANGES, draw_parameters
from papermill.inspection import inspect_notebook
from report_cells import run_notebook

from mudkit.errors import MudkitError

pytestmark = pytest.mark.soak
FOLDER = Path(__file__).parents[2] / "notebooks"
UNCHECKED = {
    "01_mud_tables": ["adult_years"],
    "02_writer_predicates": ["adult_years", "subscriptions"],
    "03_fork_sequential_views": ["ann", "bob", "cyd", "runs"],
    "05_sender_filters": ["photo_bytes"],
    "06_context_propagation": ["recorded", "start"],
    "08_traces_on_spark": ["access_log", "rule"],
    "09_cache_policies": ["access_log", "rule"],
    "10_write_batching": ["access_log", "rule"],
}
"""Parameters of which all values are valid, or that the defaults do not use."""
PRICES = {"stale_cost", "stale_cost_j", "stale_cost_s", "missed_cost"}
"""Weights in the chapter's own arithmetic: NaN gives no cost, and no line in the figure."""
LEGAL, ILLEGAL = 20, 200


def draw_illegal(chapter: str, dice: random.Random) -> tuple[str, Any]:
    """Draw a parameter that has a range or a list, and an illegal value of its type."""
    names = [name for name in RANGES[chapter] if name not in UNCHECKED.get(chapter, ())]
    name = dice.choice(names)
    if isinstance(RANGES[chapter][name], list):
        return name, "nowhere"
    is_whole = isinstance(RANGES[chapter][name][0], int)
    illegal = [-1e6, math.inf] if name in PRICES else [math.nan, -1e6, math.inf]
    return name, -1_000_000 if is_whole else dice.choice(illegal)


def run_chapter(chapter: str, values: dict[str, Any]) -> nbformat.NotebookNode:
    notebook = nbformat.read(FOLDER / f"{chapter}.ipynb", as_version=4)
    run_notebook(notebook, values)
    return notebook


@pytest.fixture(autouse=True)
def enter_chapter_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(FOLDER)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.parametrize("chapter", RANGES)
def test_parameters_have_a_range_of_the_type_of_the_default(chapter):
    known = inspect_notebook(str(FOLDER / f"{chapter}.ipynb"))
    assert set(RANGES[chapter]) == set(known)
    for name, allowed in RANGES[chapter].items():
        assert type(literal_eval(known[name]["default"])) is type(allowed[0]), name


@pytest.mark.parametrize("chapter", RANGES)
def test_legal_parameters_run(chapter):
    dice = random.Random(f"legal {chapter}")
    failed = []
    for _ in range(LEGAL):
        values = draw_parameters(chapter, dice)
        try:
            run_chapter(chapter, values)
        except Exception as error:
            failed.append((values, f"{type(error).__name__}: {error}"))
    assert not failed


@pytest.mark.parametrize("chapter", RANGES)
def test_illegal_parameters_are_refused(chapter):
    dice = random.Random(f"illegal {chapter}")
    unclear = []
    for _ in range(math.ceil(ILLEGAL / len(RANGES))):
        values = draw_parameters(chapter, dice)
        name, wrong = draw_illegal(chapter, dice)
        try:
            run_chapter(chapter, values | {name: wrong})
        except MudkitError as error:
            if not error.expected:
                unclear.append((name, wrong, str(error)))
        except Exception as error:
            unclear.append((name, wrong, f"{type(error).__name__}: {error}"))
        else:
            unclear.append((name, wrong, "was not refused"))
    assert not unclear
