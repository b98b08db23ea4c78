"""A copy of all tables, as the back end, its replicas and the processors hold it in memory.

What changes comes as entries of one log, each with its number (``lsn``). A copy that has taken every entry up
to one is the state at that time; a replica takes them later than others, and never in another order: that is
the timeline consistency of PNUTS, for all records at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from math import inf
from typing import Any, Final, TypeAlias

from mudkit.errors import MudkitError
from mudkit.predicates import Aggregates, Predicate
from mudkit.predicates.exchange import from_json
from mudkit.systems.mud.tables.table import Table, no_such_table
from mudkit.tokens import Claims

__all__ = ["Joined", "Row", "TableReplica", "claims_of", "detached", "is_visible", "record_of"]

_NESTED: Final = frozenset({dict, list})

Row: TypeAlias = dict[str, Any]
"""``key, ver, data, predicate, ts_us, lsn``; ``data`` is None after a delete, which keeps the writer
predicate of what
it deleted: who could not see that does not see that it is gone."""


def record_of(row: Mapping[str, Any], table: Table | None = None) -> dict[str, Any]:
    """Give a row as predicates see it: its columns and its ``key``."""
    data = row["data"] or {}
    return {
        **(data if table is None or not table.removed or not data else table.seen(row)),
        "key": row["key"],
    }


def detached(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give a record that an application may change: what is held and what is under way stays as it is."""
    if _NESTED.isdisjoint(map(type, data.values())):
        return dict(data)
    return deepcopy(dict(data))


def claims_of(auth: Mapping[str, Any]) -> Claims | None:
    """Give what was verified of a reader as what a table's level is compared with."""
    return Claims(auth["app"], auth.get("user"), None, inf) if "app" in auth else None


def is_visible(
    row: Mapping[str, Any],
    reader: Mapping[str, Any],
    auth: Mapping[str, Any],
    table: Table | None = None,
    tables: Joined | None = None,
) -> bool:
    """Say whether the writer of a row shows it to a reader (Mobius 3); not when its predicate fails.

    ``tables`` are those that its predicate may look into.
    """
    if row["predicate"] is None:
        return True
    try:
        writer = from_json(row["predicate"])
        assert writer is not None
        return writer(record_of(row, table), tables=tables, receiver=reader, auth=auth) is True
    except MudkitError:
        return False


class TableReplica:
    """Tables and rows in memory."""

    def __init__(self) -> None:
        self.lsn = 0
        self.tables: dict[str, Table] = {}
        self._rows: dict[int, list[dict[str, Row]]] = {}

    def load(self, lsn: int, tables: list[Mapping[str, Any]], rows: list[tuple[str, Row]]) -> None:
        """Begin with a whole state."""
        self.__init__()  # type: ignore[misc]
        self.lsn = lsn
        for each in tables:
            self._add_table(Table.of(each))
        for name, row in rows:
            self._place(self.tables[name], row["key"])[row["key"]] = row

    def dump(self) -> dict[str, Any]:
        """Give the whole state, for :meth:`load`."""
        rows = [
            (name, row)
            for name, table in self.tables.items()
            for part in self._rows[table.number]
            for row in part.values()
        ]
        return {"lsn": self.lsn, "tables": [each.as_json() for each in self.tables.values()], "rows": rows}

    def get(self, table: Table, key: str) -> Row | None:
        """Give a row; None when there never was one."""
        return self._place(table, key).get(key)

    def take(self, entry: Mapping[str, Any]) -> Row | None:
        """Take the next entry of the log, and give the row that it replaces."""
        self.lsn = entry["lsn"]
        if entry["op"] == "table":
            self._add_table(Table.of(entry["table"]))
            return None
        if entry["op"] == "drop":
            del self._rows[self.tables.pop(entry["name"]).number]
            return None
        table, row = self.tables[entry["name"]], entry["row"]
        place = self._place(table, row["key"])
        old = place.get(row["key"])
        place[row["key"]] = row
        return old

    def rows(self, table: Table, partitions: list[int]) -> Iterator[Row]:
        """Give the rows of some partitions."""
        for number in partitions:
            yield from self._rows[table.number][number].values()

    def select(
        self,
        table: Table,
        partition: int,
        predicate: Predicate | None,
        keys: list[str] | None,
        reader: Mapping[str, Any],
        auth: Mapping[str, Any],
    ) -> list[Row]:
        """Give the rows that a read asks for and its reader may see; of named keys also that they are gone.

        Parameters
        ----------
        table : Table
        partition : int
        predicate : Predicate or None
            None: all.
        keys : list of str or None
            The only keys that can match, when the predicate says so.
        reader, auth : mapping

        Raises
        ------
        MudkitError
            The predicate fails on something that the reader may see, or looks into a table that is not there
            or not open to the reader. On what she may not see it is not evaluated: its failure would tell.
        """
        tables = Joined(self, reader, auth)
        place = self._rows[table.number][partition]
        candidates = place.values() if keys is None else [place[key] for key in keys if key in place]
        rows = []
        for row in candidates:
            is_gone = row["data"] is None
            if (is_gone and keys is None) or not is_visible(row, reader, auth, table, tables):
                continue
            if is_gone:
                rows.append(row)
                continue
            if predicate is None or (
                predicate(record_of(row, table), tables=tables, receiver=reader, auth=auth) is True
            ):
                rows.append({**row, "data": table.seen(row)})
        return rows

    def aggregate(self, rows: list[Row], text: str) -> list[Any]:
        """Give what is known of some rows for aggregates, as JSON can hold it."""
        records = [record_of(row) for row in rows if row["data"] is not None]
        return list(Aggregates(text).of(records))

    def _add_table(self, table: Table) -> None:
        self.tables[table.name] = table
        self._rows.setdefault(table.number, [{} for _ in range(table.partitions)])

    def _place(self, table: Table, key: str) -> dict[str, Row]:
        return self._rows[table.number][table.partition_of(key)]


