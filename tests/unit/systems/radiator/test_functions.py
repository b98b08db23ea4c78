"""What is no usable function is refused when it is given; what fails later is told, and ends nothing."""

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
    Server,
    Volume,
    aggregability,
    engine_for_many,
    joins,
    play,
)


def at_once(sender, receiver):
    return Volume(1)


def raises(*_):
    raise ZeroDivisionError("boom")


class Untold(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


def untold(*_):
    raise Untold


WRONG = [raises, untold, lambda *_: None, lambda *_: math.nan, lambda *_: "0.5", lambda *_: [1]]


class Fleet:
    def __init__(self, g=at_once, **settings):
        self.lab = Lab(seed=1)
        self.server = Server(self.lab, g, **settings)
        self.got = {name: [] for name in "abcd"}
        self.clients = {
            name: Client(
                self.lab.device(name), self.server, receive=got.append, attributes={"p2p_enabled": True}
            )
            for name, got in self.got.items()
        }
        self.lab.run(minutes=1)

    def say(self, number):
        self.clients["a"].propagate_context(Context({"a"}, {"n": number})).result()
        self.lab.run(minutes=1)

    def counts(self):
        return [len(got) for got in self.got.values()]


def join_of_two(join):
    """Return what a device receives of the contexts of two others, and the problems of the server."""
    fleet = Fleet(lambda sender, receiver: Volume(2), join=join)
    for place, name in enumerate("ab"):
        attributes = {"loc": (38.7, -9.1), "speed_kmh": 10.0, "x": 1.0 + place}
        fleet.clients[name].propagate_context(Context({name}, attributes)).result()
    fleet.lab.run(minutes=1)
    return [context.attributes for context in fleet.got["c"]], fleet.server.problems["detail"].tolist()


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
def test_a_join_that_can_be_used(join, expected):
    assert join_of_two(join) == ([expected], [])


def test_a_builtin_without_a_signature_is_taken_as_a_join():
    heard, (problem,) = join_of_two(max)
    assert heard == []
    assert problem.startswith("The join max has failed: TypeError")


@pytest.mark.parametrize("chainability", [*WRONG, lambda *_: 10**400])
@pytest.mark.parametrize("link_kbps", [None, 1000.0])
def test_a_chainability_that_fails_is_told_and_chains_nobody(chainability, link_kbps):
    fleet = Fleet(chain=1.0, chainability=chainability, link_kbps=link_kbps)
    fleet.say(1)
    assert fleet.counts() == [0, 1, 1, 1]
    problems = fleet.server.problems
    assert len(problems) == 3, "of b and c, of b and d, of c and d"
    assert set(problems["device"]) == {"radiator"}
    assert "chainability" in problems["detail"][0]
    fleet.say(2)
    assert fleet.counts() == [0, 2, 2, 2]
    assert len(fleet.server.problems) == 3, "each once"
    messages = fleet.lab.frame("messages")
    assert not (
        messages["source"].str.startswith(("b/", "c/", "d/")) & ~messages["target"].str.startswith("radiator")
    ).any()


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("key", [None, "key", "sender_key"])
@pytest.mark.parametrize("link_kbps", [None, 1000.0])
def test_an_aggregability_function_that_fails_is_told_and_the_messages_wait(wrong, key, link_kbps):
    g = wrong
    if key == "key":
        g = aggregability(key=lambda receiver: 1)(wrong)
    elif key == "sender_key":
        g = aggregability(key=lambda receiver: 1, sender_key=lambda sender: 2)(wrong)
    fleet = Fleet(g, link_kbps=link_kbps, max_retention_s=600)
    fleet.say(1)
    assert fleet.counts() == [0, 0, 0, 0]
    assert len(fleet.server.problems)
    fleet.lab.run(minutes=15)
    assert fleet.counts() == [0, 1, 1, 1]


@pytest.mark.parametrize("which", ["key", "sender_key"])
@pytest.mark.parametrize("wrong", [raises, untold, lambda _: [1]])
def test_a_key_that_fails_is_told_and_the_messages_wait(which, wrong):
    keys = {"key": lambda receiver: 1, "sender_key": lambda sender: 2, which: wrong}
    fleet = Fleet(aggregability(**keys)(at_once), max_retention_s=600)
    fleet.say(1)
    fleet.lab.run(minutes=15)
    assert fleet.counts() == [0, 1, 1, 1]
    assert len(fleet.server.problems) or (which == "sender_key" and wrong(None) == [1])


@pytest.mark.parametrize("key", [lambda _: None, lambda _: math.nan, lambda _: "x"])
def test_a_key_may_be_anything_that_is_hashable(key):
    fleet = Fleet(aggregability(key=key, sender_key=key)(at_once))
    fleet.say(1)
    fleet.say(2)
    assert fleet.counts() == [0, 2, 2, 2]
    assert fleet.server.problems.empty


@pytest.mark.parametrize(
    "wrong",
    [*WRONG, lambda _: Context({"a"}, {"x": object()}), lambda _: Context({"a"}, {"x": "y" * (1 << 24)})],
)
@pytest.mark.parametrize("link_kbps", [None, 1000.0])
def test_a_join_that_fails_is_told_and_the_messages_wait(wrong, link_kbps):
    fails = True

    def join(contexts):
        return wrong(contexts) if fails else joins.concatenation(contexts)

    fleet = Fleet(join=join, link_kbps=link_kbps)
    fleet.say(1)
    assert fleet.counts() == [0, 0, 0, 0]
    assert len(fleet.server.problems) == 1
    fails = False
    fleet.lab.run(minutes=5)
    assert fleet.counts() == [0, 1, 1, 1]


def test_a_callback_that_fails_is_told_and_the_others_get_theirs():
    fleet = Fleet()
    fleet.clients["b"].installed.listen("contexts", raises)
    with pytest.warns(FailureWarning, match="boom"):
        fleet.say(1)
    assert fleet.counts() == [0, 1, 1, 1]
    assert fleet.lab.problems["device"].tolist() == ["b"]
    assert fleet.server.problems.empty, "it is not the server's"


@pytest.mark.parametrize("make", [ClientLists, engine_for_many])
def test_the_engines_agree_on_a_key_that_is_not_hashable(make):
    engine = make(aggregability(key=lambda receiver: [1])(at_once), 10)
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
    "wrong", [raises, untold, lambda *_: math.nan, lambda *_: "loc", lambda *_: {"x": object()}]
)
def test_a_sense_that_fails_is_told_and_the_device_says_nothing(wrong):
    traffic = APPLICATIONS["traffic"]

    def sense(name, loc, speed_kmh):
        return wrong(name) if name == "a" else traffic.sense(name, loc, speed_kmh)

    played = play(replace(traffic, sense=sense, join=joins.concatenation), POSITIONS, watch=["a", "b"])
    assert {"b"} <= set(played.received["sender"])
    assert played.problems


@pytest.mark.parametrize("said", [{}, {"loc": None}, {"loc": "x"}])
def test_who_says_no_place_ends_nothing(said):
    played = play(
        replace(APPLICATIONS["traffic"], sense=lambda *_: said, join=joins.concatenation),
        POSITIONS,
        watch=["a"],
    )
    assert len(played.received)
    assert played.received["lat"].isna().all()
    assert not len(played.cells)
    assert played.problems


@pytest.mark.parametrize("cells", [3, [3], [[1, 2]]])
def test_cells_of_another_form_end_nothing(cells):
    def join(contexts):
        return Context(attributes={"cells": cells, "km": 1.0})

    played = play(replace(APPLICATIONS["traffic"], join=join), POSITIONS, watch=["a"])
    assert len(played.received)
    assert not len(played.cells)
    assert played.problems


def test_a_declared_function_sees_the_key_and_nothing_else():
    seen = []

    @aggregability(key=lambda receiver: receiver["x"])
    def g(sender, receiver):
        seen.append((sender, receiver))

    assert g.view(Context({"ann"}, {"x": 7})) == 7
    g("sender", 7)
    assert seen == [("sender", 7)]
