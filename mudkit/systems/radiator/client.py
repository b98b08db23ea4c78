"""Radiator's local middleware on a device (Radiator 4.1).

Its rules:

==================  ================================================================================
register (call)     tell the server; answered when it has agreed, or refused the name
unregister (call)   tell the server; nothing is shown any more
propagate (call)    into the outbox, durably, with the next number; answered when the server has it
registered          send the outbox
taken               out of the outbox, with all before it
unknown             register again: the server has removed this client, or begun anew
push                the first time it is shown; confirmed to the server; passed on to the next of the
                    chain with the names of those after it
failed push         tell the server who could not be reached, and who comes after
link up             register again: the address may be another
timer               register again, as long as something waits for an answer
==================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.errors import ParameterError
from mudkit.events import (
    Call,
    CancelTimer,
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
    SetTimer,
    TimerFired,
)
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.packing import pack, unpack

__all__ = ["APP", "ClientMachine"]

APP: Final = "contexts"
"""The application that is told of what comes."""
RETRY_US: Final = 5_000_000
RETRY_US_PER_BYTE: Final = 400
_RETRY: Final = "retry"
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
        Of which it is.
    server : str
        The server's address.
    compress : bool
    """

    def __init__(self, ports: Ports, client: str, device: str, server: str, *, compress: bool) -> None:
        self._store = ports.store
        self._client, self.device, self._server = client, device, server
        self._compress = compress
        self._has_link = False
        self._is_known = False
        """Whether the server has said that this client is registered since the link is up."""
        self._registering: list[int] = []
        self._calls: dict[int, int] = {}  # op_id by number
        self._seen = {aggregate for _, aggregate in self._store.items("seen ")}

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation="register", arguments={"attributes": attributes}):
                self._store.put("attributes", attributes)
                self._registering.append(op_id)
                return self._register()
            case Call(op_id=op_id, operation="unregister"):
                return self._unregister(op_id)
            case Call(op_id=op_id, operation="propagate", arguments={"context": context}):
                return self._propagate(op_id, Context.read(context).at(now_us))
            case Received(message=bytes() as sent):
                return self._received(now_us, unpack(sent))
            case SendFailed(to=to, message=bytes() as sent) if to != self._server:
                return self._could_not_pass(to, unpack(sent))
            case LinkUp():
                self._has_link = True
                return self._register()
            case LinkDown():
                self._has_link = self._is_known = False
                return (CancelTimer(_RETRY),)
            case TimerFired():
                return self._register()
        return ()

    def shown(self, now_us: int, context: Context) -> Sequence[Effect]:
        """Take note of an aggregate that has come for the first time."""
        return ()

    # -- to the server

    def _register(self) -> Sequence[Effect]:
        """Register, also again: the server then knows the address."""
        attributes = self._store.get("attributes")
        if attributes is None or not self._has_link:
            return ()
        self._is_known = False
        return self._ask("register", attributes=attributes), self._retry()

    def _unregister(self, op_id: int) -> Sequence[Effect]:
        self._store.delete("attributes")
        for key, _ in self._store.items("out "):
            self._store.delete(key)
        error = ParameterError(
            "This client has unregistered before the server had this context.",
            remedy="wait for what is under way before unregister()",
        )
        left = [Complete(each, error=error) for each in (*self._calls.values(), *self._registering)]
        self._calls.clear()
        self._registering.clear()
        told = [self._ask("unregister")] if self._has_link else []
        return (*left, *told, CancelTimer(_RETRY), Complete(op_id))

    def _propagate(self, op_id: int, context: Context) -> Sequence[Effect]:
        if self._store.get("attributes") is None:
            error = ParameterError(
                "This client is not registered.", where="client_id", found=repr(self._client),
                expected="one that is registered", remedy="register() again, under a name that is free",
            )  # fmt: skip
            return (Complete(op_id, error=error),)
        number = (self._store.get("number") or 0) + 1
        self._store.put("number", number)
        self._store.put(f"out {number:012d}", [number, context.describe()])
        self._calls[number] = op_id
        return self._outbox(number) if self._is_known else ()

    def _outbox(self, above: int = 0) -> Sequence[Effect]:
        """Send what waits, from a number on."""
        waiting = [each for _, each in self._store.items("out ")]
        asked = [
            self._ask("context", number=number, first=waiting[0][0], context=context)
            for number, context in waiting
            if number >= above
        ]
        return (*asked, self._retry(sum(len(each.message) for each in asked)))

    def _ask(self, kind: str, **fields: Any) -> Send:
        message = {"kind": kind, "client": self._client, "device": self.device, **fields}
        return Send(self._server, pack(message, self._compress))

    def _retry(self, size_bytes: int = 0) -> SetTimer:
        return SetTimer(_RETRY, RETRY_US + RETRY_US_PER_BYTE * size_bytes)

    # -- from the server, and from peers

    def _received(self, now_us: int, message: Mapping[str, Any]) -> Sequence[Effect]:
        match message["kind"]:
            case "registered":
                return self._agreed()
            case "refused":
                return self._refused(message["device"])
            case "taken":
                return self._taken(message["number"])
            case "unknown":
                return self._register()
        return self._pushed(now_us, message)

    def _agreed(self) -> Sequence[Effect]:
        if self._store.get("attributes") is None:
            return ()
        self._is_known = True
        answered = [Complete(op_id, self._client) for op_id in self._registering]
        self._registering.clear()
        waits = bool(self._store.items("out "))
        return (*answered, CancelTimer(_RETRY), *(self._outbox() if waits else ()))

    def _refused(self, device: str) -> Sequence[Effect]:
        self._store.delete("attributes")
        error = ParameterError(
            "This client id is taken.", where="client_id", found=f"{self._client!r} is that of {device}",
            expected="an id that no other live device has", remedy="register with another id",
        )  # fmt: skip
        answered = [Complete(op_id, error=error) for op_id in (*self._registering, *self._calls.values())]
        self._registering.clear()
        self._calls.clear()
        for key, _ in self._store.items("out "):
            self._store.delete(key)
        return (*answered, CancelTimer(_RETRY))

    def _taken(self, up_to: int) -> Sequence[Effect]:
        effects: list[Effect] = []
        for key, (number, _) in self._store.items("out "):
            if number <= up_to:
                self._store.delete(key)
                if number in self._calls:
                    effects.append(Complete(self._calls.pop(number), number))
        if not self._store.items("out ") and not self._registering:
            effects.append(CancelTimer(_RETRY))
        return effects

    def _pushed(self, now_us: int, push: Mapping[str, Any]) -> Sequence[Effect]:
        aggregate = push["aggregate"]
        if aggregate in self._seen:
            return (self._ask("got", aggregate=aggregate),)
        self._remember(aggregate)
        effects: list[Effect] = []
        if self._store.get("attributes") is not None:
            context = Context.read(push["context"])
            effects += [Notify(APP, context), *self.shown(now_us, context)]
        effects.append(self._ask("got", aggregate=aggregate))
        if push["chain"]:
            (_, address), *rest = push["chain"]
            passed = pack({**push, "chain": rest, "to": push["chain"][0][0]}, self._compress)
            effects.append(Send(address, passed))
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
