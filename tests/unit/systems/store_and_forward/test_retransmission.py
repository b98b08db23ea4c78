"""Retransmission over a network that loses messages; see also tests/property/test_store_and_forward.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mudkit import Lab
from mudkit.events import SendFailed
from mudkit.fleet.link import Transfer
from mudkit.systems.store_and_forward import Client, Relay
from mudkit.wire import wire_fields


def lose(lab: Lab, **fields: Any) -> list[Transfer]:
    """Lose the first message with all of these fields."""
    lost: list[Transfer] = []

    def fault_hook(transfer: Transfer) -> tuple[int, ...]:
        if not lost and fields.items() <= wire_fields(transfer.message).items():
            lost.append(transfer)
            return ()
        return (0,)

    lab.world.fault_hook = fault_hook
    return lost


@pytest.mark.parametrize("kind", ["hello", "welcome"])
def test_server_retransmits_hello_until_the_relay_answers(kind: str) -> None:
    lab = Lab(seed=1)
    relay = Relay(lab)
    fields = {"kind": "hello", "device": "desk"} if kind == "hello" else {"kind": kind}
    lost = lose(lab, **fields)
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
    assert relay.installed.handled - handled < 5  # retransmission has stopped


def create_ward() -> tuple[Lab, list[Client], Client]:
    lab = Lab(seed=1)
    relay = Relay(lab)
    monitors = [Client(lab.device(f"monitor-{number}", "wifi"), relay) for number in range(3)]
    doctor = Client(lab.device("doctor", "wifi"), relay)
    lab.run(seconds=5)
    return lab, monitors, doctor


def test_incoming_traffic_does_not_delay_redelivery() -> None:
    lab, monitors, doctor = create_ward()
    lost = lose(lab, kind="deliver")
    for number in range(10):
        for monitor in monitors:
            monitor.send("doctor", f"{number}")
            lab.run(seconds=1)
    assert len(lost) == 1
    received = [message["text"] for message in doctor.read().result()]
    assert sorted(received) == sorted(f"{number}" for number in range(10) for _ in monitors)


def test_outgoing_traffic_does_not_delay_retransmission() -> None:
    lab, (monitor, *_), doctor = create_ward()
    lost, dropped = lose(lab, kind="missing"), 0

    def fault_hook(transfer: Transfer, former_hook: Any = lab.world.fault_hook) -> Any:
        nonlocal dropped
        if wire_fields(transfer.message)["kind"] == "send" and not dropped:
            dropped += 1
            return ()
        return former_hook(transfer)

    lab.world.fault_hook = fault_hook
    for number in range(20):
        monitor.send("doctor", f"{number}")
        lab.run(seconds=1)
    assert (dropped, len(lost)) == (1, 1)
    assert [message["text"] for message in doctor.read().result()] == [f"{number}" for number in range(20)]


def test_message_after_a_gap_triggers_retransmission() -> None:
    lab, (monitor, *_), doctor = create_ward()
    lost = lose(lab, kind="send")
    for number in range(4):
        monitor.send("doctor", f"{number}")
    lab.run(seconds=1)
    assert len(lost) == 1
    assert [message["text"] for message in doctor.read().result()] == list("0123")


# -- deadlines of single messages, independent of other traffic

S = 1_000_000
INTERVALS_S = (0.5, 1, 2, 3, 4, 5, 6, 9, 15, 30)


class Traffic:
    """Senders, a receiver, and losses of one kind of message."""

    def __init__(self) -> None:
        self.lab = Lab(seed=7)
        relay = Relay(self.lab)
        names = ("ann", "bob", "cy", "dan")
        self.clients = {n: Client(self.lab.device(n, link="ideal"), relay) for n in names}
        self.lab.run(seconds=30)
        self.sent: dict[str, list[str]] = {"ann": [], "cy": [], "dan": []}
        self.lost = 0

    def lose(self, kind: str, device: str, count: int = 1) -> None:
        """Lose the next messages of a kind from or to one device."""

        def fault_hook(transfer: Transfer) -> tuple[int, ...]:
            hosts = transfer.sender.host.name, transfer.to.split("/")[0]
            if wire_fields(transfer.message)["kind"] == kind and device in hosts and self.lost < count:
                self.lost += 1
                return ()
            return (0,)

        self.lab.world.fault_hook = fault_hook

    def send(self, sender: str) -> Any:
        text = f"{sender} {len(self.sent[sender])}"
        self.sent[sender].append(text)
        return self.clients[sender].send("bob", text)

    def send_until(self, is_done: Callable[[], bool], every_s: float, max_s: float) -> None:
        """Keep sending from all senders until a condition holds."""
        waited_s = 0.0
        while not is_done():
            assert waited_s < max_s
            for sender in self.sent:
                self.send(sender)
            self.lab.run(seconds=every_s)
            waited_s += every_s

    def list_received(self) -> list[str]:
        return [message["text"] for _, message in self.clients["bob"].installed.store.items("in ")]

    def check_all_received(self) -> None:
        self.lab.run(minutes=1)
        received = self.list_received()
        for sender, texts in self.sent.items():
            assert [text for text in received if text.startswith(sender)] == texts


@pytest.mark.parametrize("every_s", INTERVALS_S)
@pytest.mark.parametrize("kind", ["send", "accepted"])
def test_lost_message_is_retransmitted(kind: str, every_s: float) -> None:
    traffic = Traffic()
    traffic.lose(kind, "ann")
    first = traffic.send("ann")
    traffic.send_until(first.done, every_s, 6 + every_s)
    assert traffic.lost == 1
    traffic.check_all_received()


@pytest.mark.parametrize("every_s", INTERVALS_S)
@pytest.mark.parametrize("kind", ["deliver", "delivered"])
def test_lost_delivery_is_retransmitted(kind: str, every_s: float) -> None:
    traffic = Traffic()
    traffic.lose(kind, "bob")
    traffic.send("ann")
    traffic.lab.run(seconds=0.2)
    assert traffic.lost == 1
    store = traffic.lab.world.hosts["relay"].processes[0].store
    [(key, _)] = store.items("for bob\nann\n")
    traffic.send_until(lambda: store.get(key) is None, every_s, 6 + every_s)
    traffic.check_all_received()
    assert not store.items("for ")


@pytest.mark.parametrize("every_s", INTERVALS_S)
@pytest.mark.parametrize("kind", ["hello", "welcome"])
@pytest.mark.parametrize("is_sending", [False, True])
def test_end_of_busy_reaches_the_relay_despite_loss(kind: str, every_s: float, is_sending: bool) -> None:
    traffic = Traffic()
    if is_sending:
        traffic.sent["bob"] = []  # to itself
    bob = traffic.lab.devices["bob"]
    bob.change_context(busy=True)
    traffic.lab.run(seconds=1)
    traffic.send("ann")
    traffic.lab.run(seconds=30)
    assert traffic.list_received() == []
    traffic.lose(kind, "bob", count=2)
    bob.change_context(busy=False)
    traffic.send_until(lambda: "ann 0" in traffic.list_received(), every_s, 16 + every_s)
    traffic.lab.run(seconds=20)
    assert traffic.lost == 2
    traffic.check_all_received()


@pytest.mark.parametrize("every_s", INTERVALS_S)
def test_start_of_busy_reaches_the_relay_despite_loss(every_s: float) -> None:
    traffic = Traffic()
    traffic.lose("hello", "bob", count=2)
    traffic.lab.devices["bob"].change_context(busy=True)
    waited_s, last = 0.0, -1
    while last != len(traffic.list_received()):
        last = len(traffic.list_received())
        assert waited_s <= 16 + 2 * every_s
        traffic.send("ann")
        traffic.lab.run(seconds=every_s)
        waited_s += every_s
    traffic.lab.devices["bob"].change_context(busy=False)
    traffic.check_all_received()


@pytest.mark.parametrize("event", ["first", "link up", "address"])
def test_silent_device_gets_its_messages_although_its_hello_was_lost(event: str) -> None:
    lab = Lab(seed=7)
    relay = Relay(lab)
    ann = Client(lab.device("ann", link="ideal"), relay)
    lab.run(seconds=9)
    if event == "first":
        lab.faults.messages(loss_share=1.0)
    bob = Client(lab.device("bob", link="ideal"), relay)
    lab.run(seconds=9)
    if event == "link up":
        lab.faults.cut("bob")
        ann.send("bob", "lunch?").result()
        lab.run(minutes=10)
        lab.faults.messages(loss_share=1.0)
        lab.faults.mend("bob")
    elif event == "address":
        lab.faults.messages(loss_share=1.0)
        lab.faults.change_address("bob")
    lab.run(seconds=2)
    lab.faults.messages()
    if event != "link up":
        ann.send("bob", "lunch?").result()
    lab.run(minutes=15)
    assert [message["text"] for message in bob.read().result()] == ["lunch?"]


@pytest.mark.parametrize(("says_hello", "seconds"), [(False, 900), (True, 2)])
def test_device_that_was_away_with_an_empty_queue_gets_its_next_message(
    says_hello: bool, seconds: int
) -> None:
    """It is probed if it says no hello, since it has noticed nothing; after a hello it gets messages at once."""
    lab = Lab(seed=7)
    relay = Relay(lab)
    ann, bob = (Client(lab.device(name, link="ideal"), relay) for name in ("ann", "bob"))
    lab.run(seconds=9)
    relay.installed.machine.handle(lab.world.now_us, SendFailed(bob.installed.address, b""))
    if says_hello:
        lab.faults.cut("bob")
        lab.faults.mend("bob")
        lab.run(seconds=9)
    ann.send("bob", "lunch?").result()
    lab.run(seconds=seconds)
    assert [message["text"] for message in bob.read().result()] == ["lunch?"]
