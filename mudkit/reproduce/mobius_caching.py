"""Rows M4 and M5 (Mobius 7.3): savings of read caching and write batching, beside a bound in hindsight."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import mudkit
from mudkit import trace
from mudkit.errors import TraceContentError
from mudkit.learning import Batch, FixedRule
from mudkit.learning.bound import fewest_sends
from mudkit.learning.devices import LocalDevices, LocalWriters
from mudkit.learning.evaluate_batches import bound_us, trained_on
from mudkit.learning.frontier import (
    frontier_of_reads,
    frontier_of_writes,
    interpolate_frontier,
    oracle_frontier,
)
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, replay, stale_answers
from mudkit.learning.writes import ReadRequests, Writes, batches, missed
from mudkit.processes import PROCESSES, spread_out
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

CARS: Final = (20, 60, 200, 600)
TOWNS: Final = (1, 20)
DAYS: Final[Mapping[int, int]] = {20: 14, 60: 7, 200: 4, 600: 2}
"""Length of generated traces by cars: 60,000 to 250,000 positions, two or three minutes a row."""
_RECORDED: Final[Mapping[str, str]] = {
    "taxis of San Francisco": "cabspotting_sf/cabs.csv.gz",
    "buses of Austin": "capmetrics_austin/vehicle_positions.csv.gz",
}
"""Recorded traces, in the folder ``shared/data`` beside the checkout."""


class Labelled(NamedTuple):
    """A trace and the labels of its reads or writes; traces of one regime, `name`, differ in their seeds."""

    name: str
    positions: pa.Table
    reads: pa.Table
    labels: pa.Table


@dataclass(frozen=True)
class Traces:
    """Traces that a row is measured on: generated ones, and the recorded ones that are on this machine."""

    cars: Sequence[int] = CARS
    towns: Sequence[int] = TOWNS
    days: Mapping[int, int] = field(default_factory=lambda: DAYS)
    seeds: Sequence[int] = (7, 8)
    recorded: bool = True

    def label_each(self, label: Callable[[DataFrame, DataFrame], DataFrame], say: Say) -> Iterator[Labelled]:
        """Generate or load the traces, and label each on Spark."""
        from mudkit import pipeline  # loads Spark

        spark = pipeline.session()
        with tempfile.TemporaryDirectory(prefix="mudkit-traces-") as place:
            folder = Path(place) / "trace"

            def with_labels(name: str) -> Labelled:
                say(f"{name}: labelling on Spark")
                frames = [pipeline.read(spark, folder, table) for table in ("positions", "reads")]
                positions, reads = (trace.read_table(folder, table) for table in ("positions", "reads"))
                return Labelled(name, positions, reads, label(*frames).toArrow())

            for cars, towns, seed in product(self.cars, self.towns, self.seeds):
                name = f"{cars} cars, {towns} town" + ("s" if towns > 1 else "")
                say(f"{name}: generating, seed {seed}")
                trace.generate(cars, self.days[cars], seed, towns=towns, path=folder, overwrite=True)
                yield with_labels(name)
            for name, file in _recorded().items() if self.recorded else ():
                if file is not None:
                    say(f"{name}: loading")
                    pipeline.ingest(spark, file, folder, overwrite=True)
                    yield with_labels(name)

    def parameters(self) -> dict[str, Any]:
        """Describe the traces."""
        days = ", ".join(f"{cars} cars {self.days[cars]} days" for cars in self.cars)
        return {
            "generated traces": f"{days}; seeds {', '.join(map(str, self.seeds))}",
            "recorded traces": {
                name: "not taken"
                if not self.recorded
                else "taken"
                if file is not None
                else f"not on this machine (shared/data/{_RECORDED[name]})"
                for name, file in _recorded().items()
            },
        }


def _recorded() -> dict[str, Path | None]:
    """Return the file of each recorded trace; None where it is not on this machine."""
    shared = Path(mudkit.__file__).resolve().parents[2] / "shared" / "data"
    files = {name: shared / file for name, file in _RECORDED.items()}
    return {name: file if file.is_file() else None for name, file in files.items()}


ALL_TRACES: Final = Traces()
COMPLETENESS: Final = (1.0, 0.9)
"""Completeness below which an answer is stale; 1, as in the paper: when one point is missing."""
FEWER_QUERIES, FEWER_STALE = 4.0, 3.5
"""The paper's factors."""
MIN_GAP: Final = 0.05
"""Smallest gap between rule and bound that is judged, as a share of all reads."""


class _ReadOutcome(NamedTuple):
    """Outcome of read caching on a trace.

    Shares of reads sent by the fixed rule, by the tree and by the bound, all with as many stale answers as
    the rule; the share that is stale with the rule; and how many times more the rule sends than bound and
    tree with `FEWER_STALE` times fewer stale answers.
    """

    rule: float
    rule_stale: float
    tree: float
    bound: float
    bound_factor: float
    tree_factor: float


