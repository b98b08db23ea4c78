"""Row M5 (Mobius 7.3, Fig. 4): savings of write batching, beside bounds in hindsight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import TraceContentError
from mudkit.learning import Batch, BatchTree
from mudkit.learning.devices import LocalWriters
from mudkit.learning.evaluate_batches import bound_us, trained_on
from mudkit.learning.frontier import frontier_of_writes, interpolate_frontier, oracle_frontier
from mudkit.learning.writes import ReadRequests, Writes, batch_shares
from mudkit.processes import PROCESSES, spread_out
from mudkit.reproduce.mobius_traces import ALL_TRACES, Labelled, Traces
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing

if TYPE_CHECKING:
    import pandas as pd

FEWER_MESSAGES, FEWER_POINTS, FEWER_THAN_TEN = 3.0, 7.0, 6.0
"""The paper's factors: messages and points against 30 minutes, messages against 10."""
PRICES: Final = tuple(np.geomspace(0.001, 2.0, 12).tolist())
MAX_MISSED: Final = 0.95
"""Share of reads that may miss a write in a regime in which the paper's factors are judged."""
MAX_WRITES: Final = 200_000
"""Number of writes up to which delays by hour are searched in hindsight, in thousands of replays."""
_HALF: Final = 0.5
_BASE: Final = Batch(30)


class WriteShares(NamedTuple):
    """Shares of a policy: messages and points sent, by writes; missed, by reads."""

    messages: float
    points: float
    missed: float


class WriteOutcome(NamedTuple):
    """Outcome of write batching: the shares of each policy; `hours` is None where it was not searched."""

    ten: WriteShares
    thirty: WriteShares
    tree: WriteShares
    """At a price chosen in hindsight; messages and points each by that which is best for it."""
    matched: WriteShares
    """A tree as it is learnt: at the price with which it misses no more than 30 minutes in training."""
    has_price: bool
    """True if a tree at one price, or a fixed delay, has the paper's factors and misses no more."""
    bound: WriteShares
    strict: WriteShares
    hours: WriteShares | None = None
    """Shares with delays by hour chosen in hindsight; None: not searched."""

    def has_factors(self, of: WriteShares) -> bool:
        """Return whether a policy has the paper's factors against 30 minutes and misses no more reads."""
        return (
            of.missed <= self.thirty.missed
            and FEWER_MESSAGES * of.messages <= self.thirty.messages
            and FEWER_POINTS * of.points <= self.thirty.points
        )


def measure_writes(
    say: Say = say_nothing, *, traces: Traces = ALL_TRACES, processes: int = PROCESSES
) -> Measured:
    """Measure row M5; processes replay while Spark labels the next trace."""
    from mudkit.pipeline import label_writes  # loads Spark

    by_name: dict[str, list[WriteOutcome]] = {}
    with spread_out(processes, 1) as map_:
        for name, outcome in map_(_replay_writes, traces.label_each(label_writes, say)):
            say("fixed delays, trees and bound")
            by_name.setdefault(name, []).append(outcome)
    return Measured(
        _write_figures(by_name),
        {
            **traces.parameters(),
            "tree": "place, hour and weekday; learnt from a tenth of the devices, tested on the others; at "
            "the share of reads that miss a write with 30 min, between two of 12 prices of a delay that is "
            "too long, fixed delays (one leaf) among them, by using each on a part of the days",
            "tree as learnt": "at the lowest of 25 prices with which it misses no more than 30 min "
            "in training",
            "bound": "misses no read that 30 min does not miss; strict: misses none",
            "hours": "delays by hour and weekend, chosen by replay on what they are measured on, at the same "
            f"share: what the hour alone could tell; where 30 min misses {MAX_MISSED:.0%} of the reads at "
            f"most, for {MAX_WRITES:,} writes at most",
            "mixtures": "messages and points each by that which is best for it, so not both at once",
            "factors": "of the regimes in which some reads miss a write with 30 min, "
            f"{MAX_MISSED:.0%} at most; elsewhere never to send is as good",
            "gaps": "of the regimes in which some reads miss a write with 30 min",
            "shares": "of the points written; of the reads",
            "finding": _write_finding(by_name),
        },
    )


