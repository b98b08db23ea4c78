"""In-memory copy of all tables, used by the back end, its replicas and the processors.

Changes are entries of one log, numbered by ``lsn``. A copy that has applied every entry up to a number is the
state at that time. Replicas apply entries later, but in the same order: the timeline consistency of PNUTS,
for all records at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from math import inf
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.errors import MudkitError
from mudkit.predicates import Aggregates, Predicate
from mudkit.systems.mud.messages.holdings import Holding, is_in_all
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.servers import (
    CollectEntry,
    DropEntry,
    LogEntry,
    RowEntry,
    TableEntry,
    TablesState,
)
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.table import Table, Version, no_such_table_error
from mudkit.tokens import Claims
from mudkit.wire import Fields, Value

_NESTED: Final = frozenset({dict, list})


def columns_of(version: Version, table: Table | None = None) -> dict[str, Value]:
    """Return the columns of a version; without those removed later if the table is known."""
    return dict(version.data or {}) if table is None else table.visible_columns(version)


def record_of(version: Version, table: Table | None = None) -> dict[str, Value]:
    """Return a version as predicates see it: its columns and its ``key``."""
    columns = (version.data or {}) if table is None or not table.removed else table.visible_columns(version)
    return {**columns, "key": version.key}


def copy_record(data: Fields) -> dict[str, Value]:
    """Return a copy of a record that an application may change."""
    if _NESTED.isdisjoint(map(type, data.values())):
        return dict(data)
    return deepcopy(dict(data))


def claims_of(auth: Mapping[str, str]) -> Claims | None:
    """Return the claims of a reader as far as access to tables depends on them."""
    return Claims(auth["app"], auth.get("user"), None, inf) if "app" in auth else None


def is_visible(
    version: Version,
    reader: Fields,
    auth: Mapping[str, str],
    table: Table | None = None,
    tables: JoinedTables | None = None,
) -> bool:
    """Return whether the writer of a version shows it to a reader (Mobius 3); False if its predicate fails.

    ``tables`` are those in which the predicate may look up records.
    """
    if version.predicate is None:
        return True
    try:
        writer = version.predicate.predicate()
        return writer(record_of(version, table), tables=tables, receiver=reader, auth=auth) is True
    except MudkitError:
        return False


def visible_row(row: Row, table: Table) -> Row:
    """Return a row as clients get it, without the columns that were removed after it was written."""
    if row.data is None and row.may_write is UNSET:
        return row
    return replace(row, data=row.data and table.visible_columns(row), may_write=UNSET)


def aggregate(rows: Iterable[Row], text: str) -> list[Value]:
    """Return the partial state of aggregates over some rows, which a client combines with others."""
    return list(Aggregates(text).of([record_of(row) for row in rows if row.data is not None]))


def select_rows(rows: Sequence[Row], selection: Selection) -> list[Row]:
    """Return what a read returns of the rows that match; deleted ones, which it names, all come first."""
    chosen = selection.cut({row.key: (row.data, row) for row in rows if row.data is not None})
    deleted = [row for row in rows if row.data is None]
    if selection.columns is None:
        return [*deleted, *chosen.values()]
    return [
        *deleted,
        *(replace(row, data=selection.columns_of(row.data or {})) for row in chosen.values()),
    ]


class TableReplica:
    """All tables and their rows in memory, as of the position ``lsn`` of the log.

    A processor's has the rows of its partitions only, and of the tables that it holds whole.
    """

    def __init__(self) -> None:
        self.lsn = 0
        self.tables: dict[str, Table] = {}
        self._rows: dict[int, list[dict[str, Row]]] = {}
        """Rows by key, by the number of the table and by partition."""

    def load(self, lsn: int, tables: Iterable[Table], rows: Iterable[tuple[str, Row]]) -> None:
        """Replace the state: tables, and rows with the name of their table."""
        self.lsn, self.tables, self._rows = lsn, {}, {}
        for table in tables:
            self._add_table(table)
        for name, row in rows:
            self._partition_rows(self.tables[name], row.key)[row.key] = row

    def build_state(self, incarnation: str) -> TablesState:
        """Build the message with the whole state, for the :meth:`load` of a follower."""
        rows = [
            (name, row)
            for name, table in self.tables.items()
            for part in self._rows[table.number]
            for row in part.values()
        ]
        return TablesState(incarnation, self.lsn, list(self.tables.values()), rows)

    def rows_of_holding(self, holding: Holding, formers: Sequence[Holding]) -> list[tuple[str, Row]]:
        """Return the rows of a holding with the names of their tables, but those that are in all ``formers``.

        Without formers, all rows of the holding.
        """
        return [
            (name, row)
            for name, table in self.tables.items()
            for partition, part in enumerate(self._rows[table.number])
            if part and holding.has(table, partition)
            if not formers or not is_in_all(formers, table, partition)
            for row in part.values()
        ]

    def discard_rows_besides(self, holding: Holding) -> None:
        """Discard the rows that are not in a holding."""
        for table in self.tables.values():
            for partition, part in enumerate(self._rows[table.number]):
                if part and not holding.has(table, partition):
                    part.clear()

    def add_rows(
        self, tables: Iterable[Table], rows: Iterable[tuple[str, Row]], collected_lsns: Mapping[str, int]
    ) -> None:
        """Add rows of a later or former position of the log; of two versions of a record the later one stays.

        ``tables`` are those at that position: rows of one that is not here are left out. So are tombstones
        up to the positions in ``collected_lsns``, by the name of the table.
        """
        numbers = {table.name: table.number for table in tables}
        for name, row in rows:
            table = self.tables.get(name)
            is_collected = row.data is None and row.lsn <= collected_lsns.get(name, -1)
            if table is None or table.number != numbers.get(name) or is_collected:
                continue
            known = self.row_of(table, row.key)
            if known is None or known.lsn < row.lsn:
                self._partition_rows(table, row.key)[row.key] = row

    def replace_rows(self, table: Table, rows: Iterable[Row]) -> None:
        """Replace all rows of a table."""
        self._rows[table.number] = [{} for _ in range(table.partitions)]
        for row in rows:
            self._partition_rows(table, row.key)[row.key] = row

    def count_rows(self) -> int:
        """Return the number of rows of all tables, those of deleted records included."""
        return sum(map(self.key_count, self.tables.values()))

    def key_count(self, table: Table) -> int:
        """Return the number of keys of a table, including deleted records."""
        return sum(map(len, self._rows[table.number]))

    def filled(self, table: Table, partitions: Iterable[int]) -> list[int]:
        """Return those of some partitions of a table that have rows, deleted ones included."""
        rows = self._rows[table.number]
        return [partition for partition in partitions if rows[partition]]

    def row_of(self, table: Table, key: str) -> Row | None:
        """Return the row of a key, also of a deleted record; None: the key was never written."""
        return self._partition_rows(table, key).get(key)

    def apply(self, entry: LogEntry) -> Row | None:
        """Apply the next entry of the log; return the row that it replaces, None: it replaces none."""
        self.lsn = entry.lsn
        match entry:
            case RowEntry(name=name, row=row):
                rows = self._partition_rows(self.tables[name], row.key)
                old = rows.get(row.key)
                rows[row.key] = row
                return old
            case TableEntry():
                self._add_table(entry.table)
            case DropEntry():
                del self._rows[self.tables.pop(entry.name).number]
            case CollectEntry():
                table = self.tables[entry.name]
                for row in self.tombstones(table, entry.until_lsn):
                    del self._partition_rows(table, row.key)[row.key]
        return None

    def rows(self, table: Table, partitions: Sequence[int]) -> Iterator[Row]:
        """Iterate over the rows of some partitions of a table, deleted ones included."""
        for number in partitions:
            yield from self._rows[table.number][number].values()

    def tombstones(self, table: Table, until_lsn: int) -> list[Row]:
        """Return the rows of deleted records of a table up to a position of the log."""
        rows = self.rows(table, range(table.partitions))
        return [row for row in rows if row.data is None and row.lsn <= until_lsn]

    def select(
        self,
        table: Table,
        partition: int,
        predicate: Predicate | None,
        keys: list[str] | None,
        reader: Fields,
        auth: Mapping[str, str],
    ) -> list[Row]:
        """Return the rows of a partition that a read requests and its reader may see.

        ``keys`` are the only keys that can match, None: any. Deleted rows are returned only for named keys.
        The predicate is not evaluated on hidden rows: its failure would reveal them.

        Raises
        ------
        MudkitError
            The predicate fails on a visible row, or looks up records in a table closed to the reader.
        """
        tables = JoinedTables(self, reader, auth)
        by_key = self._rows[table.number][partition]
        candidates = by_key.values() if keys is None else [by_key[key] for key in keys if key in by_key]
        holds = None if predicate is None else predicate.evaluator(tables=tables, receiver=reader, auth=auth)
        rows = []
        for row in candidates:
            is_deleted = row.data is None
            if (is_deleted and keys is None) or not is_visible(row, reader, auth, table, tables):
                continue
            if is_deleted or holds is None or holds(record_of(row, table)) is True:
                rows.append(visible_row(row, table))
        return rows

    def _add_table(self, table: Table) -> None:
        """Store a table's properties; a new table gets empty partitions."""
        self.tables[table.name] = table
        self._rows.setdefault(table.number, [{} for _ in range(table.partitions)])

    def _partition_rows(self, table: Table, key: str) -> dict[str, Row]:
        """Return the rows, by key, of the partition that has a key."""
        return self._rows[table.number][table.partition_of(key)]


