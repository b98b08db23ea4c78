"""Findings of row M5, computed from outcomes; the measurement runs in tests/spark."""

from __future__ import annotations

import math

import pytest
from learning_traces import build_positions, build_reads, label_by_definition

from mudkit.errors import TraceContentError
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.reproduce import mobius_writes
from mudkit.reproduce.mobius_writes import M5, WriteOutcome, WriteShares, times_fewer


def test_write_finding_separates_bound_and_tree():
    shares = {
        name: mobius_writes.WriteShares(*values)
        for name, values in {
            "ten": (0.6, 1.0, 0.4),
            "thirty": (0.4, 1.0, 0.5),
            "tree": (0.2, 0.5, 0.5),
            "matched": (0.25, 0.6, 0.45),
            "bound": (0.1, 0.1, 0.5),
            "strict": (0.3, 0.3, 0.0),
            "hours": (0.3, 1.0, 0.5),
        }.items()
    }
    late = {**shares, "thirty": mobius_writes.WriteShares(0.4, 1.0, 0.99), "hours": None}
    by_name = {
        "a": [mobius_writes.WriteOutcome(**shares, has_price=False)],
        "b": [mobius_writes.WriteOutcome(**late, has_price=False)],
    }
    finding = mobius_writes._write_finding(by_name)
    assert "of 1 regimes" in finding  # regimes in which nearly every read misses a write are excluded
    assert "bound 4 times fewer messages (the paper's: 3), the tree 2 times fewer messages" in finding
    assert "bound 10 times fewer points (the paper's: 7), the tree 2 times fewer points" in finding
    assert "less than half of the gap in messages in 1 of 1 regimes (median 33%)" in finding
    assert "hindsight" not in mobius_writes._write_finding({"b": by_name["b"]})
    quantities = mobius_writes._write_figures(by_name)
    assert quantities["messages, hours in hindsight, a"].median == 0.3
    assert "messages, hours in hindsight, b" not in quantities
    assert quantities["times fewer messages than with 10 min, bound, best regime"].median == pytest.approx(6)
    assert quantities["times fewer messages than with 10 min, tree, best regime"].median == pytest.approx(3)


def test_delays_by_hour_are_chosen_unless_nearly_all_reads_miss_a_write(monkeypatch):
    """The parameter of M5 about the share: where 30 min misses 95 % of the reads at most."""
    positions = build_positions(
        [(f"car-{car}", 7 * car + 10 * step, 0.0) for car in range(8) for step in range(9)]
    )
    reads = build_reads([(f"car-{car}", 20 * step, 0.0) for car in range(8) for step in range(2, 7)])
    world = Writes.of(label_by_definition(positions, reads), positions), ReadRequests.of(reads)

    def learn_nothing(*_, **__):
        raise TraceContentError("All writes are alike.")

    monkeypatch.setattr(mobius_writes, "frontier_of_writes", learn_nothing)
    monkeypatch.setattr(mobius_writes, "oracle_frontier", lambda *_: None)
    monkeypatch.setattr(mobius_writes, "interpolate_frontier", lambda *_: 0.0)
    outcome = mobius_writes.write_outcome(*world)
    for most, is_chosen in ((outcome.thirty.missed, True), (outcome.thirty.missed - 1e-9, False)):
        monkeypatch.setattr(mobius_writes, "MAX_MISSED", most)
        assert (mobius_writes._with_hours(outcome, *world).hours is not None) == is_chosen


def test_a_regime_in_which_nobody_reads_anothers_writes_has_no_gap_and_no_factor():
    nothing, thirty = mobius_writes.WriteShares(0.0, 0.0, 0.0), mobius_writes.WriteShares(0.4, 1.0, 0.0)
    alone = mobius_writes.WriteOutcome(thirty, thirty, thirty, thirty, False, nothing, nothing, nothing)
    quantities = mobius_writes._write_figures({"alone": [alone]})
    assert "share of the gap in messages closed, alone" not in quantities
    assert quantities["regimes in which less than half of the gap in messages is closed"].median == 0
    assert math.isnan(quantities["times fewer messages than with 30 min, bound, best regime"].median)
    assert "of 0 regimes" in mobius_writes._write_finding({"alone": [alone]})


@pytest.mark.parametrize(("learnt", "few"), [(0.2, 0), (0.21, 1), (0.0, 0)])
def test_half_of_the_gap_is_not_less_than_half(learnt, few):
    thirty, bound = mobius_writes.WriteShares(0.4, 0.4, 0.1), mobius_writes.WriteShares(0.0, 0.0, 0.1)
    tree = mobius_writes.WriteShares(learnt, learnt, 0.1)
    outcome = mobius_writes.WriteOutcome(thirty, thirty, tree, tree, False, bound, bound, tree)
    quantities = mobius_writes._write_figures({"a": [outcome]})
    for what in ("messages", "points"):
        assert quantities[f"regimes in which less than half of the gap in {what} is closed"].median == few
    assert f"less than half of the gap in messages in {few} of 1" in mobius_writes._write_finding(
        {"a": [outcome]}
    )


def test_m5_is_no_row_of_speed():
    assert not M5.is_speed


def make_outcome(**others):
    thirty, nothing = WriteShares(0.3, 0.7, 0.2), WriteShares(0.0, 0.0, 0.0)
    policies = dict.fromkeys(("tree", "matched", "bound", "strict"), nothing)
    return WriteOutcome(
        **{"ten": WriteShares(0.6, 1.0, 0.1), "thirty": thirty, "has_price": False} | policies | others
    )


@pytest.mark.parametrize(
    ("shares", "has"),
    [
        ((0.1, 0.1, 0.2), True),
        ((0.11, 0.1, 0.2), False),
        ((0.1, 0.11, 0.2), False),
        ((0.1, 0.1, 0.21), False),
    ],
)
def test_a_policy_has_the_factors_if_it_misses_no_more_than_30_minutes(shares, has):
    outcome = make_outcome(thirty=WriteShares(0.3001, 0.7001, 0.2))
    assert outcome.has_factors(WriteShares(*shares)) == has


def test_a_policy_that_sends_nothing_has_an_infinite_factor():
    outcome = make_outcome(tree=WriteShares(0.1, 0.0, 0.2))
    assert times_fewer(outcome, "tree", "messages") == pytest.approx(3)
    assert times_fewer(outcome, "tree", "messages", 10) == pytest.approx(6)
    assert times_fewer(outcome, "tree", "points") == math.inf


def test_the_tree_of_a_price_in_hindsight_saves_no_less_than_30_minutes():
    """Cars drive for hours, and are asked about in the first two of them alone."""
    positions = build_positions(
        [(f"car-{car:02d}", car % 3 + step, 0.01 * car) for car in range(12) for step in range(0, 600, 3)]
    )
    reads = build_reads(
        [(f"phone-{phone}", 7 * step + phone, 0.0) for phone in range(3) for step in range(17)]
    )
    outcome = mobius_writes.write_outcome(
        Writes.of(label_by_definition(positions, reads), positions), ReadRequests.of(reads)
    )
    assert outcome.hours is None
    for what in ("messages", "points"):
        assert getattr(outcome.tree, what) <= getattr(outcome.thirty, what)
        assert getattr(outcome.bound, what) <= getattr(outcome.strict, what)
    assert outcome.bound.missed <= outcome.thirty.missed
    assert outcome.strict.missed == 0
