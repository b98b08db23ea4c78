"""Log of the back end, and what its entries have made: tables and rows. Both are durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from mudkit.events import Store
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.servers import CollectEntry, DropEntry, LogEntry, RowEntry, TableEntry
from mudkit.systems.mud.tables.replica import TableReplica
from mudkit.systems.mud.tables.table import Table

BEFORE_FIRST: Final = 1_000_000_000
"""Position in the log before the first entry.

All positions have the same number of digits, so that the length and the time of an answer do not reveal how
many records are hidden from the reader.
"""
_ENTRY: Final = cast("type[LogEntry]", LogEntry)


class CommittedLog:
    """Log of a ``store``, and a ``copy`` of its tables and rows in memory; ``follow`` gets each entry."""

    def __init__(self, store: Store, follow: Callable[[LogEntry], None]) -> None:
        self._store, self._follow = store, follow
        self.copy = TableReplica()
        tables = [table for _, table in store.items("table ", Table)]
        rows = [(key.split("\n")[1], row) for key, row in store.items("row\n", Row)]
        self.copy.load(store.get("lsn", int) or BEFORE_FIRST, tables, rows)
        self.entries = {entry.lsn: entry for _, entry in store.items("log ", _ENTRY)}
        """Entries that not all followers have acknowledged, in order, as they are stored."""

    def put_table(self, table: Table) -> None:
        """Create or alter a table."""
        self._store.put(f"table {table.name}", table)
        self.append(TableEntry(self.copy.lsn + 1, table))

    def drop_table(self, name: str) -> None:
        """Drop a table with all its rows."""
        self._store.delete(f"table {name}")
        self._store.delete(_collected_key(name))
        for key in self._store.keys(f"row\n{name}\n"):
            self._store.delete(key)
        self.append(DropEntry(self.copy.lsn + 1, name))

    def put_row(self, entry: RowEntry) -> None:
        """Store the version of a record that an entry has."""
        self._store.crash_point("decided, not in the log")
        self._store.put(f"row\n{entry.name}\n{entry.row.key}", entry.row)
        self.append(entry)

    def remove_tombstones(self, table: Table, rows: Sequence[Row]) -> None:
        """Remove tombstones of a table."""
        for row in rows:
            self._store.delete(f"row\n{table.name}\n{row.key}")
        until_lsn = max(row.lsn for row in rows)
        self._store.put(_collected_key(table.name), until_lsn)
        self.append(CollectEntry(self.copy.lsn + 1, table.name, until_lsn))

    def has_removed_tombstones(self, table: Table) -> bool:
        """Return whether tombstones of a table were ever removed."""
        return self._store.get(_collected_key(table.name)) is not None

    def append(self, entry: LogEntry) -> None:
        """Store the next entry, and apply it to the copy in memory."""
        self._store.put(f"log {entry.lsn:015d}", entry)
        self._store.put("lsn", entry.lsn)
        self.entries[entry.lsn] = entry
        self.copy.apply(entry)
        self._follow(entry)

    def entries_after(self, lsn: int) -> list[LogEntry] | None:
        """Return the entries after a position; None: some of them were deleted."""
        numbers = range(lsn + 1, self.copy.lsn + 1)
        if numbers and numbers[0] not in self.entries:
            return None
        return [self.entries[number] for number in numbers if number in self.entries]

    def delete_through(self, lsn: int) -> None:
        """Delete the entries up to a position."""
        while self.entries and (number := next(iter(self.entries))) <= lsn:
            del self.entries[number]
            self._store.delete(f"log {number:015d}")


def _collected_key(name: str) -> str:
    """Return the store key of the position up to which tombstones of a table were removed."""
    return f"collected {name}"
