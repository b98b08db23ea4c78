"""Registrations of continuous reads at the processors: requests, positions, and whether nothing is missing.

A repeated registration has the log position, the delivered records, and the number of the table (another one
of the same name has none of them), so that no change is missed or delivered twice. Of more than
``MAX_NAMED_KEYS`` delivered records it has digests instead of keys, by bucket; a processor that does not know
which keys a digest is of, because some of their records have changed since, gets the keys of that bucket.

A read is live while it is registered at all its processors in a session that is greeted, and they have told
that they have delivered everything before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from mudkit.events import Complete, Effect
from mudkit.systems.mud.device.connection import (
    Answer,
    Connection,
    PendingAsk,
    Registering,
    Updating,
    error_in,
)
from mudkit.systems.mud.device.followed import FollowedQueries, FollowedQuery
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.read_notices import ReadNotices
from mudkit.systems.mud.device.read_records import ReadRecords
from mudkit.systems.mud.device.read_states import ReadStates, StartedRead
from mudkit.systems.mud.messages.notifications import Tell
from mudkit.systems.mud.messages.partitions import group_by_value
from mudkit.systems.mud.messages.parts import decode_error
from mudkit.systems.mud.messages.requests import (
    ContinuousReadRequest,
    RegisterRequest,
    UnregisterRequest,
    UpdateDataRequest,
)
from mudkit.systems.mud.policies.utility import Query
from mudkit.systems.mud.tables.records import keys_digest

MAX_NAMED_KEYS: Final = 16
"""Delivered records that a registration names; of more, it has digests."""


class Registrations:
    """Registrations of the continuous reads of one client in the session of its device.

    ``session`` is that of the notification server, None: there is none; ``is_greeted``: the server knows the
    current address.
    """

    def __init__(
        self,
        local: Local,
        connection: Connection,
        followed: FollowedQueries,
        states: ReadStates,
        notices: ReadNotices,
    ) -> None:
        self._local, self._connection, self._followed = local, connection, followed
        self._states, self._notices = states, notices
        self.session: str | None = None
        self.is_greeted = False
        self._requests: dict[int, PendingAsk] = {}
        """Last request to register each read."""

    def request(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """Register a read in the present session, in place of an unanswered registration.

        If there is none, all reads are registered in the next one.
        """
        if self.session is None:
            return ()
        effects = self.withdraw(now_us, read)
        self.end_live(now_us, read)
        read.synced.clear()
        if read.requested_since is None:
            read.requested_since = dict(read.stored.since_lsns), dict(read.stored.log_incarnations)
            read.sender_generations = {}
        work = Registering(read, self._local.increment("count of requests"), self.session)
        ask = self._connection.add_request(work, self.build_request(work))
        self._requests[read.stored.handle] = ask
        return (
            [*effects, *self._connection.send(now_us, ask)]
            if self._connection.admit_or_queue(ask)
            else effects
        )

    def withdraw(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """Stop sending the last registration of a read, which the cloud may not answer any more."""
        ask = self._requests.pop(read.stored.handle, None)
        if ask is None or not self._connection.is_unanswered(ask.identity):
            return ()
        return self._connection.settle_request(now_us, ask)

    def update(
        self, now_us: int, op_id: int | None, read: StartedRead, *, is_over: bool = False
    ) -> Sequence[Effect]:
        """Request that the processors use new reader data, or end a read; ``op_id`` None: no caller."""
        if not is_over:
            read.updates += 1
        work = Updating(op_id, read.stored, is_over, self.sent_handle(read))
        return self._connection.send_request(now_us, work, self.build_request(work))

    def finish_update(self, now_us: int, work: Updating, last: Answer) -> Sequence[Effect]:
        """Process the answer to new reader data, or to the end of a continuous read."""
        read = self._states.active.get(work.stored.handle)
        if read is not None and not work.is_over:
            read.updates, read.data_us = read.updates - 1, now_us
        if work.op_id is None:
            return ()
        error = error_in(last)
        return (Complete(work.op_id, error=None if error is None else decode_error(error)),)

    def end(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """Delete a read with its records on the device, and withdraw its registration.

        Calls that wait for its first state fail. Processors are not notified: see :meth:`update`.
        """
        self._followed.leave(read.stored.handle, read.stored.name)
        failed = self._states.delete(read)
        return [*self.withdraw(now_us, read), *failed]

    def end_with_reason(self, now_us: int, read: StartedRead, why: str) -> Sequence[Effect]:
        """End a read that the cloud or its predicate has ended; notify the application of the reason."""
        effects = self.end(now_us, read)
        if read.stored.has_listener:
            self._states.end(read, why)
        return *effects, *self._notices.notify_of_end(read, why)

    def build_request(self, work: Registering | Updating) -> ContinuousReadRequest:
        """Build a request about a continuous read as of now."""
        stored = work.read.stored if isinstance(work, Registering) else work.stored
        match work:
            case Registering():
                named, digests = self._describe_delivered(work.read)
                return RegisterRequest(
                    name=stored.name, handle=self.sent_handle(work.read), reader=stored.reader,
                    data_seq=stored.data_seq, request=work.request, session=work.session,
                    predicate=stored.predicate,
                    since_lsns=group_by_value(stored.since_lsns), delivered=named, digests=digests or UNSET,
                    begun_lsns=group_by_value(stored.begun_lsns) if digests and stored.begun_lsns else UNSET,
                    sync_us=stored.sync_us, table=stored.table,
                    log_incarnations=group_by_value(stored.log_incarnations) or UNSET,
                    aggregate=UNSET if stored.aggregate is None else stored.aggregate,
                    selection=UNSET if stored.selection is None else stored.selection.with_order_column(),
                )  # fmt: skip
            case Updating(is_over=True):
                return UnregisterRequest(
                    name=stored.name, handle=work.handle, reader=stored.reader, data_seq=stored.data_seq
                )
        return UpdateDataRequest(
            name=stored.name, handle=work.handle, reader=stored.reader, data_seq=stored.data_seq
        )

    def sent_handle(self, read: StartedRead) -> str:
        """Return the handle by which processors know a read: unique also after a restart or a rename."""
        renames = f".{read.renames}" if read.renames else ""
        return f"{self._connection.incarnation} {read.stored.handle}{renames}"

    def record_first_change(self, read: StartedRead, body: Tell, lsn: int) -> None:
        """Record the position of a processor's first change, before the first registration is answered.

        The read has begun by then, so it may return to this position, but not to none: a read without its
        existing records would begin anew after the changes that are on their way.
        """
        if read.stored.sync_us is None and read.requested_since is not None:
            since_lsns, log_incarnations = read.requested_since
            for partition in read.partitions_of[body.processor]:
                if partition not in since_lsns:
                    since_lsns[partition] = lsn
                    if body.log_incarnation:
                        log_incarnations[partition] = body.log_incarnation

    def step_back(self, read: StartedRead) -> bool:
        """Return a read to earlier log positions for what new generations do not know; True: there is some.

        These are the changes of an earlier generation of a processor that arrived after the last registration
        was sent. The caller registers the read again.
        """
        (before, log_incarnations), oldest = read.requested_since or ({}, {}), read.sender_generations
        read.requested_since = None
        late = [
            processor
            for processor, generation in read.generations.items()
            if oldest.get(processor, generation) < generation
        ]
        for processor in late:
            for partition in read.partitions_of[processor]:
                log_incarnation = log_incarnations.get(partition, "")
                read.stored.set_position(partition, before.get(partition), log_incarnation)
        if late:
            self._states.put(read.stored)
        return bool(late)

    def begin_live(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """Count a read's query as followed, if it is registered and greeted: all was delivered.

        What the processors have not told of own writes up to here, they never will.
        """
        stored = read.stored
        is_registered = bool(read.generations) and read.requested_since is None
        if read.is_live or not self.is_greeted or not is_registered or not read.synced >= {*read.generations}:
            return ()
        read.is_live, stored.synced_us = True, now_us
        self._states.put(stored)
        self.follow(read, None)
        notified: Sequence[Effect] = ()
        if isinstance(read.records, ReadRecords):
            log_incarnation = self._local.log_incarnation

            def passed_lsn(key: str) -> int:
                """Return the position up to which all changes of a record were sent; 0: unknown."""
                partition = self._local.partition_of(stored.name, key)
                return stored.passed_lsn(partition, log_incarnation) or 0

            notified = self._notices.notify(read, read.records.drop_untold(passed_lsn, log_incarnation))
        return [*notified, *read.complete_awaiting()]

    def end_greeting(self, now_us: int) -> None:
        """Note that the server may not know the current address: no read is live."""
        self.is_greeted = False
        for read in self._states.active.values():
            self.end_live(now_us, read)

    def end_live(self, now_us: int, read: StartedRead) -> None:
        """Note that a read may have missed changes from now on."""
        if read.is_live:
            read.is_live, read.stored.synced_us = False, now_us
            self._states.put(read.stored)
            self._followed.stop(now_us, read.stored.handle, read.stored.name)

    def follow(self, read: StartedRead, live_us: int | None) -> None:
        """Count a read's query as followed; ``live_us`` None: the read is live.

        Its answer is known if existing records were requested from the first on, with these reader data, and
        are not cut. A read of aggregates delivers no records.
        """
        stored = read.stored
        if stored.aggregate is not None:
            return
        query = Query(stored.name, stored.predicate.predicate(), "committed", stored.reader, None)
        is_answered = stored.sync_us == 0 and stored.data_seq == 1 and stored.selection is None
        followed = FollowedQuery(query, read.delivered, stored, is_answered, live_us)
        self._followed.follow(stored.handle, followed)

    def _describe_delivered(self, read: StartedRead) -> tuple[list[str], list[tuple[int, str]]]:
        """Return the keys of delivered records that a registration names, and digests of the others."""
        stored = read.stored
        table = self._local.tables.get(stored.name)
        if len(read.delivered) <= MAX_NAMED_KEYS or table is None or table.number != stored.table:
            return sorted(read.delivered), []
        buckets = table.buckets_of(read.delivered)
        named = [key for bucket in sorted(read.named_buckets) for key in buckets.pop(bucket, ())]
        return named, [(bucket, keys_digest(keys)) for bucket, keys in sorted(buckets.items())]
