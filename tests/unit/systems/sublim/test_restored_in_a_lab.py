"""Restore of an access point from a backup: service resumes, without duplicate deliveries."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems import sublim
from mudkit.systems.sublim import Policy, Rule
from mudkit.systems.sublim._policy.actions import Drop

POLICY = Policy("large", [Rule("message.n < 10", [Drop()]), Rule()])
HERE, THERE = (44.43, 26.10), (44.45, 26.10)


class Testbed:
    """Two access points, and a device that moves between them."""

    def __init__(self) -> None:
        self.lab = Lab(seed=1)
        self.net = sublim.PublishServer(self.lab)
        for name, at in (("here", HERE), ("there", THERE)):
            sublim.AccessPoint(self.lab, self.net, at=at, range_m=150, name=name)
        self.received: list[int] = []
        self.lab.run(minutes=1)

    def add_subscriber(self) -> None:
        self.device = self.lab.device("bob", link="wifi", at=HERE)
        self.bob = sublim.Subscriber(self.device, self.net)
        self.bob.on_message(lambda message: self.received.append(message["n"]))
        self.lab.run(minutes=1)

    def publish(self, *numbers: int) -> None:
        for number in numbers:
            self.net.publish({"n": number})
            self.lab.run(seconds=20)

    def move_device(self, at: tuple[float, float]) -> None:
        self.device.move(*at)
        self.lab.run(minutes=1)

    def reconnect(self) -> None:
        self.lab.faults.cut("bob", minutes=1)
        self.lab.run(minutes=2)

    def restore(self, backup) -> None:
        self.lab.faults.restore("here", backup)
        self.lab.run(minutes=1)

    def incidents(self) -> list[str]:
        rows = self.lab.trace.table("incidents").to_pylist()
        return [row["detail"] for row in rows if row["incident"] == "rolled back"]

    def count_messages(self) -> int:
        return sum(row.messages for row in self.lab.world.bill())

    def is_quiet(self) -> bool:
        """Return whether few messages are sent in an hour."""
        before = self.count_messages()
        self.lab.run(hours=1)
        return self.count_messages() - before < 50


@pytest.fixture
def testbed():
    return Testbed()


def test_subscriber_unknown_to_the_backup_is_served_after_reconnecting(testbed):
    backup = testbed.lab.faults.backup("here")
    testbed.add_subscriber()
    testbed.publish(0, 1, 2)
    testbed.restore(backup)
    testbed.publish(3)
    testbed.reconnect()
    testbed.publish(4)
    assert testbed.received == [0, 1, 2, 3, 4]
    assert "no access point knows" in testbed.incidents()[0]
    assert testbed.is_quiet()


def test_deliveries_missing_from_the_backup_are_not_repeated(testbed):
    testbed.add_subscriber()
    testbed.publish(0)
    backup = testbed.lab.faults.backup("here")
    testbed.publish(1, 2)
    testbed.restore(backup)
    testbed.publish(3)
    assert testbed.received == [0, 1, 2, 3]
    assert testbed.incidents() == ["bob: its access point does not know deliveries 2 to 3"]
    assert testbed.is_quiet()


def test_messages_published_during_disconnection_are_delivered(testbed):
    testbed.add_subscriber()
    testbed.publish(0)
    backup = testbed.lab.faults.backup("here")
    testbed.lab.faults.cut("bob")
    testbed.publish(1)
    testbed.restore(backup)
    testbed.publish(2)
    testbed.lab.faults.mend("bob")
    testbed.publish(3)
    assert testbed.received == [0, 1, 2, 3]
    assert testbed.incidents() == []


def test_policy_set_since_the_backup_is_set_again(testbed):
    testbed.add_subscriber()
    backup = testbed.lab.faults.backup("here")
    testbed.bob.set_policy(POLICY).result()
    testbed.restore(backup)
    testbed.publish(1, 11, 2, 12)
    assert testbed.received == [11, 12]


def test_outdated_state_of_a_moved_subscriber_is_not_used(testbed):
    testbed.add_subscriber()
    testbed.publish(0, 1)
    backup = testbed.lab.faults.backup("here")
    testbed.move_device(THERE)
    testbed.publish(2, 3)
    testbed.restore(backup)
    testbed.publish(4)
    testbed.move_device(HERE)
    testbed.publish(5)
    assert testbed.received == [0, 1, 2, 3, 4, 5]
    assert testbed.is_quiet()


def test_subscriber_with_lost_state_starts_anew_elsewhere(testbed):
    backup = testbed.lab.faults.backup("here")
    testbed.add_subscriber()
    testbed.publish(0, 1)
    testbed.restore(backup)
    testbed.publish(2)
    testbed.move_device(THERE)
    testbed.publish(3)
    assert testbed.received == [0, 1, 2, 3]
    assert testbed.is_quiet()


def test_restart_without_restore_is_no_incident(testbed):
    testbed.add_subscriber()
    testbed.publish(0)
    testbed.lab.faults.kill("here")
    testbed.lab.faults.restart("here")
    testbed.publish(1)
    assert testbed.received == [0, 1]
    assert testbed.incidents() == []


@pytest.mark.parametrize("knows_bob", [False, True])
@pytest.mark.parametrize("loss_share", [0.0, 0.4])
def test_silent_subscriber_is_reached_at_its_new_address(testbed, knows_bob, loss_share):
    """Check that the publish server knows the address of a subscriber that attached or moved since the backup."""
    backup = testbed.lab.faults.backup("here")
    testbed.add_subscriber()
    if knows_bob:
        testbed.publish(0)
        backup = testbed.lab.faults.backup("here")
        testbed.lab.faults.change_address("bob")
        testbed.lab.run(minutes=1)
    testbed.lab.faults.messages(loss_share=loss_share)
    testbed.publish(1, 2, 3, 4, 5, 6)
    testbed.restore(backup)
    testbed.publish(7, 8)
    testbed.lab.faults.messages()
    testbed.lab.run(minutes=3)
    testbed.publish(9)
    assert testbed.received[-3:] == [7, 8, 9]  # what was published before the restore may be lost
    assert loss_share or testbed.received[-9:] == list(range(1, 10))
    assert testbed.is_quiet()


def test_subscriber_attached_just_before_the_restore_is_served(testbed):
    backup = testbed.lab.faults.backup("here")
    testbed.add_subscriber()
    testbed.restore(backup)
    testbed.publish(1, 2)
    assert testbed.received == [1, 2]


def test_subscriber_unknown_to_all_servers_is_served_after_set_policy(testbed):
    """Restore access point and publish server: only the device knows the subscription."""
    backups = {host: testbed.lab.faults.backup(host) for host in ("here", "publish-server")}
    testbed.add_subscriber()
    for host, backup in backups.items():
        testbed.lab.faults.restore(host, backup)
    testbed.publish(1, 2)
    assert testbed.received == []
    testbed.bob.set_policy(POLICY)
    testbed.lab.run(minutes=1)
    assert testbed.received == [1, 2]
    testbed.publish(3, 11)
    assert testbed.received == [1, 2, 11]


def test_subscriber_that_came_back_is_served_by_a_restored_access_point(testbed):
    """The publish server has to note that bob is served here again, at the address from before."""
    backup = testbed.lab.faults.backup("here")
    testbed.add_subscriber()
    testbed.move_device(THERE)
    testbed.move_device(HERE)
    testbed.restore(backup)
    testbed.publish(1, 2)
    assert testbed.received == [1, 2]
    assert testbed.is_quiet()


def test_access_point_stops_asking_a_subscriber_that_is_served_elsewhere(testbed):
    """A late acknowledgement makes the publish server name the access point that bob has left."""
    testbed.add_subscriber()
    testbed.publish(0)
    testbed.lab.world.fault_hook = lambda transfer: (
        (0, 600_000_000) if transfer.to == testbed.net.installed.address else (0,)
    )
    testbed.reconnect()
    testbed.lab.faults.change_address("bob")
    testbed.lab.run(minutes=2)
    testbed.lab.world.fault_hook = None
    testbed.move_device(THERE)
    testbed.lab.run(minutes=15)  # the late acknowledgement has arrived
    testbed.lab.faults.kill("here")
    testbed.lab.faults.restart("here")
    testbed.publish(1)
    assert testbed.received == [0, 1]
    assert testbed.is_quiet()
