"""Processors hold the rows of their partitions, and no others, while partitions move and processors die."""

from __future__ import annotations

from random import Random

import pytest
from mud_holdings import rows_held, rows_needed

from mudkit import Lab
from mudkit.systems import mud
from mudkit.systems.mud.servers.processor import Processor

SPLIT = [f"k{number}" for number in range(1, 8)]
"""Eight partitions."""


class Town:
    """Cloud of several processors, a writer, and a phone that reads all of a table of eight partitions."""

    def __init__(self, processors=3, seed=4, **cloud):
        self.lab = Lab(seed=seed)
        self.cloud = mud.Cloud(self.lab, processors=processors, **cloud)
        self.hosts = [address.split("/")[0] for address in self.cloud.processors]
        self.writer, self.phone = map(self.client, (self.lab.server("writer"), self.lab.device("phone")))
        self.writer.create("t", split=SPLIT).result()
        self.heard, self.count = [], 0
        self.read = self.phone.read(
            "t", "n > 0", "continuous", sync_timestamp=0,
            callback=self.hear,
        ).result()  # fmt: skip
        self.write(24)

    def client(self, host, user="u"):
        return mud.Client(host, self.cloud, app="n", token=self.lab.token(user, "n", hours=999))

    def write(self, times=1, every_s=0.0):
        for _ in range(times):
            self.count += 1
            self.writer.write("t", f"k{self.count % 8} {self.count}", {"n": self.count})
            self.lab.run(seconds=every_s)

    def hear(self, change):
        if isinstance(change, mud.Change) and change.record is not None:
            self.heard.append(change.record["n"])

    def settle(self, seconds=30.0):
        self.lab.run(seconds=seconds)

    def counts(self):
        return {name: len(rows) for name, rows in rows_held(self.cloud, self.lab).items()}

    def check(self, whole=None):
        """Check the rows at each processor, and that the phone has heard of each write once."""
        assert rows_held(self.cloud, self.lab) == rows_needed(self.cloud, self.lab, whole or {})
        assert sorted(self.heard) == [*range(1, self.count + 1)]


def test_each_row_is_at_the_processor_of_its_partition_alone():
    town = Town()
    town.settle()
    town.check()
    assert sum(town.counts().values()) == 24
    assert all(0 < count < 24 for count in town.counts().values())


def test_one_processor_holds_all_rows():
    town = Town(processors=1)
    town.settle()
    assert town.counts() == {"mud-processor-1": 24}


def test_rows_move_with_their_partitions_while_writes_go_on():
    town, draw = Town(), Random(5)
    for _ in range(20):
        town.cloud.move("t", draw.randrange(8), draw.choice(town.hosts)).result()
        town.write(draw.randrange(4), every_s=draw.choice([0.0, 0.01, 0.3]))
    town.settle()
    town.check()
    assert sum(town.counts().values()) == town.count


@pytest.mark.parametrize("seed", range(4))
def test_rows_move_while_messages_are_lost(seed):
    town, draw = Town(seed=seed), Random(seed)
    town.lab.faults.messages(loss_share=0.2, repeat_share=0.2, delay_share=0.2, delay_s=2.0)
    for _ in range(20):
        town.cloud.move("t", draw.randrange(8), draw.choice(town.hosts))
        town.write(draw.randrange(4), every_s=draw.choice([0.0, 0.01, 0.3, 3.0]))
    town.settle(3600)
    town.check()


def test_rows_of_a_dead_processor_are_at_those_that_replace_it():
    town = Town(processors=4)
    town.settle()
    dead = town.hosts[1]
    town.lab.faults.kill(dead)
    town.write(30, every_s=1.0)
    town.settle(600)
    town.check()
    assert sum(town.counts().values()) == town.count
    town.lab.faults.restart(dead)  # a spare
    town.write(3)
    town.settle(60)
    town.check()
    assert town.counts()[dead] == 0
    town.lab.faults.kill(town.hosts[0])
    town.write(30, every_s=1.0)
    town.settle(600)
    town.check()
    assert sum(town.counts().values()) == town.count


@pytest.mark.parametrize("standbys", [0, 1])
def test_rows_after_a_processor_was_restored_from_a_backup(standbys):
    """It knows former assignments only, until the back end tells it the present ones."""
    town = Town(standbys=standbys)
    town.settle()
    backup = town.lab.faults.backup(town.hosts[0])
    for partition in range(8):
        town.cloud.move("t", partition, town.hosts[1 + partition % 2]).result()
    town.write(8)
    town.settle()
    town.lab.faults.restore(town.hosts[0], backup)
    town.settle(5)
    town.check()
    assert town.counts()[town.hosts[0]] == 0


