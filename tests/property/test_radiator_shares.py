"""Equivalence of shares of the receivers, also restored from stored state, and one engine for all."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from radiator_streams import FUNCTIONS, RETENTION_S, build_events, release_by_one_engine

from mudkit.systems.radiator import Shares, Volume, aggregability

steps = st.lists(
    st.tuples(
        st.sampled_from(["context"] * 6 + ["register", "unregister", "tick"]),
        st.sampled_from([0, 1, 20, 61, 400]),
        st.integers(0, 5),
        st.sampled_from([None, 0, 1, 2, 3]),
    ),
    max_size=40,
)


def release_by_shares(function, events, until_us, share_count, restarts):
    """Count the releases of all shares together by (moment, receiver, numbers), and the problems."""
    start = Shares(function, max_retention_s=RETENTION_S)
    released, problems = Counter(), 0
    for share in range(share_count):
        engine = start(share, share_count)
        for index, event in enumerate([*events, None]):
            t_us = until_us if event is None else event.t_us
            answer = []
            while engine.due_us < t_us or (event is None and engine.due_us == t_us):
                answer += engine.fire(int(engine.due_us))
            if event is not None:
                answer += engine.handle(event)
            for at_us, numbers, recipients, aggregate, problem in answer:
                problems += problem is not None
                assert (aggregate is None) == (problem is not None)
                released.update((at_us, client, tuple(numbers)) for client in recipients)
            if index in restarts:
                engine = start(share, share_count, pickle.loads(pickle.dumps(engine.state())))
    return released, problems


@aggregability(key=lambda receiver: receiver.get("cell", 0), sender_key=lambda sender: sender.get("cell", 0))
def by_both_keys(sender, cell):
    return Volume(1 + abs(sender.get("cell", 0) - cell))


@pytest.mark.parametrize("function", [*FUNCTIONS, by_both_keys], ids=lambda function: function.name)
@examples(40)
@given(steps=steps, share_count=st.integers(1, 3), restarts=st.sets(st.integers(0, 40)))
def test_shares_agree_with_one_engine(function, steps, share_count, restarts):
    events = build_events(steps)
    until_us = events[-1].t_us + 2 * round(RETENTION_S * 1e6)
    released, problems = release_by_shares(function, events, until_us, share_count, restarts)
    literal, failures = release_by_one_engine(function, events, until_us)
    assert released == literal
    assert max(released.values(), default=1) == 1
    if failures:
        assert problems
