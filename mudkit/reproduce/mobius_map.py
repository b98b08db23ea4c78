"""Rows M4-map and M5-map: in which regimes the savings of Mobius 7.3 can be had, and where trees have them.

The grid is that of :mod:`mudkit.reproduce.mobius_regimes`. A cell has one of the :data:`LEVELS`, and how many
times fewer queries or messages the bound and the trees send in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final, TypeAlias, TypeVar

import pandas as pd

from mudkit.learning.pairs import Pairs
from mudkit.learning.writes import ReadRequests, Writes
from mudkit.processes import PROCESSES, spread_out
from mudkit.reproduce.mobius_reads import (
    FEWER_QUERIES,
    FEWER_STALE,
    READ_TREES,
    TREES,
    ReadOutcome,
    Shares,
    read_outcome,
)
from mudkit.reproduce.mobius_regimes import (
    CARS,
    GAPS_KEPT,
    MIN_STALE,
    READERS,
    REGIMES,
    SPARSE_TOWNS,
    Regime,
)
from mudkit.reproduce.mobius_writes import (
    FEWER_MESSAGES,
    FEWER_POINTS,
    FEWER_THAN_TEN,
    MAX_MISSED,
    WriteOutcome,
    times_fewer,
    write_outcome,
)
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing

NOTHING_TO_JUDGE = "nothing to judge"
OUT_OF_REACH = "not even the bound"
BOUND_ONLY = "only the bound"
IN_HINDSIGHT = "a tree at a price chosen in hindsight"
AS_LEARNT = "a tree as it is learnt"
LEVELS: Final = (NOTHING_TO_JUDGE, OUT_OF_REACH, BOUND_ONLY, IN_HINDSIGHT, AS_LEARNT)
"""Policies that have the paper's savings in a cell; what a tree has, the bound mostly has, too."""
SEED: Final = 7
_FEWER: Final = f"times fewer queries with {FEWER_STALE:g} times fewer stale"
_NO_MORE: Final = "times fewer queries with no more stale"
_FIXED: Final = (
    ("messages", 30, FEWER_MESSAGES),
    ("points", 30, FEWER_POINTS),
    ("messages", 10, FEWER_THAN_TEN),
)
"""Fixed delays, minutes, against which less is sent, and the paper's factors."""
_BOTH: Final = "cells in which {} has both factors"

Outcome = TypeVar("Outcome", ReadOutcome, WriteOutcome)
Cell: TypeAlias = Mapping[str, float]
"""Measures of a cell by name; ``level`` is the number of one of :data:`LEVELS`."""


def replay_reads(regime: Regime, seed: int = SEED) -> ReadOutcome:
    """Generate a cell's trace, label its reads, and replay them."""
    from mudkit.pipeline.coverage import read_labels  # its package is that of Spark

    positions, reads = regime.trace(seed)
    return read_outcome(Pairs.of(read_labels(positions, reads, regime.looks.horizon_s), reads), None)


def replay_writes(regime: Regime, seed: int = SEED) -> WriteOutcome:
    """Generate a cell's trace, label its writes, and replay them."""
    from mudkit.pipeline.coverage import first_reads

    positions, reads = regime.trace(seed)
    return write_outcome(Writes.of(first_reads(positions, reads), positions), ReadRequests.of(reads))


def has_read_factors(rule: Shares, other: Shares) -> bool:
    """Return whether a policy has both of the paper's factors against a rule."""
    return FEWER_QUERIES * other.sent <= rule.sent and FEWER_STALE * other.stale <= rule.stale


def read_level(outcome: ReadOutcome) -> str:
    """Return who has the paper's savings of reads in a cell."""
    if round(outcome.rule.stale * outcome.reads) < MIN_STALE:
        return NOTHING_TO_JUDGE
    if outcome.bound_factor < FEWER_QUERIES:
        return OUT_OF_REACH
    if any(has_read_factors(outcome.rule, tree) for tree in outcome.trees().values()):
        return AS_LEARNT
    return IN_HINDSIGHT if outcome.tree_factor >= FEWER_QUERIES else BOUND_ONLY


