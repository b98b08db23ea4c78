"""Pending writes that an application makes: their checks, their base versions, and their delays.

A single write of a record has what it is based on from the local store: the version of the back end, or the
newest pending write of the record. The parts of a batch are one request, and have one delay.
"""

from __future__ import annotations

from functools import reduce
from typing import Final, Literal, TypeAlias, get_args

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.errors import ParameterError
from mudkit.events import size_bytes
from mudkit.systems.mud.device.connection import MAX_BATCH_BYTES
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite
from mudkit.systems.mud.device.parts import name_part
from mudkit.systems.mud.device.planning import UtilityWrites
from mudkit.systems.mud.messages.requests import WritePart
from mudkit.systems.mud.operations import CommitBatch, Write
from mudkit.systems.mud.policies.policies import NEVER, Now, WritePolicy, check_delay
from mudkit.systems.mud.tables.changes import check_kinds
from mudkit.systems.mud.tables.records import SentPredicate, check_key, check_record
from mudkit.wire import Fields, as_wire

WriteType: TypeAlias = Literal["blind", "conditional"]
WRITE_TYPES: Final[tuple[WriteType, ...]] = get_args(WriteType)
DueTime: TypeAlias = int | Literal["never"] | None


class NewWrites:
    """Builder of the pending writes of one client, which stores none of them.

    ``endpoint`` is that of the client, with which unique keys begin.
    """

    def __init__(self, local: Local, endpoint: str, policy: WritePolicy) -> None:
        self._local = local
        self._endpoint = endpoint
        self._policy = policy
        self._delays_none = isinstance(policy, Now)
        self._weighs = isinstance(policy, UtilityWrites)

    def build(
        self,
        now_us: int,
        operation: Write,
        context: Fields,
        seq: int,
        batch: tuple[int, int] | None = None,
    ) -> PendingWrite:
        """Build the pending write of an operation, with its sequence number; ``batch`` None: no part of one.

        Raise MudkitError if it does not fit its table.
        """
        local, name, key = self._local, operation.table, operation.key
        data, predicate, changes = operation.record, operation.predicate, operation.changes
        table = local.tables.get(name)
        if changes is not None and table is not None:
            check_kinds(changes, table)
        if data is not None:
            data = check_record(data)
            if table is not None:
                table.check_columns(data)
        sent = None
        if predicate is not None:
            sent = SentPredicate.of(predicate.bind(sender=context) if predicate.unbound else predicate)
            if table is not None:
                table.check_predicate(sent)
        key = check_key(self._unique_key(seq) if key is None else key)
        current, before = local.held_row(name, key), local.newest_write(name, key)
        write = PendingWrite(
            seq=seq, name=name, key=key, data=data,
            type="blind" if operation.type == "blind" else "conditional",
            predicate=sent, reader=dict(operation.reader),
            replaces=0 if current is None else current.ver, after=None if before is None else before.seq,
            base=None if current is None or current.data is None else current, invoked_us=now_us,
            table=local.table_number_of(name) if table is None else table.number,
            may_write=None if operation.may_write is None else SentPredicate.of(operation.may_write),
            changes=changes, batch=batch,
        )  # fmt: skip
        version = operation.version
        if version is not None:
            write = replace(write, after=None, replaces=version, base=_base_at(version, write.base))
        if self._delays_none or (self._weighs and operation.utility is None):
            return write
        return self._with_due_time(now_us, write, operation, context)

    def build_batch(self, now_us: int, batch: CommitBatch, context: Fields) -> list[PendingWrite]:
        """Build the pending writes of a batch; their delay is the shortest that the policy gives one.

        Raise MudkitError if a part does not fit the table, their records are in several partitions, or they
        do not fit a message.
        """
        count, first = len(batch.parts), self._local.writes.last_seq + 1
        seqs = first, first + count - 1
        writes: list[PendingWrite] = []
        for place, part in enumerate(batch.parts):
            with name_part(place + 1, count, part.key):
                writes.append(self.build(now_us, part, context, first + place, seqs))
        table = self._local.tables.get(batch.table)
        if table is not None:
            table.check_batch([write.key for write in writes])
        if (size := size_bytes([build_part(write) for write in writes])) > MAX_BATCH_BYTES:
            raise ParameterError(
                "The batch is too large for a message.",
                where=f"a batch of the table {batch.table!r}",
                found=f"{count} writes with {size:,} bytes",
                expected=f"at most {MAX_BATCH_BYTES:,} bytes",
                remedy="commit several batches, or write the records one by one",
            )
        due_us = reduce(earlier, [write.due_us for write in writes])
        return [replace(write, due_us=due_us) for write in writes]

    def _unique_key(self, seq: int) -> str:
        """Return a unique key, from the name of a write that is not stored yet."""
        named = self._local.writes.item_id(seq)
        return f"{self._endpoint} {named.incarnation} {named.number}"

    def _with_due_time(
        self, now_us: int, write: PendingWrite, operation: Write, context: Fields
    ) -> PendingWrite:
        """Return a write with the time at which the write policy has it sent; unchanged: at once."""
        seen = {**as_wire(write), "utility": operation.utility}
        delay = check_delay(self._policy, self._policy.delay(seen, {**context, "now_us": now_us}))
        if delay is None:
            return write
        return replace(write, due_us=delay if delay == NEVER else now_us + round(delay * 1e6))


def earlier(due_us: DueTime, other_us: DueTime) -> DueTime:
    """Return the earlier of two times at which writes are due; None: at once."""
    if due_us is None or other_us is None:
        return None
    if due_us == NEVER or other_us == NEVER:
        return other_us if due_us == NEVER else due_us
    return min(due_us, other_us)


def build_part(write: PendingWrite) -> WritePart:
    """Build the part of a request of a batch."""
    return WritePart(
        key=write.key, type=write.type, data=write.data, predicate=write.predicate, replaces=write.replaces,
        may_write=UNSET if write.may_write is None else write.may_write,
        changes=UNSET if write.changes is None else write.changes,
    )  # fmt: skip


def _base_at(version: int, base: HeldRow | None) -> HeldRow | None:
    """Return the committed record that a write is based on, if it is of this version."""
    return base if base is not None and base.ver == version else None