class JoinedTables(Mapping[str, "_JoinedTable"]):
    """Tables of a copy as ``lookup`` shows them to one reader: only what a read would return.

    Every copy has them whole: a record and the records joined with it are of the same age.
    """

    def __init__(self, copy: TableReplica, reader: Fields, auth: Mapping[str, str]) -> None:
        self._copy, self._reader, self._auth = copy, reader, auth

    def __getitem__(self, name: str) -> _JoinedTable:
        table = self._copy.tables.get(name)
        auth = self._auth
        claims = claims_of(auth)
        if table is None:
            raise no_such_table_error(name, self._copy.tables, claims)
        table.check_access(claims)
        return _JoinedTable(self._copy, table, self._reader, auth)

    def __iter__(self) -> Iterator[str]:
        return iter(self._copy.tables)

    def __len__(self) -> int:
        return len(self._copy.tables)


class _JoinedTable:
    """One of these tables.

    A join is one table deep: a record whose writer predicate has a lookup is not shown.
    """

    def __init__(self, copy: TableReplica, table: Table, reader: Fields, auth: Mapping[str, str]) -> None:
        self._copy, self._table, self._reader, self._auth = copy, table, reader, auth

    def get(self, key: Value) -> dict[str, Value] | None:
        """Return a record by its primary key; None: none is visible to this reader."""
        row = self._copy.row_of(self._table, key) if isinstance(key, str) else None
        if row is None or row.data is None:
            return None
        return record_of(row, self._table) if is_visible(row, self._reader, self._auth, self._table) else None
