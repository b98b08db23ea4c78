"""Refusal of invalid messages by the machines: types of fields, and required fields."""

from __future__ import annotations

from typing import Any

import pytest

from mudkit.events import Ports, Received, Record, Send
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim.device import ClientMachine, PlainClientMachine
from mudkit.systems.sublim.messages import FROM_CLIENT, FROM_POINT, TO_CLIENT, Deliver, Identify, MessagesAck
from mudkit.systems.sublim.servers.access_point import AccessPointMachine
from mudkit.systems.sublim.servers.plain_access_point import PlainAccessPointMachine
from mudkit.systems.sublim.servers.publish_server import PublishServerMachine
from mudkit.systems.sublim.sites import Site

SITES = [Site("ap/sublim", None, 100.0, True), Site("plain/sublim", None, 100.0, False)]


def create_ports(address: str = "ap/sublim") -> Ports:
    return Ports(MemoryStore(), lambda n: bytes(n), address)


MACHINES = [
    (lambda: PublishServerMachine(create_ports("server"), 0, SITES), "ap/sublim"),
    (lambda: AccessPointMachine(create_ports(), "server", {}, SITES), "server"),
    (lambda: AccessPointMachine(create_ports(), "server", {}, SITES), "ap/sublim"),
    (lambda: AccessPointMachine(create_ports(), "server", {}, SITES), "ann/sublim"),
    (lambda: PlainAccessPointMachine(create_ports(), "server"), "server"),
    (lambda: PlainAccessPointMachine(create_ports(), "server"), "ann/sublim"),
    (lambda: ClientMachine(create_ports("ann"), "ann", SITES, 1, 0.1), "ap/sublim"),
    (lambda: PlainClientMachine(create_ports("ann"), "ann", SITES, "TRUE"), "plain/sublim"),
]
INVALID_MESSAGES: list[Any] = [
    {"kind": "join", "x": 1} | {"kind": 3}, {}, None, 7, "join", ["join"], {"kind": ["join"]}, {"kind": "messages"},
    {"kind": "attach"}, {"kind": "deliver", "number": 1}, {"kind": "replay", "from": "1"}, {"kind": "hello", "subscriber": 1},
]  # fmt: skip


@pytest.mark.parametrize("message", INVALID_MESSAGES, ids=repr)
@pytest.mark.parametrize("machine", range(len(MACHINES)))
def test_machines_drop_invalid_messages(machine, message):
    create_machine, source = MACHINES[machine]
    [effect] = create_machine().handle(0, Received(source, message))
    assert effect.row["incident"] == "dropped"


ATTACH = {
    "kind": "attach", "subscriber": "ann", "incarnation": "0123abcd", "epoch": 1, "from": "ap/sublim", "fresh": True,
    "report": 1, "automatic": {"battery": 50.0},
}  # fmt: skip
MESSAGES = {"kind": "messages", "last": 0, "first": 1, "messages": []}


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1}, {"epoch": 1.0}, {"epoch": 1 << 63}, {"subscriber": "bob"}, {"subscriber": "ann\n"}, {"subscriber": ""},
        {"incarnation": "0123ABCD"}, {"incarnation": None}, {"from": 5}, {"fresh": 1}, {"report": None}, {"automatic": None},
        {"automatic": {"battery": "50"}}, {"automatic": {"battery": float("nan")}}, {"automatic": {"battery": float("inf")}},
        {"automatic": {"more": 5}}, {"automatic": {"battery": True}},
    ],
)  # fmt: skip
def test_attachment_with_an_invalid_field_is_dropped(change):
    assert FROM_CLIENT.decode(ATTACH)
    machine = AccessPointMachine(create_ports(), "server", {}, SITES)
    machine.handle(0, Received("server", MESSAGES))
    [effect] = machine.handle(0, Received("ann/sublim", {**ATTACH, **change}, "ann"))
    assert effect.row["incident"] == "dropped"


def test_delivery_has_a_body_or_a_problem():
    deliver = {"kind": "deliver", "subscriber": "ann", "first": 1, "number": 1, "item": "m"}
    assert TO_CLIENT.decode({**deliver, "body": {}})
    assert TO_CLIENT.decode({**deliver, "problem": "no"})
    assert not TO_CLIENT.decode(deliver)
    assert not TO_CLIENT.decode({**deliver, "body": {}, "problem": "no"})


RECORD = {
    "incarnation": "0123abcd", "epoch": 2, "address": "ann/sublim", "report": 1, "automatic": {}, "variables": {},
    "next": 1, "last": 0, "policy": 0, "stopped": 0, "skipped": 0,
}  # fmt: skip
PARCEL = {"kind": "parcel", "subscriber": "ann", "epoch": 2, "record": RECORD, "policy": None, "out": []}


