"""Partitions that are moved while they are read and written, and moves that are refused."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError, TableProblem
from mudkit.systems import mud


class Place:
    """Cloud of three processors, a table of three partitions, a writer and a phone that reads all of it."""

    def __init__(self, **cloud):
        self.lab = Lab(seed=4)
        self.cloud = mud.Cloud(self.lab, **{"processors": 3, **cloud})
        self.writer, self.phone = (
            mud.Client(host, self.cloud, app="n", token=self.lab.token("u", "n", hours=99))
            for host in (self.lab.server("writer"), self.lab.device("phone"))
        )
        self.writer.create("t", split=["g", "p"]).result()
        self.heard = []
        self.phone.read(
            "t", None, "continuous", sync_timestamp=0, callback=lambda change: self.heard.append(change.key)
        )
        self.lab.run(minutes=1)
        self.keys = []

    def write(self):
        """Write a record of each partition."""
        for prefix in "aho":
            self.keys.append(f"{prefix}{len(self.keys)}")
            self.writer.write("t", self.keys[-1], {"n": 1}).result()
        self.lab.run(seconds=2)

    def owners(self):
        """Return the names of the processors of the partitions, for the naming machine and for each gateway."""
        machines = [
            self.lab.world.at_address[one].machine for one in (self.cloud.naming, *self.cloud.gateways)
        ]
        ranges = [machines[0].ranges, *(gateway._ranges for gateway in machines[1:])]
        number = machines[1]._tables.tables["t"].number
        owners = {
            tuple(one.processor_of(number, partition).split("/")[0] for partition in range(3))
            for one in ranges
        }
        (known,) = owners
        return known


def test_partition_moves_while_writes_go_on():
    place = Place()
    for processor in (2, 3, 1, 1):
        for partition in range(3):
            place.cloud.move("t", partition, f"mud-processor-{processor}").result()
            place.write()
            assert place.owners()[partition] == f"mud-processor-{processor}"
    assert place.owners() == ("mud-processor-1",) * 3
    assert place.heard == place.keys


def test_partition_that_moves_back_is_not_stored_as_moved():
    place = Place()
    first = place.owners()
    other = next(f"mud-processor-{number}" for number in (1, 2, 3) if first[1] != f"mud-processor-{number}")
    place.cloud.move("t", 1, other).result()
    place.lab.run(seconds=1)
    assert place.owners() == (first[0], other, first[2])
    place.cloud.move("t", 1, first[1]).result()
    place.lab.run(seconds=1)
    assert place.owners() == first
    assert place.lab.world.at_address[place.cloud.naming].machine.ranges.present.moved == []


def test_moved_partition_of_a_dead_processor_is_served_again():
    place = Place()
    for partition in range(3):
        place.cloud.move("t", partition, "mud-processor-2").result()
    place.write()
    place.lab.faults.kill("mud-processor-2")
    place.write()
    place.lab.run(minutes=1)
    assert "mud-processor-2" not in place.owners()
    assert sorted(place.heard) == sorted(place.keys)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("t", 0, "mud-procesor-2"), ParameterError, "did you mean 'mud-processor-2'"),
        (("t", 0, "mud-processor-4"), ParameterError, "mud-processor-1, mud-processor-2, mud-processor-3"),
        (("t", 3, "mud-processor-2"), ParameterError, "at most 2"),
        (("t", -1, "mud-processor-2"), ParameterError, "partition"),
        (("u", 0, "mud-processor-2"), TableProblem, "did you mean|create it first"),
        (("t\n", 0, "mud-processor-2"), TableProblem, "no such table"),
    ],
)
def test_unusable_moves_are_refused_in_words(arguments, kind, words):
    place = Place()
    before = place.owners()
    with pytest.raises(kind, match=words):
        place.cloud.move(*arguments).result()
    assert place.owners() == before


def test_partition_is_not_moved_to_a_processor_that_does_not_answer():
    place = Place()
    place.lab.faults.kill("mud-processor-2")
    with pytest.raises(ParameterError, match="processor has not answered"):
        place.cloud.move("t", 0, "mud-processor-2").result()
    assert "mud-processor-2" in place.owners()
    place.cloud.move("t", place.owners().index("mud-processor-2"), "mud-processor-3").result()
    place.write()


def test_moves_need_a_gateway_that_knows_the_tables():
    place = Place()
    place.lab.faults.kill("mud-gateway-1")
    place.cloud.move("t", 0, "mud-processor-2").result()  # the other one knows them
    place.lab.faults.kill("mud-gateway-2")
    with pytest.raises(ParameterError, match="gateway has not answered"):
        place.cloud.move("t", 1, "mud-processor-2").result()


def test_naming_machine_that_was_restored_moves_nothing_before_it_knows_the_later_assignments():
    place = Place()
    backup = place.lab.faults.backup("mud-names")
    place.cloud.move("t", 0, "mud-processor-3").result()
    place.lab.run(seconds=1)
    place.lab.faults.restore("mud-names", backup)
    place.cloud.move("t", 1, "mud-processor-3").result()
    place.lab.run(seconds=1)
    assert place.owners()[:2] == ("mud-processor-3", "mud-processor-3")


def test_cloud_shows_how_many_partitions_each_processor_serves():
    place = Place()
    for partition in range(3):
        place.cloud.move("t", partition, "mud-processor-2").result()
    tables = place.cloud._view().tables
    (rows,) = [table.rows for table in tables if "processor" in table.columns]
    assert {row[0]: row[1] for row in rows} == {
        "mud-processor-1": 0,
        "mud-processor-2": 3,
        "mud-processor-3": 0,
    }


@pytest.mark.parametrize("when", ["before", "during"])
def test_device_whose_gateway_is_dead_uses_the_next_one(when):
    """Writes are applied once, whether or not the dead gateway has passed them on."""
    place = Place()
    place.phone.write("t", "a", {"n": 0}).result()
    service = place.lab.world.at_address["phone/mud"].machine
    current = service._current_gateway().split("/")[0]
    if when == "before":
        place.lab.faults.kill(current)
    counted = [place.phone.increment("t", "a", "n") for _ in range(3)]
    if when == "during":
        place.lab.run(seconds=0.02)
        place.lab.faults.kill(current)
    place.lab.run(seconds=15)
    assert [operation.status for operation in counted] == ["ok"] * 3
    read = place.phone.read("t", "n > 0", "committed", latest=True).result()
    assert read.records["a"]["n"] == 3


def test_device_uses_the_next_gateway_when_the_one_that_it_uses_is_silent():
    """Its messages are lost without a failure; a gateway that answers something else is not silent."""
    place = Place()
    service = place.lab.world.at_address["phone/mud"].machine
    current = service._current_gateway()
    lost = [current]
    place.lab.faults.messages()
    place.lab.world.fault_hook = lambda transfer: (
        () if transfer.sender.address in lost or transfer.to in lost else (0,)
    )
    written = place.phone.write("t", "a", {"n": 1})
    place.lab.run(seconds=29)
    assert (written.status, service._current_gateway()) == ("open", current)
    place.lab.run(seconds=3)
    assert written.status == "ok"
    assert service._current_gateway() != current
    place.phone.read("t", "n > 0", "committed", latest=True).result()


def test_gateway_is_not_silent_because_a_link_was_down():
    place = Place(gateways=9)
    service = place.lab.world.at_address["phone/mud"].machine
    current = service._current_gateway()
    written = place.phone.write("t", "a", {"n": 1})
    for _ in range(5):
        place.lab.faults.messages(loss_share=1.0)
        place.lab.run(seconds=4)
        place.lab.faults.cut("phone", minutes=0.1)
        place.lab.run(seconds=8)
    place.lab.faults.messages()
    place.lab.run(seconds=15)
    assert (written.status, service._current_gateway()) == ("ok", current)
