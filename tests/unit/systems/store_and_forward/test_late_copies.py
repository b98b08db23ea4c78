"""Copies of messages that arrive hours later, after wipes, restores, restarts and changes of address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mudkit import Lab
from mudkit.fleet.link import Transfer
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.wire import wire_fields

HOUR_US = 3_600_000_000


def create_lab() -> tuple[Lab, Relay, Client, Client]:
    lab = Lab(seed=1)
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name, link="ideal"), relay) for name in ("ann", "bob"))
    lab.run(minutes=1)
    return lab, relay, ann, bob


def hook(lab: Lab, delays: Callable[[str, str, Any], tuple[int, ...]]) -> None:
    """Deliver each message after the delays that a function of sender, kind and message returns."""

    def fault_hook(transfer: Transfer) -> tuple[int, ...]:
        return delays(transfer.sender.host.name, wire_fields(transfer.message)["kind"], transfer.message)

    lab.world.fault_hook = fault_hook


def read_texts(client: Client) -> list[str]:
    return [message["text"] for message in client.read().result()]


def count_rolled_back(lab: Lab) -> int:
    return int((lab.frame("incidents").incident == "rolled back").sum())


def test_late_message_of_a_wiped_sender_does_not_hide_an_accepted_one() -> None:
    lab, _, ann, bob = create_lab()
    lab.faults.cut("bob")
    ann.send("bob", "one").result()
    lost = []

    def delays(sender: str, kind: str, message: Any) -> tuple[int, ...]:
        if sender == "ann" and kind == "send" and message.text == "two":
            return (60_000_000,)
        if kind == "deliver" and message.text == "one" and not lost:
            lost.append(message)
            return ()
        return (0,)

    hook(lab, delays)
    ann.send("bob", "two")
    lab.run(seconds=1)
    lab.faults.wipe("ann")
    lab.run(seconds=1)
    ann.send("bob", "three").result()
    lab.run(minutes=2)
    lab.faults.mend("bob")
    lab.run(hours=1)
    assert read_texts(bob) == ["one", "three"]


@pytest.mark.parametrize("fault", ["wipe", "restore"])
def test_late_delivery_to_a_former_incarnation_does_not_enter_the_inbox(fault: str) -> None:
    lab, _, ann, bob = create_lab()
    backup = lab.faults.backup("bob")
    hook(lab, lambda sender, kind, message: (0, HOUR_US) if kind == "deliver" else (0,))
    ann.send("bob", "one").result()
    lab.run(seconds=10)
    if fault == "wipe":
        lab.faults.wipe("bob")
    else:
        lab.faults.restore("bob", backup)
    lab.faults.kill("ann")
    lab.faults.restart("ann")
    lab.run(minutes=1)
    ann.send("bob", "two").result()
    lab.run(hours=2)
    assert read_texts(bob) == ["two"]


def test_late_acknowledgement_after_a_restore_of_both_sides_removes_no_message() -> None:
    lab, _, ann, bob = create_lab()
    lab.faults.cut("ann")
    ann.send("bob", "one")
    lab.run(seconds=1)
    backups = {host: lab.faults.backup(host) for host in ("ann", "relay")}
    hook(lab, lambda sender, kind, message: (0, 90_000_000) if kind == "accepted" else (0,))
    lab.faults.mend("ann")
    lab.run(seconds=10)
    lab.faults.cut("ann")
    lab.faults.wipe("bob")  # what it had is lost
    for host, backup in backups.items():
        lab.faults.restore(host, backup)
    lab.run(seconds=75)
    hook(lab, lambda sender, kind, message: () if kind == "send" else (0,))
    lab.faults.mend("ann")
    lab.run(seconds=15)  # the late acknowledgement has arrived before the message was sent again
    lab.world.fault_hook = None
    lab.run(minutes=5)
    assert read_texts(bob) == ["one"]


@pytest.mark.parametrize("restarts", [False, True])
def test_late_report_of_a_gap_is_no_rollback(restarts: bool) -> None:
    lab, _, ann, bob = create_lab()
    copies: list[str] = []

    def delays(sender: str, kind: str, message: Any) -> tuple[int, ...]:
        if kind == "deliver" and message.text == "one" and not copies:
            copies.append(kind)
            return ()
        return (0, HOUR_US) if kind == "lacks" else (0,)

    hook(lab, delays)
    ann.send("bob", "one").result()
    ann.send("bob", "two").result()
    lab.run(minutes=1)
    if restarts:
        lab.faults.kill("relay")
        lab.faults.restart("relay")
    lab.run(hours=2)
    assert read_texts(bob) == ["one", "two"]
    assert count_rolled_back(lab) == 0


def test_restarted_relay_delivers_only_to_a_device_that_has_answered() -> None:
    """Eve gets the address that Bob had at the time of the backup; a late hello names it, too."""
    lab, relay, ann, bob = create_lab()
    eve = Client(lab.device("eve", link="ideal"), relay)
    lab.faults.change_address("bob")
    lab.run(minutes=1)
    hook(lab, lambda sender, kind, message: (0, 700_000_000) if (sender, kind) == ("bob", "hello") else (0,))
    lab.faults.cut("bob", minutes=0.1)
    lab.run(minutes=1)
    lab.faults.cut("bob")
    ann.send("bob", "for bob").result()
    backup = lab.faults.backup("relay")
    old = lab.devices["bob"].address
    lab.faults.change_address("bob")
    lab.faults.change_address("eve", old)
    seen: list[str] = []
    lab.world.fault_hook = lambda transfer: (
        seen.append(transfer.to) or (0,) if wire_fields(transfer.message)["kind"] == "deliver" else (0,)
    )
    lab.faults.restore("relay", backup)
    lab.run(minutes=20)  # also when the late hello arrives
    assert not seen
    lab.faults.mend("bob")
    lab.run(minutes=1)
    assert read_texts(bob) == ["for bob"]
    assert {to.split("/")[0] for to in seen} == {lab.devices["bob"].address}
    assert not read_texts(eve)
    assert not lab.world.transfers_under_way()


def give_address(lab: Lab, device: str, new_owner: str) -> None:
    """Switch a device off, and give its address to another one."""
    address = lab.devices[device].address
    lab.faults.switch_off(device)
    lab.faults.change_address(device)
    lab.faults.change_address(new_owner, address)


def test_late_only_copy_of_a_hello_takes_no_address_of_another_device() -> None:
    lab, relay, ann, bob = create_lab()
    cy = Client(lab.device("cy", link="ideal"), relay)
    lab.faults.change_address("bob")
    lab.run(minutes=1)
    lab.faults.cut("bob", minutes=0.1)
    hook(lab, lambda sender, kind, message: (HOUR_US,) if sender == "bob" else (0,))
    lab.run(seconds=10)
    seen: list[str] = []
    hook(lab, lambda sender, kind, message: seen.append(getattr(message, "to", "")) or (0,))
    give_address(lab, "bob", "cy")
    lab.run(hours=2)
    messages = ann.send("cy", "for cy"), ann.send("bob", "for bob")
    lab.run(hours=24)
    assert [message.status for message in messages] == ["ok", "ok"]
    assert read_texts(cy) == ["for cy"]
    assert seen.count("bob") == 1  # the message to the relay
    lab.faults.switch_on("bob")
    lab.run(minutes=1)
    assert read_texts(bob) == ["for bob"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_device_whose_address_was_taken_by_a_late_answer_is_found_there(is_lost: bool) -> None:
    """Bob answers the question whether Cy's address is now his; the answer is late, and Cy is there again."""
    lab, relay, ann, _bob = create_lab()
    cy = Client(lab.device("cy", link="ideal"), relay)
    lab.faults.change_address("cy")
    lab.run(minutes=1)
    give_address(lab, "cy", "bob")
    late: list[str] = []

    def delays(sender: str, kind: str, message: Any) -> tuple[int, ...]:
        is_held = sender == "bob" and kind == "hello" and isinstance(message.nonce, str)
        late.extend([kind] if is_held else [])
        return (HOUR_US,) if is_held else (0,)

    hook(lab, delays)
    lab.run(seconds=4)
    assert late
    give_address(lab, "bob", "cy")
    lab.faults.switch_on("cy")
    lab.run(minutes=50)
    hook(lab, lambda sender, kind, message: () if kind == "identify" and is_lost else (0,))
    lab.run(hours=1)
    hook(lab, lambda sender, kind, message: (0,))
    ann.send("cy", "for cy").result()
    lab.run(minutes=2)
    assert read_texts(cy) == ["for cy"]


def test_new_owner_of_an_address_is_served_there_at_once() -> None:
    lab, relay, ann, _bob = create_lab()
    cy = Client(lab.device("cy", link="ideal"), relay)
    lab.faults.change_address("bob")
    lab.run(minutes=1)
    give_address(lab, "bob", "cy")
    lab.run(seconds=1)
    ann.send("cy", "for cy").result()
    lab.run(seconds=1)
    assert read_texts(cy) == ["for cy"]
