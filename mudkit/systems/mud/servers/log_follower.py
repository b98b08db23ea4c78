"""Follower of the back end's log: in order, without a gap, also across restarts of either side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec import UNSET

from mudkit.delivery.session import Follower, Lineage, last_start, shared_seq, shared_since
from mudkit.events import Effect, Send, SetTimer
from mudkit.systems.mud.messages import DropEntry, FollowLog, Has, Log, LogEntry, State, TableEntry
from mudkit.systems.mud.tables.replica import TableReplica
from mudkit.systems.mud.tables.table import Table

__all__ = ["BEGIN", "LogFollower"]

BEGIN: Final = "begin"
"""Name of the timer until the back end has sent its state."""
_BEGIN_US: Final = 200_000
_Place: TypeAlias = tuple[int, tuple[str, ...]]
"""Number and split of a table, which never change."""


class LogFollower:
    """Copy of the tables, and the position of one machine in the log.

    Parameters
    ----------
    master : str
        The back end's address.
    turn : str
        Identifies this life of the machine: a state that an earlier life requested is too old.
    """

    def __init__(self, master: str, turn: str) -> None:
        self._master = master
        self._turn = turn
        self.copy = TableReplica()
        self.lsn = -1
        """The last entry received, whether or not the copy has applied it; -1: no state yet."""
        self._tables: dict[str, _Place] = {}
        """Tables that exist at that entry, by name."""
        self._history = Follower()

    @property
    def lineage(self) -> Lineage:
        """Lineage of the log as it was last heard."""
        return self._history.lineage

    @property
    def start(self) -> str:
        """Last start of the log that was heard of; empty: the first one."""
        return last_start(self.lineage)

    def hear(self, message: Log | State) -> bool:
        """Return whether a message is of the log as it is now.

        Forget the state if it is not a part of that log, which was restored from a backup.
        """
        before = self.lineage
        lineage: Lineage = {} if message.lineage is UNSET else message.lineage
        if not self._history.hear(lineage, 0):
            return False
        if self.lsn > shared_seq(before, self.lsn, lineage, self.lsn):
            self.copy, self.lsn, self._tables = TableReplica(), -1, {}
        return True

    def shared(self, start: str) -> int:
        """Return the last position of a start that is still in the log."""
        return shared_since(self.lineage, start, self.lsn)

    def fits(self, message: Log | State) -> bool:
        """Check that a state, or the new ones of some entries, are consistent: rows have tables."""
        if isinstance(message, Log):
            return self.lsn < 0 or self._after(message.entries) is not None
        tables = _places(message.tables)
        has_own_numbers = len({number for number, _ in tables.values()}) == len(message.tables)
        return has_own_numbers and all(name in tables for name, _ in message.rows)

    def _after(self, entries: Sequence[LogEntry]) -> dict[str, _Place] | None:
        """Return the tables that exist after some entries; None: the entries are inconsistent."""
        tables, lsn = self._tables, self.lsn
        for entry in entries:
            if entry.lsn != lsn + 1:
                continue
            lsn += 1
            if not isinstance(entry, TableEntry):
                if entry.name not in tables:
                    return None
                if isinstance(entry, DropEntry):
                    tables = {name: place for name, place in tables.items() if name != entry.name}
                continue
            ((name, place),) = _places([entry.table]).items()
            known = tables.get(name)
            is_taken = any(number == place[0] for number, _ in tables.values())
            if known != place and (known is not None or is_taken):
                return None
            tables = {**tables, name: place}
        return tables

    def begin(self) -> Sequence[Effect]:
        """Request the whole state, until it has arrived."""
        if self.lsn >= 0:
            return ()
        return Send(self._master, FollowLog(self._turn)), SetTimer(BEGIN, _BEGIN_US)

    def state(self, message: State) -> Sequence[Effect]:
        """Begin with a state, unless there is one already."""
        if message.turn != self._turn:
            return ()
        if self.lsn < 0:
            self.copy.load(message.lsn, message.tables, message.rows)
            self.lsn = self.copy.lsn
            self._tables = _places(message.tables)
        return (self.has(),)

    def fresh(self, message: Log) -> Iterator[LogEntry]:
        """Iterate over the entries that have not been received before, in order."""
        after = self._after(message.entries)
        self._tables = self._tables if after is None else after
        for entry in message.entries:
            if self.lsn >= 0 and entry.lsn == self.lsn + 1:
                self.lsn += 1
                yield entry

    def has(self) -> Send:
        """Acknowledge the log up to the last entry received."""
        return Send(self._master, Has(self.lsn, self.start or UNSET))


def _places(tables: Iterable[Table]) -> dict[str, _Place]:
    return {each.name: (each.number, tuple(each.split)) for each in tables}
