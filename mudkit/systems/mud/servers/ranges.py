"""Ranges of netids and of partitions, and their servers, as far as a server has heard of the assignments.

The naming machine alone changes them (:mod:`~mudkit.systems.mud.servers.naming`). Each notification server,
processor and gateway, the back end and the generator have a durable copy. The higher epoch counts: a server
that hears of a lower one answers with its own, and takes a higher one from each that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from mudkit.events import Effect, Ports, Send
from mudkit.systems.mud.messages.holdings import Holding
from mudkit.systems.mud.messages.naming import (
    Alive,
    Assignments,
    AssignmentsRequest,
    AssignmentsTaken,
    Probe,
    Suspect,
)
from mudkit.systems.mud.messages.partitions import read_partitions, write_partitions
from mudkit.systems.mud.messages.parts import partition_range_index, range_index

SUSPECT_US: Final = 10_000_000
"""A server that has not acknowledged a message for this time is reported to the naming machine."""
_AGAIN_US: Final = 1_000_000
"""Time until a server is reported again."""
_RANGES_EACH: Final = 12
"""Ranges of partitions of each of several processors at first: two to five share those of a dead one."""
_KEY: Final = "assignments"


class Ranges:
    """Servers of all ranges; ``servers`` are the notification servers, in the order of the ranges of netids.

    At first each has one of them, and the ``processors`` take the ranges of partitions in turns. ``naming``
    is the address of the naming machine.
    """

    def __init__(self, ports: Ports, naming: str, servers: Sequence[str], processors: Sequence[str]) -> None:
        self._store, self._naming = ports.store, naming
        self._servers, self._processors = frozenset(servers), frozenset(processors)
        known = self._store.get(_KEY, Assignments) or Assignments(0, list(servers))
        if not known.processors:  # as installed, or of a store that knows only the ranges of netids
            in_turns = [*processors] * (_RANGES_EACH if len(processors) > 1 else 1)
            known = replace(known, processors=in_turns)
        self._suspected_us: dict[str, int] = {}
        """Time of the last report of each server."""
        self._use(known)

    def _use(self, assignments: Assignments) -> None:
        """Use assignments from now on."""
        self.present = assignments
        self._moved = {
            (table, partition): processor
            for table, partitions, processor in assignments.moved
            for partition in read_partitions(partitions)
        }
        moved = [processor for _, _, processor in assignments.moved]
        self.serving_processors = list(dict.fromkeys([*assignments.processors, *moved]))
        """Processors that have a range, or a partition that was moved to them, each once."""
        self._serving = frozenset((*assignments.servers, *self.serving_processors))

    @property
    def epoch(self) -> int:
        """Epoch of the assignments."""
        return self.present.epoch

    @property
    def serving(self) -> list[str]:
        """Notification servers that have a range, each once."""
        return list(dict.fromkeys(self.present.servers))

    def is_serving(self, server: str) -> bool:
        """Return whether a server has a range, or a partition that was moved to it."""
        return server in self._serving

    def server_of(self, netid: str) -> str:
        """Return the notification server of a device."""
        servers = self.present.servers
        return servers[range_index(netid, len(servers))]

    def processor_of(self, table: int, partition: int) -> str:
        """Return the processor that serves a partition of the table of a number."""
        moved = self._moved.get((table, partition)) if self._moved else None
        if moved is not None:
            return moved
        processors = self.present.processors
        return processors[partition_range_index(table, partition, len(processors))]

    def serves(self, processor: str, table: int, partitions: Iterable[int]) -> bool:
        """Return whether a processor serves all of some partitions of a table."""
        return all(self.processor_of(table, partition) == processor for partition in partitions)

    def build_holding(self, processor: str) -> Holding:
        """Build the holding of a processor that has its partitions only."""
        processors = self.present.processors
        taken = write_partitions(index for index, owner in enumerate(processors) if owner == processor)
        gained: dict[int, list[int]] = {}
        lost: dict[int, list[int]] = {}
        for (table, partition), owner in self._moved.items():
            if owner == processor:
                gained.setdefault(table, []).append(partition)
            elif processors[partition_range_index(table, partition, len(processors))] == processor:
                lost.setdefault(table, []).append(partition)
        return Holding(
            len(processors),
            taken,
            [(table, write_partitions(of)) for table, of in sorted(gained.items())],
            [(table, write_partitions(of)) for table, of in sorted(lost.items())],
        )

    def fits(self, assignments: Assignments) -> bool:
        """Return whether assignments are of these ranges and servers."""
        present = self.present
        moved = {processor for _, _, processor in assignments.moved}
        return (
            len(assignments.servers) == len(present.servers)
            and len(assignments.processors) == len(present.processors)
            and self._servers.issuperset(assignments.servers)
            and self._processors.issuperset((*assignments.processors, *moved))
        )

    def take(self, assignments: Assignments) -> bool:
        """Store assignments of a higher epoch; return whether they are such, so that they are in effect."""
        if assignments.epoch <= self.epoch:
            return False
        self._use(assignments)
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

    def suspect(self, now_us: int, server: str) -> Sequence[Effect]:
        """Report a server that does not answer to the naming machine, at most once a second.

        No effect if it has no range, or no other server can have it.
        """
        of_kind = self._servers if server in self._servers else self._processors
        is_again = now_us < self._suspected_us.get(server, -_AGAIN_US) + _AGAIN_US
        if len(of_kind) < 2 or is_again or not self.is_serving(server):
            return ()
        self._suspected_us[server] = now_us
        return (Send(self._naming, Suspect(server, self.epoch)),)

    def suspect_if_silent(self, now_us: int, server: str, age_us: int) -> Sequence[Effect]:
        """Report a server that has not acknowledged a message of this age, if that is too old."""
        return self.suspect(now_us, server) if age_us >= SUSPECT_US else ()

    def list_moved(self, table: int, partition: int, processor: str) -> list[tuple[int, str, str]]:
        """Return all partitions that other processors serve than those of their ranges, after a move."""
        partitions_of: dict[tuple[int, str], list[int]] = {}
        for (number, moved), owner in {**self._moved, (table, partition): processor}.items():
            processors = self.present.processors
            if owner != processors[partition_range_index(number, moved, len(processors))]:
                partitions_of.setdefault((number, owner), []).append(moved)
        return [(number, write_partitions(of), owner) for (number, owner), of in partitions_of.items()]

    def hear(self, epoch: int) -> Sequence[Effect]:
        """Ask the naming machine for the assignments if a device has heard of a higher epoch."""
        return (Send(self._naming, AssignmentsRequest()),) if epoch > self.epoch else ()
