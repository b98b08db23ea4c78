"""The engine of groups: its cohorts, and what the random stories seldom meet."""

from __future__ import annotations

import tracemalloc

import pytest

from mudkit.systems.radiator import (
    Aggregability,
    Context,
    Groups,
    Message,
    Volume,
    aggregability,
    broadcast,
)

S = 1_000_000


@aggregability(key=lambda receiver: receiver.get("zone", 0), sender_key=lambda sender: sender["zone"])
def by_zone(sender, zone):
    return Volume(2 if sender == zone else 3)


def message(number, sender, t_s=0.0, **attributes):
    return Message(number, sender, round(t_s * S), Context({sender}, attributes))


def engine(function=by_zone, clients=30, echo=True):
    made = Groups(function, 600 * S, echo=echo)
    for number in range(clients):
        made.register(0, f"c{number}", {"zone": number % 3})
    return made


def test_two_queues_that_are_due_at_once_both_go():
    made = engine()
    sent = [message(0, "c0", zone=0), message(1, "c1", zone=1), message(2, "c2", zone=2)]
    gone = list(broadcast(made, sent, until_us=700 * S))
    numbers = {
        receiver: [m.number for each in gone if receiver in each.recipients for m in each.batch]
        for receiver in made.clients
    }
    assert all(sorted(got) == [0, 1, 2] for got in numbers.values())


def test_those_for_whom_the_same_waits_are_one():
    made = engine()
    assert made.cohorts == 3
    made.take(0, message(0, "c0", zone=0))
    made.register(0, "late", {"zone": 0})
    assert made.cohorts == 4, "for the late one nothing waits"
    made.take(0, message(1, "c3", zone=0))
    assert [m.number for m in made.waiting("late")] == [1]
    made.take(0, message(2, "c6", zone=0))
    made.take(0, message(3, "c6", zone=0))
    made.take(0, message(4, "c6", zone=0))
    assert made.cohorts == 4, "one is always one message behind the other"


def test_senders_without_echo_join_the_others_again():
    made = engine(Aggregability(lambda s, zone: Volume(1), key=by_zone.key), echo=False)
    for number in range(60):
        made.take(number, message(number, f"c{number % 30}", zone=number % 3))
    made.fire(61)
    assert made.cohorts == 3


def test_who_moves_takes_along_what_waits():
    made = engine(Aggregability(lambda sender, zone: Volume(2 if zone == 0 else 5), key=by_zone.key))
    made.take(0, message(0, "c2", zone=2))
    made.take(0, message(1, "c2", zone=2))
    assert [m.number for m in made.waiting("c1")] == [0, 1]
    gone = made.take(0, message(2, "c1", zone=0))
    assert [
        ([m.number for m in entry.batch], entry.recipients) for entry in gone if "c1" in entry.recipients
    ] == [([0, 1], ["c1"])]
    assert [m.number for m in made.waiting("c1")] == [2]


def test_a_key_that_cannot_be_had_is_a_problem_and_the_messages_wait():
    made = Groups(
        Aggregability(lambda sender, zone: Volume(1), key=lambda receiver: receiver["zone"]),
        600 * S,
        echo=True,
    )
    made.register(0, "a", {})
    assert made.take(0, message(0, "a")) == []
    (problem,) = made.problems
    assert "'zone'" in str(problem)
    assert "receiver 'a'" in str(problem)
    (entry,) = made.take(0, message(1, "a", zone=1))[:1]
    assert entry.recipients == ["a"]


def test_a_message_costs_as_many_steps_as_there_are_groups():
    asked = []

    def counted(sender, zone):
        asked.append(zone)
        return Volume(1000)

    made = engine(Aggregability(counted, key=by_zone.key), clients=3000)
    for number in range(10):
        made.take(number, message(number, f"c{number}", zone=number % 3))
    assert len(asked) == 30


@pytest.mark.soak
def test_memory_does_not_grow_with_the_messages():
    """What is held is what waits, and a context of each client; R5 has a million messages to 60,000."""
    sizes = {}

    def sent(count):
        for number in range(count):
            if number in (1000, 4000):
                sizes[number] = tracemalloc.get_traced_memory()[0]
            yield message(number, f"c{number % 200}", number / 1000, zone=number % 3, text=f"{number:0100d}")

    made = engine(clients=200)
    tracemalloc.start()
    try:
        went = sum(len(gone.batch) for gone in broadcast(made, sent(4001)))
    finally:
        tracemalloc.stop()
    assert went > 10_000, "each goes to three groups"
    assert sizes[4000] - sizes[1000] < 100_000, "three thousand texts of 100 bytes are more"
