"""Row M4 (Mobius 7.3, Fig. 3): savings of read caching, beside a bound in hindsight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import TraceContentError
from mudkit.learning import COSTS, FixedRule, interpolate_frontier
from mudkit.learning.bound import fewest_sends_by_stale
from mudkit.learning.devices import LocalDevices
from mudkit.learning.features import Features
from mudkit.learning.frontier import READ_PRICES, frontier_of_reads
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, replay, stale_answers
from mudkit.processes import PROCESSES, spread_out
from mudkit.reproduce.mobius_traces import ALL_TRACES, Labelled, Traces
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing

COMPLETENESS: Final = (1.0, 0.9)
"""Completeness below which an answer is stale; 1, as in the paper: when one point is missing."""
FEWER_QUERIES, FEWER_STALE = 4.0, 3.5
"""The paper's factors."""
MIN_GAP: Final = 0.05
"""Smallest gap between rule and bound that is judged, as a share of all reads."""
FEATURES: Final[dict[Features, str]] = {"paper": "paper's features", "extended": "extended features"}

TREES: Final[dict[str, tuple[Features, str]]] = {
    f"tree for {cost}, {text}": (features, cost) for features, text in FEATURES.items() for cost in COSTS
}
"""Features and cost matrix of each tree of Fig. 3."""


class Shares(NamedTuple):
    """Shares of the reads: sent to the server, and answered with a stale answer."""

    sent: float
    stale: float


class LearntOutcome(NamedTuple):
    """Outcome of the trees with a set of features.

    The tree for latency and that for freshness, by the two cost matrices; and the shares of reads sent with
    as many stale answers as by the rule, and with :data:`FEWER_STALE` times fewer, at prices of a stale
    answer that are chosen in hindsight.
    """

    latency: Shares
    freshness: Shares
    as_rule: float
    few: float


class ReadOutcome(NamedTuple):
    """Outcome of read caching on a trace.

    Shares of the rule of 1 km and 10 minutes, and of 30; what is learnt, by features; and the shares of reads
    that the bound sends with as many stale answers as the rule of 10 minutes, and with :data:`FEWER_STALE`
    times fewer.
    """

    reads: int
    rule: Shares
    rule_30: Shares
    learnt: dict[Features, LearntOutcome]
    bound: float
    bound_few: float

    @property
    def bound_factor(self) -> float:
        """Times fewer queries than by the rule, with fewer stale answers by the paper's factor: the bound."""
        return self.rule.sent / self.bound_few

    @property
    def tree_factor(self) -> float:
        """The same of the better set of features, at a price that is chosen in hindsight."""
        return self.rule.sent / min(learnt.few for learnt in self.learnt.values())

    def trees(self) -> dict[str, Shares]:
        """Return the shares of each tree by its name."""
        return {name: getattr(self.learnt[features], cost) for name, (features, cost) in TREES.items()}


def measure_reads(
    say: Say = say_nothing, *, traces: Traces = ALL_TRACES, processes: int = PROCESSES
) -> Measured:
    """Measure row M4; processes replay while Spark labels the next trace."""
    from mudkit.pipeline import label_reads  # loads Spark

    by_name: dict[str, list[ReadOutcome]] = {}
    with spread_out(processes, 1) as map_:
        for outcomes in map_(_replay_reads, traces.label_each(label_reads, say)):
            say("rules, trees and bound")
            for name, outcome in outcomes.items():
                by_name.setdefault(name, []).append(outcome)
    return Measured(
        _read_figures(by_name),
        {
            **traces.parameters(),
            "rule": f"{FixedRule()}; beside it {FixedRule(minutes=30.0)}",
            "trees": READ_TREES,
            "tree": "at a share of stale answers: between two of 17 prices of one, by using each for a part "
            "of the devices; extended features, and in the factor the better of both sets",
            "horizon": "7,200 s",
            "finding": _read_finding(by_name),
        },
    )


READ_TREES: Final = (
    "ten folds by device; for latency a stale answer costs "
    f"{COSTS['latency'].stale:g} and for freshness {COSTS['freshness'].stale:g} unnecessary queries; the "
    "paper's features are time and place of the query and of the cached one, the extended ones also their "
    "distance, the answer's age and its points, and the weekday"
)

M4: Final = Row(
    name="M4",
    source="Mobius 6 and 7.3, Fig. 3",
    paper="Up to 4 times fewer queries sent and 3.5 times fewer stale answers than by the rule of 1 km "
    "and 10 minutes, both at once, on a trace of 600 cars that nobody can download; the figure is lost. "
    "(Where the bound, which knows the future, cannot do that, no policy can.)",
    required=(
        Required("regimes with a gap over 5 points of which less than half is closed", "at most", 0),
        Required("times fewer queries, 3.5 times fewer stale, bound, best regime", "at least", 4),
        Required("times fewer queries, 3.5 times fewer stale, tree, best regime", "at least", 4),
    ),
    measure=measure_reads,
    minutes=2.0,
    known="people in these traces look a few times a trip, while much is written: the bound is no better. "
    "Row M4-map has the regimes in which it is",
)


