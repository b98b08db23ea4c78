"""Tests that take long, of which `make test` runs a part."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from long_tests import LIST, MAX_LONG_S, draw_names, read_times

TIMES = st.dictionaries(
    st.builds("tests/{}.py::test_{}".format, st.sampled_from("abc"), st.integers(0, 30)),
    st.floats(0.5, 50.0),
    max_size=40,
)


@given(TIMES, st.floats(0.0, 400.0), st.text(max_size=4))
def test_drawn_tests_fit_in_the_time_and_no_other_would(times, limit_s, seed):
    drawn = draw_names(times, limit_s, seed)
    total_s = sum(times[name] for name in drawn)
    assert total_s <= limit_s + 1e-6
    assert all(total_s + times[name] > limit_s - 1e-6 for name in times.keys() - drawn)
    assert draw_names(times, limit_s, seed) == drawn


def test_each_file_has_the_same_share_and_each_test_its_turn():
    times = {f"tests/{file}.py::test_{number}": 1.0 for file in "abcd" for number in range(10)}
    turns = [draw_names(times, 20.0, str(seed)) for seed in range(40)]
    for drawn in turns:
        assert {sum(name.startswith(f"tests/{file}") for name in drawn) for file in "abcd"} <= {4, 5, 6}
    assert set.union(*turns) == times.keys()


def test_list_names_tests_and_fixtures_that_are_there(repository: Path):
    times = read_times(LIST.read_text())
    assert sum(times.values()) > MAX_LONG_S
    assert [name for name in times if not is_defined(repository, name)] == []


def is_defined(repository: Path, name: str) -> bool:
    """Return whether a file defines a function, in the classes that the name lists."""
    file, *names = name.split("::")
    scope: ast.AST = ast.parse((repository / file).read_text())
    for part in names:
        scopes = [node for node in ast.walk(scope) if getattr(node, "name", None) == part]
        if not scopes:
            return False
        scope = scopes[0]
    return True
