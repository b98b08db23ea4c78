"""Odd and forged messages are dropped and recorded, and nothing else comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from odd_messages import bombard, forge, overhear

from mudkit import Lab
from mudkit.events import Ports, Received, Record
from mudkit.experiment import Direct, Item, Scenario, Task, Testbed
from mudkit.fleet.store import MemoryStore
from mudkit.systems.store_and_forward import Client, DirectMachine, Relay, RelayMachine
from mudkit.systems.store_and_forward.messages import FROM_CLIENT, FROM_RELAY

KINDS = {"send", "delivered", "hello", "accepted", "missing", "deliver", "welcome", "identify", "lacks"}


def wiped(installed: Any) -> None:
    installed.kill()
    installed.store = MemoryStore()
    installed.start()


def busy() -> tuple[Lab, dict[str, Client], Any]:
    """Give a lab in the middle of a run, and what each machine has heard in it: every kind of message."""
    lab = Lab(seed=5)
    relay = Relay(lab)
    with overhear(lab) as heard:
        clients = {name: Client(lab.device(name), relay) for name in ("ann", "bob", "cy")}
        for number in range(6):
            lab.faults.messages(loss_share=0.3 if number % 2 else 0.0)
            for sender, receiver in (("ann", "bob"), ("bob", "cy"), ("cy", "ann")):
                clients[sender].send(receiver, f"{number}")
            lab.devices["bob"].change_context(busy=number in (2, 3))
            lab.run(seconds=2)
        lab.faults.messages()
        lab.run(minutes=2)
        wiped(relay.installed)
        for sender, receiver in (("ann", "bob"), ("bob", "cy"), ("cy", "ann")):
            clients[sender].send(receiver, "late")
        lab.run(minutes=2)
        lab.device("eve")
    assert {event.message["kind"] for events in heard.values() for event in events} == KINDS
    return lab, clients, heard


def works(lab: Lab, clients: dict[str, Client]) -> None:
    """Send to and fro: each comes once."""
    for client in clients.values():
        client.read().result()
    for name, client in clients.items():
        for other in clients:
            client.send(other, f"{name} to {other}").result(600)
    lab.run(minutes=10)
    for name, client in clients.items():
        read = [(each["from"], each["text"]) for each in client.read().result() if each["from"] in clients]
        assert sorted(read) == [(other, f"{other} to {name}") for other in clients]


def dropped(lab: Lab) -> int:
    return int((lab.frame("incidents")["incident"] == "dropped").sum())


def test_odd_messages_at_every_machine_raise_nothing(scaled: Callable[[int, int], int]) -> None:
    count = scaled(10_000, 1_000)
    lab, _, heard = busy()
    sent = bombard(lab, heard, count, seed=1)
    assert sent == {"RelayMachine": count, "ClientMachine": 3 * count}
    assert dropped(lab) > 2 * count
    lab.run(minutes=1)
    assert lab.problems.empty


def test_after_odd_messages_of_a_foreign_device_the_others_go_on(scaled: Callable[[int, int], int]) -> None:
    lab, clients, heard = busy()
    foreign = {
        process: [Received("eve/sf", event.message, "eve") for event in events]
        for process, events in heard.items()
    }
    bombard(lab, foreign, scaled(10_000, 1_000), seed=2)
    lab.run(minutes=1)
    works(lab, clients)
    assert lab.problems.empty


def test_what_was_overheard_is_nothing_from_another_host() -> None:
    lab, clients, heard = busy()
    before = [process.store.items() for process in heard]
    tried = forge(lab, heard)
    assert tried["RelayMachine"] > 20
    assert tried["ClientMachine"] > 20
    assert [process.store.items() for process in heard] == before
    works(lab, clients)


def test_a_client_is_told_nothing_by_another_than_the_relay() -> None:
    """Not by the host that the relay runs on, either: a machine has an address of its own."""
    lab, clients, heard = busy()
    for client in clients.values():
        for event in heard[client.installed]:
            machine = client.installed.machine
            [effect] = machine.handle(lab.world.now_us, Received("relay/other", event.message, "relay"))
            assert type(effect) is Record


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


SEND = {
    "kind": "send",
    "number": 1,
    "incarnation": "0123abcd",
    "key": "k",
    "from": "e",
    "to": "bob",
    "text": "x",
}
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
    taken = {
        "kind": "delivered",
        "number": 1,
        "incarnation": "0123abcd",
        "receiver": "0123abcd",
        "key": "k",
        "from": "e",
        "to": "bob",
    }
    for message in (
        taken,
        {**HELLO, "device": "bob", "number": 2},
        {**HELLO, "device": "bob", "busy": True, "number": 2},
    ):
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
    assert dropped(lab) > count / 2


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
