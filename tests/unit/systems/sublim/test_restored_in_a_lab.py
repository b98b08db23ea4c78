"""An access point that comes back from an old backup: its subscribers are served on, and told nothing twice."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems import sublim
from mudkit.systems.sublim import Policy, Rule
from mudkit.systems.sublim._policy.actions import Drop

POLICY = Policy("large", [Rule("message.n < 10", [Drop()]), Rule()])
HERE, THERE = (44.43, 26.10), (44.45, 26.10)


class Place:
    """Two access points, and Bob, who carries his device from one to the other."""

    def __init__(self) -> None:
        self.lab = Lab(seed=1)
        self.net = sublim.PublishServer(self.lab)
        for name, at in (("here", HERE), ("there", THERE)):
            sublim.AccessPoint(self.lab, self.net, at=at, range_m=150, name=name)
        self.heard: list[int] = []
        self.lab.run(minutes=1)

    def arrive(self) -> None:
        self.device = self.lab.device("bob", link="wifi", at=HERE)
        self.bob = sublim.Subscriber(self.device, self.net)
        self.bob.on_message(lambda message: self.heard.append(message["n"]))
        self.lab.run(minutes=1)

    def publish(self, *numbers: int) -> None:
        for number in numbers:
            self.net.publish({"n": number})
            self.lab.run(seconds=20)

    def move(self, at: tuple[float, float]) -> None:
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

    def messages(self) -> int:
        return sum(row.messages for row in self.lab.world.bill())

    def is_quiet(self) -> bool:
        """Return whether nobody loops."""
        before = self.messages()
        self.lab.run(hours=1)
        return self.messages() - before < 50


@pytest.fixture
def place():
    return Place()


def test_who_has_come_since_the_backup_is_served_when_it_connects_again(place):
    backup = place.lab.faults.backup("here")
    place.arrive()
    place.publish(0, 1, 2)
    place.restore(backup)
    place.publish(3)
    place.reconnect()
    place.publish(4)
    assert place.heard == [0, 1, 2, 3, 4]
    assert "no access point knows" in place.incidents()[0]
    assert place.is_quiet()


def test_a_subscriber_is_asked_what_it_has(place):
    place.arrive()
    place.publish(0)
    backup = place.lab.faults.backup("here")
    place.publish(1, 2)
    place.restore(backup)
    place.publish(3)
    assert place.heard == [0, 1, 2, 3]
    assert place.incidents() == ["bob: its access point does not know deliveries 2 to 3"]
    assert place.is_quiet()


def test_what_was_published_while_the_subscriber_was_away_is_delivered(place):
    place.arrive()
    place.publish(0)
    backup = place.lab.faults.backup("here")
    place.lab.faults.cut("bob")
    place.publish(1)
    place.restore(backup)
    place.publish(2)
    place.lab.faults.mend("bob")
    place.publish(3)
    assert place.heard == [0, 1, 2, 3]
    assert place.incidents() == []


def test_a_policy_that_was_set_since_the_backup_is_set_again(place):
    place.arrive()
    backup = place.lab.faults.backup("here")
    place.bob.set_policy(POLICY).result()
    place.restore(backup)
    place.publish(1, 11, 2, 12)
    assert place.heard == [11, 12]


def test_one_that_was_served_elsewhere_since_is_not_served_from_the_backup(place):
    place.arrive()
    place.publish(0, 1)
    backup = place.lab.faults.backup("here")
    place.move(THERE)
    place.publish(2, 3)
    place.restore(backup)
    place.publish(4)
    place.move(HERE)
    place.publish(5)
    assert place.heard == [0, 1, 2, 3, 4, 5]
    assert place.is_quiet()


def test_one_whose_state_is_lost_where_it_was_begins_anew_elsewhere(place):
    backup = place.lab.faults.backup("here")
    place.arrive()
    place.publish(0, 1)
    place.restore(backup)
    place.publish(2)
    place.move(THERE)
    place.publish(3)
    assert place.heard == [0, 1, 2, 3]
    assert place.is_quiet()


def test_a_plain_restart_is_no_incident(place):
    place.arrive()
    place.publish(0)
    place.lab.faults.kill("here")
    place.lab.faults.restart("here")
    place.publish(1)
    assert place.heard == [0, 1]
    assert place.incidents() == []


@pytest.mark.parametrize("knows_bob", [False, True])
@pytest.mark.parametrize("loss_share", [0.0, 0.4])
def test_a_silent_subscriber_is_found_at_its_new_address(place, knows_bob, loss_share):
    """It attached, or moved, since the backup, and has nothing to say: the publish server knows where it is."""
    backup = place.lab.faults.backup("here")
    place.arrive()
    if knows_bob:
        place.publish(0)
        backup = place.lab.faults.backup("here")
        place.lab.faults.change_address("bob")
        place.lab.run(minutes=1)
    place.lab.faults.messages(loss_share=loss_share)
    place.publish(1, 2, 3, 4, 5, 6)
    place.restore(backup)
    place.publish(7, 8)
    place.lab.faults.messages()
    place.lab.run(minutes=3)
    place.publish(9)
    assert place.heard[-3:] == [7, 8, 9]  # what was published before the restore may be lost
    assert loss_share or place.heard[-9:] == list(range(1, 10))
    assert place.is_quiet()


def test_a_subscriber_that_came_just_before_the_restore_is_found(place):
    backup = place.lab.faults.backup("here")
    place.arrive()
    place.restore(backup)
    place.publish(1, 2)
    assert place.heard == [1, 2]


def test_a_subscriber_that_no_server_knows_any_more_is_found_when_it_reports(place):
    """Restored access point and publish server: only the device knows that it has subscribed."""
    backups = {host: place.lab.faults.backup(host) for host in ("here", "publish-server")}
    place.arrive()
    for host, backup in backups.items():
        place.lab.faults.restore(host, backup)
    place.publish(1, 2)
    assert place.heard == []
    place.bob.set_policy(POLICY)
    place.lab.run(minutes=1)
    assert place.heard == [1, 2]
    place.publish(3, 11)
    assert place.heard == [1, 2, 11]
