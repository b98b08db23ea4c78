"""Texts about rows that were not measured."""

from types import SimpleNamespace

import pytest

from mudkit.reproduce.table import left_out


def make_row(name, is_speed):
    return SimpleNamespace(name=name, is_speed=is_speed, minutes=2.0)


PLAIN, OTHER, FAST = make_row("P1", False), make_row("P2", False), make_row("S1", True)


@pytest.mark.parametrize(
    ("measured", "lines"),
    [
        ([PLAIN, OTHER, FAST], ["No row is left out."]),
        ([PLAIN], ["Left out: P2 (2 min)", "Left out, of speed: S1 (2 min)"]),
        ([PLAIN, OTHER], ["Left out, of speed: S1 (2 min)"]),
        ([FAST], ["Left out: P1 (2 min), P2 (2 min)"]),
    ],
)
def test_rows_that_were_not_measured_are_named_those_of_speed_apart(measured, lines):
    results = [SimpleNamespace(row=row) for row in measured]
    text = left_out(results, [PLAIN, OTHER, FAST]).splitlines()
    assert text[: len(lines)] == lines
    rest = [row.name for row in (PLAIN, OTHER, FAST) if row not in measured]
    assert text[len(lines) :] == [f"mudkit reproduce {name} measures one of them." for name in rest[:1]]
