"""Pending messages and current contexts, the core of Algorithm 3."""

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
from mudkit.systems.radiator.engines.pending import CurrentContexts
from mudkit.systems.radiator.thresholds import EvaluatedThreshold

S = 1_000_000
RETENTION_US = 1000 * S


def create_message(number, t_s=0.0, *people):
    return Message(number, f"c{number}", round(t_s * S), Context(people or (f"c{number}",)))


def fill(key, *messages):
    pending = Pending(RETENTION_US)
    return pending, [pending.add(message, key) for message in messages]


def list_numbers(batches):
    return [None if batch is None else [message.number for message in batch] for batch in batches]


def test_volume_queue_is_released_when_full():
    pending, batches = fill(EvaluatedThreshold("volume", 3), *(create_message(n) for n in range(7)))
    assert list_numbers(batches) == [None, None, [0, 1, 2], None, None, [3, 4, 5], None]
    assert len(pending) == 1


def test_people_are_counted_once_across_senders():
    _, batches = fill(
        EvaluatedThreshold("people", 3),
        create_message(0, 0, "a", "b"),
        create_message(1, 0, "a"),
        create_message(2, 0, "b"),
        create_message(3, 0, "c"),
    )
    assert list_numbers(batches) == [None, None, None, [0, 1, 2, 3]]


def test_only_messages_that_waited_for_the_retention_are_dropped_for_want_of_people():
    messages = create_message(0, 0, "a"), create_message(1, 600, "b"), create_message(2, 700, "c")
    people = EvaluatedThreshold("people", 4)
    pending, _ = fill(people, *messages)
    assert pending.expire(RETENTION_US) == []
    assert (pending.dropped, [message.number for message in pending.messages()]) == (1, [1, 2])
    assert pending.due_us == 600 * S + RETENTION_US
    assert pending.add(create_message(3, 1100, "d"), people) is None, "of a only the name was known"
    assert list_numbers([pending.add(create_message(4, 1200, "e"), people)]) == [[1, 2, 3, 4]]


def test_time_queue_is_released_by_age_and_on_expiry():
    pending, batches = fill(EvaluatedThreshold("time", 300 * S), create_message(0, 0), create_message(1, 299))
    assert list_numbers(batches) == [None, None]
    assert pending.due_us == 300 * S
    assert pending.expire(300 * S - 1) == []
    assert list_numbers(pending.expire(300 * S)) == [[0, 1]]
    assert pending.due_us == math.inf
    _, batches = fill(EvaluatedThreshold("time", 300 * S), create_message(0, 0), create_message(1, 300))
    assert list_numbers(batches) == [None, [0, 1]]
    _, batches = fill(EvaluatedThreshold("time", 0), create_message(0, 0))
    assert list_numbers(batches) == [[0]], "at once"


def test_thresholds_of_different_kinds_have_separate_queues():
    pending = Pending(RETENTION_US)
    batches = [
        pending.add(create_message(n), EvaluatedThreshold(kind, 2))
        for n, kind in enumerate(["volume", "people", "volume", "people"])
    ]
    assert list_numbers(batches) == [None, None, [0, 2], [1, 3]]


def test_walk_uses_the_current_thresholds():
    pending, _ = fill(EvaluatedThreshold("volume", 10), *(create_message(n, n) for n in range(5)))
    batches = pending.walk(5 * S, lambda message: EvaluatedThreshold("volume", 2), create_message(5, 5))
    assert list_numbers(batches) == [[0, 1], [2, 3], [4, 5]]


def test_retention_releases_or_drops_messages():
    pending, _ = fill(EvaluatedThreshold("volume", 10), create_message(0, 0), create_message(1, 500))
    assert list_numbers(pending.expire(RETENTION_US)) == [[0, 1]]
    assert pending.dropped == 0
    pending, _ = fill(EvaluatedThreshold("people", 10), create_message(0, 0), create_message(1, 500))
    assert pending.expire(RETENTION_US) == []
    assert (pending.dropped, [message.number for message in pending.messages()]) == (1, [1])
    assert pending.due_us == 1500 * S
    pending, _ = fill(EvaluatedThreshold("time", 5000 * S), create_message(0, 0))
    assert list_numbers(pending.expire(RETENTION_US)) == [[0]]


