"""Radiator's server: registration, aggregation and propagation (Radiator 3, 4.2).

Rules:

=============  =====================================================================================
Register       add or overwrite the client; refuse an id of another live device; ask for another with a
               nonce if the incarnation differs or its number is lower: it may be a late copy
Unregister     remove the client with all that is pending; ask for a nonce as for Register
Propagate      process contexts in order of their numbers: add them for all registered clients
               (Algorithm 3); keep one that arrives early; acknowledge a duplicate again; answer Unknown
               to an unknown client or incarnation
DeliveryAck    of the client's incarnation: the delivery of the aggregate is settled
Unreachable    a member of a chain could not reach the next: skip it; suspend it until it sends
               something, or for two minutes
failed Push    the same for a push of the server itself; mark the client as away
any message    the client is reachable: push directly what a client that was away has not acknowledged
timer "due"    apply the function again; release what has waited long enough
timer "again"  retransmit overdue aggregates directly; remove clients that have acknowledged nothing
               and have been silent too long
anything else  drop and record, also a message in the name of another device
=============  =====================================================================================

All state is in memory (Radiator 4.2): a restarted server answers Unknown to the next message of a client,
which then registers again; one that sends nothing is not known until its link comes up. If the registration
shows that the client has sent contexts before, the loss is an incident (``began anew``). If the device was
wiped before it registers again, nobody knows its former incarnation, and a late copy of a push counts. A
report of a peer about another one counts only within the chain that contains both; the other one is then
suspended for two minutes and loses nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from itertools import pairwise
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from mudkit.display import View, first_rows
from mudkit.errors import MudkitError, ParameterError, brief
from mudkit.events import (
    Call,
    CancelTimer,
    Complete,
    Effect,
    Event,
    Ports,
    Received,
    Record,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
)
from mudkit.systems.radiator.chains import Chainability, divide_into_chains
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.engines.client_arrays import engine_for_many
from mudkit.systems.radiator.engines.joining import RETRY_US, join_entry
from mudkit.systems.radiator.engines.literal import Entry
from mudkit.systems.radiator.engines.pending import Message
from mudkit.systems.radiator.joins import Join
from mudkit.systems.radiator.messages import (
    FROM_CLIENTS,
    PUSHES,
    ContextAck,
    ContextFields,
    CountPending,
    DeliveryAck,
    GetCounters,
    Identify,
    ListClients,
    Propagate,
    Push,
    Register,
    Registered,
    RegistrationRefused,
    Unknown,
    Unreachable,
    Unregister,
    Unregistered,
    check_size,
    decode,
    pack,
    record_dropped_message,
)
from mudkit.systems.radiator.thresholds import Aggregability
from mudkit.wire import Fields

RETRANSMIT_US: Final = 5_000_000
"""Retransmission timeout of a push, plus allowances for its chain and for a slow link."""
RETRANSMIT_US_PER_HOP: Final = 1_000_000
RETRANSMIT_US_PER_BYTE: Final = 400
_RETRANSMIT: Final = "again"
_DUE: Final = "due"
SUSPENDED_US: Final = 120_000_000
"""Time that a client is suspended after a peer has reported it unreachable."""
_MAX_INCARNATIONS: Final = 64
"""Incarnations of a client whose contexts are deduplicated."""
_MAX_AHEAD: Final = 256
"""Maximum distance of an early context from the last one in order."""


@dataclass(frozen=True)
class Settings:
    """Arguments of :class:`mudkit.systems.radiator.Server` that its machine needs."""

    aggregability: Aggregability
    join: Join
    chain: float
    chainability: Chainability | None
    compress: bool
    echo: bool
    retention_us: int
    silence_us: int
    link_kbps: float | None


@dataclass
class _PendingDelivery:
    """Delivery of an aggregate that a client has not acknowledged."""

    context: ContextFields
    retransmit_us: int
    chain: tuple[str, ...] = ()
    """Chain in which it was last sent to this client."""


@dataclass
class _RegisteredClient:
    """Registered client: its address, whether it is reached, and its unacknowledged aggregates."""

    number: int
    """Order of registration."""
    device: str
    address: str
    heard_us: int
    """Time of the last message from it."""
    p2p_enabled: bool = False
    attributes: Fields | None = None
    """Attributes of the last registration; None: before the first."""
    is_reachable: bool = True
    """True if no send to it has failed since its last message."""
    suspended_until_us: int = 0
    """Time until which nothing is sent to it, because a peer has reported it unreachable."""
    deliveries: dict[str, _PendingDelivery] = field(default_factory=dict)


@dataclass
class _ReceivedContexts:
    """Contexts of one incarnation of a client: the last one processed, and those that arrived early."""

    last_number: int = 0
    """Number of the last context processed in order."""
    early: dict[int, Context] = field(default_factory=dict)
    """Contexts after a missing one, by number; not acknowledged."""


@dataclass
class _RegistrationRecord:
    """Last registration of a client on a device; it survives unregistration, so that numbers continue."""

    incarnation: str
    seq: int
    """Number of the last registration of the incarnation."""
    has_other: bool = False
    """True if the client has had another incarnation, so that contexts name theirs."""
    oldest: str = ""
    """Incarnation of the client's first pending context."""
    numbers: dict[str, _ReceivedContexts] = field(default_factory=dict)
    """By incarnation; the most recent ones."""
    nonce: str | None = None
    """Nonce that a Register of another incarnation, or an older one, must carry."""


