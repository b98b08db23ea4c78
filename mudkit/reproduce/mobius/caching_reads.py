"""M4: what read caching can save, for the rule, for trees, and for a bound found afterwards (Mobius 7.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import TraceContentError
from mudkit.learning import FixedRule
from mudkit.learning.frontier import interpolate_frontier, read_frontier
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, fewest_sends, replay
from mudkit.processes import PROCESSES, spread_out
from mudkit.reproduce.mobius.caching_traces import (
    CARS,
    DAYS,
    TOWNS,
    Labelled,
    generated_traces,
    labelled,
    recorded_traces,
)
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing

__all__ = ["COMPLETENESS", "FEWER_QUERIES", "FEWER_STALE", "LEAST_GAP", "measure"]

COMPLETENESS: Final = (1.0, 0.9)
"""Below it an answer is stale: at 1 when one point is missing, the paper's."""
FEWER_QUERIES, FEWER_STALE = 4.0, 3.5
"""The paper's factors."""
LEAST_GAP: Final = 0.05
"""A gap between rule and bound that is worth closing, as a share of all reads."""


class _Outcome(NamedTuple):
    rule: float
    rule_stale: float
    tree: float
    bound: float
    bound_factor: float
    tree_factor: float


def measure(
    say: Say = say_nothing,
    *,
    cars: Sequence[int] = CARS,
    towns: Sequence[int] = TOWNS,
    days: Mapping[int, int] = DAYS,
    seeds: Sequence[int] = (7, 8),
    recorded: bool = True,
    processes: int = PROCESSES,
) -> Measured:
    """Measure row M4; with ``days=LONG_DAYS`` on longer traces.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    cars, towns : sequence of int
        The numbers of cars of the generated traces, and of towns.
    days : mapping of int to int
        The length of each generated trace in days, by its number of cars.
    seeds : sequence of int
        The seeds of the runs; figures are over all of them.
    recorded : bool
        Whether recorded traces that are on this machine are taken, too.
    processes : int
        The number of processes that replay, while Spark labels the next trace.
    """
    from mudkit.pipeline import label_reads  # loads Spark

    by_name: dict[str, list[_Outcome]] = {}
    traces = labelled(label_reads, cars=cars, towns=towns, days=days, seeds=seeds, recorded=recorded, say=say)
    with spread_out(processes, 1) as map_:
        for shares in map_(_replayed, traces):
            say("rule, trees and bound")
            for name, each in shares.items():
                by_name.setdefault(name, []).append(each)
    return Measured(
        _figures(by_name),
        {
            "generated traces": generated_traces(cars, days, seeds),
            "recorded traces": recorded_traces(recorded),
            "rule": str(FixedRule()),
            "tree": "extended features, ten folds by device; at the rule's share of stale answers, between "
            "two of 15 prices of a stale answer by using each for a part of the devices",
            "horizon": "7,200 s",
            "finding": _finding(by_name),
        },
    )


def _replayed(trace: Labelled) -> dict[str, _Outcome]:
    """Replay a trace for each definition of stale."""
    pairs = Pairs.of(trace.labels, trace.reads)
    return {
        f"{trace.name}, completeness {least:g}": _replay_all(
            pairs, pairs.missing >= 1 if least == 1 else pairs.completeness < least
        )
        for least in COMPLETENESS
    }


def _replay_all(pairs: Pairs, stale: NDArray[np.bool_]) -> _Outcome:
    count = len(pairs.device)

    def shares(served: NDArray[np.int64]) -> tuple[float, int]:
        return float((served == SENT).mean()), int(stale[served[served != SENT]].sum())

    def bound(budget: int) -> float:
        return shares(fewest_sends(pairs, stale, pairs.devices(), budget))[0]

    rule, stales = shares(replay(pairs, FixedRule().local(pairs)))
    few = int(stales / FEWER_STALE)
    try:
        frontier = read_frontier(pairs, stale)
    except TraceContentError:  # every answer is stale: then any tree asks always
        tree = tree_few = 1.0
    else:
        tree = min(1.0, interpolate_frontier(frontier, "sent_share", "stale_share", stales / count))
        tree_few = min(1.0, interpolate_frontier(frontier, "sent_share", "stale_share", few / count))
    return _Outcome(rule, stales / count, tree, bound(stales), rule / bound(few), rule / tree_few)


def _figures(by_name: Mapping[str, Sequence[_Outcome]]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    wide = {
        name: closed(runs)
        for name, runs in by_name.items()
        if np.median([each.rule - each.bound for each in runs]) > LEAST_GAP
    }
    figures["regimes with a gap over 5 points"] = Figure.of([len(wide)])
    few = sum(share.median < 0.5 for share in wide.values())
    figures["regimes with a gap over 5 points of which less than half is closed"] = Figure.of([few])
    for name, factor in (("bound", "bound_factor"), ("tree", "tree_factor")):
        best = max(
            (Figure.of(getattr(each, factor) for each in runs) for runs in by_name.values()),
            key=lambda figure: figure.median,
        )
        figures[f"times fewer queries, {FEWER_STALE:g} times fewer stale, {name}, best regime"] = best
    for name, runs in by_name.items():
        for what, field in (
            ("rule sends", "rule"),
            ("rule is stale", "rule_stale"),
            ("tree sends", "tree"),
            ("bound sends", "bound"),
        ):
            figures[f"{what}, {name}"] = Figure.of(getattr(each, field) for each in runs)
        if name in wide:
            figures[f"share of the gap closed, {name}"] = wide[name]
    return figures


def _finding(by_name: Mapping[str, Sequence[_Outcome]]) -> str:
    """Say in words what the bound says of the paper's factor, and which regime comes nearest."""
    best = {name: Figure.of(each.bound_factor for each in runs).median for name, runs in by_name.items()}
    nearest = max(best, key=lambda name: best[name])
    factor = f"at most {best[nearest]:.2f} times fewer queries with {FEWER_STALE:g} times fewer stale answers"
    so = "no policy can reach" if best[nearest] < FEWER_QUERIES else "a policy might reach"
    return f"by the bound, {factor} ({nearest}): {so} {FEWER_QUERIES:g} times in these regimes"


def closed(runs: Sequence[_Outcome]) -> Figure:
    """Give the share of the gap between rule and bound that the tree closes."""
    return Figure.of((each.rule - each.tree) / (each.rule - each.bound) for each in runs)
