"""Rows M4-map and M5-map: levels of cells, counts, findings, and the tables of their maps."""

from __future__ import annotations

import dataclasses
import json

import pytest

from mudkit import figures
from mudkit.reproduce import mobius_map
from mudkit.reproduce.mobius_map import (
    AS_LEARNT,
    BOUND_ONLY,
    IN_HINDSIGHT,
    LEVELS,
    M4_MAP,
    M5_MAP,
    MAPS,
    NOTHING_TO_JUDGE,
    OUT_OF_REACH,
    gather_reads,
    gather_writes,
    map_table,
    measure_reads,
    measure_writes,
    query_level,
    read_level,
    write_level,
)
from mudkit.reproduce.mobius_reads import FEATURES, LearntOutcome, ReadOutcome, Shares
from mudkit.reproduce.mobius_regimes import ALL_WRITING, REGIMES, Looks, Regime
from mudkit.reproduce.mobius_writes import WriteOutcome, WriteShares
from mudkit.reproduce.row import judge

TREE = LearntOutcome(Shares(0.9, 0.1), Shares(1.0, 0.0), 0.8, 0.8)
READS = ReadOutcome(1000, Shares(0.8, 0.1), Shares(0.6, 0.2), dict.fromkeys(FEATURES, TREE), 0.1, 0.2)
THIRTY = WriteShares(0.3001, 0.7001, 0.2)
WRITES = WriteOutcome(
    WriteShares(0.6001, 0.8, 0.1), THIRTY, THIRTY, THIRTY, False, WriteShares(0.01, 0.02, 0.2), THIRTY
)


def with_trees(outcome, **others):
    return outcome._replace(learnt=outcome.learnt | {"paper": TREE._replace(**others)})


@pytest.mark.parametrize(
    ("outcome", "level", "of_queries"),
    [
        (READS, BOUND_ONLY, BOUND_ONLY),
        (READS._replace(rule=Shares(0.8, 0.009)), NOTHING_TO_JUDGE, BOUND_ONLY),
        (READS._replace(bound_few=0.21), OUT_OF_REACH, BOUND_ONLY),
        (READS._replace(bound_few=0.3, bound=0.21), OUT_OF_REACH, OUT_OF_REACH),
        (with_trees(READS, few=0.2), IN_HINDSIGHT, BOUND_ONLY),
        (with_trees(READS, as_rule=0.2), BOUND_ONLY, IN_HINDSIGHT),
        (with_trees(READS, freshness=Shares(0.2, 0.028)), AS_LEARNT, AS_LEARNT),
        (with_trees(READS, latency=Shares(0.2, 0.1)), BOUND_ONLY, AS_LEARNT),
        (with_trees(READS, latency=Shares(0.21, 0.0)), BOUND_ONLY, BOUND_ONLY),
    ],
)
def test_level_of_a_cell_of_reads(outcome, level, of_queries):
    assert (read_level(outcome), query_level(outcome)) == (level, of_queries)


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        (WRITES, BOUND_ONLY),
        (WRITES._replace(thirty=THIRTY._replace(missed=0.0)), NOTHING_TO_JUDGE),
        (WRITES._replace(thirty=THIRTY._replace(missed=0.951)), NOTHING_TO_JUDGE),
        (WRITES._replace(bound=WriteShares(0.1, 0.11, 0.2)), OUT_OF_REACH),
        (WRITES._replace(has_price=True), IN_HINDSIGHT),
        (WRITES._replace(matched=WriteShares(0.1, 0.1, 0.2)), AS_LEARNT),
        (WRITES._replace(matched=WriteShares(0.1, 0.1, 0.21)), BOUND_ONLY),
    ],
)
def test_level_of_a_cell_of_writes(outcome, level):
    assert write_level(outcome) == level


def test_figures_count_cells_and_the_finding_names_them():
    learnt = with_trees(READS, latency=Shares(0.2, 0.02), few=0.15)
    measured = gather_reads({str(REGIMES[0]): READS, str(REGIMES[1]): learnt})
    medians = {name: quantity.median for name, quantity in measured.quantities.items()}
    assert medians["cells in which the bound has both factors"] == 2
    assert medians[f"cells in which {AS_LEARNT} has both factors"] == 1
    one = "cells in which the tree for latency, paper's features has both factors against the rule"
    assert (medians[one], medians[f"{one} of 30 min"]) == (1, 0)
    assert medians["tree, times fewer queries with 3.5 times fewer stale, best cell"] == pytest.approx(
        0.8 / 0.15
    )
    assert f"{AS_LEARNT}: {REGIMES[1]}." in measured.parameters["finding"]
    assert "only the bound: 5 min all day 1 of 1, 15 min all day 0 of 1" in measured.parameters["finding"]
    assert judge(M4_MAP, measured)[0] == "reproduced"
    assert judge(M4_MAP, gather_reads({str(REGIMES[0]): READS}))[0] == "not reproducible"


def test_a_tree_that_misses_more_than_30_minutes_counts_for_nothing():
    careless = WRITES._replace(matched=WriteShares(0.0, 0.0, 0.9))
    measured = gather_writes({str(REGIMES[0]): careless})
    assert measured.quantities["tree as learnt, times fewer messages than 30 min, best cell"].median == 0
    assert measured.cells[str(REGIMES[0])]["tree as learnt, times fewer messages than 30 min"] == float("inf")
    count = "cells in which the tree as learnt sends 6 times fewer messages than 10 min"
    assert measured.quantities[count].median == 0
    careful = gather_writes({str(REGIMES[0]): WRITES._replace(matched=WriteShares(0.1, 0.1, 0.2))})
    assert careful.quantities[count].median == 1
    assert judge(M5_MAP, careful)[0] == "reproduced"


@pytest.mark.parametrize(
    ("row", "gather", "outcome"), [(M4_MAP, gather_reads, READS), (M5_MAP, gather_writes, WRITES)]
)
def test_maps_of_a_row_have_all_cells(row, gather, outcome):
    measured = gather({str(regime): outcome for regime in REGIMES})
    assert {required.quantity for required in row.required} <= set(measured.quantities)
    for title, level, value in MAPS[row.name]:
        table = map_table(measured.cells, level, value)
        assert len(table) == len(REGIMES)
        assert list(table["writing"].unique()) == list(map(str, ALL_WRITING))
        assert list(table["who"].cat.categories) == list(LEVELS)
        assert figures.regime_map(table, title=title).layout.meta["alt"].startswith(title)


def test_both_rows_measure_a_cell():
    """A cell with few rows: the map of all takes minutes."""
    regime = Regime(Looks(240, "all day"), ALL_WRITING[0])
    seen = []
    reads = measure_reads(seen.append, regimes=[regime], processes=1)
    writes = measure_writes(seen.append, regimes=[regime], processes=1)
    assert seen == [str(regime)] * 2
    cell = reads.cells[str(regime)]
    assert cell["bound, times fewer queries with no more stale"] >= 1
    assert (
        cell["tree, times fewer queries with no more stale"]
        <= cell["bound, times fewer queries with no more stale"]
    )
    assert cell["reads"] == pytest.approx(12 * 7 * 4, rel=0.25)
    bound = writes.cells[str(regime)]["bound, times fewer messages than 30 min"]
    assert bound < writes.cells[str(regime)]["bound, times fewer messages than 10 min"]
    assert json.dumps(writes.cells)


def test_rows_say_how_they_are_measured():
    for row in mobius_map.ROWS:
        assert dataclasses.replace(row, name="x").measure is row.measure
        assert not row.is_speed