def create_entry(seq: int) -> dict[str, Any]:
    """Return an entry of a subscriber's queue."""
    return {"number": seq, "item": f"m{seq}", "body": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"policy": {"rules": 5}},
        {"out": [create_entry(1), create_entry(1)], "record": {**RECORD, "next": 3, "last": 1}},
        {"out": [create_entry(2), create_entry(1)], "record": {**RECORD, "next": 3, "last": 2}},
        {"out": [create_entry(1), create_entry(3)], "record": {**RECORD, "next": 4, "last": 3}},
        {"out": [create_entry(1)], "record": {**RECORD, "next": 4, "last": 3}},
    ],
    ids=["policy", "number twice", "wrong order", "gap", "end missing"],
)
def test_invalid_transferred_state_is_dropped(change):
    assert FROM_POINT.decode({**PARCEL, **change})
    machine = AccessPointMachine(create_ports("other"), "server", {}, SITES)
    [effect] = machine.handle(0, Received("ap/sublim", {**PARCEL, **change}))
    assert effect.row["incident"] == "dropped"


@pytest.mark.parametrize("incarnation", ["0123ABCD", "0123abc", "0123abcd\n", "ghijklmn"])
def test_incarnation_of_transferred_state_is_validated(incarnation):
    assert FROM_POINT.decode({**PARCEL, "record": {**RECORD, "incarnation": ""}})
    assert not FROM_POINT.decode({**PARCEL, "record": {**RECORD, "incarnation": incarnation}})


def test_transferred_subscriber_is_announced_and_served_after_it_has_attached():
    machine = AccessPointMachine(create_ports("other"), "server", {}, SITES)
    machine.handle(0, Received("server", MESSAGES))
    messages = [
        effect.message
        for event in (
            Received("ap/sublim", {**PARCEL, "out": [create_entry(1)], "record": {**RECORD, "last": 1}}),
            Received("server", MESSAGES),
        )
        for effect in machine.handle(0, event)
        if isinstance(effect, Send)
    ]
    assert not [message for message in messages if isinstance(message, Deliver)]
    assert not [message for message in messages if isinstance(message, MessagesAck) and message.moved]
    attach = {**ATTACH, "epoch": 2, "fresh": False, "report": 2}
    effects = machine.handle(0, Received("ann/sublim", attach, "ann"))
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    assert [message for message in messages if isinstance(message, Deliver)]
    assert [message for message in messages if isinstance(message, MessagesAck) and message.moved]


def test_each_address_is_announced_once_before_the_next_message():
    """Check that attaching many subscribers is not quadratic, as it is if each attachment names all."""
    machine = AccessPointMachine(create_ports("other"), "server", {}, SITES)
    messages = {"kind": "messages", "last": 0, "first": 1, "messages": []}
    effects = list(machine.handle(0, Received("server", messages)))
    names = [f"phone {number}" for number in range(9)]
    for name in names:
        attach = {**ATTACH, "subscriber": name, "epoch": 2}
        effects += machine.handle(0, Received(f"{name}/sublim", attach, name))
        effects += machine.handle(0, Received("ap/sublim", {**PARCEL, "subscriber": name}))
    announcements = [
        effect.message
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, MessagesAck)
    ]
    assert [list(have.moved) for have in announcements if have.moved] == [[name] for name in names]
    effects = machine.handle(0, Received("server", messages))  # none has been noted yet
    [have] = [
        effect.message
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, MessagesAck)
    ]
    assert list(have.moved) == names


def test_left_subscriber_causes_no_request_to_others():
    """Check two subscribers with one address: each answer must not cause two requests."""
    machine = AccessPointMachine(create_ports("other"), "server", {}, SITES)
    whereabouts = {"address": "ann/sublim", "incarnation": "0123abcd"}
    messages = {**MESSAGES, "served": {"ann": whereabouts, "bob": whereabouts}}
    requests = [
        request for request in machine.handle(0, Received("server", messages)) if isinstance(request, Send)
    ]
    assert sum(isinstance(request.message, Identify) for request in requests) == 2
    left = {"kind": "left", "subscriber": "ann", "incarnation": "0123abcd", "epoch": 3}
    for _ in range(2):
        effects = machine.handle(0, Received("ann/sublim", left, "ann"))
        assert not [
            effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Identify)
        ]


def test_failing_plain_predicate_ends_only_its_own_subscription():
    machine = PlainAccessPointMachine(create_ports(), "server")
    for name, text in (("eve", "lookup('t', message.n, 'x')"), ("ann", "message.n > 0")):
        machine.handle(0, Received(f"{name}/x", {"kind": "hello", "subscriber": name, "filter": text}))
    published = [{"number": 1, "item": "m", "created_us": 0, "at_s": 0.0, "body": {"n": 1}}]
    effects = machine.handle(0, Received("server", {**MESSAGES, "last": 1, "messages": published}))
    assert [effect.to for effect in effects if isinstance(effect, Send)] == ["ann/x", "server"]
    rows = [effect.row for effect in effects if isinstance(effect, Record)]
    assert [row["incident"] for row in rows if "incident" in row] == ["failed"]
