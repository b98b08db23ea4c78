"""Parameters of chapters: a value out of its range is refused by the name that it has in its cell."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from mudkit.errors import ParameterError
from mudkit.exercises import EXERCISES, check_parameters
from mudkit.exercises.parameters import RANGES

CHAPTERS = Path(__file__).parents[3] / "notebooks"


def read_code(chapter: str) -> list[Any]:
    notebook = nbformat.read(CHAPTERS / f"{chapter}.ipynb", as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def defaults_of(chapter: str) -> dict[str, Any]:
    (cell,) = (cell for cell in read_code(chapter) if "parameters" in cell.metadata.get("tags", []))
    statements = ast.parse(cell.source).body
    return {node.targets[0].id: ast.literal_eval(node.value) for node in statements}  # type: ignore[attr-defined]


@pytest.mark.parametrize("chapter", EXERCISES)
def test_each_number_of_a_chapter_is_checked_first(chapter: str) -> None:
    defaults = defaults_of(chapter)
    numbers = {name for name, value in defaults.items() if not isinstance(value, str)}
    assert set(RANGES[chapter]) == numbers
    check_parameters(chapter, defaults)
    code = [cell.source for cell in read_code(chapter)]
    (place,) = (place for place, source in enumerate(code) if "check_parameters(" in source)
    assert code[place].startswith(f'exercises.check_parameters("{chapter}", globals())\n')
    assert place <= 3
    used = {
        node.id
        for source in code[2:place]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name)
    }
    assert not used & set(defaults)


@pytest.mark.parametrize("chapter", RANGES)
def test_values_out_of_range_are_refused_by_name(chapter: str) -> None:
    defaults = defaults_of(chapter)
    for name, (low, high) in RANGES[chapter].items():
        top = defaults[high] if isinstance(high, str) else high
        step = 1 if isinstance(low, int) else 1e-3
        for value in (
            low - step,
            top + max(step, abs(top) * 1e-6) if step != 1 else top + 1,
            "many",
            None,
            True,
        ):
            with pytest.raises(ParameterError, match=rf"parameter {name} .*\n  where: +{name}\n") as caught:
                check_parameters(chapter, defaults | {name: value})
            assert "expected" in str(caught.value)


@pytest.mark.parametrize(
    ("chapter", "name", "value"),
    [
        ("00_start_here", "seed", -1),
        ("02_writer_predicates", "seed", 1.5),
        ("03_fork_sequential_views", "cut_minutes", 100.0),
        ("04_last_hop", "prefetch_limit", "many"),
        ("05_sender_filters", "friends", 0),
        ("05_sender_filters", "photo_bytes", -1),
        ("06_context_propagation", "near_km", -1.0),
        ("07_stateful_policies", "charge", 150.0),
        ("07_stateful_policies", "hours", 300.0),
        ("07_stateful_policies", "every_s", 0.5),
        ("07_stateful_policies", "alarms_per_day", 2000.0),
        ("07_stateful_policies", "alarm_minutes", 0.0),
        ("07_stateful_policies", "range_m", 0.0),
        ("09_cache_policies", "towns", 100),
    ],
)
def test_values_that_passed_are_refused(chapter: str, name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=re.escape(f"found:    {value!r}")):
        check_parameters(chapter, defaults_of(chapter) | {name: value})


def test_unknown_chapter_is_refused() -> None:
    with pytest.raises(ParameterError, match="did you mean '04_last_hop'"):
        check_parameters("4_last_hop", {})
