"""Chains of recipients."""

from __future__ import annotations

import pytest

from mudkit.systems.radiator import Context
from mudkit.systems.radiator.chains import divide_into_chains


def build_chains(count, share, direct=(), chainability=None, **options):
    names = [f"c{number}" for number in range(count)]
    can_pass = {name: name not in direct for name in names}
    contexts = {name: Context({name}, {"place": number % 3}) for number, name in enumerate(names)}
    return divide_into_chains(names, share, can_pass, contexts.__getitem__, chainability, **options)


def test_figure_2_has_three_pushes_for_five_recipients():
    assert build_chains(5, 0.5, direct=("c0",)) == [["c0"], ["c1", "c2"], ["c3", "c4"]]


@pytest.mark.parametrize(
    ("share", "pushes", "size"),
    [(0.0, 1000, 1), (0.0002, 1000, 1), (0.01, 100, 10), (0.05, 20, 50), (1.0, 1, 1000)],
)
def test_number_of_pushes_follows_the_formula(share, pushes, size):
    result = build_chains(1000, share)
    assert len(result) == pushes
    assert max(map(len, result)) == size
    assert sorted(name for chain in result for name in chain) == sorted(
        f"c{number}" for number in range(1000)
    )


def test_no_recipients_form_no_chain():
    assert build_chains(0, 0.5) == []


def test_chainability_groups_and_orders_recipients():
    def same_place(one, other):
        return one["place"] == other["place"]

    assert build_chains(6, 0.5, chainability=same_place) == [["c0", "c3"], ["c1", "c4"], ["c2", "c5"]]

    def nearest(one, other):
        return 1 / (1 + abs(one["place"] - other["place"]))

    result = build_chains(6, 1.0, chainability=nearest)
    assert result == [["c0", "c3", "c1", "c4", "c2", "c5"]]


def test_failing_chainability_is_reported_with_its_pair():
    """The last member of the chain, and the client that might follow it."""

    def picky(one, other):
        if other["place"] == 2:
            raise ValueError("not there")
        return True

    problems = []
    assert build_chains(3, 1.0, chainability=picky, failed=problems.append) == [["c0", "c1"], ["c2"]]
    assert ["'c0' and 'c2'" in str(problems[0]), "'c1' and 'c2'" in str(problems[1])] == [True, True]
