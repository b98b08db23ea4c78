"""What a device has that keeps all it was told, against the definition."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from learning_traces import MINUTE_US, START_US, asked, holds, written

from mudkit.learning import cache_completeness, min_sent_share

# Car b writes each 10 minutes at one place; phone a asks around it.
WRITES = written([("b", each, 0) for each in range(0, 60, 10)])


def completeness(reads, sent=None, comes=None, writes=WRITES):
    table = asked([("a", *each) for each in reads], window_min=120.0)
    arrival_us = None if comes is None else np.array([START_US + each * MINUTE_US for each in comes])
    sent = None if sent is None else np.array(sent)
    return cache_completeness(writes, table, sent, arrival_us=arrival_us).tolist()


def test_what_a_device_wrote_itself_it_has():
    writes = written([("a", 1, 0), ("b", 2, 0)])
    assert completeness([(10, 0)], writes=writes) == [0.5]
    assert completeness([(10, 0)], writes=writes, comes=[11, 2]) == [0]  # pending: no committed read shows it


def test_what_has_not_come_is_in_no_answer():
    assert completeness([(25, 0), (35, 0)], [True, False], comes=[0, 10, 30, 90, 90, 90]) == [2 / 3, 2 / 4]
    assert completeness([(25, 0), (35, 0)], [True, True], comes=[0, 10, 30, 90, 90, 90]) == [2 / 3, 3 / 4]


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
def test_it_is_as_defined(writes, reads, data):
    positions, table = written(writes), asked(reads, window_min=20)
    table = table.sort_by([("device", "ascending"), ("ts", "ascending"), ("read_id", "ascending")])
    sent = data.draw(st.lists(st.booleans(), min_size=len(reads), max_size=len(reads)))
    asked_, there = table.to_pylist(), positions.to_pylist()
    expected = []
    for number, read in enumerate(asked_):
        due = [each for each in there if holds(read, each)]
        answers = [
            earlier
            for earlier, is_sent in zip(asked_[: number + 1], sent, strict=False)
            if is_sent and earlier["device"] == read["device"]
        ]
        has = [
            each
            for each in due
            if each["device"] == read["device"] or any(holds(answer, each) for answer in answers)
        ]
        expected.append(len(has) / len(due) if due else 1.0)
    assert cache_completeness(positions, table, np.array(sent)).tolist() == pytest.approx(expected)


def test_what_any_cache_must_send():
    held = np.array([0.0, 0.95, 0.5, 1.0])
    assert min_sent_share(held, 0.9, 0) == 2 / 4
    assert min_sent_share(held, 0.9, 1) == 1 / 4
    assert min_sent_share(held, 0.9, 5) == 0
    assert min_sent_share(held, 1.0, 0) == 3 / 4
