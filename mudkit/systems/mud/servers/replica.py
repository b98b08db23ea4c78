"""Replica: follows the master's log with a lag, and answers reads that may be as old as that."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from mudkit.events import Effect, Event, LinkUp, Ports, Received, SetTimer, TimerFired
from mudkit.systems.mud.messages import (
    FOLLOWER_FROM_BACK_END,
    REPLICA_FROM_PROCESSOR,
    Log,
    LogEntry,
    PartitionRead,
    State,
)
from mudkit.systems.mud.servers.log_follower import LogFollower
from mudkit.systems.mud.servers.reading import answered
from mudkit.systems.receiving import Accepts, dropped

__all__ = ["Replica"]

_APPLY: Final = "apply"


class Replica:
    """One replica.

    Parameters
    ----------
    ports : Ports
    master : str
        The back end's address.
    processors : sequence of str
        Addresses of the processors, which pass reads on.
    lag_us : int
        Time from receiving an entry to applying it, in µs.
    """

    def __init__(self, ports: Ports, master: str, processors: Sequence[str], lag_us: int) -> None:
        self._master = master
        self._accepts: dict[str, Accepts[Log | State] | Accepts[PartitionRead]] = {
            master: FOLLOWER_FROM_BACK_END,
            **dict.fromkeys(processors, REPLICA_FROM_PROCESSOR),
        }
        self._lag_us = lag_us
        self._log = LogFollower(master, ports.entropy(8).hex())
        self._waiting: deque[tuple[int, LogEntry]] = deque()

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received():
                accepts = self._accepts.get(event.source)
                message = None if accepts is None else accepts.decode(event.message)
                return dropped(event) if message is None else self._received(now_us, event, message)
            case LinkUp() | TimerFired(name="begin"):
                return self._log.begin()
            case TimerFired():
                return self._apply(now_us)
        return ()

    def _received(
        self, now_us: int, event: Received, message: Log | State | PartitionRead
    ) -> Sequence[Effect]:
        if isinstance(message, PartitionRead):
            is_other = (message.start or "") != self._log.start
            return answered(self._log.copy, message, self._master, is_other_start=is_other)
        copy = self._log.copy
        if not self._log.hear(message):
            return (self._log.has(),)  # a late message of a former start, or the store was wiped
        if self._log.copy is not copy:
            self._waiting.clear()
        if not self._log.fits(message):
            return dropped(event)
        if isinstance(message, State):
            return self._log.state(message)
        if self._log.lsn < 0:
            return self._log.begin()
        self._waiting += [(now_us + self._lag_us, entry) for entry in self._log.fresh(message)]
        return self._log.has(), *self._apply(now_us)

    def _apply(self, now_us: int) -> Sequence[Effect]:
        while self._waiting and self._waiting[0][0] <= now_us:
            self._log.copy.apply(self._waiting.popleft()[1])
        return (SetTimer(_APPLY, self._waiting[0][0] - now_us),) if self._waiting else ()
