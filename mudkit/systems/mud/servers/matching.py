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
    """Predicate, data and verified identity of the reader of a continuous read that looks up records."""

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
        """Reads that look up records; the index alone holds the others, with the data of their readers."""

    def add(self, read_key: ReadKey, predicate: Predicate, data: Fields, auth: Mapping[str, str]) -> None:
        """Add a continuous read with the data and the verified identity of its reader."""
        if tables_of(predicate):
            self._joining[read_key] = Reader(predicate, data, auth)
        else:
            self._index.add(read_key, predicate, receiver=data, auth=auth)

    def replace_reader_data(self, read_key: ReadKey, data: Fields) -> None:
        """Replace the data of the reader of a continuous read, for later matches."""
        if read_key in self._joining:
            self._joining[read_key].data = data
        else:
            self._index.update(read_key, receiver=data)

    def data_of(self, read_key: ReadKey) -> Fields:
        """Return the data of the reader of a continuous read, which must have been added."""
        joining = self._joining.get(read_key)
        return self._index.reader(read_key)[0] if joining is None else joining.data

    def list_looked_up(self) -> set[str]:
        """Return the tables in which the reads look up records."""
        return {name for reader in self._joining.values() for name in tables_of(reader.predicate)}

    def has_reader_besides(self, endpoint: str) -> bool:
        """Return whether there is a continuous read of another app or device than an endpoint."""
        return any(reader != endpoint for reader, _ in chain(self._index, self._joining))

    def remove(self, read_key: ReadKey) -> None:
        """Remove a continuous read, which must have been added."""
        if self._joining.pop(read_key, None) is None:
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
            tables = JoinedTables(self._copy, reader.data, reader.auth)
            if not is_visible(row, reader.data, reader.auth, table, tables):
                continue
            try:
                matches = reader.predicate(record, tables=tables, receiver=reader.data, auth=reader.auth)
            except MudkitError as error:
                failed[read_key] = error
            else:
                if matches is True:
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
        index = self._index
        try:
            matching = index.match(record)
        except PredicateError:
            return [
                read_key
                for read_key in index
                if self._is_shown(row, table, read_key) and self._holds(read_key, record, failed)
            ]
        return [read_key for read_key in matching if self._is_shown(row, table, read_key)]

    def _holds(self, read_key: ReadKey, record: Fields, failed: dict[ReadKey, MudkitError]) -> bool:
        """Return whether the predicate of an indexed read is TRUE of a record; store its error."""
        try:
            return self._index.holds(read_key, record)
        except MudkitError as error:
            failed[read_key] = error
            return False

    def _is_shown(self, row: Row, table: Table, read_key: ReadKey) -> bool:
        """Return whether the writer of a version shows it to the reader of an indexed read."""
        data, auth = self._index.reader(read_key)
        return is_visible(row, data, auth, table, JoinedTables(self._copy, data, auth))
