"""Odd messages at each machine by itself: what a field may hold, and what a message needs."""

from __future__ import annotations

from typing import Any

import pytest

from mudkit.events import Ports, Received, Record, Send
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim.device import ClientMachine, PlainClientMachine
from mudkit.systems.sublim.messages import FROM_CLIENT, FROM_POINT, TO_CLIENT, Have, Identify
from mudkit.systems.sublim.servers.access_point import AccessPointMachine
from mudkit.systems.sublim.servers.plain_access_point import PlainAccessPointMachine
from mudkit.systems.sublim.servers.publish_server import PublishServerMachine
from mudkit.systems.sublim.sites import Site

SITES = [Site("ap/sublim", None, 100.0, True), Site("plain/sublim", None, 100.0, False)]


def ports(address: str = "ap/sublim") -> Ports:
    return Ports(MemoryStore(), lambda n: bytes(n), address)


MACHINES = [
    (lambda: PublishServerMachine(ports("server"), 0, SITES), "ap/sublim"),
    (lambda: AccessPointMachine(ports(), "server", {}, SITES), "server"),
    (lambda: AccessPointMachine(ports(), "server", {}, SITES), "ap/sublim"),
    (lambda: AccessPointMachine(ports(), "server", {}, SITES), "ann/sublim"),
    (lambda: PlainAccessPointMachine(ports(), "server"), "server"),
    (lambda: PlainAccessPointMachine(ports(), "server"), "ann/sublim"),
    (lambda: ClientMachine(ports("ann"), "ann", SITES, 1, 0.1), "ap/sublim"),
    (lambda: PlainClientMachine(ports("ann"), "ann", SITES, "TRUE"), "plain/sublim"),
]
ODD: list[Any] = [
    {"kind": "join", "x": 1} | {"kind": 3}, {}, None, 7, "join", ["join"], {"kind": ["join"]}, {"kind": "messages"},
    {"kind": "attach"}, {"kind": "deliver", "number": 1}, {"kind": "replay", "from": "1"}, {"kind": "hello", "subscriber": 1},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("machine", range(len(MACHINES)))
def test_a_machine_by_itself_drops_what_is_odd(machine, odd):
    make, source = MACHINES[machine]
    [effect] = make().handle(0, Received(source, odd))
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
def test_what_an_attachment_may_hold(change):
    assert FROM_CLIENT.decode(ATTACH)
    machine = AccessPointMachine(ports(), "server", {}, SITES)
    machine.handle(0, Received("server", MESSAGES))
    [effect] = machine.handle(0, Received("ann/sublim", {**ATTACH, **change}, "ann"))
    assert effect.row["incident"] == "dropped"


def test_a_delivery_has_a_body_or_a_problem():
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


def entry(seq: int) -> dict[str, Any]:
    """Return an entry of a subscriber's queue."""
    return {"number": seq, "item": f"m{seq}", "body": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"policy": {"rules": 5}},
        {"out": [entry(1), entry(1)], "record": {**RECORD, "next": 3, "last": 1}},
        {"out": [entry(2), entry(1)], "record": {**RECORD, "next": 3, "last": 2}},
        {"out": [entry(1), entry(3)], "record": {**RECORD, "next": 4, "last": 3}},
        {"out": [entry(1)], "record": {**RECORD, "next": 4, "last": 3}},
    ],
    ids=["policy", "number twice", "wrong order", "gap", "end missing"],
)
def test_a_transferred_state_that_cannot_be_served_is_dropped(change):
    assert FROM_POINT.decode({**PARCEL, **change})
    machine = AccessPointMachine(ports("other"), "server", {}, SITES)
    [effect] = machine.handle(0, Received("ap/sublim", {**PARCEL, **change}))
    assert effect.row["incident"] == "dropped"


@pytest.mark.parametrize("incarnation", ["0123ABCD", "0123abc", "0123abcd\n", "ghijklmn"])
def test_a_transferred_state_has_a_readable_incarnation(incarnation):
    assert FROM_POINT.decode({**PARCEL, "record": {**RECORD, "incarnation": ""}})
    assert not FROM_POINT.decode({**PARCEL, "record": {**RECORD, "incarnation": incarnation}})


@pytest.mark.parametrize("lacking", ["address", "incarnation"])
def test_the_publish_server_is_told_only_of_subscribers_that_it_can_find(lacking):
    """The publish server refuses an acknowledgement with an empty address or incarnation."""
    for record, is_told in ((RECORD, True), ({**RECORD, lacking: ""}, False)):
        machine = AccessPointMachine(ports("other"), "server", {}, SITES)
        machine.handle(0, Received("server", MESSAGES))
        effects = list(machine.handle(0, Received("ap/sublim", {**PARCEL, "record": record})))
        effects += machine.handle(0, Received("server", MESSAGES))
        told = [each.message for each in effects if isinstance(each, Send) and each.to == "server"]
        assert any(isinstance(message, Have) and message.moved for message in told) == is_told


def test_each_address_is_told_once_before_the_next_message():
    """Naming all subscribers at each attachment makes the work of an opening quadratic."""
    machine = AccessPointMachine(ports("other"), "server", {}, SITES)
    messages = {"kind": "messages", "last": 0, "first": 1, "messages": []}
    effects = list(machine.handle(0, Received("server", messages)))
    names = [f"phone {number}" for number in range(9)]
    for name in names:
        parcel = {**PARCEL, "subscriber": name, "record": {**RECORD, "address": f"{name}/sublim"}}
        effects += machine.handle(0, Received("ap/sublim", parcel))
    told = [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, Have)]
    assert [list(have.moved) for have in told if have.moved] == [[name] for name in names]
    effects = machine.handle(0, Received("server", messages))  # none of these is noted yet
    [have] = [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, Have)]
    assert list(have.moved) == names


def test_a_subscriber_that_has_left_causes_no_question_to_others():
    """Each answer would cause two questions if two subscribers had one address."""
    machine = AccessPointMachine(ports("other"), "server", {}, SITES)
    where = {"address": "ann/sublim", "incarnation": "0123abcd"}
    messages = {**MESSAGES, "served": {"ann": where, "bob": where}}
    asked = [each for each in machine.handle(0, Received("server", messages)) if isinstance(each, Send)]
    assert sum(isinstance(each.message, Identify) for each in asked) == 2
    left = {"kind": "left", "subscriber": "ann", "incarnation": "0123abcd", "epoch": 3}
    for _ in range(2):
        effects = machine.handle(0, Received("ann/sublim", left, "ann"))
        assert not [each for each in effects if isinstance(each, Send) and isinstance(each.message, Identify)]


def test_a_plain_predicate_that_fails_ends_its_own_wish_only():
    machine = PlainAccessPointMachine(ports(), "server")
    for name, text in (("eve", "lookup('t', message.n, 'x')"), ("ann", "message.n > 0")):
        machine.handle(0, Received(f"{name}/x", {"kind": "hello", "subscriber": name, "filter": text}))
    published = [{"number": 1, "item": "m", "created_us": 0, "at_s": 0.0, "body": {"n": 1}}]
    effects = machine.handle(0, Received("server", {**MESSAGES, "last": 1, "messages": published}))
    assert [each.to for each in effects if isinstance(each, Send)] == ["ann/x", "server"]
    rows = [each.row for each in effects if isinstance(each, Record)]
    assert [row["incident"] for row in rows if "incident" in row] == ["failed"]
