"""Release of batches that a join cannot take."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.systems.radiator import (
    Aggregability,
    Client,
    ClientArrays,
    ClientLists,
    Context,
    Groups,
    Message,
    People,
    Server,
    Time,
    Volume,
    broadcast,
    joins,
)

S = 1_000_000
RETENTION_S = 600


def join_numbers(contexts):
    return Context(
        frozenset(name for context in contexts for name in context.people),
        {"mean": statistics.fmean(context["v"] for context in contexts), "n": len(contexts)},
    )


def create_engine(kind, function, retention_us=RETENTION_S * S):
    by_city = Aggregability(lambda sender, receiver: function, key=lambda receiver: receiver.get("city"))
    without_key = Aggregability(lambda sender, receiver: function)
    engine = kind(by_city if kind is Groups else without_key, retention_us)
    for name in ("ann", "bob", "eve", "reader"):
        engine.register(0, name, {})
    return engine


def run(engine, join, messages, until_s=10 * RETENTION_S):
    """Return time and message numbers of each aggregate for the reader."""
    arrivals = [
        Message(number, sender, at_s * S, Context({sender}, {"v": v}))
        for number, (at_s, sender, v) in enumerate(messages, 1)
    ]
    return [
        (aggregate.sent_us // S, [message.number for message in aggregate.batch])
        for aggregate in broadcast(engine, arrivals, join, until_us=until_s * S)
        if "reader" in aggregate.recipients
    ]


ENGINES = pytest.mark.parametrize("kind", [ClientLists, ClientArrays, Groups])


@ENGINES
@pytest.mark.parametrize("function", [Volume(4), Time(30)])
def test_unjoinable_context_is_dropped_after_retention_others_are_sent(kind, function):
    engine = create_engine(kind, function)
    messages = [(0, "ann", 1), (10, "eve", "x"), (20, "bob", 3), (30, "ann", 5)]
    ((at_s, batch),) = run(engine, join_numbers, messages)
    assert batch == [1, 3, 4]
    assert at_s == RETENTION_S
    assert engine.waiting("reader") == []
    problems = [str(problem) for problem in engine.problems]
    (dropped,) = [problem for problem in problems if "is dropped" in problem and "'reader'" in problem]
    assert "sender 'eve', receiver" in dropped
    assert all("to do:" in problem for problem in problems)
    assert engine.dropped == 3, "once for each receiver but its sender"


@ENGINES
def test_incompatible_contexts_are_sent_in_separate_parts(kind):
    def join_largest(contexts):
        return Context({"x"}, {"v": max(context["v"] for context in contexts)})

    engine = create_engine(kind, Volume(4))
    messages = [(0, "eve", "x"), (10, "ann", 1), (20, "bob", 3), (30, "ann", 5)]
    released = run(engine, join_largest, messages)
    assert [batch for _, batch in released] == [[1], [2, 3, 4]]
    assert released[-1][0] <= RETENTION_S + 60


@ENGINES
def test_no_part_has_fewer_people_than_the_threshold(kind):
    engine = create_engine(kind, People(3))
    messages = [(0, "ann", 1), (10, "eve", "x"), (20, "bob", 3)]
    assert run(engine, join_numbers, messages) == []
    assert engine.waiting("reader") == []


@ENGINES
def test_batch_that_cannot_be_joined_waits_for_later_messages(kind):
    def join_three(contexts):
        if len(contexts) < 3:
            raise ZeroDivisionError("too few")
        return joins.concatenation(contexts)

    engine = create_engine(kind, Volume(4))
    messages = [(0, "ann", 1), (10, "bob", 2), (2 * RETENTION_S, "ann", 3), (2 * RETENTION_S + 1, "bob", 4)]
    assert [batch for _, batch in run(engine, join_three, messages)] == [[1, 2, 3]]
    assert engine.waiting("reader")[0].number == 4


@ENGINES
def test_receivers_that_have_left_are_awaited_no_more(kind):
    """``due_us`` is the time of the next release: infinity where there is nobody to release anything for."""
    engine = create_engine(kind, Time(30))
    engine.take(0, Message(1, "ann", 0, Context({"ann"}, {"v": 1})))
    assert engine.due_us == 30 * S
    for name in list(engine.clients):
        engine.unregister(S, name)
    assert engine.due_us == math.inf


@given(values=st.lists(st.one_of(st.integers(0, 9), st.just("x")), min_size=1, max_size=30))
def test_every_joinable_context_is_sent_once_within_the_retention(values):
    engine = create_engine(ClientLists, Volume(5))
    messages = [(at, "eve" if v == "x" else "ann", v) for at, v in enumerate(values)]
    released = run(engine, join_numbers, messages)
    joinable = [number for number, v in enumerate(values, 1) if v != "x"]
    assert sorted(number for _, batch in released for number in batch) == joinable
    assert all(at_s <= values_at + RETENTION_S for at_s, batch in released for values_at in (min(batch) - 1,))


def test_server_drops_an_unjoinable_context_and_reports_it():
    lab = Lab(seed=1)
    server = Server(lab, lambda sender, receiver: Volume(3), join=join_numbers, max_retention_s=RETENTION_S)
    received = []
    ann, eve, bob = (Client(lab.device(name), server) for name in ("ann", "eve", "bob"))
    Client(lab.device("reader"), server, receive=received.append)
    lab.run(seconds=10)
    for client, v in ((ann, 1), (eve, "x"), (bob, 3)):
        client.propagate_context(Context({client.client_id}, {"v": v})).result()
    lab.run(seconds=RETENTION_S - 60)
    assert received == []
    lab.run(seconds=65)
    assert [(context["mean"], context["n"]) for context in received] == [(2.0, 2)]
    assert any("sender 'eve'" in problem and "is dropped" in problem for problem in server.problems["detail"])
    assert set(server.waiting().result().values()) == {0}