def query_level(outcome: ReadOutcome) -> str:
    """Return who sends 4 times fewer queries than the rule with no more stale answers in a cell."""
    if outcome.rule.sent < FEWER_QUERIES * outcome.bound:
        return OUT_OF_REACH
    limit = outcome.rule.sent / FEWER_QUERIES
    if any(of.sent <= limit and of.stale <= outcome.rule.stale for of in outcome.trees().values()):
        return AS_LEARNT
    is_enough = any(learnt.as_rule <= limit for learnt in outcome.learnt.values())
    return IN_HINDSIGHT if is_enough else BOUND_ONLY


def write_level(outcome: WriteOutcome) -> str:
    """Return who has the paper's savings of writes, against 30 minutes, in a cell."""
    if not 0 < outcome.thirty.missed <= MAX_MISSED:
        return NOTHING_TO_JUDGE
    if not outcome.has_factors(outcome.bound):
        return OUT_OF_REACH
    if outcome.has_factors(outcome.matched):
        return AS_LEARNT
    return IN_HINDSIGHT if outcome.has_price else BOUND_ONLY


def read_cell(outcome: ReadOutcome) -> Cell:
    """Return the measures of a cell."""
    policies = {"rule": outcome.rule, "rule of 30 min": outcome.rule_30, **outcome.trees()}
    return {
        "level": LEVELS.index(read_level(outcome)),
        f"bound, {_FEWER}": outcome.bound_factor,
        f"tree, {_FEWER}": outcome.tree_factor,
        "level, no more stale": LEVELS.index(query_level(outcome)),
        f"bound, {_NO_MORE}": outcome.rule.sent / outcome.bound,
        f"tree, {_NO_MORE}": outcome.rule.sent / min(of.as_rule for of in outcome.learnt.values()),
        **{
            f"{name} {what}": share
            for name, of in policies.items()
            for what, share in (("sends", of.sent), ("is stale", of.stale))
        },
        "reads": outcome.reads,
    }


def write_cell(outcome: WriteOutcome) -> Cell:
    """Return the measures of a cell."""
    factors = {
        f"{words}, times fewer {what} than {minutes} min": times_fewer(outcome, who, what, minutes)
        for who, words in (("bound", "bound"), ("tree", "tree"), ("matched", "tree as learnt"))
        for what, minutes, _ in _FIXED
    }
    missed = {"10 min": outcome.ten, "30 min": outcome.thirty, "tree as learnt": outcome.matched}
    return {
        "level": LEVELS.index(write_level(outcome)),
        **factors,
        **{f"{name} misses": of.missed for name, of in missed.items()},
    }


def measure_reads(
    say: Say = say_nothing, *, regimes: Sequence[Regime] = REGIMES, processes: int = PROCESSES
) -> Measured:
    """Measure row M4-map, with a trace for each cell."""
    with spread_out(processes, 1) as map_:
        return gather_reads(_named(regimes, map_(replay_reads, regimes), say))


def gather_reads(outcomes: Mapping[str, ReadOutcome]) -> Measured:
    """Return the row's figures from the outcomes of all cells."""
    cells = {name: read_cell(outcome) for name, outcome in outcomes.items()}
    quantities = _counts(cells)
    for tree, rule in product(TREES, ("rule", "rule of 30 min")):
        both = sum(
            has_read_factors(_shares(cell, rule), _shares(cell, tree))
            for cell in cells.values()
            if cell[f"{rule} is stale"] * cell["reads"] >= MIN_STALE
        )
        quantities[f"cells in which the {tree} has both factors against the {rule}"] = float(both)
    for who in ("bound", "tree"):
        judged = (cell[f"{who}, {_FEWER}"] for cell in cells.values() if cell["level"])
        quantities[f"{who}, {_FEWER}, best cell"] = max(judged, default=0.0)
        all_cells = (cell[f"{who}, {_NO_MORE}"] for cell in cells.values())
        quantities[f"{who}, {_NO_MORE}, best cell"] = max(all_cells, default=0.0)
    levels = [int(cell["level, no more stale"]) for cell in cells.values()]
    quantities |= _counts_of_levels(levels, "4 times fewer queries and no more stale answers")
    return Measured(
        {name: Quantity.of([value]) for name, value in quantities.items()},
        {
            **_parameters(),
            "stale": "an answer that lacks a point",
            "horizon": f"{GAPS_KEPT} mean gaps between two looks",
            "trees": READ_TREES,
            "nothing to judge": f"the rule of 1 km and 10 minutes gives fewer than {MIN_STALE} stale answers",
            "finding": _finding(cells),
        },
        cells,
    )