M5: Final = Row(
    name="M5",
    source="Mobius 6 and 7.3, Fig. 4",
    paper="Against a delay of 30 minutes 7 times fewer points and 3 times fewer messages, with about as "
    "many reads that miss a point; against 10 minutes up to 6 times fewer messages, with more; the "
    "figure is lost.",
    required=(
        Required("regimes in which less than half of the gap in messages is closed", "at most", 0),
        Required("regimes in which less than half of the gap in points is closed", "at most", 0),
        Required("times fewer messages than with 30 min, bound, best regime", "at least", 3),
        Required("times fewer points than with 30 min, bound, best regime", "at least", 7),
        Required("times fewer messages than with 30 min, tree, best regime", "at least", 3),
        Required("times fewer points than with 30 min, tree, best regime", "at least", 7),
    ),
    measure=measure_writes,
    minutes=2.5,
    known="people in these traces look a few times a trip, at the hours at which the cars write. Row "
    "M5-map has the regimes in which more can be saved",
)


def _replay_writes(trace: Labelled) -> tuple[str, WriteOutcome]:
    """Replay a trace, and return its name and outcome."""
    writes, requests = Writes.of(trace.labels, trace.positions), ReadRequests.of(trace.reads)
    return trace.name, _with_hours(write_outcome(writes, requests), writes, requests)


def write_outcome(writes: Writes, requests: ReadRequests) -> WriteOutcome:
    """Replay the later writes with fixed delays, learnt trees and bounds in hindsight."""
    is_learnt = trained_on(writes)
    test = writes.take(~is_learnt)

    def shares(due_us: NDArray[np.int64]) -> WriteShares:
        return WriteShares(*batch_shares(test, due_us, requests))

    thirty = shares(_BASE.due_us(test))
    bound, strict = (shares(bound_us(match, test, requests)) for match in (_BASE, None))
    without_trees = WriteOutcome(shares(Batch(10).due_us(test)), thirty, thirty, thirty, False, bound, strict)
    try:
        frontier = frontier_of_writes(LocalWriters(writes), requests, prices=PRICES)
        matched = BatchTree(match=_BASE).learn(writes.take(is_learnt), requests)
    except TraceContentError:  # all writes alike: a fixed delay is all that can be learnt
        return without_trees
    singles = frontier[["message_share", "point_share", "missed_share"]].to_numpy()
    return without_trees._replace(
        tree=_as_missed(frontier, thirty),
        matched=shares(matched.due_us(test)),
        has_price=any(without_trees.has_factors(WriteShares(*of)) for of in singles),
    )


def _as_missed(frontier: pd.DataFrame, thirty: WriteShares) -> WriteShares:
    """Return the fewest messages, and points, of policies that miss no more than 30 minutes."""
    messages, points = (  # 30 min is one of the policies: a tree of one leaf, the same at all hours
        min(fixed, interpolate_frontier(frontier, name, "missed_share", thirty.missed))
        for name, fixed in (("message_share", thirty.messages), ("point_share", thirty.points))
    )
    return WriteShares(messages, points, thirty.missed)


def _with_hours(outcome: WriteOutcome, writes: Writes, requests: ReadRequests) -> WriteOutcome:
    """Add delays by hour that miss no more than 30 minutes, where there are not too many writes to search."""
    test = writes.take(~trained_on(writes))
    if len(test.t_us) > MAX_WRITES or outcome.thirty.missed > MAX_MISSED:
        return outcome
    return outcome._replace(hours=_as_missed(oracle_frontier(test, requests), outcome.thirty))


