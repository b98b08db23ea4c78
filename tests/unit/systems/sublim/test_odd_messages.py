"""Odd messages at each machine by itself: what a field may hold, and what a message needs."""

from __future__ import annotations

from typing import Any

import pytest

from mudkit.events import Ports, Received
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim.device import ClientMachine, PlainClientMachine
from mudkit.systems.sublim.messages import FROM_CLIENT, FROM_POINT, TO_CLIENT
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
    "kind": "attach",
    "subscriber": "ann",
    "incarnation": "0123abcd",
    "epoch": 1,
    "from": "ap/sublim",
    "fresh": True,
    "report": 1,
    "automatic": {"battery": 50.0},
}


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
    machine.handle(0, Received("server", {"kind": "messages", "last": 0, "first": 1, "messages": []}))
    [effect] = machine.handle(0, Received("ann/sublim", {**ATTACH, **change}, "ann"))
    assert effect.row["incident"] == "dropped"


def test_a_delivery_has_a_body_or_a_problem():
    deliver = {"kind": "deliver", "subscriber": "ann", "first": 1, "number": 1, "item": "m"}
    assert TO_CLIENT.decode({**deliver, "body": {}})
    assert TO_CLIENT.decode({**deliver, "problem": "no"})
    assert not TO_CLIENT.decode(deliver)
    assert not TO_CLIENT.decode({**deliver, "body": {}, "problem": "no"})


def test_a_parcel_whose_policy_cannot_be_read_is_odd():
    record = {
        "incarnation": "0123abcd", "epoch": 1, "address": "ann/sublim", "report": 1, "automatic": {}, "variables": {},
        "next": 1, "last": 0, "policy": 1, "stopped": 0, "skipped": 0,
    }  # fmt: skip
    state = {
        "kind": "parcel",
        "subscriber": "ann",
        "epoch": 2,
        "record": record,
        "policy": {"rules": 5},
        "out": [],
    }
    assert FROM_POINT.decode(state)
    machine = AccessPointMachine(ports("other"), "server", {}, SITES)
    [effect] = machine.handle(0, Received("ap/sublim", state))
    assert effect.row["incident"] == "dropped"


def test_a_plain_predicate_that_fails_ends_its_own_wish_only():
    machine = PlainAccessPointMachine(ports(), "server")
    machine.handle(
        0, Received("eve/x", {"kind": "hello", "subscriber": "eve", "filter": "lookup('t', message.n, 'x')"})
    )
    machine.handle(0, Received("ann/x", {"kind": "hello", "subscriber": "ann", "filter": "message.n > 0"}))
    published = [{"number": 1, "item": "m", "created_us": 0, "at_s": 0.0, "body": {"n": 1}}]
    effects = machine.handle(
        0, Received("server", {"kind": "messages", "last": 1, "first": 1, "messages": published})
    )
    assert [each.to for each in effects if hasattr(each, "to")] == ["ann/x", "server"]
    assert [each.row["incident"] for each in effects if hasattr(each, "row") and "incident" in each.row] == [
        "failed"
    ]
