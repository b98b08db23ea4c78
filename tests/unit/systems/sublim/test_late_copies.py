"""Kills before a callback, and copies of messages that arrive hours later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mudkit import Lab
from mudkit.events import Received
from mudkit.systems.sublim import AccessPoint, PublishServer, Subscriber, policy
from mudkit.wire import wire_fields

HOUR_US = 3_600_000_000


class Net:
    """An access point, ann, eve, and the addresses to which messages for ann are delivered."""

    def __init__(self, points: int = 1) -> None:
        self.lab = Lab(seed=1)
        self.net = PublishServer(self.lab)
        for number in range(points):
            AccessPoint(self.lab, self.net, at=(number * 0.001, 0.0), range_m=80.0)
        self.ann, self.eve = (
            Subscriber(self.lab.device(name, link="wifi", at=(0.0, 0.0)), self.net) for name in ("ann", "eve")
        )
        self.shown: list[Any] = []
        self.ann.on_message(self.shown.append)
        self.delivered_to: set[str] = set()
        self.lab.faults.change_address("ann")
        self.lab.run(minutes=1)

    def publish(self, number: int) -> None:
        self.net.publish({"n": number}).result()
        self.lab.run(seconds=5)

    def delay(self, delays: Callable[[str, str, Any], tuple[int, ...]]) -> None:
        """Deliver each message after the delays that a function of sender, kind and message returns."""

        def fault_hook(transfer: Any) -> tuple[int, ...]:
            kind = wire_fields(transfer.message).get("kind", "")
            if kind == "deliver" and transfer.message.subscriber == "ann":
                self.delivered_to.add(transfer.to.split("/")[0])
            return delays(transfer.sender.host.name, kind, transfer.message)

        self.lab.world.fault_hook = fault_hook

    def move(self, place: int) -> None:
        self.lab.devices["ann"].set_measured("loc", (place * 0.001, 0.0))
        self.lab.run(seconds=20)

    @property
    def numbers(self) -> list[int]:
        return [message["n"] for message in self.shown]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_reused", [False, True])
def test_late_attachment_does_not_move_a_subscriber(is_reused: bool, restarts: bool) -> None:
    net = Net()
    net.delay(lambda sender, kind, message: (0, 60_000_000) if (sender, kind) == ("ann", "attach") else (0,))
    net.lab.faults.cut("ann", minutes=0.2)
    net.lab.run(seconds=20)
    net.delay(lambda sender, kind, message: (0,))
    old = net.lab.devices["ann"].address
    net.lab.faults.change_address("ann")
    if is_reused:
        net.lab.faults.change_address("eve", old)
    if restarts:
        net.lab.faults.kill("access-point-1")
        net.lab.faults.restart("access-point-1")
    net.lab.run(minutes=2)
    net.publish(1)
    net.lab.run(hours=1)
    assert net.numbers == [1]
    assert net.delivered_to == {net.lab.devices["ann"].address}


def test_late_attachment_does_not_create_state_at_a_restored_access_point() -> None:
    """The backup does not know ann; eve has the address that ann had when she attached."""
    net = Net()
    backup = net.lab.faults.backup("access-point-1")
    bob = Subscriber(net.lab.device("bob", link="wifi", at=(0.0, 0.0)), net.net)
    net.lab.faults.change_address("bob")
    net.delay(lambda sender, kind, message: (0, 90_000_000) if (sender, kind) == ("bob", "attach") else (0,))
    net.lab.run(seconds=20)
    assert bob.state()["epoch"] == 1
    old = net.lab.devices["bob"].address
    net.lab.faults.cut("bob")
    net.lab.faults.change_address("bob")
    net.lab.faults.change_address("eve", old)
    net.lab.faults.restore("access-point-1", backup)
    net.lab.run(minutes=2)
    sent = []
    net.lab.world.fault_hook = lambda transfer: (
        sent.append(transfer.message.subscriber) or (0,)
        if wire_fields(transfer.message).get("kind") == "deliver"
        else (0,)
    )
    net.publish(1)
    assert set(sent) == {"ann", "eve"}


@pytest.mark.parametrize("fault", ["wipe", "restart"])
def test_late_delivery_does_not_enter_the_inbox_again(fault: str) -> None:
    net = Net()
    net.delay(lambda sender, kind, message: (0, HOUR_US) if kind == "deliver" else (0,))
    for number in range(3):
        net.publish(number)
    (net.lab.faults.wipe if fault == "wipe" else net.lab.faults.kill)("ann")
    net.lab.faults.restart("ann")
    net.lab.run(hours=2)
    net.publish(3)
    assert net.numbers == [0, 1, 2, 3]


def test_late_leave_of_a_wiped_device_deletes_nothing() -> None:
    net = Net(points=2)
    agent = net.net.access_points[0].installed.machine._agents["ann"]
    incarnation = agent.record.store_id
    net.lab.faults.wipe("ann")
    net.lab.run(minutes=1)
    net.lab.faults.cut("ann")
    net.publish(1)
    address = net.lab.devices["ann"].address
    left = {"kind": "left", "subscriber": "ann", "incarnation": incarnation, "epoch": 0}
    net.net.access_points[0].installed.machine.handle(
        net.lab.world.now_us, Received(f"{address}/sublim", left, "ann")
    )
    net.lab.faults.mend("ann")
    net.lab.run(minutes=2)
    assert net.numbers == [1]
    assert "rolled back" not in set(net.lab.frame("incidents").incident)


def test_late_acknowledgement_of_a_wiped_device_acknowledges_nothing() -> None:
    net = Net()
    backup = net.lab.faults.backup("access-point-1")
    net.delay(lambda sender, kind, message: (0, 120_000_000) if kind == "got" else (0,))
    for number in range(3):
        net.publish(number)
    net.delay(lambda sender, kind, message: () if kind == "deliver" else (0,))
    net.lab.faults.wipe("ann")
    net.lab.faults.restore("access-point-1", backup)
    net.publish(9)
    net.lab.run(minutes=3)  # the late acknowledgements have arrived
    net.delay(lambda sender, kind, message: (0,))
    net.lab.run(minutes=3)
    assert net.numbers == [0, 1, 2, 0, 1, 2, 9]


def test_late_request_of_an_access_point_does_not_lose_a_subscriber() -> None:
    net = Net(points=2)
    backup = net.lab.faults.backup("access-point-1")
    net.delay(lambda sender, kind, message: (0, 300_000_000) if kind == "ask" else (0,))
    net.move(1)
    net.delay(lambda sender, kind, message: (0,))
    net.move(0)
    net.lab.faults.cut("ann")
    net.lab.faults.restore("access-point-1", backup)
    net.lab.run(minutes=6)  # the late request has arrived
    net.lab.faults.mend("ann")
    net.lab.run(minutes=3)
    net.publish(1)
    net.lab.run(minutes=3)
    assert net.numbers == [1]


@pytest.mark.parametrize("point", ["before commit", "after commit"])
def test_application_is_notified_of_a_message_that_was_committed_before_a_kill(point: str) -> None:
    net = Net()
    net.lab.faults.kill("ann", at=point)
    net.publish(1)
    assert not net.shown
    for _ in range(3):
        net.lab.faults.restart("ann")
        net.lab.run(minutes=20)
        net.lab.faults.kill("ann")
    net.lab.faults.restart("ann")
    net.publish(2)
    assert net.numbers == [1, 2]
    assert net.shown[0].id != net.shown[1].id
    assert net.ann.read().result() == [{"n": 1}, {"n": 2}]
    assert not net.ann.installed.store.keys("notice ")


def test_problem_of_a_policy_is_shown_after_a_kill() -> None:
    net = Net()
    problems: list[str] = []
    net.ann.on_problem(problems.append)
    net.ann.set_policy(policy(lambda message, state: 1 / 0)).result()
    net.lab.faults.kill("ann", at="after commit")
    net.publish(0)
    net.lab.faults.restart("ann")
    net.lab.run(minutes=20)
    assert len(problems) == 1


def test_messages_of_a_read_that_was_lost_are_read_again() -> None:
    net = Net()
    net.publish(1)
    read = net.ann.read()
    net.lab.faults.kill("ann")  # no time has passed since
    net.lab.faults.restart("ann")
    repeated = net.ann.read().result()
    assert [(message, message.id) for message in read.result()] == [
        (message, message.id) for message in repeated
    ]
    net.lab.run(seconds=1)
    assert not net.ann.read().result()
    assert not net.ann.installed.store.keys("in ")