def measure_writes(
    say: Say = say_nothing, *, regimes: Sequence[Regime] = REGIMES, processes: int = PROCESSES
) -> Measured:
    """Measure row M5-map, with a trace for each cell."""
    with spread_out(processes, 1) as map_:
        return gather_writes(_named(regimes, map_(replay_writes, regimes), say))


def gather_writes(outcomes: Mapping[str, WriteOutcome]) -> Measured:
    """Return the row's figures from the outcomes of all cells."""
    cells = {name: write_cell(outcome) for name, outcome in outcomes.items()}
    judged = [cell for cell in cells.values() if cell["level"]]
    keep = [cell for cell in judged if cell["tree as learnt misses"] <= cell["30 min misses"]]
    quantities = _counts(cells)
    quantities["cells in which the tree as learnt misses no more than 30 min"] = float(len(keep))
    for (who, of_who), (what, minutes, least) in product(
        (("bound", judged), ("tree", judged), ("tree as learnt", keep)), _FIXED
    ):
        name = f"{who}, times fewer {what} than {minutes} min"
        factors = [cell[name] for cell in of_who]
        quantities[f"{name}, best cell"] = max(factors, default=0.0)
        count = f"cells in which the {who} sends {least:g} times fewer {what} than {minutes} min"
        quantities[count] = float(sum(factor >= least for factor in factors))
    return Measured(
        {name: Quantity.of([value]) for name, value in quantities.items()},
        {
            **_parameters(),
            "bound": "misses no read that 30 min does not miss",
            "tree": "place, hour and weekday; learnt from a tenth of the cars; in hindsight messages and "
            "points each at the price that is best for it; as learnt at the price that misses no more than "
            "30 min in training",
            "as learnt": "factors of cells in which it misses no more than 30 min on the cars of the test",
            "both factors": f"{FEWER_MESSAGES:g} times fewer messages and {FEWER_POINTS:g} times fewer "
            "points than with 30 min, by one policy that misses no more reads",
            "nothing to judge": f"with 30 min no read misses a write, or more than {MAX_MISSED:.0%} do",
            "finding": _finding(cells),
        },
        cells,
    )


def _named(regimes: Sequence[Regime], outcomes: Iterable[Outcome], say: Say) -> dict[str, Outcome]:
    """Return outcomes by the names of their cells, and say each when it has come."""
    named = {}
    for regime, outcome in zip(regimes, outcomes, strict=True):
        say(str(regime))
        named[str(regime)] = outcome
    return named


def _shares(cell: Cell, policy: str) -> Shares:
    """Return what a policy for reads sends in a cell, and how much of its answers is stale."""
    return Shares(cell[f"{policy} sends"], cell[f"{policy} is stale"])


def _parameters() -> dict[str, object]:
    """Describe the traces of both rows."""
    cars = " and ".join(f"{name} {count}" for name, count in CARS.items())
    return {
        "seed": SEED,
        "levels of cells": ", ".join(f"{number} {level}" for number, level in enumerate(LEVELS)),
        "cars": cars,
        "readers": READERS,
        "sparse": f"{SPARSE_TOWNS} towns, a quarter of the cars in each next one",
    }


def _counts(cells: Mapping[str, Cell]) -> dict[str, float]:
    """Count the cells in which somebody has both factors; what a tree has, the bound has, too."""
    levels = [int(cell["level"]) for cell in cells.values()]
    counts = {"cells": float(len(levels)), "cells that can be judged": float(sum(map(bool, levels)))}
    return counts | _counts_of_levels(levels, "both factors")


