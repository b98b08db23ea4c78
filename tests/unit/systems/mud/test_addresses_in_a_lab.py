"""Addresses that pass from one device to another, of the same or of another notification server."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems import mud
from mudkit.systems.mud.messages.parts import range_index

LATE_US = 30 * 60 * 1_000_000


class Town:
    """Readers Bob and ``other``, each of the topic of that name; Ann writes.

    The other reader is one of Bob's notification server, or of another one.
    """

    def __init__(self, servers, *, is_at_same_server):
        self.lab = Lab(seed=3)
        self.cloud = cloud = mud.Cloud(self.lab, notification_servers=servers)
        bobs = range_index("bob", servers)
        self.other = next(
            name for name in ("cy", "dee") if (range_index(name, servers) == bobs) == is_at_same_server
        )
        self.host_of_other = cloud.notification_servers[range_index(self.other, servers)].split("/")[0]
        self.host_of_bobs = cloud.notification_servers[bobs].split("/")[0]
        self.ann, *readers = (
            mud.Client(self.lab.device(name), cloud, app="app", token=self.lab.token(name, "app", hours=999))
            for name in ("ann", "bob", self.other)
        )
        self.ann.create("t").result()
        self.read = {"bob": [], self.other: []}
        for (name, keys), reader in zip(self.read.items(), readers, strict=True):
            reader.read(
                "t",
                f"topic = '{name}'",
                type="continuous",
                callback=lambda change, keys=keys: keys.append(change.key),
            ).result()
        self.lab.run(minutes=1)
        self.lab.faults.change_address("bob")  # the first address is its name, which no other can have
        self.lab.run(minutes=2)
        self.address = self.lab.world.hosts["bob"].address
        self.sent = []

    def give_address_away(self):
        """Switch Bob off, and give his address to the other reader."""
        self.lab.faults.switch_off("bob")
        self.lab.run(minutes=1)
        self.lab.faults.change_address("bob")
        self.lab.faults.change_address(self.other, self.address)
        self.lab.faults.cut(self.other, minutes=1)

    def record(self):
        """Record what is sent from now on."""
        self.lab.faults.messages()
        self.lab.world.fault_hook = lambda transfer: self.sent.append((transfer.to, transfer.message)) or (0,)

    def write(self, *names):
        """Write a record for each reader, with its name in the key."""
        for name in names:
            self.ann.write("t", f"for {name}", {"topic": name})

    def list_at_address(self, text):
        """Return what was sent to the address, and contains a text."""
        at = [repr(message) for to, message in self.sent if to.split("/")[0] == self.address]
        return [message for message in at if text in message]


@pytest.fixture(params=["one server", "the same of two", "two servers"])
def town(request):
    return Town(1 if request.param == "one server" else 2, is_at_same_server=request.param != "two servers")


@pytest.mark.parametrize("fault", ["none", "loss", "restart of its server", "restart of the other server"])
def test_changes_are_not_sent_to_the_next_owner_of_an_address(town, fault):
    town.give_address_away()
    town.lab.faults.messages(loss_share=0.4 if fault == "loss" else 0.0)
    town.lab.run(minutes=30)
    if fault.startswith("restart"):
        host = town.host_of_bobs if "its" in fault else town.host_of_other
        town.lab.faults.kill(host)
        town.lab.faults.restart(host)
        town.lab.run(minutes=5)
    town.record()
    town.write("bob", town.other)
    town.lab.run(hours=5)
    assert not town.list_at_address("for bob")
    assert len(town.list_at_address("")) < 60
    assert town.read == {"bob": [], town.other: [f"for {town.other}"]}
    town.lab.faults.switch_on("bob")
    town.lab.run(minutes=5)
    assert town.read["bob"] == ["for bob"]


def test_first_hello_from_the_address_of_another_device_needs_one_question(town):
    """A client without a session is asked once, and the question is remembered (seed 14945 of the campaign)."""
    town.lab.faults.switch_off("bob")
    town.lab.run(minutes=1)
    town.lab.faults.change_address("bob")
    for name in ("eve", "fay"):
        device = town.lab.device(name)
        town.lab.faults.change_address(name, town.address)
        token = town.lab.token(name, "app", hours=999)
        town.record()
        client = mud.Client(device, town.cloud, app="app", token=token)
        keys = []
        client.read(
            "t",
            f"topic = '{name}'",
            type="continuous",
            callback=lambda change, keys=keys: keys.append(change.key),
        ).result()
        town.lab.run(minutes=1)
        assert len(town.list_at_address("Identify")) <= 2, "one of the former owner, one of this device"
        town.write(name)
        town.lab.run(minutes=1)
        assert keys == [f"for {name}"]
        town.lab.faults.switch_off(name)
        town.lab.faults.change_address(name)
        town.sent.clear()


def test_waiting_changes_stop_when_another_device_has_the_address(town):
    town.lab.faults.switch_off("bob")
    town.lab.faults.change_address("bob")
    town.lab.faults.change_address(town.other, town.address)
    town.lab.faults.messages(loss_share=1.0)  # the other device has not said hello from there yet
    town.lab.run(seconds=5)
    town.lab.faults.messages()
    town.write("bob")
    town.lab.run(minutes=2)
    town.record()
    town.lab.run(hours=1)
    assert not town.list_at_address("for bob")


def test_late_hello_takes_no_address_for_long(town):
    """Bob's hello comes half an hour late, when the other reader has his address."""
    town.lab.faults.cut("bob", minutes=0.1)
    town.lab.world.fault_hook = lambda transfer: (LATE_US,) if transfer.sender.host.name == "bob" else (0,)
    town.lab.run(seconds=10)
    town.lab.world.fault_hook = None
    town.give_address_away()
    town.lab.run(hours=1)
    town.record()
    town.write("bob", town.other)
    town.lab.run(minutes=5)
    assert not town.list_at_address("for bob")
    assert town.read == {"bob": [], town.other: [f"for {town.other}"]}


def test_address_may_return_to_its_former_owner(town):
    town.give_address_away()
    town.lab.run(minutes=5)
    town.lab.faults.change_address(town.other)
    town.lab.faults.switch_on("bob")
    town.lab.faults.change_address("bob", town.address)
    town.lab.run(minutes=5)
    town.record()
    town.write("bob", town.other)
    town.lab.run(minutes=5)
    assert not town.list_at_address(f"for {town.other}")
    assert town.read == {name: [f"for {name}"] for name in town.read}
