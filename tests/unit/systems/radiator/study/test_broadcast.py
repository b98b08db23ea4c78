"""The rules alone let go what the server does, when it does."""

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
SAID = [
    Message(t_s, "ann", t_s * S, Context({"ann"}, {"n": t_s}, (t_s * S, t_s * S))) for t_s in (1, 2, 5, 30)
]
CLIENTS = {"ann": {}, "bob": {"slow": True}, "cy": {}}


@pytest.fixture(params=[ClientLists, ClientArrays])
def engine(request):
    return request.param


def made(engine, function):
    lists = engine(Aggregability(function), 20 * S)
    for name, given in CLIENTS.items():
        lists.register(0, name, given)
    return lists


def gone(engine, function):
    result = broadcast(made(engine, function), SAID, until_us=60 * S)
    return [
        (each.sent_us / S, each.context["n"], [name for name in each.recipients if name != "ann"])
        for each in result
    ]


def test_volumes_go_when_they_are_full_and_the_rest_after_the_longest(engine):
    assert gone(engine, lambda sender, receiver: Volume(2)) == [
        (2.0, [1, 2], ["bob", "cy"]),
        (25.0, [5], ["bob", "cy"]),
        (50.0, [30], ["bob", "cy"]),
    ]


def test_time_fires_between_messages(engine):
    assert [row[:2] for row in gone(engine, lambda sender, receiver: Time(6))] == [
        (7.0, [1, 2, 5]),
        (36.0, [30]),
    ]


def test_a_receiver_of_her_own_mind_and_nobody_gets_her_own(engine):
    def by_receiver(sender, receiver):
        return Volume(4 if receiver.get("slow") else 1)

    result = list(broadcast(made(engine, by_receiver), SAID, until_us=60 * S))
    assert {name for each in result for name in each.recipients} == {"bob", "cy"}
    assert [(each.sent_us // S, each.context["n"]) for each in result if "bob" in each.recipients] == [
        (21, [1, 2, 5]),
        (50, [30]),
    ]


def test_an_empty_list_that_was_due_once_does_not_hang(engine):
    """A queue that was let go leaves its moment behind; nothing waits then."""
    assert len(gone(engine, lambda sender, receiver: Volume(1))) == len(SAID)


def test_problems_are_the_engines(engine):
    lists = made(engine, lambda sender, receiver: 1 / 0)
    list(broadcast(lists, SAID))
    assert "ZeroDivisionError" in str(next(iter(lists.problems)))


@pytest.mark.parametrize(("failures", "gone_s"), [(2, 21), (4, 81)])
def test_what_is_not_joined_waits_and_is_tried_again(engine, failures, gone_s):
    """The next attempts are when the oldest message has waited for the retention, and a minute later."""
    tried = []

    def picky(contexts):
        tried.append(len(contexts))
        if len(tried) <= failures:
            raise ZeroDivisionError("too few")
        return joins.concatenation(contexts)

    lists = made(engine, lambda sender, receiver: Volume(1))
    result = list(broadcast(lists, SAID[:1], picky, until_us=600 * S))
    assert [(each.sent_us // S, each.context["n"], each.recipients) for each in result] == [
        (gone_s, [1], ["bob", "cy"])
    ]
    for part in ("picky", "too few", "sender 'ann'", "receiver 'bob', 'cy'"):
        assert part in str(next(iter(lists.problems)))


def test_a_sender_who_is_not_registered_is_an_error_that_says_so(engine):
    said = Message(4, "dan", 4 * S, Context({"dan"}))
    with pytest.raises(ParameterError, match=r"(?s)registered.*'dan'"):
        list(broadcast(made(engine, lambda sender, receiver: Volume(1)), [said]))
