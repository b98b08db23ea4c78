"""Engine of groups: cohorts, and cases that random event sequences seldom contain."""

from __future__ import annotations

import tracemalloc

import pytest

from mudkit.systems.radiator import (
    Aggregability,
    Context,
    Groups,
    Message,
    People,
    Volume,
    aggregability,
    broadcast,
)

S = 1_000_000


@aggregability(key=lambda receiver: receiver.get("zone", 0), sender_key=lambda sender: sender["zone"])
def by_zone(sender, zone):
    return Volume(2 if sender == zone else 3)


def create_message(number, sender, t_s=0.0, **attributes):
    return Message(number, sender, round(t_s * S), Context({sender}, attributes))


def create_engine(function=by_zone, clients=30, echo=True):
    engine = Groups(function, 600 * S, echo=echo)
    for number in range(clients):
        engine.register(0, f"c{number}", {"zone": number % 3})
    return engine


def test_queues_due_at_the_same_time_are_all_released():
    engine = create_engine()
    sent = [create_message(0, "c0", zone=0), create_message(1, "c1", zone=1), create_message(2, "c2", zone=2)]
    aggregates = list(broadcast(engine, sent, until_us=700 * S))
    numbers = {
        receiver: [
            message.number
            for aggregate in aggregates
            if receiver in aggregate.recipients
            for message in aggregate.batch
        ]
        for receiver in engine.clients
    }
    assert all(sorted(received) == [0, 1, 2] for received in numbers.values())


def test_receivers_with_equal_pending_messages_share_a_cohort():
    engine = create_engine()
    assert engine.cohorts == 3
    engine.take(0, create_message(0, "c0", zone=0))
    engine.register(0, "late", {"zone": 0})
    assert engine.cohorts == 4, "for the late one nothing waits"
    engine.take(0, create_message(1, "c3", zone=0))
    assert [message.number for message in engine.waiting("late")] == [1]
    engine.take(0, create_message(2, "c6", zone=0))
    engine.take(0, create_message(3, "c6", zone=0))
    engine.take(0, create_message(4, "c6", zone=0))
    assert engine.cohorts == 4, "one is always one message behind the other"


def test_senders_without_echo_rejoin_their_cohort():
    engine = create_engine(Aggregability(lambda s, zone: Volume(1), key=by_zone.key), echo=False)
    for number in range(60):
        engine.take(number, create_message(number, f"c{number % 30}", zone=number % 3))
    engine.fire(61)
    assert engine.cohorts == 3


def test_receiver_with_a_new_key_keeps_its_pending_messages():
    engine = create_engine(Aggregability(lambda sender, zone: Volume(2 if zone == 0 else 5), key=by_zone.key))
    engine.take(0, create_message(0, "c2", zone=2))
    engine.take(0, create_message(1, "c2", zone=2))
    assert [message.number for message in engine.waiting("c1")] == [0, 1]
    entries = engine.take(0, create_message(2, "c1", zone=0))
    assert [
        ([message.number for message in entry.batch], entry.recipients)
        for entry in entries
        if "c1" in entry.recipients
    ] == [([0, 1], ["c1"])]
    assert [message.number for message in engine.waiting("c1")] == [2]


def test_walk_after_a_drop_counts_no_message_again():
    """A message is dropped once for each receiver, after the retention (:attr:`Groups.dropped`)."""

    def by_people(sender, zone):
        return People(3 if sender["zone"] == zone else 4)

    engine = create_engine(Aggregability(by_people, key=by_zone.key), clients=3)
    engine.take(0, create_message(0, "c0"))
    engine.take(300 * S, create_message(1, "c1", 300))
    engine.fire(600 * S)
    assert engine.dropped == 3
    engine.register(601 * S, "c1", {"zone": 2})  # its message has other thresholds now
    assert engine.dropped == 3
    engine.fire(900 * S)
    assert (engine.dropped, engine.waiting("c0")) == (6, [])


def test_failing_key_is_a_problem_and_messages_wait():
    engine = Groups(
        Aggregability(lambda sender, zone: Volume(1), key=lambda receiver: receiver["zone"]),
        600 * S,
        echo=True,
    )
    engine.register(0, "a", {})
    assert engine.take(0, create_message(0, "a")) == []
    (problem,) = engine.problems
    assert "'zone'" in str(problem)
    assert "receiver 'a'" in str(problem)
    (entry,) = engine.take(0, create_message(1, "a", zone=1))[:1]
    assert entry.recipients == ["a"]


def test_function_is_called_once_per_message_and_group():
    calls = []

    def count_call(sender, zone):
        calls.append(zone)
        return Volume(1000)

    engine = create_engine(Aggregability(count_call, key=by_zone.key), clients=3000)
    for number in range(10):
        engine.take(number, create_message(number, f"c{number}", zone=number % 3))
    assert len(calls) == 30


@pytest.mark.soak
def test_memory_does_not_grow_with_the_number_of_messages():
    """Check that only pending messages and one context per client are kept."""
    sizes = {}

    def create_messages(count):
        for number in range(count):
            if number in (1000, 4000):
                sizes[number] = tracemalloc.get_traced_memory()[0]
            yield create_message(
                number, f"c{number % 200}", number / 1000, zone=number % 3, text=f"{number:0100d}"
            )

    engine = create_engine(clients=200)
    tracemalloc.start()
    try:
        released = sum(len(aggregate.batch) for aggregate in broadcast(engine, create_messages(4001)))
    finally:
        tracemalloc.stop()
    assert released > 10_000, "each goes to three groups"
    assert sizes[4000] - sizes[1000] < 100_000, "three thousand texts of 100 bytes are more"
