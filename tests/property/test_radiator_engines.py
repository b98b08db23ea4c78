"""Equivalence of the engines for many receivers and the literal Algorithm 3."""

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


def all_kinds(sender: Context, receiver: Context) -> Any:
    sender_cell, receiver_cell = sender.get("cell", 0), receiver.get("cell", 0)
    return (
        Volume(2 + receiver_cell),
        People(2 + receiver_cell),
        Time(seconds=30 * (1 + receiver_cell)),
        People(lambda s, r: 1 + len(s.people) + len(r.people)),
    )[(sender_cell + receiver_cell) % 4]


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
FUNCTIONS_WITHOUT_KEY = (alike, all_kinds, same_for_all, of_people, of_time, out_of_order)
names = st.sampled_from(CLIENTS)
delays = st.sampled_from([0, 1, 5, 30, 61, 200, 700]).map(lambda seconds: seconds * S)
context = st.one_of(st.just({}), *[st.just({"cell": cell}) for cell in (0, 1, 2, 3)])
others = st.sets(names, max_size=2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("register"), delays, names, context, others),
        st.tuples(st.just("unregister"), delays, names, context, others),
        st.tuples(st.just("take"), delays, names, context, others),
        st.tuples(st.just("take"), delays, names, context, others),
        st.tuples(st.just("take"), delays, names, context, others),
    ),
    max_size=40,
)


class EngineDriver:
    """Engine with its releases, (moment, receiver, numbers); failed joins are retried."""

    def __init__(self, engine: Any, fails: int) -> None:
        self.engine = engine
        self.fails = fails
        self.tried: Counter[tuple[int, ...]] = Counter()
        self.releases: list[tuple[int, str, tuple[int, ...]]] = []
        self.now_us = 0

    def run_until(self, t_us: int) -> None:
        while self.engine.due_us <= t_us:
            self.now_us = max(self.now_us, int(self.engine.due_us))
            self.record(self.engine.fire(self.now_us))
        self.now_us = t_us

    def record(self, entries: Any) -> None:
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
                self.releases += [(self.now_us, client, numbers) for client in entry.recipients]

    def do(self, step: Any, number: int) -> None:
        action, wait_us, client, attributes, others = step
        self.run_until(self.now_us + wait_us)
        is_in = client in self.engine.clients
        if action == "register":
            self.record(self.engine.register(self.now_us, client, attributes))
        elif action == "unregister" and is_in:
            self.engine.unregister(self.now_us, client)
        elif action == "take" and is_in:
            sent = Context(frozenset({client, *others}), attributes, (self.now_us, self.now_us))
            self.record(self.engine.take(self.now_us, Message(number, client, self.now_us, sent)))


def run_story(engine: Any, story: Any, fails: int = 0) -> EngineDriver:
    driver = EngineDriver(engine, fails)
    for client in CLIENTS[:3]:
        driver.record(engine.register(0, client, {"cell": 1}))
    for number, step in enumerate(story):
        driver.do(step, number)
    return driver


@pytest.mark.soak(keep=4)
@pytest.mark.parametrize(
    "function",
    [
        *FUNCTIONS,
        *map(Aggregability, FUNCTIONS_WITHOUT_KEY),
        Aggregability(by_key_of_sender, None, failing.sender_key),
    ],
    ids=lambda function: f"{function.name}{'' if function.key else ', no key'}",
)
@examples(80)
@given(story=steps, echo=st.booleans(), fails=st.sampled_from([0, 2, 3]))
def test_engines_agree(function, story, echo, fails):
    literal = run_story(ClientLists(function, RETENTION_US, echo=echo), story, fails)
    vectorised = run_story(engine_for_many(function, RETENTION_US, echo=echo), story, fails)
    assert sorted(vectorised.releases) == sorted(literal.releases)
    assert set(vectorised.engine.clients) == set(literal.engine.clients)
    for client in literal.engine.clients:
        assert vectorised.engine.waiting(client) == literal.engine.waiting(client), client
    assert vectorised.engine.dropped == literal.engine.dropped
    assert (vectorised.engine.problems.count > 0) == (literal.engine.problems.count > 0)
    for driver in (literal, vectorised):
        driver.run_until(driver.now_us + 3 * RETENTION_US)
    assert sorted(vectorised.releases) == sorted(literal.releases)
    if function.key is not None:
        assert vectorised.engine.cohorts <= len(CLIENTS)
