"""``People(k)``: no aggregate, and no difference of two, is of fewer than k people."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.radiator import (
    Aggregability,
    ClientArrays,
    ClientLists,
    Context,
    Groups,
    Message,
    People,
    broadcast,
    joins,
)

S = 1_000_000
CLIENTS = [f"c{number}" for number in range(6)]
stories = st.lists(
    st.tuples(
        st.sampled_from(CLIENTS),
        st.sampled_from([0, 1, 30, 400, 1000]),
        st.sets(st.sampled_from(CLIENTS), max_size=2),
        st.integers(0, 2),
    ),
    max_size=40,
)
ENGINES = (ClientLists, Groups, ClientArrays)


def broadcast_story(engine, story, k):
    """Return the engine, the messages, and the aggregates of each receiver."""
    key = None if engine is ClientArrays else lambda receiver: receiver.get("zone", 0)
    function = Aggregability(lambda sender, receiver: People(k), key)
    instance = engine(function, 300 * S, echo=False)
    for client in CLIENTS:
        instance.register(0, client, {})
    messages, now_us = [], 0
    for number, (sender, wait_s, people, zone) in enumerate(story):
        now_us += wait_s * S
        messages.append(
            Message(number, sender, now_us, Context({sender, *people}, {"zone": zone}, (now_us, now_us)))
        )
    received = {client: [] for client in CLIENTS}
    join = lambda contexts: joins.people_count(contexts, k=k)  # noqa: E731
    for aggregate in broadcast(instance, messages, join, until_us=now_us + 3000 * S):
        for client in aggregate.recipients:
            received[client].append(aggregate)
    return instance, messages, received


@pytest.mark.parametrize("engine", ENGINES)
@given(story=stories, k=st.integers(2, 5))
def test_aggregates_and_their_differences_cover_k_people(engine, story, k):
    instance, messages, received = broadcast_story(engine, story, k)
    assert not list(instance.problems)
    released = 0
    for client, aggregates in received.items():
        released += sum(len(aggregate.batch) for aggregate in aggregates)
        for aggregate in aggregates:
            people = {name for message in aggregate.batch for name in message.context.people}
            assert aggregate.context["count"] == len(people) >= k
            assert not aggregate.context.people
            assert set(aggregate.context.attributes) == {"count"}
            assert all(message.sender != client for message in aggregate.batch)
        for first, second in combinations(aggregates, 2):
            shared = {m.number for m in first.batch} & {m.number for m in second.batch}
            assert not shared, "a difference of two would be of other people than either"
    waiting = sum(len(instance.waiting(client)) for client in CLIENTS)
    assert waiting == 0, "who waits for ever is dropped"
    assert released + instance.dropped == sum(len(CLIENTS) - 1 for _ in messages)


def test_two_colluding_receivers_can_identify_one_person():
    story = [("c0", 1, set(), 0), ("c1", 1, set(), 0), ("c2", 1, set(), 0), ("c3", 1, set(), 0)]
    _, _, received = broadcast_story(ClientLists, story, 3)
    people_of = {
        client: {name for aggregate in aggregates for m in aggregate.batch for name in m.context.people}
        for client, aggregates in received.items()
    }
    assert people_of["c5"] == {"c0", "c1", "c2"}
    assert people_of["c0"] == {"c1", "c2", "c3"}, "c0 gets nothing of its own"
    assert people_of["c5"] - people_of["c0"] == {"c0"}, "together they know of one"


def test_people_count_refuses_fewer_than_k_people():
    lone = [Context({"ann"}), Context({"ann"})]
    with pytest.raises(ValueError, match=r"too few[\s\S]*2 at least[\s\S]*People\(2\)"):
        joins.people_count(lone, k=2)
