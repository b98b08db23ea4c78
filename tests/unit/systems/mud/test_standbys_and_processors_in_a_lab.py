"""Back end with standbys whose processors are replaced: the next master knows who serves which partition."""

from __future__ import annotations

import pytest
from mud_standbys import Town

from mudkit.events import Received
from mudkit.systems import mud
from mudkit.systems.mud.messages.naming import Assignments
from mudkit.wire import as_wire


def naming_of(town):
    return town.machine(town.cloud.naming)


def back_end_of(town):
    return town.machine(town.cloud.master).back_end


def processor_of(town):
    """Return the processor that serves the only partition of the table."""
    number = back_end_of(town)._copy.tables["t"].number
    return naming_of(town).ranges.processor_of(number, 0)


def lose_assignments(town, is_lost):
    """Lose assignments from now on, by sender and receiver."""

    def fault_hook(transfer):
        is_one = isinstance(transfer.message, Assignments)
        return () if is_one and is_lost(transfer.sender.address, transfer.to) else (0,)

    town.lab.faults.messages()
    town.lab.world.fault_hook = fault_hook


def assert_served_by_another(town, dead):
    """Check that the master knows who serves instead of a dead processor, and keeps no log for it."""
    town.work(seconds=40)
    back_end = back_end_of(town)
    assert processor_of(town) != dead
    assert back_end._ranges.present == naming_of(town).ranges.present
    assert not back_end._ranges.is_serving(dead)
    assert dead in back_end._absent
    assert len(back_end._log.entries) < 10
    assert town.list_problems() == []


@pytest.mark.parametrize("standbys", [1, 2])
def test_next_master_knows_that_a_processor_was_replaced(standbys):
    town = Town(1, standbys=standbys)
    dead = processor_of(town)
    town.work(seconds=5)
    town.kill(dead)
    assert_served_by_another(town, dead)
    for standby in town.cloud.standbys:
        kept = town.lab.world.at_address[standby].store.get("assignments", Assignments)
        assert kept == naming_of(town).ranges.present
    town.kill(town.cloud.master)
    assert_served_by_another(town, dead)
    assert town.cloud.master in town.cloud.standbys


def test_next_master_gets_the_assignments_that_the_former_one_has_missed():
    town = Town(2)
    dead, back_end = processor_of(town), town.cloud.back_end
    lose_assignments(town, lambda source, to: to == back_end)
    town.kill(dead)
    town.work(seconds=40)
    assert naming_of(town).ranges.epoch > back_end_of(town)._ranges.epoch == 0
    town.kill(back_end)
    assert_served_by_another(town, dead)


def test_processor_and_master_die_together():
    town = Town(3)
    dead = processor_of(town)
    town.work(seconds=5)
    town.kill(dead)
    town.kill(town.cloud.master)
    assert_served_by_another(town, dead)


def test_suspicion_waits_only_until_a_dead_standby_is_no_member():
    """A report of the back end waits for the standby, as all that it sends."""
    town = Town(4)
    dead = processor_of(town)
    write = town.clients[0].write("t", "a", {"n": 1})
    while not write.done():
        town.lab.run(seconds=0.0001)
    town.kill(dead)
    town.kill(town.cloud.standbys[0])
    read = town.watcher.read("t", None, "continuous", sync_timestamp=0, callback=lambda change: None)
    town.lab.run(seconds=45)
    assert read.done()
    assert_served_by_another(town, dead)


def test_former_master_learns_the_assignments_with_the_store():
    town = Town(5)
    dead, former = processor_of(town), town.cloud.back_end
    town.kill(former)
    town.work(seconds=20)
    town.kill(dead)
    town.work(seconds=40)
    town.restart(former)
    town.work(seconds=20)
    town.kill(town.cloud.standbys[0])
    assert_served_by_another(town, dead)
    assert town.cloud.master == former


def test_naming_machine_is_idle_when_the_master_has_the_assignments():
    town = Town(6, standbys=2)
    town.kill(processor_of(town))
    town.work(seconds=60)
    dead = [address for address in town.cloud.processors if address != processor_of(town)]
    town.restart(dead[0])
    town.lab.run(minutes=30)
    sent = []
    town.lab.faults.messages()
    town.lab.world.fault_hook = lambda transfer: sent.append((transfer.sender.address, transfer.to)) or (0,)
    town.lab.run(hours=3)
    assert [pair for pair in sent if town.cloud.naming in pair] == []


ODD = [None, -1, "x", [], {}, 1 << 70, True, ["x"], [[1, "0", "x"]], [[1, "x", "mud-processor-1/mud"]]]


def test_odd_assignments_are_dropped_and_a_standby_does_not_acknowledge_any():
    town = Town(7)
    world, naming = town.lab.world, town.cloud.naming
    present = naming_of(town).ranges.present
    for address in town.stores:
        for name in as_wire(present):
            for odd in ODD:
                fields = {**as_wire(present), "epoch": 7, name: odd}
                world._handle(world.at_address[address], Received(naming, fields))
    later = Received(naming, {**as_wire(present), "epoch": 9})
    assert town.machine(town.cloud.standbys[0]).handle(town.now_us, later) == ()
    world._handle(world.at_address[town.cloud.master], later)
    town.lab.run(minutes=1)
    assert back_end_of(town)._ranges.epoch == 9
    assert town.lab.problems.empty
    town.work(seconds=5)
    assert town.list_problems() == []


def test_display_counts_the_partitions_that_processors_serve_by_the_master():
    town = Town(8)
    town.kill(town.cloud.back_end)
    town.work(seconds=30)
    (shown,) = [table for table in mud.Cloud._view(town.cloud).tables if "processor" in table.columns]
    served = processor_of(town).split("/")[0]
    assert {row[0]: int(row[1]) for row in shown.rows}[served] == 1
