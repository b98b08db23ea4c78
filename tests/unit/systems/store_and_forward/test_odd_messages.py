"""Odd messages at the relay and the baseline: what a field may hold, and who may move or take what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from odd_messages import bombard, forge, overhear

from mudkit import Lab
from mudkit.events import Ports, Received
from mudkit.experiment import Direct, Item, Scenario, Task, Testbed
from mudkit.fleet.store import MemoryStore
from mudkit.systems.store_and_forward import DirectMachine, RelayMachine
from mudkit.systems.store_and_forward.messages import FROM_CLIENT, FROM_RELAY

ODD: list[Any] = [
    {"kind": "send"}, {"kind": "hello", "device": ["x"], "busy": 0}, {"kind": "hello", "device": "e"}, {"kind": 3}, {},
    None, 7, "send", ["send"], {"kind": ["send"]},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_a_machine_by_itself_drops_what_is_odd(odd: Any) -> None:
    for make, source in ((RelayMachine, "e/sf"), (lambda ports: DirectMachine(ports, "a"), "e/direct")):
        machine = make(Ports(MemoryStore(), None, "relay/sf"))
        [effect] = machine.handle(0, Received(source, odd))
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
def test_what_a_message_may_hold(change: dict[str, Any]) -> None:
    assert FROM_CLIENT.decode(SEND)
    machine = RelayMachine(Ports(MemoryStore(), None, "relay/sf"))
    [effect] = machine.handle(0, Received("e/sf", {**SEND, **change}, "e"))
    assert effect.row["incident"] == "dropped"


def test_what_is_not_part_of_a_message_is_not_kept() -> None:
    store = MemoryStore()
    machine = RelayMachine(Ports(store, None, "relay/sf"))
    machine.handle(0, Received("e/sf", {**HELLO, "more": float("nan")}, "e"))
    machine.handle(0, Received("e/sf", {**SEND, "more": float("nan"), "after": "x"}, "e"))
    [(_, kept)] = store.items("for bob\n")
    assert FROM_RELAY.decode(kept) is not None
    assert "more" not in kept


def test_nobody_takes_messages_out_of_anothers_queue_or_moves_another() -> None:
    store = MemoryStore()
    machine = RelayMachine(Ports(store, None, "relay/sf"))
    for message, host in ((HELLO, "e"), ({**HELLO, "device": "bob"}, "bob"), (SEND, "e")):
        machine.handle(0, Received(f"{host}/sf", message, host))
    kept = store.items()
    taken = {"kind": "delivered", "receiver": "0123abcd", **NAMED}
    moved = {**HELLO, "device": "bob", "number": 2}
    for message in (taken, moved, {**moved, "busy": True}):
        [effect] = machine.handle(0, Received("eve/sf", message, "eve"))
        assert effect.row["incident"] == "dropped"
    assert store.items() == kept
    machine.handle(0, Received("bob/sf", taken, "bob"))
    assert store.items("for ") == []


def direct_baseline(lab: Lab) -> Direct:
    """Return the baseline on the devices of a lab."""
    return Direct(Testbed(Task.addressed(Scenario(devices=2)), lab))


def test_the_baseline_takes_messages_of_its_own_kind_only(scaled: Callable[[int, int], int]) -> None:
    count = scaled(10_000, 1_000)
    lab = Lab(seed=1)
    for name in ("ann", "bob"):
        lab.device(name)
    with overhear(lab) as heard:
        direct = direct_baseline(lab)
        for number in range(5):
            direct.publish(Item(f"item {number}", "ann", {"to": ("bob",)}, 9, None))
            lab.run(seconds=5)
    lab.device("eve")
    forge(lab, heard)
    bombard(lab, heard, count, seed=3)
    lab.run(minutes=1)
    assert lab.problems.empty
    assert (lab.frame("incidents")["incident"] == "dropped").sum() > count / 2


def test_an_item_that_nobody_has_created_is_told_and_hides_no_delivery() -> None:
    lab = Lab(seed=1)
    for name in ("ann", "bob", "eve"):
        lab.device(name)
    with overhear(lab) as heard:
        direct_baseline(lab).publish(Item("item", "ann", {"to": ("bob",)}, 9, None))
        lab.run(seconds=5)
    [(process, [event])] = heard.items()
    lab.world._handle(process, Received("eve/direct", {**event.message, "key": "of nobody"}, "eve"))
    assert list(lab.deliveries()["item"]) == ["item"]
    [answer] = lab.frame("incidents").to_dict("records")
    assert (answer["device"], answer["incident"]) == ("bob", "dropped")
    assert "of nobody" in answer["detail"]
