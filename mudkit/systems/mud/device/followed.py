"""Queries of continuous reads, as far as the device holds what it was told (Mobius 2 and 6: pushed records).

A record that was delivered to a continuous read is current while the read is live, that is, registered at all
its processors in a session that is greeted: each change of it would be told. If all existing records were
delivered, too, the query itself is answered, with an age of 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mudkit.systems.mud.device.local import HeldRow, Local
from mudkit.systems.mud.device.stored_read import StoredRead
from mudkit.systems.mud.policies.utility import Query


@dataclass
class FollowedQuery:
    """Query of a continuous read, with the versions delivered to it, by key.

    ``stored`` has the positions up to which the processors have sent all changes. ``is_answered``: all
    records that match were delivered. ``live_us`` is when the read was last live; None: it is live now.
    """

    query: Query
    delivered: Mapping[str, int]
    stored: StoredRead
    is_answered: bool
    live_us: int | None

    def current_us(self, now_us: int) -> int:
        """Return the last time at which what was delivered was the state of the cloud."""
        return now_us if self.live_us is None else self.live_us


class FollowedQueries:
    """Queries of the continuous reads of one client, by table and handle."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self._of_table: dict[str, dict[int, FollowedQuery]] = {}

    def follow(self, handle: int, followed: FollowedQuery) -> None:
        """Count a continuous read's query from now on, in place of its former state."""
        self._of_table.setdefault(followed.query.table, {})[handle] = followed

    def leave(self, handle: int, table: str) -> None:
        """Stop counting the query of a continuous read."""
        self._of_table.get(table, {}).pop(handle, None)

    def stop(self, now_us: int, handle: int, table: str) -> None:
        """Record since when a continuous read is not live; no effect if it was not live, or is unknown."""
        followed = self._of_table.get(table, {}).get(handle)
        if followed is not None and followed.live_us is None:
            followed.live_us = now_us

    def answered_queries(self, table: str | None = None) -> Iterator[FollowedQuery]:
        """Iterate over the queries of a table (None: of all) of which all matching records were delivered."""
        tables = self._of_table.values() if table is None else (self._of_table.get(table, {}),)
        return (followed for of_table in tables for followed in of_table.values() if followed.is_answered)

    def missing_keys(self, followed: FollowedQuery) -> list[str]:
        """Return the keys of delivered records that the device does not hold as they were delivered."""
        name, held_row = followed.query.table, self._local.held_row
        rows = ((key, ver, held_row(name, key)) for key, ver in followed.delivered.items())
        return [key for key, ver, row in rows if row is None or row.ver < ver]

    def current_us(self, now_us: int, name: str, row: HeldRow) -> int:
        """Return the last time at which a held version was known to be that of the cloud."""
        current_us, of_table = row.held_us, self._of_table.get(name)
        if of_table is None:
            return current_us
        for followed in of_table.values():
            if followed.delivered.get(row.key) == row.ver:
                current_us = max(current_us, followed.current_us(now_us))
        return current_us
