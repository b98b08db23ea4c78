"""Servers that get a message before their start: what a start begins, begins with whatever comes first.

A machine that has restarted may be sent something before it hears that it has a network.
"""

from __future__ import annotations

import pytest
from mud_machines import build_request, handle_event, ports, sent

from mudkit.events import Call, LinkUp
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud import Artefact
from mudkit.systems.mud.operations import Ship
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.gateway import Gateway
from mudkit.systems.mud.servers.generator import Generator
from mudkit.systems.mud.servers.leases import PROMISE_US
from mudkit.systems.mud.servers.naming import Naming
from mudkit.systems.mud.servers.notifications import NotificationServer
from mudkit.systems.mud.servers.replica import Replica
from mudkit.systems.mud.servers.store_server import StoreServer
from mudkit.tokens import Authority

START_US = 60_000_000
"""Time of the first message."""
LATER_US = START_US + 1
OWNER = {"app": "news", "user": None, "device": None, "expires_s": 1e9}


def start(machine, now_us=LATER_US):
    """Start a machine, and return what it sends."""
    return sent(machine.handle(now_us, LinkUp("here", "server")))


def kinds_to(messages):
    """Return receivers and kinds of messages."""
    return [(to, message["kind"]) for to, message in messages]


# -- policy generator


def create_generator(store):
    return Generator(ports("policies", store=store), ["s", "other"], ["p"], "naming", [], None)


def ship(machine, version=1, now_us=START_US):
    """Ship a policy; return the streams on which it is sent, by server."""
    document = dict(Artefact.create("write", version, [], [[0]], [0.0]).document)
    messages = sent(machine.handle(now_us, Call(version, Ship("news", document, None))))
    return {to: message["stream"] for to, message in messages if message["kind"] == "stream"}


def test_streams_of_a_generator_have_higher_numbers_than_before_its_backup():
    """The notification servers take items of a stream of a lower number for late copies."""
    machine = create_generator(MemoryStore())
    handle_event(machine, "follow", "s", START_US)
    assert kinds_to(start(machine)) == [("other", "followed")]
    numbers = [int(stream.removeprefix("policies ")) for stream in ship(machine).values()]
    assert min(numbers) > START_US


def test_policy_that_is_shipped_before_the_start_of_a_generator_is_sent_at_its_start():
    machine = create_generator(MemoryStore())
    assert ship(machine) == {}
    assert [to for to, kind in kinds_to(start(machine)) if kind == "stream"] == ["s", "other"]


# -- notification server


def create_server(store):
    return NotificationServer(
        ports("s", store=store), Authority(bytes(32)), 0, ["s"], ["p"], "policies", "naming", 10, 100.0
    )


def greet(machine, now_us, session=None, seq=1):
    """Send a hello; return the name of the session that is welcomed."""
    hello = {"endpoint": "jane/news", "seq": seq, "session": session}
    messages = handle_event(machine, "hello", "jane", now_us, **hello)
    return next(message["session"] for _, message in messages if message["kind"] == "welcome")


def test_sessions_of_two_starts_of_a_notification_server_have_different_names():
    """A device whose session continues registers nothing anew, and the second start has none of its reads."""
    store = MemoryStore()
    first = greet(create_server(store), START_US)
    store.commit()
    assert greet(create_server(store), LATER_US, first, seq=2) != first


def test_notification_server_asks_for_the_policies_at_its_start():
    machine = create_server(MemoryStore())
    greet(machine, START_US)
    assert kinds_to(start(machine)) == [("policies", "follow")]
    assert start(machine) == []


def test_notification_server_asks_its_devices_for_a_hello_at_its_start():
    """A message of another device does not take the place of the start."""
    store = MemoryStore()
    greet(create_server(store), START_US)
    machine = create_server(store)
    handle_event(machine, "hello", "bob", LATER_US, endpoint="bob/news", seq=1)
    assert kinds_to(start(machine)) == [("policies", "follow"), ("jane", "identify")]


# -- back end and its stores


def create_back_end(own_ports):
    return BackEnd(own_ports, ["g"], ["p"], ["r"], ["s"], "naming", keep_deleted_us=1)


def test_back_end_continues_its_log_with_another_incarnation_for_a_message_before_its_start():
    store = MemoryStore()
    machine = create_back_end(ports("store", store=store))
    handle_event(machine, "create", "g", id="1", claims=OWNER)
    machine = create_back_end(ports("store", store=store))
    ((_, state),) = handle_event(machine, "follow", "g", START_US, turn="t")
    assert len(state["lineage"]) == 1
    assert {("p", "log"), ("r", "log")} <= set(kinds_to(start(machine)))


def test_store_does_not_act_as_the_master_before_its_former_promise_has_ended():
    """A store that was restored from a backup may have given a promise that the backup does not have."""
    machine = StoreServer(ports("b"), ["a", "b"], "naming", ["g"], create_back_end)
    ((_, alive),) = handle_event(machine, "store?", "naming", START_US, sent_us=START_US)
    elected = {
        "epoch": START_US, "term": START_US, "former_term": 0, "master": "b", "members": ["b"],
        "incarnation": alive["incarnation"],
    }  # fmt: skip
    handle_event(machine, "mastership", "naming", START_US, **elected)
    started = start(machine)
    handle_event(machine, "follow", "g", LATER_US, turn="t")
    assert kinds_to(started) == []
    assert machine._acting.leases.from_us >= START_US + PROMISE_US


# -- gateway, replica, naming machine


def test_gateway_answers_a_request_that_comes_before_its_start():
    machine = Gateway(ports("g"), Authority(bytes(32)), ["store"], ["p"], ["r"], ["s"], "naming", "policies")
    ask = build_request(op="read")
    assert kinds_to(handle_event(machine, source="jane", now_us=START_US, **ask)) == [("store", "follow")]
    start(machine)
    state = {"turn": "", "lsn": 7, "tables": [], "rows": []}
    *_, (_, question) = handle_event(machine, "state", "store", LATER_US, **state)
    answer = {"after": 7, "through": 7, "nonce": question["nonce"], "entries": []}
    ((to, refused),) = handle_event(machine, "log", "store", LATER_US, **answer)
    assert (to, refused["kind"]) == ("jane", "refused")


@pytest.mark.parametrize("is_read_first", [False, True])
def test_replica_requests_the_state_that_it_has_not(is_read_first):
    machine = Replica(ports("r"), ["store"], ["p"], "naming", 0)
    if is_read_first:  # of an entry of the log that it has not
        passed = handle_event(machine, "read", "p", START_US, least=7)
        assert [to for to, _ in passed] == ["store"]
    assert kinds_to(start(machine)) == [("store", "follow")]


def test_naming_machine_probes_a_server_that_is_suspected_before_its_start():
    machine = Naming(ports("naming"), ["s", "s2"], ["p"], ["g"], ["r"], ["store"], ["policies"])
    suspected = handle_event(machine, "suspect", "p", START_US, address="s", epoch=0)
    assert kinds_to(suspected) == [("s", "probe")]
    assert start(machine) == []
