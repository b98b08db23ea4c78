"""Continuous reads of a client: registered at the processors, notified by the notification server.

Rules (Mobius 5):

============  ======================================================================================
register      stored durably; requested when there is a session with a notification server
welcome       late copy: ignored; new session: everything is registered again
identify      a hello with the server's nonce
generation    a processor has begun another generation: the reads that it had are registered again
tell          delivered, unless it is a duplicate; the position in the log is stored
synced        all that a processor was to deliver before was delivered; told once, after the last one
ended         the cloud has ended it, with a reason; if only one processor has, the others have to
policy        put in the slot of its kind
heartbeat     sign of life to the server
============  ======================================================================================

A repeated registration has the log position, the delivered records, and the number of the table (another one
of the same name has none of them), so that no change is missed or delivered twice. A notification is stored
with the position until its callback was called, and repeated with the same id after a kill between the two.
A record that is delivered is held in the local store, as one that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from mudkit.checks import unusable
from mudkit.delivery.notices import FieldsWithId, Notices
from mudkit.delivery.stream import Incoming, StreamItem
from mudkit.errors import ParameterError
from mudkit.events import CancelTimer, Complete, Effect, Notify, Ports, Send, SetTimer
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
from mudkit.systems.mud.device.policy_slot import PolicySlot
from mudkit.systems.mud.messages import (
    ContinuousReadRequest,
    EncodedError,
    Hello,
    LeftRead,
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
    Welcome,
    app_of,
    decode_error,
)
from mudkit.systems.mud.policies.policies import Query
from mudkit.systems.mud.result import Change
from mudkit.systems.mud.servers.notifications import HEARTBEAT_US
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.replica import copy_record
from mudkit.wire import Fields

HEARTBEAT: Final = "heartbeat"
HELLO: Final = "hello"
"""Key of a hello in the retransmission timer."""


class _Notice(Struct, frozen=True):
    """Notification of a listener: a change, or the reason ``ended`` for which the read has ended."""

    listener: str
    id: str
    ended: str | None = None
    kind: str = ""
    key: str = ""
    record: Fields | None = None
    version: int = 0

    def notify(self) -> Notify:
        """Build the effect of this notice, with a record that the application may change."""
        if self.ended is not None:
            return Notify(self.listener, FieldsWithId({"ended": self.ended}, self.id))
        record = None if self.record is None else copy_record(self.record)
        return Notify(self.listener, Change(self.kind, self.key, record, self.version, self.id))


class ContinuousReads:
    """Continuous reads of one client.

    The first of ``servers`` knows which notification server is responsible; ``slots`` are those of the
    policies that this client follows.
    """

    def __init__(
        self,
        ports: Ports,
        local: Local,
        followed: FollowedQueries,
        connection: Connection,
        servers: Sequence[str],
        slots: Sequence[PolicySlot],
    ) -> None:
        self._store = ports.store
        self._local = local
        self._followed = followed
        self._connection = connection
        self._servers, self._server = servers, servers[0]
        self._policy_slots = slots
        self._session: str | None = None
        self._is_greeted = False
        """True if the server knows the current address."""
        self._hello_seq = 0
        """Number of the last hello of this start."""
        self._open_seq = 1
        """Number of the first hello whose welcome counts."""
        self._nonce: str | None = None
        """Nonce requested by the server."""
        self._incoming: Incoming[Notification] | None = None
        """Stream of the session; None before its first item."""
        self._registrations: dict[int, PendingAsk] = {}
        """Last request to register each read."""
        self._reads = {
            stored.handle: ContinuousRead(stored, self._load_delivered(stored.handle))
            for _, stored in ports.store.items("reading ", StoredRead)
        }
        for read in self._reads.values():
            if read.stored.synced_us is not None:
                self._follow(read, read.stored.synced_us)
        self._generations: dict[str, int] = {}
        """Latest known generation of each processor."""
        self._notices = Notices(ports.store, _Notice)
        self._notice_count = 0

    def repeat_notices(self) -> Sequence[Effect]:
        """Return the notifications of former starts whose callbacks a kill may have prevented."""
        return self._notices.repeat(_Notice.notify)

    def clear_notices(self) -> None:
        """Remove the notifications whose callbacks were called."""
        self._notices.clear()

    def reads(self) -> list[ContinuousRead]:
        """Return all continuous reads that have not ended."""
        return list(self._reads.values())

    def register(self, now_us: int, op_id: int, operation: Register) -> Sequence[Effect]:
        """Store a continuous read, and register it if there is a session; its call is completed later."""
        sync = operation.sync_timestamp
        if sync is not None and sync < 0:
            expected = "seconds since the beginning of the lab, 0 or more; None for no existing records"
            raise unusable("sync_timestamp", sync, expected)
        predicate = SentPredicate.of(operation.predicate)
        assert predicate is not None
        handle = self._local.increment("count of handles")
        stored = StoredRead(
            handle=handle,
            data_seq=1,
            name=operation.table,
            predicate=predicate,
            reader=dict(operation.reader),
            sync_us=None if sync is None else round(sync * 1e6),
            listener=operation.listener,
        )
        self._reads[handle] = read = ContinuousRead(stored, op_id=op_id)
        self._store_read(stored)
        effects: list[Effect] = []
        if not self._is_greeted and HELLO not in self._connection.timer:
            effects += self.send_hello(now_us)
        if self._session is not None:
            effects += self._request_registration(now_us, read)
        return effects

    def update_data(self, now_us: int, op_id: int, operation: UpdateData) -> Sequence[Effect]:
        """Replace the reader's data of a continuous read, durably, and send it to the processors."""
        read = self._find_read(operation.handle)
        stored = read.stored
        stored.reader = dict(operation.reader)
        stored.data_seq += 1
        self._store_read(stored)
        if stored.synced_us is not None:
            self._follow(read, None if read.is_live else stored.synced_us)
        return self._send_update(now_us, Updating(op_id, stored, is_over=False))

    def unregister(self, now_us: int, op_id: int, operation: Unregister) -> Sequence[Effect]:
        """End a continuous read, and complete the call that began it."""
        read = self._find_read(operation.handle)
        effects = [
            *self._delete_read(now_us, read),
            *self._send_update(now_us, Updating(op_id, read.stored, is_over=True)),
        ]
        if read.op_id is not None:
            effects.append(Complete(read.op_id, read.stored.handle))
            read.op_id = None
        if self._is_notified:
            return effects
        return [*effects, *self._connection.timer.settle(now_us, HELLO), *self.stop_heartbeats()]

    def greet(self, now_us: int) -> Sequence[Effect]:
        """Send a hello with news: welcomes for earlier hellos no longer count."""
        self._open_seq = self._hello_seq + 1
        return self.send_hello(now_us)

    def identify(self, now_us: int, nonce: str) -> Sequence[Effect]:
        """Answer the server's question by a hello with its nonce, unless such a hello is unanswered."""
        if nonce == self._nonce and HELLO in self._connection.timer:
            return ()
        self._nonce = nonce
        return self.greet(now_us)

    def send_hello(self, now_us: int) -> Sequence[Effect]:
        """Send the current address to the notification server, if there are continuous reads or policies."""
        self._end_greeting(now_us)
        if not self._connection.is_up or not self._is_notified:
            return ()
        return self._transmit_hello(now_us, is_new=True)

    def record_link_down(self, now_us: int) -> Sequence[Effect]:
        """Note that there is no network, and no notification until there is one."""
        self._end_greeting(now_us)
        return self.stop_heartbeats()

    def stop_heartbeats(self) -> Sequence[Effect]:
        """Stop heartbeats until there is a link and a reason for them."""
        self._is_greeted = False
        return (CancelTimer(HEARTBEAT),)

    def send_heartbeat(self, now_us: int) -> Sequence[Effect]:
        """Send a hello that only repeats what the server knows, and set the timer of the next one."""
        return *self._transmit_hello(now_us, is_new=False), SetTimer(HEARTBEAT, HEARTBEAT_US)

    def follow_redirect(self, now_us: int, to: str) -> Sequence[Effect]:
        """Send a hello to the responsible server, unless such a hello is unanswered."""
        if to not in self._servers or (to == self._server and HELLO in self._connection.timer):
            return ()
        self._server = to
        return self.greet(now_us)

    def receive_welcome(self, now_us: int, welcome: Welcome) -> Sequence[Effect]:
        """Register everything again in a new session; ignore a late copy."""
        if welcome.incarnation != self._connection.incarnation or welcome.seq < self._open_seq:
            return ()
        self._open_seq, self._nonce, self._is_greeted = welcome.seq + 1, None, True
        effects = [*self._connection.timer.settle(now_us, HELLO), SetTimer(HEARTBEAT, HEARTBEAT_US)]
        if welcome.session != self._session:
            self._session, self._incoming = welcome.session, None
            for read in self._reads.values():
                effects += self._request_registration(now_us, read)
            return effects
        for read in self._reads.values():
            effects += self._begin_live(now_us, read)
        return effects

    def receive_item(self, now_us: int, source: str, item: StreamItem[Notification]) -> Sequence[Effect]:
        """Process an item of a notification server's stream."""
        if item.stream != self._session:
            return ()
        if self._incoming is None:
            self._incoming = Incoming(item.first)
        incoming = self._incoming
        effects: list[Effect] = []
        for body in incoming.take(item):
            match body:
                case Policy():
                    for slot in self._policy_slots:
                        if slot.kind == body.policy:
                            slot.accept(body.document)
                case NewGeneration():
                    effects += self._note_generation(now_us, body.processor, body.generation)
                case Tell():
                    effects += self._note_generation(now_us, body.processor, body.generation)
                    effects += self._receive_change(now_us, body)
        return [*effects, Send(source, incoming.build_ack(item.stream))]

    def build_request(self, work: Registering | Updating) -> ContinuousReadRequest:
        """Build a request about a continuous read as of now."""
        stored = work.read.stored if isinstance(work, Registering) else work.stored
        handle = f"{self._connection.incarnation} {stored.handle}"  # unique also after a restart
        match work:
            case Registering():
                return RegisterRequest(
                    name=stored.name, handle=handle, reader=stored.reader, data_seq=stored.data_seq,
                    request=work.request, session=work.session, predicate=stored.predicate,
                    since_lsns=dict(stored.since_lsns), delivered=sorted(work.read.delivered),
                    sync_us=stored.sync_us, table=stored.table,
                    log_incarnations=dict(stored.log_incarnations) or UNSET,
                )  # fmt: skip
            case Updating(is_over=True):
                return UnregisterRequest(
                    name=stored.name, handle=handle, reader=stored.reader, data_seq=stored.data_seq
                )
        return UpdateDataRequest(
            name=stored.name, handle=handle, reader=stored.reader, data_seq=stored.data_seq
        )

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
        op_id, read.op_id = read.op_id, None
        self._local.store_table(last.table)
        done = [] if op_id is None else [Complete(op_id, stored.handle)]
        read.generations = {processor: part.generation for processor, part in parts.items()}
        stored.table = last.table.number
        if stored.sync_us is None:
            # No existing records are requested, so it is up to date from here, unless it was before.
            for processor, part in parts.items():
                if processor not in stored.since_lsns:
                    _advance(stored, processor, part.lsn, part.log_incarnation)
        self._store_read(stored)
        effects: list[Effect] = [*done]
        if any(part.data_seq < stored.data_seq for part in parts.values()):
            effects += self._send_update(now_us, Updating(None, stored, is_over=False))
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
        return bool(self._reads or self._policy_slots)

    def _transmit_hello(self, now_us: int, *, is_new: bool) -> Sequence[Effect]:
        """Send a hello with the next number, and start its deadline; ``is_new`` False: a heartbeat."""
        self._hello_seq += 1
        token = self._connection.token
        tokens = {} if token is None else {app_of(self._connection.endpoint): token}
        message = Hello(
            endpoint=self._connection.endpoint,
            session=self._session,
            is_new=is_new,
            policies={slot.kind: slot.version for slot in self._policy_slots},
            incarnation=self._connection.incarnation,
            seq=self._hello_seq,
            nonce=UNSET if self._nonce is None else self._nonce,
            tokens=tokens if is_new or self._nonce is not None else UNSET,
        )
        return Send(self._server, message), *self._connection.timer.start(now_us, HELLO)

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
        incarnation, _, number = body.handle.partition(" ")
        handle = int(number) if incarnation == self._connection.incarnation and number.isdecimal() else 0
        read = self._reads.get(handle)
        if read is None or generation < max(
            self._generations.get(processor, 0), read.generations.get(processor, 0)
        ):
            return ()
        stored = read.stored
        if body.ended is not UNSET:
            forgotten = self._delete_read(now_us, read)
            others = self._end_at_others(now_us, stored) if body.is_alone is True else ()
            return *forgotten, *self._notify(stored, ended=body.ended), *others
        stored.table = body.table
        is_same_log = (body.log_incarnation or "") == stored.log_incarnations.get(processor, "")
        since_lsn = stored.since_lsns.get(processor, 0) if is_same_log else 0
        if body.synced_lsn is not UNSET:
            _advance(stored, processor, max(body.synced_lsn, since_lsn), body.log_incarnation)
            read.synced.add(processor)
            self._store_read(stored)
            return self._begin_live(now_us, read)
        if body.change is not UNSET and body.lsn is not UNSET:
            if body.lsn is not None and body.lsn <= since_lsn:
                return ()
            if body.lsn is not None:
                self._note_first_change(read, body, body.lsn)
                _advance(stored, processor, body.lsn, body.log_incarnation)
            effects = self._apply_change(now_us, read, body, body.change, is_same_log=is_same_log)
            if read.is_live:
                stored.synced_us = now_us
            self._store_read(stored)
            return effects
        self._store_read(stored)
        return ()

    def _apply_change(
        self, now_us: int, read: ContinuousRead, body: Tell, change: Upsert | LeftRead, *, is_same_log: bool
    ) -> Sequence[Effect]:
        """Deliver a change of a record, unless the reader has this version or a newer one.

        ``is_same_log``: the change is of the log incarnation in which this processor was last heard of. If
        not, the back end was restored from a backup or wiped, and the versions that were delivered may be
        missing in its log now: an older version is delivered, too.
        """
        stored, key = read.stored, change.key
        last_version = read.delivered.get(key, 0)
        version = last_version if change.ver is None else change.ver  # None: the version is hidden
        is_older = (
            version <= last_version if is_same_log else version == last_version and isinstance(change, Upsert)
        )
        if change.ver is not None and is_older:
            return ()
        if read.requested_since is not None:
            read.sender_generations.setdefault(body.processor, body.generation)  # they arrive in order
        self._hold(now_us, stored, body, change)
        if isinstance(change, LeftRead):
            if read.delivered.pop(key, None) is None:
                return ()
            self._store.delete(_delivered_key(stored.handle, key))
            return self._notify(stored, kind="remove", key=key, version=version)
        read.delivered[key] = version
        self._store.put(_delivered_key(stored.handle, key), version)
        return self._notify(stored, kind="upsert", key=key, record=change.data, version=version)

    def _hold(self, now_us: int, stored: StoredRead, body: Tell, change: Upsert | LeftRead) -> None:
        """Store a delivered version in the local store; remove one that does not belong to the read any more.

        A position of an incarnation of the log that the device has not heard of counts once it has.
        """
        local, name, key = self._local, stored.name, change.key
        incarnation = body.log_incarnation or ""
        is_known = incarnation == local.log_incarnation
        if incarnation in local.former_log_incarnations:
            return
        if isinstance(change, LeftRead):
            row = local.held_row(name, key)
            if row is not None and (change.ver is None or row.ver < change.ver or not is_known):
                local.evict(name, key)
            return
        row = HeldRow(
            key, change.ver, change.data, change.predicate, change.lsn, body.table, now_us,
            UNSET if is_known else incarnation,
        )  # fmt: skip
        local.hold_row(name, row)
        if is_known:
            local.record_seen(name, body.table, local.partition_of(name, key), change.lsn)

    def _begin_live(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """Count a read's query as followed, if it is registered and greeted; tell once that it is synced."""
        stored = read.stored
        is_registered = bool(read.generations) and read.requested_since is None
        if (
            read.is_live
            or not self._is_greeted
            or not is_registered
            or not read.synced >= {*read.generations}
        ):
            return ()
        is_first, read.is_live, stored.synced_us = stored.synced_us is None, True, now_us
        self._store_read(stored)
        self._follow(read, None)
        if not is_first or stored.sync_us is None:
            return ()
        return self._notify(stored, kind="synced")

    def _end_greeting(self, now_us: int) -> None:
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

        Its answer is known if existing records were requested from the first on, with these reader data.
        """
        stored = read.stored
        query = Query(stored.name, stored.predicate.predicate(), "committed", stored.reader, None)
        is_answered = stored.sync_us == 0 and stored.data_seq == 1
        self._followed.follow(stored.handle, FollowedQuery(query, read.delivered, is_answered, live_us))

    def _notify(
        self,
        stored: StoredRead,
        *,
        ended: str | None = None,
        kind: str = "",
        key: str = "",
        record: Fields | None = None,
        version: int = 0,
    ) -> Sequence[Effect]:
        """Return the notification of a read's listener, which is stored until its callback was called."""
        self._notice_count += 1
        identity = f"{self._connection.incarnation}.{self._notice_count}"
        notice = _Notice(stored.listener, identity, ended, kind, key, record, version)
        return notice.notify(), self._notices.add(notice)

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
        effects += self._delete_read(now_us, read)
        if op_id is None:
            effects += self._notify(read.stored, ended=error.summary)
        if isinstance(last, PlacedContinuousReadAck):  # by one processor; others may have accepted it
            effects += self._end_at_others(now_us, read.stored)
        return effects

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

    def _end_at_others(self, now_us: int, stored: StoredRead) -> Sequence[Effect]:
        """End a continuous read at the other processors after one of them has ended it."""
        return self._send_update(now_us, Updating(None, stored, is_over=True))

    def _send_update(self, now_us: int, work: Updating) -> Sequence[Effect]:
        """Send new reader data, or the end of a read, to its processors."""
        return self._connection.send_request(now_us, work, self.build_request(work))

    def _find_read(self, handle: int) -> ContinuousRead:
        """Return the continuous read of a handle, or raise ParameterError."""
        if handle not in self._reads:
            raise ParameterError(
                "There is no such continuous read.",
                where="handle",
                found=repr(handle),
                expected=", ".join(map(str, self._reads)) or "none is registered",
            )
        return self._reads[handle]

    def _load_delivered(self, handle: int) -> dict[str, int]:
        """Return the stored versions that were delivered to a read, by key."""
        prefix = _delivered_key(handle, "")
        return {key.removeprefix(prefix): version for key, version in self._store.items(prefix, int)}

    def _store_read(self, stored: StoredRead) -> None:
        """Store the state of a read durably, without the delivered versions."""
        self._store.put(f"reading {stored.handle:09d}", stored)

    def _delete_read(self, now_us: int, read: ContinuousRead) -> Sequence[Effect]:
        """Delete a read with its delivered versions, and withdraw its registration."""
        handle = read.stored.handle
        self._reads.pop(handle, None)
        self._followed.leave(handle, read.stored.name)
        self._store.delete(f"reading {handle:09d}")
        for key in read.delivered:
            self._store.delete(_delivered_key(handle, key))
        return self._withdraw(now_us, read)


def _delivered_key(handle: int, key: str) -> str:
    """Return the store key of a version: each has its own, since a read may hold thousands of records."""
    return f"read {handle:09d} {key}"


def _advance(stored: StoredRead, processor: str, lsn: int, log_incarnation: str | UnsetType | None) -> None:
    """Store the log position received from a processor, and the incarnation of the log in which it counts."""
    stored.since_lsns[processor] = lsn
    if log_incarnation:
        stored.log_incarnations[processor] = log_incarnation
    else:
        stored.log_incarnations.pop(processor, None)
