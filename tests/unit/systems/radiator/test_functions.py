"""User functions of Radiator: valid joins, and failures that are reported without further effects."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest

from mudkit import Lab
from mudkit.errors import FailureWarning
from mudkit.systems.radiator import (
    APPLICATIONS,
    Client,
    ClientLists,
    Context,
    Message,
    People,
    Server,
    Volume,
    aggregability,
    engine_for_many,
    joins,
    play,
)


def release_at_once(sender, receiver):
    return Volume(1)


def fail(*_):
    raise ZeroDivisionError("boom")


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


def fail_unprintable(*_):
    raise UnprintableError


FAILING = [fail, fail_unprintable, lambda *_: None, lambda *_: math.nan, lambda *_: "0.5", lambda *_: [1]]


class Fleet:
    def __init__(self, g=release_at_once, **settings):
        self.lab = Lab(seed=1)
        self.server = Server(self.lab, g, **settings)
        self.received = {name: [] for name in "abcd"}
        self.clients = {
            name: Client(
                self.lab.device(name), self.server, receive=contexts.append, attributes={"p2p_enabled": True}
            )
            for name, contexts in self.received.items()
        }
        self.lab.run(minutes=1)

    def propagate(self, number):
        self.clients["a"].propagate_context(Context({"a"}, {"n": number})).result()
        self.lab.run(minutes=1)

    def count_received(self):
        return [len(contexts) for contexts in self.received.values()]


def run_join(join):
    """Return the attributes received from two other devices, and the problems of the server."""
    fleet = Fleet(lambda sender, receiver: Volume(2), join=join)
    for place, name in enumerate("ab"):
        attributes = {"loc": (38.7, -9.1), "speed_kmh": 10.0, "x": 1.0 + place}
        fleet.clients[name].propagate_context(Context({name}, attributes)).result()
    fleet.lab.run(minutes=1)
    return [context.attributes for context in fleet.received["c"]], fleet.server.problems["detail"].tolist()


BOX = [38.7, -9.1, 38.7, -9.1]
LISTS = {"loc": [[38.7, -9.1]] * 2, "speed_kmh": [10.0, 10.0], "x": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        (joins.concatenation, LISTS),
        (joins.mean, {"box": BOX, "messages": 2, "speed_kmh": 10.0}),
        (
            partial(joins.mean, of=["speed_kmh", "x"]),
            {"box": BOX, "messages": 2, "speed_kmh": 10.0, "x": 1.5},
        ),
        (joins.bounding_box, {"box": BOX, "messages": 2, "speed_kmh": [10.0, 10.0], "x": [1.0, 2.0]}),
        (joins.count_per_cell, {"cells": [[38.70225, -9.09743, 2, 2, 60.2]], "elsewhere": 0, "km": 1.0}),
        (joins.mean_per_cell, {"cells": [[38.70225, -9.09743, 10.0, 2, 60.2]], "of": "speed_kmh", "km": 1.0}),
        (partial(joins.top_k, by="x"), {**LISTS, "x": [2.0, 1.0]}),
        (partial(joins.people_count, k=2), {"count": 2}),
        (partial(joins.people_count, k=2, loc="loc"), {"box": BOX, "count": 2}),
        (lambda contexts, more=1: contexts[1], {"loc": [38.7, -9.1], "speed_kmh": 10.0, "x": 2.0}),
    ],
)
def test_valid_joins_are_accepted_and_applied(join, expected):
    assert run_join(join) == ([expected], [])


def test_builtin_without_a_signature_is_accepted_as_join():
    received, (problem,) = run_join(max)
    assert received == []
    assert problem.startswith("The join max has failed: TypeError")


@pytest.mark.parametrize("kind", [Volume, People])
def test_least_threshold_of_a_function_releases_at_once(kind):
    """A threshold is a whole number from 1 on, also if it is computed of both sides."""
    fleet = Fleet(lambda sender, receiver: kind(lambda sender, receiver: 1))
    fleet.propagate(1)
    assert fleet.count_received() == [0, 1, 1, 1]
    assert fleet.server.problems.empty


@pytest.mark.parametrize("chainability", [*FAILING, lambda *_: 10**400])
@pytest.mark.parametrize("link_kbps", [None, 1000.0])
def test_failing_chainability_is_reported_and_builds_no_chain(chainability, link_kbps):
    fleet = Fleet(chain=1.0, chainability=chainability, link_kbps=link_kbps)
    fleet.propagate(1)
    assert fleet.count_received() == [0, 1, 1, 1]
    problems = fleet.server.problems
    assert len(problems) == 3, "of b and c, of b and d, of c and d"
    assert set(problems["device"]) == {"radiator"}
    assert "chainability" in problems["detail"][0]
    fleet.propagate(2)
    assert fleet.count_received() == [0, 2, 2, 2]
    assert len(fleet.server.problems) == 3, "each once"
    messages = fleet.lab.frame("messages")
    assert not (
        messages["source"].str.startswith(("b/", "c/", "d/")) & ~messages["target"].str.startswith("radiator")
    ).any()


@pytest.mark.parametrize("function", FAILING)
@pytest.mark.parametrize("key", [None, "key", "sender_key"])
@pytest.mark.parametrize("link_kbps", [None, 1000.0])
def test_failing_aggregability_is_reported_and_messages_wait(function, key, link_kbps):
    g = function
    if key == "key":
        g = aggregability(key=lambda receiver: 1)(function)
    elif key == "sender_key":
        g = aggregability(key=lambda receiver: 1, sender_key=lambda sender: 2)(function)
    fleet = Fleet(g, link_kbps=link_kbps, max_retention_s=600)
    fleet.propagate(1)
    assert fleet.count_received() == [0, 0, 0, 0]
    assert len(fleet.server.problems)
    fleet.lab.run(minutes=15)
    assert fleet.count_received() == [0, 1, 1, 1]


@pytest.mark.parametrize("failing_key", ["key", "sender_key"])
@pytest.mark.parametrize("function", [fail, fail_unprintable, lambda _: [1]])
def test_failing_key_is_reported_and_messages_wait(failing_key, function):
    keys = {"key": lambda receiver: 1, "sender_key": lambda sender: 2, failing_key: function}
    fleet = Fleet(aggregability(**keys)(release_at_once), max_retention_s=600)
    fleet.propagate(1)
    fleet.lab.run(minutes=15)
    assert fleet.count_received() == [0, 1, 1, 1]
    assert len(fleet.server.problems) or (failing_key == "sender_key" and function(None) == [1])


@pytest.mark.parametrize("key", [lambda _: None, lambda _: math.nan, lambda _: "x"])
def test_any_hashable_value_is_a_valid_key(key):
    fleet = Fleet(aggregability(key=key, sender_key=key)(release_at_once))
    fleet.propagate(1)
    fleet.propagate(2)
    assert fleet.count_received() == [0, 2, 2, 2]
    assert fleet.server.problems.empty


@pytest.mark.parametrize(
    "function",
    [*FAILING, lambda _: Context({"a"}, {"x": object()}), lambda _: Context({"a"}, {"x": "y" * (1 << 24)})],
)
@pytest.mark.parametrize("link_kbps", [None, 1000.0])
def test_failing_join_is_reported_and_messages_wait(function, link_kbps):
    is_failing = True

    def join(contexts):
        return function(contexts) if is_failing else joins.concatenation(contexts)

    fleet = Fleet(join=join, link_kbps=link_kbps)
    fleet.propagate(1)
    assert fleet.count_received() == [0, 0, 0, 0]
    assert len(fleet.server.problems) == 1
    is_failing = False
    fleet.lab.run(minutes=5)
    assert fleet.count_received() == [0, 1, 1, 1]


def test_failing_callback_is_reported_and_others_are_called():
    fleet = Fleet()
    fleet.clients["b"].installed.listen("contexts", fail)
    with pytest.warns(FailureWarning, match="boom"):
        fleet.propagate(1)
    assert fleet.count_received() == [0, 1, 1, 1]
    assert fleet.lab.problems["device"].tolist() == ["b"]
    assert fleet.server.problems.empty, "it is not the server's"


@pytest.mark.parametrize("create_engine", [ClientLists, engine_for_many])
def test_engines_report_an_unhashable_key(create_engine):
    engine = create_engine(aggregability(key=lambda receiver: [1])(release_at_once), 10)
    engine.register(0, "a", {})
    engine.register(0, "b", {})
    assert not engine.take(0, Message(1, "a", 0, Context({"a"})))
    assert len(list(engine.problems)) == 1


POSITIONS = pd.DataFrame(
    [
        (name, pd.Timestamp(60 * minute, unit="s", tz="UTC"), 30.0, -97.0, 5.0)
        for minute in range(5)
        for name in "ab"
    ],
    columns=["device", "ts", "lat", "lon", "speed_mps"],
)


@pytest.mark.parametrize(
    "function", [fail, fail_unprintable, lambda *_: math.nan, lambda *_: "loc", lambda *_: {"x": object()}]
)
def test_failing_sense_is_reported_and_the_device_sends_nothing(function):
    traffic = APPLICATIONS["traffic"]

    def sense(name, loc, speed_kmh):
        return function(name) if name == "a" else traffic.sense(name, loc, speed_kmh)

    played = play(replace(traffic, sense=sense, join=joins.concatenation), POSITIONS, watch=["a", "b"])
    assert {"b"} <= set(played.received["sender"])
    assert played.problems


@pytest.mark.parametrize("attributes", [{}, {"loc": None}, {"loc": "x"}])
def test_contexts_without_a_place_are_received_and_reported(attributes):
    played = play(
        replace(APPLICATIONS["traffic"], sense=lambda *_: attributes, join=joins.concatenation),
        POSITIONS,
        watch=["a"],
    )
    assert len(played.received)
    assert played.received["lat"].isna().all()
    assert not len(played.cells)
    assert played.problems


@pytest.mark.parametrize("cells", [3, [3], [[1, 2]]])
def test_malformed_cells_are_skipped_and_reported(cells):
    def join(contexts):
        return Context(attributes={"cells": cells, "km": 1.0})

    played = play(replace(APPLICATIONS["traffic"], join=join), POSITIONS, watch=["a"])
    assert len(played.received)
    assert not len(played.cells)
    assert played.problems


def test_aggregability_function_receives_only_the_key():
    seen = []

    @aggregability(key=lambda receiver: receiver["x"])
    def g(sender, receiver):
        seen.append((sender, receiver))

    assert g.view(Context({"ann"}, {"x": 7})) == 7
    g("sender", 7)
    assert seen == [("sender", 7)]
