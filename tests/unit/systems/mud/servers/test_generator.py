"""The policy generator ships to every server until that has it."""

from __future__ import annotations

import pytest
from mud_machines import sent

from mudkit.events import Call, LinkUp, Ports, Received, TimerFired
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud import Artefact
from mudkit.systems.mud.messages import Ship
from mudkit.systems.mud.servers.generator import Generator

SERVER = "mud-notifications-1/mud"
LATER_US = 60_000_000


def policy(version, action=0.0):
    return dict(Artefact.create("write", version, [], [[0]], [action]).document)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def generator(store):
    return begun(store)


def begun(store):
    generator = Generator(Ports(store, bytes, "mud-policies/mud"), [SERVER])
    generator.handle(0, LinkUp("mud-policies", "server"))
    return generator


def ship(generator, version, now_us=0, to=None):
    done, *more = generator.handle(now_us, Call(version, Ship("news", policy(version), to)))
    return done, [message for _, message in sent(more) if message["kind"] == "stream"]


def again(generator, now_us=LATER_US):
    return [message for _, message in sent(generator.handle(now_us, TimerFired(f"again {SERVER}")))]


def test_what_nobody_confirmed_is_told_again_and_what_somebody_has_is_not(generator):
    done, (message,) = ship(generator, 1)
    assert done.error is None
    assert again(generator, 4_999_999) == []
    assert again(generator) == [message]
    said = {"kind": "confirmed", "stream": message["stream"], "number": message["number"]}
    generator.handle(LATER_US, Received(SERVER, said))
    assert again(generator, 10 * LATER_US) == []


def test_a_word_of_a_server_nobody_knows_or_of_another_stream_confirms_nothing(generator):
    _, (message,) = ship(generator, 1)
    said = {"kind": "confirmed", "stream": message["stream"], "number": message["number"]}
    generator.handle(LATER_US, Received("elsewhere/mud", said))
    generator.handle(LATER_US, Received(SERVER, {**said, "stream": "of another life"}))
    assert again(generator) == [message]


def test_only_a_higher_version_is_shipped(generator):
    assert ship(generator, 3)[0].error is None
    for version in (3, 2):
        done, messages = ship(generator, version)
        assert "shipped already" in str(done.error)
        assert messages == []
    assert len(ship(generator, 4)[1]) == 1


def test_a_version_may_be_shipped_to_more_clients_until_all_have_it(generator, store):
    assert ship(generator, 1, to=["ann"])[0].error is None
    _, (message,) = ship(generator, 1, to=["bob", "ann"])
    assert message["body"]["to"] == ["ann", "bob"]
    other = generator.handle(0, Call(9, Ship("news", policy(1, 60.0), ["cem"])))
    assert "shipped already" in str(other[0].error)
    assert "shipped already" in str(ship(generator, 1)[0].error)
    assert ship(generator, 2)[0].error is None
    assert "shipped already" in str(ship(generator, 2, to=["ann"])[0].error)


def test_a_server_that_begins_and_a_life_that_begins_tell_all_that_was_shipped(generator, store):
    ship(generator, 1)
    first, message = (each for _, each in sent(generator.handle(1, Received(SERVER, {"kind": "follow"}))))
    assert first == {"kind": "followed"}
    assert message["body"]["document"]["version"] == 1
    other = Generator(Ports(store, bytes, "mud-policies/mud"), [SERVER])
    _, answer = (each for _, each in sent(other.handle(2, LinkUp("mud-policies", "server"))))
    assert answer["body"] == message["body"]
    assert answer["stream"] != message["stream"]
    assert sent(other.handle(3, LinkUp("mud-policies", "server"))) == []