def measure_reads(
    say: Say = say_nothing, *, traces: Traces = ALL_TRACES, processes: int = PROCESSES
) -> Measured:
    """Measure row M4; processes replay while Spark labels the next trace."""
    from mudkit.pipeline import label_reads  # loads Spark

    by_name: dict[str, list[_ReadOutcome]] = {}
    with spread_out(processes, 1) as map_:
        for outcomes in map_(_replay_reads, traces.label_each(label_reads, say)):
            say("rule, trees and bound")
            for name, outcome in outcomes.items():
                by_name.setdefault(name, []).append(outcome)
    return Measured(
        _read_figures(by_name),
        {
            **traces.parameters(),
            "rule": str(FixedRule()),
            "tree": "extended features, ten folds by device; at the rule's share of stale answers, between "
            "two of 15 prices of a stale answer by using each for a part of the devices",
            "horizon": "7,200 s",
            "finding": _read_finding(by_name),
        },
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
    minutes=1.0,
)


def _replay_reads(trace: Labelled) -> dict[str, _ReadOutcome]:
    """Replay a trace for each definition of stale."""
    pairs = Pairs.of(trace.labels, trace.reads)
    return {
        f"{trace.name}, completeness {least:g}": _read_outcome(pairs, None if least == 1 else least)
        for least in COMPLETENESS
    }


def _read_outcome(pairs: Pairs, completeness: float | None) -> _ReadOutcome:
    """Replay reads with the fixed rule, the learnt trees and the bound in hindsight.

    An answer is stale below the `completeness`; None: if it lacks a point.
    """
    count, stale = len(pairs.device), pairs.are_stale(completeness)

    def shares(served: NDArray[np.int64]) -> tuple[float, int]:
        return float((served == SENT).mean()), stale_answers(stale, served)

    def bound(budget: int) -> float:
        return shares(fewest_sends(pairs, stale, pairs.devices(), budget))[0]

    rule, stales = shares(replay(pairs, FixedRule().local(pairs)))
    few = int(stales / FEWER_STALE)
    try:
        frontier = frontier_of_reads(LocalDevices(pairs), completeness)
    except TraceContentError:  # every answer is stale, so any tree always asks
        tree = tree_few = 1.0
    else:
        tree = min(1.0, interpolate_frontier(frontier, "sent_share", "stale_share", stales / count))
        tree_few = min(1.0, interpolate_frontier(frontier, "sent_share", "stale_share", few / count))
    return _ReadOutcome(rule, stales / count, tree, bound(stales), rule / bound(few), rule / tree_few)


def _read_figures(by_name: Mapping[str, Sequence[_ReadOutcome]]) -> dict[str, Quantity]:
    """Return the row's figures from the outcomes of all seeds, by regime."""
    quantities: dict[str, Quantity] = {}
    wide = {
        name: _closed_reads(runs)
        for name, runs in by_name.items()
        if np.median([run.rule - run.bound for run in runs]) > MIN_GAP
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
        for what, share in (
            ("rule sends", "rule"),
            ("rule is stale", "rule_stale"),
            ("tree sends", "tree"),
            ("bound sends", "bound"),
        ):
            quantities[f"{what}, {name}"] = Quantity.of(getattr(run, share) for run in runs)
        if name in wide:
            quantities[f"share of the gap closed, {name}"] = wide[name]
    return quantities


def _read_finding(by_name: Mapping[str, Sequence[_ReadOutcome]]) -> str:
    """Describe what the bound implies for the paper's factor, and the nearest regime."""
    best = {name: Quantity.of(run.bound_factor for run in runs).median for name, runs in by_name.items()}
    nearest = max(best, key=lambda name: best[name])
    factor = f"at most {best[nearest]:.2f} times fewer queries with {FEWER_STALE:g} times fewer stale answers"
    verdict = "no policy can reach" if best[nearest] < FEWER_QUERIES else "a policy might reach"
    return f"by the bound, {factor} ({nearest}): {verdict} {FEWER_QUERIES:g} times in these regimes"


def _closed_reads(runs: Sequence[_ReadOutcome]) -> Quantity:
    """Return the share of the gap between rule and bound that the tree closes."""
    return Quantity.of((run.rule - run.tree) / (run.rule - run.bound) for run in runs)


FEWER_MESSAGES, FEWER_POINTS = 3.0, 7.0
"""The paper's factors, against 30 minutes."""
PRICES: Final = tuple(np.geomspace(0.001, 2.0, 12).tolist())
MAX_MISSED: Final = 0.95
"""Share of reads that may miss a write in a regime in which the paper's factors are judged."""
MAX_WRITES: Final = 200_000
"""Number of writes up to which delays by hour are searched in hindsight, in thousands of replays."""
_HALF: Final = 0.5
_BASE: Final = Batch(30)


class _Shares(NamedTuple):
    """Shares of a policy: messages and points sent, by writes; missed, by reads."""

    messages: float
    points: float
    missed: float


class _WriteOutcome(NamedTuple):
    """Outcome of write batching: the shares of each policy; `hours` is None where it was not searched."""

    ten: _Shares
    thirty: _Shares
    tree: _Shares
    bound: _Shares
    strict: _Shares
    hours: _Shares | None
    """Shares with delays by hour chosen in hindsight; None: not searched."""


def measure_writes(
    say: Say = say_nothing, *, traces: Traces = ALL_TRACES, processes: int = PROCESSES
) -> Measured:
    """Measure row M5; processes replay while Spark labels the next trace."""
    from mudkit.pipeline import label_writes  # loads Spark

    by_name: dict[str, list[_WriteOutcome]] = {}
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
)


