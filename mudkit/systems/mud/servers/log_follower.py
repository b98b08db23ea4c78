"""Following the back end's log: in order, without a gap, also across restarts of either side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mudkit.events import Effect, Send, SetTimer
from mudkit.systems.mud.tables.replica import TableReplica

__all__ = ["BEGIN", "LogFollower"]

BEGIN: Final = "begin"
"""Name of the timer until the back end has sent its state."""
_BEGIN_US: Final = 200_000
_Place: TypeAlias = tuple[int, tuple[str, ...]]
"""Number and split of a table: they stay as they are."""


class LogFollower:
    """What one machine knows of the log.

    Parameters
    ----------
    master : str
        The back end's address.
    turn : str
        Which no other life of the machine has: a state that an earlier one asked for is too old.
    """

    def __init__(self, master: str, turn: str) -> None:
        self._master = master
        self._turn = turn
        self.copy = TableReplica()
        self.lsn = -1
        """The last entry that came, whether or not the copy has taken it; -1: no state yet."""
        self._tables: dict[str, _Place] = {}
        """Those that there are then, by name."""

    def fits(self, message: Mapping[str, Any]) -> bool:
        """Say whether a state, or what is new of some entries, is of one piece: rows have tables."""
        if message["kind"] == "state":
            tables = _places(message["tables"])
            is_one_each = len({number for number, _ in tables.values()}) == len(message["tables"])
            return is_one_each and all(name in tables for name, _ in message["rows"])
        return self.lsn < 0 or self._after(message["entries"]) is not None

    def _after(self, entries: Sequence[Mapping[str, Any]]) -> dict[str, _Place] | None:
        """Give the tables that there are after some entries; None: they are not of one piece."""
        tables, lsn = self._tables, self.lsn
        for entry in entries:
            if entry["lsn"] != lsn + 1:
                continue
            lsn += 1
            if entry["op"] != "table":
                if entry["name"] not in tables:
                    return None
                if entry["op"] == "drop":
                    tables = {name: place for name, place in tables.items() if name != entry["name"]}
                continue
            ((name, place),) = _places([entry["table"]]).items()
            known = tables.get(name)
            is_taken = any(number == place[0] for number, _ in tables.values())
            if known != place and (known is not None or is_taken):
                return None
            tables = {**tables, name: place}
        return tables

    def begin(self) -> Sequence[Effect]:
        """Ask for the whole state, until it has come."""
        if self.lsn >= 0:
            return ()
        return Send(self._master, {"kind": "follow", "turn": self._turn}), SetTimer(BEGIN, _BEGIN_US)

    def state(self, message: Mapping[str, Any]) -> Sequence[Effect]:
        """Begin with the state that has come."""
        if message["turn"] != self._turn:
            return ()
        if self.lsn < 0:
            self.copy.load(message["lsn"], message["tables"], message["rows"])
            self.lsn = self.copy.lsn
            self._tables = _places(message["tables"])
        return (self.has(),)

    def fresh(self, message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Give the entries that have not come before, in order."""
        after = self._after(message["entries"])
        self._tables = self._tables if after is None else after
        for entry in message["entries"]:
            if self.lsn >= 0 and entry["lsn"] == self.lsn + 1:
                self.lsn += 1
                yield entry

    def has(self) -> Send:
        """Tell the master how far it is."""
        return Send(self._master, {"kind": "has", "lsn": self.lsn})


def _places(tables: Sequence[Mapping[str, Any]]) -> dict[str, _Place]:
    return {each["name"]: (each["number"], tuple(each["split"])) for each in tables}
