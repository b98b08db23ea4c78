"""Radiator's local middleware on a device (Radiator 4.1).

Its rules:

==================  ================================================================================
register (call)     tell the server; answered when it has agreed, or refused the name
unregister (call)   nothing is shown any more; tell the server, until it has answered
propagate (call)    into the outbox, durably, with the next number; answered when the server has it
registered          to this turn: send the outbox
unregistered        to this turn: register, if that was asked for meanwhile
taken               out of the outbox, with all before it
identify            say this turn again, with the challenge
unknown             register again: the server has removed this client, or begun anew
push                the first time it is shown; confirmed to the server; passed on to the next of the
                    chain with the names of those after it
failed push         tell the server who could not be reached, and who comes after
link up             register again, or unregister: the address may be another
timer               send again what is overdue: the registration, or contexts of the outbox
anything else       is dropped, and recorded
==================  ================================================================================

Whatever waits for an answer has a deadline of its own (:mod:`mudkit.delivery.retransmit`).
Answers of the server are believed if they come from its address, and if they are about this incarnation of
the store and this turn: an old one that comes late changes nothing.

Pushes come from the server and, to who is ``p2p_enabled``, from peers. Nobody signs them. A peer in a chain
holds the aggregate in clear, may keep it, and may pass on another one in its place; and whoever knows the
address of a client may push to it what it likes. It is shown then. What no peer can do is speak to the server
in the name of another, nor keep from anybody for ever what was to be passed on: the server sends itself what
nobody has confirmed in time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import UNSET, UnsetType

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
    TimerFired,
)
from mudkit.systems.radiator import operations
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.device.seen import SeenAggregates
from mudkit.systems.radiator.messages import (
    FROM_PEERS,
    FROM_SERVER,
    ContextFields,
    DeliveryAck,
    FromClients,
    Identify,
    PassedPush,
    Propagate,
    Push,
    Refused,
    Register,
    Registered,
    Taken,
    Unknown,
    Unreachable,
    Unregister,
    Unregistered,
    odd,
    read,
)
from mudkit.systems.radiator.packing import pack
from mudkit.wire import Fields

__all__ = ["APP", "ClientMachine"]

APP: Final = "contexts"
"""The application that is told of what comes."""
_RETRY: Final = "retry"
_REGISTRATION: Final = 0
"""What waits for an answer beside contexts, which have their numbers, from 1 on."""


class ClientMachine:
    """One client's machine.

    Parameters
    ----------
    ports : Ports
    client : str
        Its id.
    device : str
        The device that it is on.
    server : str
        The server's address.
    compress : bool
    """

    def __init__(self, ports: Ports, client: str, device: str, server: str, *, compress: bool) -> None:
        self._ports, self._store = ports, ports.store
        self._client, self.device, self._server = client, device, server
        self._compress = compress
        self._has_link = False
        self._is_known = False
        """Whether the server has said that this client is registered since the link is up."""
        self._registering: list[int] = []
        self._calls: dict[int, int] = {}  # op_id by sequence number
        self._sent = 0
        """The highest number of a context that was sent: what is acknowledged beyond was another store's."""
        self._outbox = Outbox(ports, ContextFields)
        self._is_restarted = ports.store.get("turn") is not None
        self._seen = SeenAggregates(self._store)
        self._unanswered: RetransmitTimer[int] = RetransmitTimer(_RETRY)

    def overview(self) -> View:
        """Return its server and what waits, as a display shows it."""
        return View(
            "",
            {"server": self._server, "known to it": self._is_known, "waiting to be sent": len(self._outbox)},
        )

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation=operations.Register(attributes=attributes)):
                self._store.put("attributes", attributes)
                self._registering.append(op_id)
                return () if self._leaves else self._begin(now_us)
            case Call(op_id=op_id, operation=operations.Unregister()):
                return self._unregister(now_us, op_id)
            case Call(op_id=op_id, operation=operations.Propagate(context=fields)):
                return self._propagate(now_us, op_id, fields.context().at(now_us))
            case Received():
                return self._received(now_us, event)
            case SendFailed(to=to) if to != self._server:
                return self._could_not_pass(to, event)
            case LinkUp():
                self._has_link = True
                return self._begin(now_us)
            case LinkDown():
                self._has_link = self._is_known = False
                return self._unanswered.clear()
            case TimerFired():
                return self._overdue(now_us)
        return ()

    @property
    def _attributes(self) -> Fields | None:
        """What this client is registered with, or wants to be; None: it does not."""
        return self._store.get("attributes", dict)

    @property
    def _leaves(self) -> bool:
        """Whether the server is still to hear that this client has left."""
        return self._store.get("leaves", bool) or False

    @property
    def _is_another(self) -> bool:
        """True after a restart: contexts then carry their incarnation."""
        return self._is_restarted or self._store.get("another", bool) or False

    def shown(self, now_us: int, context: Context) -> Sequence[Effect]:
        """Take note of an aggregate that has come for the first time."""
        return ()

    # -- to the server

    def _begin(self, now_us: int) -> Sequence[Effect]:
        """Begin to register, or to unregister, also again: the server then knows the address."""
        self._is_known = False
        stop = self._unanswered.clear()
        if not self._has_link or (self._attributes is None and not self._leaves):
            return stop
        self._store.put("turn", self._turn + 1)
        return self._say_who(now_us)

    @property
    def _turn(self) -> int:
        return self._store.get("turn", int) or 0

    def _say_who(self, now_us: int, challenge: str | UnsetType = UNSET) -> Sequence[Effect]:
        """Tell the server whether this client is registered, in this turn."""
        life = self._outbox.incarnation
        oldest, first = self._outbox.name(self._outbox.first_seq)
        of_first = UNSET if oldest == life else oldest
        another = True if self._is_another else UNSET
        attributes = self._attributes
        asked: FromClients
        if self._leaves or attributes is None:
            asked = Unregister(
                client=self._client, device=self.device, incarnation=life, turn=self._turn, first=first,
                oldest=of_first, challenge=challenge, another=another,
            )  # fmt: skip
        else:
            asked = Register(
                client=self._client, device=self.device, attributes=attributes, incarnation=life,
                turn=self._turn, first=first, oldest=of_first, challenge=challenge, another=another,
            )  # fmt: skip
        sent = self._ask(asked)
        return (sent, *self._unanswered.sent(now_us, _REGISTRATION, len(sent.message)))

    def _unregister(self, now_us: int, op_id: int) -> Sequence[Effect]:
        was_registered = self._attributes is not None
        left = self._give_up(
            ParameterError(
                "This client has unregistered before the server had this context.",
                remedy="wait for what is under way before unregister()",
            )
        )
        effects: Sequence[Effect] = ()
        if was_registered and not self._leaves:
            effects = self._leave(now_us)
        return (*left, *effects, Complete(op_id))

    def _leave(self, now_us: int) -> Sequence[Effect]:
        """Tell the server that this client is not registered, until it has answered."""
        self._store.put("leaves", True)
        return self._begin(now_us)

    def _give_up(self, error: ParameterError) -> list[Effect]:
        """Be registered no more, with nothing in the outbox."""
        self._store.delete("attributes")
        self._outbox.acked(self._outbox.last_seq)
        asked = (*self._registering, *self._calls.values())
        self._registering.clear()
        self._calls.clear()
        return [Complete(op_id, error=error) for op_id in asked]

    def _propagate(self, now_us: int, op_id: int, context: Context) -> Sequence[Effect]:
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
        return self._send(now_us, [each for each, _ in self._outbox.batch(seq)]) if self._is_known else ()

    def _send(self, now_us: int, seqs: Collection[int]) -> Sequence[Effect]:
        """Send some of what waits."""
        effects: list[Effect] = []
        for seq in seqs:
            life, number = self._outbox.name(seq)
            sent = self._ask(
                Propagate(
                    client=self._client, device=self.device, seq=number,
                    first=self._outbox.name(self._outbox.first_seq).number, context=self._outbox[seq],
                    incarnation=life if self._is_another else UNSET,
                )
            )  # fmt: skip
            self._sent = max(self._sent, seq)
            effects += (sent, *self._unanswered.sent(now_us, seq, len(sent.message)))
        return effects

    def _overdue(self, now_us: int) -> Sequence[Effect]:
        late = self._unanswered.overdue(now_us)
        if _REGISTRATION in late:
            effects = self._say_who(now_us)
        else:
            effects = self._send(now_us, [seq for seq in late if seq in self._outbox])
        return [*effects, *self._unanswered.fired(now_us)]

    def _ask(self, message: FromClients) -> Send:
        return Send(self._server, pack(message, self._compress))

    # -- from the server, and from peers

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Take what the server says, and what peers pass on; everything else is odd."""
        attributes = self._attributes
        if event.source != self._server:
            passed = read(event, FROM_PEERS)
            if passed is None or (attributes is not None and not attributes.get("p2p_enabled")):
                return odd(event)
            return self._pushed(now_us, passed, is_registered=attributes is not None)
        match read(event, FROM_SERVER):
            case None:
                return odd(event)
            case Push() as push:
                return self._pushed(now_us, push, is_registered=attributes is not None)
            case Unknown():
                return self._begin(now_us) if self._is_known else ()
            case Taken(seq=number, incarnation=whose) if (whose is not UNSET) is self._is_another:
                seq = self._outbox.seq(self._outbox.incarnation if whose is UNSET else whose, number)
                return self._taken(now_us, min(seq, self._sent))
            case Taken():
                return ()
            case answer if (answer.incarnation, answer.turn) == (self._outbox.incarnation, self._turn):
                return self._answered(now_us, answer)
        return ()

    def _answered(
        self, now_us: int, answer: Registered | Unregistered | Refused | Identify
    ) -> Sequence[Effect]:
        """Take the answer to this turn."""
        match answer:
            case Identify(challenge=challenge) if not self._is_known:
                return self._say_who(now_us, challenge)
            case Registered(another=another) if not self._is_known and not self._leaves:
                if another is True and not self._is_another:
                    self._store.put("another", True)
                return self._agreed(now_us)
            case Unregistered() if self._leaves:
                stop = self._unanswered.answered(now_us, _REGISTRATION)
                self._store.delete("leaves")
                return [*stop, *self._begin(now_us)]
            case Refused(device=device) if not self._leaves:
                return self._refused(device)
        return ()

    def _agreed(self, now_us: int) -> Sequence[Effect]:
        if self._attributes is None:
            return ()
        self._is_known = True
        answered = [Complete(op_id, self._client) for op_id in self._registering]
        self._registering.clear()
        stop = self._unanswered.answered(now_us, _REGISTRATION)
        return [*answered, *stop, *self._send(now_us, [seq for seq, _ in self._outbox.batch()])]

    def _refused(self, device: str) -> Sequence[Effect]:
        self._is_known = False
        error = ParameterError(
            "This client id is taken.",
            where="client_id",
            found=f"{self._client!r} is that of {device}",
            expected="an id that no other live device has",
            remedy="register with another id",
        )
        return [*self._unanswered.clear(), *self._give_up(error)]

    def _taken(self, now_us: int, up_to_seq: int) -> Sequence[Effect]:
        effects: list[Effect] = []
        before = self._outbox.name(self._outbox.first_seq).incarnation
        for seq, _ in self._outbox.acked(up_to_seq):
            effects += self._unanswered.answered(now_us, seq)
            if seq in self._calls:
                effects.append(Complete(self._calls.pop(seq), seq))
        if self._is_known and self._outbox.name(self._outbox.first_seq).incarnation != before:
            effects += self._send(now_us, [seq for seq, _ in self._outbox.batch()])
        return effects

    def _pushed(self, now_us: int, push: Push | PassedPush, *, is_registered: bool) -> Sequence[Effect]:
        ack = self._ask(DeliveryAck(client=self._client, device=self.device, aggregate=push.aggregate))
        if push.aggregate in self._seen:
            return (ack,)
        self._seen.add(push.aggregate)
        effects: list[Effect] = []
        if is_registered:
            context = push.context.context()
            effects += [Notify(APP, context), *self.shown(now_us, context)]
        effects.append(ack)
        if push.chain:
            (to, address), *rest = push.chain
            passed = PassedPush(push.aggregate, push.context, rest, to)
            effects.append(Send(address, pack(passed, self._compress)))
        if not is_registered and type(push) is Push and not self._leaves:
            effects += self._leave(now_us)  # a late copy of what it has said long ago came to the server
        return effects

    def _could_not_pass(self, to: str, event: SendFailed) -> Sequence[Effect]:
        """Tell the server to whom an aggregate could not be passed on."""
        push = read(event, FROM_PEERS)
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
        return (self._ask(unreachable),)
