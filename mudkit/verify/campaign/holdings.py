"""Judgement of what the processors of a run hold at its end: the rows of their partitions, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mudkit.systems.mud import Cloud


def list_wrong_rows(cloud: Cloud, world: Any, master: str) -> Iterator[str]:
    """Yield in words which processors lack rows, have old ones, or have some that they need not hold.

    One that is dead is not judged. Tables in which predicates look up records may be held whole. A naming
    machine that was restored may know less than the back end of who serves what. ``master`` is the address of
    the store that is the back end.
    """
    store, naming = _machine_at(world, master), _machine_at(world, cloud.naming)
    back_end = getattr(store, "back_end", store)  # without standbys the store is the back end
    if back_end is None or naming is None:
        return
    ranges = max(back_end._ranges, naming.ranges, key=lambda ranges: ranges.epoch)
    for address in cloud.processors:
        machine = _machine_at(world, address)
        if machine is None:
            continue
        log, whole = machine._log, set[str]()
        if log.holding is not None:
            whole |= {*log.holding.tables}
        needed = {
            (table.name, row.key): row
            for table in back_end._copy.tables.values()
            for partition in range(table.partitions)
            if table.name in whole or ranges.processor_of(table.number, partition) == address
            for row in back_end._copy.rows(table, [partition])
        }
        present = {
            (table.name, row.key): row
            for table in log.copy.tables.values()
            for row in log.copy.rows(table, range(table.partitions))
        }
        for name, key in sorted(needed.keys() | present.keys()):
            if needed.get((name, key)) != present.get((name, key)):
                yield (
                    f"{address} holds {present.get((name, key))} of {name!r}, key {key!r}, "
                    f"where it has to hold {needed.get((name, key))}"
                )


def _machine_at(world: Any, address: str) -> Any:
    """Return the machine of an address; None: it does not run."""
    machine = world.at_address[address].machine
    return getattr(machine, "observed", machine)  # stores with standbys are not observed
