"""Ranges of netids, and their notification servers, as far as a server has heard of the assignments.

The naming machine alone changes them (:mod:`~mudkit.systems.mud.servers.naming`). Each notification server,
processor and the generator has a durable copy. The higher epoch counts: a server that hears of a lower one
answers with its own, and takes a higher one from each that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.events import Effect, Ports, Send
from mudkit.systems.mud.messages.naming import (
    Alive,
    Assignments,
    AssignmentsRequest,
    AssignmentsTaken,
    Probe,
    Suspect,
)
from mudkit.systems.mud.messages.parts import range_index

SUSPECT_US: Final = 10_000_000
"""A server that has not acknowledged a message for this time is reported to the naming machine."""
_KEY: Final = "assignments"


class Ranges:
    """Server of each range of netids; ``servers`` are all notification servers, in the order of the ranges.

    At first each has one of them. ``naming`` is the address of the naming machine.
    """

    def __init__(self, ports: Ports, naming: str, servers: Sequence[str]) -> None:
        self._store, self._naming, self._servers = ports.store, naming, frozenset(servers)
        self.present = self._store.get(_KEY, Assignments) or Assignments(0, list(servers))

    @property
    def epoch(self) -> int:
        """Epoch of the assignments."""
        return self.present.epoch

    @property
    def serving(self) -> list[str]:
        """Servers that have a range, each once."""
        return list(dict.fromkeys(self.present.servers))

    def is_serving(self, server: str) -> bool:
        """Return whether a server has a range."""
        return server in self.present.servers

    def server_of(self, netid: str) -> str:
        """Return the notification server of a device."""
        servers = self.present.servers
        return servers[range_index(netid, len(servers))]

    def fits(self, assignments: Assignments) -> bool:
        """Return whether assignments are of these ranges and servers."""
        servers = assignments.servers
        return len(servers) == len(self.present.servers) and self._servers.issuperset(servers)

    def take(self, assignments: Assignments) -> bool:
        """Store assignments of a higher epoch; return whether they are such, so that they are in effect."""
        if assignments.epoch <= self.epoch:
            return False
        self.present = assignments
        self._store.put(_KEY, assignments)
        return True

    def answer(self, source: str, message: Assignments | AssignmentsRequest | Probe) -> Sequence[Effect]:
        """Answer a message of the naming machine, or assignments of another server, after they were taken."""
        match message:
            case Probe(sent_us=sent_us):
                return (Send(source, Alive(sent_us, self.epoch)),)
            case Assignments(epoch=epoch) if epoch == self.epoch:
                return (Send(source, AssignmentsTaken(epoch)),) if source == self._naming else ()
        return (Send(source, self.present),)

    def suspect(self, server: str) -> Sequence[Effect]:
        """Report a server that does not answer to the naming machine.

        No effect if it has no range, or no other server can have it.
        """
        is_replaceable = len(self._servers) > 1 and self.is_serving(server)
        return (Send(self._naming, Suspect(server, self.epoch)),) if is_replaceable else ()

    def hear(self, epoch: int) -> Sequence[Effect]:
        """Ask the naming machine for the assignments if a device has heard of a higher epoch."""
        return (Send(self._naming, AssignmentsRequest()),) if epoch > self.epoch else ()
