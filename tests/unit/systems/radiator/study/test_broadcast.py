"""Broadcast without a fleet: the same releases at the same times as the server."""

from __future__ import annotations

import pytest

from mudkit.errors import ParameterError
from mudkit.systems.radiator import (
    Aggregability,
    ClientArrays,
    ClientLists,
    Context,
    Message,
    Time,
    Volume,
    broadcast,
    joins,
)

S = 1_000_000
MESSAGES = [
    Message(t_s, "ann", t_s * S, Context({"ann"}, {"n": t_s}, (t_s * S, t_s * S))) for t_s in (1, 2, 5, 30)
]
CLIENTS = {"ann": {}, "bob": {"slow": True}, "cy": {}}


@pytest.fixture(params=[ClientLists, ClientArrays])
def engine_type(request):
    return request.param


def create_engine(engine_type, function):
    engine = engine_type(Aggregability(function), 20 * S)
    for name, attributes in CLIENTS.items():
        engine.register(0, name, attributes)
    return engine


def run(engine_type, function):
    result = broadcast(create_engine(engine_type, function), MESSAGES, until_us=60 * S)
    return [
        (
            aggregate.sent_us / S,
            aggregate.context["n"],
            [name for name in aggregate.recipients if name != "ann"],
        )
        for aggregate in result
    ]


def test_volumes_are_released_when_full_or_after_the_retention(engine_type):
    assert run(engine_type, lambda sender, receiver: Volume(2)) == [
        (2.0, [1, 2], ["bob", "cy"]),
        (25.0, [5], ["bob", "cy"]),
        (50.0, [30], ["bob", "cy"]),
    ]


def test_time_fires_between_messages(engine_type):
    assert [row[:2] for row in run(engine_type, lambda sender, receiver: Time(6))] == [
        (7.0, [1, 2, 5]),
        (36.0, [30]),
    ]


def test_thresholds_are_per_receiver_and_senders_are_excluded(engine_type):
    def by_receiver(sender, receiver):
        return Volume(4 if receiver.get("slow") else 1)

    result = list(broadcast(create_engine(engine_type, by_receiver), MESSAGES, until_us=60 * S))
    assert {name for aggregate in result for name in aggregate.recipients} == {"bob", "cy"}
    assert [
        (aggregate.sent_us // S, aggregate.context["n"])
        for aggregate in result
        if "bob" in aggregate.recipients
    ] == [
        (21, [1, 2, 5]),
        (50, [30]),
    ]


def test_empty_queue_with_a_past_due_time_does_not_hang(engine_type):
    """Check that the due time of a released queue may remain."""
    assert len(run(engine_type, lambda sender, receiver: Volume(1))) == len(MESSAGES)


def test_problems_are_recorded_by_the_engine(engine_type):
    engine = create_engine(engine_type, lambda sender, receiver: 1 / 0)
    list(broadcast(engine, MESSAGES))
    assert "ZeroDivisionError" in str(next(iter(engine.problems)))


@pytest.mark.parametrize(("failures", "sent_s"), [(2, 21), (4, 81)])
def test_failed_join_is_retried(engine_type, failures, sent_s):
    """Check the next attempts: after the retention of the oldest message, and each minute later."""
    attempts = []

    def picky(contexts):
        attempts.append(len(contexts))
        if len(attempts) <= failures:
            raise ZeroDivisionError("too few")
        return joins.concatenation(contexts)

    engine = create_engine(engine_type, lambda sender, receiver: Volume(1))
    result = list(broadcast(engine, MESSAGES[:1], picky, until_us=600 * S))
    assert [
        (aggregate.sent_us // S, aggregate.context["n"], aggregate.recipients) for aggregate in result
    ] == [(sent_s, [1], ["bob", "cy"])]
    for part in ("picky", "too few", "sender 'ann'", "receiver 'bob', 'cy'"):
        assert part in str(next(iter(engine.problems)))


def test_unregistered_sender_is_refused(engine_type):
    message = Message(4, "dan", 4 * S, Context({"dan"}))
    with pytest.raises(ParameterError, match=r"(?s)registered.*'dan'"):
        list(broadcast(create_engine(engine_type, lambda sender, receiver: Volume(1)), [message]))