def _write_figures(by_name: Mapping[str, Sequence[WriteOutcome]]) -> dict[str, Quantity]:
    """Return the row's figures from the outcomes of all seeds, by regime."""
    quantities: dict[str, Quantity] = {}
    for what in ("messages", "points"):
        closed = {
            name: Quantity.of(_closed(run, what) for run in runs)
            for name, runs in by_name.items()
            if _some_missed(runs)
        }
        few = sum(share.median < _HALF for share in closed.values())
        quantities[f"regimes in which less than half of the gap in {what} is closed"] = Quantity.of([few])
        quantities |= {f"share of the gap in {what} closed, {name}": share for name, share in closed.items()}
        for who, minutes in product(("bound", "tree"), (30, 10)):
            times = [
                Quantity.of(times_fewer(run, who, what, minutes) for run in runs)
                for runs in _comparable(by_name)
            ]
            best = max(times, key=lambda quantity: quantity.median, default=Quantity.of([math.nan]))
            quantities[f"times fewer {what} than with {minutes} min, {who}, best regime"] = best
    for name, runs in by_name.items():
        for who, share in (
            ("10 min", "ten"),
            ("30 min", "thirty"),
            ("tree", "tree"),
            ("tree as learnt", "matched"),
            ("bound", "bound"),
            ("strict bound", "strict"),
            ("hours in hindsight", "hours"),
        ):
            by_run = [shares for run in runs if (shares := getattr(run, share)) is not None]
            for what in WriteShares._fields if by_run else ():
                quantities[f"{what}, {who}, {name}"] = Quantity.of(getattr(run, what) for run in by_run)
    return quantities


def _write_finding(by_name: Mapping[str, Sequence[WriteOutcome]]) -> str:
    """Describe what bound and tree reach of the paper's factors, and what delays by hour could reach."""
    words = []
    for what, factor in (("messages", FEWER_MESSAGES), ("points", FEWER_POINTS)):
        for who in ("bound", "tree"):
            times = [
                Quantity.of(times_fewer(run, who, what) for run in runs).median
                for runs in _comparable(by_name)
            ]
            best = max(times, default=math.nan)
            words.append(f"the {who} {best:.3g} times fewer {what} (the paper's: {factor:g})")
    regimes = len(_comparable(by_name))
    sentence = f"at best, of {regimes} regimes: {', '.join(words)}"
    hours = [Quantity.of(closed).median for runs in _comparable(by_name) if (closed := _by_hours(runs))]
    few = sum(closed < _HALF for closed in hours)
    return sentence + (
        f"; delays by hour chosen in hindsight close less than half of the gap in messages in {few} of "
        f"{len(hours)} regimes (median {np.median(hours):.0%}); what is learnt knows no more of the hour"
        if hours
        else ""
    )


def _comparable(by_name: Mapping[str, Sequence[WriteOutcome]]) -> list[Sequence[WriteOutcome]]:
    """Return the regimes in which reads miss something with 30 minutes, but not nearly all of them do.

    Where nobody reads another's writes or nearly all reads miss some, never to send is as good.
    """
    return [
        runs
        for runs in by_name.values()
        if _some_missed(runs) and max(run.thirty.missed for run in runs) <= MAX_MISSED
    ]


def _some_missed(runs: Sequence[WriteOutcome]) -> bool:
    """Return whether reads miss something with a delay of 30 minutes in every run."""
    return min(run.thirty.missed for run in runs) > 0


def _by_hours(runs: Sequence[WriteOutcome]) -> list[float]:
    """Return the share of the gap in messages that delays by hour close, of runs that searched them."""
    return [_closed(run, "messages", "hours") for run in runs if run.hours is not None]


def _closed(run: WriteOutcome, what: str, who: str = "tree") -> float:
    """Return the share of the gap between 30 minutes and bound that a policy closes.

    1 where there is no gap.
    """
    base, ours, bound = (getattr(getattr(run, policy), what) for policy in ("thirty", who, "bound"))
    return 1.0 if base <= bound else float((base - ours) / (base - bound))


def times_fewer(run: WriteOutcome, who: str, what: str, minutes: int = 30) -> float:
    """Return how many times more messages or points a fixed delay sends than another policy."""
    fixed = run.thirty if minutes == 30 else run.ten
    sent = getattr(getattr(run, who), what)
    return float(getattr(fixed, what) / sent) if sent else math.inf


ROWS: Final = (M5,)
