"""The engines for many let go what Algorithm 3 lets go, to the same receivers, at the same moments."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.radiator import (
    Aggregability,
    ClientLists,
    Context,
    Message,
    People,
    Time,
    Volume,
    aggregability,
    engine_for_many,
)

S = 1_000_000
RETENTION_US = 600 * S
CLIENTS = ("ann", "bob", "cy", "dan", "eve")


@aggregability(key=lambda receiver: receiver["cell"], sender_key=lambda sender: sender.get("cell", 9))
def by_cell(sender: int, cell: int) -> Volume:
    return Volume(1 + 2 * abs(sender - cell))


@aggregability(key=lambda receiver: receiver.get("cell", 0) // 2)
def mixed(sender: Context, half: int) -> Any:
    kind = (sender.get("cell", 0) + half) % 4
    return (Volume(3), People(2 + half), Time(seconds=90), Volume(lambda s, r: 1 + len(s.people) + r))[kind]


@aggregability(key=lambda receiver: "all")
def people(sender: Context, key: str) -> People:
    return People(3)


@aggregability(key=lambda receiver: receiver.get("cell", 0))
def timed(sender: Context, cell: int) -> Time:
    return Time(seconds=30 * (1 + cell) + sender.get("cell", 0))


@aggregability(key=lambda receiver: receiver.get("cell", 0), sender_key=lambda sender: sender["cell"])
def failing(sender: int, cell: int) -> Any:
    return (None, Volume(2), People(2), Volume(0))[(sender + cell) % 4]


def alike(sender: Context, receiver: Context) -> Volume:
    return Volume(1 + abs(sender.get("cell", 0) - receiver["cell"]))


def of_all_kinds(sender: Context, receiver: Context) -> Any:
    here, there = sender.get("cell", 0), receiver.get("cell", 0)
    return (
        Volume(2 + there),
        People(2 + there),
        Time(seconds=30 * (1 + there)),
        People(lambda s, r: 1 + len(s.people) + len(r.people)),
    )[(here + there) % 4]


def same_for_all(sender: Context, receiver: Context) -> Volume:
    return Volume(4)


def of_people(sender: Context, receiver: Context) -> People:
    return People(3)


def of_time(sender: Context, receiver: Context) -> Time:
    return Time(seconds=(0, 20, 90, 5000)[receiver.get("cell", 0)])


def out_of_order(sender: Context, receiver: Context) -> Any:
    return (None, Volume(2), People(2), Time(seconds=50))[(sender["cell"] + receiver.get("cell", 0)) % 4]


def by_key_of_sender(sender: int, receiver: Context) -> Any:
    return (None, Volume(2), People(2), Volume(0))[(sender + receiver.get("cell", 0)) % 4]


FUNCTIONS = (by_cell, mixed, people, timed, failing)
WITHOUT_A_KEY = (alike, of_all_kinds, same_for_all, of_people, of_time, out_of_order)
who = st.sampled_from(CLIENTS)
after = st.sampled_from([0, 1, 5, 30, 61, 200, 700]).map(lambda seconds: seconds * S)
context = st.one_of(st.just({}), *[st.just({"cell": cell}) for cell in (0, 1, 2, 3)])
about = st.sets(who, max_size=2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("register"), after, who, context, about),
        st.tuples(st.just("unregister"), after, who, context, about),
        st.tuples(st.just("take"), after, who, context, about),
        st.tuples(st.just("take"), after, who, context, about),
        st.tuples(st.just("take"), after, who, context, about),
    ),
    max_size=40,
)


class Driven:
    """An engine, and what has gone from it: (moment, receiver, numbers), each join tried as often as it takes."""

    def __init__(self, engine: Any, fails: int) -> None:
        self.engine = engine
        self.fails = fails
        self.tried: Counter[tuple[int, ...]] = Counter()
        self.gone: list[tuple[int, str, tuple[int, ...]]] = []
        self.now_us = 0

    def until(self, t_us: int) -> None:
        while self.engine.due_us <= t_us:
            self.now_us = max(self.now_us, int(self.engine.due_us))
            self.went(self.engine.fire(self.now_us))
        self.now_us = t_us

    def went(self, entries: Any) -> None:
        batches = [tuple(message.number for message in entry.batch) for entry in entries]
        assert len(set(batches)) == len(batches), "equal aggregates are one entry"
        for entry in entries:
            numbers = tuple(message.number for message in entry.batch)
            assert list(numbers) == sorted(numbers)
            assert len(set(entry.recipients)) == len(entry.recipients)
            self.tried[numbers] += 1
            if self.fails and numbers[-1] % self.fails == 0 and self.tried[numbers] < 3:
                self.engine.put_back(entry, self.now_us + 60 * S)
            else:
                self.gone += [(self.now_us, client, numbers) for client in entry.recipients]

    def do(self, step: Any, number: int) -> None:
        what, wait_us, client, attributes, about = step
        self.until(self.now_us + wait_us)
        is_in = client in self.engine.clients
        if what == "register":
            self.went(self.engine.register(self.now_us, client, attributes))
        elif what == "unregister" and is_in:
            self.engine.unregister(self.now_us, client)
        elif what == "take" and is_in:
            sent = Context(frozenset({client, *about}), attributes, (self.now_us, self.now_us))
            self.went(self.engine.take(self.now_us, Message(number, client, self.now_us, sent)))


def driven(engine: Any, story: Any, fails: int = 0) -> Driven:
    made = Driven(engine, fails)
    for client in CLIENTS[:3]:
        made.went(engine.register(0, client, {"cell": 1}))
    for number, step in enumerate(story):
        made.do(step, number)
    return made


@pytest.mark.soak(keep=4)
@pytest.mark.parametrize(
    "function",
    [
        *FUNCTIONS,
        *map(Aggregability, WITHOUT_A_KEY),
        Aggregability(by_key_of_sender, None, failing.sender_key),
    ],
    ids=lambda function: f"{function.name}{'' if function.key else ', no key'}",
)
@examples(80)
@given(story=steps, echo=st.booleans(), fails=st.sampled_from([0, 2, 3]))
def test_the_engines_agree(function, story, echo, fails):
    literal = driven(ClientLists(function, RETENTION_US, echo=echo), story, fails)
    many = driven(engine_for_many(function, RETENTION_US, echo=echo), story, fails)
    assert sorted(many.gone) == sorted(literal.gone)
    assert set(many.engine.clients) == set(literal.engine.clients)
    for client in literal.engine.clients:
        assert many.engine.waiting(client) == literal.engine.waiting(client), client
    assert many.engine.dropped == literal.engine.dropped
    assert (many.engine.problems.count > 0) == (literal.engine.problems.count > 0)
    for made in (literal, many):
        made.until(made.now_us + 3 * RETENTION_US)
    assert sorted(many.gone) == sorted(literal.gone)
    if function.key is not None:
        assert many.engine.cohorts <= len(CLIENTS)
