"""Following the back end's log: in order, without a gap, also across restarts of either side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mudkit.events import Effect, Send, SetTimer
from mudkit.systems.mud.copy import Copy

__all__ = ["BEGIN", "Follower"]

BEGIN: Final = "begin"
"""Name of the timer until the back end has sent its state."""
_BEGIN_US: Final = 200_000


class Follower:
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
        self.copy = Copy()
        self.lsn = -1
        """The last entry that came, whether or not the copy has taken it; -1: no state yet."""

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
        return (self.has(),)

    def fresh(self, message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Give the entries that have not come before, in order."""
        for entry in message["entries"]:
            if self.lsn >= 0 and entry["lsn"] == self.lsn + 1:
                self.lsn += 1
                yield entry

    def has(self) -> Send:
        """Tell the master how far it is."""
        return Send(self._master, {"kind": "has", "lsn": self.lsn})
