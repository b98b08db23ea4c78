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
from mudkit.systems.mud.copy import is_visible, record_of
from mudkit.systems.mud.tables import Table

__all__ = ["Handle", "Matching"]

Handle: TypeAlias = tuple[str, int]
"""The endpoint ``netid/appid`` and the number of the continuous read there."""


@dataclass(slots=True)
class _Reader:
    predicate: Predicate
    data: Mapping[str, Any]
    auth: Mapping[str, Any]


class Matching:
    """The continuous reads of one table."""

    def __init__(self) -> None:
        self._index = SubscriptionIndex()
        self._readers: dict[Handle, _Reader] = {}

    def add(
        self, handle: Handle, predicate: Predicate, data: Mapping[str, Any], auth: Mapping[str, Any]
    ) -> None:
        """Add one: what it asks for, what its reader says of itself, and who that provably is."""
        self._readers[handle] = _Reader(predicate, data, auth)
        self._index.add(handle, predicate, receiver=data, auth=auth)

    def update(self, handle: Handle, data: Mapping[str, Any]) -> None:
        """Take it that a reader says something else of itself."""
        self._readers[handle].data = data
        self._index.update(handle, receiver=data)

    def remove(self, handle: Handle) -> None:
        """Take one out."""
        del self._readers[handle]
        self._index.remove(handle)

    def match(self, row: Mapping[str, Any], table: Table) -> tuple[list[Handle], dict[Handle, MudkitError]]:
        """Find those that a version reaches.

        Parameters
        ----------
        row : mapping
            With its data.
        table : Table

        Returns
        -------
        list
            Those whose predicate is TRUE of it and to whose reader its writer shows it, in order of adding.
            A writer predicate that cannot be evaluated for a reader hides the record from that one.
        dict
            Those whose predicate cannot be evaluated, and why.
        """
        record = record_of(row, table)
        try:
            return self._index.match(record, from_json(row["predicate"])), {}
        except PredicateError:
            wanted, failed = self._wanted(record)
        readers = self._readers
        return [
            each for each in wanted if is_visible(row, readers[each].data, readers[each].auth, table)
        ], failed

    def _wanted(self, record: Mapping[str, Any]) -> tuple[list[Handle], dict[Handle, MudkitError]]:
        """Find those whose predicate is TRUE of a record, whoever may see it."""
        try:
            return self._index.match(record), {}
        except PredicateError:
            pass
        wanted: list[Handle] = []
        failed: dict[Handle, MudkitError] = {}
        for handle, reader in self._readers.items():
            try:
                if reader.predicate(record, receiver=reader.data, auth=reader.auth) is True:
                    wanted.append(handle)
            except PredicateError as error:
                failed[handle] = error
        return wanted, failed
