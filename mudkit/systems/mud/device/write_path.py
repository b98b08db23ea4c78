"""Writes of a client: first into the local store, then to the back end, in order for each record.

Rules (Mobius 4.2):

=================  ==================================================================================
write, delete      stage 1: stored as pending, durably. A blind one absorbs the newest write of its
                   record, if that is blind, too, and was never sent: both have the version of the
                   later one. No committed_wio read may come between them. Changes of columns join the
                   changes, or the record, before them
head of a record   stage 2: sent as soon as nothing blocks it, with the writes of the record that wait
                   behind it: each names the one that it follows. A write made after a committed_wio
                   read waits for its answer: the read must not see it
link is up         what waited for it goes in as few messages as fit the window
committed          the version of the store is stored; the next write of the record is based on it. An
                   answer that comes before that of an earlier write of the record waits for it
conflict           the pending write is removed and the store's version is stored, if it is visible;
                   conditional writes based on it conflict, too
refused            the write is removed, with the reason; conditional writes based on it conflict
batch              its parts are pending together, join no other write, and are one request, which is
                   sent when each of them is the head of its record. One outcome is that of all
token has expired  the write stays, listed as held, until there is a valid token
due                a delay is over: all delayed writes go in the same message, except those that stay
                   until a read needs them (Mobius 7.3); so do those of the other apps of the device
=================  ==================================================================================
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from functools import partial, reduce
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.errors import MudkitError, OperationCancelled, ParameterError, TokenExpired
from mudkit.events import Complete, Effect, Ports, Record, Send, SetTimer, size_bytes
from mudkit.systems.mud.device.attachment import SERVICE, DelayOver
from mudkit.systems.mud.device.connection import (
    MAX_BATCH_BYTES,
    Connection,
    PendingAsk,
    PendingRead,
    Writing,
    error_in,
)
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite
from mudkit.systems.mud.device.parts import error_of_part, name_part, record_part
from mudkit.systems.mud.device.planning import Planner, UtilityWrites
from mudkit.systems.mud.messages import (
    CommitBatch,
    RequestRefused,
    Row,
    Write,
    WriteOutcome,
    WritePart,
    WriteRequest,
    WriteResult,
    decode_error,
)
from mudkit.systems.mud.policies.policies import NEVER, Now, WritePolicy, check_delay
from mudkit.systems.mud.result import Conflict
from mudkit.systems.mud.tables.changes import change_record, check_kinds, compose
from mudkit.systems.mud.tables.records import SentPredicate, check_key, check_record, value_hash
from mudkit.wire import Fields, as_wire

DUE: Final = "due"
WriteType: TypeAlias = Literal["blind", "conditional"]
_Due: TypeAlias = int | Literal["never"] | None
WRITE_TYPES: Final[tuple[WriteType, ...]] = get_args(WriteType)
_MANY_CONFLICTS: Final = 10
"""Conflicts of one record in a row that are an incident: a loop of merges which never comes through."""


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
        return any(first.seq <= last and self.concerns(read, then) for read, last in self._reads.values())

    def concerns(self, read: PendingRead, write: PendingWrite) -> bool:
        """Return whether a write is on a partition that a read concerns."""
        if write.name != read.query.table:
            return False
        table = self._local.tables.get(read.query.table)
        if read.keys is None or table is None:
            return True
        return table.partition_of(write.key) in {table.partition_of(key) for key in read.keys}


class _Decided(NamedTuple):
    """Write with the outcome of its call: its version, and the record after changes; None: no such."""

    write: PendingWrite
    version: int | None
    data: Fields | None = None


class WritePath:
    """Writes of one client.

    The head of a record, its oldest pending write, is sent, and with it those that wait behind it. A head
    that is not in flight is delayed by the policy, blocked by a read, or blocked by its token; each is
    checked again when that changes, so that the cost of an answer does not grow with the number of pending
    writes.
    """

    def __init__(
        self,
        ports: Ports,
        local: Local,
        connection: Connection,
        planner: Planner,
        policy: WritePolicy,
        order: ReadOrder,
    ) -> None:
        self._store = ports.store
        self._local = local
        self._connection = connection
        self._planner = planner
        self._policy = policy
        self._order = order
        self._calls: dict[int, list[int]] = {}
        """Calls by sequence number, first those whose writes were absorbed; they end with the machine."""
        self._asks: dict[int, PendingAsk] = {}
        """Requests that the connection has, sent or not, by the sequence number of their write."""
        self._unsent: set[int] = set()
        """Writes of this start that were never sent: no server has them, nor the network."""
        self._early_answers: dict[int, WriteOutcome | RequestRefused] = {}
        """Answers that came before that of an earlier write of their records."""
        self._unchecked: set[int] = set(local.oldest_seqs())
        """Writes that :meth:`advance` has to check: heads, unless they were removed since."""
        self._delayed: list[tuple[int, int]] = []
        """Heads that are not due, ordered by due time: ``(due_us, seq)``."""
        self._blocked: set[int] = set()
        self._conflicts: dict[tuple[str, str], int] = {}
        """Conflicts in a row of this start, by table and key."""
        self._without_token: set[int] = set()
        self.shares_device = False
        """True if other apps of the device have writes, too."""

    def write(self, now_us: int, op_id: int, operation: Write, context: Fields) -> Sequence[Effect]:
        """Store a write or a delete as pending (stage 1), and send it if nothing blocks it.

        It may take the place of the newest write of its record instead. Other heads that nothing blocks any
        more are sent, too. Raise MudkitError, without effect, if the write does not fit its table.
        """
        write = self._build_pending(now_us, operation, self._local.writes.last_seq + 1, context)
        write = self._with_due_time(now_us, write, operation, context)
        before = self._local.newest_write(write.name, write.key)
        joined = None if before is None else self._join(write, before)
        if before is not None and joined is not None:
            return (_build_call_record(op_id, joined), *self._absorb(now_us, op_id, joined, before))
        written = _build_call_record(op_id, write)
        self._local.add_write(write)
        self._calls[write.seq] = [op_id]
        self._unsent.add(write.seq)
        if before is not None:
            return (written,)
        self._unchecked.add(write.seq)
        return (written, *self.advance(now_us))

    def write_batch(self, now_us: int, op_id: int, batch: CommitBatch, context: Fields) -> Sequence[Effect]:
        """Store the parts of a batch as pending, and send them together if nothing blocks one of them.

        Their delay is the shortest that the policy gives one. Raise MudkitError, without effect, if a part
        does not fit the table, their records are in several partitions, or they do not fit a message.
        """
        count, first = len(batch.parts), self._local.writes.last_seq + 1
        writes: list[PendingWrite] = []
        for place, part in enumerate(batch.parts):
            with name_part(place + 1, count, part.key):
                write = self._build_pending(now_us, part, first + place, context)
            write = replace(write, batch=(first, first + count - 1))
            writes.append(self._with_due_time(now_us, write, part, context))
        table = self._local.tables.get(batch.table)
        if table is not None:
            table.check_batch([write.key for write in writes])
        if (size := size_bytes([_build_part(write) for write in writes])) > MAX_BATCH_BYTES:
            raise ParameterError(
                "The batch is too large for a message.",
                where=f"a batch of the table {batch.table!r}",
                found=f"{count} writes with {size:,} bytes",
                expected=f"at most {MAX_BATCH_BYTES:,} bytes",
                remedy="commit several batches, or write the records one by one",
            )
        self._local.writes.check_room(count)
        due_us = reduce(_earlier, [write.due_us for write in writes])
        for write in writes:
            self._local.add_write(replace(write, due_us=due_us))
        self._calls[first] = [op_id]
        self._unsent.add(first)
        self._unchecked.add(first)
        called = [_build_part_record(op_id, write, None) for write in writes]
        return (*called, *self.advance(now_us))

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
        writes = self._local.writes
        called = [write for seq in self._calls if op_id in self._calls[seq] and (write := writes.get(seq))]
        return any(
            self._lacks_token(now_us, other)
            for write in called
            for other in writes
            if (other.name, other.key) == (write.name, write.key) and other.seq <= write.seq
        )

    def advance(self, now_us: int) -> Sequence[Effect]:
        """Send the unchecked and due heads that nothing blocks, and what may follow them (stage 2).

        If one's delay is over, all delayed writes go with it, also those whose delay is not; the service is
        notified if other apps of the device have writes.
        """
        while self._delayed and self._delayed[0][0] <= now_us:
            self._unchecked.add(self._delayed.pop(0)[1])
        heads: list[PendingWrite] = []
        unchecked = [write for seq in self._unchecked if (write := self._local.writes.get(seq)) is not None]
        for seq in sorted({write.request_seq for write in unchecked}):
            write = self._admit_or_keep(now_us, seq)
            if write is not None:
                heads.append(write)
        self._unchecked.clear()
        if all(write.due_us is None for write in heads):
            return self._send_heads(now_us, heads, are_due=False)
        reported = (Send(SERVICE, DelayOver()),) if self.shares_device else ()
        heads += self._take_delayed()  # a delay is over: the delayed writes go in the same message
        return [*reported, *self._send_heads(now_us, heads, are_due=True)]

    def send_delayed(self, now_us: int) -> Sequence[Effect]:
        """Send all delayed writes, due or not: the delay of another app's writes is over."""
        return self._send_heads(now_us, self._take_delayed(), are_due=True)

    def _take_delayed(self) -> list[PendingWrite]:
        """Remove all heads from those that are delayed, and return them by sequence number."""
        waiting, self._delayed = sorted(seq for _, seq in self._delayed), []
        return [self._local.writes[seq] for seq in waiting]

    def _send_heads(self, now_us: int, heads: Iterable[PendingWrite], *, are_due: bool) -> Sequence[Effect]:
        """Send heads and the writes of their records that may follow; set the timer of delayed ones."""
        asks: list[PendingAsk] = []
        for write in heads:
            asks.append(self._add_request(write))
            for part in self._local.parts_of(write):
                asks += self._add_following(now_us, part, are_due=are_due)
        effects = [*self.send(now_us, asks)]
        if self._delayed:
            effects.append(SetTimer(DUE, self._delayed[0][0] - now_us))
        return effects

    def send(self, now_us: int, asks: Iterable[PendingAsk]) -> Sequence[Effect]:
        """Send requests of writes, built as of now, in as few messages as possible.

        Nothing is sent without a link; what the window has no room for is queued in the connection.
        """
        return self._connection.send_writes(now_us, asks, self._build_sent)

    def add_following_requests(self, now_us: int) -> None:
        """Add the requests of writes that wait behind a write whose request the connection has.

        They are not sent here; call this before the requests are sent over a new link.
        """
        requested = [self._local.writes[seq] for seq in sorted(self._asks)]
        heads = (part for write in requested for part in self._local.parts_of(write))
        for last in {(write.name, write.key): write for write in heads}.values():
            self._add_following(now_us, last, are_due=False)

    def forget_early_answers(self) -> None:
        """Forget the answers that came early: their log is gone.

        Their writes are pending without a request, and are sent again behind the writes before them.
        """
        for seq in self._early_answers:
            del self._asks[seq]
        self._early_answers.clear()

    def send_unblocked(self, now_us: int) -> Sequence[Effect]:
        """Check again all writes that waited for the answers of reads; send those that nothing blocks now."""
        self._unchecked |= self._blocked
        self._blocked.clear()
        return self.advance(now_us)

    def send_with_new_token(self, now_us: int) -> Sequence[Effect]:
        """Check again the writes that waited for another token, after it has come; send them."""
        self._unchecked |= self._without_token
        self._without_token.clear()
        return self.advance(now_us)

    def release(self, now_us: int, seqs: Collection[int]) -> Sequence[Effect]:
        """Send writes that the policy delays, because a read waits for them."""
        self._delayed = [delayed for delayed in self._delayed if delayed[1] not in seqs]
        for seq in seqs:
            write = self._local.writes[seq]
            if write.due_us is None:
                continue
            self._local.change_write(write, due_us=None)
            head = self._local.oldest_write(write.name, write.key)
            if head is not None and head.seq == seq and seq not in self._asks:
                self._unchecked.add(seq)
        return self.advance(now_us)

    def cancel(self, now_us: int, op_id: int) -> Sequence[Effect]:
        """Remove the write of a call, and complete its call with OperationCancelled.

        No effect, and an empty result, unless the write was never sent, has absorbed none and was not
        absorbed, and is the newest of its record.
        """
        seq = next((seq for seq, calls in self._calls.items() if calls == [op_id]), 0)
        write = self._local.writes.get(seq) if seq in self._unsent else None
        if write is None:
            return ()
        parts = self._local.parts_of(write)
        if any(next(self._local.writes_after(part), None) is not None for part in parts):
            return ()
        ask = self._asks.pop(seq, None)
        withdrawn = () if ask is None else self._connection.withdraw(now_us, ask)
        self._delayed = [delayed for delayed in self._delayed if delayed[1] != seq]
        keys = ", ".join(repr(part.key) for part in parts)
        error = cancelled_error(f"table {write.name!r}, key {keys}")
        return [*withdrawn, *self._fail(now_us, write, error, None)]

    def build_request(self, seq: int) -> WriteRequest:
        """Build the request of a pending write as of now."""
        writes = self._local.writes
        write, named, first = writes[seq], writes.item_id(seq), writes.item_id(writes.first_seq)
        follows = None if write.after is None or write.after not in writes else writes.item_id(write.after)
        return WriteRequest(
            name=write.name, table=write.table, key=write.key, type=write.type, data=write.data,
            predicate=write.predicate, reader=write.reader, replaces=write.replaces, number=named.number,
            first=first.number if first.incarnation == named.incarnation else 1,
            incarnation=named.incarnation,
            follows=UNSET if follows is None else follows.number, absorbed=write.absorbed or UNSET,
            may_write=UNSET if write.may_write is None else write.may_write,
            changes=UNSET if write.changes is None else write.changes,
            asks_read_interval=True if self._planner.weighs_writes(write.name) else UNSET,
            others=[_build_part(part) for part in self._local.parts_of(write)[1:]] or UNSET,
        )  # fmt: skip

    def receive_outcome(
        self, now_us: int, seq: int, answer: WriteOutcome | RequestRefused
    ) -> Sequence[Effect]:
        """Complete a write with its outcome (stage 2), and remove it; :meth:`advance` sends what it unblocks.

        The outcome of a write that is not the head is kept until those before it have theirs. A write whose
        token has expired stays pending.
        """
        write = self._local.writes[seq]
        if isinstance(answer, WriteOutcome) and answer.read_interval_ms is not UNSET:
            self._planner.record_read_interval(write.name, answer.read_interval_ms)
        parts = self._local.parts_of(write)
        error = error_in(answer)
        problem = None if error is None else decode_error(error)
        head = self._local.oldest_write(write.name, write.key)
        assert head is not None
        if isinstance(problem, TokenExpired):
            return self._await_token(write, problem)
        if head.seq != seq:
            self._early_answers[seq] = answer
            return ()
        del self._asks[seq]
        place = answer.place if isinstance(answer, WriteOutcome) else UNSET
        if problem is not None and place is UNSET:
            effects = self._fail(now_us, write, problem, None)
        elif problem is not None:
            refused = parts[place or 0]
            effects = self._fail(now_us, refused, _error_of_write(problem, refused), None)
        elif isinstance(answer, WriteOutcome) and answer.ver is not UNSET:
            results = [answer, *(answer.others or ())]
            effects = self._complete_calls(
                [
                    self._store_committed(now_us, part, result)
                    for part, result in zip(parts, results, strict=True)
                ]
            )
        else:
            assert isinstance(answer, WriteOutcome)
            effects = self._store_conflict(now_us, parts[place or 0], answer)
        effects = [*effects]
        for part in parts:
            if (head := self._local.oldest_write(part.name, part.key)) is None:
                continue
            if (early := self._early_answers.pop(head.seq, None)) is not None:
                effects += self.receive_outcome(now_us, head.seq, early)
            else:
                self._unchecked.add(head.seq)
        return effects

    # -- inside

    def _build_pending(self, now_us: int, operation: Write, seq: int, context: Fields) -> PendingWrite:
        """Build the pending write of an operation; raise MudkitError if it does not fit its table."""
        name, key = operation.table, operation.key
        data, predicate, changes = operation.record, operation.predicate, operation.changes
        table = self._local.tables.get(name)
        if changes is not None and table is not None:
            check_kinds(changes, table)
        if data is not None:
            data = check_record(data)
            if table is not None:
                table.check_columns(data)
        if predicate is not None and predicate.unbound:
            predicate = predicate.bind(sender=context)
        if table is not None:
            table.check_predicate(SentPredicate.of(predicate))
        key = check_key(self._own_key(seq) if key is None else key)
        current, before = self._local.held_row(name, key), self._local.newest_write(name, key)
        write = PendingWrite(
            seq=seq, name=name, key=key, data=data,
            type="blind" if operation.type == "blind" else "conditional",
            predicate=SentPredicate.of(predicate), reader=dict(operation.reader),
            replaces=0 if current is None else current.ver, after=None if before is None else before.seq,
            base=None if current is None or current.data is None else current, invoked_us=now_us,
            table=self._local.table_number_of(name), may_write=SentPredicate.of(operation.may_write),
            changes=changes,
        )  # fmt: skip
        if operation.version is None:
            return write
        return replace(
            write, after=None, replaces=operation.version, base=_base_at(operation.version, write.base)
        )

    def _own_key(self, seq: int) -> str:
        """Return a unique key, from the name of a write that is not stored yet."""
        named = self._local.writes.item_id(seq)
        return f"{self._connection.endpoint} {named.incarnation} {named.number}"

    def _with_due_time(
        self, now_us: int, write: PendingWrite, operation: Write, context: Fields
    ) -> PendingWrite:
        """Return a write with the time at which the write policy has it sent; unchanged: at once."""
        weighs = isinstance(self._policy, UtilityWrites)
        if isinstance(self._policy, Now) or (weighs and operation.utility is None):
            return write
        seen = {**as_wire(write), "utility": operation.utility}
        delay = check_delay(self._policy, self._policy.delay(seen, {**context, "now_us": now_us}))
        if delay is None:
            return write
        return replace(write, due_us=delay if delay == NEVER else now_us + round(delay * 1e6))

    def _admit_or_keep(self, now_us: int, seq: int) -> PendingWrite | None:
        """Return a head if it may be sent now; else keep it among those that the same thing blocks.

        None: it is blocked, was removed, or the connection has its request.
        """
        write = None if seq in self._asks else self._local.writes.get(seq)
        if write is None or not self._are_heads(write):
            return None
        if self._order.blocks(write):
            self._blocked.add(seq)
        elif write.due_us == NEVER:
            pass  # until a read needs it
        elif write.due_us is not None and write.due_us > now_us:
            insort(self._delayed, (write.due_us, seq))
        elif self._lacks_token(now_us, write):
            self._without_token.add(seq)
        else:
            return write
        return None

    def _are_heads(self, write: PendingWrite) -> bool:
        """Return whether all parts of the batch of a head are heads; else it is checked again when one is."""
        if write.batch is None:
            return True
        heads = [self._local.oldest_write(part.name, part.key) for part in self._local.parts_of(write)]
        return all(head is not None and head.batch == write.batch for head in heads)

    def _add_request(self, write: PendingWrite) -> PendingAsk:
        """Add the request of a write to the connection, without sending it; it waits for no token now."""
        if write.lacks_token:
            for part in self._local.parts_of(write):
                self._local.change_write(part, lacks_token=False)
        ask = self._asks[write.seq] = self._connection.add_request(Writing(write.seq))
        return ask

    def _add_following(self, now_us: int, write: PendingWrite, *, are_due: bool) -> list[PendingAsk]:
        """Add the requests of the writes behind one of a record, up to the first that may not go with it.

        Return them; they are not sent. They may go with it if they were made in the same incarnation, nothing
        blocks them, and they are no batch, which waits for all of its records; ``are_due``: also those whose
        delay is not over.
        """
        asks: list[PendingAsk] = []
        incarnation = self._local.writes.item_id(write.seq).incarnation
        for following in self._local.writes_after(write):
            if (
                following.seq in self._asks
                or following.batch is not None
                or self._local.writes.item_id(following.seq).incarnation != incarnation
                or self._order.blocks(following)
                or following.due_us == NEVER
                or (following.due_us is not None and following.due_us > now_us and not are_due)
                or self._lacks_token(now_us, following)
            ):
                break
            asks.append(self._add_request(following))
        return asks

    def _lacks_token(self, now_us: int, write: PendingWrite) -> bool:
        """Return whether a write was returned for its expired token, and that of now has expired, too."""
        return write.lacks_token and self._connection.has_expired(now_us)

    def _build_sent(self, ask: PendingAsk) -> WriteRequest:
        """Build the request of a write that is sent now; nothing absorbs it from now on."""
        assert isinstance(ask.work, Writing)
        self._unsent.discard(ask.work.seq)
        return self.build_request(ask.work.seq)

    def _can_absorb(self, write: PendingWrite, before: PendingWrite) -> bool:
        """Return whether a write makes the newest one of its record needless, which nobody has seen.

        A rule judges each write, so none is left out where the device knows of one.
        """
        table = self._local.tables.get(write.name)
        return (
            write.type == before.type == "blind"
            and before.batch is None
            and (table is None or table.write_rule is UNSET)
            and write.may_write is before.may_write is None
            and before.seq in self._unsent
            and write.table == before.table
            and not self._order.is_between(before, write)
        )

    def _join(self, write: PendingWrite, before: PendingWrite) -> PendingWrite | None:
        """Return the write in whose place one and the newest one of its record go; None: both go.

        Changes are joined with changes, and with the whole record that they change. A record does not take
        the place of changes: the store may refuse these.
        """
        if not self._can_absorb(write, before):
            return None
        if write.changes is None:
            return write if before.changes is None else None
        if write.reader != before.reader:
            return None
        if before.changes is not None:
            composed = compose(before.changes, write.changes)
            return None if composed is None else replace(write, changes=composed)
        if before.data is None:
            return None
        try:
            data = change_record(before.data, write.changes, "")
        except MudkitError:
            return None
        return replace(write, data=data, changes=None, predicate=before.predicate)

    def _absorb(self, now_us: int, op_id: int, write: PendingWrite, before: PendingWrite) -> Sequence[Effect]:
        """Store a write in the place of ``before``, which it absorbs, due at the earlier time of both.

        The calls of both complete with its outcome. A head that is due earlier than before is checked again.
        """
        due_us = _earlier(write.due_us, before.due_us)
        write = replace(
            write, seq=before.seq, after=before.after, due_us=due_us, absorbed=before.absorbed + 1
        )
        self._local.absorb_write(write)
        self._calls[write.seq].append(op_id)
        head = self._local.oldest_write(write.name, write.key)
        if head is None or head.seq != write.seq or due_us == before.due_us or write.seq in self._asks:
            return ()
        self._delayed = [delayed for delayed in self._delayed if delayed[1] != write.seq]
        self._unchecked.add(write.seq)
        return self.advance(now_us)

    def _store_committed(self, now_us: int, write: PendingWrite, result: WriteResult) -> _Decided:
        """Store the version that the back end has assigned, and remove the write; complete no call.

        The next write of the record is based on that version.
        """
        name, key, ver = write.name, write.key, result.ver
        assert ver is not UNSET
        row = self._build_row(now_us, write, result, ver)
        self._store_version(name, row, result)
        self._store.crash_point("held, still pending")
        self._local.remove_write(write)
        self._conflicts.pop((name, key), None)
        following = self._local.oldest_write(name, key)
        if following is not None and following.after == write.seq:
            base = None if row.data is None else row
            # Its version is one of this table, not of a later one of the name.
            self._local.change_write(following, after=None, replaces=ver, base=base, table=row.table)
        return _Decided(write, ver, None if write.changes is None else row.data)

    def _build_row(self, now_us: int, write: PendingWrite, answer: WriteResult, ver: int) -> HeldRow:
        """Build the version that the store has assigned to a write.

        Without a row in the answer, the store has changed the version that the write is based on.
        """
        assert answer.lsn is not UNSET
        assert answer.table is not UNSET
        data, predicate = write.data, write.predicate
        if isinstance(answer.row, Row):
            data, predicate = answer.row.data, answer.row.predicate
        elif write.changes is not None and write.base is not None:
            data = change_record(write.base.data, write.changes, "")
            predicate = write.base.predicate
        elif data is None and (current := self._local.held_row(write.name, write.key)) is not None:
            predicate = current.predicate  # who could not see the record does not see its deletion
        return HeldRow(write.key, ver, data, predicate, answer.lsn, answer.table, now_us)

    def _await_token(self, write: PendingWrite, error: MudkitError) -> Sequence[Effect]:
        """Keep a write pending until there is a valid token; its request is over.

        :meth:`advance` checks a head again, for there may be a token by now. One that waits behind another
        write of its record goes with that one.
        """
        del self._asks[write.seq]
        head = self._local.oldest_write(write.name, write.key)
        if head is not None and head.seq == write.seq:
            for part in self._local.parts_of(write):
                self._local.change_write(part, lacks_token=True)
            self._unchecked.add(write.seq)
        return ()

    def _store_conflict(self, now_us: int, write: PendingWrite, answer: WriteOutcome) -> Sequence[Effect]:
        """Store the back end's version if it is visible, else evict the record; fail the write with Conflict.

        The tenth conflict of a record in a row is recorded as an incident.
        """
        name, key = write.name, write.key
        row = answer.conflict if isinstance(answer.conflict, Row) else None
        if row is None:
            self._local.evict(name, key)
            self._record_seen(name, answer)
        elif answer.table is not UNSET:
            self._store_version(name, HeldRow.of(row, answer.table, now_us), answer)
        count = self._conflicts[name, key] = self._conflicts.get((name, key), 0) + 1
        warned: tuple[Effect, ...] = ()
        if count == _MANY_CONFLICTS:
            detail = f"{count} writes of the record {key!r} of the table {name!r} in a row were in conflict"
            warned = (Record("incidents", {"incident": "conflicts in a row", "detail": detail}),)
        summary = "The record is not the one that this write was to replace."
        shown = "no visible record" if row is None else f"version {row.ver}"
        if row is None and write.replaces == 0:  # there is one
            summary, shown = "There is a record of this key that you may not see.", "a hidden record"
        conflict = Conflict(
            summary, where=f"table {name!r}, key {key!r}", found=shown,
            expected=f"version {write.replaces}" if write.replaces else "no record",
            store=_conflict_fields(row), local=_conflict_fields(write), base=_conflict_fields(write.base),
            remedy=_remedy(row, count),
        )  # fmt: skip
        return *warned, *self._fail(now_us, write, _error_of_write(conflict, write), row)

    def _store_version(self, name: str, row: HeldRow, answer: WriteResult) -> None:
        """Store the version of an outcome, and up to where the outcome has shown the partition.

        The version is not stored, but lost, if none is held and the log was seen further: a newer one may
        have been evicted.
        """
        seen = self._local.seen_lsns(name).get(str(answer.partition), 0)
        if self._local.held_row(name, row.key) is not None or answer.lsn is UNSET or answer.lsn >= seen:
            self._local.hold_row(name, row)
        else:
            self._local.record_loss(name, row.key)
        self._record_seen(name, answer)

    def _record_seen(self, name: str, answer: WriteResult) -> None:
        """Store up to which log position an outcome has shown the partition."""
        if answer.table is not UNSET and answer.partition is not UNSET and answer.lsn is not UNSET:
            self._local.record_seen(name, answer.table, answer.partition, answer.lsn)

    def _fail(
        self, now_us: int, write: PendingWrite, error: MudkitError, row: Row | None
    ) -> Sequence[Effect]:
        """Remove a write, and complete its calls with an error.

        The conditional writes based on it are removed, too, with a Conflict, and their requests withdrawn; a
        blind one stays, and follows none. ``row`` is the version of the back end, None: none is known.
        """
        version = None if row is None else row.ver
        parts = self._remove_unsuccessful(write)
        effects = [
            *self._complete_calls(
                [_Decided(part, version if part.seq == write.seq else None) for part in parts], error
            )
        ]
        for part in parts:
            effects += self._fail_following(now_us, part, error, row if part.seq == write.seq else None)
        return effects

    def _fail_following(
        self, now_us: int, write: PendingWrite, error: MudkitError, row: Row | None
    ) -> Sequence[Effect]:
        """Do as :meth:`_fail` to the conditional write based on one that was removed with an error."""
        following = self._local.oldest_write(write.name, write.key)
        if following is None or following.after != write.seq:
            return ()
        if following.type == "blind":
            self._local.change_write(following, after=None)
            return ()
        error = Conflict(
            "The write that this one is based on has failed.",
            found=error.summary,
            where=f"table {write.name!r}, key {write.key!r}",
            store=_conflict_fields(row),
            local=_conflict_fields(following),
            base=_conflict_fields(following.base),
            remedy="merge the records and write again",
        )
        error = _error_of_write(error, following)
        self._early_answers.pop(following.seq, None)
        ask = self._asks.pop(following.request_seq, None)
        effects = [] if ask is None else [*self._connection.withdraw(now_us, ask)]
        parts = self._remove_unsuccessful(following)
        effects += self._complete_calls([_Decided(part, None) for part in parts], error)
        for part in parts:
            effects += self._fail_following(now_us, part, error, row if part.seq == following.seq else None)
        return effects

    def _remove_unsuccessful(self, write: PendingWrite) -> list[PendingWrite]:
        """Remove a write, or its batch, and return the parts; :meth:`advance` checks what comes next."""
        parts = self._local.parts_of(write)
        for part in parts:
            self._local.remove_write(part)
            if part.batch is not None and (head := self._local.oldest_write(part.name, part.key)) is not None:
                self._unchecked.add(head.seq)
        return parts

    def _complete_calls(
        self, decided: Sequence[_Decided], error: MudkitError | None = None
    ) -> Sequence[Effect]:
        """Complete the calls of a write and of those that it has absorbed, or that of the parts of a batch.

        Empty for a write of an earlier start, whose callers are gone.
        """
        first, effects = decided[0].write, list[Effect]()
        self._unsent.discard(first.request_seq)
        for op_id in self._calls.pop(first.request_seq, ()):
            if first.batch is not None:
                effects += [_build_part_record(op_id, one.write, one.version, one.data) for one in decided]
                versions = None if error is not None else [one.version for one in decided]
                effects.append(Complete(op_id, versions, error))
                continue
            _, version, data = decided[0]
            hashed = {} if data is None else {"value_hash": value_hash(data)}
            effects += (
                Record("operations", {"op_id": op_id, "version": version, **hashed}),
                Complete(op_id, version, error),
            )
        return effects


