"""Early refusal of invalid functions and settings."""

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


def create_server(settings):
    return Server(Lab(), **{"aggregability": at_once, **settings})


def create_client(receive):
    lab = Lab()
    return Client(lab.device("a"), Server(lab, at_once), receive=receive)


INVALID_SETTINGS = [
    (lambda settings: Context(**settings), [
        {"people": "ann"}, {"people": [1]}, {"people": 3}, {"attributes": [1]}, {"span_us": (5, 1)}, {"span_us": 3},
        {"span_us": (0.5, 1)},
    ]),
    (lambda settings: Tally(**settings), [
        {"limit": 0}, {"limit": 1.5}, {"seed": "seven"}, {"start_us": "now"},
    ]),
    (create_server, [
        {"chain": 2.0}, {"max_retention_s": 0}, {"link_kbps": -1}, {"join": 3}, {"aggregability": None},
        {"aggregability": lambda sender: Volume(1)}, {"aggregability": Volume}, {"chainability": 3},
        {"chainability": lambda one: 1.0},
    ]),
    (lambda settings: aggregability(**{"key": lambda receiver: 1, **settings})(at_once), [
        {"key": 3}, {"key": lambda: 3}, {"sender_key": lambda sender, receiver: 3},
    ]),
    (lambda settings: create_client(**settings), [{"receive": 3}, {"receive": lambda: None}]),
    (lambda settings: Shares(PAIRS, **settings), [{"max_retention_s": 0}]),
]  # fmt: skip

INVALID_CALLS = [
    (lambda: Shares(at_once), "an Aggregability"),
    (lambda: Shares(AT_ONCE), "has no key"),
    (lambda: Groups(AT_ONCE, 1), r"at_once has no key[\s\S]*engine_for_many"),
    (lambda: check_size("context", b"x" * MAX_BYTES), "too large"),
    (lambda: Context({"ann"}, {"speed": 1})["loc"], r"'loc'[\s\S]*ann[\s\S]*'speed'"),
    (lambda: joins.mean([Context({"ann"}, {"loc": (1, 2)})], of=("heart_rate",)), "heart_rate"),
    (lambda: joins.top_k([Context({"bob"}, {"loc": (1, 2)})], by="doing"), "doing"),
    (lambda: create_client(None).propagate_context("loc"), "a Context"),
    (lambda: create_client(None).propagate_context({"loc": 1}), "a Context"),
]


@pytest.mark.parametrize(
    ("call", "settings"), [(call, settings) for call, cases in INVALID_SETTINGS for settings in cases]
)
def test_invalid_settings_are_refused_by_name(call, settings):
    with pytest.raises(ParameterError, match=next(iter(settings))):
        call(settings)


@pytest.mark.parametrize(("call", "problem"), INVALID_CALLS)
def test_invalid_calls_are_refused_with_a_reason(call, problem):
    with pytest.raises((ParameterError, ContextProblem), match=problem):
        call()


@pytest.mark.parametrize(
    ("join", "problem"),
    [
        (joins.people_count, "partial(joins.people_count, k=5)"), (joins.top_k, "partial(joins.top_k, by="),
        (partial(joins.people_count, loc="loc"), "k=5"), (partial(joins.people_count, k=0), "join, k"),
        (partial(joins.people_count, k="5"), "join, k"), (partial(joins.top_k, by=3), "join, by"),
        (partial(joins.top_k, by="x", k=-1), "join, k"), (partial(joins.mean, of="speed_kmh"), "join, of"),
        (partial(joins.mean_per_cell, of=("x",)), "join, of"),
        (partial(joins.mean_per_cell, digits=99), "join, digits"), (partial(joins.count_per_cell, km=0), "join, km"),
        (partial(joins.count_per_cell, km=math.nan), "join, km"),
        (partial(joins.count_per_cell, least=0), "join, least"), (partial(joins.bounding_box, loc=7), "join, loc"),
        (partial(joins.bounding_box, loc=None), "join, loc"), (partial(joins.people_count, k=2, loc=7), "join, loc"),
        (partial(joins.bounding_box, place="loc"), "place"), (lambda contexts, more: contexts[0], "more"),
        (lambda: Context(), "join"), (None, "join"),
    ],
)  # fmt: skip
def test_unusable_joins_are_refused_early(join, problem):
    for call in (
        lambda: create_server({"join": join}),
        lambda: Shares(PAIRS, join),
        lambda: replace(APPLICATIONS["traffic"], join=join),
        lambda: next(broadcast(ClientLists(AT_ONCE, 1), [], join)),
    ):
        with pytest.raises(ParameterError) as result:
            call()
        assert problem in str(result.value)


@pytest.mark.parametrize("attributes", [{"x": 2**70}, {"x": [2**64]}, {"x": object()}, {"x": TOO_LARGE}])
def test_values_that_cannot_be_stored_are_refused(attributes):
    client = create_client(None)
    with pytest.raises(ParameterError):
        client.register(attributes)
    with pytest.raises(ParameterError):
        client.propagate_context(Context({"a"}, attributes))
