"""Radiator's local middleware on a device (Radiator 4.1).

Rules:

======================  ============================================================================
register (operation)    send Register; complete when the server accepts or refuses
unregister (operation)  stop notifying the application; send Unregister until it is answered
propagate (operation)   store the context durably in the outbox with the next number; complete when the
                        server has acknowledged it
Registered              of this registration: send the outbox
Unregistered            of this registration: register again if the application has asked for it meanwhile
ContextAck              remove acknowledged contexts from the outbox; cumulative
Identify                repeat this registration with the nonce
Unknown                 register again: the server has removed this client, or has restarted
Push                    for this incarnation: acknowledge; notify the application unless it is a duplicate;
                        pass it on to the next client of the chain with the rest of the chain
start                   notify the application again of what it may not have got
failed Push             send Unreachable to the server, with the rest of the chain
link up                 register or unregister again: the address may have changed
timer                   retransmit what is overdue: the registration, or contexts of the outbox
anything else           drop and record
======================  ============================================================================

Each unacknowledged item has its own deadline (:mod:`mudkit.delivery.retransmit`). Answers are accepted from
the server's address and for the current incarnation and registration only; late ones have no effect.

Pushes come from the server and, for ``p2p_enabled`` clients, from peers. They are not signed. A peer in a
chain sees the aggregate in clear, may store it, and may pass on another one in its place; anyone who knows a
client's address may push to it, and the content is shown. A peer can neither send to the server in the name
of another client nor suppress an aggregate for ever: the server retransmits directly what is not acknowledged
in time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from mudkit.delivery.notices import Notices
from mudkit.delivery.outbox import Outbox
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.display import View
from mudkit.errors import OutboxFull, ParameterError, brief
from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Notify,
    Ports,
    Received,
    Send,
    SendFailed,
    Store,
    TimerFired,
)
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.messages import (
    FROM_PEERS,
    FROM_SERVER,
    ContextAck,
    ContextFields,
    DeliveryAck,
    FromClients,
    Identify,
    PassedPush,
    Propagate,
    PropagateContext,
    Push,
    Register,
    RegisterClient,
    Registered,
    RegistrationRefused,
    Unknown,
    Unreachable,
    Unregister,
    UnregisterClient,
    Unregistered,
    decode,
    pack,
    record_dropped_message,
)
from mudkit.wire import Fields

APP: Final = "contexts"
"""Application name of the notifications of received contexts."""
_RETRY: Final = "retry"
_REGISTRATION: Final = 0
"""Retransmission key of the registration; contexts use their sequence numbers, from 1 on."""
_MAX_SEEN: Final = 4096
"""Number of recent aggregates that are recognised as duplicates."""


class _Notice(Struct, frozen=True):
    """Aggregate of which the application is to be notified; stored until it has been."""

    aggregate: str
    context: ContextFields

    def for_application(self) -> Context:
        """Return the context as the application gets it, with the id of the aggregate."""
        return replace(self.context.context(), id=self.aggregate)


class SeenAggregates:
    """Ids of the last _MAX_SEEN aggregates, stored, so that duplicates are recognised after a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names = {name for _, name in store.items("seen ", str)}

    def __contains__(self, aggregate: str) -> bool:
        return aggregate in self._names

    def add(self, aggregate: str) -> None:
        """Store an id in the place of the oldest one."""
        place = ((self._store.get("place", int) or 0) + 1) % _MAX_SEEN
        self._store.put("place", place)
        self._names.discard(self._store.get(f"seen {place:04d}", str) or "")
        self._store.put(f"seen {place:04d}", aggregate)
        self._names.add(aggregate)