def cancelled_error(where: str) -> OperationCancelled:
    """Build the error of an operation that the application has cancelled."""
    return OperationCancelled("The application has cancelled this operation.", where=where)


def _build_call_record(op_id: int, write: PendingWrite) -> Record:
    """Build the effect that records a call; the value of changes is known only with their outcome."""
    if write.changes is not None:
        return Record("operations", {"op_id": op_id})
    return Record("operations", {"op_id": op_id, "value_hash": partial(value_hash, write.data)})


def _build_part(write: PendingWrite) -> WritePart:
    """Build the part of a request of a batch."""
    return WritePart(
        key=write.key, type=write.type, data=write.data, predicate=write.predicate, replaces=write.replaces,
        may_write=UNSET if write.may_write is None else write.may_write,
        changes=UNSET if write.changes is None else write.changes,
    )  # fmt: skip


def _build_part_record(
    op_id: int, write: PendingWrite, version: int | None, data: Fields | None = None
) -> Record:
    """Build the effect that records a part of a batch; ``data`` is the record after changes."""
    hashed = None if write.changes is not None else partial(value_hash, write.data)
    if data is not None:
        hashed = partial(value_hash, data)
    return record_part(op_id, write.key, write.type, write.data, write.changes, version, hashed)


def _error_of_write(error: MudkitError, write: PendingWrite) -> MudkitError:
    """Return the error of a write, with its place in its batch if it has one."""
    if write.batch is None:
        return error
    first, last = write.batch
    return error_of_part(error, write.seq - first + 1, last - first + 1, write.key)


def _base_at(version: int, base: HeldRow | None) -> HeldRow | None:
    """Return the committed record that a write is based on, if it is of this version."""
    return base if base is not None and base.ver == version else None


def _remedy(row: Row | None, count: int) -> str:
    """Return what to do after a conflict with a row, None: with one that is not visible, or with none."""
    if row is None:
        return "write under another key: no merge helps with a record that is hidden from you, or gone"
    if count < _MANY_CONFLICTS:
        return "merge the records and write again"
    return f"wait before you write again: {count} conflicts in a row; others write this record, too"


def _earlier(due_us: _Due, other_us: _Due) -> _Due:
    """Return the earlier of two times at which writes are due; None: at once."""
    if due_us is None or other_us is None:
        return None
    if due_us == NEVER or other_us == NEVER:
        return other_us if due_us == NEVER else due_us
    return min(due_us, other_us)


def _conflict_fields(version: PendingWrite | HeldRow | Row | None) -> Fields | None:
    """Return a version as applications see it in a conflict; None stays None."""
    return None if version is None else as_wire(version)
