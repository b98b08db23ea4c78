"""Cache completeness of devices that keep all received answers, compared with the definition."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from learning_traces import MINUTE_US, START_US, build_positions, build_reads, contains

from mudkit.learning import cache_completeness, min_sent_share

# Car b writes every 10 minutes at one place; phone a reads around it.
WRITES = build_positions([("b", minute, 0) for minute in range(0, 60, 10)])


def measure(reads, sent=None, arrival_min=None, writes=WRITES):
    table = build_reads([("a", *read) for read in reads], window_min=120.0)
    arrival_us = (
        None if arrival_min is None else np.array([START_US + minute * MINUTE_US for minute in arrival_min])
    )
    sent = None if sent is None else np.array(sent)
    return cache_completeness(writes, table, sent, arrival_us=arrival_us).tolist()


def test_own_writes_are_held_at_once():
    writes = build_positions([("a", 1, 0), ("b", 2, 0)])
    assert measure([(10, 0)], writes=writes) == [0.0], "nothing of what b wrote"
    assert measure([(10, 0)], [True], writes=writes, arrival_min=[11, 2]) == [1.0]
    assert measure([(10, 0)], writes=build_positions([("a", 1, 0)])) == [1.0], "nobody else wrote"


def test_answers_lack_writes_that_have_not_arrived():
    assert measure([(25, 0), (35, 0)], [True, False], arrival_min=[0, 10, 30, 90, 90, 90]) == [2 / 3, 2 / 4]
    assert measure([(25, 0), (35, 0)], [True, True], arrival_min=[0, 10, 30, 90, 90, 90]) == [2 / 3, 3 / 4]


rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.sampled_from([0, 8, 30])),
    min_size=1,
    max_size=8,
    unique_by=lambda row: row[:2],
)
queries = st.lists(
    st.tuples(st.sampled_from("ac"), st.integers(0, 60), st.sampled_from([0, 4, 30])),
    min_size=1,
    max_size=6,
    unique_by=lambda row: row[:2],
)


@given(rows, queries, st.data())
@examples(60)
def test_completeness_matches_the_definition(writes, reads, data):
    positions, table = build_positions(writes), build_reads(reads, window_min=20)
    table = table.sort_by([("device", "ascending"), ("ts", "ascending"), ("read_id", "ascending")])
    sent = data.draw(st.lists(st.booleans(), min_size=len(reads), max_size=len(reads)))
    read_rows, write_rows = table.to_pylist(), positions.to_pylist()
    expected = []
    for number, read in enumerate(read_rows):
        expected_writes = [
            write for write in write_rows if contains(read, write) and write["device"] != read["device"]
        ]
        answers = [
            earlier
            for earlier, is_sent in zip(read_rows[: number + 1], sent, strict=False)
            if is_sent and earlier["device"] == read["device"]
        ]
        held_writes = [
            write for write in expected_writes if any(contains(answer, write) for answer in answers)
        ]
        expected.append(len(held_writes) / len(expected_writes) if expected_writes else 1.0)
    assert cache_completeness(positions, table, np.array(sent)).tolist() == pytest.approx(expected)


def test_min_sent_share_counts_incomplete_reads():
    shares = np.array([0.0, 0.95, 0.5, 1.0])
    assert min_sent_share(shares, 0.9, 0) == 2 / 4
    assert min_sent_share(shares, 0.9, 1) == 1 / 4
    assert min_sent_share(shares, 0.9, 5) == 0
    assert min_sent_share(shares, 1.0, 0) == 3 / 4
