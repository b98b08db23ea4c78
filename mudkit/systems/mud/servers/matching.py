"""Matching of new versions of records with continuous reads (Mobius 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from mudkit.errors import MudkitError, PredicateError
from mudkit.predicates import Predicate, SubscriptionIndex
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.replica import JoinedTables, TableReplica, is_visible, record_of
from mudkit.systems.mud.tables.table import Table
from mudkit.wire import Fields

ReadKey: TypeAlias = tuple[str, str]
"""Endpoint ``netid/appid``, and incarnation and number of the continuous read there."""


@dataclass(slots=True)
class Reader:
    """Predicate, data and verified identity of the reader of a continuous read."""

    predicate: Predicate
    data: Fields
    auth: Mapping[str, str]


class Matching:
    """Matching of new versions with the continuous reads of one table.

    The index finds all matches at once. If a predicate fails in it, each read is evaluated alone, so that
    only reads whose predicates fail are affected. Reads that look up records in other tables are always
    evaluated alone: each reader sees other records there. Changes of those tables affect later writes only.
    """

    def __init__(self, copy: TableReplica) -> None:
        self._copy = copy
        self._index = SubscriptionIndex()
        self._joining: dict[ReadKey, Reader] = {}
        self._indexed: dict[ReadKey, Reader] = {}
        """Reads in the index."""

    def add(self, read_key: ReadKey, predicate: Predicate, data: Fields, auth: Mapping[str, str]) -> None:
        """Add a continuous read with the data and the verified identity of its reader."""
        reader = Reader(predicate, data, auth)
        if tables_of(predicate):
            self._joining[read_key] = reader
            return
        self._index.add(read_key, predicate, receiver=data, auth=auth)
        self._indexed[read_key] = reader

    def replace_reader_data(self, read_key: ReadKey, data: Fields) -> None:
        """Replace the data of the reader of a continuous read, for later matches."""
        if read_key in self._joining:
            self._joining[read_key].data = data
            return
        self._index.update(read_key, receiver=data)
        self._indexed[read_key].data = data

    def reader(self, read_key: ReadKey) -> Reader:
        """Return the reader of a continuous read, which must have been added."""
        return self._joining.get(read_key) or self._indexed[read_key]

    def has_reader_besides(self, endpoint: str) -> bool:
        """Return whether there is a continuous read of another app or device than an endpoint."""
        return any(reader != endpoint for reader, _ in chain(self._indexed, self._joining))

    def remove(self, read_key: ReadKey) -> None:
        """Remove a continuous read, which must have been added."""
        if self._joining.pop(read_key, None) is None:
            del self._indexed[read_key]
            self._index.remove(read_key)

    def match(self, row: Row, table: Table) -> tuple[list[ReadKey], dict[ReadKey, MudkitError]]:
        """Return the continuous reads that a new version reaches, and those whose predicates fail on it.

        The version has data. The first are those whose predicate is TRUE and to whose reader the writer shows
        the record, in order of adding; reads that join come last. A writer predicate that fails hides the
        record. Predicates are not evaluated on hidden records: a failure would reveal them.
        """
        record = record_of(row, table)
        failed: dict[ReadKey, MudkitError] = {}
        try:
            reached = self._index.match(record, None if row.predicate is None else row.predicate.predicate())
        except PredicateError:  # also if a writer predicate has a lookup, which the index does not support
            reached = self._match_one_by_one(row, table, record, failed)
        for read_key, reader in self._joining.items():
            if self._is_shown(row, table, reader) and self._matches_read(read_key, reader, record, failed):
                reached.append(read_key)
        return reached, failed

    def _match_one_by_one(
        self,
        row: Row,
        table: Table,
        record: Fields,
        failed: dict[ReadKey, MudkitError],
    ) -> list[ReadKey]:
        """Return the indexed reads that a version reaches, one by one, as the index fails on it."""
        indexed = self._indexed
        try:
            matching = self._index.match(record)
        except PredicateError:
            return [
                read_key
                for read_key, reader in indexed.items()
                if self._is_shown(row, table, reader) and self._matches_read(read_key, reader, record, failed)
            ]
        return [read_key for read_key in matching if self._is_shown(row, table, indexed[read_key])]

    def _matches_read(
        self, read_key: ReadKey, reader: Reader, record: Fields, failed: dict[ReadKey, MudkitError]
    ) -> bool:
        """Return whether the predicate of one read is TRUE of a record; store the error if it fails."""
        tables = JoinedTables(self._copy, reader.data, reader.auth)
        try:
            return reader.predicate(record, tables=tables, receiver=reader.data, auth=reader.auth) is True
        except MudkitError as error:
            failed[read_key] = error
            return False

    def _is_shown(self, row: Row, table: Table, reader: Reader) -> bool:
        """Return whether the writer of a version shows it to a reader."""
        tables = JoinedTables(self._copy, reader.data, reader.auth)
        return is_visible(row, reader.data, reader.auth, table, tables)
