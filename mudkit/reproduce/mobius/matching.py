"""M1: how fast records find their readers, one by one and with the index."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mudkit.experiment.matching import (
    READ_PREDICATES,
    WRITER_PREDICATE,
    MatchingLoad,
    Shape,
    match_each,
)
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.reproduce.row import Figure, Measured, Say, say_nothing

__all__ = ["PARTITIONS", "measure"]

PARTITIONS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Subscriptions a partition, as in Figure 5."""

_EVALUATIONS: Final = 100_000
_CHECKED: Final = 200
_HARD: Final[tuple[Shape, ...]] = ("ranges", "wide", "skewed", "near")
_MOVES: Final = 10
_LINE: Final = (
    "µs a message besides evaluations",
    "evaluations/s one by one",
    "power of subscriptions in the time of a message",
)


def measure(
    say: Say = say_nothing,
    *,
    subscriptions: int = 1_000_000,
    fewer: int = 10_000,
    hard: int = 100_000,
    topics: int = 1000,
    hot_topics: int = 10,
    records: int = 20_000,
    updates: int = 100_000,
    partitions: Sequence[int] = PARTITIONS,
    runs: int = 5,
) -> Measured:
    """Measure everything of row M1.

    Parameters
    ----------
    say : callable
        Called with a sentence about what is measured next.
    subscriptions, fewer, hard : int
        The number of subscriptions in the large index, in the one it is compared with, and in those of hard
        shapes.
    topics, hot_topics : int
        The numbers of topics over which subscriptions and records are spread, in the two cases.
    records, updates : int
        How many records are matched and how many subscriptions are changed in a run.
    partitions : sequence of int
        The numbers of subscriptions of a partition that are evaluated one by one.
    runs : int
        How many times each is measured, with records of another seed each time.
    """
    figures = _partitions(say, partitions, 2 * runs + 1)
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
        figures |= {
            f"records/s, {label}": Figure.of(1e6 / us for us in after),
            f"growth of time a record, {label}": Figure.of(b / a for a, b in zip(before, after, strict=True)),
            f"µs a record one at a time, {label}": Figure.of(_single_us(large, index, records // 10, runs)),
            f"matches a record, {label}": Figure.of([_matches(large, index, records)]),
            f"updates/s, {label}": Figure.of(1e6 / us for us in _update_us(large, index, updates, runs)),
            f"s to add all, {label}": Figure.of([added_s]),
            f"added/s, {label}": Figure.of([subscriptions / added_s]),
        }
        del index
    figures["share of records on which both agree"] = Figure.of(agreed)
    for shape in _HARD:
        say(f"{hard:,} subscriptions, {shape}")
        figures |= _hard(shape, hard, hot_topics if shape == "wide" else topics, records, runs)
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
    return Measured(figures, parameters)


def _partitions(say: Say, partitions: Sequence[int], runs: int) -> dict[str, Figure]:
    """Measure the paper's curve: each message is for one of the partition's subscriptions."""
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
            started = time.perf_counter()
            for message in messages:
                values = [place for place, reader in enumerate(mine) if reader(message)]
            times[many].append((time.perf_counter() - started) / len(messages))
            assert len(values) == 1
    fits = [_fit(partitions, [times[many][run] for many in partitions]) for run in range(runs)]
    # Whatever the machine does beside can only make a point slower: the line is that of the fastest.
    line = _fit(partitions, [min(times[many]) for many in partitions])
    figures = {
        f"messages/s one by one, {many:,} a partition": Figure.of(1 / s for s in values)
        for many, values in times.items()
    }
    return figures | {
        name: Figure(fastest, min(fastest, *each), max(fastest, *each))
        for name, fastest, each in zip(_LINE, line, zip(*fits, strict=True), strict=True)
    }


def _fit(partitions: Sequence[int], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Fit a line, and a power: µs at no subscription, evaluations/s, and the power.

    Errors are taken to be in proportion to the time, else the largest partitions alone would decide. The
    power is that of the subscriptions to which the time of a message is proportional, over the larger half of
    the partitions, where evaluations are nearly all of it; 1 is linear.
    """
    x, y = np.array(partitions, dtype=float), np.array(seconds)
    slope, base = np.polyfit(x, y, 1, w=1 / y)
    larger = slice(len(x) // 2, None)
    power, _ = np.polyfit(np.log(x[larger]), np.log(y[larger]), 1)
    return float(base) * 1e6, 1 / float(slope), float(power)


def _agreement(load: MatchingLoad) -> float:
    """Give the share of records for which the index finds what evaluation one by one finds."""
    whole, index = list(load.draw()), load.index()
    records = load.records(_CHECKED // 2, seed=0)
    writers = load.writers(records)
    expected = [match_each(whole, record, writer) for record, writer in zip(records, writers, strict=True)]
    matches = index.match_many(records, writers)
    single = [index.match(record, writer) for record, writer in zip(records, writers, strict=True)]
    same = [a == b == c for a, b, c in zip(expected, matches, single, strict=True)]
    return sum(same) / len(same)


def _per_record_us(load: MatchingLoad, index: SubscriptionIndex, records: int, runs: int) -> list[float]:
    times = []
    for run in range(runs + 1):  # the first warms up
        batch = load.records(records, seed=run)
        writers = load.writers(batch)
        started = time.perf_counter()
        index.match_many(batch, writers)
        times.append((time.perf_counter() - started) / records * 1e6)
    return times[1:]


def _single_us(load: MatchingLoad, index: SubscriptionIndex, records: int, runs: int) -> list[float]:
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
    batch = load.records(records)
    return sum(map(len, index.match_many(batch, load.writers(batch)))) / records


def _update_us(load: MatchingLoad, index: SubscriptionIndex, updates: int, runs: int) -> list[float]:
    """Time updates: readers, drawn at random, say where they are now."""
    times = []
    for run in range(runs):
        moves = _moves(load, updates, run)
        started = time.perf_counter()
        for name, data in moves:
            index.update(name, receiver=data)
        times.append((time.perf_counter() - started) / updates * 1e6)
    return times


def _moves(load: MatchingLoad, many: int, seed: int) -> list[tuple[str, dict[str, Any]]]:
    rng = random.Random(seed)
    return [
        (f"sub-{rng.randrange(load.subscriptions)}", {"age": 30, "loc": (rng.random(), rng.random())})
        for _ in range(many)
    ]


def _hard(shape: Shape, subscriptions: int, topics: int, records: int, runs: int) -> dict[str, Figure]:
    """Measure a shape that is hard for an index; nothing is required of these."""
    load = MatchingLoad(subscriptions, topics, shape=shape)
    index = load.index()
    if shape == "wide":  # thousands match each record
        records = max(records // 100, 1)
    some = max(records // 10, 1)
    figures = {
        f"{shape}: µs a record": Figure.of(_per_record_us(load, index, records, runs)),
        f"{shape}: µs a record one at a time": Figure.of(_single_us(load, index, some, runs)),
        f"{shape}: matches a record": Figure.of([_matches(load, index, records)]),
    }
    if shape == "near":
        figures["near: µs a move"] = Figure.of(_update_us(load, index, some, runs))
        figures[f"near: µs for {_MOVES} moves and a record"] = Figure.of(_mixed_us(load, index, some, runs))
    return figures


def _mixed_us(load: MatchingLoad, index: SubscriptionIndex, records: int, runs: int) -> list[float]:
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