def _replay_reads(trace: Labelled) -> dict[str, ReadOutcome]:
    """Replay a trace for each definition of stale."""
    pairs = Pairs.of(trace.labels, trace.reads)
    return {
        f"{trace.name}, completeness {least:g}": read_outcome(pairs, None if least == 1 else least)
        for least in COMPLETENESS
    }


def read_outcome(pairs: Pairs, completeness: float | None) -> ReadOutcome:
    """Replay reads with the fixed rules, the learnt trees and the bound in hindsight.

    An answer is stale below the `completeness`; None: if it lacks a point.
    """
    count, stale = len(pairs.device), pairs.are_stale(completeness)

    def shares(local: NDArray[np.bool_]) -> Shares:
        served = replay(pairs, local)
        return Shares(float((served == SENT).mean()), stale_answers(stale, served) / count)

    rule, rule_30 = (shares(FixedRule(minutes=age).local(pairs)) for age in (10.0, 30.0))
    stales = round(rule.stale * count)
    few = int(stales / FEWER_STALE)
    fewest = fewest_sends_by_stale(pairs, stale, stales)
    bound, bound_few = (int(fewest[min(budget, len(fewest) - 1)]) / count for budget in (stales, few))

    def learnt(features: Features) -> LearntOutcome:
        prices = tuple(matrix.stale for matrix in COSTS.values())
        try:
            frontier = frontier_of_reads(
                LocalDevices(pairs), completeness, features, prices=(*prices, *READ_PRICES)
            )
        except TraceContentError:  # all answers alike: a tree of one leaf
            alike = shares(np.full(len(stale), not stale.any()))
            return LearntOutcome(alike, alike, alike.sent, alike.sent)
        by_price = frontier[["sent_share", "stale_share"]].to_numpy()
        latency, freshness = (Shares(*of) for of in by_price[: len(prices)].tolist())
        frontier.loc[len(frontier)] = [math.inf, 1.0, 0.0, 1.0]  # always to ask is a tree, too
        as_rule, few_stale = (
            interpolate_frontier(frontier, "sent_share", "stale_share", most / count)
            for most in (stales, few)
        )
        return LearntOutcome(latency, freshness, as_rule, few_stale)

    return ReadOutcome(count, rule, rule_30, {name: learnt(name) for name in FEATURES}, bound, bound_few)


def _read_figures(by_name: Mapping[str, Sequence[ReadOutcome]]) -> dict[str, Quantity]:
    """Return the row's figures from the outcomes of all seeds, by regime."""
    quantities: dict[str, Quantity] = {}
    wide = {
        name: _closed_reads(runs)
        for name, runs in by_name.items()
        if np.median([run.rule.sent - run.bound for run in runs]) > MIN_GAP
    }
    quantities["regimes with a gap over 5 points"] = Quantity.of([len(wide)])
    few = sum(share.median < 0.5 for share in wide.values())
    quantities["regimes with a gap over 5 points of which less than half is closed"] = Quantity.of([few])
    for name, factor in (("bound", "bound_factor"), ("tree", "tree_factor")):
        best = max(
            (Quantity.of(getattr(run, factor) for run in runs) for runs in by_name.values()),
            key=lambda quantity: quantity.median,
        )
        quantities[f"times fewer queries, {FEWER_STALE:g} times fewer stale, {name}, best regime"] = best
    for name, runs in by_name.items():
        by_policy = [{"rule": run.rule, "rule of 30 min": run.rule_30, **run.trees()} for run in runs]
        for policy in by_policy[0]:
            for what, share in (("sends", "sent"), ("is stale", "stale")):
                of_runs = (getattr(policies[policy], share) for policies in by_policy)
                quantities[f"{policy} {what}, {name}"] = Quantity.of(of_runs)
        as_rule = Quantity.of(run.learnt["extended"].as_rule for run in runs)
        quantities[f"tree as stale as the rule sends, {name}"] = as_rule
        quantities[f"bound sends, {name}"] = Quantity.of(run.bound for run in runs)
        if name in wide:
            quantities[f"share of the gap closed, {name}"] = wide[name]
    return quantities


def _read_finding(by_name: Mapping[str, Sequence[ReadOutcome]]) -> str:
    """Describe what the bound implies for the paper's factor, and the nearest regime."""
    best = {name: Quantity.of(run.bound_factor for run in runs).median for name, runs in by_name.items()}
    nearest = max(best, key=lambda name: best[name])
    factor = f"at most {best[nearest]:.2f} times fewer queries with {FEWER_STALE:g} times fewer stale answers"
    verdict = "no policy can reach" if best[nearest] < FEWER_QUERIES else "a policy might reach"
    return f"by the bound, {factor} ({nearest}): {verdict} {FEWER_QUERIES:g} times in these regimes"


def _closed_reads(runs: Sequence[ReadOutcome]) -> Quantity:
    """Return the share of the gap between rule and bound that the tree closes."""
    return Quantity.of(
        (run.rule.sent - run.learnt["extended"].as_rule) / (run.rule.sent - run.bound) for run in runs
    )


ROWS: Final = (M4,)
