"""Continuous reads of a client: registered at the processors, notified by the notification server.

Rules (Mobius 5):

============  ======================================================================================
register      stored durably; requested when there is a session with a notification server
welcome       late copy: ignored; another session than before: everything is registered again
identify      a hello with the server's nonce
life          a processor has begun another life: what it knew of is registered again
tell          delivered, unless it is a duplicate; the position in the log is stored
synced        the records that existed before have all been delivered
ended         the cloud has ended it, and says why; if one processor alone has, the others are told
policy        put in the slot of its kind
heartbeat     sign of life to the server
============  ======================================================================================

A repeated registration carries the position in the log, the records that were delivered, and the number of
the table (another one of the same name has none of them). So nothing is missed or delivered twice. What
arrives in the moment in which a device is killed counts as delivered: its application is gone, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, UnsetType

from mudkit.delivery.stream import Incoming, StreamItem
from mudkit.errors import ParameterError
from mudkit.events import CancelTimer, Complete, Effect, Notify, Ports, Send, SetTimer
from mudkit.systems.mud import messages
from mudkit.systems.mud.device.connection import (
    Answer,
    Connection,
    PendingAsk,
    Reading,
    Registering,
    Telling,
    Watch,
    error_in,
)
from mudkit.systems.mud.device.local import Local
from mudkit.systems.mud.device.policy_slot import PolicySlot
from mudkit.systems.mud.messages import (
    ContinuousReadRequest,
    Hello,
    Life,
    Notification,
    PlacedRegistered,
    Policy,
    Register,
    RegisterRequest,
    Remove,
    Tell,
    Unregister,
    UnregisterRequest,
    UpdateData,
    UpdateDataRequest,
    Welcome,
    decode_error,
)
from mudkit.systems.mud.result import Change
from mudkit.systems.mud.servers.notifications import HEARTBEAT_US
from mudkit.systems.mud.tables.records import SentPredicate
from mudkit.systems.mud.tables.replica import detached

__all__ = ["HEARTBEAT", "HELLO", "ContinuousReads"]

HEARTBEAT: Final = "heartbeat"
HELLO: Final = "hello"
"""Key of a hello among what waits for an answer."""


class ContinuousReads:
    """The continuous reads of one client.

    Parameters
    ----------
    ports : Ports
    local : Local
    connection : Connection
    servers : sequence of str
        The notification servers: the first one knows which of them is responsible.
    slots : sequence of PolicySlot
        The slots of the policies that this client follows.
    """

    def __init__(
        self,
        ports: Ports,
        local: Local,
        connection: Connection,
        servers: Sequence[str],
        slots: Sequence[PolicySlot],
    ) -> None:
        self._store = ports.store
        self._local = local
        self._connection = connection
        self._servers, self._server = servers, servers[0]
        self._policy_slots = slots
        self._session: str | None = None
        self._is_greeted = False
        """Whether the server knows the current address."""
        self._hello_seq = 0
        """Number of the last hello of this start."""
        self._open_seq = 1
        """Number of the first hello whose welcome counts."""
        self._nonce: str | None = None
        """Nonce that the server has asked for."""
        self._incoming: Incoming[Notification] | None = None
        """Stream of the session; None before its first item."""
        self._watches = {
            reading.handle: Watch(reading) for _, reading in ports.store.items("reading ", Reading)
        }
        self._lives: dict[str, int] = {}
        """The latest life of each processor that was heard of."""

    def readings(self) -> list[Reading]:
        """Return the continuous reads."""
        return [watch.reading for watch in self._watches.values()]

    def register(self, now_us: int, op_id: int, asked: Register) -> Sequence[Effect]:
        """Begin a continuous read."""
        sync = asked.sync_timestamp
        if sync is not None and sync < 0:
            raise ParameterError(
                "This is no time of the store.",
                where="sync_timestamp",
                found=repr(sync),
                expected="seconds from the beginning of the lab, 0 or more; None for nothing that is there",
            )
        predicate = SentPredicate.of(asked.predicate)
        assert predicate is not None
        handle = self._local.next_number("count of handles")
        reading = Reading(
            handle=handle,
            data_seq=1,
            name=asked.table,
            predicate=predicate,
            reader=dict(asked.reader),
            sync_us=None if sync is None else round(sync * 1e6),
            listener=asked.listener,
        )
        self._watches[handle] = watch = Watch(reading, op_id)
        self._save(reading)
        effects: list[Effect] = []
        if not self._is_greeted:
            effects += self.hello(now_us)
        if self._session is not None:
            effects += self._register(now_us, watch)
        return effects

    def change(self, now_us: int, op_id: int, asked: UpdateData) -> Sequence[Effect]:
        """Replace the reader's data of a continuous read."""
        reading = self._known(asked.handle).reading
        reading.reader = dict(asked.reader)
        reading.data_seq += 1
        self._save(reading)
        return self._tell(now_us, Telling(op_id, reading, is_over=False))

    def unregister(self, now_us: int, op_id: int, asked: Unregister) -> Sequence[Effect]:
        """End a continuous read, and the call that began it if that is not answered."""
        watch = self._known(asked.handle)
        self._forget(watch)
        effects = [*self._tell(now_us, Telling(op_id, watch.reading, is_over=True))]
        if watch.op_id is not None:
            effects.append(Complete(watch.op_id, watch.reading.handle))
            watch.op_id = None
        if self._is_notified:
            return effects
        return [*effects, *self._connection.timer.answered(now_us, HELLO), *self.down()]

    def greet(self, now_us: int) -> Sequence[Effect]:
        """Say hello because of news: welcomes that answer earlier hellos no longer count."""
        self._open_seq = self._hello_seq + 1
        return self.hello(now_us)

    def identify(self, now_us: int, nonce: str) -> Sequence[Effect]:
        """Say hello with the nonce of the server, unless such a hello is not answered."""
        if nonce == self._nonce and HELLO in self._connection.timer:
            return ()
        self._nonce = nonce
        return self.greet(now_us)

    def hello(self, now_us: int) -> Sequence[Effect]:
        """Tell the notification server the current address, if there is anything to be notified of."""
        self._is_greeted = False
        if not self._connection.is_up or not self._is_notified:
            return ()
        return self._hello(now_us, is_new=True)

    def down(self) -> Sequence[Effect]:
        """Wait for a link, or for something to be notified of."""
        self._is_greeted = False
        return (CancelTimer(HEARTBEAT),)

    def heartbeat(self, now_us: int) -> Sequence[Effect]:
        """Send a sign of life."""
        return *self._hello(now_us, is_new=False), SetTimer(HEARTBEAT, HEARTBEAT_US)

    def redirected(self, now_us: int, to: str) -> Sequence[Effect]:
        """Greet the server that is responsible."""
        if to not in self._servers:
            return ()
        self._server = to
        return self.greet(now_us)

    def welcome(self, now_us: int, welcome: Welcome) -> Sequence[Effect]:
        """Register everything again if the server did not know this client any more; ignore a late copy."""
        if welcome.incarnation != self._connection.incarnation or welcome.seq < self._open_seq:
            return ()
        self._open_seq, self._nonce, self._is_greeted = welcome.seq + 1, None, True
        effects = [*self._connection.timer.answered(now_us, HELLO), SetTimer(HEARTBEAT, HEARTBEAT_US)]
        if welcome.session != self._session:
            self._session, self._incoming = welcome.session, None
            for watch in self._watches.values():
                effects += self._register(now_us, watch)
        return effects

    def stream(self, now_us: int, source: str, item: StreamItem[Notification]) -> Sequence[Effect]:
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
                            slot.take(body.document)
                case Life():
                    effects += self._heard(now_us, body.processor, body.life)
                case Tell():
                    effects += self._heard(now_us, body.processor, body.life)
                    effects += self._notified(now_us, body)
        return [*effects, Send(source, incoming.ack(item.stream))]

    def request(self, work: Registering | Telling) -> ContinuousReadRequest:
        """Build a request about a continuous read, as of now."""
        reading = work.watch.reading if isinstance(work, Registering) else work.reading
        handle = f"{self._connection.incarnation} {reading.handle}"  # that of another start is another one
        match work:
            case Registering():
                return RegisterRequest(
                    name=reading.name, handle=handle, reader=reading.reader, data_seq=reading.data_seq,
                    request=work.request, session=work.session, predicate=reading.predicate,
                    since=dict(reading.since), held=sorted(reading.held), sync_us=reading.sync_us,
                    table=reading.table, starts=dict(reading.starts) or UNSET,
                )  # fmt: skip
            case Telling(is_over=True):
                return UnregisterRequest(
                    name=reading.name, handle=handle, reader=reading.reader, data_seq=reading.data_seq
                )
        return UpdateDataRequest(
            name=reading.name, handle=handle, reader=reading.reader, data_seq=reading.data_seq
        )

    def told(self, work: Telling, last: Answer) -> Sequence[Effect]:
        """Process the answer to other reader data, or to the end of a continuous read."""
        if work.op_id is None:
            return ()
        error = error_in(last)
        return (Complete(work.op_id, error=None if error is None else decode_error(error)),)

    def registered(self, now_us: int, work: Registering, ask: PendingAsk, last: Answer) -> Sequence[Effect]:
        """Process the answer to a registration."""
        watch, reading, parts = work.watch, work.watch.reading, ask.registered
        if watch.request != work.request:
            return ()  # it was requested again meanwhile, not knowing of this: the later one counts
        is_known = reading.handle in self._watches
        error = error_in(last)
        if error is not None:
            return self._refused(now_us, watch, last, error)
        assert isinstance(last, messages.Complete)
        if is_known and not all(place in parts for place in last.places):
            return self._register(now_us, watch)  # a part was lost on the way
        op_id, watch.op_id = watch.op_id, None
        self._local.learn(last.table)
        done = [] if op_id is None else [Complete(op_id, reading.handle)]
        if not is_known:
            return done
        watch.lives = {place: part.life for place, part in parts.items()}
        reading.table = last.table.number
        if reading.sync_us is None:
            # It wants no existing records: so it is up to date, unless it was before.
            for processor, part in parts.items():
                if processor not in reading.since:
                    _advance(reading, processor, part.lsn, part.start)
        self._save(reading)
        effects: list[Effect] = [*done]
        if any(part.data_seq < reading.data_seq for part in parts.values()):
            effects += self._tell(now_us, Telling(None, reading, is_over=False))
        is_late = self._step_back(watch)
        if is_late or any(life < self._lives.get(place, 0) for place, life in watch.lives.items()):
            effects += self._register(now_us, watch)
        return effects

    # -- inside

    @property
    def _is_notified(self) -> bool:
        """Whether a notification server may have anything to send."""
        return bool(self._watches or self._policy_slots)

    def _hello(self, now_us: int, *, is_new: bool) -> Sequence[Effect]:
        self._hello_seq += 1
        message = Hello(
            endpoint=self._connection.endpoint,
            session=self._session,
            is_new=is_new,
            policies={slot.kind: slot.version for slot in self._policy_slots},
            incarnation=self._connection.incarnation,
            seq=self._hello_seq,
            nonce=UNSET if self._nonce is None else self._nonce,
        )
        return Send(self._server, message), *self._connection.timer.sent(now_us, HELLO)

    def _heard(self, now_us: int, processor: str, life: int) -> Sequence[Effect]:
        """Note a processor's life, and register again what an earlier one knew of."""
        if life <= self._lives.get(processor, 0):
            return ()
        self._lives[processor] = life
        lost = [watch for watch in self._watches.values() if watch.lives.get(processor, life) < life]
        return [effect for watch in lost for effect in self._register(now_us, watch)]

    def _notified(self, now_us: int, body: Tell) -> Sequence[Effect]:
        processor, life = body.processor, body.life
        incarnation, _, number = body.handle.partition(" ")
        handle = int(number) if incarnation == self._connection.incarnation and number.isdecimal() else 0
        watch = self._watches.get(handle)
        if watch is None or life < max(self._lives.get(processor, 0), watch.lives.get(processor, 0)):
            return ()
        reading = watch.reading
        if body.ended is not UNSET:
            self._forget(watch)
            others = self._leave(now_us, reading) if body.is_alone is True else ()
            return Notify(reading.listener, {"ended": body.ended}), *others
        reading.table = body.table
        is_known = (body.start or "") == reading.starts.get(processor, "")
        since = reading.since.get(processor, 0) if is_known else 0
        if body.synced is not UNSET:
            _advance(reading, processor, max(body.synced, since), body.start)
        elif body.change is not UNSET and body.lsn is not UNSET:
            if body.lsn is not None and body.lsn <= since:
                return ()
            if body.lsn is not None:
                _advance(reading, processor, body.lsn, body.start)
            effects = self._changed(watch, body, body.change, is_known=is_known)
            self._save(reading)
            return effects
        self._save(reading)
        return ()

    def _changed(
        self, watch: Watch, body: Tell, change: messages.Upsert | Remove, *, is_known: bool
    ) -> Sequence[Effect]:
        """Deliver a change of a record, unless the reader has this version or a newer one.

        What it has of another start of the back end (``is_known`` False) may be gone from the log: then an
        older version is delivered, too.
        """
        reading, key = watch.reading, change.key
        held = reading.held.get(key, 0)
        version = held if change.ver is None else change.ver  # None: a registration said that it was held
        is_older = version <= held if is_known else version == held and isinstance(change, messages.Upsert)
        if change.ver is not None and is_older:
            return ()
        if watch.since_asked is not None:
            watch.told_in.setdefault(body.processor, body.life)  # lives come in their order
        if isinstance(change, Remove):
            if reading.held.pop(key, None) is None:
                return ()
            return (Notify(reading.listener, Change("remove", key, None, version)),)
        reading.held[key] = version
        return (Notify(reading.listener, Change("upsert", key, detached(change.data), version)),)

    def _register(self, now_us: int, watch: Watch) -> Sequence[Effect]:
        assert self._session is not None
        watch.request = self._local.next_number("count of requests")
        if watch.since_asked is None:
            watch.since_asked = dict(watch.reading.since), dict(watch.reading.starts)
            watch.told_in = {}
        work = Registering(watch, watch.request, self._session)
        return self._connection.ask(now_us, work, self.request(work))

    def _refused(self, now_us: int, watch: Watch, last: Answer, error: messages.Error) -> Sequence[Effect]:
        """End a continuous read that the cloud, or one of the processors, does not admit."""
        op_id, watch.op_id = watch.op_id, None
        effects: list[Effect] = [] if op_id is None else [Complete(op_id, error=decode_error(error))]
        if watch.reading.handle in self._watches:
            self._forget(watch)
            if op_id is None:
                effects.append(Notify(watch.reading.listener, {"ended": error.summary}))
            if isinstance(last, PlacedRegistered):  # by one processor: others may have it
                effects += self._leave(now_us, watch.reading)
        return effects

    def _step_back(self, watch: Watch) -> bool:
        """Return whether an earlier life has told more since the registration in these was requested.

        The new one does not know of it: the reader goes back to its earlier log position, and asks again.
        """
        (before, starts), oldest = watch.since_asked or ({}, {}), watch.told_in
        watch.since_asked = None
        late = [place for place, life in watch.lives.items() if oldest.get(place, life) < life]
        reading = watch.reading
        for place in late:
            reading.since.pop(place, None)
            reading.starts.pop(place, None)
            if place in before:
                _advance(reading, place, before[place], starts.get(place))
        if late:
            self._save(watch.reading)
        return bool(late)

    def _leave(self, now_us: int, reading: Reading) -> Sequence[Effect]:
        """Tell the other processors that a continuous read is over that one of them has ended."""
        return self._tell(now_us, Telling(None, reading, is_over=True))

    def _tell(self, now_us: int, work: Telling) -> Sequence[Effect]:
        return self._connection.ask(now_us, work, self.request(work))

    def _known(self, handle: int) -> Watch:
        if handle not in self._watches:
            raise ParameterError(
                "There is no such continuous read.",
                where="handle",
                found=repr(handle),
                expected=", ".join(map(str, self._watches)) or "none is registered",
            )
        return self._watches[handle]

    def _save(self, reading: Reading) -> None:
        self._store.put(f"reading {reading.handle:09d}", reading)

    def _forget(self, watch: Watch) -> None:
        handle = watch.reading.handle
        self._watches.pop(handle, None)
        self._store.delete(f"reading {handle:09d}")


def _advance(reading: Reading, processor: str, lsn: int, start: str | UnsetType | None) -> None:
    """Store the log position that was received from a processor, and the start in which it counts."""
    reading.since[processor] = lsn
    if start:
        reading.starts[processor] = start
    else:
        reading.starts.pop(processor, None)
