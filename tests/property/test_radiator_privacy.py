"""``People(k)``: a receiver is told of no fewer than k people, also by differences of what it was told."""

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


def told(engine, story, k):
    """What each receiver got: the batches, the people of each and what the join told."""
    key = None if engine is ClientArrays else lambda receiver: receiver.get("zone", 0)
    function = Aggregability(lambda sender, receiver: People(k), key)
    made = engine(function, 300 * S, echo=False)
    for client in CLIENTS:
        made.register(0, client, {})
    messages, now_us = [], 0
    for number, (sender, wait_s, about, zone) in enumerate(story):
        now_us += wait_s * S
        messages.append(
            Message(number, sender, now_us, Context({sender, *about}, {"zone": zone}, (now_us, now_us)))
        )
    got = {client: [] for client in CLIENTS}
    join = lambda contexts: joins.people_count(contexts, k=k)  # noqa: E731
    for gone in broadcast(made, messages, join, until_us=now_us + 3000 * S):
        for client in gone.recipients:
            got[client].append(gone)
    return made, messages, got


@pytest.mark.parametrize("engine", ENGINES)
@given(story=stories, k=st.integers(2, 5))
def test_of_no_fewer_than_k_also_by_differences(engine, story, k):
    made, messages, got = told(engine, story, k)
    assert not list(made.problems)
    released = 0
    for client, gones in got.items():
        released += sum(len(gone.batch) for gone in gones)
        for gone in gones:
            people = {name for message in gone.batch for name in message.context.people}
            assert gone.context["count"] == len(people) >= k
            assert not gone.context.people
            assert set(gone.context.attributes) == {"count"}
            assert all(message.sender != client for message in gone.batch)
        for one, other in combinations(gones, 2):
            shared = {m.number for m in one.batch} & {m.number for m in other.batch}
            assert not shared, "a difference of two would be of other people than either"
    waiting = sum(len(made.waiting(client)) for client in CLIENTS)
    assert waiting == 0, "who waits for ever is dropped"
    assert released + made.dropped == sum(len(CLIENTS) - 1 for _ in messages)


def test_what_is_not_guaranteed_two_receivers_who_put_together_what_they_got():
    story = [("c0", 1, set(), 0), ("c1", 1, set(), 0), ("c2", 1, set(), 0), ("c3", 1, set(), 0)]
    _, _, got = told(ClientLists, story, 3)
    of = {
        client: {name for gone in gones for m in gone.batch for name in m.context.people}
        for client, gones in got.items()
    }
    assert of["c5"] == {"c0", "c1", "c2"}
    assert of["c0"] == {"c1", "c2", "c3"}, "c0 gets nothing of its own"
    assert of["c5"] - of["c0"] == {"c0"}, "together they know of one"


def test_a_count_of_too_few_is_refused_whatever_let_them_go():
    lone = [Context({"ann"}), Context({"ann"})]
    with pytest.raises(ValueError, match=r"too few[\s\S]*2 at least[\s\S]*People\(2\)"):
        joins.people_count(lone, k=2)
