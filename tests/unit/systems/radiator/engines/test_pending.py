"""What waits, and when it goes: the core of Algorithm 3."""

from __future__ import annotations

import math

import pytest

from mudkit.systems.radiator import (
    Aggregability,
    ClientLists,
    Context,
    Message,
    Pending,
    Volume,
    engine_for_many,
)
from mudkit.systems.radiator.engines.pending import Contexts
from mudkit.systems.radiator.thresholds import Key

S = 1_000_000
RETENTION_US = 1000 * S


def message(number, t_s=0.0, *people):
    return Message(number, f"c{number}", round(t_s * S), Context(people or (f"c{number}",)))


def fill(key, *messages):
    pending = Pending(RETENTION_US)
    return pending, [pending.add(each, key) for each in messages]


def numbers(batches):
    return [None if batch is None else [each.number for each in batch] for batch in batches]


def test_volume():
    pending, gone = fill(Key("volume", 3), *(message(n) for n in range(7)))
    assert numbers(gone) == [None, None, [0, 1, 2], None, None, [3, 4, 5], None]
    assert len(pending) == 1


def test_people_are_counted_once_whoever_sends():
    _, gone = fill(
        Key("people", 3), message(0, 0, "a", "b"), message(1, 0, "a"), message(2, 0, "b"), message(3, 0, "c")
    )
    assert numbers(gone) == [None, None, None, [0, 1, 2, 3]]


def test_time_is_from_the_oldest_to_the_newest_and_goes_by_itself():
    pending, gone = fill(Key("time", 300 * S), message(0, 0), message(1, 299))
    assert numbers(gone) == [None, None]
    assert pending.due_us == 300 * S
    assert pending.expire(300 * S - 1) == []
    assert numbers(pending.expire(300 * S)) == [[0, 1]]
    assert pending.due_us == math.inf
    _, gone = fill(Key("time", 300 * S), message(0, 0), message(1, 300))
    assert numbers(gone) == [None, [0, 1]]
    _, gone = fill(Key("time", 0), message(0, 0))
    assert numbers(gone) == [[0]], "at once"


def test_equal_values_of_two_kinds_are_two_queues():
    pending = Pending(RETENTION_US)
    gone = [
        pending.add(message(n), Key(kind, 2))
        for n, kind in enumerate(["volume", "people", "volume", "people"])
    ]
    assert numbers(gone) == [None, None, [0, 2], [1, 3]]


def test_a_walk_takes_the_thresholds_as_they_are_now():
    pending, _ = fill(Key("volume", 10), *(message(n, n) for n in range(5)))
    gone = pending.walk(5 * S, lambda each: Key("volume", 2), message(5, 5))
    assert numbers(gone) == [[0, 1], [2, 3], [4, 5]]


def test_the_retention_lets_go_or_drops():
    pending, _ = fill(Key("volume", 10), message(0, 0), message(1, 500))
    assert numbers(pending.expire(RETENTION_US)) == [[0, 1]]
    assert pending.dropped == 0
    pending, _ = fill(Key("people", 10), message(0, 0), message(1, 500))
    assert pending.expire(RETENTION_US) == []
    assert (pending.dropped, [each.number for each in pending.messages()]) == (1, [1])
    assert pending.due_us == 1500 * S
    pending, _ = fill(Key("time", 5000 * S), message(0, 0))
    assert numbers(pending.expire(RETENTION_US)) == [[0]]


@pytest.mark.parametrize("is_private", [False, True])
def test_without_a_threshold_it_waits_and_what_was_ever_of_people_is_dropped(is_private):
    pending, _ = fill(Key("people", 1) if is_private else Key("volume", 1), message(0, 0))
    assert pending.add(message(1, 0), None) is None
    assert numbers(pending.expire(RETENTION_US)) == ([] if is_private else [[1]])
    assert pending.dropped == is_private


def test_what_is_put_back_is_walked_again_at_its_moment():
    pending, gone = fill(Key("volume", 2), message(0), message(1))
    pending.put_back(gone[1], 60 * S)
    assert pending.due_us == 60 * S
    other = pending.copy()
    assert numbers(pending.walk(60 * S, lambda each: Key("volume", 2))) == [[0, 1]]
    assert len(other) == 2, "a copy is of its own"


def test_the_current_context_is_the_last_message_over_the_registration():
    contexts = Contexts(100)
    assert contexts.register("ann", {"p2p_enabled": True, "x": 1})
    assert contexts["ann"] == Context({"ann"}, {"p2p_enabled": True, "x": 1})
    contexts.propagated("ann", Context({"ann"}, {"x": 2}))
    assert contexts["ann"].attributes == {"p2p_enabled": True, "x": 2}
    assert not contexts.register("ann", {"y": 5})
    assert contexts["ann"].attributes == {"y": 5, "x": 2}
    sent = Message(0, "ann", 0, Context({"ann"}, {"x": 0}))
    contexts.leave(0, "ann")
    assert contexts.of_sender(sent)["x"] == 2, "while something of it may wait"
    contexts.register("bob", {})
    contexts.leave(101, "bob")
    assert contexts.of_sender(sent)["x"] == 0, "long gone"


def test_who_has_left_begins_with_what_it_registers_with():
    contexts = Contexts(100)
    contexts.register("ann", {"x": 1})
    contexts.propagated("ann", Context({"ann"}, {"x": 2}))
    contexts.leave(0, "ann")
    assert not contexts.register("ann", {"x": 9}), "something of it may wait"
    assert contexts["ann"].attributes == {"x": 9}
    contexts.register("ann", {"y": 1})
    assert contexts["ann"].attributes == {"y": 1}


@pytest.mark.parametrize("with_key", [False, True])
@pytest.mark.parametrize("make", [ClientLists, engine_for_many])
def test_in_all_engines(make, with_key):
    def g(sender, receiver):
        there = receiver if with_key else receiver["x"]
        return Volume(1 if (sender["x"], there) == (0, 9) else 5)

    engine = make(Aggregability(g, (lambda receiver: receiver["x"]) if with_key else None), 1000)
    engine.register(0, "ann", {"x": 0})
    engine.register(0, "bob", {"x": 9})
    assert not engine.take(1, Message(1, "bob", 1, Context({"bob"}, {"x": 2})))
    assert not engine.take(1, Message(2, "ann", 1, Context({"ann"}, {"x": 0})))
    engine.unregister(2, "bob")
    engine.register(3, "bob", {"x": 9})
    (entry,) = engine.take(4, Message(3, "ann", 4, Context({"ann"}, {"x": 0})))
    assert entry.recipients == ["bob"]
    assert [message.number for message in entry.batch] == [3], "what waited for it when it left is gone"
