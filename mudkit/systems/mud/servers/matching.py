"""Matching of new versions with the continuous reads of one table.

The index finds all matches at once. If a predicate fails in it, each read is evaluated alone: only the read
whose predicate fails is affected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mudkit.errors import MudkitError, PredicateError
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.systems.mud.messages import Row
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.replica import Joined, TableReplica, is_visible, record_of
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import Fields

__all__ = ["Handle", "Matching"]

Handle: TypeAlias = tuple[str, str]
"""Endpoint ``netid/appid``, and incarnation and number of the continuous read there."""


@dataclass(slots=True)
class _Reader:
    predicate: Predicate
    data: Fields
    auth: Mapping[str, str]


class Matching:
    """Continuous reads of one table.

    Reads that look up records in other tables, in ``copy``, are evaluated one by one: each reader sees other
    records there. Changes of those tables affect later writes only.
    """

    def __init__(self, copy: TableReplica) -> None:
        self._copy = copy
        self._index = SubscriptionIndex()
        self._joining: dict[Handle, _Reader] = {}
        self._others: dict[Handle, _Reader] = {}
        """Reads in the index."""

    def add(self, handle: Handle, predicate: Predicate, data: Fields, auth: Mapping[str, str]) -> None:
        """Add a continuous read with the data and the verified identity of its reader."""
        reader = _Reader(predicate, data, auth)
        if tables_of(predicate):
            self._joining[handle] = reader
            return
        self._index.add(handle, predicate, receiver=data, auth=auth)
        self._others[handle] = reader

    def update(self, handle: Handle, data: Fields) -> None:
        """Replace the data of a reader."""
        if handle in self._joining:
            self._joining[handle].data = data
            return
        self._index.update(handle, receiver=data)
        self._others[handle].data = data

    def remove(self, handle: Handle) -> None:
        """Remove a continuous read."""
        if self._joining.pop(handle, None) is None:
            del self._others[handle]
            self._index.remove(handle)

    def match(self, row: Row, table: Table) -> tuple[list[Handle], dict[Handle, MudkitError]]:
        """Find the continuous reads that a version reaches; the version has data.

        Returns
        -------
        list
            Reads whose predicate is TRUE and to whose reader the writer shows the record, in order of adding;
            those that join come last. A writer predicate that fails for a reader hides the record.
        dict
            Reads whose predicate fails on a record that their reader may see, with the error. Predicates are
            not evaluated on hidden records: a failure would reveal them.
        """
        record = record_of(row, table)
        failed: dict[Handle, MudkitError] = {}
        try:
            reached = self._index.match(record, None if row.predicate is None else row.predicate.predicate())
        except PredicateError:  # also if a writer predicate has a lookup, which the index does not support
            reached = self._one_by_one(row, table, record, failed)
        for handle, reader in self._joining.items():
            if self._is_shown(row, table, reader) and self._wants(handle, reader, record, failed):
                reached.append(handle)
        return reached, failed

    def _one_by_one(
        self,
        row: Row,
        table: Table,
        record: Fields,
        failed: dict[Handle, MudkitError],
    ) -> list[Handle]:
        """Find those of the index that a version reaches, if the index fails."""
        others = self._others
        try:
            wanted = self._index.match(record)
        except PredicateError:
            return [
                handle
                for handle, reader in others.items()
                if self._is_shown(row, table, reader) and self._wants(handle, reader, record, failed)
            ]
        return [handle for handle in wanted if self._is_shown(row, table, others[handle])]

    def _wants(
        self, handle: Handle, reader: _Reader, record: Fields, failed: dict[Handle, MudkitError]
    ) -> bool:
        """Evaluate one read; store the error if its predicate fails."""
        tables = Joined(self._copy, reader.data, reader.auth)
        try:
            return reader.predicate(record, tables=tables, receiver=reader.data, auth=reader.auth) is True
        except MudkitError as error:
            failed[handle] = error
            return False

    def _is_shown(self, row: Row, table: Table, reader: _Reader) -> bool:
        tables = Joined(self._copy, reader.data, reader.auth)
        return is_visible(row, reader.data, reader.auth, table, tables)
