"""Tally of a broadcast: its counts and its single deliveries agree, for each engine."""

from __future__ import annotations

from collections import Counter

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
    Tally,
    Time,
    Volume,
    broadcast,
)

S = 1_000_000
CLIENTS = tuple("abcdefgh")
ENGINES = (ClientLists, Groups, ClientArrays)
stories = st.lists(
    st.tuples(st.sampled_from(CLIENTS), st.sampled_from([0, 1, 30, 400]), st.integers(0, 3)),
    min_size=1,
    max_size=30,
)


def choose_threshold(zone, home):
    return Time(40 * home) if zone == 3 else Volume(1 + abs(zone - home))


def broadcast_story(engine, story, echo):
    """Return the aggregates of messages from zones 0 to 3 to receivers in zones 0 to 2."""
    if engine is Groups:
        function = Aggregability(
            lambda sender, zone: choose_threshold(sender["zone"], zone), lambda receiver: receiver["home"]
        )
    else:
        function = Aggregability(lambda sender, receiver: choose_threshold(sender["zone"], receiver["home"]))
    instance = engine(function, 300 * S, echo=echo)
    for index, client in enumerate(CLIENTS):
        instance.register(0, client, {"home": index % 3})
    messages, now_us = [], 0
    for number, (sender, wait_s, zone) in enumerate(story):
        now_us += wait_s * S
        messages.append(Message(number, sender, now_us, Context({sender}, {"zone": zone}, (now_us, now_us))))
    return list(broadcast(instance, messages, until_us=now_us + 1000 * S))


def build_tally(aggregates, seed=0, **settings):
    tally = Tally(seed=seed, **settings)
    for aggregate in aggregates:
        tally.add(aggregate)
    return tally


def list_deliveries(tally):
    names = ("item", "receiver", "created", "delivered", "latency_s")
    table = tally.deliveries()
    return list(zip(*[table[name].to_pylist() for name in names], strict=True))


@pytest.mark.parametrize("engine", ENGINES)
@given(story=stories, echo=st.booleans(), start_s=st.integers(0, 2_000_000_000), data=st.data())
def test_batches_and_deliveries_agree(engine, story, echo, start_s, data):
    aggregates = broadcast_story(engine, story, echo)
    tally = build_tally(aggregates, start_us=start_s * S)
    batches, deliveries, measures = tally.batches(), list_deliveries(tally), tally.measures()

    assert sum(batches["receivers"].to_pylist()) == sum(len(aggregate.recipients) for aggregate in aggregates)
    assert measures["messages"] == sum(len(aggregate.recipients) for aggregate in aggregates)
    assert measures["bytes"] == sum(
        aggregate.size_bytes * len(aggregate.recipients) for aggregate in aggregates
    )
    assert (
        measures["deliveries"]
        == sum(len(aggregate.recipients) * len(aggregate.batch) for aggregate in aggregates)
        == len(deliveries)
    )

    assert Counter(
        (item, receiver, created.timestamp(), delivered.timestamp())
        for item, receiver, created, delivered, _ in deliveries
    ) == Counter(
        (str(message.number), receiver, start_s + message.arrived_us / S, start_s + aggregate.sent_us / S)
        for aggregate in aggregates
        for message in aggregate.batch
        for receiver in aggregate.recipients
    )
    counted: Counter = Counter()
    for row in batches.to_pylist():
        for item, created, latency_s in zip(row["item"], row["created"], row["latency_s"], strict=True):
            counted[item, created, row["delivered"], latency_s] += row["receivers"]
    assert Counter((item, *times) for item, _, *times in deliveries) == counted
    if deliveries:
        assert measures["latency_s"] == tally.deliveries()["latency_s"].to_pandas().median()

    if len(deliveries) > 1:
        limit = data.draw(st.integers(1, len(deliveries) - 1), label="limit")
        seed = data.draw(st.integers(-5, 5), label="seed")
        sampled = build_tally(aggregates, seed, start_us=start_s * S, limit=limit)
        sample = list_deliveries(sampled)
        assert len(sample) == limit
        assert set(sample) <= set(deliveries)
        assert len(set(sample)) == limit, "nobody gets a message twice, and no delivery is drawn twice"
        assert sample == list_deliveries(build_tally(aggregates, seed, start_us=start_s * S, limit=limit))
        assert sampled.batches() == batches
        assert sampled.measures() == measures


@given(story=stories, echo=st.booleans())
def test_engines_with_and_without_groups_give_the_same_rows(story, echo):
    def summarize(engine):
        tally = build_tally(broadcast_story(engine, story, echo))
        return (
            Counter(map(str, tally.batches().to_pylist())),
            Counter(list_deliveries(tally)),
            tally.measures(),
        )

    expected = summarize(ClientLists)
    assert summarize(Groups) == expected
    assert summarize(ClientArrays) == expected
