"""Rows that the processors of a cloud hold, compared with those that the assignments give them."""

from __future__ import annotations


def rows_held(cloud, lab):
    """Return what each processor that runs holds: rows by table and key, by the name of its server."""
    of_servers = {}
    for address in cloud.processors:
        machine = lab.world.at_address[address].machine
        if machine is not None:
            of_servers[address.split("/")[0]] = _rows_of(machine._log.copy, lambda table, partition: True)
    return of_servers


def rows_needed(cloud, lab, whole=None):
    """Return what each processor that runs has to hold: the rows of its partitions, and tables whole.

    ``whole`` has the names of these by the name of the server; None: those that it says itself.
    """
    store = lab.world.at_address[cloud.master].machine
    copy = getattr(store, "back_end", store)._copy
    ranges = lab.world.at_address[cloud.naming].machine.ranges
    needed = {}
    for address in cloud.processors:
        machine, name = lab.world.at_address[address].machine, address.split("/")[0]
        if machine is not None:
            tables = machine._log.holding.tables if whole is None else whole.get(name, ())
            needed[name] = _rows_of(
                copy,
                lambda table, partition, address=address, tables=tables: (
                    table.name in tables or ranges.processor_of(table.number, partition) == address
                ),
            )
    return needed


def _rows_of(copy, is_needed):
    """Return the rows of a copy in some partitions of its tables, by table and key."""
    return {
        (table.name, row.key): row
        for table in copy.tables.values()
        for partition in range(table.partitions)
        if is_needed(table, partition)
        for row in copy.rows(table, [partition])
    }
