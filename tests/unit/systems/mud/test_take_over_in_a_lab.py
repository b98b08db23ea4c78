"""Notification servers that are replaced: continuous reads miss nothing, and nothing comes twice."""

from __future__ import annotations

from collections import Counter

import pytest
from busy_labs import POLICY
from mud_towns import PhoneTown
from odd_messages import garble_messages

from mudkit.events import Received
from mudkit.systems import mud
from mudkit.systems.mud.messages.naming import Assignments, Suspect
from mudkit.systems.mud.messages.parts import server_of_session
from mudkit.wire import as_wire

PHONES = 6


class Town(PhoneTown):
    """Town whose notification servers are replaced."""

    def __init__(self, servers=2, **phone):
        super().__init__("notification_servers", PHONES, phone=phone, notification_servers=servers)

    def servers_of_sessions(self):
        """Count the phones by the number of the server with which they have a session."""
        machines = [phone.installed.machine for phone in self.phones.values()]
        sessions = [machine.continuous_reads._registrations.session for machine in machines]
        return Counter(self.cloud.notification_servers.index(server_of_session(name)) for name in sessions)

    def assert_all_heard(self):
        """Check that each phone has heard of each write once, and in order."""
        assert self.heard == {name: [*range(1, self.count + 1)] for name in self.phones}


@pytest.mark.parametrize("number", [0, 1])
def test_another_server_takes_over_from_a_dead_one(number):
    """The first one is that which each device asks first."""
    town = Town().begin()
    town.write()
    assert set(town.servers_of_sessions()) == {0, 1}
    town.kill(number)
    town.write(60)
    town.assert_all_heard()
    assert town.servers_of_sessions() == {1 - number: PHONES}


@pytest.mark.parametrize("number", [0, 1])
def test_devices_that_start_find_a_live_server(number):
    town = Town()
    town.kill(number)
    town.begin()
    town.lab.run(minutes=1)
    town.write(2)
    town.assert_all_heard()


def test_idle_reads_move_without_a_write():
    """Processors report the devices, which would not notice it before their next heartbeat."""
    town = Town().begin()
    town.kill(1)
    town.lab.world.at_address[town.cloud.processors[0]]
    town.lab.device("new")
    town.client(town.lab.devices["new"]).read("t", None, "continuous")
    town.lab.world._handle(
        town.lab.world.at_address[town.cloud.naming],
        Received(town.cloud.processors[0], Suspect(town.cloud.notification_servers[1], 0)),
    )
    town.lab.run(seconds=20)
    assert town.servers_of_sessions() == {0: PHONES}


def test_heartbeat_finds_the_new_server_of_a_device_without_reads():
    town = Town(read_policy=mud.ShippedPolicy())
    town.lab.run(minutes=1)
    town.kill(0)
    town.lab.run(minutes=22)
    town.cloud.ship(POLICY, app="n").result()
    town.lab.run(minutes=2)
    versions = [phone.policies().result()["read"]["version"] for phone in town.phones.values()]
    assert versions == [POLICY.version] * PHONES


def test_policies_arrive_that_were_shipped_while_a_server_was_dead():
    town = Town(read_policy=mud.ShippedPolicy()).begin()
    town.kill(1)
    town.cloud.ship(POLICY, app="n").result()
    town.write(60)
    versions = [phone.policies().result()["read"]["version"] for phone in town.phones.values()]
    assert versions == [POLICY.version] * PHONES


@pytest.mark.parametrize("store", ["as it was", "a backup", "wiped"])
def test_server_that_comes_back_is_a_spare_until_another_one_dies(store):
    town = Town()
    wiped = town.lab.faults.backup(town.hosts[1])
    town.begin()
    backup = town.lab.faults.backup(town.hosts[1])
    town.kill(1)
    town.write(60)
    if store == "as it was":
        town.lab.faults.restart(town.hosts[1])
    else:
        town.lab.faults.restore(town.hosts[1], wiped if store == "wiped" else backup)
    town.write(60)
    assert town.servers_of_sessions() == {0: PHONES}
    assert town.lab.world.at_address[town.cloud.notification_servers[1]].machine._sessions == {}
    town.kill(0)
    town.write(60)
    assert town.servers_of_sessions() == {1: PHONES}
    town.assert_all_heard()


def test_live_server_that_hears_nothing_of_its_replacement_harms_nobody():
    town = Town().begin()
    naming, server = town.cloud.naming, town.cloud.notification_servers[1]
    town.record_messages(lambda source, to: {source, to} == {naming, server})
    suspect = Received(town.cloud.processors[0], Suspect(server, 0))
    town.lab.world._handle(town.lab.world.at_address[naming], suspect)
    town.write(60)
    town.assert_all_heard()
    assert town.servers_of_sessions() == {0: PHONES}
    town.lab.faults.kill("p0")  # it asks the first server first, and has heard of no epoch
    town.lab.faults.restart("p0")
    town.write(60)
    town.assert_all_heard()


