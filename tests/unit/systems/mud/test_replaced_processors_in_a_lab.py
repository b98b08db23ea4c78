"""Processors that are replaced: continuous reads miss nothing, and nothing comes twice."""

from __future__ import annotations

from collections import Counter

import pytest
from mud_towns import PhoneTown

from mudkit.events import Received
from mudkit.systems.mud.messages.naming import Suspect

SPLIT = [f"k{number}" for number in range(2, 10)]
"""Nine partitions."""


class Town(PhoneTown):
    """Town whose processors are replaced; its table has nine partitions."""

    def __init__(self, processors=3, **cloud):
        super().__init__("processors", 3, SPLIT, processors=processors, **cloud)
        self.begin()

    def key(self):
        return f"k{self.count % 9 + 1} {self.count}"

    def machine(self, number):
        return self.lab.world.at_address[self.cloud.processors[number]].machine

    @property
    def table(self):
        return self.lab.world.at_address[self.cloud.back_end].machine._copy.tables["t"]

    def serves(self, processor, key):
        """Return whether the naming machine has a processor serve the partition of a key."""
        return self.naming.ranges.serves(processor, self.table.number, [self.table.partition_of(key)])

    def count_partitions(self):
        """Count the partitions of the table by the number of the processor that has them."""
        number = self.table.number
        processors = [self.naming.ranges.processor_of(number, partition) for partition in range(9)]
        return Counter(self.cloud.processors.index(processor) for processor in processors)

    def assert_all_heard(self):
        """Check that each phone has heard of each write once."""
        for heard in self.heard.values():
            assert sorted(heard) == [*range(1, self.count + 1)]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_others_share_the_partitions_of_a_dead_processor(number):
    town = Town()
    assert town.count_partitions() == {0: 3, 1: 3, 2: 3}
    town.write(9)
    town.kill(number)
    town.write(60)
    town.assert_all_heard()
    shares = sorted(town.count_partitions().values())
    assert sum(shares) == 9
    assert shares in ([4, 5], [3, 6])
    assert number not in town.count_partitions()
    last = town.writer.read("t", "n > 0", "committed", latest=True).result()
    assert sorted(record["n"] for record in last.records.values()) == [*range(1, town.count + 1)]


def test_partition_is_without_service_for_less_than_15_seconds():
    town = Town()
    town.kill(1)
    written = [town.writer.write("t", f"k{key}", {"n": 1}, type="blind") for key in range(1, 10)]
    town.lab.run(seconds=15)
    assert [operation.status for operation in written] == ["ok"] * 9


def test_silent_processor_is_replaced_too():
    """Messages to it and from it are lost, without a failure that their senders notice."""
    town = Town()
    lost = town.cloud.processors[1]
    town.record_messages(lambda source, to: lost in (source, to))
    town.write(90)
    town.assert_all_heard()
    assert set(town.count_partitions()) == {0, 2}


@pytest.mark.parametrize("kind", ["dead", "silent"])
def test_continuous_reads_go_on_although_nobody_asks_the_dead_processor(kind):
    """It dies after it has passed a write on; the back end misses its acknowledgement of the log."""
    town = Town()
    store = town.lab.world.at_address[town.cloud.back_end].machine
    lsn = store._copy.lsn
    town.write(every_s=0.0)
    while store._copy.lsn == lsn:
        town.lab.run(seconds=0.0001)
    (processor,) = [
        town.cloud.processors.index(one) for one in town.cloud.processors if town.serves(one, "k2 1")
    ]
    if kind == "dead":
        town.kill(processor)
    else:
        silent = town.cloud.processors[processor]
        town.record_messages(lambda source, to: silent in (source, to))
    town.lab.run(seconds=60)
    town.assert_all_heard()
    assert processor not in town.count_partitions()


@pytest.mark.parametrize("store", ["as it was", "a backup", "wiped"])
def test_processor_that_comes_back_is_a_spare_until_another_one_dies(store):
    town = Town(processors=2)
    backup = town.lab.faults.backup(town.hosts[1])
    town.write(9)
    town.kill(1)
    town.write(60)
    if store == "as it was":
        town.lab.faults.restart(town.hosts[1])
    elif store == "a backup":
        town.lab.faults.restore(town.hosts[1], backup)
    else:
        town.lab.faults.restore(town.hosts[1], backup)
        town.lab.world.at_address[town.cloud.processors[1]].machine._store.delete("assignments")
    town.write(20)
    town.assert_all_heard()
    assert town.machine(1)._served.reads == {}
    assert set(town.count_partitions()) == {0}
    town.kill(0)
    town.write(60)
    town.assert_all_heard()
    assert set(town.count_partitions()) == {1}


@pytest.mark.parametrize("times", [1, 2])
def test_live_processor_that_hears_nothing_of_its_replacement_harms_nobody(times):
    """Twice: then it gets partitions back when it has heard of its replacement."""
    town = Town(processors=2)
    naming, processor = town.cloud.naming, town.cloud.processors[1]
    town.record_messages(lambda source, to: {source, to} == {naming, processor})
    suspect = Received(town.cloud.gateways[0], Suspect(processor, 0))
    town.lab.world._handle(town.lab.world.at_address[naming], suspect)
    town.write(60)
    town.assert_all_heard()
    assert set(town.count_partitions()) == {0}
    if times == 2:
        town.lab.faults.messages()
        town.kill(0)
        town.write(60)
        town.assert_all_heard()
        assert set(town.count_partitions()) == {1}


def test_only_processor_is_not_replaced_and_goes_on_when_it_is_back():
    town = Town(processors=1)
    town.kill(0, seconds=1800)
    town.write(5)
    assert town.naming.ranges.epoch == 0
    town.lab.faults.restart(town.hosts[0])
    town.lab.run(minutes=2)
    town.assert_all_heard()


def test_without_the_naming_machine_nobody_takes_over():
    town = Town(processors=2)
    town.lab.faults.kill("mud-names")
    town.kill(1)
    town.write(60)
    assert any(len(heard) < town.count for heard in town.heard.values())
    town.lab.faults.restart("mud-names")
    town.write(60)
    town.lab.run(minutes=1)
    town.assert_all_heard()
    assert set(town.count_partitions()) == {0}


def test_gateway_and_notification_server_that_miss_the_change_are_corrected():
    town = Town(processors=2)
    naming = town.cloud.naming
    deaf = {*town.cloud.gateways, *town.cloud.notification_servers}
    town.record_messages(lambda source, to: source == naming and to in deaf)
    town.kill(1)
    town.write(20)
    town.lab.faults.messages()
    town.lab.faults.kill("mud-names")
    town.lab.faults.restart(town.hosts[1])
    town.write(90)
    town.assert_all_heard()


def test_servers_are_idle_after_a_take_over():
    town = Town(processors=2)
    town.kill(1)
    town.write(60)
    town.lab.faults.restart(town.hosts[1])
    town.lab.run(minutes=30)
    sent = town.record_messages()
    town.lab.run(hours=3)
    assert [message for message in sent if town.cloud.naming in message[:2]] == []


def test_live_processor_that_was_replaced_lacks_entries_and_takes_over_later():
    """The back end does not keep entries for it, whom nobody reaches, and follows it again."""
    town = Town(processors=2)
    lost = town.cloud.processors[1]
    town.record_messages(lambda source, to: lost in (source, to))
    town.write(60)
    store = town.lab.world.at_address[town.cloud.back_end].machine
    assert len(store._log.entries) < 10
    town.lab.faults.messages()
    town.write(10)
    town.kill(0)
    town.write(60)
    town.assert_all_heard()
    assert set(town.count_partitions()) == {1}
