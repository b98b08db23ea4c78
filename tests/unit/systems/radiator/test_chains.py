"""Chains of recipients."""

from __future__ import annotations

import pytest

from mudkit.systems.radiator import Context
from mudkit.systems.radiator.chains import chains


def made(count, share, direct=(), chainability=None):
    names = [f"c{number}" for number in range(count)]
    can_pass = {name: name not in direct for name in names}
    contexts = {name: Context({name}, {"place": number % 3}) for number, name in enumerate(names)}
    return chains(names, share, can_pass, contexts.__getitem__, chainability)


def test_figure_2_five_recipients_of_whom_one_is_alone_take_three_pushes():
    assert made(5, 0.5, direct=("c0",)) == [["c0"], ["c1", "c2"], ["c3", "c4"]]


@pytest.mark.parametrize(
    ("share", "pushes", "size"),
    [(0.0, 1000, 1), (0.0002, 1000, 1), (0.01, 100, 10), (0.05, 20, 50), (1.0, 1, 1000)],
)
def test_the_pushes_are_those_of_the_formula(share, pushes, size):
    result = made(1000, share)
    assert len(result) == pushes
    assert max(map(len, result)) == size
    assert sorted(name for chain in result for name in chain) == sorted(
        f"c{number}" for number in range(1000)
    )


def test_nobody():
    assert made(0, 0.5) == []


def test_chainability_groups_and_orders():
    def same_place(one, other):
        return one["place"] == other["place"]

    assert made(6, 0.5, chainability=same_place) == [["c0", "c3"], ["c1", "c4"], ["c2", "c5"]]

    def nearest(one, other):
        return 1 / (1 + abs(one["place"] - other["place"]))

    result = made(6, 1.0, chainability=nearest)
    assert result == [["c0", "c3", "c1", "c4", "c2", "c5"]]
