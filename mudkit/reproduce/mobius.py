"""Rows of Mobius (MobiSys 2012): the index of subscriptions (M1-index), and the fault campaign (M6).

The rows of messages through the servers (M1, M2, M2-scaling), of its measured overhead (M3) and of caching
(M4, M5) are in modules of their own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mudkit.display import one_line
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.processes import PROCESSES
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.verify.campaign.bugs import BUGS, Bug, Catch, hunt
from mudkit.verify.campaign.campaign import MINUTES, SETTLE_HOURS
from mudkit.verify.campaign.cells import Table
from mudkit.verify.campaign.judge import PROMISED
from mudkit.verify.campaign.runs import Runs, play_all
from mudkit.worlds.matching import (
    READ_PREDICATES,
    WRITER_PREDICATE,
    MatchingLoad,
    Shape,
    match_each,
    paper_messages_per_s,
)

PARTITIONS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Subscriptions a partition, as in Figure 5."""

CURVE: Final = ", ".join(f"{paper_messages_per_s(many):,.0f} at {many:,}" for many in PARTITIONS)
_EVALUATIONS: Final = 100_000
_CHECKED: Final = 200
_HARD: Final[tuple[Shape, ...]] = ("ranges", "wide", "skewed", "near")
_MOVES: Final = 10
_LINE: Final = (
    "µs a message besides evaluations",
    "evaluations/s one by one",
    "power of subscriptions in the time of a message",
)


