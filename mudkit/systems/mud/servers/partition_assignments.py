"""Assignments of partitions to processors: by default they take those of a table in turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudkit.systems.mud.messages.partitions import read_partitions
from mudkit.systems.mud.messages.parts import processor_index
from mudkit.systems.mud.messages.servers import PartitionsMoved


class PartitionAssignments:
    """Processors of all partitions as a gateway or processor knows them.

    They are not durable: a server has to get them at its start if any partition was moved.
    """

    def __init__(self, processors: Sequence[str]) -> None:
        self._processors = processors
        self._epoch = 0
        self._moved: dict[tuple[int, int], str] = {}
        """Addresses of the processors of partitions that were moved, by number of the table and partition."""

    def accept(self, assigned: PartitionsMoved) -> bool:
        """Use the assignments of a message, and return True; False: they are not newer than the known ones.

        A processor that does not exist serves nothing.
        """
        if assigned.epoch <= self._epoch:
            return False
        self._epoch = assigned.epoch
        self._moved = {
            (table, partition): processor
            for table, partitions, processor in assigned.moved
            if processor in self._processors
            for partition in read_partitions(partitions)
        }
        return True

    def processor_of(self, table: int, partition: int) -> str:
        """Return the address of the processor that serves a partition of the table of a number."""
        moved = self._moved.get((table, partition))
        if moved is not None:
            return moved
        return self._processors[processor_index(table, partition, len(self._processors))]

    def serves(self, processor: str, table: int, partitions: Iterable[int]) -> bool:
        """Return whether a processor serves all of some partitions of a table."""
        return all(self.processor_of(table, partition) == processor for partition in partitions)
