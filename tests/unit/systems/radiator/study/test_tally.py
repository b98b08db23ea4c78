"""Counts of the deliveries of a broadcast, and their complete or sampled rows."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from mudkit.sources.streams import Stream
from mudkit.systems.radiator import (
    Aggregability,
    Aggregate,
    ClientArrays,
    ClientLists,
    Context,
    Groups,
    Message,
    Tally,
    Volume,
    broadcast,
)
from mudkit.systems.radiator.study.tally import BATCHES
from mudkit.trace.schema import DELIVERIES, STATUSES

S = 1_000_000
START_US = 1_700_000_000 * S
MESSAGES = [Message(t_s, "ann", t_s * S, Context({"ann"}, {}, (t_s * S, t_s * S))) for t_s in (1, 2, 5, 30)]
CLIENTS = {"bob": 2, "cy": 2, "dan": 1}


def release(sent_s, numbers, recipients, size_bytes=100):
    batch = tuple(Message(number, "ann", number * S, Context()) for number in numbers)
    return Aggregate(sent_s * S, batch, Context(), size_bytes, recipients)


def release_many(aggregate_count=200, receiver_count=1000):
    names = [f"car-{number:04d}" for number in range(receiver_count)]
    return [release(number, [number], names) for number in range(aggregate_count)]


def count(aggregates, **settings):
    tally = Tally(**settings)
    for aggregate in aggregates:
        tally.add(aggregate)
    return tally


def list_deliveries(tally):
    table = tally.deliveries()
    return list(zip(table["item"].to_pylist(), table["receiver"].to_pylist(), strict=True))


@pytest.mark.parametrize("engine", [ClientLists, ClientArrays, Groups])
def test_batches_have_one_row_per_batch_and_group(engine):
    key = (lambda receiver: receiver["least"]) if engine is Groups else None
    rule = (
        (lambda sender, least: Volume(least)) if key else (lambda sender, receiver: Volume(receiver["least"]))
    )
    aggregator = engine(Aggregability(rule, key), 20 * S)
    aggregator.register(0, "ann", {}, receives=False)
    for name, least in CLIENTS.items():
        aggregator.register(0, name, {"least": least})
    aggregates = list(broadcast(aggregator, MESSAGES, until_us=60 * S))
    tally = count(aggregates, start_us=START_US)
    table = tally.batches()
    assert table.schema == BATCHES
    result = sorted(
        (
            row["delivered"].timestamp() - START_US / S,
            row["item"],
            [created.timestamp() - START_US / S for created in row["created"]],
            row["latency_s"],
            row["receivers"],
        )
        for row in table.to_pylist()
    )
    assert result == [
        (1.0, ["1"], [1.0], [0.0], 1),
        (2.0, ["1", "2"], [1.0, 2.0], [1.0, 0.0], 2),
        (2.0, ["2"], [2.0], [0.0], 1),
        (5.0, ["5"], [5.0], [0.0], 1),
        (25.0, ["5"], [5.0], [20.0], 2),
        (30.0, ["30"], [30.0], [0.0], 1),
        (50.0, ["30"], [30.0], [20.0], 2),
    ]
    assert table["size_bytes"].to_pylist() == [aggregate.size_bytes for aggregate in aggregates]
    assert set(table["system"].to_pylist()) == {"radiator"}
    assert tally.measures() == {
        "messages": 10.0,
        "bytes": float(sum(aggregate.size_bytes * len(aggregate.recipients) for aggregate in aggregates)),
        "deliveries": 12.0,
        "latency_s": 0.5,
    }


def test_deliveries_have_one_row_per_message_and_receiver():
    table = count(
        [release(9, [3, 7], ["bob", "cy"]), release(9, [8], ["dan"])], start_us=START_US
    ).deliveries()
    assert table.schema == DELIVERIES
    rows = table.to_pylist()
    assert [(row["item"], row["receiver"], row["latency_s"]) for row in rows] == [
        ("3", "bob", 6.0),
        ("3", "cy", 6.0),
        ("7", "bob", 2.0),
        ("7", "cy", 2.0),
        ("8", "dan", 1.0),
    ]
    for row in rows:
        assert row["created"].timestamp() == START_US / S + int(row["item"])
        assert row["delivered"].timestamp() == START_US / S + 9
        assert [row[name] for name in ("read", "expired", "staleness_s")] == [None] * 3
        assert row["system"] == "radiator"
        assert row["status"] == "unread"
    assert "unread" in STATUSES


def test_measures_are_exact_with_a_limited_sample():
    complete, limited = count(release_many()), count(release_many(), limit=10)
    assert limited.measures() == complete.measures()
    assert limited.measures()["deliveries"] == 200_000
    assert limited.batches() == complete.batches()
    assert len(limited.deliveries()) == 10


def test_median_averages_the_two_middle_values():
    aggregates = [release(10, [9], ["a", "b"]), release(10, [5], ["c"]), release(10, [1], ["d", "e", "f"])]
    assert count(aggregates).measures()["latency_s"] == (5 + 9) / 2
    assert count(aggregates[:2]).measures()["latency_s"] == 1


def test_empty_tally_has_empty_tables():
    tally = Tally()
    assert math.isnan(tally.measures().pop("latency_s"))
    assert sum(tally.measures()[name] for name in ("messages", "bytes", "deliveries")) == 0
    assert tally.batches().schema == BATCHES
    assert tally.deliveries().schema == DELIVERIES
    assert len(tally.batches()) == len(tally.deliveries()) == 0


def test_sample_depends_only_on_the_seed():
    tally, aggregates = Tally(seed=7, limit=300), release_many()
    for place, aggregate in enumerate(aggregates):
        tally.add(aggregate)
        if place == 40:
            tally.deliveries()
    assert list_deliveries(tally) == list_deliveries(count(aggregates, seed=7, limit=300))
    assert list_deliveries(tally) != list_deliveries(count(aggregates, seed=8, limit=300))
    assert len(set(list_deliveries(tally))) == 300


def _chi_square(counts):
    expected = counts.mean()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.soak
def test_all_sets_of_deliveries_are_equally_likely():
    """Sample two of six deliveries, in aggregates of one, two and three: 15 sets."""
    aggregates = [release(1, [1], ["a"]), release(2, [2], ["b", "c"]), release(3, [3], ["d", "e", "f"])]
    sets = Counter(
        "".join(sorted(receiver for _, receiver in list_deliveries(count(aggregates, seed=seed, limit=2))))
        for seed in range(3000)
    )
    assert len(sets) == 15
    assert _chi_square(np.array(list(sets.values()))) < 36.1, (
        "at 14 degrees of freedom one in a thousand is above"
    )


@pytest.mark.parametrize(("aggregate_count", "receiver_count", "limit"), [(200, 1000, 500), (20, 500, 2000)])
def test_sample_is_uniform_over_times_and_receivers(aggregate_count, receiver_count, limit):
    """Check one case where nearly all late deliveries are skipped, and one where about half are."""
    aggregates = release_many(aggregate_count, receiver_count)
    result = [
        pair for seed in range(20) for pair in list_deliveries(count(aggregates, seed=seed, limit=limit))
    ]
    time_counts = np.bincount([int(item) * 20 // aggregate_count for item, _ in result], minlength=20)
    receiver_counts = np.bincount(
        [int(receiver[4:]) * 20 // receiver_count for _, receiver in result], minlength=20
    )
    assert time_counts.sum() == 20 * limit
    for counts in (time_counts, receiver_counts):
        assert _chi_square(counts) < 43.8, "at 19 degrees of freedom one in a thousand is above"


def test_skipped_deliveries_cost_no_draw(monkeypatch):
    draw, draws = Stream.pair, []

    def count_draws(stream, device, step):
        draws.append(np.size(step))
        return draw(stream, device, step)

    monkeypatch.setattr(Stream, "pair", count_draws)
    count(release_many(), limit=10)
    assert 0 < sum(draws) < 200_000 / 10
