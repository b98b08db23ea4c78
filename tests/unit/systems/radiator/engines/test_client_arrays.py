"""Engine of arrays: function calls, growth, and the same releases as the engine of lists."""

from __future__ import annotations

import random

import pytest

from mudkit.systems.radiator import (
    Aggregability,
    ClientArrays,
    ClientLists,
    Context,
    Groups,
    Message,
    People,
    Time,
    Volume,
    broadcast,
    engine_for_many,
)

S = 1_000_000


def create_message(number, sender, t_s=0.0, **attributes):
    return Message(number, sender, round(t_s * S), Context({sender}, attributes, (0, round(t_s * S))))


def create_engine(function, clients=6, retention_s=600, echo=True):
    engine = ClientArrays(Aggregability(function), retention_s * S, echo=echo)
    for number in range(clients):
        engine.register(0, f"c{number}", {"zone": number % 3})
    return engine


def by_zone(sender, receiver):
    return Volume(1 + receiver["zone"])


def summarize(entries):
    return [([message.number for message in entry.batch], entry.recipients) for entry in entries]


def test_equal_aggregates_share_an_entry_with_ordered_recipients():
    engine = create_engine(by_zone)
    assert summarize(engine.take(0, create_message(0, "c0"))) == [([0], ["c0", "c3"])]
    assert summarize(engine.take(1, create_message(1, "c1"))) == [([1], ["c0", "c3"]), ([0, 1], ["c1", "c4"])]
    engine.unregister(2, "c0")
    engine.register(2, "c9", {"zone": 0})
    assert list(engine.clients) == ["c1", "c2", "c3", "c4", "c5", "c9"]
    assert summarize(engine.take(2, create_message(2, "c1")))[0] == ([2], ["c3", "c9"]), (
        "the free place is taken"
    )


def test_function_is_called_once_per_message_and_receiver():
    calls = []

    def count_call(sender, receiver):
        calls.append(receiver)
        return Volume(1000)

    engine = create_engine(count_call, clients=300, echo=False)
    for number in range(20):
        engine.take(number, create_message(number, f"c{number % 300}"))
    # For the sender as a receiver, all pending messages are decided again: its own context has changed.
    assert len(calls) == 20 * 299 + sum(range(20))
    assert len(engine.waiting("c299")) == 20


def test_people_are_counted_once_across_senders():
    engine = create_engine(lambda sender, receiver: People(3), clients=2)
    names = ({"a", "b"}, {"a"}, {"b"}, {"c"})
    released = [
        engine.take(number, Message(number, "c0", number, Context(people)))
        for number, people in enumerate(names)
    ]
    assert [summarize(entries) for entries in released] == [[], [], [], [([0, 1, 2, 3], ["c0", "c1"])]]


def test_time_is_released_when_due_and_too_few_people_are_dropped():
    engine = create_engine(lambda sender, receiver: Time(90) if receiver["zone"] else People(9), clients=3)
    engine.take(0, create_message(0, "c0"))
    assert engine.due_us == 90 * S
    assert summarize(engine.fire(90 * S)) == [([0], ["c1", "c2"])]
    assert engine.due_us == 600 * S
    assert engine.fire(600 * S) == []
    assert (engine.dropped, engine.due_us) == (1, float("inf"))


def test_failure_for_one_receiver_delays_only_its_messages():
    def moody(sender, receiver):
        return Volume(1 if receiver["zone"] != 2 else receiver["nothing"])

    engine = create_engine(moody, clients=3)
    assert summarize(engine.take(0, create_message(0, "c0"))) == [([0], ["c0", "c1"])]
    (problem,) = engine.problems
    for part in ("moody", "sender 'c0'", "receiver 'c2'", "'nothing'"):
        assert part in str(problem)
    assert summarize(engine.register(1, "c2", {"zone": 1})) == [([0], ["c2"])]
    assert summarize(engine.take(2, create_message(1, "c0"))) == [([1], ["c0", "c1", "c2"])]


def generate_events(draw, steps):
    """Yield events of forty clients that register, unregister, move and send."""
    now_us, clients = 0, []
    for number in range(steps):
        now_us += draw.choice([0, 1, 5, 40, 300]) * S
        client, zone = f"c{draw.randrange(40)}", draw.randrange(5)
        kind = draw.choice(["take"] * 8 + ["register", "unregister"])
        if client not in clients:
            kind = "register"
            clients.append(client)
        elif kind == "unregister":
            clients.remove(client)
        yield now_us, kind, number, client, zone


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("echo", [False, True])
def test_arrays_and_lists_release_the_same_in_random_runs(seed, echo):
    draw = random.Random(seed)
    volumes = [draw.randrange(1, 40) for _ in range(25)]

    def choose_threshold(sender, receiver):
        value = volumes[5 * sender["zone"] + receiver["zone"]]
        return (Volume(value), People(1 + value // 4), Time(seconds=20 * value))[(value + seed) % 3]

    events = list(generate_events(draw, 500))
    outcomes = []
    for engine_type in (ClientLists, ClientArrays):
        engine, released = engine_type(Aggregability(choose_threshold), 900 * S, echo=echo), []
        for t_us, kind, number, client, zone in events:
            while engine.due_us <= t_us:
                due_us = int(engine.due_us)
                released += [(due_us, *entry) for entry in sorted(summarize(engine.fire(due_us)))]
            if kind == "register":
                entries = engine.register(t_us, client, {"zone": zone})
            elif kind == "unregister":
                entries = engine.unregister(t_us, client) or []
            else:
                entries = engine.take(t_us, create_message(number, client, t_us / S, zone=zone))
            released += [(t_us, *entry) for entry in sorted(summarize(entries))]
        outcomes.append(
            (released, engine.dropped, {client: engine.waiting(client) for client in engine.clients})
        )
    assert len(outcomes[0][0]) > 300
    assert outcomes[0] == outcomes[1]


@pytest.mark.soak
def test_released_messages_free_their_rows():
    engine = create_engine(lambda sender, receiver: Volume(3), clients=5)
    sent = (create_message(number, f"c{number % 5}", number) for number in range(10_000))
    assert sum(len(aggregate.batch) for aggregate in broadcast(engine, sent)) == 9_999
    assert engine._codes.shape == (16, 16)


def test_engine_for_many_chooses_by_the_key():
    keyed = Aggregability(lambda sender, zone: Volume(1), key=lambda receiver: receiver["zone"])
    assert type(engine_for_many(keyed, S)) is Groups
    assert type(engine_for_many(Aggregability(by_zone), S)) is ClientArrays
