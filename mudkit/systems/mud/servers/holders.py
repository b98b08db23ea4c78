"""Processors as followers of the back end's log: each is sent what concerns the rows that it holds.

A processor says in each acknowledgement what it holds, so that a back end that has started again, or another
one, learns it with the position. What it is sent names the holding that it was chosen by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mudkit.delivery.session import Lineage
from mudkit.events import Send
from mudkit.systems.mud.messages.holdings import Holding, digest_of
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.servers import (
    DropEntry,
    FollowLog,
    Log,
    LogEntry,
    LookupEntry,
    RowEntry,
    TablesState,
)
from mudkit.systems.mud.tables.queries import tables_of_sent
from mudkit.systems.mud.tables.replica import TableReplica
from mudkit.systems.mud.tables.table import Table


class Holders:
    """Holdings of the followers of a log, whose tables are those of ``copy``.

    ``has_several``: there are several processors. One alone holds all rows, and so does each replica.
    """

    def __init__(self, copy: TableReplica, *, has_several: bool) -> None:
        self._copy, self._has_several = copy, has_several
        self._holdings: dict[str, Holding] = {}
        """Holding of each follower, as last heard."""
        self._lookups: dict[str, set[str]] = {}
        """Tables in which writer predicates look up records, by the table that they are of."""
        if has_several:
            for table in copy.tables.values():
                for row in copy.rows(table, range(table.partitions)):
                    self._record_lookups(table.name, tables_of_sent(row.predicate))

    def _record_lookups(self, name: str, looked_up: Iterable[str]) -> None:
        """Note the tables that a writer predicate of a table looks up records in."""
        for other in looked_up:
            self._lookups.setdefault(name, set()).add(other)

    def record(self, follower: str, holding: Holding | UnsetType) -> bool:
        """Record what a follower says that it holds; return whether it has said something else before."""
        if holding is UNSET or self._holdings.get(follower) == holding:
            return False
        self._holdings[follower] = holding
        return True

    def build_state(self, follower: str, request: FollowLog, lineage: Lineage) -> Send:
        """Build the message with the state, or the rows, that a follower requests."""
        copy, holding, formers = self._copy, request.holding, request.formers or []
        if holding is UNSET:
            return Send(follower, replace(copy.build_state(request.incarnation), lineage=lineage or UNSET))
        state = TablesState(
            request.incarnation,
            copy.lsn,
            list(copy.tables.values()),
            copy.rows_of_holding(holding, formers),
            lineage or UNSET,
            digest_of(holding, *formers),
            {name: sorted(looked_up) for name, looked_up in self._lookups.items()},
        )
        return Send(follower, state)

    def choose(self, follower: str, log: Log, acked_lsn: int, last_lsn: int) -> Log:
        """Return the message of all entries from a position on as a follower is sent it."""
        holding = self._holdings.get(follower)
        if not self._has_several:
            return log
        if holding is None:
            return replace(log, entries=[_without_rows(entry) for entry in log.entries])
        chosen = [part for entry in log.entries for part in self._choose_entry(holding, entry)]
        return replace(
            log, entries=chosen, after_lsn=acked_lsn, through_lsn=last_lsn, holding=digest_of(holding)
        )

    def _choose_entry(self, holding: Holding, entry: LogEntry) -> Sequence[LogEntry]:
        """Return what a processor is sent of an entry; all, if it is of a table that there was before."""
        table = self._table_of(entry)
        if table is None:
            return (entry,)
        if isinstance(entry, RowEntry) and not holding.has(table, table.partition_of(entry.row.key)):
            return ()
        if isinstance(entry, LookupEntry) and not holding.serves_any(table):
            return (_without_rows(entry),)
        return (entry,)

    def _table_of(self, entry: LogEntry) -> Table | None:
        """Return the table of an entry of rows; None: it is another entry, or the table is not there now."""
        if not isinstance(entry, (RowEntry, LookupEntry)):
            return None
        table = self._copy.tables.get(entry.name)
        return None if table is None or entry.lsn < table.number else table

    def list_lookups(self, name: str, rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
        """Return the tables that new rows of a table are the first to look up records in, with their rows.

        None, if there is one processor, which holds all tables.
        """
        if not self._has_several:
            return []
        known = self._lookups.get(name, set())
        looked_up = dict.fromkeys(other for row in rows for other in tables_of_sent(row.predicate))
        return [
            (other, list(self._copy.rows(table, range(table.partitions))))
            for other in looked_up
            if other not in known and (table := self._copy.tables.get(other)) is not None
        ]

    def follow(self, entry: LogEntry) -> None:
        """Follow an entry that the log has now."""
        if isinstance(entry, LookupEntry):
            self._record_lookups(entry.name, [entry.looked_up])
        elif isinstance(entry, DropEntry):
            self._lookups.pop(entry.name, None)


def _without_rows(entry: LogEntry) -> LogEntry:
    """Return an entry as those are sent it that need no table whole."""
    return replace(entry, rows=[]) if isinstance(entry, LookupEntry) else entry
