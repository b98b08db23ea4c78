"""Continuous reads of a client: registered at the processors, notified by the notification server.

Rules (Mobius 5); the session is that of the device (:mod:`~mudkit.systems.mud.device.greeting`):

============  ======================================================================================
register      stored durably; requested when there is a session with a notification server
session       a new one: everything is registered again
generation    a processor has begun another generation: the reads that it had are registered again
tell          delivered, unless it is a duplicate; the position in the log is stored
synced        all that a processor was to deliver before was delivered; after the last processor's, callers
              that wait for the first state are answered
ended         the cloud has ended it, with a reason; if only one processor has, the others have to
policy        put in the slot of its kind
============  ======================================================================================

A repeated registration has the log position, the delivered records, and the number of the table (another one
of the same name has none of them), so that no change is missed or delivered twice. Of more than
``MAX_NAMED_KEYS`` delivered records it has digests instead of keys, by bucket; a processor that does not know
which keys a digest is of, because some of their records have changed since, gets the keys of that bucket.

A notification is stored with the position until its callback was called, and repeated with the same id after
a kill between the two. A record that is delivered is held in the local store, as one that was read.

A read of a table on the device has no processor: whatever changes there is delivered in the same step.

Of a read with a limit, a window, the application is notified of what comes into it and leaves it
(:mod:`~mudkit.systems.mud.device.windows`).

A read outlives the application that began it. While no callback is registered for its listener, whose name
comes from the durable handle, notifications wait in the store, at most ``max_waiting`` of each read. The next
change pauses the read: it is ended at the processors, and registered again from its position, under another
name, once a callback is registered. A read that was begun without a callback keeps nothing for one.

A read of aggregates receives their state from each processor at its registration and whenever it changes. The
application is notified when the combined values differ from the last ones, and with ``sync_timestamp`` of the
first ones; of those that wait for its callback only the last are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from mudkit.checks import unusable
from mudkit.delivery.notices import FieldsWithId, Notices
from mudkit.errors import MudkitError, ParameterError
from mudkit.events import Complete, Effect, Notify, Ports, Send, SetTimer
from mudkit.predicates import Aggregates
from mudkit.systems.mud.device.access import Access
from mudkit.systems.mud.device.attachment import SERVICE, Attach, SessionState
from mudkit.systems.mud.device.connection import (
    Answer,
    Connection,
    ContinuousRead,
    PendingAsk,
    Registering,
    StoredRead,
    Updating,
    error_in,
)
from mudkit.systems.mud.device.followed import FollowedQueries, FollowedQuery
from mudkit.systems.mud.device.local import HeldRow, Local
from mudkit.systems.mud.device.own_tables import OwnTables
from mudkit.systems.mud.device.policy_slot import PolicySlot
from mudkit.systems.mud.device.windows import OWN_PLACE, OwnMatches, ShownWindow
from mudkit.systems.mud.messages import (
    AwaitSynced,
    ContinuousReadRequest,
    EncodedError,
    LeftRead,
    Listen,
    NewGeneration,
    Notification,
    PartsComplete,
    PlacedContinuousReadAck,
    Policy,
    Register,
    RegisterRequest,
    Tell,
    Unregister,
    UnregisterRequest,
    UpdateData,
    UpdateDataRequest,
    Upsert,
    decode_error,
)
from mudkit.systems.mud.policies.utility import Query
from mudkit.systems.mud.result import Change
from mudkit.systems.mud.tables.records import SentPredicate, keys_digest
from mudkit.systems.mud.tables.replica import copy_record
from mudkit.systems.mud.tables.selection import Selection
from mudkit.wire import Fields, Value

_HANDLES: Final = "count of handles"
MAX_NAMED_KEYS: Final = 16
"""Delivered records that a registration names; of more, it has digests."""


def listener_of(handle: int) -> str:
    """Return the name of the listener of a continuous read."""
    return f"continuous read {handle}"


_AGGREGATES: Final = "aggregates"
OWN: Final = "own reads"


class _Notice(Struct, frozen=True):
    """Notification of a read's listener: a change, or the reason ``ended`` for which the read has ended.

    That of the kind :data:`_AGGREGATES` has the values of aggregates as its record.
    """

    handle: int
    id: str
    ended: str | None = None
    kind: str = ""
    key: str = ""
    record: Fields | None = None
    version: int = 0

    def notify(self) -> Notify:
        """Build the effect of this notice, with a record that the application may change."""
        listener = listener_of(self.handle)
        if self.ended is not None:
            return Notify(listener, FieldsWithId({"ended": self.ended}, self.id))
        record = None if self.record is None else copy_record(self.record)
        if self.kind == _AGGREGATES:
            return Notify(listener, FieldsWithId(record or {}, self.id))
        return Notify(listener, Change(self.kind, self.key, record, self.version, self.id))


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
        connection: Connection,
        slots: Sequence[PolicySlot],
        max_waiting: int,
    ) -> None:
        self._store, self._has_listener = ports.store, ports.has_listener
        self._max_waiting = max_waiting
        self._local, self._own, self._access = local, own, access
        self._followed = followed
        self._connection = connection
        self._policy_slots = slots
        self._session: str | None = None
        self._is_greeted = False
        """True if the server knows the current address."""
        self._registrations: dict[int, PendingAsk] = {}
        """Last request to register each read."""
        self._reads: dict[int, ContinuousRead] = {}
        self._untold: dict[int, ContinuousRead] = {}
        """Reads that have ended, until the callback was called with the reason."""
        self._windows: dict[int, ShownWindow] = {}
        """Windows of the reads with a limit, by handle."""
        self._own_matches: dict[int, OwnMatches] = {}
        """By handle of the reads of tables on the device, since they were begun, resumed or changed."""
        for _, stored in ports.store.items("reading ", StoredRead):
            read = ContinuousRead(stored, self._load_delivered(stored))
            read.waiting = len(self._store.keys(_waiting_key(stored.handle)))
            (self._reads if stored.ended is None else self._untold)[stored.handle] = read
        for read in self._cloud_reads():
            if read.stored.synced_us is not None:
                self._follow(read, read.stored.synced_us)
        self._generations: dict[str, int] = {}
        """Latest known generation of each processor."""
        self._notices = Notices(ports.store, _Notice)
        self._notice_count = 0

    def repeat_notices(self, now_us: int) -> Sequence[Effect]:
        """Repeat the notifications of former starts whose callbacks a kill may have prevented.

        Those without a callback wait for one; those that waited for one that is registered now are emitted.
        """
        effects: list[Effect] = []
        for notice in self._notices.take_former():
            read = self._reads.get(notice.handle) or self._untold.get(notice.handle)
            if read is not None:
                effects += self._emit(read, notice)
        for read in (*self._reads.values(), *self._untold.values()):
            if self._has_listener(listener_of(read.stored.handle)):
                effects += self._release_waiting(now_us, read)
        if len(self._cloud_reads()) < len(self._reads):
            effects.append(SetTimer(OWN, 0))
        return effects

    def clear_notices(self) -> None:
        """Remove the notifications whose callbacks were called, and the reads that ended with them."""
        self._notices.clear()
        for handle in [handle for handle, read in self._untold.items() if not read.waiting]:
            self._forget_ended(handle)

    def describe(self) -> list[dict[str, Value]]:
        """Return what the application may know of its reads, also of those whose end it was not told yet."""
        return [
            {
                "handle": handle,
                "table": read.stored.name,
                "predicate": read.stored.predicate.text,
                "constants": list(read.stored.predicate.constants),
                "data": copy_record(read.stored.reader),
                "aggregate": read.stored.aggregate,
                **_describe_selection(read.stored.selection),
                "synced": read.stored.synced_us is not None,
                "waiting": read.waiting,
                "paused": read.stored.is_paused,
                "ended": read.stored.ended,
            }
            for handle, read in sorted({**self._reads, **self._untold}.items())
        ]

    def reads(self) -> list[ContinuousRead]:
        """Return all continuous reads that have not ended."""
        return list(self._reads.values())

    def register(self, now_us: int, op_id: int, operation: Register) -> Sequence[Effect]:
        """Store a continuous read, and register it if there is a session; its call is completed later."""
        sync = operation.sync_timestamp
        if sync is not None and sync < 0:
            expected = "seconds since the beginning of the lab, 0 or more; None for no existing records"
            raise unusable("sync_timestamp", sync, expected)
        predicate, table = SentPredicate.of(operation.predicate), self._local.tables.get(operation.table)
        assert predicate is not None
        if operation.selection is not None and table is not None:
            operation.selection.check_columns(table)
        handle = self._local.increment(_HANDLES)
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
        self._reads[handle] = read = ContinuousRead(stored, self._load_delivered(stored), op_id=op_id)
        self._store_read(stored)
        # It is notified of changes under the durable name only; this one ends with the call.
        begun = [Notify(operation.listener, handle)] if operation.listener else []
        return [*begun, *self._begin(now_us, read)]

    def deliver_own(self, now_us: int, name: str) -> Sequence[Effect]:
        """Deliver what a table on the device is after an alteration; end its reads if it was dropped."""
        reads = [read for read in self._reads.values() if read.stored.name == name]
        if name in self._own:
            return [
                effect
                for read in reads
                if not read.stored.is_paused
                for effect in self._catch_up(now_us, read)
            ]
        return [effect for read in reads for effect in self._end_read(now_us, read, "the table was dropped")]

    def deliver_own_write(self, now_us: int, name: str, key: str) -> Sequence[Effect]:
        """Deliver a write of a record in a table on the device to its reads."""
        effects: list[Effect] = []
        for read in [read for read in self._reads.values() if read.stored.name == name]:
            if read.stored.is_paused:
                continue
            matches = self._own_matches.get(read.stored.handle)
            if matches is None:
                effects += self._catch_up(now_us, read)
                continue
            try:
                changes = matches.follow_write(key, read.delivered)
            except MudkitError as error:
                effects += self._end_own(now_us, read, error)
                continue
            if changes:
                effects += self._deliver_own(now_us, read, matches, changes)
        return effects

    def begin_own(self, now_us: int) -> Sequence[Effect]:
        """Deliver what the reads of tables on the device lack that have begun, or been resumed, just now."""
        reads = [read for read in self._reads.values() if read.stored.name in self._own]
        return [
            effect for read in reads if not read.stored.is_paused for effect in self._catch_up(now_us, read)
        ]

    def _catch_up(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """Deliver what a read of a table on the device lacks.

        As in the cloud, a change of the reader's data concerns later writes only, but a window at once.
        """
        stored = read.stored
        try:
            matches = OwnMatches(self._own, stored, self._access.auth)
        except MudkitError as error:
            return self._end_own(now_us, read, error)
        self._own_matches[stored.handle] = matches
        changes = [] if stored.aggregate is not None else matches.lacking(stored, read.delivered)
        return self._deliver_own(now_us, read, matches, changes)

    def _deliver_own(
        self, now_us: int, read: ContinuousRead, matches: OwnMatches, changes: Sequence[Upsert | LeftRead]
    ) -> Sequence[Effect]:
        """Deliver changes of a table on the device to a read, or the aggregates of the records that match."""
        stored = read.stored
        if stored.aggregate is not None:
            state = self._own.aggregate(stored.name, list(matches.rows.values()), stored.aggregate)
            stored.processors, read.states = [OWN_PLACE], {OWN_PLACE: state}
            return [*self._notify_of_aggregates(read), *self._complete_begin(read)]
        is_heard = self._has_listener(listener_of(stored.handle))
        if not is_heard and read.waiting + len(changes) > self._max_waiting:
            del self._own_matches[stored.handle]
            stored.is_paused = True
            self._store_read(stored)
            return self._complete_begin(read)
        effects = list(self._deliver(read, changes))
        stored.since_lsns[OWN_PLACE] = self._own.lsn
        if stored.synced_us is None:
            stored.synced_us = now_us
            effects += self._complete_awaiting(read)
        self._store_read(stored)
        return [*effects, *self._complete_begin(read)]

    def _end_own(self, now_us: int, read: ContinuousRead, error: MudkitError) -> Sequence[Effect]:
        """End a read of a table on the device whose predicate fails on a record."""
        op_id, read.op_id = read.op_id, None
        if op_id is not None:
            return [Complete(op_id, error=error), *self._delete_read(now_us, read)]
        return self._end_read(now_us, read, error.summary)

    def _complete_begin(self, read: ContinuousRead) -> Sequence[Effect]:
        """Complete the call that began a read, if that is not done."""
        op_id, read.op_id = read.op_id, None
        return () if op_id is None else (Complete(op_id, read.stored.handle),)

    def _cloud_reads(self) -> list[ContinuousRead]:
        """Return the reads of tables in the cloud."""
        return [read for read in self._reads.values() if read.stored.name not in self._own]

    def _begin(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """Register a read if there is a session, and say hello if there is none."""
        if read.stored.name in self._own:
            return (SetTimer(OWN, 0),)  # after the application has registered the callback
        requested = () if self._session is None else self._request_registration(now_us, read)
        return [*self.attach(), *requested]

    def listen(self, now_us: int, op_id: int, operation: Listen) -> Sequence[Effect]:
        """Emit what waits for the callback of a read, which is registered now; resume it if it was paused."""
        read = self._untold.get(operation.handle) or self._find_read(operation.handle)
        if not read.stored.has_listener:
            read.stored.has_listener = True
            self._store_read(read.stored)
        return [*self._release_waiting(now_us, read), Complete(op_id)]

    def await_synced(self, op_id: int, operation: AwaitSynced) -> Sequence[Effect]:
        """Complete a call when all existing records that a read asked for have been delivered."""
        read = self._find_read(operation.handle)
        read.awaiting.append(op_id)
        return self._complete_awaiting(read)

    def update_data(self, now_us: int, op_id: int, operation: UpdateData) -> Sequence[Effect]:
        """Replace the reader's data of a continuous read, durably, and send it to the processors."""
        read = self._find_read(operation.handle)
        stored = read.stored
        stored.reader = dict(operation.reader)
        stored.data_seq += 1
        self._store_read(stored)
        if stored.name in self._own:
            self._own_matches.pop(stored.handle, None)
            is_shown = stored.is_window and not stored.is_paused
            return [*(self._catch_up(now_us, read) if is_shown else ()), Complete(op_id)]
        if stored.synced_us is not None:
            self._follow(read, None if read.is_live else stored.synced_us)
        if stored.is_paused:  # the next registration has them
            return (Complete(op_id),)
        return self._send_update(now_us, op_id, read, is_over=False)

    def unregister(self, now_us: int, op_id: int, operation: Unregister) -> Sequence[Effect]:
        """End a continuous read, and complete the call that began it."""
        if operation.handle in self._untold:
            self._forget_ended(operation.handle)
            return (Complete(op_id),)
        read = self._find_read(operation.handle)
        is_own = read.stored.name in self._own
        effects = [
            *self._delete_read(now_us, read),
            *((Complete(op_id),) if is_own else self._send_update(now_us, op_id, read, is_over=True)),
        ]
        self._delete_waiting(read)
        if read.op_id is not None:
            effects.append(Complete(read.op_id, read.stored.handle))
            read.op_id = None
        return [*effects, *self._end_session_unless_used(now_us)]

    def attach(self) -> Sequence[Effect]:
        """Report to the service of the device what the notification server has to know of this app."""
        connection = self._connection
        policies: dict[str, int] = {slot.kind: slot.version for slot in self._policy_slots}
        attach = Attach(connection.incarnation, connection.token, policies, self._is_notified)
        return (Send(SERVICE, attach),)

    def receive_session(self, now_us: int, state: SessionState) -> Sequence[Effect]:
        """Register everything again in a new session; without a greeting, no read is live."""
        if state.session is None or not state.is_greeted:
            self.end_greeting(now_us)
            self._session = state.session
            return ()
        self._is_greeted = True
        effects: list[Effect] = []
        is_new, self._session = state.session != self._session, state.session
        for read in self._cloud_reads():
            if not is_new:
                effects += self._begin_live(now_us, read)
            elif not read.stored.is_paused:
                effects += self._request_registration(now_us, read)
        return effects

    def receive_notification(self, now_us: int, body: Notification) -> Sequence[Effect]:
        """Process an item of the stream from the notification server."""
        match body:
            case Policy():
                for slot in self._policy_slots:
                    if slot.kind == body.policy:
                        slot.accept(body.document)
                return self.attach()
            case NewGeneration():
                return self._note_generation(now_us, body.processor, body.generation)
            case Tell():
                noted = self._note_generation(now_us, body.processor, body.generation)
                return [*noted, *self._receive_change(now_us, body)]

    def build_request(self, work: Registering | Updating) -> ContinuousReadRequest:
        """Build a request about a continuous read as of now."""
        stored = work.read.stored if isinstance(work, Registering) else work.stored
        match work:
            case Registering():
                named, digests = self._describe_delivered(work.read)
                return RegisterRequest(
                    name=stored.name, handle=self._sent_handle(work.read), reader=stored.reader,
                    data_seq=stored.data_seq, request=work.request, session=work.session,
                    predicate=stored.predicate,
                    since_lsns=dict(stored.since_lsns), delivered=named, digests=digests or UNSET,
                    begun_lsns=dict(stored.begun_lsns) if digests and stored.begun_lsns else UNSET,
                    sync_us=stored.sync_us, table=stored.table,
                    log_incarnations=dict(stored.log_incarnations) or UNSET,
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

    def _describe_delivered(self, read: ContinuousRead) -> tuple[list[str], list[tuple[int, str]]]:
        """Return the keys of delivered records that a registration names, and digests of the others."""
        stored = read.stored
        table = self._local.tables.get(stored.name)
        if len(read.delivered) <= MAX_NAMED_KEYS or table is None or table.number != stored.table:
            return sorted(read.delivered), []
        buckets = table.buckets_of(read.delivered)
        named = [key for bucket in sorted(read.named_buckets) for key in buckets.pop(bucket, ())]
        return named, [(bucket, keys_digest(keys)) for bucket, keys in sorted(buckets.items())]

    def finish_update(self, work: Updating, last: Answer) -> Sequence[Effect]:
        """Process the answer to new reader data, or to the end of a continuous read."""
        if work.op_id is None:
            return ()
        error = error_in(last)
        return (Complete(work.op_id, error=None if error is None else decode_error(error)),)

    def finish_registration(
        self, now_us: int, work: Registering, ask: PendingAsk, last: Answer
    ) -> Sequence[Effect]:
        """Process the complete answer to a registration: store what it says, or register again."""
        read, stored, parts = work.read, work.read.stored, ask.registered
        error = error_in(last)
        if error is not None:
            return self._end_registration(now_us, read, last, error)
        assert isinstance(last, PartsComplete)
        if not all(place in parts for place in last.places):
            return self._request_registration(now_us, read)  # a part was lost
        self._local.store_table(last.table)
        unknown = [bucket for part in parts.values() for bucket in part.unknown or ()]
        if unknown:
            read.named_buckets.update(unknown)
            return self._request_registration(now_us, read)
        op_id, read.op_id = read.op_id, None
        read.named_buckets.clear()
        done = [] if op_id is None else [Complete(op_id, stored.handle)]
        read.generations = {processor: part.generation for processor, part in parts.items()}
        stored.table, stored.processors = last.table.number, list(parts)
        if stored.sync_us is None:
            # No existing records are requested, so it is up to date from here, unless it was before.
            for processor, part in parts.items():
                stored.begun_lsns.setdefault(processor, part.lsn)
                if processor not in stored.since_lsns:
                    _advance(stored, processor, part.lsn, part.log_incarnation)
        self._store_read(stored)
        effects: list[Effect] = [*done, *self._notify_of_aggregates(read)]
        if any(part.data_seq < stored.data_seq for part in parts.values()):
            effects += self._send_update(now_us, None, read, is_over=False)
        is_late = self._step_back(read)
        if is_late or any(
            generation < self._generations.get(processor, 0)
            for processor, generation in read.generations.items()
        ):
            effects += self._request_registration(now_us, read)
        else:
            effects += self._begin_live(now_us, read)
        return effects

    # -- inside

    @property
    def _is_notified(self) -> bool:
        """True if the notification server may have something to send."""
        return bool(self._policy_slots) or any(not read.stored.is_paused for read in self._cloud_reads())

    def _end_session_unless_used(self, now_us: int) -> Sequence[Effect]:
        """Report to the service if the notification server has nothing more to send."""
        if self._is_notified:
            return ()
        self.end_greeting(now_us)
        return self.attach()

    def _note_generation(self, now_us: int, processor: str, generation: int) -> Sequence[Effect]:
        """Note a newer generation of a processor, and register again the reads of its former ones."""
        if generation <= self._generations.get(processor, 0):
            return ()
        self._generations[processor] = generation
        lost = [
            read for read in self._reads.values() if read.generations.get(processor, generation) < generation
        ]
        return [effect for read in lost for effect in self._request_registration(now_us, read)]

    def _receive_change(self, now_us: int, body: Tell) -> Sequence[Effect]:
        """Process a Tell of a processor: a change, the end of synchronisation, or the end of the read."""
        processor, generation = body.processor, body.generation
        number = body.handle.rpartition(" ")[2].partition(".")[0]
        read = self._reads.get(int(number) if number.isdecimal() else 0)
        if (
            read is None
            or body.handle != self._sent_handle(read)
            or generation < max(self._generations.get(processor, 0), read.generations.get(processor, 0))
        ):
            return ()
        stored = read.stored
        if body.ended is not UNSET:
            others = self._end_at_others(now_us, read) if body.is_alone is True else ()
            return *self._end_read(now_us, read, body.ended), *others
        if body.change is not UNSET and self._is_full(read):
            return self._pause(now_us, read)
        stored.table = body.table
        is_same_log = (body.log_incarnation or "") == stored.log_incarnations.get(processor, "")
        since_lsn = stored.since_lsns.get(processor, 0) if is_same_log else 0
        if body.synced_lsn is not UNSET:
            _advance(stored, processor, max(body.synced_lsn, since_lsn), body.log_incarnation)
            read.synced.add(processor)
            self._store_read(stored)
            return self._begin_live(now_us, read)
        if body.state is not UNSET:
            read.states[processor] = body.state
            return self._notify_of_aggregates(read)
        if body.change is not UNSET and body.lsn is not UNSET:
            if body.lsn is not None and body.lsn <= since_lsn:
                return ()
            if body.lsn is not None:
                self._note_first_change(read, body, body.lsn)
                _advance(stored, processor, body.lsn, body.log_incarnation)
            changes = [body.change] if body.also is UNSET else [body.change, body.also]
            effects = self._apply_changes(now_us, read, body, changes, is_same_log=is_same_log)
            if read.is_live:
                stored.synced_us = now_us
            self._store_read(stored)
            return effects
        self._store_read(stored)
        return ()

    def _apply_changes(
        self,
        now_us: int,
        read: ContinuousRead,
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
            self._hold(now_us, read.stored, body, change)
        return self._deliver(read, changes, is_same_log=is_same_log)

    def _deliver(
        self, read: ContinuousRead, changes: Sequence[Upsert | LeftRead], *, is_same_log: bool = True
    ) -> Sequence[Effect]:
        """Note which versions a read has of some records, and notify its listener."""
        stored = read.stored
        if stored.is_window:
            return [
                effect
                for shown in self._windows[stored.handle].apply(changes, is_same_log=is_same_log)
                for effect in self._notify(
                    read, kind=shown.kind, key=shown.key, record=shown.record, version=shown.version
                )
            ]
        effects: list[Effect] = []
        for change in changes:
            key, last_version = change.key, read.delivered.get(change.key)
            version = (last_version or 0) if change.ver is None else change.ver  # None: the version is hidden
            if isinstance(change, Upsert):
                read.delivered[key] = version
                self._store.put(_delivered_key(stored.handle, key), version)
                record = change.data if stored.selection is None else stored.selection.columns_of(change.data)
                effects += self._notify(read, kind="upsert", key=key, record=record, version=version)
            elif last_version is not None:
                del read.delivered[key]
                self._store.delete(_delivered_key(stored.handle, key))
                effects += self._notify(read, kind="remove", key=key, version=version)
        return effects

    def _notify_of_aggregates(self, read: ContinuousRead) -> Sequence[Effect]:
        """Notify a reader of aggregates whose values have changed, once all processors have sent theirs."""
        stored, places = read.stored, read.stored.processors
        if stored.aggregate is None or not places or not all(place in read.states for place in places):
            return ()
        aggregates = Aggregates(stored.aggregate)
        states = [tuple(read.states[place]) for place in places]
        if not all(map(aggregates.is_state, states)):
            return ()  # a processor of another version
        values = aggregates.result(aggregates.combine(states))
        if values == stored.told_aggregates:
            return ()
        is_first, stored.told_aggregates = stored.told_aggregates is None, values
        self._store_read(stored)
        if is_first and stored.sync_us is None:
            return ()
        return self._notify(read, kind=_AGGREGATES, record=values)

    def _hold(self, now_us: int, stored: StoredRead, body: Tell, change: Upsert | LeftRead) -> None:
        """Store a delivered version in the local store; remove one that does not belong to the read any more.

        A position of an incarnation of the log that the device has not heard of counts once it has.
        """
        local, name, key = self._local, stored.name, change.key
        incarnation = body.log_incarnation or ""
        is_known = incarnation == local.log_incarnation
        if incarnation in local.former_log_incarnations:
            return
        has_columns = stored.selection is not None and stored.selection.columns is not None
        if isinstance(change, LeftRead) or has_columns:  # no later read may show an older version
            row = local.held_row(name, key)
            if row is not None and (change.ver is None or row.ver < change.ver or not is_known):
                local.evict(name, key)
            if isinstance(change, Upsert) and is_known:
                local.record_seen(name, body.table, local.partition_of(name, key), change.lsn)
            return
        row = HeldRow(
            key, change.ver, change.data, change.predicate, change.lsn, body.table, now_us,
            UNSET if is_known else incarnation,
        )  # fmt: skip
        local.hold_row(name, row)
        if is_known:
            local.record_seen(name, body.table, local.partition_of(name, key), change.lsn)

    def _begin_live(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """Count a read's query as followed, if it is registered and greeted: all was delivered."""
        stored = read.stored
        is_registered = bool(read.generations) and read.requested_since is None
        if (
            read.is_live
            or not self._is_greeted
            or not is_registered
            or not read.synced >= {*read.generations}
        ):
            return ()
        read.is_live, stored.synced_us = True, now_us
        self._store_read(stored)
        self._follow(read, None)
        return self._complete_awaiting(read)

    def _complete_awaiting(self, read: ContinuousRead) -> Sequence[Effect]:
        """Complete the calls that wait for a read's first state, once its callback was called with it."""
        if read.stored.synced_us is None or read.waiting:
            return ()
        op_ids, read.awaiting = read.awaiting, []
        return [Complete(op_id) for op_id in op_ids]

    def end_greeting(self, now_us: int) -> None:
        """Note that the server may not know the current address: no read is live."""
        self._is_greeted = False
        for read in self._reads.values():
            self._end_live(now_us, read)

    def _end_live(self, now_us: int, read: ContinuousRead) -> None:
        """Note that a read may have missed changes from now on."""
        if read.is_live:
            read.is_live, read.stored.synced_us = False, now_us
            self._store_read(read.stored)
            self._followed.stop(now_us, read.stored.handle, read.stored.name)

    def _follow(self, read: ContinuousRead, live_us: int | None) -> None:
        """Count a read's query as followed; ``live_us`` None: the read is live.

        Its answer is known if existing records were requested from the first on, with these reader data, and
        are not cut. A read of aggregates delivers no records.
        """
        stored = read.stored
        if stored.aggregate is not None:
            return
        query = Query(stored.name, stored.predicate.predicate(), "committed", stored.reader, None)
        is_answered = stored.sync_us == 0 and stored.data_seq == 1 and stored.selection is None
        self._followed.follow(stored.handle, FollowedQuery(query, read.delivered, is_answered, live_us))

    def _notify(
        self,
        read: ContinuousRead,
        *,
        ended: str | None = None,
        kind: str = "",
        key: str = "",
        record: Fields | None = None,
        version: int = 0,
    ) -> Sequence[Effect]:
        """Notify a read's listener, if the application wants to be notified."""
        if not read.stored.has_listener:
            return ()
        self._notice_count += 1
        identity = f"{self._connection.incarnation}.{self._notice_count}"
        return self._emit(read, _Notice(read.stored.handle, identity, ended, kind, key, record, version))

    def _emit(self, read: ContinuousRead, notice: _Notice) -> Sequence[Effect]:
        """Return a notification, stored until its callback was called; without a callback, let it wait."""
        handle = notice.handle
        if not read.waiting and self._has_listener(listener_of(handle)):
            return self._pass_on(read, notice)
        if notice.kind == _AGGREGATES:
            self._delete_waiting(read)
        read.waiting += 1
        self._store.put(f"{_waiting_key(handle)}{self._local.increment('count of waiting'):012d}", notice)
        return ()

    def _pass_on(self, read: ContinuousRead, notice: _Notice) -> Sequence[Effect]:
        """Return the notification of a callback that is registered."""
        if notice.kind == _AGGREGATES:
            read.stored.heard_aggregates = notice.record
            self._store_read(read.stored)
        return notice.notify(), self._notices.add(notice)

    def _release_waiting(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """Emit the notifications that waited for a callback, and register the read again if it is paused."""
        effects: list[Effect] = []
        stored = read.stored
        for notice in self._delete_waiting(read):
            if notice.kind != _AGGREGATES or notice.record != stored.heard_aggregates:
                effects += self._pass_on(read, notice)
        effects += self._complete_awaiting(read)
        if stored.is_paused:
            stored.is_paused = False
            self._store_read(stored)
            effects += self._begin(now_us, read)
        return effects

    def _delete_waiting(self, read: ContinuousRead) -> list[_Notice]:
        """Delete the notifications that wait for a read's callback, and return them, in order."""
        read.waiting = 0
        stored = self._store.items(_waiting_key(read.stored.handle), _Notice)
        for key, _ in stored:
            self._store.delete(key)
        return [notice for _, notice in stored]

    def _is_full(self, read: ContinuousRead) -> bool:
        """Return whether no more changes of a read may wait.

        Before its first registration is complete, a read could not resume at its position.
        """
        return read.waiting >= self._max_waiting and bool(read.stored.processors)

    def _pause(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """End a read at the processors until it has a callback; its position and records are kept."""
        withdrawn = self._withdraw(now_us, read)
        ended = self._end_at_others(now_us, read)
        self._end_live(now_us, read)
        read.stored.is_paused = True
        self._store_read(read.stored)
        read.pauses += 1  # what is on its way for the earlier registrations no longer counts
        read.generations, read.requested_since, read.sender_generations = {}, None, {}
        return [*withdrawn, *ended, *self._end_session_unless_used(now_us)]

    def _request_registration(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """Register a read in the present session, in place of an unanswered registration."""
        assert self._session is not None
        effects = self._withdraw(now_us, read)
        self._end_live(now_us, read)
        read.synced.clear()
        if read.requested_since is None:
            read.requested_since = dict(read.stored.since_lsns), dict(read.stored.log_incarnations)
            read.sender_generations = {}
        work = Registering(read, self._local.increment("count of requests"), self._session)
        ask = self._connection.add_request(work, self.build_request(work))
        self._registrations[read.stored.handle] = ask
        return [*effects, *self._connection.send(now_us, ask)] if self._connection.admit(ask) else effects

    def _withdraw(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """Stop sending the last registration of a read, which the cloud may not answer any more."""
        ask = self._registrations.pop(read.stored.handle, None)
        if ask is None or not self._connection.is_unanswered(ask.identity):
            return ()
        return self._connection.settle_request(now_us, ask)

    def _end_registration(
        self, now_us: int, read: ContinuousRead, last: Answer, error: EncodedError
    ) -> Sequence[Effect]:
        """End a continuous read that the cloud, or one of the processors, refuses."""
        op_id, read.op_id = read.op_id, None
        effects: list[Effect] = [] if op_id is None else [Complete(op_id, error=decode_error(error))]
        if op_id is None:
            effects += self._end_read(now_us, read, error.summary)
        else:
            effects += self._delete_read(now_us, read)
        if isinstance(last, PlacedContinuousReadAck):  # by one processor; others may have accepted it
            effects += self._end_at_others(now_us, read)
        return effects

    def _end_read(self, now_us: int, read: ContinuousRead, why: str) -> Sequence[Effect]:
        """End a read that the cloud has ended; notify the application of the reason."""
        effects = self._delete_read(now_us, read)
        if read.stored.has_listener:
            read.stored.ended = why
            self._store_read(read.stored)
            self._untold[read.stored.handle] = read
        return *effects, *self._notify(read, ended=why)

    def _forget_ended(self, handle: int) -> None:
        """Forget a read that has ended, with what it was not told."""
        self._delete_waiting(self._untold.pop(handle))
        self._store.delete(_read_key(handle))

    def _note_first_change(self, read: ContinuousRead, body: Tell, lsn: int) -> None:
        """Note the first change of a processor while the first registration of a read is unanswered.

        The read has begun by then, so it may return to this position, but not to none: a read without its
        existing records would begin anew after the changes that are on their way.
        """
        if read.stored.sync_us is None and read.requested_since is not None:
            since_lsns, log_incarnations = read.requested_since
            if body.processor not in since_lsns:
                since_lsns[body.processor] = lsn
                if body.log_incarnation:
                    log_incarnations[body.processor] = body.log_incarnation

    def _step_back(self, read: ContinuousRead) -> bool:
        """Return whether changes of an earlier generation arrived after the last registration was sent.

        The new generation does not know of them: the read returns to its earlier log position and is
        registered again.
        """
        (before, log_incarnations), oldest = read.requested_since or ({}, {}), read.sender_generations
        read.requested_since = None
        late = [
            processor
            for processor, generation in read.generations.items()
            if oldest.get(processor, generation) < generation
        ]
        stored = read.stored
        for processor in late:
            stored.since_lsns.pop(processor, None)
            stored.log_incarnations.pop(processor, None)
            if processor in before:
                _advance(stored, processor, before[processor], log_incarnations.get(processor))
        if late:
            self._store_read(read.stored)
        return bool(late)

    def _end_at_others(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """End a continuous read at its processors, of which one may have ended it."""
        return self._send_update(now_us, None, read, is_over=True)

    def _send_update(
        self, now_us: int, op_id: int | None, read: ContinuousRead, *, is_over: bool
    ) -> Sequence[Effect]:
        """Send new reader data, or the end of a read, to its processors."""
        work = Updating(op_id, read.stored, is_over, self._sent_handle(read))
        return self._connection.send_request(now_us, work, self.build_request(work))

    def _sent_handle(self, read: ContinuousRead) -> str:
        """Return the handle by which processors know a read: unique also after a restart or a pause."""
        pauses = f".{read.pauses}" if read.pauses else ""
        return f"{self._connection.incarnation} {read.stored.handle}{pauses}"

    def _find_read(self, handle: int) -> ContinuousRead:
        """Return the continuous read of a handle, or raise ParameterError."""
        if handle not in self._reads:
            raise self._no_such_read_error(handle)
        return self._reads[handle]

    def _no_such_read_error(self, handle: int) -> ParameterError:
        """Build the error for the handle of no continuous read."""
        is_over = 0 < handle <= self._local.counted(_HANDLES)
        return ParameterError(
            "This continuous read has ended." if is_over else "There is no such continuous read.",
            where="handle",
            found=repr(handle),
            expected=", ".join(map(str, self._reads)) or "none is registered",
            remedy="begin another one; continuous_reads() lists those of this app on this device",
        )

    def _load_delivered(self, stored: StoredRead) -> dict[str, int]:
        """Return the stored versions that were delivered to a read, by key; load its window if it is one."""
        prefix = _delivered_key(stored.handle, "")
        if stored.selection is not None and stored.is_window:
            window = self._windows[stored.handle] = ShownWindow(self._store, prefix, stored.selection)
            return window.delivered
        return {key.removeprefix(prefix): version for key, version in self._store.items(prefix, int)}

    def _store_read(self, stored: StoredRead) -> None:
        """Store the state of a read durably, without the delivered versions."""
        self._store.put(_read_key(stored.handle), stored)

    def _delete_read(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """Delete a read with its delivered versions, and withdraw its registration."""
        handle = read.stored.handle
        self._reads.pop(handle, None)
        self._own_matches.pop(handle, None)
        self._windows.pop(handle, None)
        self._followed.leave(handle, read.stored.name)
        self._store.delete(_read_key(handle))
        for key in read.delivered:
            self._store.delete(_delivered_key(handle, key))
        error = self._no_such_read_error(handle)
        ended = [Complete(op_id, error=error) for op_id in read.awaiting]
        read.awaiting.clear()
        return [*self._withdraw(now_us, read), *ended]


def _read_key(handle: int) -> str:
    """Return the store key of the state of a read."""
    return f"reading {handle:09d}"


def _waiting_key(handle: int) -> str:
    """Return the beginning of the store keys of the notices that wait for a read's callback."""
    return f"waiting {handle:09d} "


def _delivered_key(handle: int, key: str) -> str:
    """Return the store key of a version: each has its own, since a read may hold thousands of records."""
    return f"read {handle:09d} {key}"


def _is_news(read: ContinuousRead, change: Upsert | LeftRead, *, is_same_log: bool) -> bool:
    """Return whether a reader lacks a change; see :meth:`ContinuousReads._apply_changes`."""
    last_version = read.delivered.get(change.key, 0)
    if change.ver is None or change.ver > last_version:
        return True
    return not is_same_log and (change.ver != last_version or isinstance(change, LeftRead))


def _describe_selection(selection: Selection | None) -> dict[str, Value]:
    """Return the columns, order and limit of a read, as :meth:`Selection.parse` takes them."""
    if selection is None:
        return {"columns": None, "order": None, "limit": None}
    direction = " DESC" if selection.is_descending else ""
    order = None if selection.order is None else f"{selection.order}{direction}"
    return {"columns": selection.columns, "order": order, "limit": selection.limit}


def _advance(stored: StoredRead, processor: str, lsn: int, log_incarnation: str | UnsetType | None) -> None:
    """Store the log position received from a processor, and the incarnation of the log in which it counts."""
    stored.since_lsns[processor] = lsn
    if log_incarnation:
        stored.log_incarnations[processor] = log_incarnation
    else:
        stored.log_incarnations.pop(processor, None)
