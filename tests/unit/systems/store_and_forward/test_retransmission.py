"""Retransmission over a network that loses messages; see also tests/property/test_store_and_forward.py."""

from __future__ import annotations

from collections.abc import Callable
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


# -- each message has its own deadline, whatever traffic there is

S = 1_000_000
EVERY_S = (0.5, 1, 2, 3, 4, 5, 6, 9, 15, 30)


class Traffic:
    """Senders, a receiver, and what is lost of a kind."""

    def __init__(self) -> None:
        self.lab = Lab(seed=7)
        relay = Relay(self.lab)
        names = ("ann", "bob", "cy", "dan")
        self.clients = {n: Client(self.lab.device(n, link="ideal"), relay) for n in names}
        self.lab.run(seconds=30)
        self.sent: dict[str, list[str]] = {"ann": [], "cy": [], "dan": []}
        self.lost = 0

    def lose(self, kind: str, to_or_from: str, count: int = 1) -> None:
        """Lose the next messages of a kind that one device sends or gets."""

        def fault_hook(transfer: Transfer) -> tuple[int, ...]:
            hosts = transfer.sender.host.name, transfer.to.split("/")[0]
            if wire_fields(transfer.message)["kind"] == kind and to_or_from in hosts and self.lost < count:
                self.lost += 1
                return ()
            return (0,)

        self.lab.world.fault_hook = fault_hook

    def send(self, sender: str) -> Any:
        text = f"{sender} {len(self.sent[sender])}"
        self.sent[sender].append(text)
        return self.clients[sender].send("bob", text)

    def until(self, done: Callable[[], bool], every_s: float, at_most_s: float) -> None:
        """Let all go on sending until something holds."""
        waited_s = 0.0
        while not done():
            assert waited_s < at_most_s
            for sender in self.sent:
                self.send(sender)
            self.lab.run(seconds=every_s)
            waited_s += every_s

    def got(self) -> list[str]:
        return [message["text"] for _, message in self.clients["bob"].installed.store.items("in ")]

    def all_came(self) -> None:
        self.lab.run(minutes=1)
        got = self.got()
        for sender, texts in self.sent.items():
            assert [text for text in got if text.startswith(sender)] == texts


@pytest.mark.parametrize("every_s", EVERY_S)
@pytest.mark.parametrize("kind", ["send", "accepted"])
def test_a_message_that_was_lost_is_sent_again(kind: str, every_s: float) -> None:
    traffic = Traffic()
    traffic.lose(kind, "ann")
    first = traffic.send("ann")
    traffic.until(first.done, every_s, 6 + every_s)
    assert traffic.lost == 1
    traffic.all_came()


@pytest.mark.parametrize("every_s", EVERY_S)
@pytest.mark.parametrize("kind", ["deliver", "delivered"])
def test_a_delivery_that_was_lost_comes_again(kind: str, every_s: float) -> None:
    traffic = Traffic()
    traffic.lose(kind, "bob")
    traffic.send("ann")
    traffic.lab.run(seconds=0.2)
    assert traffic.lost == 1
    store = traffic.lab.world.hosts["relay"].processes[0].store
    [(gone_on, _)] = store.items("for bob\nann\n")
    traffic.until(lambda: store.get(gone_on) is None, every_s, 6 + every_s)
    traffic.all_came()
    assert not store.items("for ")


@pytest.mark.parametrize("every_s", EVERY_S)
@pytest.mark.parametrize("kind", ["hello", "welcome"])
@pytest.mark.parametrize("is_sending", [False, True])
def test_the_relay_hears_that_a_user_is_no_longer_busy(kind: str, every_s: float, is_sending: bool) -> None:
    traffic = Traffic()
    if is_sending:
        traffic.sent["bob"] = []  # to himself
    bob = traffic.lab.devices["bob"]
    bob.change_context(busy=True)
    traffic.lab.run(seconds=1)
    traffic.send("ann")
    traffic.lab.run(seconds=30)
    assert traffic.got() == []
    traffic.lose(kind, "bob", count=2)
    bob.change_context(busy=False)
    traffic.until(lambda: "ann 0" in traffic.got(), every_s, 16 + every_s)
    traffic.lab.run(seconds=20)
    assert traffic.lost == 2
    traffic.all_came()


@pytest.mark.parametrize("every_s", EVERY_S)
def test_the_relay_hears_that_a_user_is_busy(every_s: float) -> None:
    traffic = Traffic()
    traffic.lose("hello", "bob", count=2)
    traffic.lab.devices["bob"].change_context(busy=True)
    waited_s, last = 0.0, -1
    while last != len(traffic.got()):
        last = len(traffic.got())
        assert waited_s <= 16 + 2 * every_s
        traffic.send("ann")
        traffic.lab.run(seconds=every_s)
        waited_s += every_s
    traffic.lab.devices["bob"].change_context(busy=False)
    traffic.all_came()


@pytest.mark.parametrize("what", ["first", "link up", "address"])
def test_a_device_that_says_nothing_more_gets_its_mail_though_its_hello_was_lost(what: str) -> None:
    lab = Lab(seed=7)
    relay = Relay(lab)
    ann = Client(lab.device("ann", link="ideal"), relay)
    lab.run(seconds=9)
    if what == "first":
        lab.faults.messages(loss_share=1.0)
    bob = Client(lab.device("bob", link="ideal"), relay)
    lab.run(seconds=9)
    if what == "link up":
        lab.faults.cut("bob")
        ann.send("bob", "lunch?").result()
        lab.run(minutes=10)
        lab.faults.messages(loss_share=1.0)
        lab.faults.mend("bob")
    elif what == "address":
        lab.faults.messages(loss_share=1.0)
        lab.faults.change_address("bob")
    lab.run(seconds=2)
    lab.faults.messages()
    if what != "link up":
        ann.send("bob", "lunch?").result()
    lab.run(minutes=15)
    assert [message["text"] for message in bob.read().result()] == ["lunch?"]
