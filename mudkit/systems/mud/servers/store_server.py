"""Store of a back end that has standbys: the master, which runs the back end, or a standby with its copy.

Its rules:

==================  ====================================================================================
start               a master asks the naming machine to be elected again, and does nothing before that: its
                    store may be older than those of its standbys. A standby asks the master for its store
Mastership          of a higher epoch: begin to act as the master, or end it, or follow another one
a request, LogAck   the master's back end handles it; another store answers with the mastership. What the
                    back end sends is held until all members have the store as it is, and the leases of all
                    are valid (:mod:`~mudkit.systems.mud.servers.leases`)
StoreCopy           replace the whole store by that of the master
StoreChanges        change the store as the master has; acknowledge what it has
CopyAck             of a standby: what it has. One that is no member, and has all, is admitted by the
                    naming machine
StoreProbe          answer with the term and number of the last change
Assignments         the master's back end handles it: the standbys have it with the store. Another store does
                    not acknowledge it: the naming machine sends it again to the master
==================  ====================================================================================

A standby has all keys of the master's store: the rows, the log, and the results of writes, so that a repeated
write is answered, not carried out twice. A new master continues the log with another incarnation, as after a
restart. A former master that comes back gets the store of the present one: what it had not acknowledged, and
nobody has heard of, is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar, cast, overload

from msgspec import Struct
from msgspec.structs import replace

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Incarnation
from mudkit.events import (
    CancelTimer,
    Effect,
    Event,
    LinkUp,
    Ports,
    Received,
    Send,
    SetTimer,
    Store,
    TimerFired,
)
from mudkit.systems.mud.messages.naming import STORE_FROM_NAMING, Assignments, AssignmentsRequest
from mudkit.systems.mud.messages.standbys import (
    STORE_FROM_SERVER,
    STORE_FROM_STORE,
    Admission,
    CopyAck,
    FromStore,
    Mastership,
    MastershipRequest,
    StoreAlive,
    StoreChange,
    StoreChanges,
    StoreCopy,
    StoreProbe,
)
from mudkit.systems.mud.servers.backend import BackEnd
from mudkit.systems.mud.servers.known_master import KEY as MASTERSHIP
from mudkit.systems.mud.servers.known_master import KnownMaster
from mudkit.systems.mud.servers.leases import COPIES, PROMISE_US, Leases
from mudkit.systems.receiving import record_dropped
from mudkit.wire import Value

_JOIN: Final = "join"
_JOIN_US: Final = 500_000
_MAX_JOIN_US: Final = 60_000_000
_ADMIT: Final = "admit"
_PROMISE: Final = "promise"
_POSITION: Final = "position"
"""Key of the last change of the store."""
_PROMISED: Final = "promised"
"""Key of the time until which this store does not act as the master."""
_OWN: Final = frozenset({MASTERSHIP, _POSITION, _PROMISED})
"""Keys that are not copied."""
MakeBackEnd: TypeAlias = Callable[[Ports], BackEnd]
_T = TypeVar("_T")


class _Position(Struct, frozen=True):
    """Last change of a store: its number, and the term of the master that it has it from."""

    term: int = 0
    seq: int = 0


class _RecordingStore:
    """Store of a back end that records the changes of an event."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._values: dict[str, object] = {}
        self._deleted: dict[str, None] = {}

    def take_change(self) -> StoreChange | None:
        """Return the changes since the last call, each key once; None: nothing has changed."""
        if not self._values and not self._deleted:
            return None
        values = cast("list[tuple[str, Value]]", list(self._values.items()))  # structs are sent as mappings
        change = StoreChange(values, list(self._deleted))
        self._values, self._deleted = {}, {}
        return change

    @overload
    def get(self, key: str) -> Value: ...

    @overload
    def get(self, key: str, kind: type[_T]) -> _T | None: ...

    def get(self, key: str, kind: type[_T] | None = None) -> Value | _T:
        """See :class:`mudkit.events.Store`."""
        return self._store.get(key) if kind is None else self._store.get(key, kind)

    def put(self, key: str, value: object) -> None:
        """See :class:`mudkit.events.Store`."""
        self._store.put(key, value)
        self._values[key] = value
        self._deleted.pop(key, None)

    def delete(self, key: str) -> None:
        """See :class:`mudkit.events.Store`."""
        self._store.delete(key)
        self._deleted[key] = None
        self._values.pop(key, None)

    def keys(self, prefix: str = "") -> Sequence[str]:
        """See :class:`mudkit.events.Store`."""
        return self._store.keys(prefix)

    @overload
    def items(self, prefix: str = "") -> Sequence[tuple[str, Value]]: ...

    @overload
    def items(self, prefix: str, kind: type[_T]) -> Sequence[tuple[str, _T]]: ...

    def items(self, prefix: str = "", kind: type[_T] | None = None) -> Sequence[tuple[str, Value | _T]]:
        """See :class:`mudkit.events.Store`."""
        return self._store.items(prefix) if kind is None else self._store.items(prefix, kind)

    def crash_point(self, name: str, /) -> None:
        """See :class:`mudkit.events.Store`."""
        self._store.crash_point(name)