def _counts_of_levels(levels: Sequence[int], what: str) -> dict[str, float]:
    """Count the cells in which the bound, a tree in hindsight, and a tree as it is learnt have something."""
    firsts = (("the bound", BOUND_ONLY), (IN_HINDSIGHT, IN_HINDSIGHT), (AS_LEARNT, AS_LEARNT))
    return {
        f"cells in which {who} has {what}": float(sum(level >= LEVELS.index(first) for level in levels))
        for who, first in firsts
    }


def _finding(cells: Mapping[str, Cell]) -> str:
    """Name the cells in which trees have both factors, and how people look where only the bound has them."""
    levels = {name: LEVELS[int(cell["level"])] for name, cell in cells.items()}
    sentences = []
    for tree in (AS_LEARNT, IN_HINDSIGHT):
        names = [name for name, level in levels.items() if level == tree]
        sentences.append(f"both factors, {tree}: {' | '.join(names) or 'nowhere'}")
    looks = [name.partition(";")[0] for name in cells]
    of_bound = Counter(name.partition(";")[0] for name, level in levels.items() if level == BOUND_ONLY)
    counts = ", ".join(f"{look} {of_bound[look]} of {looks.count(look)}" for look in dict.fromkeys(looks))
    return ". ".join([*sentences, f"both factors, {BOUND_ONLY}: {counts}"])


MAPS: Final = {
    "M4-map": (
        (f"Reads: 4 times fewer queries, {FEWER_STALE:g} times fewer stale answers", "level", _FEWER),
        ("Reads: 4 times fewer queries, no more stale answers", "level, no more stale", _NO_MORE),
    ),
    "M5-map": (
        (
            "Writes: 3 times fewer messages and 7 times fewer points",
            "level",
            "times fewer messages than 30 min",
        ),
    ),
}
"""Title, level and measure of each map of a row."""


def map_table(cells: Mapping[str, Cell], level: str, value: str) -> pd.DataFrame:
    """Return cells as :func:`mudkit.figures.regime_map` draws them, by two of their measures.

    ``value`` is what the bound and the trees have in a cell.
    """
    of_regime = {str(regime): regime for regime in REGIMES}
    rows = [
        (
            regime.looks.when,
            regime.looks.every_min,
            str(regime.writing),
            LEVELS[int(cell[level])],
            cell[f"bound, {value}"],
            cell[f"tree, {value}"],
        )
        for regime, cell in ((of_regime[name], cell) for name, cell in cells.items())
    ]
    table = pd.DataFrame(rows, columns=["when", "every_min", "writing", "who", "bound", "tree"])
    return table.astype({"who": pd.CategoricalDtype(list(LEVELS), ordered=True)})


M4_MAP: Final = Row(
    name="M4-map",
    source="Mobius 6 and 7.3, Fig. 3",
    paper="Up to 4 times fewer queries sent and 3.5 times fewer stale answers than by the rule of 1 km "
    "and 10 minutes, both at once, by trees for two utilities. (Here: in which regimes, of how often people "
    "look by how cars write.)",
    required=(
        Required(_BOTH.format("the bound"), "at least", 1),
        Required(_BOTH.format(AS_LEARNT), "at least", 1),
    ),
    measure=measure_reads,
    minutes=5.0,
)
M5_MAP: Final = Row(
    name="M5-map",
    source="Mobius 6 and 7.3, Fig. 4",
    paper="Against a delay of 30 minutes 7 times fewer points and 3 times fewer messages, with about as many "
    "reads that miss a point; against 10 minutes up to 6 times fewer messages. (Here: in which regimes, of "
    "how often people look by how cars write.)",
    required=(
        Required(_BOTH.format("the bound"), "at least", 1),
        Required(_BOTH.format(AS_LEARNT), "at least", 1),
        Required("cells in which the bound sends 6 times fewer messages than 10 min", "at least", 1),
        Required("cells in which the tree as learnt sends 6 times fewer messages than 10 min", "at least", 1),
    ),
    measure=measure_writes,
    minutes=2.0,
)
ROWS: Final = (M4_MAP, M5_MAP)
