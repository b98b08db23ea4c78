"""Store and forward over a network that loses messages; see also tests/property/test_store_and_forward.py."""

from __future__ import annotations

from typing import Any

import pytest

from mudkit import Lab
from mudkit.fleet.link import Transfer
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.wire import wire_fields


def lose(lab: Lab, **wanted: Any) -> list[Transfer]:
    """Lose the first message in which all of this stands."""
    lost: list[Transfer] = []

    def fault_hook(transfer: Transfer) -> tuple[int, ...]:
        if not lost and wanted.items() <= wire_fields(transfer.message).items():
            lost.append(transfer)
            return ()
        return (0,)

    lab.world.fault_hook = fault_hook
    return lost


@pytest.mark.parametrize("kind", ["hello", "welcome"])
def test_a_server_says_hello_until_the_relay_has_heard_it(kind: str) -> None:
    lab = Lab(seed=1)
    relay = Relay(lab)
    wanted = {"kind": "hello", "device": "desk"} if kind == "hello" else {"kind": kind}
    lost = lose(lab, **wanted)
    ann, desk = (Client(host, relay) for host in (lab.device("ann"), lab.server("desk")))
    lab.run(seconds=20)
    assert len(lost) == 1
    bill = lab.bill()
    assert bill.loc[bill["direction"] == "down", "messages"].sum() == 1  # ann's first hello is answered, once
    ann.send("desk", "report").result()
    lab.run(seconds=1)
    assert desk.read().result() == [{"from": "ann", "text": "report"}]
    handled = relay.installed.handled
    lab.run(hours=1)
    assert relay.installed.handled - handled < 5  # it is not said for ever


def ward() -> tuple[Lab, list[Client], Client]:
    lab = Lab(seed=1)
    relay = Relay(lab)
    monitors = [Client(lab.device(f"monitor-{number}", "wifi"), relay) for number in range(3)]
    doctor = Client(lab.device("doctor", "wifi"), relay)
    lab.run(seconds=5)
    return lab, monitors, doctor


def test_what_comes_in_all_the_time_does_not_keep_what_was_lost_from_being_delivered_again() -> None:
    lab, monitors, doctor = ward()
    lost = lose(lab, kind="deliver")
    for number in range(10):
        for monitor in monitors:
            monitor.send("doctor", f"{number}")
            lab.run(seconds=1)
    assert len(lost) == 1
    read = [message["text"] for message in doctor.read().result()]
    assert sorted(read) == sorted(f"{number}" for number in range(10) for _ in monitors)


def test_what_is_sent_all_the_time_does_not_keep_what_was_lost_from_being_sent_again() -> None:
    lab, (monitor, *_), doctor = ward()
    lost, dropped = lose(lab, kind="missing"), 0

    def fault_hook(transfer: Transfer, before: Any = lab.world.fault_hook) -> Any:
        nonlocal dropped
        if wire_fields(transfer.message)["kind"] == "send" and not dropped:
            dropped += 1
            return ()
        return before(transfer)

    lab.world.fault_hook = fault_hook
    for number in range(20):
        monitor.send("doctor", f"{number}")
        lab.run(seconds=1)
    assert (dropped, len(lost)) == (1, 1)
    assert [message["text"] for message in doctor.read().result()] == [f"{number}" for number in range(20)]


def test_what_is_too_early_tells_the_sender_what_was_lost() -> None:
    lab, (monitor, *_), doctor = ward()
    lost = lose(lab, kind="send")
    for number in range(4):
        monitor.send("doctor", f"{number}")
    lab.run(seconds=1)
    assert len(lost) == 1
    assert [message["text"] for message in doctor.read().result()] == list("0123")
