"""What is let go of a batch that a join cannot take, and when."""

from __future__ import annotations

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


def numbers(contexts):
    return Context(
        frozenset(name for each in contexts for name in each.people),
        {"mean": statistics.fmean(each["v"] for each in contexts), "n": len(contexts)},
    )


def engine_of(kind, function, retention_us=RETENTION_S * S):
    by_city = Aggregability(lambda sender, receiver: function, key=lambda receiver: receiver.get("city"))
    asked = Aggregability(lambda sender, receiver: function)
    engine = kind(by_city if kind is Groups else asked, retention_us)
    for name in ("ann", "bob", "eve", "reader"):
        engine.register(0, name, {})
    return engine


def sent(engine, join, messages, until_s=10 * RETENTION_S):
    """Return when which numbers go to the reader."""
    given = [
        Message(number, sender, at_s * S, Context({sender}, {"v": v}))
        for number, (at_s, sender, v) in enumerate(messages, 1)
    ]
    return [
        (each.sent_us // S, [message.number for message in each.batch])
        for each in broadcast(engine, given, join, until_us=until_s * S)
        if "reader" in each.recipients
    ]


ENGINES = pytest.mark.parametrize("kind", [ClientLists, ClientArrays, Groups])


@ENGINES
@pytest.mark.parametrize("function", [Volume(4), Time(30)])
def test_a_context_that_cannot_be_joined_is_dropped_after_the_retention_and_frees_the_others(kind, function):
    engine = engine_of(kind, function)
    messages = [(0, "ann", 1), (10, "eve", "x"), (20, "bob", 3), (30, "ann", 5)]
    ((at_s, batch),) = sent(engine, numbers, messages)
    assert batch == [1, 3, 4]
    assert at_s == RETENTION_S
    assert engine.waiting("reader") == []
    problems = [str(each) for each in engine.problems]
    (dropped,) = [each for each in problems if "is dropped" in each and "'reader'" in each]
    assert "sender 'eve', receiver" in dropped
    assert engine.dropped > 0


@ENGINES
def test_contexts_that_cannot_be_joined_with_each_other_all_go(kind):
    def largest(contexts):
        return Context({"x"}, {"v": max(each["v"] for each in contexts)})

    engine = engine_of(kind, Volume(4))
    messages = [(0, "eve", "x"), (10, "ann", 1), (20, "bob", 3), (30, "ann", 5)]
    went = sent(engine, largest, messages)
    assert [batch for _, batch in went] == [[1], [2, 3, 4]]
    assert went[-1][0] <= RETENTION_S + 60


@ENGINES
def test_no_part_has_fewer_people_than_the_threshold_wants(kind):
    engine = engine_of(kind, People(3))
    messages = [(0, "ann", 1), (10, "eve", "x"), (20, "bob", 3)]
    assert sent(engine, numbers, messages) == []
    assert engine.waiting("reader") == []


@ENGINES
def test_what_no_join_takes_waits_for_what_comes(kind):
    def three(contexts):
        if len(contexts) < 3:
            raise ZeroDivisionError("too few")
        return joins.concatenation(contexts)

    engine = engine_of(kind, Volume(4))
    messages = [(0, "ann", 1), (10, "bob", 2), (2 * RETENTION_S, "ann", 3), (2 * RETENTION_S + 1, "bob", 4)]
    assert [batch for _, batch in sent(engine, three, messages)] == [[1, 2, 3]]
    assert engine.waiting("reader")[0].number == 4


@given(values=st.lists(st.one_of(st.integers(0, 9), st.just("x")), min_size=1, max_size=30))
def test_every_honest_context_goes_once_in_time_and_no_other(values):
    engine = engine_of(ClientLists, Volume(5))
    messages = [(at, "eve" if v == "x" else "ann", v) for at, v in enumerate(values)]
    went = sent(engine, numbers, messages)
    honest = [number for number, v in enumerate(values, 1) if v != "x"]
    assert sorted(number for _, batch in went for number in batch) == honest
    assert all(at_s <= values_at + RETENTION_S for at_s, batch in went for values_at in (min(batch) - 1,))


def test_a_server_frees_what_was_batched_with_it_and_says_so():
    lab = Lab(seed=1)
    server = Server(lab, lambda sender, receiver: Volume(3), join=numbers, max_retention_s=RETENTION_S)
    got = []
    ann, eve, bob = (Client(lab.device(name), server) for name in ("ann", "eve", "bob"))
    Client(lab.device("reader"), server, receive=got.append)
    lab.run(seconds=10)
    for client, v in ((ann, 1), (eve, "x"), (bob, 3)):
        client.propagate_context(Context({client.client_id}, {"v": v})).result()
    lab.run(seconds=RETENTION_S - 60)
    assert got == []
    lab.run(seconds=65)
    assert [(context["mean"], context["n"]) for context in got] == [(2.0, 2)]
    assert any("sender 'eve'" in each and "is dropped" in each for each in server.problems["detail"])
    assert set(server.waiting().result().values()) == {0}
