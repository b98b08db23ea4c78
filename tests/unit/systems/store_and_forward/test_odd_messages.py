"""Malformed and forged messages at the relay and the baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from odd_messages import bombard, forge, record_received

from mudkit import Lab
from mudkit.events import Ports, Received
from mudkit.fleet.store import MemoryStore
from mudkit.systems.store_and_forward import DirectClient, DirectMachine, RelayMachine
from mudkit.systems.store_and_forward.messages import FROM_CLIENT, FROM_RELAY

MALFORMED: list[Any] = [
    {"kind": "send"}, {"kind": "hello", "device": ["x"], "busy": 0}, {"kind": "hello", "device": "e"}, {"kind": 3}, {},
    None, 7, "send", ["send"], {"kind": ["send"]},
]  # fmt: skip


@pytest.mark.parametrize("message", MALFORMED)
def test_machines_drop_malformed_messages(message: Any) -> None:
    for create_machine, source in (
        (RelayMachine, "e/sf"),
        (lambda ports: DirectMachine(ports, "a"), "e/direct"),
    ):
        machine = create_machine(Ports(MemoryStore(), None, "relay/sf"))
        [effect] = machine.handle(0, Received(source, message))
        assert effect.row["incident"] == "dropped"


NAMED = {"number": 1, "incarnation": "0123abcd", "key": "k", "from": "e", "to": "bob"}
SEND = {"kind": "send", "text": "x", **NAMED}
HELLO = {"kind": "hello", "number": 1, "incarnation": "0123abcd", "device": "e", "busy": False, "first": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"number": 0}, {"number": -1}, {"number": 1.0}, {"number": True}, {"number": 1 << 63}, {"incarnation": "0123ABCD"},
        {"incarnation": "0123abcd\n"}, {"incarnation": ""}, {"to": "bob\nann"}, {"to": ""}, {"to": "b" * 513}, {"to": None},
        {"key": 5}, {"key": "k\x00"}, {"from": "ann"}, {"from": "e\n"}, {"text": b"x"}, {"text": None},
    ],
)  # fmt: skip
def test_messages_with_unusable_fields_are_dropped(change: dict[str, Any]) -> None:
    assert FROM_CLIENT.decode(SEND)
    machine = RelayMachine(Ports(MemoryStore(), None, "relay/sf"))
    [effect] = machine.handle(0, Received("e/sf", {**SEND, **change}, "e"))
    assert effect.row["incident"] == "dropped"


def test_unknown_fields_are_not_stored() -> None:
    store = MemoryStore()
    machine = RelayMachine(Ports(store, None, "relay/sf"))
    machine.handle(0, Received("e/sf", {**HELLO, "more": float("nan")}, "e"))
    machine.handle(0, Received("e/sf", {**SEND, "more": float("nan"), "after": "x"}, "e"))
    [(_, stored)] = store.items("for bob\n")
    assert FROM_RELAY.decode(stored) is not None
    assert "more" not in stored


def test_device_cannot_acknowledge_or_move_for_another() -> None:
    store = MemoryStore()
    machine = RelayMachine(Ports(store, None, "relay/sf"))
    for message, host in ((HELLO, "e"), ({**HELLO, "device": "bob"}, "bob"), (SEND, "e")):
        machine.handle(0, Received(f"{host}/sf", message, host))
    stored = store.items()
    acknowledged = {"kind": "delivered", "receiver": "0123abcd", **NAMED}
    moved = {**HELLO, "device": "bob", "number": 2}
    for message in (acknowledged, moved, {**moved, "busy": True}):
        [effect] = machine.handle(0, Received("eve/sf", message, "eve"))
        assert effect.row["incident"] == "dropped"
    assert store.items() == stored
    machine.handle(0, Received("bob/sf", acknowledged, "bob"))
    assert store.items("for ") == []


def test_baseline_drops_forged_and_malformed_messages(scaled: Callable[[int, int], int]) -> None:
    count = scaled(10_000, 1_000)
    lab = Lab(seed=1)
    for name in ("ann", "bob"):
        lab.device(name)
    with record_received(lab) as received:
        ann, _ = (DirectClient(device) for device in lab.devices.values())
        for number in range(5):
            ann.send("bob", "x" * 9, f"item {number}")
            lab.run(seconds=5)
    lab.device("eve")
    forge(lab, received)
    bombard(lab, received, count, seed=3)
    lab.run(minutes=1)
    assert lab.problems.empty
    assert (lab.frame("incidents")["incident"] == "dropped").sum() > count / 2


def test_baseline_names_messages_by_sender_and_number() -> None:
    """See ``DirectClient.send(item=)``."""
    lab = Lab(seed=1)
    ann, _ = (DirectClient(lab.device(name)) for name in ("ann", "bob"))
    for text in ("one", "two"):
        ann.send("bob", text)
    lab.run(seconds=5)
    assert lab.deliveries()["item"].tolist() == ["ann 1", "ann 2"]


def test_message_of_an_unknown_item_is_reported_and_hides_no_delivery() -> None:
    lab = Lab(seed=1)
    for name in ("ann", "bob", "eve"):
        lab.device(name)
    with record_received(lab) as received:
        ann, *_ = (DirectClient(device) for device in lab.devices.values())
        ann.send("bob", "x" * 9, "item")
        lab.run(seconds=5)
    [(process, [event])] = received.items()
    lab.world._handle(process, Received("eve/direct", {**event.message, "key": "of nobody"}, "eve"))
    assert list(lab.deliveries()["item"]) == ["item"]
    [incident] = lab.frame("incidents").to_dict("records")
    assert (incident["device"], incident["incident"]) == ("bob", "dropped")
    assert "of nobody" in incident["detail"]
