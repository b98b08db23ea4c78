"""What a client keeps on its device: committed records, pending writes, and how far it has seen.

All of it is in the store, and so outlives the machine; what is in memory is a copy for reading.

The paper keeps the last version seen of every record, also of those that it has evicted. Here it is how far
along the log each partition has been seen: every answer must be at least that new. That is one number a
partition, and holds for records too that are gone, hidden or do not match any more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from mudkit.events import Store
from mudkit.systems.mud.tables.records import value_hash
from mudkit.systems.mud.tables.table import Table

__all__ = ["Local", "Write"]

Write: TypeAlias = dict[str, Any]
"""``number, name, key, type, data, predicate, reader, replaces, after, base, invoked_us``: ``replaces`` is
the
global version that a conditional write is to replace, ``after`` the number of the pending write that it
stands on instead, ``base`` the committed version held when it was made, or since then what it stood on."""


class Local:
    """The local store of one client.

    Parameters
    ----------
    store : Store
    most_rows : int
        The number of committed records that are kept; those heard of longest ago go first, never a pending
        write.
    """

    def __init__(self, store: Store, most_rows: int) -> None:
        self._store = store
        self._most_rows = most_rows
        self.tables = {name.removeprefix("table "): Table.of(each) for name, each in store.items("table ")}
        self._rows: dict[tuple[str, str], dict[str, Any]] = {}
        for name, row in sorted(store.items("row\n"), key=lambda each: each[1]["held_us"]):
            _, table, key = name.split("\n")
            self._rows[table, key] = row
        # In the order of their numbers, as their keys in the store are.
        self.writes: dict[int, Write] = {each["number"]: each for _, each in store.items("write ")}
        self._counted = store.get("count of writes") or 0
        """What the store has of :meth:`last_write`; the pending writes are there, too, with their numbers."""
        self._last_write = max([self._counted, *self.writes])
        self._hashes: dict[tuple[str, str], tuple[Mapping[str, Any] | None, str | None]] = {}
        """Of the columns of committed records that were read."""
        self.losses: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """How many records of each table were let go, by partition: what was complete may no longer be."""
        self._pending: dict[tuple[str, str], list[int]] = {}
        for number, write in sorted(self.writes.items()):
            self._pending.setdefault((write["name"], write["key"]), []).append(number)

    # -- committed records

    def row(self, name: str, key: str) -> dict[str, Any] | None:
        """Give the committed version that is held."""
        return self._rows.get((name, key))

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Give all committed versions of a table that are held."""
        for (table, _), row in self._rows.items():
            if table == name:
                yield row

    def hold(self, name: str, table: int, row: Mapping[str, Any], now_us: int) -> None:
        """Hold a committed version, as of now, unless a newer one is held, or it is of another table.

        ``table`` is the number of the table that it was committed in: one of this name may have been dropped.
        """
        key, known = row["key"], self.tables.get(name)
        held = self._rows.get((name, key))
        if known is not None and known.number != table:
            return
        if held is not None and (held["table"], held["ver"]) > (table, row["ver"]):
            return
        kept = {each: row[each] for each in ("key", "ver", "data", "predicate", "lsn")}
        kept |= {"table": table, "held_us": now_us}
        self._store.put(f"row\n{name}\n{key}", kept)
        self._rows.pop((name, key), None)  # to the end: what was heard of last
        self._rows[name, key] = kept
        while len(self._rows) > self._most_rows:
            self.let_go(*next(iter(self._rows)))

    def let_go(self, name: str, key: str) -> None:
        """Hold a record no longer."""
        self._hashes.pop((name, key), None)
        if self._rows.pop((name, key), None) is not None:
            self.losses[name][self.partition_of(name, key)] += 1
            self._store.delete(f"row\n{name}\n{key}")

    def hash_of(self, name: str, key: str, data: Mapping[str, Any] | None) -> str | None:
        """Give the hash of a version's columns; of what is held it is made once."""
        place = name, key
        hashed, made = self._hashes.get(place, (None, None))
        if hashed is not data:
            made = value_hash(data)
            if place in self._rows:
                self._hashes[place] = data, made
        return made

    def partition_of(self, name: str, key: str) -> int:
        """Say in which partition of a table a record is, as far as the table is known."""
        table = self.tables.get(name)
        return 0 if table is None else table.partition_of(key)

    # -- pending writes

    def pending(self, name: str, key: str) -> list[Write]:
        """Give the pending writes of a record, the oldest first."""
        numbers = self._pending.get((name, key))
        return [self.writes[number] for number in numbers] if numbers else []

    def pending_keys(self, name: str) -> list[str]:
        """Give the keys of a table with pending writes."""
        return [key for table, key in self._pending if table == name]

    def heads(self) -> list[Write]:
        """Give the oldest pending write of each record, in the order in which they were made."""
        return [self.writes[number] for number in sorted(numbers[0] for numbers in self._pending.values())]

    def next_number(self, counter: str) -> int:
        """Count up; the counter survives restarts and never repeats."""
        number = (self._store.get(counter) or 0) + 1
        self._store.put(counter, number)
        return int(number)

    def last_write(self) -> int:
        """Give the number of the last write that was made."""
        return self._last_write

    def add(self, write: Write) -> None:
        """Keep a pending write, whose number is greater than that of the last."""
        self.save(write)
        self.writes[write["number"]] = write
        self._last_write = write["number"]
        self._pending.setdefault((write["name"], write["key"]), []).append(write["number"])

    def save(self, write: Write) -> None:
        """Keep what has changed of a pending write."""
        self._store.put(f"write {write['number']:012d}", write)

    def remove(self, write: Write) -> None:
        """Forget a write that is over; its number is not given again."""
        if self._counted < write["number"]:
            self._counted = self._last_write
            self._store.put("count of writes", self._counted)
        place = write["name"], write["key"]
        del self.writes[write["number"]]
        self._pending[place].remove(write["number"])
        if not self._pending[place]:
            del self._pending[place]
        self._store.delete(f"write {write['number']:012d}")

    # -- what is known of tables

    def learn(self, table: Mapping[str, Any]) -> Table:
        """Take note of a table's properties; with another table of this name, all that was held goes."""
        new = Table.of(table)
        known = self.tables.get(new.name)
        if known is not None and known.number > new.number:
            return known  # late news of a table that was dropped
        if known is None or known.number != new.number:
            self.forget(new.name, new.number)
        if known is None or known.lsn < new.lsn or known.number != new.number:
            self.tables[new.name] = new
            self._store.put(f"table {new.name}", new.as_json())
        return self.tables[new.name]

    def forget(self, name: str, since: int) -> None:
        """Forget the tables of a name with lower numbers than this; their pending writes will be refused."""
        known = self.tables.get(name)
        if known is not None and known.number >= since:
            return
        for key in [
            key for (table, key), row in self._rows.items() if table == name and row["table"] < since
        ]:
            self.let_go(name, key)
        if self._seen_of(name) < since:
            self._store.delete(f"seen {name}")
        self._store.delete(f"table {name}")
        self.tables.pop(name, None)

    def number_of(self, name: str) -> int | None:
        """Give the number of the table of a name that this client has heard of last; None: of none."""
        known = self.tables.get(name)
        return (self._seen_of(name) or None) if known is None else known.number

    def seen(self, name: str) -> dict[str, int]:
        """Say up to which entry of the log each partition of a table has been seen."""
        kept = self._store.get(f"seen {name}")
        return {} if kept is None else kept["partitions"]

    def see(self, name: str, table: int, partition: int, lsn: int) -> None:
        """Take note that a partition of the table of a number has been seen up to an entry."""
        number = self.number_of(name) or table
        seen = self.seen(name) if self._seen_of(name) == table else {}
        if number <= table and seen.get(str(partition), 0) < lsn:
            kept = {"table": table, "partitions": {**seen, str(partition): lsn}}
            self._store.put(f"seen {name}", kept)

    def _seen_of(self, name: str) -> int:
        """Give the number of the table of which :meth:`seen` tells; 0: of none."""
        kept = self._store.get(f"seen {name}")
        return 0 if kept is None else int(kept["table"])
