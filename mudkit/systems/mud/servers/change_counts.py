"""Changes of the answers to watched queries, which a processor counts for the policy generator (Mobius 6).

Rules:

================  ====================================================================================
start             request the queries: what was watched before is forgotten
WatchedQueries    watch these, from now on; of a query that is not watched yet, report that it is
changed record    if it belongs to a watched query, or did before, an item; those of a minute are one
timer             report the items, numbered; beyond ``_MAX_WAITING`` they are dropped, and numbers show it
================  ====================================================================================

A query that depends on its reader or on other tables is not watched: its answer changes otherwise, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mudkit.errors import MudkitError
from mudkit.events import Effect, Send, SetTimer
from mudkit.predicates import Predicate
from mudkit.systems.mud.messages.parts import Row
from mudkit.systems.mud.messages.usage import (
    ChangeItem,
    ChangeReport,
    WatchedQueries,
    WatchedQueriesRequest,
    WatchedQuery,
)
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.replica import record_of
from mudkit.systems.mud.tables.table import Table
from mudkit.units import US_PER_S

CHANGES: Final = "changes"
"""Name of the timer of a report."""
REPORT_US: Final = 900 * US_PER_S
_TOGETHER_US: Final = 60 * US_PER_S
"""Time for which changes of a query are one item."""
_MAX_WAITING: Final = 1_000


class _Watched(Struct):
    """Watched query; ``number`` is that of its last item, begun at ``since_us``; -1: it has none."""

    query: WatchedQuery
    predicate: Predicate
    number: int = -1
    since_us: int = 0


class ChangeCounts:
    """Counts of changes by watched query; ``generator`` None: the cloud does not learn."""

    def __init__(self, generator: str | None) -> None:
        self._generator = generator
        self._generation = self._count = 0
        self._watched: list[_Watched] = []
        self._waiting: list[tuple[WatchedQuery, ChangeItem]] = []
        self._has_timer = False

    def begin(self, generation: int) -> Sequence[Effect]:
        """Forget what was watched, and request it for another generation."""
        self._generation, self._count = generation, 0
        self._watched, self._waiting = [], []
        return () if self._generator is None else (Send(self._generator, WatchedQueriesRequest()),)

    def watch(self, now_us: int, message: WatchedQueries) -> Sequence[Effect]:
        """Watch queries in place of the former ones."""
        known = {watched.query: watched for watched in self._watched}
        self._watched = []
        effects: list[Effect] = []
        for query in message.queries:
            if query in known:
                self._watched.append(known[query])
            elif (predicate := _watchable(query)) is not None:
                self._watched.append(_Watched(query, predicate))
                effects += self._add(now_us, self._watched[-1], 0)
        return effects

    def is_watching(self, table: str) -> bool:
        """Return whether changes of a table are counted."""
        return any(watched.query.table == table for watched in self._watched)

    def record(self, now_us: int, table: Table, before: Row | None, row: Row) -> Sequence[Effect]:
        """Count a new version of a record, and the one that it replaces, if any."""
        effects: list[Effect] = []
        versions = [version for version in (before, row) if version is not None and version.data is not None]
        for watched in self._watched:
            if watched.query.table == table.name and any(
                _holds(watched.predicate, version, table) for version in versions
            ):
                effects += self._add(now_us, watched, 1)
        return effects

    def report(self) -> Sequence[Effect]:
        """Report what waits, after the timer has fired."""
        self._has_timer = False
        if not self._waiting or self._generator is None:
            return ()
        queries = [watched.query for watched in self._watched]
        numbers = {query: number for number, query in enumerate(queries)}
        items = [replace(item, query=numbers[query]) for query, item in self._waiting if query in numbers]
        self._waiting = []
        return (Send(self._generator, ChangeReport(self._generation, queries, items)),)

    def _add(self, now_us: int, watched: _Watched, changes: int) -> Sequence[Effect]:
        """Add changes of a query to its last item, if that waits and is recent; else an item."""
        place = watched.number - (self._waiting[0][1].number if self._waiting else self._count)
        if changes and place >= 0 and now_us - watched.since_us < _TOGETHER_US:
            query, item = self._waiting[place]
            joined = replace(item, t_ms=now_us // 1000, changes=item.changes + changes)
            self._waiting[place] = query, joined
            return ()
        watched.number, watched.since_us = (self._count if changes else -1), now_us
        self._waiting.append((watched.query, ChangeItem(self._count, 0, now_us // 1000, changes)))
        self._count += 1
        if len(self._waiting) > _MAX_WAITING:
            del self._waiting[0]
        if self._has_timer:
            return ()
        self._has_timer = True
        return (SetTimer(CHANGES, REPORT_US),)


def _watchable(query: WatchedQuery) -> Predicate | None:
    """Return the predicate of a query whose answer follows from its records alone; None: it does not."""
    try:
        predicate = Predicate(query.text)
    except MudkitError:
        return None
    _, *others = predicate.names().values()
    return None if any(others) or tables_of(predicate) else predicate


def _holds(predicate: Predicate, row: Row, table: Table) -> bool:
    """Return whether a version belongs to a query; one on which it fails may do so."""
    try:
        return predicate(record_of(row, table)) is True
    except MudkitError:
        return True