def test_without_the_naming_machine_all_goes_on_but_nobody_takes_over():
    town = Town().begin()
    town.lab.faults.kill("mud-names")
    town.write(10)
    town.assert_all_heard()
    town.kill(1)
    town.write(120)
    assert town.servers_of_sessions()[1] > 0
    assert any(len(heard) < town.count for heard in town.heard.values())
    town.lab.faults.restart("mud-names")
    town.lab.run(minutes=2)
    town.assert_all_heard()
    assert town.servers_of_sessions() == {0: PHONES}


@pytest.mark.parametrize("also_dead", [0, 2])
def test_naming_machine_that_was_restored_goes_on_above_what_servers_know(also_dead):
    town = Town(servers=3)
    backup = town.lab.faults.backup("mud-names")
    town.begin()
    town.kill(1)
    town.write(60)
    before = town.naming.ranges.present
    assert before.epoch > 0
    town.lab.faults.restore("mud-names", backup)
    town.lab.run(seconds=1)
    assert town.naming.ranges.epoch == 0
    town.kill(also_dead)
    town.write(60)
    after = town.naming.ranges.present
    assert after.epoch > before.epoch
    (live,) = {0, 2} - {also_dead}
    assert set(after.servers) == {town.cloud.notification_servers[live]}
    town.assert_all_heard()


def test_naming_machine_that_restarts_repeats_its_last_change():
    town = Town().begin()
    processor = town.cloud.processors[0]
    town.record_messages(lambda source, to: (source, to) == (town.cloud.naming, processor))
    town.kill(1)
    town.write(60)
    machine = town.lab.world.at_address[processor].machine
    assert (machine._ranges.epoch, town.naming.ranges.epoch > 0) == (0, True)
    town.lab.faults.messages()
    town.lab.faults.kill("mud-names")
    town.lab.faults.restart("mud-names")
    town.lab.run(seconds=1)
    assert machine._ranges.present == town.naming.ranges.present
    town.lab.run(minutes=2)
    town.assert_all_heard()


def test_only_server_is_not_replaced_and_goes_on_when_it_is_back():
    town = Town(servers=1).begin()
    town.kill(0, seconds=1800)
    town.write(5)
    assert town.naming.ranges.epoch == 0
    town.lab.faults.restart(town.hosts[0])
    town.lab.run(minutes=2)
    town.assert_all_heard()


def test_nothing_changes_while_all_servers_are_dead():
    town = Town().begin()
    town.kill(0)
    town.kill(1)
    town.write(60)
    assert town.naming.ranges.epoch == 0
    town.lab.faults.restart(town.hosts[0])
    town.lab.run(minutes=3)
    town.assert_all_heard()
    assert town.servers_of_sessions() == {0: PHONES}


def test_naming_machine_is_idle_while_nobody_suspects_a_server():
    town = Town().begin()
    sent = town.record_messages()
    for _ in range(20):
        town.write(every_s=3600.0)
    assert len(sent) > 1000
    assert [to for source, to, _ in sent if town.cloud.naming in (source, to)] == []
    fields = {name for _, _, message in sent for name in as_wire(message)}
    assert not fields & {"epoch", "unanswered"}


def test_acknowledged_change_is_told_no_more():
    town = Town(servers=3).begin()
    town.kill(1)
    town.write(60)
    town.lab.faults.restart(town.hosts[1])
    town.lab.run(minutes=30)
    sent = town.record_messages()
    town.lab.run(hours=3)
    assert [message for *_, message in sent if isinstance(message, Assignments)] == []


def test_cloud_shows_how_many_ranges_each_server_has():
    town = Town().begin()
    assert list_ranges(town.cloud) == {"mud-notifications-1": 1, "mud-notifications-2": 1}
    town.kill(1)
    town.write(30)
    assert list_ranges(town.cloud) == {"mud-notifications-1": 2, "mud-notifications-2": 0}
    town.lab.faults.kill("mud-names")
    assert list_ranges(town.cloud) == {}


def list_ranges(cloud):
    tables = cloud._view().tables
    return dict(row for table in tables if "ranges of devices" in table.columns for row in table.rows)


@pytest.mark.parametrize("seed", range(3))
def test_garbled_messages_cause_no_failure_during_a_take_over(seed):
    town = Town().begin()
    town.kill(1)
    with garble_messages(town.lab, seed) as sent:
        town.write(60)
    assert "Naming" in sent
    assert town.lab.problems.empty
