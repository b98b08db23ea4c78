"""Odd and forged messages are dropped and recorded, and nothing else comes of them."""

from __future__ import annotations

from typing import Any

import pytest
from odd_messages import bombard, forge, overhear

from mudkit import Lab
from mudkit.events import Ports, Received, Record
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim import (
    AccessPoint,
    PlainSubscriber,
    Policy,
    PublishServer,
    Rule,
    Subscriber,
    policy,
)
from mudkit.systems.sublim._policy.actions import Compress, Every, Remember
from mudkit.systems.sublim.device import ClientMachine, PlainClientMachine
from mudkit.systems.sublim.messages import FROM_CLIENT, FROM_POINT, TO_CLIENT
from mudkit.systems.sublim.servers.access_point import AccessPointMachine
from mudkit.systems.sublim.servers.plain_access_point import PlainAccessPointMachine
from mudkit.systems.sublim.servers.publish_server import PublishServerMachine
from mudkit.systems.sublim.sites import Site

KINDS = {
    "join", "replay", "have", "messages", "attach", "attached", "behind", "report", "reported", "policy", "policy set",
    "deliver", "got", "left", "ask", "parcel", "parcel has come", "moved", "hello", "bye", "plain",
}  # fmt: skip
SITES = [Site("ap/sublim", None, 100.0, True), Site("plain/sublim", None, 100.0, False)]
WARD = Policy(
    "ward",
    [
        Rule("message.n > 1e6", Every(60, "message.n")),
        Rule(None, [Compress("ecg", 2), Remember({"n": "message.n"})]),
    ],
)


def wipe(installed: Any) -> None:
    installed.kill()
    installed.store = MemoryStore()
    installed.start()


def busy() -> tuple[Lab, PublishServer, dict[str, Any], Any]:
    """Give a lab in the middle of a run, and what each machine has heard in it: every kind of message but stale."""
    lab = Lab(seed=4)
    net = PublishServer(lab)
    for number in range(3):
        AccessPoint(lab, net, at=(number * 0.001, 0.0), range_m=80.0)
    AccessPoint(lab, net, at=(0.003, 0.0), range_m=80.0, stateful=False)
    with overhear(lab) as heard:
        subscribers: dict[str, Any] = {
            name: Subscriber(lab.device(name, link="wifi", at=(0.0, 0.0)), net, report_s=2)
            for name in ("ann", "bob", "cy")
        }
        subscribers["dan"] = PlainSubscriber(
            lab.device("dan", link="wifi", at=(0.0, 0.0)), net, "message.n > 0"
        )
        lab.run(seconds=10)
        subscribers["ann"].set_policy(WARD).result()
        subscribers["bob"].set_policy(policy(lambda message, state: message)).result()
        for number in range(12):
            lab.faults.messages(loss_share=0.3 if number % 2 else 0.0, repeat_share=0.1)
            for place, name in enumerate(subscribers):
                lab.devices[name].measured("loc", ((number + place) % 4 * 0.001, 0.0))
                lab.devices[name].change_context(display_px=480 if number % 2 else 960)
            net.publish({"n": number, "ecg": bytes(50)})
            lab.run(seconds=7)
        lab.faults.messages()
        lab.run(minutes=1)
        for name in ("ann", "bob"):
            lab.devices[name].measured("loc", (0.0, 0.0))
        lab.run(minutes=1)
        wipe(subscribers["ann"].installed)
        lab.devices["bob"].measured("loc", (0.001, 0.0))
        lab.run(minutes=1)
        wipe(subscribers["bob"].installed)
        lab.devices["bob"].measured("loc", (0.002, 0.0))
        net.publish({"n": 99, "ecg": bytes(50)})
        lab.run(minutes=2)
        lab.device("eve")
    return lab, net, subscribers, heard


def works(lab: Lab, net: PublishServer, subscribers: dict[str, Any]) -> None:
    """Publish: it comes to each, once, by its policy."""
    subscribers["ann"].set_policy(WARD).result(300)
    for subscriber in subscribers.values():
        subscriber.read().result()
    for number in range(1_000, 1_010):
        net.publish({"n": number, "ecg": bytes(50)}).result()
    lab.run(minutes=3)
    for name, subscriber in subscribers.items():
        read = subscriber.read().result()
        assert [each["n"] for each in read] == list(range(1_000, 1_010)), name
        assert {len(each["ecg"]) for each in read} == {25 if name == "ann" else 50}


def dropped(lab: Lab) -> int:
    return int((lab.frame("incidents")["incident"] == "dropped").sum())


def test_every_kind_of_message_is_overheard():
    _, _, _, heard = busy()
    assert {event.message["kind"] for events in heard.values() for event in events} >= KINDS


def test_odd_messages_at_every_machine_raise_nothing(scaled):
    count = scaled(10_000, 1_000)
    lab, _, _, heard = busy()
    sent = bombard(lab, heard, count, seed=1)
    assert sent == {
        "PublishServerMachine": count,
        "AccessPointMachine": 3 * count,
        "PlainAccessPointMachine": count,
        "ClientMachine": 3 * count,
        "PlainClientMachine": count,
    }
    assert dropped(lab) > 4 * count
    lab.run(minutes=1)
    assert lab.problems.empty


def test_after_odd_messages_of_a_foreign_device_the_others_go_on(scaled):
    lab, net, subscribers, heard = busy()
    foreign = {
        process: [Received("eve/sublim", event.message, "eve") for event in events]
        for process, events in heard.items()
    }
    bombard(lab, foreign, scaled(10_000, 1_000), seed=2)
    lab.run(minutes=1)
    works(lab, net, subscribers)
    assert lab.problems.empty


def test_what_was_overheard_is_nothing_from_another_host():
    lab, net, subscribers, heard = busy()
    before = [process.store.items() for process in heard]
    tried = forge(lab, heard)
    assert min(tried.values()) > 10
    assert len(tried) == 5
    assert [process.store.items() for process in heard] == before
    works(lab, net, subscribers)


def test_what_was_overheard_is_nothing_from_another_machine_of_a_server():
    """Own servers are told by address, not by host."""
    lab, _, _, heard = busy()
    for process, events in heard.items():
        for event in events:
            if event.sender in ("ann", "bob", "cy", "dan"):
                continue
            [effect] = process.machine.handle(
                lab.world.now_us, Received(f"{event.sender}/x", event.message, event.host)
            )
            assert type(effect) is Record
            assert not process.store.is_dirty


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
