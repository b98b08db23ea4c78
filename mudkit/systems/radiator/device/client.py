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

Whatever waits for an answer has a deadline of its own (:mod:`mudkit.systems.radiator.device.deadlines`).
Answers of the server are believed if they come from its address, and if they are about this incarnation of
the store and this turn: an old one that comes late changes nothing.

Pushes come from the server and, to who is ``p2p_enabled``, from peers. Nobody signs them. A peer in a chain
holds the aggregate in clear, may keep it, and may pass on another one in its place; and whoever knows the
address of a client may push to it what it likes. It is shown then. What no peer can do is speak to the server
in the name of another, nor keep from anybody for ever what was to be passed on: the server sends itself what
nobody has confirmed in time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

from mudkit.errors import ParameterError
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
from mudkit.systems.incarnation import incarnation
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.device.deadlines import Deadlines
from mudkit.systems.radiator.messages import (
    FROM_PEERS,
    FROM_SERVER,
    Identify,
    PassedPush,
    Push,
    Refused,
    Registered,
    Taken,
    Unknown,
    Unregistered,
    odd,
    read,
)
from mudkit.systems.radiator.packing import pack, unpack

__all__ = ["APP", "ClientMachine"]

APP: Final = "contexts"
"""The application that is told of what comes."""
_RETRY: Final = "retry"
_REGISTRATION: Final = 0
"""What waits for an answer beside contexts, which have their numbers, from 1 on."""
_REMEMBERED: Final = 4096
"""So many of the last aggregates are known again when they come again."""


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
        self._calls: dict[int, int] = {}  # op_id by number
        self._sent = 0
        """The highest number of a context that was sent: what is acknowledged beyond was another store's."""
        self._seen = {aggregate for _, aggregate in self._store.items("seen ")}
        self._deadlines = Deadlines(_RETRY)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        return (*self._decide(now_us, event), *self._deadlines.timer(now_us))

    def _decide(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
            case Call(op_id=op_id, operation="register", arguments={"attributes": attributes}):
                self._store.put("attributes", attributes)
                self._registering.append(op_id)
                return () if self._store.get("leaves") else self._begin(now_us)
            case Call(op_id=op_id, operation="unregister"):
                return self._unregister(now_us, op_id)
            case Call(op_id=op_id, operation="propagate", arguments={"context": context}):
                return self._propagate(now_us, op_id, Context.read(context).at(now_us))
            case Received():
                return self._received(now_us, event)
            case SendFailed(to=to, message=bytes() as sent) if to != self._server:
                return self._could_not_pass(to, unpack(sent))
            case LinkUp():
                self._has_link = True
                return self._begin(now_us)
            case LinkDown():
                self._has_link = self._is_known = False
                self._deadlines.forget()
            case TimerFired():
                return self._again(now_us)
        return ()

    def shown(self, now_us: int, context: Context) -> Sequence[Effect]:
        """Take note of an aggregate that has come for the first time."""
        return ()

    # -- to the server

    def _begin(self, now_us: int) -> Sequence[Effect]:
        """Begin to register, or to unregister, also again: the server then knows the address."""
        self._is_known = False
        self._deadlines.forget()
        leaves, attributes = self._store.get("leaves"), self._store.get("attributes")
        if not self._has_link or (attributes is None and not leaves):
            return ()
        self._store.put("turn", (self._store.get("turn") or 0) + 1)
        return self._say_who(now_us)

    def _say_who(self, now_us: int, **fields: Any) -> Sequence[Effect]:
        """Tell the server whether this client is registered, in this turn."""
        kind = "unregister" if self._store.get("leaves") else "register"
        if kind == "register":
            fields["attributes"] = self._store.get("attributes")
        if self._store.get("another"):
            fields["another"] = True
        waiting = self._store.items("out ")
        first = waiting[0][1][0] if waiting else (self._store.get("number") or 0) + 1
        effects = self._ask(
            kind, incarnation=incarnation(self._ports), turn=self._store.get("turn"), first=first, **fields
        )
        self._deadlines.sent(now_us, _REGISTRATION, len(effects.message))
        return (effects,)

    def _unregister(self, now_us: int, op_id: int) -> Sequence[Effect]:
        was_registered = self._store.get("attributes") is not None
        left = self._give_up(
            ParameterError(
                "This client has unregistered before the server had this context.",
                remedy="wait for what is under way before unregister()",
            )
        )
        effects: Sequence[Effect] = ()
        if was_registered and not self._store.get("leaves"):
            effects = self._leave(now_us)
        return (*left, *effects, Complete(op_id))

    def _leave(self, now_us: int) -> Sequence[Effect]:
        """Tell the server that this client is not registered, until it has answered."""
        self._store.put("leaves", True)
        return self._begin(now_us)

    def _give_up(self, error: ParameterError) -> list[Effect]:
        """Be registered no more, with nothing in the outbox."""
        self._store.delete("attributes")
        for key, _ in self._store.items("out "):
            self._store.delete(key)
        asked = (*self._registering, *self._calls.values())
        self._registering.clear()
        self._calls.clear()
        return [Complete(op_id, error=error) for op_id in asked]

    def _propagate(self, now_us: int, op_id: int, context: Context) -> Sequence[Effect]:
        if self._store.get("attributes") is None:
            error = ParameterError(
                "This client is not registered.",
                where="client_id",
                found=repr(self._client),
                expected="one that is registered",
                remedy="register() again, under a name that is free",
            )
            return (Complete(op_id, error=error),)
        number = (self._store.get("number") or 0) + 1
        self._store.put("number", number)
        self._store.put(f"out {number:012d}", [number, context.describe()])
        self._calls[number] = op_id
        return self._outbox(now_us, [number]) if self._is_known else ()

    def _outbox(self, now_us: int, numbers: Collection[int] | None = None) -> Sequence[Effect]:
        """Send what waits: all of it, or some."""
        waiting = [each for _, each in self._store.items("out ")]
        effects, whose = [], self._whose()
        for number, context in waiting:
            if numbers is None or number in numbers:
                asked = self._ask("context", number=number, first=waiting[0][0], context=context, **whose)
                self._sent = max(self._sent, number)
                self._deadlines.sent(now_us, number, len(asked.message))
                effects.append(asked)
        return effects

    def _whose(self) -> dict[str, str]:
        """Give what contexts say of their incarnation: nothing, if the server has seen no other one."""
        return {"incarnation": incarnation(self._ports)} if self._store.get("another") else {}

    def _again(self, now_us: int) -> Sequence[Effect]:
        overdue = set(self._deadlines.overdue(now_us))
        if _REGISTRATION in overdue:
            return self._say_who(now_us)
        return self._outbox(now_us, overdue) if overdue else ()

    def _ask(self, kind: str, **fields: Any) -> Send:
        message = {"kind": kind, "client": self._client, "device": self.device, **fields}
        return Send(self._server, pack(message, self._compress))

    # -- from the server, and from peers

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Take what the server says, and what peers pass on; everything else is odd."""
        if event.source != self._server:
            passed, attributes = read(event, FROM_PEERS), self._store.get("attributes")
            if passed is None or (attributes is not None and not attributes.get("p2p_enabled")):
                return odd(event)
            return self._pushed(now_us, passed, is_registered=attributes is not None)
        match read(event, FROM_SERVER):
            case None:
                return odd(event)
            case Push() as push:
                is_registered = self._store.get("attributes") is not None
                return self._pushed(now_us, push, is_registered=is_registered)
            case Unknown():
                return self._begin(now_us) if self._is_known else ()
            case Taken(number=number, incarnation=whose):
                is_mine = whose == self._whose().get("incarnation", UNSET)
                return self._taken(now_us, min(number, self._sent)) if is_mine else ()
            case answer if (answer.incarnation, answer.turn) == (
                incarnation(self._ports),
                self._store.get("turn"),
            ):
                return self._answered(now_us, answer)
        return ()

    def _answered(
        self, now_us: int, answer: Registered | Unregistered | Refused | Identify
    ) -> Sequence[Effect]:
        """Take the answer to this turn."""
        leaves = bool(self._store.get("leaves"))
        match answer:
            case Identify(challenge=challenge) if not self._is_known:
                return self._say_who(now_us, challenge=challenge)
            case Registered(another=another) if not self._is_known and not leaves:
                if another is True and not self._store.get("another"):
                    self._store.put("another", True)
                return self._agreed(now_us)
            case Unregistered() if leaves:
                self._deadlines.answered(now_us, _REGISTRATION)
                self._store.delete("leaves")
                return self._begin(now_us)
            case Refused(device=device) if not leaves:
                return self._refused(device)
        return ()

    def _agreed(self, now_us: int) -> Sequence[Effect]:
        if self._store.get("attributes") is None:
            return ()
        self._is_known = True
        self._deadlines.answered(now_us, _REGISTRATION)
        answered = [Complete(op_id, self._client) for op_id in self._registering]
        self._registering.clear()
        return (*answered, *self._outbox(now_us))

    def _refused(self, device: str) -> Sequence[Effect]:
        self._is_known = False
        self._deadlines.forget()
        return self._give_up(
            ParameterError(
                "This client id is taken.",
                where="client_id",
                found=f"{self._client!r} is that of {device}",
                expected="an id that no other live device has",
                remedy="register with another id",
            )
        )

    def _taken(self, now_us: int, up_to: int) -> Sequence[Effect]:
        effects: list[Effect] = []
        for key, (number, _) in self._store.items("out "):
            if number <= up_to:
                self._store.delete(key)
                self._deadlines.answered(now_us, number)
                if number in self._calls:
                    effects.append(Complete(self._calls.pop(number), number))
        return effects

    def _pushed(self, now_us: int, push: Push | PassedPush, *, is_registered: bool) -> Sequence[Effect]:
        got = self._ask("got", aggregate=push.aggregate)
        if push.aggregate in self._seen:
            return (got,)
        self._remember(push.aggregate)
        effects: list[Effect] = []
        context = push.context.context()
        if is_registered:
            effects += [Notify(APP, context), *self.shown(now_us, context)]
        effects.append(got)
        if push.chain:
            (to, address), *rest = push.chain
            passed = {
                "kind": "push",
                "aggregate": push.aggregate,
                "context": context.describe(),
                "chain": rest,
                "to": to,
            }
            effects.append(Send(address, pack(passed, self._compress)))
        if not is_registered and type(push) is Push and not self._store.get("leaves"):
            effects += self._leave(now_us)  # a late copy of what it has said long ago came to the server
        return effects

    def _remember(self, aggregate: str) -> None:
        place = ((self._store.get("place") or 0) + 1) % _REMEMBERED
        self._store.put("place", place)
        self._seen.discard(self._store.get(f"seen {place:04d}"))
        self._store.put(f"seen {place:04d}", aggregate)
        self._seen.add(aggregate)

    def _could_not_pass(self, to: str, push: Mapping[str, Any]) -> Sequence[Effect]:
        rest = [client for client, _ in push["chain"]]
        return (self._ask("unreachable", aggregate=push["aggregate"], who=push["to"], address=to, rest=rest),)