class ServerLink:
    """Outbound link of the server: FIFO, with a finite capacity or none (``kbps=None``) (Radiator 5.2)."""

    TIMER: Final = "link"

    def __init__(self, kbps: float | None) -> None:
        self._kbps = kbps
        self._queue: deque[tuple[int, Send]] = deque()
        self.free_us = 0
        """Time at which everything sent so far has left."""
        self.bytes_sent = 0
        self.messages_sent = 0

    def send(self, now_us: int, to: str, message: bytes) -> Sequence[Effect]:
        """Send bytes, with finite capacity after everything queued before them."""
        self.messages_sent += 1
        self.bytes_sent += len(message)
        self.free_us = max(self.free_us, now_us)
        if self._kbps is None:
            return (Send(to, message),)
        self.free_us += max(round(8000 * len(message) / self._kbps), 1)
        self._queue.append((self.free_us, Send(to, message)))
        return (self._build_timer(now_us),) if len(self._queue) == 1 else ()

    def emit(self, now_us: int) -> Sequence[Effect]:
        """Emit the message that has left completely, and set the timer for the next one."""
        _, sent = self._queue.popleft()
        return (sent, self._build_timer(now_us)) if self._queue else (sent,)

    def _build_timer(self, now_us: int) -> SetTimer:
        """Return the timer for the time when the first queued message has left."""
        return SetTimer(self.TIMER, self._queue[0][0] - now_us)


