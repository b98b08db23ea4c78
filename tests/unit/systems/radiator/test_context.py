"""Contexts, current contexts, and how they are sent."""

from __future__ import annotations

import pytest

from mudkit.errors import ContextProblem, ParameterError
from mudkit.systems.radiator import (
    Aggregability,
    ClientLists,
    Context,
    Message,
    Volume,
    aggregability,
    engine_for_many,
    pack,
    unpack,
)
from mudkit.systems.radiator.engines.contexts import Contexts
from mudkit.systems.radiator.servers.server_link import ServerLink


@pytest.mark.parametrize(
    "given",
    [
        {"people": "ann"},
        {"people": [1]},
        {"people": 3},
        {"attributes": [1]},
        {"span_us": (5, 1)},
        {"span_us": 3},
        {"span_us": (0.5, 1)},
    ],
)
def test_what_is_no_context(given):
    with pytest.raises(ParameterError, match=next(iter(given))):
        Context(**given)


def test_a_missing_attribute_says_what_there_is():
    with pytest.raises(ContextProblem, match=r"'loc'[\s\S]*ann[\s\S]*'speed'"):
        Context({"ann"}, {"speed": 1})["loc"]
    assert Context({"ann"}).get("loc", 3) == 3


def test_it_comes_back_from_the_network():
    context = Context({"b", "a"}, {"loc": [1.5, 2.5], "text": "á"}, (1, 2))
    for compress in (False, True):
        assert Context.read(unpack(pack(context.describe(), compress))) == context
    assert Context.read(unpack(pack(Context().describe(), True))) == Context()
    assert pack(context.describe(), True) == pack(context.describe(), True), "no time of day in it"


def test_the_current_context_is_the_last_message_over_the_registration():
    contexts = Contexts(100)
    assert contexts.register("ann", {"p2p_enabled": True, "x": 1})
    assert contexts["ann"] == Context({"ann"}, {"p2p_enabled": True, "x": 1})
    contexts.propagated("ann", Context({"ann"}, {"x": 2}))
    assert contexts["ann"].attributes == {"p2p_enabled": True, "x": 2}
    assert not contexts.register("ann", {"y": 5})
    assert contexts["ann"].attributes == {"y": 5, "x": 2}
    sent = Message(0, "ann", 0, Context({"ann"}, {"x": 0}))
    contexts.leave(0, "ann")
    assert contexts.of_sender(sent)["x"] == 2, "while something of it may wait"
    contexts.register("bob", {})
    contexts.leave(101, "bob")
    assert contexts.of_sender(sent)["x"] == 0, "long gone"


def test_a_declared_function_sees_the_key_and_nothing_else():
    seen = []

    @aggregability(key=lambda receiver: receiver["x"])
    def g(sender, receiver):
        seen.append((sender, receiver))

    assert g.view(Context({"ann"}, {"x": 7})) == 7
    g("sender", 7)
    assert seen == [("sender", 7)]


def test_the_link_takes_its_time_in_order():
    link = ServerLink(8.0)  # a byte a millisecond
    (timer,) = link.send(0, "a", b"x" * 100)
    assert timer.delay_us == 100_000
    assert link.send(50_000, "b", b"x" * 10) == ()
    assert link.free_us == 110_000
    sent, timer = link.fired(100_000)
    assert (sent.to, timer.delay_us) == ("a", 10_000)
    (sent,) = link.fired(110_000)
    assert sent.to == "b"
    assert (link.messages_sent, link.bytes_sent) == (2, 110)


def test_who_has_left_begins_with_what_it_registers_with():
    contexts = Contexts(100)
    contexts.register("ann", {"x": 1})
    contexts.propagated("ann", Context({"ann"}, {"x": 2}))
    contexts.leave(0, "ann")
    assert not contexts.register("ann", {"x": 9}), "something of it may wait"
    assert contexts["ann"].attributes == {"x": 9}
    contexts.register("ann", {"y": 1})
    assert contexts["ann"].attributes == {"y": 1}


@pytest.mark.parametrize("with_key", [False, True])
@pytest.mark.parametrize("make", [ClientLists, engine_for_many])
def test_in_all_engines(make, with_key):
    def g(sender, receiver):
        there = receiver if with_key else receiver["x"]
        return Volume(1 if (sender["x"], there) == (0, 9) else 5)

    engine = make(Aggregability(g, (lambda receiver: receiver["x"]) if with_key else None), 1000)
    engine.register(0, "ann", {"x": 0})
    engine.register(0, "bob", {"x": 9})
    assert not engine.take(1, Message(1, "bob", 1, Context({"bob"}, {"x": 2})))
    assert not engine.take(1, Message(2, "ann", 1, Context({"ann"}, {"x": 0})))
    engine.unregister(2, "bob")
    engine.register(3, "bob", {"x": 9})
    (entry,) = engine.take(4, Message(3, "ann", 4, Context({"ann"}, {"x": 0})))
    assert entry.recipients == ["bob"]
    assert [message.number for message in entry.batch] == [3], "what waited for it when it left is gone"
