"""What a broadcast delivers, counted and one by one: the two agree, of whatever was said, from each engine."""

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


def _threshold(zone, there):
    return Time(40 * there) if zone == 3 else Volume(1 + abs(zone - there))


def gone_from(engine, story, echo):
    """What goes, of messages from zones 0 to 3 to receivers in zones 0 to 2."""
    if engine is Groups:
        function = Aggregability(
            lambda sender, zone: _threshold(sender["zone"], zone), lambda receiver: receiver["home"]
        )
    else:
        function = Aggregability(lambda sender, receiver: _threshold(sender["zone"], receiver["home"]))
    made = engine(function, 300 * S, echo=echo)
    for place, client in enumerate(CLIENTS):
        made.register(0, client, {"home": place % 3})
    said, now_us = [], 0
    for number, (sender, wait_s, zone) in enumerate(story):
        now_us += wait_s * S
        said.append(Message(number, sender, now_us, Context({sender}, {"zone": zone}, (now_us, now_us))))
    return list(broadcast(made, said, until_us=now_us + 1000 * S))


def tallied(gone, seed=0, **settings):
    tally = Tally(seed=seed, **settings)
    for each in gone:
        tally.add(each)
    return tally


def rows(tally):
    names = ("item", "receiver", "created", "delivered", "latency_s")
    table = tally.deliveries()
    return list(zip(*[table[name].to_pylist() for name in names], strict=True))


@pytest.mark.parametrize("engine", ENGINES)
@given(story=stories, echo=st.booleans(), start_s=st.integers(0, 2_000_000_000), data=st.data())
def test_counts_and_rows_are_of_the_same_deliveries(engine, story, echo, start_s, data):
    gone = gone_from(engine, story, echo)
    tally = tallied(gone, start_us=start_s * S)
    batches, whole, measures = tally.batches(), rows(tally), tally.measures()

    assert sum(batches["receivers"].to_pylist()) == sum(len(each.recipients) for each in gone)
    assert measures["messages"] == sum(len(each.recipients) for each in gone)
    assert measures["bytes"] == sum(each.size_bytes * len(each.recipients) for each in gone)
    assert (
        measures["deliveries"] == sum(len(each.recipients) * len(each.batch) for each in gone) == len(whole)
    )

    assert Counter(
        (item, receiver, created.timestamp(), delivered.timestamp())
        for item, receiver, created, delivered, _ in whole
    ) == Counter(
        (str(message.number), receiver, start_s + message.arrived_us / S, start_s + each.sent_us / S)
        for each in gone
        for message in each.batch
        for receiver in each.recipients
    )
    counted: Counter = Counter()
    for row in batches.to_pylist():
        for item, created, latency_s in zip(row["item"], row["created"], row["latency_s"], strict=True):
            counted[item, created, row["delivered"], latency_s] += row["receivers"]
    assert Counter((item, *times) for item, _, *times in whole) == counted
    if whole:
        assert measures["latency_s"] == tally.deliveries()["latency_s"].to_pandas().median()

    if len(whole) > 1:
        limit = data.draw(st.integers(1, len(whole) - 1), label="limit")
        seed = data.draw(st.integers(-5, 5), label="seed")
        few = tallied(gone, seed, start_us=start_s * S, limit=limit)
        sample = rows(few)
        assert len(sample) == limit
        assert set(sample) <= set(whole)
        assert len(set(sample)) == limit, "nobody gets a message twice, and no delivery is drawn twice"
        assert sample == rows(tallied(gone, seed, start_us=start_s * S, limit=limit))
        assert few.batches() == batches
        assert few.measures() == measures


@given(story=stories, echo=st.booleans())
def test_engines_with_and_without_groups_give_the_same_rows(story, echo):
    def found(engine):
        tally = tallied(gone_from(engine, story, echo))
        return Counter(map(str, tally.batches().to_pylist())), Counter(rows(tally)), tally.measures()

    literally = found(ClientLists)
    assert found(Groups) == literally
    assert found(ClientArrays) == literally
