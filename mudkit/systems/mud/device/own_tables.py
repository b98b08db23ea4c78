"""Tables that are stored on the device alone (Mobius 3): no server knows them, and nothing of them is sent.

They hold what is of one app on one device: drafts, settings, what was read. A write is committed at once, in
the same step; every type of read returns the latest version, complete and of age 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from mudkit.checks import unusable
from mudkit.errors import ParameterError, TableProblem
from mudkit.events import Complete, Effect, Ports, Record
from mudkit.predicates import Aggregates, Predicate
from mudkit.systems.mud.device.parts import name_part, record_part
from mudkit.systems.mud.device.results import Origin, complete_read
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.servers import DropEntry, RowEntry, TableEntry
from mudkit.systems.mud.operations import Alter, CommitBatch, Create, Read, Register, Write
from mudkit.systems.mud.result import Conflict
from mudkit.systems.mud.tables.changes import change_record, check_kinds
from mudkit.systems.mud.tables.queries import check_names
from mudkit.systems.mud.tables.records import SentPredicate, check_key, check_record, value_hash
from mudkit.systems.mud.tables.replica import JoinedTables, TableReplica, aggregate
from mudkit.systems.mud.tables.selection import Selection
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import Fields, Value, as_wire

_TABLE: Final = "own table "
_ROW: Final = "own row\n"
_LSN: Final = "own lsn"
_FOR_THE_CLOUD: Final = {"acl": "app", "apps": None, "split": (), "write_rule": None}
"""Properties that a table on the device does not have, with the values that say nothing."""


def table_exists_error(name: str, place: str, remedy: str) -> TableProblem:
    """Build the error for a new table whose name is in use."""
    return TableProblem(
        f"There is a table of this name already, {place}.",
        where="table",
        found=repr(name)[:120],
        expected="a name that is free",
        remedy=remedy,
    )


class OwnTables:
    """Tables of one app on the device alone, durable; ``endpoint`` is that of the app."""

    def __init__(self, ports: Ports, endpoint: str) -> None:
        self._store = store = ports.store
        self._endpoint = endpoint
        self._copy = TableReplica()
        tables = [table for _, table in store.items(_TABLE, Table)]
        rows = [(key.split("\n")[1], row) for key, row in store.items(_ROW, Row)]
        self._copy.load(store.get(_LSN, int) or 0, tables, rows)
        self.tables: Mapping[str, Table] = self._copy.tables
        """Properties of the tables, by name."""

    def __contains__(self, name: Value) -> bool:
        return isinstance(name, str) and name in self.tables

    def create(self, op_id: int, operation: Create, app: str, cloud: Mapping[str, Table]) -> Sequence[Effect]:
        """Create a table, durably, and complete the call; ``cloud`` has the known tables of the cloud.

        Raise MudkitError if the name is taken, or an option is only for tables of the cloud.
        """
        name = operation.table
        for option, value in _FOR_THE_CLOUD.items():
            if operation.properties.get(option, value) != value:
                raise ParameterError(
                    f"A table on the device has no {option}.",
                    where=option,
                    found=repr(operation.properties[option])[:120],
                    expected="a table in the cloud",
                    remedy=f"leave {option} out, or where='device'",
                )
        if name in self:
            raise table_exists_error(name, "on this device", "use the table, or drop it first")
        if name in cloud:
            raise table_exists_error(name, "in the cloud", "use another name")
        properties = {**operation.properties, "acl": "public"}
        self._put_table(Table.create(name, app, properties, self._copy.lsn + 1))
        return (Complete(op_id),)

    def alter(self, op_id: int, operation: Alter) -> Sequence[Effect]:
        """Alter the columns of a table, durably, and complete the call; raise ParameterError for an acl."""
        if operation.properties.get("acl") is not None:
            raise ParameterError(
                "A table on the device has no acl.",
                where="acl",
                found=repr(operation.properties["acl"])[:120],
                expected="add or remove",
            )
        table = self.tables[operation.table].alter(operation.properties, self._copy.lsn + 1)
        self._put_table(table)
        return (Complete(op_id),)

    def drop(self, op_id: int, name: str) -> Sequence[Effect]:
        """Delete a table with its records, and complete the call."""
        for key, _ in list(self._store.items(f"{_ROW}{name}\n", Row)):
            self._store.delete(key)
        self._store.delete(f"{_TABLE}{name}")
        self._apply(DropEntry(self._copy.lsn + 1, name))
        return (Complete(op_id),)

    def write(
        self, now_us: int, op_id: int, operation: Write | CommitBatch, context: Fields
    ) -> tuple[list[str], Sequence[Effect]]:
        """Commit a write, a delete or a batch, and return the keys. The device has the latest versions."""
        table = self.tables[operation.table]
        if not isinstance(operation, CommitBatch):
            row = self._build_row(now_us, table, operation, context, self._copy.lsn + 1)
            self._put_row(table, row)
            written = {"op_id": op_id, "version": row.ver, "value_hash": partial(value_hash, row.data)}
            return [row.key], (Record("operations", written), Complete(op_id, row.ver))
        rows: list[Row] = []
        for place, part in enumerate(operation.parts, start=1):
            with name_part(place, len(operation.parts), part.key):
                rows.append(self._build_row(now_us, table, part, context, self._copy.lsn + place))
        effects: list[Effect] = []
        for part, row in zip(operation.parts, rows, strict=True):
            self._put_row(table, row)
            hashed = partial(value_hash, row.data)
            effects.append(record_part(op_id, row.key, part.type, part.record, part.changes, row.ver, hashed))
        return [row.key for row in rows], [*effects, Complete(op_id, [row.ver for row in rows])]

    def _build_row(self, now_us: int, table: Table, operation: Write, context: Fields, lsn: int) -> Row:
        """Build the version that a write makes at a position of the log; raise MudkitError if it may not."""
        data, predicate = operation.record, operation.predicate
        if data is not None:
            data = check_record(data)
            table.check_columns(data)
        if predicate is not None and predicate.unbound:
            predicate = predicate.bind(sender=context)
        sent = SentPredicate.of(predicate)
        table.check_predicate(sent)
        check_names(table, predicate)
        if operation.may_write is not None:
            raise unusable("may_write", operation.may_write, "None: a table on the device has one writer")
        key = check_key(f"{self._endpoint} {lsn}" if operation.key is None else operation.key)
        before = self._copy.row_of(table, key)
        if operation.changes is not None:
            check_kinds(operation.changes, table)
            is_here = before is not None and before.data is not None
            columns = table.visible_columns(before) if before is not None and is_here else None
            data = change_record(columns, operation.changes, f"table {table.name!r}, key {key!r}")
            sent = before.predicate if before is not None and is_here else None
        if operation.version not in (None, 0 if before is None or before.data is None else before.ver):
            raise Conflict(
                "The record is not the one that this write was to replace.",
                where=f"table {table.name!r}, key {key!r}",
                found="no record" if before is None or before.data is None else f"version {before.ver}",
                expected=f"version {operation.version}" if operation.version else "no record",
                store=None if before is None or before.data is None else as_wire(before),
                remedy="merge the records and write again",
            )
        return Row(
            key=key,
            ver=1 if before is None else before.ver + 1,
            data=data,
            predicate=sent if data is not None or before is None else before.predicate,
            ts_us=now_us,
            lsn=lsn,
        )

    def _put_row(self, table: Table, row: Row) -> None:
        """Store a version, as the next entry of the log."""
        self._store.put(f"{_ROW}{table.name}\n{row.key}", row)
        self._apply(RowEntry(row.lsn, table.name, row))

    def check_read(self, read: Read | Register) -> None:
        """Raise MudkitError if a read names a column that its table on the device does not have."""
        table = self.tables[read.table]
        check_names(table, read.predicate, None if read.aggregate is None else Aggregates(read.aggregate))
        if read.selection is not None:
            read.selection.check_columns(table)

    def select(
        self,
        name: str,
        predicate: Predicate | None,
        reader: Fields,
        auth: Mapping[str, str],
        *,
        keys: list[str] | None = None,
    ) -> list[Row]:
        """Return the records of a table that match a predicate and are visible to a reader."""
        return self._copy.select(self.tables[name], 0, predicate, keys, reader, auth)

    def complete(
        self,
        op_id: int,
        name: str,
        rows: Sequence[Row],
        selection: Selection | None,
        *,
        is_complete: bool = True,
    ) -> Sequence[Effect]:
        """Complete a read of a table with some of its records."""
        return complete_read(
            op_id,
            self.tables[name],
            {row.key: row for row in rows},
            selection,
            lambda row: Origin(row.ver, "local", 0.0),
            lambda row: value_hash(row.data),
            is_complete=is_complete,
        )

    def joined(self, reader: Fields, auth: Mapping[str, str]) -> JoinedTables:
        """Return the tables as a ``lookup`` of a reader sees them."""
        return JoinedTables(self._copy, reader, auth)

    @property
    def lsn(self) -> int:
        """Number of the last change of any of the tables."""
        return self._copy.lsn

    def aggregate(self, name: str, rows: Sequence[Row], text: str) -> list[Value]:
        """Return the state of aggregates over records of a table."""
        table = self.tables[name]
        return aggregate([replace(row, data=table.visible_columns(row)) for row in rows], text)

    def row_of(self, name: str, key: str) -> Row | None:
        """Return the row of a key, also of a deleted record; None: it was never written."""
        return self._copy.row_of(self.tables[name], key)

    def holdings(self, name: str) -> list[dict[str, Value]]:
        """List the records of a table, as :meth:`~mudkit.systems.mud.device.local.Local.holdings` does."""
        table = self.tables[name]
        return [
            {
                "key": row.key,
                "version": row.ver,
                "record": None if row.data is None else table.visible_columns(row),
                "predicate": None if row.predicate is None else row.predicate.text,
                "type": None,
                "visible": True,
                "age_s": 0.0,
            }
            for row in sorted(self._copy.rows(table, [0]), key=lambda row: row.key)
        ]

    def _put_table(self, table: Table) -> None:
        """Store the properties of a table, as the next entry of the log."""
        self._store.put(f"{_TABLE}{table.name}", table)
        self._apply(TableEntry(self._copy.lsn + 1, table))

    def _apply(self, entry: RowEntry | TableEntry | DropEntry) -> None:
        """Apply an entry of the log to the copy, and store its position."""
        self._store.put(_LSN, entry.lsn)
        self._copy.apply(entry)
