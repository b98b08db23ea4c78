"""Calls that write: stored first, durably, then sent to the back end, in order for each record.

Rules (Mobius 4.2):

=============  ======================================================================================
write, delete  stage 1: stored as pending. A blind one absorbs the newest write of its record if it may
               be joined with it (:mod:`~mudkit.systems.mud.device.joined_writes`): both have the version
               of the later one. No committed_wio read may come between them
batch          its parts are pending together, join no other write, and are one request
stage 2        see :mod:`~mudkit.systems.mud.device.write_requests` for what is sent, and
               :mod:`~mudkit.systems.mud.device.write_outcomes` for what becomes of it
cancel         the write is removed if nobody can know of it
=============  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from mudkit.errors import OperationCancelled
from mudkit.events import Effect, Record
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.joined_writes import join
from mudkit.systems.mud.device.local import Local, PendingWrite
from mudkit.systems.mud.device.new_writes import NewWrites, earlier
from mudkit.systems.mud.device.read_order import ReadOrder
from mudkit.systems.mud.device.write_outcomes import WriteOutcomes, build_part_record
from mudkit.systems.mud.device.write_requests import WriteRequests
from mudkit.systems.mud.operations import CommitBatch, Write
from mudkit.systems.mud.policies.policies import NEVER
from mudkit.systems.mud.tables.records import value_hash
from mudkit.wire import Fields, as_wire


class WritePath:
    """Calls of one client that write."""

    def __init__(
        self,
        local: Local,
        new_writes: NewWrites,
        requests: WriteRequests,
        outcomes: WriteOutcomes,
        order: ReadOrder,
        access: Access,
    ) -> None:
        self._local = local
        self._new_writes = new_writes
        self._requests = requests
        self._outcomes = outcomes
        self._order = order
        self._access = access

    def write(self, now_us: int, op_id: int, operation: Write, context: Fields) -> Sequence[Effect]:
        """Store a write or a delete as pending (stage 1), and send it if nothing blocks it.

        It may take the place of the newest write of its record instead. Other heads that nothing blocks any
        more are sent, too. Raise MudkitError, without effect, if the write does not fit its table.
        """
        local = self._local
        write = self._new_writes.build(now_us, operation, context, local.writes.last_seq + 1)
        if write.after is not None:
            before = local.writes[write.after]
            if self._can_absorb(write, before):
                joined = join(write, before, local, self._access)
                if joined is not None:
                    return (_build_call_record(op_id, joined), *self._absorb(now_us, op_id, joined, before))
        is_head = local.add_write(write)
        self._outcomes.add_call(write.seq, op_id)
        return (_build_call_record(op_id, write), *self._requests.send_new(now_us, write, is_head=is_head))

    def write_batch(self, now_us: int, op_id: int, batch: CommitBatch, context: Fields) -> Sequence[Effect]:
        """Store the parts of a batch as pending, and send them together if nothing blocks one of them.

        Raise MudkitError, without effect, if a part does not fit the table, their records are in several
        partitions, or they do not fit a message.
        """
        writes = self._new_writes.build_batch(now_us, batch, context)
        self._local.writes.check_room(len(writes))
        for write in writes:
            self._local.add_write(write)
        self._outcomes.add_call(writes[0].seq, op_id)
        called = [build_part_record(op_id, write, None) for write in writes]
        return (*called, *self._requests.send_new(now_us, writes[0], is_head=True))

    def pending(self) -> list[Fields]:
        """List the unanswered writes; ``held`` is what blocks one, if anything does."""
        listed: list[Fields] = []
        for write in self._local.writes:
            shown = as_wire(write)
            by_policy = "policy" if write.due_us == NEVER else None
            listed.append({**shown, "held": "token" if shown.pop("is_refused") else by_policy})
        return listed

    def lacks_token(self, now_us: int, op_id: int) -> bool:
        """Return whether the write of a call, or one of its record before it, waits for a valid token."""
        awaited = self._outcomes.find_awaited(op_id)
        return awaited is not None and any(
            self._requests.lacks_token(now_us, write)
            for write in self._local.writes
            if (write.name, write.key) == (awaited.name, awaited.key) and write.seq <= awaited.seq
        )

    def cancel(self, now_us: int, op_id: int) -> Sequence[Effect]:
        """Remove the write of a call, and complete its call with OperationCancelled.

        No effect, and an empty result, unless the write was never sent, has absorbed none and was not
        absorbed, and is the newest of its record.
        """
        write = self._outcomes.find_write(op_id)
        if write is None or not self._requests.is_unsent(write.seq):
            return ()
        parts = self._local.parts_of(write)
        if any(self._local.newest_write(part.name, part.key) is not part for part in parts):
            return ()
        withdrawn = self._requests.withdraw(now_us, write.seq)
        keys = ", ".join(repr(part.key) for part in parts)
        error = cancelled_error(f"table {write.name!r}, key {keys}")
        return [*withdrawn, *self._outcomes.fail(now_us, write, error, None)]

    def _can_absorb(self, write: PendingWrite, before: PendingWrite) -> bool:
        """Return whether nobody has seen a write before a new one, and no read must see it alone."""
        return self._requests.is_unsent(before.seq) and not self._order.is_between(before, write)

    def _absorb(self, now_us: int, op_id: int, write: PendingWrite, before: PendingWrite) -> Sequence[Effect]:
        """Store a write in the place of ``before``, which it absorbs, due at the earlier time of both.

        The calls of both complete with its outcome. A head that is due earlier than before is checked again.
        """
        due_us = earlier(write.due_us, before.due_us)
        write = replace(
            write, seq=before.seq, after=before.after, due_us=due_us, absorbed=before.absorbed + 1
        )
        self._local.writes.replace(write.seq, write)
        self._outcomes.add_call(write.seq, op_id)
        if due_us == before.due_us or self._requests.is_requested(write.seq):
            return ()
        head = self._local.oldest_write(write.name, write.key)
        if head is None or head.seq != write.seq:
            return ()
        self._requests.check_earlier(write.seq)
        return self._requests.advance(now_us)


def cancelled_error(where: str) -> OperationCancelled:
    """Build the error of an operation that the application has cancelled."""
    return OperationCancelled("The application has cancelled this operation.", where=where)


def _build_call_record(op_id: int, write: PendingWrite) -> Record:
    """Build the effect that records a call; the value of changes is known only with their outcome."""
    if write.changes is not None:
        return Record("operations", {"op_id": op_id})
    return Record("operations", {"op_id": op_id, "value_hash": partial(value_hash, write.data)})
