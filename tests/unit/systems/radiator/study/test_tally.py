"""What a broadcast delivers is counted; rows by receiver are all there, or a fair sample of them."""

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
SAID = [Message(t_s, "ann", t_s * S, Context({"ann"}, {}, (t_s * S, t_s * S))) for t_s in (1, 2, 5, 30)]
CLIENTS = {"bob": 2, "cy": 2, "dan": 1}


def aggregate(gone_s, numbers, recipients, size_bytes=100):
    batch = tuple(Message(number, "ann", number * S, Context()) for number in numbers)
    return Aggregate(gone_s * S, batch, Context(), size_bytes, recipients)


def many(aggregates=200, receivers=1000):
    names = [f"car-{number:04d}" for number in range(receivers)]
    return [aggregate(number, [number], names) for number in range(aggregates)]


def tallied(gone, **settings):
    tally = Tally(**settings)
    for each in gone:
        tally.add(each)
    return tally


def pairs(tally):
    table = tally.deliveries()
    return list(zip(table["item"].to_pylist(), table["receiver"].to_pylist(), strict=True))


@pytest.mark.parametrize("engine", [ClientLists, ClientArrays, Groups])
def test_a_row_for_each_batch_and_group(engine):
    key = (lambda receiver: receiver["least"]) if engine is Groups else None
    rule = (
        (lambda sender, least: Volume(least)) if key else (lambda sender, receiver: Volume(receiver["least"]))
    )
    made = engine(Aggregability(rule, key), 20 * S)
    made.register(0, "ann", {}, receives=False)
    for name, least in CLIENTS.items():
        made.register(0, name, {"least": least})
    gone = list(broadcast(made, SAID, until_us=60 * S))
    tally = tallied(gone, start_us=START_US)
    table = tally.batches()
    assert table.schema == BATCHES
    result = sorted(
        (
            row["delivered"].timestamp() - START_US / S,
            row["item"],
            [each.timestamp() - START_US / S for each in row["created"]],
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
    assert table["size_bytes"].to_pylist() == [each.size_bytes for each in gone]
    assert set(table["system"].to_pylist()) == {"radiator"}
    assert tally.measures() == {
        "messages": 10.0,
        "bytes": float(sum(each.size_bytes * len(each.recipients) for each in gone)),
        "deliveries": 12.0,
        "latency_s": 0.5,
    }


def test_rows_by_receiver_are_those_of_the_deliveries():
    table = tallied(
        [aggregate(9, [3, 7], ["bob", "cy"]), aggregate(9, [8], ["dan"])], start_us=START_US
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


def test_measures_are_of_the_counts_and_not_of_the_sample():
    whole, few = tallied(many()), tallied(many(), limit=10)
    assert few.measures() == whole.measures()
    assert few.measures()["deliveries"] == 200_000
    assert few.batches() == whole.batches()
    assert len(few.deliveries()) == 10


def test_the_median_stands_between_the_two_in_the_middle():
    gone = [aggregate(10, [9], ["a", "b"]), aggregate(10, [5], ["c"]), aggregate(10, [1], ["d"])]
    assert tallied(gone).measures()["latency_s"] == (1 + 5) / 2
    assert tallied(gone[:2]).measures()["latency_s"] == 1


def test_nothing_has_gone():
    tally = Tally()
    assert math.isnan(tally.measures().pop("latency_s"))
    assert sum(tally.measures()[name] for name in ("messages", "bytes", "deliveries")) == 0
    assert tally.batches().schema == BATCHES
    assert tally.deliveries().schema == DELIVERIES
    assert len(tally.batches()) == len(tally.deliveries()) == 0


def test_the_sample_is_the_seeds_and_looking_at_it_changes_nothing():
    tally, gone = Tally(seed=7, limit=300), many()
    for place, each in enumerate(gone):
        tally.add(each)
        if place == 40:
            tally.deliveries()
    assert pairs(tally) == pairs(tallied(gone, seed=7, limit=300))
    assert pairs(tally) != pairs(tallied(gone, seed=8, limit=300))
    assert len(set(pairs(tally))) == 300


def _chi_square(counts):
    expected = counts.mean()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.soak
def test_every_set_of_deliveries_is_as_likely_as_any_other():
    """The 15 sets of two of six, of pieces that are of one, two and three."""
    gone = [aggregate(1, [1], ["a"]), aggregate(2, [2], ["b", "c"]), aggregate(3, [3], ["d", "e", "f"])]
    sets = Counter(
        "".join(sorted(receiver for _, receiver in pairs(tallied(gone, seed=seed, limit=2))))
        for seed in range(3000)
    )
    assert len(sets) == 15
    assert _chi_square(np.array(list(sets.values()))) < 36.1, (
        "at 14 degrees of freedom one in a thousand is above"
    )


@pytest.mark.parametrize(("aggregates", "receivers", "limit"), [(200, 1000, 500), (20, 500, 2000)])
def test_early_and_late_deliveries_and_all_receivers_are_as_likely(aggregates, receivers, limit):
    """Of those that come late, nearly all are skipped in one case, and about every second one in the other."""
    gone = many(aggregates, receivers)
    result = [pair for seed in range(20) for pair in pairs(tallied(gone, seed=seed, limit=limit))]
    when = np.bincount([int(item) * 20 // aggregates for item, _ in result], minlength=20)
    who = np.bincount([int(receiver[4:]) * 20 // receivers for _, receiver in result], minlength=20)
    assert when.sum() == 20 * limit
    for counts in (when, who):
        assert _chi_square(counts) < 43.8, "at 19 degrees of freedom one in a thousand is above"


def test_deliveries_that_are_skipped_cost_no_draw(monkeypatch):
    draw, drawn = Stream.pair, []

    def counted(stream, device, step):
        drawn.append(np.size(step))
        return draw(stream, device, step)

    monkeypatch.setattr(Stream, "pair", counted)
    tallied(many(), limit=10)
    assert 0 < sum(drawn) < 200_000 / 10
