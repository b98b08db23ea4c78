"""Policy generator: shipping, retransmission, and versions."""

from __future__ import annotations

import pytest
from mud_machines import sent

from mudkit.events import Call, LinkUp, Ports, Received, TimerFired
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud import Artefact
from mudkit.systems.mud.operations import Ship
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
    return start_generator(store)


def start_generator(store):
    generator = Generator(Ports(store, bytes, "mud-policies/mud"), [SERVER], "naming", [], None)
    generator.handle(0, LinkUp("mud-policies", "server"))
    return generator


def ship(generator, version, now_us=0, to=None):
    done, *effects = generator.handle(now_us, Call(version, Ship("news", policy(version), to)))
    return done, [message for _, message in sent(effects) if message["kind"] == "stream"]


def fire_retransmit_timer(generator, now_us=LATER_US):
    return [message for _, message in sent(generator.handle(now_us, TimerFired(f"again {SERVER}")))]


def test_policies_are_retransmitted_until_acknowledged(generator):
    done, (message,) = ship(generator, 1)
    assert done.error is None
    assert fire_retransmit_timer(generator, 4_999_999) == []
    assert fire_retransmit_timer(generator) == [message]
    acknowledgement = {"kind": "confirmed", "stream": message["stream"], "number": message["number"]}
    generator.handle(LATER_US, Received(SERVER, acknowledgement))
    assert fire_retransmit_timer(generator, 10 * LATER_US) == []


def test_acknowledgement_of_another_server_or_stream_is_ignored(generator):
    _, (message,) = ship(generator, 1)
    acknowledgement = {"kind": "confirmed", "stream": message["stream"], "number": message["number"]}
    generator.handle(LATER_US, Received("elsewhere/mud", acknowledgement))
    generator.handle(LATER_US, Received(SERVER, {**acknowledgement, "stream": "of another life"}))
    assert fire_retransmit_timer(generator) == [message]


def test_only_a_higher_version_is_shipped(generator):
    assert ship(generator, 3)[0].error is None
    for version in (3, 2):
        done, messages = ship(generator, version)
        assert "shipped already" in str(done.error)
        assert messages == []
    assert len(ship(generator, 4)[1]) == 1


def test_version_can_be_shipped_to_more_clients_until_shipped_to_all(generator, store):
    assert ship(generator, 1, to=["ann"])[0].error is None
    _, (message,) = ship(generator, 1, to=["bob", "ann"])
    assert message["body"]["to"] == ["ann", "bob"]
    other = generator.handle(0, Call(9, Ship("news", policy(1, 60.0), ["cem"])))
    assert "shipped already" in str(other[0].error)
    assert "shipped already" in str(ship(generator, 1)[0].error)
    assert ship(generator, 2)[0].error is None
    assert "shipped already" in str(ship(generator, 2, to=["ann"])[0].error)


def test_all_policies_are_sent_after_a_restart_of_server_or_generator(generator, store):
    ship(generator, 1)
    first, message = (item for _, item in sent(generator.handle(1, Received(SERVER, {"kind": "follow"}))))
    assert first == {"kind": "followed"}
    assert message["body"]["document"]["version"] == 1
    restarted = Generator(Ports(store, bytes, "mud-policies/mud"), [SERVER], "naming", [], None)
    _, answer = (item for _, item in sent(restarted.handle(2, LinkUp("mud-policies", "server"))))
    assert answer["body"] == message["body"]
    assert answer["stream"] != message["stream"]
    assert sent(restarted.handle(3, LinkUp("mud-policies", "server"))) == []


def test_policy_for_all_replaces_those_before_and_one_for_some_does_not(generator):
    def followed():
        _, *items = (item for _, item in sent(generator.handle(1, Received(SERVER, {"kind": "follow"}))))
        return [item["body"]["document"]["version"] for item in items]

    ship(generator, 1)
    ship(generator, 2, to=["ann"])
    assert followed() == [1, 2]
    ship(generator, 3)
    assert followed() == [3]
