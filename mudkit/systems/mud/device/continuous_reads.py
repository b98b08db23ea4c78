"""Continuous reads of a client: registered at the processors, notified by the notification server.

Rules (Mobius 5); the session is that of the device (:mod:`~mudkit.systems.mud.device.greeting`):

============  ======================================================================================
register      stored durably; requested when there is a session with a notification server
session       a new one: everything is registered again
generation    a processor has begun another generation: the reads that it had are registered again
tell          delivered, unless it is a duplicate; the position in the log is stored
synced        all that a processor was to deliver before was delivered; after the last processor's, callers
              that wait for the first state are answered
moved         another processor serves a partition: the read is registered again from its position, under
              another name; what any processor has sent under the former one is ignored
ended         the cloud has ended it, with a reason; if only one processor has, the others have to
policy        put in the slot of its kind, or kind and table
============  ======================================================================================

A record that is delivered is held in the local store, as one that was read.

A read of a table on the device has no processor (:mod:`~mudkit.systems.mud.device.own_reads`). Own writes
reach the reads of the same app at once, as pending, and are corrected when the store has decided
(:mod:`~mudkit.systems.mud.device.read_records`). Of a read with a limit, a window, the application is
notified of what comes into it and leaves it (:mod:`~mudkit.systems.mud.device.windows`); neither windows nor
aggregates have pending writes, for only the processors know what these make of them.

A read outlives the application that began it. While its listener has no callback, at most ``max_waiting``
notifications wait (:mod:`~mudkit.systems.mud.device.read_notices`). The next change pauses the read: it is
ended at the processors, and registered again from its position, under another name, once a callback is
registered. What own writes are to a paused read is not shown before that. A read that was begun without a
callback keeps nothing for one.

A read of aggregates receives their state from each processor at its registration and whenever it changes. The
application is notified when the combined values differ from the last ones, and with ``sync_timestamp`` of the
first ones; of those that wait for its callback only the last are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from msgspec import UNSET

from mudkit.checks import unusable
from mudkit.events import Complete, Effect, Notify, Ports, Send, SetTimer
from mudkit.predicates import Aggregates
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.attachment import SERVICE, Attach, SessionState
from mudkit.systems.mud.device.cache import Cache
from mudkit.systems.mud.device.connection import (
    Answer,
    Connection,
    PendingAsk,
    Registering,
    Updating,
    error_in,
)
from mudkit.systems.mud.device.followed import FollowedQueries
from mudkit.systems.mud.device.local import HeldRow, Local, PendingWrite
from mudkit.systems.mud.device.own_reads import OWN, OwnReads
from mudkit.systems.mud.device.own_tables import OwnTables
from mudkit.systems.mud.device.own_writes import OwnWrites
from mudkit.systems.mud.device.policy_slot import PolicySlots
from mudkit.systems.mud.device.read_delivery import ReadDelivery
from mudkit.systems.mud.device.read_notices import ReadNotices
from mudkit.systems.mud.device.read_states import ReadStates, StartedRead
from mudkit.systems.mud.device.registrations import Registrations
from mudkit.systems.mud.device.stored_read import StoredRead
from mudkit.systems.mud.messages.notifications import (
    LeftRead,
    NewGeneration,
    Notification,
    Policy,
    Tell,
    Upsert,
)
from mudkit.systems.mud.messages.partitions import read_partitions
from mudkit.systems.mud.messages.parts import EncodedError, decode_error
from mudkit.systems.mud.messages.requests import ContinuousReadAck, ContinuousReadRequest, PartsComplete
from mudkit.systems.mud.operations import (
    AwaitSynced,
    CommitBatch,
    Listen,
    Register,
    Unregister,
    UpdateData,
    Write,
)
from mudkit.systems.mud.result import ReadResult
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.wire import Value


class ContinuousReads:
    """Continuous reads of one client.

    ``slots`` are those of the policies that this client follows. At most ``max_waiting`` changes of each read
    wait for a callback.
    """

    def __init__(
        self,
        ports: Ports,
        local: Local,
        own: OwnTables,
        access: Access,
        followed: FollowedQueries,
        cache: Cache,
        connection: Connection,
        slots: PolicySlots,
        max_waiting: int,
    ) -> None:
        self._local, self._own = local, own
        self._connection = connection
        self._policy_slots = slots
        self._max_waiting = max_waiting
        self._states = states = ReadStates(ports.store, local)
        self._notices = notices = ReadNotices(ports, local, connection, states, max_waiting)
        self._delivery = ReadDelivery(local, states, notices, OwnWrites(local, cache))
        self._registrations = Registrations(local, connection, followed, states, notices)
        self._own_reads = OwnReads(own, access, states, notices, self._delivery, self._registrations)
        self._generations: dict[str, int] = {}
        """Latest known generation of each processor."""
        for read in self._cloud_reads():
            if read.stored.synced_us is not None:
                self._registrations.follow(read, read.stored.synced_us)

    def repeat_notices(self, now_us: int) -> Sequence[Effect]:
        """Repeat the notifications of former starts whose callbacks a kill may have prevented.

        Those without a callback wait for one; those that waited for one that is registered now are emitted.
        """
        effects = list(self._notices.repeat())
        for read in (*self._states.active.values(), *self._states.ended.values()):
            if self._notices.is_heard(read):
                effects += self._release_waiting(now_us, read)
        if len(self._cloud_reads()) < len(self._states.active):
            effects.append(SetTimer(OWN, 0))
        return effects

    def clear_notices(self) -> None:
        """Remove the notifications whose callbacks were called, and the reads that ended with them."""
        self._notices.clear()

    def describe(self) -> list[dict[str, Value]]:
        """Return what the application may know of its reads, also of those whose end it was not told yet."""
        return self._states.describe()

    def reads(self) -> list[StartedRead]:
        """Return all continuous reads that have not ended."""
        return list(self._states.active.values())

    def snapshot(self, now_us: int, handle: int) -> ReadResult:
        """Return the records that a read has, own pending ones among them, or the values of its aggregates.

        Raises
        ------
        ParameterError
            The read has ended, or there was none.
        """
        return self._states.snapshot(now_us, handle)

    def is_synced(self, handle: int) -> bool:
        """Return whether the existing records that a read asked for have been delivered.

        Raises
        ------
        ParameterError
            The read has ended, or there was none.
        """
        return self._states.find(handle).stored.synced_us is not None

    def read_of(self, handle: int) -> StartedRead:
        """Return the read of a handle; raise ParameterError if it has ended, or there was none."""
        return self._states.find(handle)

    def has_read(self, handle: int) -> bool:
        """Return whether there is a read of a handle that has not ended."""
        return handle in self._states.active

    def register(self, now_us: int, op_id: int, operation: Register) -> Sequence[Effect]:
        """Store a continuous read, and register it if there is a session; the answer completes the call.

        Raise ParameterError, without effect, for an unusable option.
        """
        sync = operation.sync_timestamp
        if sync is not None and sync < 0:
            expected = "seconds since the beginning of the lab, 0 or more; None for no existing records"
            raise unusable("sync_timestamp", sync, expected)
        predicate, table = SentPredicate.of(operation.predicate), self._local.tables.get(operation.table)
        assert predicate is not None
        if operation.selection is not None and table is not None:
            operation.selection.check_columns(table)
        handle = self._states.take_handle()
        stored = StoredRead(
            handle=handle,
            data_seq=1,
            name=operation.table,
            predicate=predicate,
            reader=dict(operation.reader),
            sync_us=None if sync is None else round(sync * 1e6),
            has_listener=bool(operation.listener),
            aggregate=None if operation.aggregate is None else Aggregates(operation.aggregate).text,
            selection=operation.selection,
        )
        read = self._states.add(stored, op_id)
        # It is notified of changes under the durable name only; this one is told the handle, once.
        begun = [Notify(operation.listener, handle)] if operation.listener else []
        return [*begun, *self._begin(now_us, read)]

    def deliver_own(self, now_us: int, name: str) -> Sequence[Effect]:
        """Deliver what a table on the device is after an alteration; end its reads if it was dropped."""
        return self._own_reads.deliver_alteration(now_us, name)

    def deliver_own_writes(self, now_us: int, name: str, keys: Sequence[str]) -> Sequence[Effect]:
        """Deliver the writes of records in a table on the device, made together, to its reads."""
        return self._own_reads.deliver_writes(now_us, name, keys)

    def begin_own(self, now_us: int) -> Sequence[Effect]:
        """Deliver what the device itself knows to the reads that have begun, or been resumed, just now."""
        effects: list[Effect] = []
        for read in self.reads():
            is_own = read in self._own_reads
            effects += self._own_reads.catch_up(now_us, read) if is_own else self._delivery.show_own(read)
        return effects

    def show_write(self, operation: Write | CommitBatch) -> Sequence[Effect]:
        """Show a write or a batch of this app, which was stored just now, in the reads of its table."""
        if not self._states.active:
            return ()
        if isinstance(operation, Write) and operation.key is not None:
            keys = [operation.key]
        else:
            last = self._local.writes[self._local.writes.last_seq]
            keys = [part.key for part in self._local.parts_of(last)]
        return self._delivery.show_writes(operation.table, keys)

    def show_outcomes(
        self, parts: Sequence[PendingWrite], versions: Sequence[int] | None
    ) -> Sequence[Effect]:
        """Show in the reads of its table what the store has made of a write, or of the parts of a batch.

        Their versions; None: nothing.
        """
        return self._delivery.show_outcomes(parts, versions)

    def show_all_writes(self) -> Sequence[Effect]:
        """Show what is pending now, after what decides whether it belongs to a read has changed."""
        return [effect for read in self._cloud_reads() for effect in self._delivery.show_own(read)]

    def listen(self, now_us: int, op_id: int, operation: Listen) -> Sequence[Effect]:
        """Emit what waits for the callback of a read, which is registered now; resume it if it was paused.

        ``is_afresh``: what waits is dropped, and the call completes with the records that the read has. If
        the application has ended since its call, all waits on.
        """
        read = self._states.ended.get(operation.handle) or self._states.find(operation.handle)
        if not read.stored.has_listener:
            read.stored.has_listener = True
            self._states.put(read.stored)
        result: ReadResult | None = None
        if operation.is_afresh and self.has_read(operation.handle):
            self._notices.delete_waiting(read)
            result = self.snapshot(now_us, operation.handle)
        released = self._release_waiting(now_us, read) if self._notices.is_heard(read) else ()
        return [*released, *self._delivery.show_own(read), Complete(op_id, result)]

    def await_synced(self, op_id: int, operation: AwaitSynced) -> Sequence[Effect]:
        """Complete a call at once, or when all existing records that a read asked for have been delivered."""
        read = self._states.find(operation.handle)
        read.awaiting.append(op_id)
        return read.complete_awaiting()

    def update_data(self, now_us: int, op_id: int, operation: UpdateData) -> Sequence[Effect]:
        """Replace the reader's data of a continuous read, durably, and send it to the processors."""
        read = self._states.find(operation.handle)
        stored = read.stored
        stored.reader = dict(operation.reader)
        stored.data_seq += 1
        self._states.put(stored)
        if read in self._own_reads:
            return [*self._own_reads.use_data(now_us, read), Complete(op_id)]
        shown = self._delivery.show_own(read)
        if stored.synced_us is not None:
            self._registrations.follow(read, None if read.is_live else stored.synced_us)
        if stored.is_paused:  # the next registration has them
            return (*shown, Complete(op_id))
        return [*shown, *self._registrations.update(now_us, op_id, read)]

    def unregister(self, now_us: int, op_id: int, operation: Unregister) -> Sequence[Effect]:
        """End a continuous read at the processors, delete what is stored of it, and complete the call.

        Notifications that wait for its callback are deleted. Raise ParameterError if there is no such read.
        """
        if operation.handle in self._states.ended:
            self._notices.delete_waiting(self._states.ended[operation.handle])
            self._states.forget_ended(operation.handle)
            return (Complete(op_id),)
        read = self._states.find(operation.handle)
        is_own = read in self._own_reads
        effects = [
            *self._registrations.end(now_us, read),
            *(
                (Complete(op_id),)
                if is_own
                else self._registrations.update(now_us, op_id, read, is_over=True)
            ),
        ]
        self._own_reads.forget(operation.handle)
        self._notices.delete_waiting(read)
        return [*effects, *read.complete_begin(), *self._end_session_unless_used(now_us)]

    def attach(self) -> Sequence[Effect]:
        """Report to the service what it and the notification server have to know of this app."""
        connection = self._connection
        policies = self._policy_slots.versions()
        attach = Attach(connection.incarnation, connection.token, policies, self._is_notified)
        return (Send(SERVICE, attach),)

    def receive_session(self, now_us: int, state: SessionState) -> Sequence[Effect]:
        """Use the session of the device: in a new one, register all reads again.

        In a known one, reads that lack nothing become live. Without a session or a greeting, no read is live.
        """
        registrations = self._registrations
        if state.session is None or not state.is_greeted:
            self.end_greeting(now_us)
            registrations.session = state.session
            return ()
        registrations.is_greeted = True
        effects: list[Effect] = []
        is_new, registrations.session = state.session != registrations.session, state.session
        for read in self._cloud_reads():
            if not is_new:
                effects += registrations.begin_live(now_us, read)
            elif not read.stored.is_paused:
                effects += registrations.request(now_us, read)
        return effects

    def receive_notification(self, now_us: int, body: Notification) -> Sequence[Effect]:
        """Process an item of the stream from the notification server."""
        match body:
            case Policy():
                self._policy_slots.accept(body.policy, body.document)
                return self.attach()
            case NewGeneration():
                return self._record_generation(now_us, body.processor, body.generation)
            case Tell():
                noted = self._record_generation(now_us, body.processor, body.generation)
                return [*noted, *self._receive_change(now_us, body)]

    def build_request(self, work: Registering | Updating) -> ContinuousReadRequest:
        """Build a request about a continuous read as of now."""
        return self._registrations.build_request(work)

    def finish_update(self, now_us: int, work: Updating, last: Answer) -> Sequence[Effect]:
        """Process the answer to new reader data, or to the end of a continuous read."""
        return self._registrations.finish_update(now_us, work, last)

    def finish_registration(
        self, now_us: int, work: Registering, ask: PendingAsk, last: Answer
    ) -> Sequence[Effect]:
        """Process the complete answer to a registration: store what it says, or register again."""
        read, stored, parts, registrations = work.read, work.read.stored, ask.registered, self._registrations
        error = error_in(last)
        if error is not None:
            return self._end_registration(now_us, read, last, error)
        assert isinstance(last, PartsComplete)
        served = {processor: read_partitions(part.partitions) for processor, part in parts.items()}
        if not set(last.places).issubset(chain.from_iterable(served.values())):
            return registrations.request(now_us, read)  # a part was lost
        self._local.store_table(last.table)
        unknown = [bucket for part in parts.values() for bucket in part.unknown or ()]
        if unknown:
            read.named_buckets.update(unknown)
            return registrations.request(now_us, read)
        read.named_buckets.clear()
        if not all(read.record_served(processor, served[processor]) for processor in parts):
            return self._register_anew(now_us, read)
        read.generations = {processor: part.generation for processor, part in parts.items()}
        stored.table, stored.partitions = last.table.number, last.table.partitions
        if stored.sync_us is None:
            # No existing records are requested, so it is up to date from here, unless it was before.
            for processor, part in parts.items():
                for partition in served[processor]:
                    stored.begun_lsns.setdefault(partition, part.lsn)
                    if partition not in stored.since_lsns:
                        stored.set_position(partition, part.lsn, part.log_incarnation or "")
        self._states.put(stored)
        effects = [
            *read.complete_begin(),
            *self._delivery.deliver_aggregates(read),
            *self._delivery.show_own(read),
        ]
        if any(part.data_seq < stored.data_seq for part in parts.values()):
            effects += registrations.update(now_us, None, read)
        is_late = registrations.step_back(read)
        if is_late or any(
            generation < self._generations.get(processor, 0)
            for processor, generation in read.generations.items()
        ):
            effects += registrations.request(now_us, read)
        else:
            effects += registrations.begin_live(now_us, read)
        return effects

    def end_greeting(self, now_us: int) -> None:
        """Note that the server may not know the current address: no read is live."""
        self._registrations.end_greeting(now_us)

    # -- inside

    def _cloud_reads(self) -> list[StartedRead]:
        """Return the reads of tables in the cloud."""
        return [read for read in self._states.active.values() if read not in self._own_reads]

    def _begin(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """Report to the service that this app is to be notified, and register a read if there is a session.

        What the device itself knows is delivered after the application has registered the callback.
        """
        if read in self._own_reads:
            return (SetTimer(OWN, 0),)
        shown = [SetTimer(OWN, 0)] if self._local.pending_keys(read.stored.name) else []
        return [*self.attach(), *self._registrations.request(now_us, read), *shown]

    def _release_waiting(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """Emit the notifications that waited for a callback, and register the read again if it is paused."""
        effects = [*self._notices.release(read), *read.complete_awaiting()]
        if read.stored.is_paused:
            read.stored.is_paused = False
            self._states.put(read.stored)
            effects += self._begin(now_us, read)
        return effects

    @property
    def _is_notified(self) -> bool:
        """True if the notification server may have something to send."""
        return bool(self._policy_slots) or any(not read.stored.is_paused for read in self._cloud_reads())

    def _end_session_unless_used(self, now_us: int) -> Sequence[Effect]:
        """Report to the service that this app has nothing to be notified of; no effect if it has."""
        if self._is_notified:
            return ()
        self.end_greeting(now_us)
        return self.attach()

    def _record_generation(self, now_us: int, processor: str, generation: int) -> Sequence[Effect]:
        """Note a newer generation of a processor, and register again the reads of its former ones."""
        if generation <= self._generations.get(processor, 0):
            return ()
        self._generations[processor] = generation
        lost = [read for read in self.reads() if read.generations.get(processor, generation) < generation]
        return [effect for read in lost for effect in self._registrations.request(now_us, read)]

    def _receive_change(self, now_us: int, body: Tell) -> Sequence[Effect]:
        """Process a Tell of a processor: a change, the end of synchronisation, or the end of the read."""
        processor, generation, registrations = body.processor, body.generation, self._registrations
        number = body.handle.rpartition(" ")[2].partition(".")[0]
        read = self._states.active.get(int(number) if number.isdecimal() else 0)
        if (
            read is None
            or body.handle != registrations.sent_handle(read)
            or generation < max(self._generations.get(processor, 0), read.generations.get(processor, 0))
        ):
            return ()
        stored = read.stored
        if body.partitions is not UNSET and not read.record_served(
            processor, read_partitions(body.partitions)
        ):
            return self._register_anew(now_us, read)
        if body.has_moved is True:
            return self._register_anew(now_us, read)
        if body.ended is not UNSET:
            others = self._end_at_others(now_us, read) if body.is_alone is True else ()
            return *registrations.end_with_reason(now_us, read, body.ended), *others
        changes = [] if body.change is UNSET else [body.change, *(body.also or ())]
        partitions = read.partitions_of.get(processor)
        if not partitions:
            return ()  # the first message of a registration names them
        if changes and stored.partitions is not None and self._notices.is_full(read, len(changes)):
            # Before its first registration is complete, a read could not resume at its position.
            return self._pause(now_us, read)
        stored.table = body.table
        if body.synced_lsn is not UNSET:
            stored.advance(partitions, body.synced_lsn, body.log_incarnation)
            read.synced.add(processor)
            self._states.put(stored)
            return registrations.begin_live(now_us, read)
        if body.state is not UNSET:
            read.states[processor] = body.state
            return self._delivery.deliver_aggregates(read)
        if body.change is not UNSET and body.lsn is not UNSET:
            # That of the record, or while the table is unknown another one, which has the same position.
            partition = self._local.partition_of(stored.name, body.change.key)
            partition = partition if partition in partitions else partitions[0]
            is_same_log = (body.log_incarnation or "") == stored.log_incarnations.get(partition, "")
            since_lsn = stored.since_lsns.get(partition, 0) if is_same_log else 0
            if body.lsn is not None and body.lsn <= since_lsn:
                return ()
            if body.lsn is not None:
                registrations.record_first_change(read, body, body.lsn)
                stored.advance(partitions, body.lsn, body.log_incarnation)
            effects = self._apply_changes(now_us, read, body, changes, is_same_log=is_same_log)
            if read.is_live:
                stored.synced_us = now_us
            self._states.put(stored)
            return effects
        self._states.put(stored)
        return ()

    def _apply_changes(
        self,
        now_us: int,
        read: StartedRead,
        body: Tell,
        changes: Sequence[Upsert | LeftRead],
        *,
        is_same_log: bool,
    ) -> Sequence[Effect]:
        """Deliver the changes of a message, unless the reader has these versions or newer ones.

        ``is_same_log``: the changes are of the log incarnation in which this processor was last heard of. If
        not, the back end was restored from a backup or wiped, and the versions that were delivered may be
        missing in its log now: an older version is delivered, too.
        """
        if not read.stored.is_window:
            changes = [change for change in changes if _is_news(read, change, is_same_log=is_same_log)]
        if not changes:
            return ()
        if read.requested_since is not None:
            read.sender_generations.setdefault(body.processor, body.generation)  # they arrive in order
        for change in changes:
            self._store_delivered(now_us, read.stored, body, change)
        return self._delivery.deliver(
            read, changes, is_same_log=is_same_log, log_incarnation=body.log_incarnation or ""
        )

    def _store_delivered(
        self, now_us: int, stored: StoredRead, body: Tell, change: Upsert | LeftRead
    ) -> None:
        """Store a delivered version in the local store, and up to where the partition was seen.

        A held version that is older is evicted instead if the record has left the read, or the change has
        only the read's columns; of a record that is not held, the loss is recorded then. No effect for a
        change of a former incarnation of the log.
        """
        local, name, key = self._local, stored.name, change.key
        incarnation = body.log_incarnation or ""
        is_known = incarnation == local.log_incarnation
        if incarnation in local.former_log_incarnations:
            return
        has_columns = stored.selection is not None and stored.selection.columns is not None
        lsn = change.lsn if isinstance(change, Upsert) else body.lsn
        if isinstance(change, LeftRead) or has_columns:  # no later read may show an older version
            row = local.held_row(name, key)
            if row is not None and (change.ver is None or row.ver < change.ver or not is_known):
                local.evict(name, key, lsn if isinstance(lsn, int) and is_known else 0)
            elif row is None and isinstance(change, Upsert):
                local.record_loss(name, key, change.lsn)
        else:
            row = HeldRow(
                key, change.ver, change.data, change.predicate, change.lsn, body.table, now_us,
                UNSET if is_known else incarnation,
            )  # fmt: skip
            local.hold_told(name, row)
        if isinstance(lsn, int):
            local.record_seen(name, body.table, local.partition_of(name, key), lsn, incarnation)

    def _pause(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """End a read at the processors until it has a callback; its position and records are kept."""
        effects = self._rename(now_us, read)
        read.stored.is_paused = True
        self._states.put(read.stored)
        return [*effects, *self._end_session_unless_used(now_us)]

    def _register_anew(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """Register a read from its position under another name, because a partition has moved.

        What either processor of the partition has sent under the former name is ignored when it arrives.
        """
        return [*self._rename(now_us, read), *self._registrations.request(now_us, read)]

    def _rename(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """End a read at the processors: what is on its way for earlier registrations no longer counts."""
        withdrawn = self._registrations.withdraw(now_us, read)
        ended = self._end_at_others(now_us, read)
        self._registrations.end_live(now_us, read)
        read.rename()
        return [*withdrawn, *ended]

    def _end_registration(
        self, now_us: int, read: StartedRead, last: Answer, error: EncodedError
    ) -> Sequence[Effect]:
        """End a continuous read that the cloud, or one of the processors, refuses."""
        op_id, read.op_id = read.op_id, None
        effects: list[Effect] = [] if op_id is None else [Complete(op_id, error=decode_error(error))]
        if op_id is None:
            effects += self._registrations.end_with_reason(now_us, read, error.summary)
        else:
            effects += self._registrations.end(now_us, read)
        if isinstance(last, ContinuousReadAck):  # by one processor; others may have accepted it
            effects += self._end_at_others(now_us, read)
        return effects

    def _end_at_others(self, now_us: int, read: StartedRead) -> Sequence[Effect]:
        """End a continuous read at its processors, of which one may have ended it."""
        return self._registrations.update(now_us, None, read, is_over=True)


def _is_news(read: StartedRead, change: Upsert | LeftRead, *, is_same_log: bool) -> bool:
    """Return whether a reader lacks a change; see :meth:`ContinuousReads._apply_changes`."""
    last_version = read.delivered.get(change.key, 0)
    if change.ver is None or change.ver > last_version:
        return True
    return not is_same_log and (change.ver != last_version or isinstance(change, LeftRead))
