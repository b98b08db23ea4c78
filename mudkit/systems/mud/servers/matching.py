"""The continuous reads of one table at a processor, and which of them a new version reaches.

The index finds them all at once. Where it fails because somebody's predicate does, each is asked by itself:
so the one that fails is found, and takes no other with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mudkit.errors import MudkitError, PredicateError
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.predicates.exchange import from_json
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.replica import Joined, TableReplica, is_visible, record_of
from mudkit.systems.mud.tables.table import Table

__all__ = ["Handle", "Matching"]

Handle: TypeAlias = tuple[str, str]
"""The endpoint ``netid/appid``, and the incarnation and number of the continuous read there."""


@dataclass(slots=True)
class _Reader:
    predicate: Predicate
    data: Mapping[str, Any]
    auth: Mapping[str, Any]


class Matching:
    """The continuous reads of one table.

    Parameters
    ----------
    copy : TableReplica
        The copy of the tables for reads that look into others: each reader is shown something else there, so
        each is asked by itself. What changes there counts for what is written from then on.
    """

    def __init__(self, copy: TableReplica) -> None:
        self._copy = copy
        self._index = SubscriptionIndex()
        self._joining: dict[Handle, _Reader] = {}
        self._others: dict[Handle, _Reader] = {}
        """Which the index has."""

    def add(
        self, handle: Handle, predicate: Predicate, data: Mapping[str, Any], auth: Mapping[str, Any]
    ) -> None:
        """Add one: what it asks for, what its reader says of itself, and who that provably is."""
        reader = _Reader(predicate, data, auth)
        if tables_of(predicate):
            self._joining[handle] = reader
            return
        self._index.add(handle, predicate, receiver=data, auth=auth)
        self._others[handle] = reader

    def update(self, handle: Handle, data: Mapping[str, Any]) -> None:
        """Take it that a reader says something else of itself."""
        if handle in self._joining:
            self._joining[handle].data = data
            return
        self._index.update(handle, receiver=data)
        self._others[handle].data = data

    def remove(self, handle: Handle) -> None:
        """Take one out."""
        if self._joining.pop(handle, None) is None:
            del self._others[handle]
            self._index.remove(handle)

    def match(self, row: Mapping[str, Any], table: Table) -> tuple[list[Handle], dict[Handle, MudkitError]]:
        """Find those that a version reaches.

        Parameters
        ----------
        row : mapping
            The row, with its data.
        table : Table

        Returns
        -------
        list
            Those whose predicate is TRUE of it and to whose reader its writer shows it, in order of adding,
            after them those that join. A writer predicate that cannot be evaluated for a reader hides the
            record from that one.
        dict
            Those to whom its writer shows it and whose predicate cannot be evaluated, and why. Of the others
            none is asked: that it fails would tell them of the record.
        """
        record = record_of(row, table)
        failed: dict[Handle, MudkitError] = {}
        try:
            reached = self._index.match(record, from_json(row["predicate"]))
        except PredicateError:  # also of a writer's that looks into other tables: the index has none
            reached = self._one_by_one(row, table, record, failed)
        for handle, reader in self._joining.items():
            if self._is_shown(row, table, reader) and self._wants(handle, reader, record, failed):
                reached.append(handle)
        return reached, failed

    def _one_by_one(
        self,
        row: Mapping[str, Any],
        table: Table,
        record: Mapping[str, Any],
        failed: dict[Handle, MudkitError],
    ) -> list[Handle]:
        """Find those of the index whom a version reaches, where the index cannot say it of all at once."""
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
        self, handle: Handle, reader: _Reader, record: Mapping[str, Any], failed: dict[Handle, MudkitError]
    ) -> bool:
        """Ask one by itself; take note if its predicate fails."""
        tables = Joined(self._copy, reader.data, reader.auth)
        try:
            return reader.predicate(record, tables=tables, receiver=reader.data, auth=reader.auth) is True
        except MudkitError as error:
            failed[handle] = error
            return False

    def _is_shown(self, row: Mapping[str, Any], table: Table, reader: _Reader) -> bool:
        tables = Joined(self._copy, reader.data, reader.auth)
        return is_visible(row, reader.data, reader.auth, table, tables)
