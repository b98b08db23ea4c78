"""Frontiers: read trees by price; delays by hour, chosen in hindsight."""

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest
from learning_traces import (
    MINUTE_US,
    build_labelled_reads,
    build_positions,
    build_reads,
    label_by_definition,
)

from mudkit.learning.batching import delayed
from mudkit.learning.devices import LocalDevices
from mudkit.learning.frontier import ORACLE_PRICES, frontier_of_reads, hours_of, oracle_frontier
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, replay
from mudkit.learning.writes import ReadRequests, Writes, batches, missed


@pytest.fixture(scope="module")
def world():
    """Return two hours of driving: reads every 20 minutes in the first hour, none in the second."""
    positions = build_positions([(car, minute, 0.0) for car in "ab" for minute in range(0, 120, 2)])
    queries = build_reads([("c", minute, 0.0) for minute in (19, 39, 59)])
    return Writes.of(label_by_definition(positions, queries), positions), ReadRequests.of(queries)


def test_hours_are_numbered_by_weekday_and_weekend():
    monday = np.datetime64("2024-01-01T00:30", "us").astype(np.int64)
    hour, day = 60 * MINUTE_US, 24 * 60 * MINUTE_US
    times = monday + np.array([0, 23 * hour, 4 * day, 5 * day, 6 * day + 3 * hour, 7 * day])
    assert hours_of(times, np.zeros(6)).tolist() == [0, 23, 0, 24, 27, 0]
    west_deg = np.full(6, -15.0)
    assert hours_of(times, west_deg).tolist() == [47, 22, 23, 23, 26, 47]


def test_a_fold_that_learns_from_answers_that_are_all_alike_decides_alike():
    """All stale answers are with one device: who learns without it would always answer from the cache."""
    labels, reads = build_labelled_reads(devices=12)
    own = reads.filter(pc.equal(reads["device"], reads["device"][0]))["read_id"]
    is_own = pc.is_in(labels["read_id"], value_set=own).to_numpy(zero_copy_only=False)
    column = labels.column_names.index("missing")
    labels = labels.set_column(column, "missing", [np.where(is_own, labels["missing"].to_numpy(), 0)])
    pairs = Pairs.of(labels, reads)
    frontier = frontier_of_reads(LocalDevices(pairs), None, prices=(1.0, 1000.0))
    alone = pairs.of_devices(np.unique(pairs.device[pairs.read[pairs.missing > 0]]))
    served = replay(alone, np.ones(len(alone.read), np.bool_))
    expected = np.count_nonzero(alone.missing[served[served != SENT]] > 0) / len(pairs.device)
    assert 0 < expected < 1
    assert frontier["stale_share"].to_list() == pytest.approx([expected] * 2)


def test_frontier_saves_writes_that_are_never_read(world):
    writes, reads = world
    frontier = oracle_frontier(writes, reads).set_index("price")
    assert list(frontier.index) == [0.0, *ORACLE_PRICES]
    assert tuple(frontier.loc[0.0]) == (0.0, 0.0, 1.0)
    costly = frontier.loc[ORACLE_PRICES[-1]]
    hour = hours_of(writes.t_us, writes.lon)
    first = hour == hour[0]
    assert costly["point_share"] <= first.mean(), "in the second hour nobody asks"
    assert costly["missed_share"] < 1.0


@pytest.mark.parametrize("second", [3, 13], ids=["30 min", "30 min, then nothing"])
def test_initial_delays_are_not_cheaper_than_the_frontier(world, second):
    writes, reads = world
    hour = hours_of(writes.t_us, writes.lon)
    table = np.full(48, 3)
    table[hour[-1]] = second
    sent = batches(writes, delayed(writes, table[hour]))
    missed_share = missed(writes, sent.sent_us, reads).mean()
    for price, messages, points, missing in oracle_frontier(writes, reads).to_numpy():
        if price:
            cost = (sent.messages + 1e-4 * sent.points) / len(hour) + price * missed_share
            assert messages + 1e-4 * points + price * missing <= cost + 1e-12


def test_free_stale_answers_leave_reads_without_an_answer_and_dear_ones_send_all():
    """Price a stale answer at nothing, then at a million queries: labels that say nothing leave no other choice."""
    pairs = Pairs.of(*build_labelled_reads())
    stale = np.random.default_rng(1).random(len(pairs.read)) < 0.5
    pairs = replace(pairs, missing=stale.astype(np.int64))
    served = replay(pairs, np.ones(len(stale), dtype=np.bool_))
    is_local = served != SENT
    assert 0.5 < is_local.mean() < 1
    frontier = frontier_of_reads(LocalDevices(pairs), None, prices=(0.0, 1e6))
    assert frontier["sent_share"].tolist() == [1 - is_local.mean(), 1.0]
    assert frontier["stale_share"].tolist() == [stale[served[is_local]].sum() / len(served), 0.0]