class ServerMachine:
    """Machine of the server.

    Parameters
    ----------
    ports : Ports
        Entropy of the machine; nothing is stored.
    settings : Settings
    """

    def __init__(self, ports: Ports, settings: Settings) -> None:
        self._settings = settings
        self._engine = engine_for_many(settings.aggregability, settings.retention_us, echo=settings.echo)
        self._link = ServerLink(settings.link_kbps)
        self._rows: dict[str, _RegisteredClient] = {}
        self._unacknowledged: set[str] = set()
        """Clients with unacknowledged aggregates."""
        self._entries = 0
        self._client_at: dict[str, str] = {}  # client by address
        self._known: dict[tuple[str, str], _RegistrationRecord] = {}  # by client and device
        self._entropy = ports.entropy
        self._secret = ports.entropy(16)
        self._arrived = self._aggregates = 0
        self._due_us: float = math.inf
        self._is_retransmit_set = False
        self._now_us = 0

    def overview(self) -> View:
        """Return the clients and their pending messages for a display."""
        rows = (
            (name, row.device, self._can_send(row), len(self._engine.waiting(name)))
            for name, row in self._rows.items()
        )
        columns = ("client", "device", "reached", "waiting")
        facts = {
            "clients": len(self._rows),
            "contexts": self._arrived,
            "aggregates": self._aggregates,
            "messages sent": self._link.messages_sent,
            "dropped": self._engine.dropped or None,
            "failures": self._engine.problems.count or None,
        }
        return View("", facts, [first_rows(columns, rows, len(self._rows))])

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        self._now_us = now_us
        effects = self._handle_event(event)
        failed = [
            Record("incidents", {"incident": "failed", "detail": str(problem)})
            for problem in self._engine.problems.take_new()
        ]
        return [*effects, *failed, *self._set_timers()]

    def _handle_event(self, event: Event) -> Sequence[Effect]:
        """Handle one event; :meth:`handle` adds failures of functions, and timers."""
        match event:
            case Received():
                return self._receive_message(event)
            case SendFailed():
                return self._record_failed_send(event)
            case TimerFired(name=ServerLink.TIMER):
                return self._link.emit(self._now_us)
            case TimerFired(name=name) if name == _DUE:
                self._due_us = math.inf
                return self._push_entries(self._engine.fire(self._now_us))
            case TimerFired(name=name) if name == _RETRANSMIT:
                return self._retransmit()
            case Call(op_id=op_id):
                try:
                    return (Complete(op_id, self._answer_call(event)),)
                except MudkitError as error:
                    return (Complete(op_id, error=error),)
        return ()

    def _answer_call(self, call: Call) -> dict[str, bool] | dict[str, int]:
        """Return the result of an operation of the server: clients, pending messages or counters."""
        match call.operation:
            case ListClients():
                return {name: self._can_send(row) for name, row in self._rows.items()}
            case CountPending():
                return {name: len(self._engine.waiting(name)) for name in self._rows}
            case GetCounters():
                return {
                    "contexts": self._arrived,
                    "aggregates": self._aggregates,
                    "messages_sent": self._link.messages_sent,
                    "bytes_sent": self._link.bytes_sent,
                    "dropped": self._engine.dropped,
                    "failures": self._engine.problems.count,
                }
        raise ParameterError(
            "There is no such operation.", found=brief(call.name), expected="clients, waiting, counts"
        )

    # -- clients

    def _receive_message(self, event: Received) -> Sequence[Effect]:
        """Handle a message of a client; drop one in the name of another device."""
        message, source = decode(event, FROM_CLIENTS), event.source
        if message is None or message.device != event.sender:
            return record_dropped_message(event)
        match message:
            case Register():
                return self._receive_register(source, message)
            case Unregister():
                return self._receive_unregister(source, message)
        row = self._rows.get(message.client)
        if row is None or row.device != message.device:
            return self._send(source, Unknown())
        effects = self._mark_reachable(message.client, row)
        match message:
            case Propagate():
                effects += self._receive_context(row, message)
            case DeliveryAck(client=client, aggregate=aggregate, incarnation=incarnation):
                if incarnation == self._incarnation_of(client, row):
                    self._record_ack(client, row, aggregate)
            case Unreachable():
                effects += self._receive_unreachable(message)
        return effects

    def _receive_register(self, source: str, message: Register) -> Sequence[Effect]:
        """Add a client, or update its address and attributes; refuse the id of another live device."""
        client, device, attributes = message.client, message.device, message.attributes
        row = self._rows.get(client)
        if row is not None and row.device != device and row.is_reachable:
            return self._send(source, RegistrationRefused(message.incarnation, message.seq, row.device))
        is_unknown = (client, device) not in self._known
        question = self._record_registration(source, message)
        if question:
            return question
        if row is not None and row.device != device:
            self._remove_client(client)
            row = None
        another = True if self._known[client, device].has_other else UNSET
        effects = list(self._send(source, Registered(message.incarnation, message.seq, another)))
        if is_unknown and (message.first > 1 or message.another is True):
            detail = f"earlier contexts of {client} are not known here: those that waited are lost"
            effects.append(Record("incidents", {"incident": "began anew", "detail": detail}))
        if row is None:
            self._entries += 1
            row = self._rows[client] = _RegisteredClient(self._entries, device, source, self._now_us)
            self._client_at[source] = client
        elif row.address != source:
            self._client_at.pop(row.address, None)
            row.address, self._client_at[source] = source, client
        row.p2p_enabled = bool(attributes.get("p2p_enabled", False))
        effects += self._mark_reachable(client, row)
        if attributes != row.attributes:  # a mere reconnection does not affect pending messages
            row.attributes = attributes
            effects += self._push_entries(self._engine.register(self._now_us, client, attributes))
        return effects

    def _receive_unregister(self, source: str, message: Unregister) -> Sequence[Effect]:
        """Remove a client with all that is pending for it, and confirm."""
        question = self._record_registration(source, message)
        if question:
            return question
        row = self._rows.get(message.client)
        if row is not None and row.device == message.device:
            self._remove_client(message.client)
        return self._send(source, Unregistered(message.incarnation, message.seq))

    def _record_registration(self, source: str, message: Register | Unregister) -> Sequence[Effect]:
        """Record a registration or its end; empty: done.

        If it may be a late copy, only the nonce of an Identify is recorded, which is returned.
        """
        key = message.client, message.device
        known = self._known.get(key)
        if known is not None and (known.incarnation != message.incarnation or known.seq > message.seq):
            if known.nonce is None or message.nonce != known.nonce:
                known.nonce = known.nonce or self._entropy(4).hex()
                return self._send(source, Identify(message.incarnation, message.seq, known.nonce))
            known = _RegistrationRecord(
                message.incarnation, message.seq, has_other=True, numbers=known.numbers
            )
            row = self._rows.get(message.client)
            if row is not None and row.device == message.device:
                row.is_reachable = False  # a new store has received nothing: push again what is pending
        if known is None:
            known = _RegistrationRecord(message.incarnation, message.seq)
        self._known[key] = known
        known.has_other |= message.another is True
        known.seq = message.seq
        known.oldest = message.incarnation if message.oldest is UNSET else message.oldest
        for incarnation in list(known.numbers)[:-_MAX_INCARNATIONS]:
            del known.numbers[incarnation]
        numbers = known.numbers.setdefault(known.oldest, _ReceivedContexts())
        numbers.last_number = max(numbers.last_number, message.first - 1)
        return ()

    def _incarnation_of(self, client: str, row: _RegisteredClient) -> str | UnsetType:
        """Return the incarnation that messages of and to a client name; UNSET: it has had no other."""
        known = self._known[client, row.device]
        return known.incarnation if known.has_other else UNSET

    def _mark_reachable(self, client: str, row: _RegisteredClient) -> list[Effect]:
        """Record that a client was heard; if it was away, push again what it has not acknowledged."""
        row.heard_us = self._now_us
        row.suspended_until_us = 0
        if row.is_reachable:
            return []
        row.is_reachable = True
        return [effect for aggregate in row.deliveries for effect in self._push(aggregate, [client])]

    def _remove_client(self, client: str) -> None:
        """Remove a client, its pending messages and its unacknowledged aggregates."""
        self._unacknowledged.discard(client)
        row = self._rows.pop(client)
        self._client_at.pop(row.address, None)
        for numbers in self._known[client, row.device].numbers.values():
            numbers.early.clear()
        self._engine.unregister(self._now_us, client)

    def _receive_context(self, row: _RegisteredClient, message: Propagate) -> Sequence[Effect]:
        """Process the contexts of a client that are next in order, and acknowledge them."""
        client, number = message.client, message.number
        known = self._known[client, row.device]
        incarnation = known.incarnation if message.incarnation is UNSET else message.incarnation
        is_named = message.incarnation is not UNSET
        if is_named is not known.has_other or incarnation not in (known.incarnation, known.oldest):
            return self._send(row.address, Unknown())
        numbers = known.numbers.setdefault(incarnation, _ReceivedContexts())
        numbers.last_number = max(numbers.last_number, message.first - 1)
        if numbers.last_number < number <= numbers.last_number + _MAX_AHEAD:
            numbers.early[number] = message.context.context()
        taken = []
        while numbers.last_number + 1 in numbers.early:
            numbers.last_number += 1
            taken.append(numbers.early.pop(numbers.last_number))
        if numbers.early:
            ahead = {other: early for other, early in numbers.early.items() if other > numbers.last_number}
            numbers.early = ahead
        effects: list[Effect] = []
        if number <= numbers.last_number:
            effects += self._send(row.address, ContextAck(numbers.last_number, message.incarnation))
        for context in taken:
            self._arrived += 1
            arrived = Message(self._arrived, client, self._now_us, context)
            effects += self._push_entries(self._engine.take(self._now_us, arrived))
        return effects

    def _record_ack(self, client: str, row: _RegisteredClient, aggregate: str) -> None:
        """Record that a client has an aggregate: it is not pushed to it again."""
        row.deliveries.pop(aggregate, None)
        if not row.deliveries:
            self._unacknowledged.discard(client)

    def _receive_unreachable(self, message: Unreachable) -> Sequence[Effect]:
        """Continue a chain after a failed hop: once, and only for the next hop of the sender."""
        row = self._rows.get(message.who)
        delivery = None if row is None else row.deliveries.get(message.aggregate)
        if row is None or delivery is None or (message.client, message.who) not in pairwise(delivery.chain):
            return ()
        chain, delivery.chain = delivery.chain, ()
        if row.address == message.address:
            row.suspended_until_us = self._now_us + SUSPENDED_US
        return self._continue_chain(message.aggregate, chain[chain.index(message.who) + 1 :])

    # -- propagation

    def _push_entries(self, entries: Sequence[Entry]) -> Sequence[Effect]:
        """Join released entries, and push each aggregate to its recipients, in chains where possible."""
        effects: list[Effect] = []
        join, now_us = self._settings.join, self._now_us
        joined = [
            ready
            for entry in entries
            for ready in join_entry(self._engine, entry, now_us, join, _build_fields)
        ]
        for entry, context in joined:
            self._aggregates += 1
            aggregate = self._aggregate_id()
            for client in entry.recipients:
                self._rows[client].deliveries[aggregate] = _PendingDelivery(context, 0)
            self._unacknowledged.update(entry.recipients)
            reachable = [client for client in entry.recipients if self._can_send(self._rows[client])]
            can_pass = {client: self._rows[client].p2p_enabled for client in reachable}
            settings, engine = self._settings, self._engine
            contexts, failed = engine.contexts.__getitem__, engine.problems.add
            for chain in divide_into_chains(
                reachable, settings.chain, can_pass, contexts, settings.chainability, failed
            ):
                effects += self._push(aggregate, chain)
        return effects

    def _aggregate_id(self) -> str:
        """Return an id that peers cannot guess; otherwise a peer could push a forgery under the next id."""
        number = self._aggregates
        mark = blake2s(number.to_bytes(8, "big"), key=self._secret, digest_size=4).hexdigest()
        return f"{mark} {number}"

    def _push(self, aggregate: str, chain: Sequence[str]) -> Sequence[Effect]:
        """Push an aggregate to the first client of a chain, with names and addresses of the others."""
        first, *others = (self._rows[client] for client in chain)
        rest = [(client, row.address) for client, row in zip(chain[1:], others, strict=True)]
        names = {client: self._incarnation_of(client, self._rows[client]) for client in chain}
        receivers = {client: name for client, name in names.items() if name is not UNSET} or UNSET
        push = Push(aggregate, first.deliveries[aggregate].context, rest, receivers)
        sent = pack(push, self._settings.compress)
        effects = self._link.send(self._now_us, first.address, sent)
        transfer_us = len(sent) * RETRANSMIT_US_PER_BYTE
        first_us = self._link.free_us + RETRANSMIT_US + transfer_us
        whole = tuple(chain)
        for hop, row in enumerate((first, *others)):
            delivery = row.deliveries[aggregate]
            delivery.retransmit_us = first_us + hop * (RETRANSMIT_US_PER_HOP + transfer_us)
            delivery.chain = whole
        return effects

    def _record_failed_send(self, event: SendFailed) -> Sequence[Effect]:
        """Mark a client as away, and continue its chain with the next."""
        client = self._client_at.get(event.to)
        if client is not None:
            self._rows[client].is_reachable = False
        push = decode(event, PUSHES)
        if push is None:
            return ()
        return self._continue_chain(push.aggregate, [client for client, _ in push.chain])

    def _continue_chain(self, aggregate: str, rest: Sequence[str]) -> Sequence[Effect]:
        """Push an aggregate to the reachable rest of a chain."""
        rows = {client: self._rows[client] for client in rest if client in self._rows}
        reachable = [
            client for client, row in rows.items() if aggregate in row.deliveries and self._can_send(row)
        ]
        return self._push(aggregate, reachable) if reachable else ()

    def _can_send(self, row: _RegisteredClient) -> bool:
        """Return whether pushes may be sent to a client now."""
        return row.is_reachable and row.suspended_until_us <= self._now_us

    def _retransmit(self) -> Sequence[Effect]:
        """Push overdue aggregates again, directly; remove clients that have been silent too long."""
        self._is_retransmit_set = False
        effects: list[Effect] = []
        for client in sorted(self._unacknowledged, key=lambda name: self._rows[name].number):
            row = self._rows[client]
            if self._now_us - row.heard_us > self._settings.silence_us:
                self._remove_client(client)
                effects += self._send(row.address, Unknown())  # a client that is connected registers again
            elif self._can_send(row):
                overdue = [
                    name
                    for name, delivery in row.deliveries.items()
                    if delivery.retransmit_us <= self._now_us
                ]
                for aggregate in overdue:
                    effects += self._push(aggregate, [client])
        return effects

    def _send(self, to: str, message: Struct) -> Sequence[Effect]:
        """Encode a message, and send it through the link of the server."""
        return self._link.send(self._now_us, to, pack(message, self._settings.compress))

    def _set_timers(self) -> Sequence[Effect]:
        """Set the timer of the engine if its time has changed, and that of retransmission if none runs."""
        effects: list[Effect] = []
        due_us = self._engine.due_us
        if due_us != self._due_us:
            self._due_us = due_us
            wait_us = due_us - self._now_us
            if due_us < math.inf:
                effects.append(SetTimer(_DUE, int(wait_us) if wait_us > 0 else RETRY_US))
            else:
                effects.append(CancelTimer(_DUE))
        if not self._is_retransmit_set and self._unacknowledged:
            self._is_retransmit_set = True
            effects.append(SetTimer(_RETRANSMIT, RETRANSMIT_US))
        return effects


def _build_fields(context: Context) -> ContextFields:
    """Return the wire form of an aggregate; raise a ParameterError if it is too large."""
    fields = ContextFields.of(context)
    check_size("context", pack(fields, compress=False))
    return fields
