"""Order between the committed_wio reads of a client and its writes."""

from __future__ import annotations

from mudkit.systems.mud.device.connection import PendingRead
from mudkit.systems.mud.device.local import Local, PendingWrite


class ReadOrder:
    """Unanswered committed_wio reads, each with the sequence number of the last write before it."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self._reads: dict[int, tuple[PendingRead, int]] = {}

    def add(self, op_id: int, read: PendingRead) -> None:
        """Add a read: writes made after it are blocked until :meth:`remove`."""
        self._reads[op_id] = read, self._local.writes.last_seq

    def remove(self, op_id: int) -> bool:
        """Remove a read that is answered; return whether it was in the order."""
        return self._reads.pop(op_id, None) is not None

    def oldest_read(self, name: str) -> PendingRead | None:
        """Return the oldest unanswered committed_wio read of a table; None: there is none."""
        return next((read for read, _ in self._reads.values() if read.query.table == name), None)

    def blocks(self, write: PendingWrite) -> bool:
        """Return whether an unanswered read must not see a write."""
        return bool(self._reads) and any(
            last < write.seq and self.concerns(read, write) for read, last in self._reads.values()
        )

    def is_between(self, first: PendingWrite, then: PendingWrite) -> bool:
        """Return whether an unanswered read was made after ``first``, and concerns the new write ``then``."""
        return bool(self._reads) and any(
            first.seq <= last and self.concerns(read, then) for read, last in self._reads.values()
        )

    def concerns(self, read: PendingRead, write: PendingWrite) -> bool:
        """Return whether a write is on a partition that a read concerns."""
        if write.name != read.query.table:
            return False
        table = self._local.tables.get(read.query.table)
        if read.keys is None or table is None:
            return True
        return table.partition_of(write.key) in {table.partition_of(key) for key in read.keys}
