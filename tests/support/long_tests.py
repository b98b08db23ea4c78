"""Tests that take long: their list, and which of them `make test` runs.

`tests/long_tests.txt` names functions of tests, and fixtures that several tests share, with the seconds of computing
that each takes. `make test` runs those that fit in `MAX_LONG_S`, drawn by the hash of the tree; the soak runs all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from random import Random

import pytest

MAX_LONG_S = 420.0
"""Seconds of computing for tests that take long, in `make test`."""
LIST = Path(__file__).parents[1] / "long_tests.txt"


def read_times(text: str) -> dict[str, float]:
    """Read the list: a line for each name, seconds first."""
    lines = (line.split(maxsplit=1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(seconds) for seconds, name in lines}


def draw_names(times: dict[str, float], limit_s: float, seed: str) -> set[str]:
    """Draw names until their seconds reach the limit, the same share of each file."""
    files: dict[str, list[str]] = {}
    for name in sorted(times):
        files.setdefault(file_of(name), []).append(name)
    places: list[tuple[float, str]] = []
    for file, names in files.items():
        draw = Random(f"{seed} {file}")
        first = draw.random()
        draw.shuffle(names)
        places += [((rank + first) / len(names), name) for rank, name in enumerate(names)]
    drawn, total_s = set[str](), 0.0
    for _, name in sorted(places):
        if total_s + times[name] <= limit_s:
            drawn.add(name)
            total_s += times[name]
    return drawn


def file_of(name: str) -> str:
    """Return the file of a test or fixture."""
    return name.partition("::")[0]


def function_of(item: pytest.Item) -> str:
    """Return the name of a test's function in the list, which all its cases share."""
    return item.nodeid.partition("[")[0]


def names_of(item: pytest.Item) -> set[str]:
    """Return what the list may name of a test: its function, and the fixtures that it uses."""
    fixtures = chain.from_iterable(item._fixtureinfo.name2fixturedefs.values())  # type: ignore[attr-defined]
    return {function_of(item), *(f"{fixture.baseid}::{fixture.argname}" for fixture in fixtures)}


def leave_out(items: Sequence[pytest.Item], named: Sequence[str], seed: str) -> set[pytest.Item]:
    """Return the tests that `make test` leaves out for a tree, but for those that are named on the command line."""
    times = read_times(LIST.read_text())
    files = set(map(file_of, times))
    left_out = times.keys() - draw_names(times, MAX_LONG_S, seed)
    names = tuple(name for name in named if "::" in name)
    return {
        item
        for item in items
        if file_of(item.nodeid) in files and left_out & names_of(item) and not item.nodeid.startswith(names)
    }