class _Acting:
    """Parts of a store that acts as the master: the back end, and its leases."""

    def __init__(self, ports: Ports, make: MakeBackEnd, leases: Leases) -> None:
        self.recorded = _RecordingStore(ports.store)
        self.back_end = make(replace(ports, store=self.recorded))
        self.leases = leases


class StoreServer:
    """Machine of a store, one of ``stores``; ``make`` creates the back end of a master.

    ``naming`` is the address of the naming machine, and ``servers`` are all that use the back end.
    """

    def __init__(
        self, ports: Ports, stores: Sequence[str], naming: str, servers: Sequence[str], make: MakeBackEnd
    ) -> None:
        self._ports, self._me, self._store = ports, ports.address, ports.store
        self._stores, self._servers = frozenset(stores) - {ports.address}, frozenset(servers)
        self._naming, self._make = naming, make
        self._incarnation = Incarnation(ports)
        self._master = KnownMaster(ports, naming, stores)
        self._position = self._store.get(_POSITION, _Position) or _Position()
        self._promised_us = self._store.get(_PROMISED, int) or 0
        self._started_us: int | None = None
        """Time of the first event of this start, which may be a message."""
        self._is_current = False
        """True if this standby has got its copy from the present master, in this start."""
        self._acting: _Acting | None = None
        self._asking: RetransmitTimer[str] = RetransmitTimer(_JOIN, _JOIN_US, _MAX_JOIN_US, 0)
        """The question to be elected, or for the store."""
        self._admitting: RetransmitTimer[str] = RetransmitTimer(_ADMIT, _JOIN_US, _MAX_JOIN_US, 0)
        """Standbys that the naming machine is request to admit."""

    @property
    def back_end(self) -> BackEnd | None:
        """The back end, if this store acts as the master."""
        return None if self._acting is None else self._acting.back_end

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._started_us = now_us if self._started_us is None else self._started_us
        match event:
            case Received(source=source) if source == self._naming:
                news = STORE_FROM_NAMING.decode(event.message)
                if isinstance(news, Assignments | AssignmentsRequest):
                    return self._pass_on(now_us, event)
                taken = None if news is None else self._hear(now_us, source, news)
                return record_dropped(event) if taken is None else taken
            case Received(source=source) if source in self._stores:
                message = STORE_FROM_STORE.decode(event.message)
                done = None if message is None else self._receive(now_us, source, message)
                return record_dropped(event) if done is None else done
            case Received(source=source):
                request = STORE_FROM_SERVER.decode(event.message) if source in self._servers else None
                done = None if request is None else self._receive(now_us, source, request)
                if done is not None:
                    return done
                if self._acting is None:
                    return self._refuse(event)
            case LinkUp():
                return self._ask(now_us)
            case TimerFired(name=name) if name == _JOIN:
                again = self._ask(now_us) if self._asking.overdue(now_us) else ()
                return *again, *self._asking.restart(now_us)
            case TimerFired(name=name) if name == _ADMIT:
                return *self._admit(now_us), *self._admitting.restart(now_us)
            case TimerFired(name=name) if name == COPIES and self._acting is not None:
                silent, sent = self._acting.leases.retransmit(now_us)
                suspected = [effect for store in silent for effect in self._master.suspect(store)]
                return *sent, *suspected, *self._release(now_us)
            case TimerFired(name=name) if name == _PROMISE:
                return self._release(now_us)
        return self._pass_on(now_us, event)

    # -- the master

    def _pass_on(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Pass an event on to the back end, if this is the master; keep what it sends."""
        acting = self._acting
        if acting is None:
            return ()
        effects = acting.back_end.handle(now_us, event)
        change = acting.recorded.take_change()
        if change is not None:
            acting.leases.add_change(change)
            self._set_position(acting.leases.term, acting.leases.seq)
        acting.leases.keep([effect for effect in effects if isinstance(effect, Send)])
        others = [effect for effect in effects if not isinstance(effect, Send)]
        return *others, *self._release(now_us)

    def _release(self, now_us: int) -> Sequence[Effect]:
        """Send what may be sent; nothing while this store's promise to a former master lasts."""
        acting = self._acting
        if acting is None:
            return ()
        released, from_us = acting.leases.release(now_us), acting.leases.from_us
        return released if now_us >= from_us else (*released, SetTimer(_PROMISE, from_us - now_us))

    def _admit(self, now_us: int) -> Sequence[Effect]:
        """Ask the naming machine to admit the standbys that have all, until it has."""
        effects: list[Effect] = []
        leases = None if self._acting is None else self._acting.leases
        admitting = set() if leases is None else leases.admitting
        for store in self._admitting:
            if store not in admitting:
                effects += self._admitting.settle(now_us, store)
        for store in admitting:
            is_due = store not in self._admitting or store in self._admitting.overdue(now_us)
            if leases is not None and leases.is_ready(store) and is_due:
                leases.offered.add(store)
                effects.append(Send(self._naming, Admission(store, self._master.present.epoch)))
                effects += self._admitting.start(now_us, store)
        return effects

    def _begin_to_act(self, now_us: int, before: Mastership) -> Sequence[Effect]:
        """Act as the master of a new term, as soon as no former master can have a lease of this store."""
        present = self._master.present
        was_master = before.master == self._me and before.term == present.former_term
        if not was_master:
            assert self._started_us is not None
            self._promise(max(self._promised_us, self._started_us + PROMISE_US))
        self._set_position(present.term, self._position.seq)
        others = [store for store in present.members if store != self._me]
        leases = Leases(present.term, self._position.seq, others, self._list_values, self._promised_us)
        self._acting = _Acting(self._ports, self._make, leases)
        begun = self._pass_on(now_us, LinkUp(self._me, "server"))
        return *self._asking.clear(), *begun

    def _end_to_act(self) -> Sequence[Effect]:
        """Act as the master no more; what was held is never sent."""
        assert self._acting is not None
        closed = self._acting.leases.close()
        self._acting = None
        return *closed, *self._admitting.clear(), CancelTimer(_PROMISE)

    def _list_values(self) -> list[tuple[str, Value]]:
        """Return all that standbys need."""
        return [(key, value) for key, value in self._store.items() if key not in _OWN]

    # -- the mastership

    def _refuse(self, event: Received) -> Sequence[Effect]:
        """Answer a server that takes this store for the master; nothing before its own election."""
        if event.source not in self._servers:
            return record_dropped(event)
        return () if self._master.address == self._me else (Send(event.source, self._master.present),)

    def _hear(self, now_us: int, source: str, news: Mastership | StoreProbe) -> Sequence[Effect] | None:
        """Handle a message of the naming machine; None: it is of stores that do not exist."""
        if isinstance(news, Mastership):
            return self._follow(now_us, source, news)
        term, seq, start = self._position.term, self._position.seq, self._incarnation.id
        return (Send(source, StoreAlive(news.sent_us, term, seq, start, self._master.present)),)

    def _follow(self, now_us: int, source: str, mastership: Mastership) -> Sequence[Effect] | None:
        """Follow a mastership of a higher epoch; None: it is of stores that do not exist."""
        before = self._master.present
        taken = self._master.take(source, mastership)
        present = self._master.present
        if taken is None or present is before:
            return taken
        if self._acting is not None and self._acting.leases.term == present.term:
            others = [store for store in present.members if store != self._me]
            replaced = self._acting.leases.replace_members(now_us, others)
            return *taken, *replaced, *self._admit(now_us), *self._release(now_us)
        ended = () if self._acting is None else self._end_to_act()
        self._is_current = self._is_current and present.term == before.term
        if present.incarnation == self._incarnation.id:
            return *taken, *ended, *self._begin_to_act(now_us, before)
        return *taken, *ended, *self._asking.clear(), *self._ask(now_us)

    def _ask(self, now_us: int) -> Sequence[Effect]:
        """Ask to be elected, or for the store of the master and to be admitted, until that has happened."""
        is_member = self._is_current and self._me in self._master.present.members
        if self._acting is not None or is_member:
            return self._asking.clear()
        started = self._asking.start(now_us, _JOIN)
        if self._master.address == self._me:
            return *self._master.suspect(), *started
        ask = CopyAck(self._position.term, self._position.seq if self._is_current else -1, 0)
        return Send(self._naming, MastershipRequest()), Send(self._master.address, ask), *started

    # -- copies

    def _receive(self, now_us: int, source: str, message: FromStore) -> Sequence[Effect] | None:
        """Handle a message of another store, by its kind; None: it is to be dropped."""
        match message:
            case Mastership():
                return self._follow(now_us, source, message)
            case MastershipRequest():
                return (Send(source, self._master.present),)
            case CopyAck():
                return self._record_ack(now_us, source, message)
            case StoreChanges() | StoreCopy():
                return self._follow_store(now_us, source, message)

    def _follow_store(
        self, now_us: int, source: str, message: StoreChanges | StoreCopy
    ) -> Sequence[Effect] | None:
        """Change or replace the store as the master says, and acknowledge it; None: it is to be dropped."""
        present = self._master.present
        if message.term < present.term or self._acting is not None:
            return (Send(source, present),)
        if message.term > present.term or source != present.master:
            return (Send(source, MastershipRequest()),)
        if isinstance(message, StoreCopy):
            return self._load(now_us, source, message)
        if not self._is_current:
            return self._acknowledge(now_us, source, -1, message.sent_us)
        if not all(self._is_usable(change) for change in message.changes):
            return None
        for seq, change in enumerate(message.changes, message.after_seq + 1):
            if seq == self._position.seq + 1:
                self._apply(change)
                self._set_position(message.term, seq)
        return self._acknowledge(now_us, source, self._position.seq, message.sent_us)

    def _load(self, now_us: int, source: str, message: StoreCopy) -> Sequence[Effect] | None:
        """Replace the whole store by that of the master, unless it came before, and is older by now."""
        present = {key for key, _ in message.values}
        former = [key for key in self._store.keys("") if key not in present and key not in _OWN]
        change = StoreChange(message.values, former)
        if not self._is_usable(change):
            return None
        if not self._is_current or message.seq > self._position.seq:
            self._apply(change)
            self._set_position(message.term, message.seq)
            self._is_current = True
        is_member = self._me in self._master.present.members
        acknowledged = self._acknowledge(now_us, source, self._position.seq, message.sent_us)
        return *(self._asking.clear() if is_member else ()), *acknowledged

    def _is_usable(self, change: StoreChange) -> bool:
        """Return whether a change has none of the keys that are not copied."""
        return _OWN.isdisjoint([*(key for key, _ in change.values), *change.deleted])

    def _apply(self, change: StoreChange) -> None:
        """Change the store as the master has."""
        for key, value in change.values:
            self._store.put(key, value)
        for key in change.deleted:
            self._store.delete(key)

    def _acknowledge(self, now_us: int, master: str, seq: int, sent_us: int) -> Sequence[Effect]:
        """Acknowledge a message of the master, and promise not to act as the master for a while."""
        self._promise(max(self._promised_us, now_us + PROMISE_US))
        return (Send(master, CopyAck(self._master.present.term, seq, sent_us)),)

    def _record_ack(self, now_us: int, source: str, ack: CopyAck) -> Sequence[Effect]:
        """Record what a standby has; a store that is not the master says who is."""
        if self._acting is None:
            return () if self._master.address == self._me else (Send(source, self._master.present),)
        recorded = self._acting.leases.receive_ack(now_us, source, ack)
        return *recorded, *self._admit(now_us)

    def _promise(self, until_us: int) -> None:
        """Store the time until which this store does not act as the master."""
        self._promised_us = until_us
        self._store.put(_PROMISED, until_us)

    def _set_position(self, term: int, seq: int) -> None:
        """Store the number of the last change, and the term that it is of."""
        self._position = _Position(term, seq)
        self._store.put(_POSITION, self._position)