@pytest.mark.parametrize("is_private", [False, True])
def test_message_without_threshold_waits_or_is_dropped_with_people(is_private):
    pending, _ = fill(
        EvaluatedThreshold("people", 1) if is_private else EvaluatedThreshold("volume", 1),
        create_message(0, 0),
    )
    assert pending.add(create_message(1, 0), None) is None
    assert list_numbers(pending.expire(RETENTION_US)) == ([] if is_private else [[1]])
    assert pending.dropped == is_private


def test_batch_put_back_is_walked_at_the_retry_time():
    pending, batches = fill(EvaluatedThreshold("volume", 2), create_message(0), create_message(1))
    pending.put_back(batches[1], 60 * S)
    assert pending.due_us == 60 * S
    other = pending.copy()
    assert list_numbers(pending.walk(60 * S, lambda message: EvaluatedThreshold("volume", 2))) == [[0, 1]]
    assert len(other) == 2, "a copy is of its own"


def test_current_context_merges_last_message_and_registration():
    contexts = CurrentContexts(100)
    assert contexts.register("ann", {"p2p_enabled": True, "x": 1})
    assert contexts["ann"] == Context({"ann"}, {"p2p_enabled": True, "x": 1})
    contexts.record_propagation("ann", Context({"ann"}, {"x": 2}))
    assert contexts["ann"].attributes == {"p2p_enabled": True, "x": 2}
    assert not contexts.register("ann", {"y": 5})
    assert contexts["ann"].attributes == {"y": 5, "x": 2}
    sent = Message(0, "ann", 0, Context({"ann"}, {"x": 0}))
    contexts.mark_left(0, "ann")
    assert contexts.of_sender(sent)["x"] == 2, "while something of it may wait"
    contexts.register("bob", {})
    contexts.mark_left(101, "bob")
    assert contexts.of_sender(sent)["x"] == 0, "long gone"


def test_context_of_a_new_registration_excludes_former_attributes():
    contexts = CurrentContexts(100)
    contexts.register("ann", {"x": 1})
    contexts.record_propagation("ann", Context({"ann"}, {"x": 2}))
    contexts.mark_left(0, "ann")
    assert not contexts.register("ann", {"x": 9}), "something of it may wait"
    assert contexts["ann"].attributes == {"x": 9}
    contexts.register("ann", {"y": 1})
    assert contexts["ann"].attributes == {"y": 1}


@pytest.mark.parametrize("with_key", [False, True])
@pytest.mark.parametrize("create_engine", [ClientLists, engine_for_many])
def test_engines_drop_pending_messages_on_unregistration(create_engine, with_key):
    def g(sender, receiver):
        receiver_x = receiver if with_key else receiver["x"]
        return Volume(1 if (sender["x"], receiver_x) == (0, 9) else 5)

    engine = create_engine(Aggregability(g, (lambda receiver: receiver["x"]) if with_key else None), 1000)
    engine.register(0, "ann", {"x": 0})
    engine.register(0, "bob", {"x": 9})
    assert not engine.take(1, Message(1, "bob", 1, Context({"bob"}, {"x": 2})))
    assert not engine.take(1, Message(2, "ann", 1, Context({"ann"}, {"x": 0})))
    engine.unregister(2, "bob")
    engine.register(3, "bob", {"x": 9})
    (entry,) = engine.take(4, Message(3, "ann", 4, Context({"ann"}, {"x": 0})))
    assert entry.recipients == ["bob"]
    assert [message.number for message in entry.batch] == [3], "what waited for it when it left is gone"