class Joined(Mapping[str, "_Joined"]):
    """The tables of a copy as ``lookup`` shows them to one reader: nothing that a read would not show him.

    Every copy has all tables, so whatever a record is joined with is as new as the record itself.

    Parameters
    ----------
    copy : TableReplica
    reader, auth : mapping
    """

    def __init__(self, copy: TableReplica, reader: Mapping[str, Any], auth: Mapping[str, Any]) -> None:
        self._copy, self._reader, self._auth = copy, reader, auth

    def __getitem__(self, name: str) -> _Joined:
        table = self._copy.tables.get(name)
        auth = self._auth
        claims = claims_of(auth)
        if table is None:
            raise no_such_table(name, self._copy.tables, claims)
        table.check_access(claims)
        return _Joined(self._copy, table, self._reader, auth)

    def __iter__(self) -> Iterator[str]:
        return iter(self._copy.tables)

    def __len__(self) -> int:
        return len(self._copy.tables)


class _Joined:
    """One of these tables.

    A join goes one table deep: a record whose own writer predicate looks further is not shown.
    """

    def __init__(
        self, copy: TableReplica, table: Table, reader: Mapping[str, Any], auth: Mapping[str, Any]
    ) -> None:
        self._copy, self._table, self._reader, self._auth = copy, table, reader, auth

    def get(self, key: Any) -> dict[str, Any] | None:
        """Give a record by its primary key; None: there is none for this reader."""
        row = self._copy.get(self._table, key) if isinstance(key, str) else None
        if row is None or row["data"] is None:
            return None
        return record_of(row, self._table) if is_visible(row, self._reader, self._auth, self._table) else None


def columns_of(row: Any, table: Table | None = None) -> dict[str, Any]:
    """TEMPORARY until merged."""
    data = dict(row.data or {})
    return data if table is None else table.seen({"data": data, "lsn": row.lsn})


def is_shown(
    row: Any,
    reader: Mapping[str, Any],
    auth: Mapping[str, Any],
    table: Table | None = None,
    tables: Joined | None = None,
) -> bool:
    """TEMPORARY until merged."""
    if row.predicate is None:
        return True
    try:
        writer = row.predicate.predicate()
        record = {**columns_of(row, table), "key": row.key}
        return writer(record, tables=tables, receiver=reader, auth=auth) is True
    except MudkitError:
        return False