class ClientMachine:
    """Machine of the client ``client`` on ``device``, registered at the address ``server``.

    Parameters
    ----------
    ports : Ports
        Store and entropy of the machine.
    client, device, server : str
        Client id, name of the device, address of the server.
    compress : bool
        Whether to compress messages with gzip.
    """

    def __init__(self, ports: Ports, client: str, device: str, server: str, *, compress: bool) -> None:
        self._ports, self._store = ports, ports.store
        self._client, self.device, self._server = client, device, server
        self._compress = compress
        self._has_link = False
        self._is_registered = False
        """True if the server has accepted the registration since the link came up."""
        self._registering: list[int] = []
        self._calls: dict[int, int] = {}  # op_id by sequence number
        self._sent = 0
        """Highest number sent; acknowledgements beyond it belong to another store."""
        self._outbox = Outbox(ports, ContextFields)
        self._is_restarted = ports.store.get("turn") is not None
        self._was_registered = False
        """True if the server has accepted a registration of this incarnation."""
        self._seen = SeenAggregates(self._store)
        self._notices = Notices(self._store, _Notice)
        self._in_flight: RetransmitTimer[int] = RetransmitTimer(_RETRY)

    def overview(self) -> View:
        """Return the server and the length of the outbox for a display."""
        facts = {
            "server": self._server,
            "known to it": self._is_registered,
            "waiting to be sent": len(self._outbox),
        }
        return View("", facts)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        return [*self._notices.repeat(_build_notification), *self._handle_event(now_us, event)]

    def _handle_event(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Handle one event; :meth:`handle` puts the notifications that a restart repeats before it."""
        match event:
            case Call(op_id=op_id, operation=RegisterClient(attributes=attributes)):
                self._store.put("attributes", attributes)
                self._registering.append(op_id)
                return () if self._is_leaving else self._begin_registration(now_us)
            case Call(op_id=op_id, operation=UnregisterClient()):
                return self._unregister(now_us, op_id)
            case Call(op_id=op_id, operation=PropagateContext(context=fields)):
                return self._propagate(now_us, op_id, fields.context().with_span(now_us))
            case Received():
                return self._receive_message(now_us, event)
            case SendFailed(to=to) if to != self._server:
                return self._report_failed_hop(to, event)
            case LinkUp():
                self._has_link = True
                return self._begin_registration(now_us)
            case LinkDown():
                self._has_link = self._is_registered = False
                return self._in_flight.clear()
            case TimerFired(name=Notices.TIMER):
                self._notices.clear()
            case TimerFired():
                return self._retransmit_overdue(now_us)
        return ()

    @property
    def _attributes(self) -> Fields | None:
        """Attributes of the current or requested registration; None: not registered."""
        return self._store.get("attributes", dict)

    @property
    def _is_leaving(self) -> bool:
        """True while an unregistration is not confirmed by the server."""
        return self._store.get("leaves", bool) or False

    @property
    def _names_incarnation(self) -> bool:
        """True if contexts carry their incarnation: after a restart, or when the server knows another."""
        return self._is_restarted or self._store.get("another", bool) or False

    # -- to the server

    def _begin_registration(self, now_us: int) -> Sequence[Effect]:
        """Register or unregister under the next number, as the store demands; without a link, wait for it."""
        self._is_registered = False
        stop = self._in_flight.clear()
        if not self._has_link or (self._attributes is None and not self._is_leaving):
            return stop
        self._store.put("turn", self._registration_seq + 1)
        return self._send_registration(now_us)

    @property
    def _registration_seq(self) -> int:
        """Number of the last registration or unregistration; 0 before the first."""
        return self._store.get("turn", int) or 0

    def _send_registration(self, now_us: int, nonce: str | UnsetType = UNSET) -> Sequence[Effect]:
        """Send Register, or Unregister when leaving, until answered; ``nonce`` answers Identify."""
        incarnation = self._outbox.incarnation
        oldest, first = self._outbox.item_id(self._outbox.first_seq)
        oldest_if_other = UNSET if oldest == incarnation else oldest
        another = True if self._names_incarnation else UNSET
        attributes = self._attributes
        message: FromClients
        if self._is_leaving or attributes is None:
            message = Unregister(
                client=self._client, device=self.device,
                incarnation=incarnation, seq=self._registration_seq, first=first,
                oldest=oldest_if_other, nonce=nonce, another=another,
            )  # fmt: skip
        else:
            message = Register(
                client=self._client, device=self.device, attributes=attributes,
                incarnation=incarnation, seq=self._registration_seq, first=first,
                oldest=oldest_if_other, nonce=nonce, another=another,
            )  # fmt: skip
        sent = self._build_send(message)
        return (sent, *self._in_flight.start(now_us, _REGISTRATION, len(sent.message)))

    def _unregister(self, now_us: int, op_id: int) -> Sequence[Effect]:
        """Fail what is under way, and send Unregister until confirmed; the operation completes at once."""
        was_registered = self._attributes is not None
        left = self._end_registration(
            ParameterError(
                "This client has unregistered before the server had this context.",
                remedy="wait for what is under way before unregister()",
            )
        )
        effects: Sequence[Effect] = ()
        if was_registered and not self._is_leaving:
            effects = self._begin_unregistration(now_us)
        return (*left, *effects, Complete(op_id))

    def _begin_unregistration(self, now_us: int) -> Sequence[Effect]:
        """Store the unregistration durably and start to send it."""
        self._store.put("leaves", True)
        return self._begin_registration(now_us)

    def _end_registration(self, error: ParameterError) -> list[Effect]:
        """Delete the registration and the outbox; return failures of all open operations."""
        self._store.delete("attributes")
        self._outbox.ack_up_to(self._outbox.last_seq)
        open_ops = (*self._registering, *self._calls.values())
        self._registering.clear()
        self._calls.clear()
        return [Complete(op_id, error=error) for op_id in open_ops]

    def _propagate(self, now_us: int, op_id: int, context: Context) -> Sequence[Effect]:
        """Store a context in the outbox, and send it if registered; the operation waits for the server."""
        if self._attributes is None:
            error = ParameterError(
                "This client is not registered.",
                where="client_id",
                found=brief(self._client),
                expected="one that is registered",
                remedy="register() again, under a name that is free",
            )
            return (Complete(op_id, error=error),)
        try:
            seq = self._outbox.add(ContextFields.of(context))
        except OutboxFull as full:
            return (Complete(op_id, error=full),)
        self._calls[seq] = op_id
        if not self._is_registered:
            return ()
        return self._send_contexts(now_us, [pending for pending, _ in self._outbox.sendable_items(seq)])

    def _send_contexts(self, now_us: int, seqs: Collection[int]) -> Sequence[Effect]:
        """Send contexts of the outbox, each until acknowledged."""
        effects: list[Effect] = []
        for seq in seqs:
            incarnation, number = self._outbox.item_id(seq)
            sent = self._build_send(
                Propagate(
                    client=self._client, device=self.device, number=number,
                    first=self._outbox.item_id(self._outbox.first_seq).number, context=self._outbox[seq],
                    incarnation=incarnation if self._names_incarnation else UNSET,
                )
            )  # fmt: skip
            self._sent = max(self._sent, seq)
            effects += (sent, *self._in_flight.start(now_us, seq, len(sent.message)))
        return effects

    def _retransmit_overdue(self, now_us: int) -> Sequence[Effect]:
        """Retransmit the registration, or else the contexts that are overdue."""
        late = self._in_flight.overdue(now_us)
        if _REGISTRATION in late:
            effects = self._send_registration(now_us)
        else:
            effects = self._send_contexts(now_us, [seq for seq in late if seq in self._outbox])
        return [*effects, *self._in_flight.restart(now_us)]

    def _build_send(self, message: FromClients) -> Send:
        """Return the effect that sends a message, encoded, to the server."""
        return Send(self._server, pack(message, self._compress))

    # -- from the server, and from peers

    def _receive_message(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Handle a message of the server or a push of a peer; drop everything else."""
        attributes = self._attributes
        if event.source != self._server:
            passed = decode(event, FROM_PEERS)
            if passed is None or (attributes is not None and not attributes.get("p2p_enabled")):
                return record_dropped_message(event)
            return self._receive_push(now_us, passed, is_registered=attributes is not None)
        match decode(event, FROM_SERVER):
            case None:
                return record_dropped_message(event)
            case Push() as push:
                return self._receive_push(now_us, push, is_registered=attributes is not None)
            case Unknown():
                return self._begin_registration(now_us) if self._is_registered else ()
            case ContextAck(number=number, incarnation=named) if (
                named is not UNSET
            ) is self._names_incarnation:
                seq = self._outbox.seq_of(self._outbox.incarnation if named is UNSET else named, number)
                return self._receive_context_ack(now_us, min(seq, self._sent))
            case ContextAck():
                return ()
            case answer if (answer.incarnation, answer.seq) == (
                self._outbox.incarnation,
                self._registration_seq,
            ):
                return self._receive_answer(now_us, answer)
        return ()

    def _receive_answer(
        self, now_us: int, answer: Registered | Unregistered | RegistrationRefused | Identify
    ) -> Sequence[Effect]:
        """Handle the answer to the last registration or unregistration."""
        match answer:
            case Identify(nonce=nonce) if not self._is_registered:
                return self._send_registration(now_us, nonce)
            case Registered(another=another) if not self._is_registered and not self._is_leaving:
                if another is True and not self._names_incarnation:
                    self._store.put("another", True)
                return self._receive_registered(now_us)
            case Unregistered() if self._is_leaving:
                stop = self._in_flight.settle(now_us, _REGISTRATION)
                self._store.delete("leaves")
                return [*stop, *self._begin_registration(now_us)]
            case RegistrationRefused(device=device) if not self._is_leaving:
                return self._end_taken_registration(device)
        return ()

    def _receive_registered(self, now_us: int) -> Sequence[Effect]:
        """Complete the registration, and send the contexts of the outbox that may be sent."""
        if self._attributes is None:
            return ()
        self._is_registered = self._was_registered = True
        answered = [Complete(op_id, self._client) for op_id in self._registering]
        self._registering.clear()
        stop = self._in_flight.settle(now_us, _REGISTRATION)
        return [
            *answered,
            *stop,
            *self._send_contexts(now_us, [seq for seq, _ in self._outbox.sendable_items()]),
        ]

    def _end_taken_registration(self, holder: str) -> Sequence[Effect]:
        """End the registration with an error: another live device, ``holder``, has this client id."""
        self._is_registered = False
        error = ParameterError(
            "This client id is taken.",
            where="client_id",
            found=f"{self._client!r} is that of {holder}",
            expected="an id that no other live device has",
            remedy="register with another id",
        )
        return [*self._in_flight.clear(), *self._end_registration(error)]

    def _receive_context_ack(self, now_us: int, up_to_seq: int) -> Sequence[Effect]:
        """Remove acknowledged contexts from the outbox, and complete their operations."""
        effects: list[Effect] = []
        before = self._outbox.item_id(self._outbox.first_seq).incarnation
        for seq, _ in self._outbox.ack_up_to(up_to_seq):
            effects += self._in_flight.settle(now_us, seq)
            if seq in self._calls:
                effects.append(Complete(self._calls.pop(seq), seq))
        if self._is_registered and self._outbox.item_id(self._outbox.first_seq).incarnation != before:
            effects += self._send_contexts(now_us, [seq for seq, _ in self._outbox.sendable_items()])
        return effects

    def _receive_push(self, now_us: int, push: Push | PassedPush, *, is_registered: bool) -> Sequence[Effect]:
        """Acknowledge an aggregate; if it is new, notify the application and pass it on in its chain."""
        if is_registered and not self._is_for_this_start(push):
            return ()  # a late copy, or the registration is on its way
        incarnation = self._outbox.incarnation if self._names_incarnation else UNSET
        ack = self._build_send(
            DeliveryAck(
                client=self._client, device=self.device, aggregate=push.aggregate, incarnation=incarnation
            )
        )
        if push.aggregate in self._seen:
            return (ack,)
        self._seen.add(push.aggregate)
        effects: list[Effect] = []
        if is_registered:
            notice = _Notice(push.aggregate, push.context)
            effects += [_build_notification(notice), self._notices.add(notice)]
        effects.append(ack)
        if push.chain:
            (to, address), *rest = push.chain
            passed = PassedPush(push.aggregate, push.context, rest, to, push.receivers)
            effects.append(Send(address, pack(passed, self._compress)))
        if not is_registered and type(push) is Push and not self._is_leaving:
            # A late copy of an old registration has reached the server.
            effects += self._begin_unregistration(now_us)
        return effects

    def _is_for_this_start(self, push: Push | PassedPush) -> bool:
        """Return whether a push is for this start of the client, and no late copy for an earlier one."""
        named = None if push.receivers is UNSET else push.receivers.get(self._client)
        if named is None:
            return self._was_registered and not self._names_incarnation
        return named == self._outbox.incarnation

    def _report_failed_hop(self, to: str, event: SendFailed) -> Sequence[Effect]:
        """Report the next hop that could not be reached to the server."""
        push = decode(event, FROM_PEERS)
        if push is None:
            return ()
        rest = [client for client, _ in push.chain]
        unreachable = Unreachable(
            client=self._client,
            device=self.device,
            aggregate=push.aggregate,
            who=push.to,
            address=to,
            rest=rest,
        )
        return (self._build_send(unreachable),)


def _build_notification(notice: _Notice) -> Notify:
    """Return the effect that notifies the application of an aggregate."""
    return Notify(APP, notice.for_application())
