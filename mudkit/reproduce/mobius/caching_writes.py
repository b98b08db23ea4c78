"""M5: what batching writes can save: fixed delays, trees, and a bound found afterwards (Mobius 7.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import TraceContentError
from mudkit.learning import Batch
from mudkit.learning.evaluate_batches import bound_us, trained_on
from mudkit.learning.frontier import interpolate_frontier, oracle_frontier, write_frontier
from mudkit.learning.writes import ReadRequests, Writes, batches, missed
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

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FEWER_MESSAGES", "FEWER_POINTS", "MOST_MISSED", "MOST_WRITES", "PRICES", "measure"]

FEWER_MESSAGES, FEWER_POINTS = 3.0, 7.0
"""The paper's factors, against 30 minutes."""
PRICES: Final = tuple(np.geomspace(0.001, 2.0, 12).tolist())
MOST_MISSED: Final = 0.95
"""Share of reads that may miss a write in a regime by which the paper's factors are judged."""
MOST_WRITES: Final = 200_000
"""So many are tried to batch by hour with hindsight: thousands of replays."""
_HALF: Final = 0.5
_BASE: Final = Batch(30)


class _Shares(NamedTuple):
    messages: float
    points: float
    missed: float


class _Outcome(NamedTuple):
    ten: _Shares
    thirty: _Shares
    tree: _Shares
    bound: _Shares
    strict: _Shares
    hours: _Shares | None
    """Of delays by hour that are chosen afterwards; None: not tried."""


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
    """Measure row M5; with ``days=LONG_DAYS`` on longer traces.

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
    from mudkit.pipeline import label_writes  # loads Spark

    by_name: dict[str, list[_Outcome]] = {}
    traces = labelled(
        label_writes, cars=cars, towns=towns, days=days, seeds=seeds, recorded=recorded, say=say
    )
    with spread_out(processes, 1) as map_:
        for name, each in map_(_replayed, traces):
            say("fixed delays, trees and bound")
            by_name.setdefault(name, []).append(each)
    return Measured(
        _figures(by_name),
        {
            "generated traces": generated_traces(cars, days, seeds),
            "recorded traces": recorded_traces(recorded),
            "tree": "place, hour and weekday; learnt from a tenth of the devices, tested on the others; at "
            "the share of reads that miss a write with 30 min, between two of 12 prices of a delay that is "
            "too long, fixed delays (one leaf) among them, by using each on a part of the days",
            "bound": "misses no read that 30 min does not miss; strict: misses none",
            "hours": "delays by hour and weekend, chosen by replay on what they are measured on, at the same "
            f"share: what the hour alone could tell; where 30 min misses {MOST_MISSED:.0%} of the reads at "
            f"most, for {MOST_WRITES:,} writes at most",
            "mixtures": "messages and points each by that which is best for it, so not both at once",
            "factors": f"of the regimes in which 30 min misses {MOST_MISSED:.0%} of the reads at most",
            "shares": "of the points written; of the reads",
            "finding": _finding(by_name),
        },
    )


def _replayed(trace: Labelled) -> tuple[str, _Outcome]:
    return trace.name, _replay_all(Writes.of(trace.labels, trace.positions), ReadRequests.of(trace.reads))


def _replay_all(writes: Writes, asked: ReadRequests) -> _Outcome:
    learnt_from = trained_on(writes)
    train, test = writes.take(learnt_from), writes.take(~learnt_from)

    def shares(due_us: NDArray[np.int64]) -> _Shares:
        sent, count = batches(test, due_us), len(test.t_us)
        late = missed(test, sent.sent_us, asked)
        return _Shares(sent.messages / count, sent.points / count, float(late.mean()))

    thirty = shares(_BASE.due_us(test))

    def at_most(frontier: pd.DataFrame) -> _Shares:
        messages, points = (  # 30 min is one of the policies: a tree of one leaf, the same at all hours
            min(fixed, interpolate_frontier(frontier, name, "missed_share", thirty.missed))
            for name, fixed in (("message_share", thirty.messages), ("point_share", thirty.points))
        )
        return _Shares(messages, points, thirty.missed)

    try:
        tree = at_most(write_frontier(train, test, asked, prices=PRICES))
    except TraceContentError:  # all writes alike: a fixed delay is all that can be learnt
        tree = thirty
    bound, strict = (shares(bound_us(match, test, asked)) for match in (_BASE, None))
    hours = None
    if len(test.t_us) <= MOST_WRITES and thirty.missed <= MOST_MISSED:
        hours = at_most(oracle_frontier(test, asked))
    return _Outcome(shares(Batch(10).due_us(test)), thirty, tree, bound, strict, hours)


def _figures(by_name: Mapping[str, Sequence[_Outcome]]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for what in ("messages", "points"):
        closed = {name: Figure.of(_closed(each, what) for each in runs) for name, runs in by_name.items()}
        few = sum(share.median < _HALF for share in closed.values())
        figures[f"regimes in which less than half of the gap in {what} is closed"] = Figure.of([few])
        figures |= {f"share of the gap in {what} closed, {name}": share for name, share in closed.items()}
        for who in ("bound", "tree"):
            times = [Figure.of(_times(each, who, what) for each in runs) for runs in _comparable(by_name)]
            best = max(times, key=lambda figure: figure.median, default=Figure.of([math.nan]))
            figures[f"times fewer {what} than with 30 min, {who}, best regime"] = best
    for name, runs in by_name.items():
        for who, field in (
            ("10 min", "ten"),
            ("30 min", "thirty"),
            ("tree", "tree"),
            ("bound", "bound"),
            ("strict bound", "strict"),
            ("hours in hindsight", "hours"),
        ):
            of = [shares for each in runs if (shares := getattr(each, field)) is not None]
            for what in _Shares._fields if of else ():
                figures[f"{what}, {who}, {name}"] = Figure.of(getattr(each, what) for each in of)
    return figures


def _finding(by_name: Mapping[str, Sequence[_Outcome]]) -> str:
    """Say in words what bound and tree say of the paper's factors, and what the hour could tell."""
    words = []
    for what, wanted in (("messages", FEWER_MESSAGES), ("points", FEWER_POINTS)):
        for who in ("bound", "tree"):
            times = [
                Figure.of(_times(each, who, what) for each in runs).median for runs in _comparable(by_name)
            ]
            best = max(times, default=math.nan)
            words.append(f"the {who} {best:.3g} times fewer {what} (the paper's: {wanted:g})")
    regimes = len(_comparable(by_name))
    sentence = f"at best, of {regimes} regimes: {', '.join(words)}"
    hours = [Figure.of(closed).median for runs in by_name.values() if (closed := _by_hours(runs))]
    few = sum(closed < _HALF for closed in hours)
    return sentence + (
        f"; delays by hour chosen in hindsight close less than half of the gap in messages in {few} of "
        f"{len(hours)} regimes (median {np.median(hours):.0%}); what is learnt knows no more of the hour"
        if hours
        else ""
    )


def _comparable(by_name: Mapping[str, Sequence[_Outcome]]) -> list[Sequence[_Outcome]]:
    """Take the regimes in which 30 minutes leave some reads whole: elsewhere nothing sent is as good."""
    return [runs for runs in by_name.values() if max(each.thirty.missed for each in runs) <= MOST_MISSED]


def _by_hours(runs: Sequence[_Outcome]) -> list[float]:
    return [_closed(each, "messages", "hours") for each in runs if each.hours is not None]


def _closed(run: _Outcome, what: str, who: str = "tree") -> float:
    base, ours, bound = (getattr(getattr(run, each), what) for each in ("thirty", who, "bound"))
    return 1.0 if base <= bound else float((base - ours) / (base - bound))


def _times(run: _Outcome, who: str, what: str) -> float:
    return float(getattr(run.thirty, what) / max(getattr(getattr(run, who), what), 1e-9))
