"""Findings of rows M4 and M5, computed from outcomes; the measurements run in tests/spark."""

from __future__ import annotations

import math

import pytest
from learning_traces import build_positions, build_reads, label_by_definition

from mudkit.errors import TraceContentError
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.processes import spread_out
from mudkit.reproduce import mobius_caching
from mudkit.reproduce.mobius_caching import CARS, DAYS, M4, M5


def make_read_outcome(bound_factor, tree_factor=1.0):
    return mobius_caching._ReadOutcome(0.8, 0.1, 0.6, 0.5, bound_factor, tree_factor)


@pytest.mark.parametrize(("factor", "message"), [(1.5, "no policy can reach 4"), (4.5, "might reach 4")])
def test_read_finding_compares_the_bound_with_the_factor(factor, message):
    by_name = {
        "few cars": [make_read_outcome(1.1)],
        "many cars": [
            make_read_outcome(factor - 0.1),
            make_read_outcome(factor),
            make_read_outcome(factor + 3),
        ],
    }
    finding = mobius_caching._read_finding(by_name)
    assert f"at most {factor:.2f} times fewer queries" in finding
    assert "(many cars)" in finding
    assert message in finding


def test_write_finding_separates_bound_and_tree():
    shares = {
        name: mobius_caching._Shares(*values)
        for name, values in {
            "ten": (0.6, 1.0, 0.4),
            "thirty": (0.4, 1.0, 0.5),
            "tree": (0.2, 0.5, 0.5),
            "bound": (0.1, 0.1, 0.5),
            "strict": (0.3, 0.3, 0.0),
            "hours": (0.3, 1.0, 0.5),
        }.items()
    }
    late = {**shares, "thirty": mobius_caching._Shares(0.4, 1.0, 0.99), "hours": None}
    by_name = {"a": [mobius_caching._WriteOutcome(**shares)], "b": [mobius_caching._WriteOutcome(**late)]}
    finding = mobius_caching._write_finding(by_name)
    assert "of 1 regimes" in finding  # regimes in which nearly every read misses a write are excluded
    assert "bound 4 times fewer messages (the paper's: 3), the tree 2 times fewer messages" in finding
    assert "bound 10 times fewer points (the paper's: 7), the tree 2 times fewer points" in finding
    assert "less than half of the gap in messages in 1 of 1 regimes (median 33%)" in finding
    assert "hindsight" not in mobius_caching._write_finding({"b": by_name["b"]})
    quantities = mobius_caching._write_figures(by_name)
    assert quantities["messages, hours in hindsight, a"].median == 0.3
    assert "messages, hours in hindsight, b" not in quantities


def test_delays_by_hour_are_chosen_unless_nearly_all_reads_miss_a_write(monkeypatch):
    """The parameter of M5 about the share: where 30 min misses 95 % of the reads at most."""
    positions = build_positions(
        [(f"car-{car}", 7 * car + 10 * step, 0.0) for car in range(8) for step in range(9)]
    )
    reads = build_reads([(f"car-{car}", 20 * step, 0.0) for car in range(8) for step in range(2, 7)])
    world = Writes.of(label_by_definition(positions, reads), positions), ReadRequests.of(reads)

    def learn_nothing(*_, **__):
        raise TraceContentError("All writes are alike.")

    monkeypatch.setattr(mobius_caching, "frontier_of_writes", learn_nothing)
    monkeypatch.setattr(mobius_caching, "oracle_frontier", lambda *_: None)
    monkeypatch.setattr(mobius_caching, "interpolate_frontier", lambda *_: 0.0)
    missed = mobius_caching._write_outcome(*world).thirty.missed
    for most, is_chosen in ((missed, True), (missed - 1e-9, False)):
        monkeypatch.setattr(mobius_caching, "MAX_MISSED", most)
        assert (mobius_caching._write_outcome(*world).hours is not None) == is_chosen


def test_a_regime_in_which_nobody_reads_anothers_writes_has_no_gap_and_no_factor():
    nothing, thirty = mobius_caching._Shares(0.0, 0.0, 0.0), mobius_caching._Shares(0.4, 1.0, 0.0)
    alone = mobius_caching._WriteOutcome(thirty, thirty, thirty, nothing, nothing, nothing)
    quantities = mobius_caching._write_figures({"alone": [alone]})
    assert "share of the gap in messages closed, alone" not in quantities
    assert quantities["regimes in which less than half of the gap in messages is closed"].median == 0
    assert math.isnan(quantities["times fewer messages than with 30 min, bound, best regime"].median)
    assert "of 0 regimes" in mobius_caching._write_finding({"alone": [alone]})


@pytest.mark.parametrize(("learnt", "few"), [(0.2, 0), (0.21, 1), (0.0, 0)])
def test_half_of_the_gap_is_not_less_than_half(learnt, few):
    thirty, bound = mobius_caching._Shares(0.4, 0.4, 0.1), mobius_caching._Shares(0.0, 0.0, 0.1)
    tree = mobius_caching._Shares(learnt, learnt, 0.1)
    outcome = mobius_caching._WriteOutcome(thirty, thirty, tree, bound, bound, tree)
    quantities = mobius_caching._write_figures({"a": [outcome]})
    for what in ("messages", "points"):
        assert quantities[f"regimes in which less than half of the gap in {what} is closed"].median == few
    assert f"less than half of the gap in messages in {few} of 1" in mobius_caching._write_finding(
        {"a": [outcome]}
    )


def test_m4_and_m5_are_not_rows_of_speed():
    assert not M4.is_speed
    assert not M5.is_speed
    assert set(DAYS) == set(CARS)


def test_spread_over_one_process_maps_locally():
    with spread_out(1) as map_:
        assert [*map_(lambda x: x + 1, iter([1, 2]))] == [2, 3]
