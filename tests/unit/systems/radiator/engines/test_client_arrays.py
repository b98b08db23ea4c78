"""The engine by arrays: it asks once for each receiver, and grows; what goes is what the lists let go."""

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


def message(number, sender, t_s=0.0, **attributes):
    return Message(number, sender, round(t_s * S), Context({sender}, attributes, (0, round(t_s * S))))


def engine(function, clients=6, retention_s=600, echo=True):
    made = ClientArrays(Aggregability(function), retention_s * S, echo=echo)
    for number in range(clients):
        made.register(0, f"c{number}", {"zone": number % 3})
    return made


def by_zone(sender, receiver):
    return Volume(1 + receiver["zone"])


def numbers(entries):
    return [([each.number for each in entry.batch], entry.recipients) for entry in entries]


def test_equal_aggregates_are_one_entry_whose_recipients_are_in_order():
    made = engine(by_zone)
    assert numbers(made.take(0, message(0, "c0"))) == [([0], ["c0", "c3"])]
    assert numbers(made.take(1, message(1, "c1"))) == [([1], ["c0", "c3"]), ([0, 1], ["c1", "c4"])]
    made.unregister(2, "c0")
    made.register(2, "c9", {"zone": 0})
    assert list(made.clients) == ["c1", "c2", "c3", "c4", "c5", "c9"]
    assert numbers(made.take(2, message(2, "c1")))[0] == ([2], ["c3", "c9"]), "the free place is taken"


def test_a_message_asks_once_for_each_receiver_however_much_waits():
    asked = []

    def counted(sender, receiver):
        asked.append(receiver)
        return Volume(1000)

    made = engine(counted, clients=300, echo=False)
    for number in range(20):
        made.take(number, message(number, f"c{number % 300}"))
    # Of a sender, whose own context is another now, what waits for it alone is asked for again.
    assert len(asked) == 20 * 299 + sum(range(20))
    assert len(made.waiting("c299")) == 20


def test_people_are_counted_once_whoever_sends():
    made = engine(lambda sender, receiver: People(3), clients=2)
    names = ({"a", "b"}, {"a"}, {"b"}, {"c"})
    gone = [
        made.take(number, Message(number, "c0", number, Context(about))) for number, about in enumerate(names)
    ]
    assert [numbers(each) for each in gone] == [[], [], [], [([0, 1, 2, 3], ["c0", "c1"])]]


def test_time_goes_by_itself_and_people_who_are_too_few_are_dropped():
    made = engine(lambda sender, receiver: Time(90) if receiver["zone"] else People(9), clients=3)
    made.take(0, message(0, "c0"))
    assert made.due_us == 90 * S
    assert numbers(made.fire(90 * S)) == [([0], ["c1", "c2"])]
    assert made.due_us == 600 * S
    assert made.fire(600 * S) == []
    assert (made.dropped, made.due_us) == (1, float("inf"))


def test_what_fails_for_one_receiver_waits_for_it_alone():
    def moody(sender, receiver):
        return Volume(1 if receiver["zone"] != 2 else receiver["nothing"])

    made = engine(moody, clients=3)
    assert numbers(made.take(0, message(0, "c0"))) == [([0], ["c0", "c1"])]
    (problem,) = made.problems
    for part in ("moody", "sender 'c0'", "receiver 'c2'", "'nothing'"):
        assert part in str(problem)
    assert numbers(made.register(1, "c2", {"zone": 1})) == [([0], ["c2"])]
    assert numbers(made.take(2, message(1, "c0"))) == [([1], ["c0", "c1", "c2"])]


def random_story(chance, steps):
    """Forty clients who come, go, move and send; a third of the functions' values depend on both sides."""
    now_us, present = 0, []
    for number in range(steps):
        now_us += chance.choice([0, 1, 5, 40, 300]) * S
        client, zone = f"c{chance.randrange(40)}", chance.randrange(5)
        what = chance.choice(["take"] * 8 + ["register", "unregister"])
        if client not in present:
            what = "register"
            present.append(client)
        elif what == "unregister":
            present.remove(client)
        yield now_us, what, number, client, zone


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("echo", [False, True])
def test_many_rows_and_places_agree_with_the_lists(seed, echo):
    chance = random.Random(seed)
    volumes = [chance.randrange(1, 40) for _ in range(25)]

    def g(sender, receiver):
        value = volumes[5 * sender["zone"] + receiver["zone"]]
        return (Volume(value), People(1 + value // 4), Time(seconds=20 * value))[(value + seed) % 3]

    story = list(random_story(chance, 500))
    gone = []
    for kind in (ClientLists, ClientArrays):
        made, went = kind(Aggregability(g), 900 * S, echo=echo), []
        for t_us, what, number, client, zone in story:
            while made.due_us <= t_us:
                due_us = int(made.due_us)
                went += [(due_us, *each) for each in sorted(numbers(made.fire(due_us)))]
            if what == "register":
                entries = made.register(t_us, client, {"zone": zone})
            elif what == "unregister":
                entries = made.unregister(t_us, client) or []
            else:
                entries = made.take(t_us, message(number, client, t_us / S, zone=zone))
            went += [(t_us, *each) for each in sorted(numbers(entries))]
        gone.append((went, made.dropped, {each: made.waiting(each) for each in made.clients}))
    assert len(gone[0][0]) > 300
    assert gone[0] == gone[1]


@pytest.mark.soak
def test_room_is_given_up_by_messages_that_wait_nowhere():
    made = engine(lambda sender, receiver: Volume(3), clients=5)
    sent = (message(number, f"c{number % 5}", number) for number in range(10_000))
    assert sum(len(gone.batch) for gone in broadcast(made, sent)) == 9_999
    assert made._codes.shape == (16, 16)


def test_which_engine_is_for_whom():
    keyed = Aggregability(lambda sender, zone: Volume(1), key=lambda receiver: receiver["zone"])
    assert type(engine_for_many(keyed, S)) is Groups
    assert type(engine_for_many(Aggregability(by_zone), S)) is ClientArrays