def measure_matching(
    say: Say = say_nothing,
    *,
    subscriptions: int = 1_000_000,
    fewer: int = 10_000,
    hard: int = 100_000,
    topics: int = 1000,
    hot_topics: int = 10,
    records: int = 20_000,
    updates: int = 100_000,
    runs: int = 5,
) -> Measured:
    """Measure row M1-index."""
    quantities: dict[str, Quantity] = {}
    agreed = []
    for label, many in (("many topics", topics), ("hot topics", hot_topics)):
        agreed.append(_agreement(MatchingLoad(fewer, many)))
        say(f"{fewer:,} subscriptions, {many:,} topics")
        small = MatchingLoad(fewer, many)
        before = _per_record_us(small, small.index(), records, runs)
        large = MatchingLoad(subscriptions, many)
        say(f"adding {subscriptions:,} subscriptions, {many:,} topics")
        started = time.perf_counter()
        index = large.index()
        added_s = time.perf_counter() - started
        say(f"{subscriptions:,} subscriptions, {many:,} topics")
        after = _per_record_us(large, index, records, runs)
        quantities |= {
            f"records/s, {label}": Quantity.of(1e6 / us for us in after),
            f"growth of time a record, {label}": Quantity.of(
                b / a for a, b in zip(before, after, strict=True)
            ),
            f"µs a record one at a time, {label}": Quantity.of(_single_us(large, index, records // 10, runs)),
            f"matches a record, {label}": Quantity.of([_matches(large, index, records)]),
            f"updates/s, {label}": Quantity.of(1e6 / us for us in _update_us(large, index, updates, runs)),
            f"s to add all, {label}": Quantity.of([added_s]),
            f"added/s, {label}": Quantity.of([subscriptions / added_s]),
        }
        del index
    quantities["share of records on which both agree"] = Quantity.of(agreed)
    for shape in _HARD:
        say(f"{hard:,} subscriptions, {shape}")
        quantities |= _hard(shape, hard, hot_topics if shape == "wide" else topics, records, runs)
    parameters = {
        "subscriptions": subscriptions,
        "fewer": fewer,
        "hard shapes": hard,
        "topics": [topics, hot_topics],
        "records a run": records,
        "updates a run": updates,
        "runs": runs,
        "seeds of records": list(range(1, runs + 1)),
        "read predicate": READ_PREDICATES["box"],
        "writer predicate": WRITER_PREDICATE,
        "threads": 1,
    }
    return Measured(quantities, parameters)


M1_INDEX: Final = Row(
    name="M1-index",
    source="Mobius 7.4",
    paper="An index over the predicates of subscriptions, as in NiagaraCQ or ARIEL, would avoid the linear "
    "slowdown; announced, without figures.",
    required=(
        Required("records/s, many topics", "at least", 30_000),
        Required("records/s, hot topics", "at least", 15_000),
        Required("updates/s, many topics", "at least", 100_000),
        Required("updates/s, hot topics", "at least", 100_000),
        Required("growth of time a record, many topics", "below", 3),
        Required("growth of time a record, hot topics", "below", 3),
        Required("s to add all, many topics", "below", 60),
        Required("s to add all, hot topics", "below", 60),
        Required("share of records on which both agree", "at least", 1),
    ),
    measure=measure_matching,
    minutes=2.3,
    is_speed=True,
)


def measure_one_by_one(say: Say, partitions: Sequence[int], runs: int) -> dict[str, Quantity]:
    """Measure the paper's curve: each message matches one of the partition's subscriptions."""
    readers = [Predicate("recipient = :name", name=f"reader-{i}") for i in range(max(partitions))]
    times: dict[int, list[float]] = {many: [] for many in partitions}
    for run in range(runs):
        say(f"one by one, up to {max(partitions):,} subscriptions a partition, run {run + 1} of {runs}")
        for many in partitions:
            rng = random.Random(many)
            messages = [
                {"recipient": f"reader-{rng.randrange(many)}", "text": "…"}
                for _ in range(max(_EVALUATIONS // many, _CHECKED))
            ]
            mine = readers[:many]
            started = time.process_time()
            for message in messages:
                values = [place for place, reader in enumerate(mine) if reader(message)]
            times[many].append((time.process_time() - started) / len(messages))
            assert len(values) == 1
    fits = [_fit(partitions, [times[many][run] for many in partitions]) for run in range(runs)]
    # Other load can only make a point slower, so the line is fitted to the fastest run of each.
    line = _fit(partitions, [min(times[many]) for many in partitions])
    quantities = {
        f"messages/s one by one, {many:,} a partition": Quantity.of(1 / s for s in values)
        for many, values in times.items()
    }
    return quantities | {
        name: Quantity(fastest, min(fastest, *values), max(fastest, *values))
        for name, fastest, values in zip(_LINE, line, zip(*fits, strict=True), strict=True)
    }


def _fit(partitions: Sequence[int], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return the intercept (µs) and slope (evaluations/s) of a linear fit, and the exponent of a power fit.

    Residuals of the line are weighted by 1/time; otherwise the largest partitions alone would decide. The
    exponent is fitted over the larger half of the partitions, where evaluations dominate; 1 is linear.
    """
    x, y = np.array(partitions, dtype=float), np.array(seconds)
    slope, base = np.polyfit(x, y, 1, w=1 / y)
    larger = slice(len(x) // 2, None)
    power, _ = np.polyfit(np.log(x[larger]), np.log(y[larger]), 1)
    return float(base) * 1e6, 1 / float(slope), float(power)


def _agreement(load: MatchingLoad) -> float:
    """Return the share of records for which the index and evaluation one by one find the same readers."""
    whole, index = list(load.draw()), load.index()
    records = load.records(_CHECKED // 2, seed=0)
    writers = load.writers(records)
    expected = [match_each(whole, record, writer) for record, writer in zip(records, writers, strict=True)]
    matches = index.match_many(records, writers)
    single = [index.match(record, writer) for record, writer in zip(records, writers, strict=True)]
    same = [a == b == c for a, b, c in zip(expected, matches, single, strict=True)]
    return sum(same) / len(same)


def _per_record_us(load: MatchingLoad, index: SubscriptionIndex, records: int, runs: int) -> list[float]:
    """Time matching in batches, in µs a record; a value for each run, without the one that warms up."""
    times = []
    for run in range(runs + 1):  # the first warms up
        batch = load.records(records, seed=run)
        writers = load.writers(batch)
        started = time.perf_counter()
        index.match_many(batch, writers)
        times.append((time.perf_counter() - started) / records * 1e6)
    return times[1:]


def _single_us(load: MatchingLoad, index: SubscriptionIndex, records: int, runs: int) -> list[float]:
    """Time matching record by record, in µs a record; a value for each run."""
    times = []
    for run in range(runs):
        batch = load.records(records, seed=run + 1)
        writers = load.writers(batch)
        started = time.perf_counter()
        for record, writer in zip(batch, writers, strict=True):
            index.match(record, writer)
        times.append((time.perf_counter() - started) / records * 1e6)
    return times


def _matches(load: MatchingLoad, index: SubscriptionIndex, records: int) -> float:
    """Return the average number of subscriptions that a record matches."""
    batch = load.records(records)
    return sum(map(len, index.match_many(batch, load.writers(batch)))) / records


def _update_us(load: MatchingLoad, index: SubscriptionIndex, updates: int, runs: int) -> list[float]:
    """Time updates: random readers report a new place."""
    times = []
    for run in range(runs):
        moves = _moves(load, updates, run)
        started = time.perf_counter()
        for name, data in moves:
            index.update(name, receiver=data)
        times.append((time.perf_counter() - started) / updates * 1e6)
    return times


def _moves(load: MatchingLoad, many: int, seed: int) -> list[tuple[str, dict[str, Any]]]:
    """Draw updates (subscription, its reader's new age and place) of random readers."""
    rng = random.Random(seed)
    return [
        (f"sub-{rng.randrange(load.subscriptions)}", {"age": 30, "loc": (rng.random(), rng.random())})
        for _ in range(many)
    ]


def _hard(shape: Shape, subscriptions: int, topics: int, records: int, runs: int) -> dict[str, Quantity]:
    """Measure a shape that is hard for an index, for which the row requires nothing."""
    load = MatchingLoad(subscriptions, topics, shape=shape)
    index = load.index()
    if shape == "wide":  # thousands match each record
        records = max(records // 100, 1)
    some = max(records // 10, 1)
    quantities = {
        f"{shape}: µs a record": Quantity.of(_per_record_us(load, index, records, runs)),
        f"{shape}: µs a record one at a time": Quantity.of(_single_us(load, index, some, runs)),
        f"{shape}: matches a record": Quantity.of([_matches(load, index, records)]),
    }
    if shape == "near":
        quantities["near: µs a move"] = Quantity.of(_update_us(load, index, some, runs))
        quantities[f"near: µs for {_MOVES} moves and a record"] = Quantity.of(
            _mixed_us(load, index, some, runs)
        )
    return quantities


def _mixed_us(load: MatchingLoad, index: SubscriptionIndex, records: int, runs: int) -> list[float]:
    """Time matching record by record with `_MOVES` updates before each, in µs a record and its updates."""
    times = []
    for run in range(runs):
        batch = load.records(records, seed=run + 1)
        writers = load.writers(batch)
        moves = iter(_moves(load, _MOVES * records, run))
        started = time.perf_counter()
        for record, writer in zip(batch, writers, strict=True):
            for _ in range(_MOVES):
                name, data = next(moves)
                index.update(name, receiver=data)
            index.match(record, writer)
        times.append((time.perf_counter() - started) / records * 1e6)
    return times


_MIN_SPREAD_SEEDS: Final = 100
"""Number of runs from which starting processes pays."""


def measure_campaign(
    say: Say = say_nothing, *, seeds: Sequence[int] = range(1000), bugs: Sequence[Bug] = BUGS
) -> Measured:
    """Measure row M6."""
    total = Runs()
    processes = PROCESSES if len(seeds) >= _MIN_SPREAD_SEEDS else 1
    for runs in play_all(seeds, processes):
        total.add(runs)
        say(f"run {total.runs:,} of {len(seeds):,}")
    catches: dict[str, Catch | None] = {}
    for bug in bugs:
        say(f"seeded: {bug.name}")
        catches[bug.name] = hunt(bug, seeds)
    quantities = {
        "runs": total.runs,
        "runs in which a promise was broken": len(total.problems),
        "runs in which definition 3 was, by refused writes": len(total.forks),
        "writes": total.writes,
        "changes told to continuous reads": total.notified,
        "reachable transitions under a fault that did not occur": len(Table(total.cells).missing()),
    }
    for kind, models in PROMISED.items():
        quantities[f"histories that are {models[0]}, {kind} reads"] = total.counts[f"{kind} {models[0]} OK"]
    quantities["seeded bugs"] = len(bugs)
    quantities["seeded bugs that nothing caught"] = list(catches.values()).count(None)
    for name, catch in catches.items():
        if catch is not None and catch.operations is not None:
            quantities[f"operations of the smallest counterexample, {name}"] = catch.operations
    faults = {
        name: sum(count for column, count in total.counts.items() if name in column.split())
        for name in ("cut", "killed", "wiped", "restored", "address", "network", "lost", "repeated", "late")
    }
    parameters = {
        "runs": f"{MINUTES[0]} or {MINUTES[1]} virtual minutes, 10 to 60 operations and some for each fault, "
        f"{SETTLE_HOURS} h rest",
        "seeds": f"{min(seeds)} to {max(seeds)}",
        "faults": faults,
    }
    if total.forks:
        (_, words), seed = min((fork, seed) for seed, fork in total.forks.items())
        parameters["smallest counterexample to definition 3"] = f"seed {seed}: {one_line(words, 200)}"
    parameters |= {
        f"seeded, {name}": "nothing caught it"
        if catch is None
        else f"seed {catch.seed}, violated: {catch.promise}"
        for name, catch in catches.items()
    }
    return Measured({name: Quantity.of([count]) for name, count in quantities.items()}, parameters)


M6: Final = Row(
    name="M6",
    source="Mobius 4.1, table 3, appendix A",
    paper="Committed reads are sequential, committed_wio reads keep the order of invocation, "
    "uncommitted reads are fork-sequential. (A write that is refused after its own client has read it "
    "breaks definition 3: what is left of it is checked, and how often that happens is counted.) Here "
    "also bugs that are seeded on purpose: the same campaign must catch each of them.",
    required=(
        Required("runs", "at least", 1000),
        Required("runs in which a promise was broken", "at most", 0),
        Required("histories that are sequential, committed reads", "at least", 500),
        Required("histories that are sequential-wio, committed_wio reads", "at least", 500),
        Required("histories that are fork-sequential-retracted, uncommitted reads", "at least", 500),
        Required("seeded bugs", "at least", 4),
        Required("seeded bugs that nothing caught", "at most", 0),
    ),
    measure=measure_campaign,
    minutes=3.0,
)


ROWS: Final = (M1_INDEX, M6)
