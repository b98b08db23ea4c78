"""What is no usable function or setting is refused in words when it is given."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest

from mudkit import Lab
from mudkit.errors import ContextProblem, ParameterError
from mudkit.systems.radiator import (
    APPLICATIONS,
    Aggregability,
    Client,
    ClientLists,
    Context,
    Groups,
    Server,
    Shares,
    Tally,
    Volume,
    aggregability,
    broadcast,
    joins,
)
from mudkit.systems.radiator.messages import MAX_BYTES, check_size


def at_once(sender, receiver):
    return Volume(1)


AT_ONCE = Aggregability(at_once)
PAIRS = aggregability(key=lambda receiver: 1)(at_once)
TOO_LARGE = "y" * (1 << 24)


def server(given):
    return Server(Lab(), **{"aggregability": at_once, **given})


def receiving(receive):
    lab = Lab()
    return Client(lab.device("a"), Server(lab, at_once), receive=receive)


NAMED = [
    (lambda given: Context(**given), [
        {"people": "ann"}, {"people": [1]}, {"people": 3}, {"attributes": [1]}, {"span_us": (5, 1)}, {"span_us": 3},
        {"span_us": (0.5, 1)},
    ]),
    (lambda given: Tally(**given), [{"limit": 0}, {"limit": 1.5}, {"seed": "seven"}, {"start_us": "now"}]),
    (server, [
        {"chain": 2.0}, {"max_retention_s": 0}, {"link_kbps": -1}, {"join": 3}, {"aggregability": None},
        {"aggregability": lambda sender: Volume(1)}, {"aggregability": Volume}, {"chainability": 3},
        {"chainability": lambda one: 1.0},
    ]),
    (lambda given: aggregability(**{"key": lambda receiver: 1, **given})(at_once), [
        {"key": 3}, {"key": lambda: 3}, {"sender_key": lambda sender, receiver: 3},
    ]),
    (lambda given: receiving(**given), [{"receive": 3}, {"receive": lambda: None}]),
    (lambda given: Shares(PAIRS, **given), [{"max_retention_s": 0}]),
]  # fmt: skip

SAID = [
    (lambda: Shares(at_once), "an Aggregability"),
    (lambda: Shares(AT_ONCE), "has no key"),
    (lambda: Groups(AT_ONCE, 1), r"at_once has no key[\s\S]*engine_for_many"),
    (lambda: check_size("context", b"x" * MAX_BYTES), "too large"),
    (lambda: Context({"ann"}, {"speed": 1})["loc"], r"'loc'[\s\S]*ann[\s\S]*'speed'"),
    (lambda: joins.mean([Context({"ann"}, {"loc": (1, 2)})], of=("heart_rate",)), "heart_rate"),
    (lambda: joins.top_k([Context({"bob"}, {"loc": (1, 2)})], by="doing"), "doing"),
    (lambda: receiving(None).propagate_context("loc"), "a Context"),
    (lambda: receiving(None).propagate_context({"loc": 1}), "a Context"),
]


@pytest.mark.parametrize(("call", "given"), [(call, one) for call, many in NAMED for one in many])
def test_a_setting_that_cannot_be_used_is_refused_by_its_name(call, given):
    with pytest.raises(ParameterError, match=next(iter(given))):
        call(given)


@pytest.mark.parametrize(("call", "words"), SAID)
def test_refused_in_words(call, words):
    with pytest.raises((ParameterError, ContextProblem), match=words):
        call()


@pytest.mark.parametrize(
    ("join", "says"),
    [
        (joins.people_count, "partial(joins.people_count, k=5)"), (joins.top_k, "partial(joins.top_k, by="),
        (partial(joins.people_count, loc="loc"), "k=5"), (partial(joins.people_count, k=0), "join, k"),
        (partial(joins.people_count, k="5"), "join, k"), (partial(joins.top_k, by=3), "join, by"),
        (partial(joins.top_k, by="x", k=-1), "join, k"), (partial(joins.mean, of="speed_kmh"), "join, of"),
        (partial(joins.mean_per_cell, of=("x",)), "join, of"),
        (partial(joins.mean_per_cell, digits=99), "join, digits"), (partial(joins.count_per_cell, km=0), "join, km"),
        (partial(joins.count_per_cell, km=math.nan), "join, km"),
        (partial(joins.count_per_cell, least=0), "join, least"), (partial(joins.bounding_box, loc=7), "join, loc"),
        (partial(joins.bounding_box, place="loc"), "place"), (lambda contexts, more: contexts[0], "more"),
        (lambda: Context(), "join"), (None, "join"),
    ],
)  # fmt: skip
def test_a_join_that_would_only_fail_when_used(join, says):
    for refuses in (
        lambda: server({"join": join}),
        lambda: Shares(PAIRS, join),
        lambda: replace(APPLICATIONS["traffic"], join=join),
        lambda: next(broadcast(ClientLists(AT_ONCE, 1), [], join)),
    ):
        with pytest.raises(ParameterError) as result:
            refuses()
        assert says in str(result.value)


@pytest.mark.parametrize("given", [{"x": 2**70}, {"x": [2**64]}, {"x": object()}, {"x": TOO_LARGE}])
def test_what_cannot_be_sent_or_stored_is_refused_at_once(given):
    client = receiving(None)
    with pytest.raises(ParameterError):
        client.register(given)
    with pytest.raises(ParameterError):
        client.propagate_context(Context({"a"}, given))