def test_back_end_that_restarts_while_a_partition_moves():
    town = Town()
    town.settle()
    for number in range(6):
        town.cloud.move("t", number, town.hosts[number % 3]).result()
        town.write(2)
        town.lab.faults.kill("mud-store")
        town.lab.run(seconds=0.05 * number)
        town.lab.faults.restart("mud-store")
        town.write(2)
        town.settle(20)
    town.settle(600)
    town.check()


def test_back_end_that_is_restored_from_a_backup_while_a_partition_moves():
    town = Town()
    town.settle()
    backup = town.lab.faults.backup("mud-store")
    town.cloud.move("t", 1, town.hosts[1]).result()
    town.write(8)
    town.lab.faults.restore("mud-store", backup)
    town.settle(600)
    assert rows_held(town.cloud, town.lab) == rows_needed(town.cloud, town.lab, {})


def test_collected_tombstones_are_at_no_processor():
    town = Town(keep_deleted_s=7200.0)
    for number in range(1, 9):
        town.writer.delete("t", f"k{number % 8} {number}")
    town.settle()
    town.cloud.move("t", 1, town.hosts[1]).result()
    town.lab.run(hours=4)
    town.write(8)
    town.settle()
    assert rows_held(town.cloud, town.lab) == rows_needed(town.cloud, town.lab, {})
    assert sum(town.counts().values()) == 24


def test_table_that_a_read_looks_up_is_held_whole_while_it_is_there():
    town = Town()
    town.writer.create("m", split=["k4"]).result()
    for number in range(8):
        town.writer.write("m", f"k{number}", {"ok": number > 3})
    town.settle()
    town.check()
    heard = []
    town.writer.create("s").result()
    read = town.phone.read(
        "s", "lookup('m', who, 'ok')", "continuous", sync_timestamp=0, callback=lambda c: heard.append(c.key)
    ).result()
    for number in range(8):
        town.writer.write("s", f"a{number}", {"who": f"k{number}"})
    town.settle()
    assert heard == ["a4", "a5", "a6", "a7"]
    ranges = town.lab.world.at_address[town.cloud.naming].machine.ranges
    store = town.lab.world.at_address[town.cloud.back_end].machine
    (owner,) = {ranges.processor_of(store._copy.tables["s"].number, 0).split("/")[0]}
    town.check({owner: ["m"]})
    town.phone.unregister(read).result()
    town.settle()
    town.check()


def test_table_that_writers_look_up_is_held_whole_by_those_who_serve_their_records():
    town = Town()
    town.writer.create("m").result()
    town.writer.write("m", "x", {"ok": True})
    town.writer.write("t", "k0 secret", {"n": 25}, predicate="lookup('m', 'x', 'ok')")
    town.count += 1
    town.settle()
    town.check({host: ["m"] for host in town.hosts})
    for partition in range(8):  # the third one has no partition of it any more
        town.cloud.move("t", partition, town.hosts[partition % 2]).result()
    town.settle()
    town.check({host: ["m"] for host in town.hosts[:2]})
    town.cloud.move("t", 0, town.hosts[2]).result()
    town.settle()
    town.check({host: ["m"] for host in town.hosts})
    for host in ("mud-store", town.hosts[2]):
        town.lab.faults.restart(host)
    town.write(8)
    town.settle(600)
    town.check({host: ["m"] for host in town.hosts})
    town.writer.drop("t").result()
    town.settle()
    assert rows_held(town.cloud, town.lab) == rows_needed(town.cloud, town.lab, {})


def test_writer_predicate_sees_records_joined_with_it_as_of_its_write(monkeypatch):
    """Also at the first lookup of a table, and if the processors hear of it only after later writes."""
    town = Town()
    town.writer.create("m", split=["b", "c"]).result()
    for key in "abc":
        town.writer.write("m", key, {"ok": True}).result()
    town.settle()
    with monkeypatch.context() as losing:
        losing.setattr(Processor, "_receive_log", lambda self, now_us, event, message: ())
        for number, key in enumerate("abc", 100):
            predicate = f"lookup('m', '{key}', 'ok')"
            town.writer.write("t", f"k{number} shown", {"n": number}, predicate=predicate).result()
            town.writer.write("m", key, {"ok": False}).result()
            town.writer.write("t", f"k{number} hidden", {"n": number + 100}, predicate=predicate).result()
        assert len(town.heard) == 24
    town.settle(60)
    assert sorted(town.heard)[24:] == [100, 101, 102]


def test_display_of_the_cloud_has_the_rows_of_each_processor():
    town = Town()
    town.settle()
    (table,) = [table for table in town.cloud._view().tables if table.columns[0] == "processor"]
    assert table.columns == ("processor", "partitions", "rows")
    assert {row[0]: int(row[2]) for row in table.rows} == town.counts()
