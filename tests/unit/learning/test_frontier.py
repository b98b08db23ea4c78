"""Delays by hour that are chosen afterwards."""

import numpy as np
import pytest
from learning_traces import MINUTE_US, asked, first_labels, written

from mudkit.learning.batching import delayed
from mudkit.learning.frontier import ORACLE_PRICES, hours_of, oracle_frontier
from mudkit.learning.writes import ReadRequests, Writes, batches, missed


@pytest.fixture(scope="module")
def world():
    """Two hours of driving: in the first one somebody asks each 20 minutes, in the second one nobody does."""
    positions = written([(car, minute, 0.0) for car in "ab" for minute in range(0, 120, 2)])
    queries = asked([("c", minute, 0.0) for minute in (19, 39, 59)])
    return Writes.of(first_labels(positions, queries), positions), ReadRequests.of(queries)


def test_hours_are_numbered_by_weekday_and_weekend():
    monday = np.datetime64("2024-01-01T00:30", "us").astype(np.int64)
    hour, day = 60 * MINUTE_US, 24 * 60 * MINUTE_US
    times = monday + np.array([0, 23 * hour, 4 * day, 5 * day, 6 * day + 3 * hour, 7 * day])
    assert hours_of(times, np.zeros(6)).tolist() == [0, 23, 0, 24, 27, 0]
    an_hour_west = np.full(6, -15.0)
    assert hours_of(times, an_hour_west).tolist() == [47, 22, 23, 23, 26, 47]


def test_it_saves_what_nobody_asks_for(world):
    writes, reads = world
    frontier = oracle_frontier(writes, reads).set_index("price")
    assert list(frontier.index) == [0.0, *ORACLE_PRICES]
    assert tuple(frontier.loc[0.0]) == (0.0, 0.0, 1.0)
    dear = frontier.loc[ORACLE_PRICES[-1]]
    hour = hours_of(writes.t_us, writes.lon)
    first = hour == hour[0]
    assert dear["point_share"] <= first.mean(), "in the second hour nobody asks"
    assert dear["missed_share"] < 1.0


@pytest.mark.parametrize("second", [3, 13], ids=["30 min", "30 min, then nothing"])
def test_what_it_begins_with_is_not_cheaper(world, second):
    writes, reads = world
    hour = hours_of(writes.t_us, writes.lon)
    table = np.full(48, 3)
    table[hour[-1]] = second
    sent = batches(writes, delayed(writes, table[hour]))
    late = missed(writes, sent.sent_us, reads).mean()
    for price, messages, points, missing in oracle_frontier(writes, reads).to_numpy():
        if price:
            dear = (sent.messages + 1e-4 * sent.points) / len(hour) + price * late
            assert messages + 1e-4 * points + price * missing <= dear + 1e-12