def _replay_writes(trace: Labelled) -> tuple[str, _WriteOutcome]:
    """Replay a trace, and return its name and outcome."""
    return trace.name, _write_outcome(Writes.of(trace.labels, trace.positions), ReadRequests.of(trace.reads))


def _write_outcome(writes: Writes, requests: ReadRequests) -> _WriteOutcome:
    """Replay the later writes with fixed delays, learnt trees and bounds in hindsight.

    The tree and the delays by hour are those that miss no more than a delay of 30 minutes.
    """
    test = writes.take(~trained_on(writes))

    def shares(due_us: NDArray[np.int64]) -> _Shares:
        sent, count = batches(test, due_us), len(test.t_us)
        late = missed(test, sent.sent_us, requests)
        return _Shares(sent.messages / count, sent.points / count, float(late.mean()))

    thirty = shares(_BASE.due_us(test))

    def at_most(frontier: pd.DataFrame) -> _Shares:
        messages, points = (  # 30 min is one of the policies: a tree of one leaf, the same at all hours
            min(fixed, interpolate_frontier(frontier, name, "missed_share", thirty.missed))
            for name, fixed in (("message_share", thirty.messages), ("point_share", thirty.points))
        )
        return _Shares(messages, points, thirty.missed)

    try:
        tree = at_most(frontier_of_writes(LocalWriters(writes), requests, prices=PRICES))
    except TraceContentError:  # all writes alike: a fixed delay is all that can be learnt
        tree = thirty
    bound, strict = (shares(bound_us(match, test, requests)) for match in (_BASE, None))
    hours = None
    if len(test.t_us) <= MAX_WRITES and thirty.missed <= MAX_MISSED:
        hours = at_most(oracle_frontier(test, requests))
    return _WriteOutcome(shares(Batch(10).due_us(test)), thirty, tree, bound, strict, hours)


def _write_figures(by_name: Mapping[str, Sequence[_WriteOutcome]]) -> dict[str, Quantity]:
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
        for who in ("bound", "tree"):
            times = [Quantity.of(_times(run, who, what) for run in runs) for runs in _comparable(by_name)]
            best = max(times, key=lambda quantity: quantity.median, default=Quantity.of([math.nan]))
            quantities[f"times fewer {what} than with 30 min, {who}, best regime"] = best
    for name, runs in by_name.items():
        for who, share in (
            ("10 min", "ten"),
            ("30 min", "thirty"),
            ("tree", "tree"),
            ("bound", "bound"),
            ("strict bound", "strict"),
            ("hours in hindsight", "hours"),
        ):
            by_run = [shares for run in runs if (shares := getattr(run, share)) is not None]
            for what in _Shares._fields if by_run else ():
                quantities[f"{what}, {who}, {name}"] = Quantity.of(getattr(run, what) for run in by_run)
    return quantities


def _write_finding(by_name: Mapping[str, Sequence[_WriteOutcome]]) -> str:
    """Describe what bound and tree reach of the paper's factors, and what delays by hour could reach."""
    words = []
    for what, factor in (("messages", FEWER_MESSAGES), ("points", FEWER_POINTS)):
        for who in ("bound", "tree"):
            times = [
                Quantity.of(_times(run, who, what) for run in runs).median for runs in _comparable(by_name)
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


def _comparable(by_name: Mapping[str, Sequence[_WriteOutcome]]) -> list[Sequence[_WriteOutcome]]:
    """Return the regimes in which reads miss something with 30 minutes, but not nearly all of them do.

    Where nobody reads another's writes or nearly all reads miss some, never to send is as good.
    """
    return [
        runs
        for runs in by_name.values()
        if _some_missed(runs) and max(run.thirty.missed for run in runs) <= MAX_MISSED
    ]


def _some_missed(runs: Sequence[_WriteOutcome]) -> bool:
    """Return whether reads miss something with a delay of 30 minutes in every run."""
    return min(run.thirty.missed for run in runs) > 0


def _by_hours(runs: Sequence[_WriteOutcome]) -> list[float]:
    """Return the share of the gap in messages that delays by hour close, of runs that searched them."""
    return [_closed(run, "messages", "hours") for run in runs if run.hours is not None]


def _closed(run: _WriteOutcome, what: str, who: str = "tree") -> float:
    """Return the share of the gap between 30 minutes and bound that a policy closes.

    1 where there is no gap.
    """
    base, ours, bound = (getattr(getattr(run, policy), what) for policy in ("thirty", who, "bound"))
    return 1.0 if base <= bound else float((base - ours) / (base - bound))


def _times(run: _WriteOutcome, who: str, what: str) -> float:
    """Return how many times more messages or points 30 minutes sends than another policy."""
    return float(getattr(run.thirty, what) / max(getattr(getattr(run, who), what), 1e-9))


ROWS: Final = (M4, M5)
