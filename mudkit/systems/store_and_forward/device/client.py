"""The client of store and forward: an outbox, an inbox, and the last message seen of each sender.

Its rules:

===============  ===================================================================================
send (call)      into the outbox, durably, with the next number; sent when there is a link
accepted         out of the outbox; the call is answered
deliver          the next of its sender's incarnation: into the inbox, the application is told, the relay
                 too; an old one is acknowledged only; one that is too early will come again
read (call)      what has come into the inbox since the last read
link up          say hello (the relay then delivers), send the outbox
context changed  tell the relay whether the user is busy: it delivers, or waits
hello            what the relay may not know yet (an incarnation, an address, whether the user is busy) is
                 said until the relay says welcome; a server, whose network does not come up again, always
                 says hello until then
missing          send the outbox from there on
identify         say hello, with the nonce: the relay does not know who lives here
timer            each hello and each message has a deadline of its own: what is overdue is said again, of
                 the messages those after it, too (the relay has taken none of them)
===============  ===================================================================================

Whatever does not come from the relay's address, or is nothing that a relay says, is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mudkit.events import (
    Call,
    CancelTimer,
    Complete,
    ContextChanged,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Notify,
    Ports,
    Received,
    Record,
    Send,
    SendFailed,
    TimerFired,
    size_bytes,
)
from mudkit.systems.incarnation import incarnation
from mudkit.systems.receiving import dropped
from mudkit.systems.store_and_forward.deadlines import Deadlines
from mudkit.systems.store_and_forward.messages import FROM_RELAY

__all__ = ["APP", "ClientMachine"]

APP: Final = "messages"
"""The application that is told of what comes."""
_RETRY: Final = "retry"
_HELLO: Final = 0
"""The number of a hello among the deadlines; messages begin with 1."""
_SERVER: Final = "server"
"""The network of a server, see :class:`mudkit.events.LinkUp`."""


class ClientMachine:
    """One device's machine.

    Parameters
    ----------
    ports : Ports
    me : str
        Its name, which stays when its address changes.
    relay : str
        The relay's address.
    """

    def __init__(self, ports: Ports, me: str, relay: str) -> None:
        self._ports = ports
        self._store = ports.store
        self._me = me
        self._relay = relay
        self._has_link = self._is_server = False
        self._address = ports.address
        self._nonce: str | None = None  # what the relay has last asked for a hello with
        self._outbox: dict[int, Any] = {
            message["number"]: message for _, message in self._store.items("out ")
        }
        self._calls: dict[int, int] = {}  # op_id by number: callers do not outlive the machine
        self._deadlines: Deadlines[int] = Deadlines(_RETRY)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation="send", arguments=arguments):
                return self._take(op_id, arguments, now_us)
            case Call(op_id=op_id, operation="read"):
                return self._read(op_id, now_us)
            case Call(op_id=op_id, operation=operation):
                error = LookupError(f"there is no operation {operation!r}, only send and read")
                return (Complete(op_id, error=error),)
            case Received(source=source, message=message):
                if source == self._relay and FROM_RELAY(message) and message.get("to", self._me) == self._me:
                    return self._received(now_us, message)
                return dropped(event)
            case LinkUp(address=address, network=network):
                self._has_link, self._address = True, address
                self._is_server = network == _SERVER
                return [*self._hello(now_us, must=self._is_server), *self._send_from(now_us, 0)]
            case LinkDown():
                self._has_link = False
                self._deadlines.clear()
                return (CancelTimer(_RETRY),)
            case SendFailed(message=message) if self._has_link:
                return self._failed(now_us, message)
            case TimerFired():
                return self._overdue(now_us)
            case ContextChanged(context=context):
                self._store.put("busy", bool(context.get("busy", False)))
                return self._hello(now_us) if self._has_link else ()
        return ()

    def is_next(self, seen: int, message: Mapping[str, Any]) -> bool:
        """Say whether a message is the one after those that are in the inbox.

        A relay that has lost its store does not know what this device has had: then ``after`` is lower than
        ``seen``.

        Parameters
        ----------
        seen : int
            Number of the last message of this sender in the inbox, 0 before the first.
        message : mapping
            ``number`` is its own, ``after`` the one of the message that the sender sent here before it.
        """
        return bool(message["after"] <= seen < message["number"])

    def _received(self, now_us: int, message: Mapping[str, Any]) -> Sequence[Effect]:
        kind = message["kind"]
        if kind == "deliver":
            return self._deliver(message, now_us)
        if kind == "identify":
            is_said = _HELLO in self._deadlines and message["nonce"] == self._nonce
            self._nonce = message["nonce"]
            return self._hello(now_us, must=True) if self._has_link and not is_said else ()
        if message["incarnation"] != incarnation(self._ports):  # to who had this name before
            return ()
        if kind == "accepted":
            return self._accepted(message["number"])
        if kind == "welcome":
            return self._welcome(message["number"])
        return self._send_from(now_us, message["number"]) if self._has_link else ()

    def _take(self, op_id: int, arguments: Any, now_us: int) -> Sequence[Effect]:
        number = (self._store.get("number") or 0) + 1
        item = arguments.get("item") or f"{self._me} {incarnation(self._ports)} {number}"
        message = {
            "kind": "send",
            "number": number,
            "incarnation": incarnation(self._ports),
            "key": item,
            "from": self._me,
            "to": arguments["to"],
            "text": arguments["text"],
        }
        self._store.put("number", number)
        self._store.crash_point("numbered, not in the outbox")
        self._store.put(f"out {number:012d}", message)
        self._outbox[number] = message
        self._calls[number] = op_id
        taken = Record("deliveries", {"item": item, "receiver": arguments["to"], "created_us": now_us})
        return (taken, *self._send(now_us, number, message)) if self._has_link else (taken,)

    def _accepted(self, number: int) -> Sequence[Effect]:
        if self._outbox.pop(number, None) is None:
            return ()
        self._store.delete(f"out {number:012d}")
        over = self._deadlines.met(number)
        if number in self._calls:
            return Complete(self._calls.pop(number), number), *over
        return over

    def _deliver(self, message: Mapping[str, Any], now_us: int) -> Sequence[Effect]:
        sender, number = message["from"], message["number"]
        numbered = f"seen {sender}\n{message['incarnation']}"
        seen = self._store.get(numbered) or 0
        effects: list[Effect] = []
        if self.is_next(seen, message):
            place = (self._store.get("place") or 0) + 1
            self._store.put("place", place)
            self._store.put(numbered, number)
            self._store.crash_point("seen, not in the inbox")
            kept = {"key": message["key"], "from": sender, "text": message["text"]}
            self._store.put(f"in {place:012d}", kept)
            effects.append(Notify(APP, {"from": sender, "text": message["text"]}))
            effects.append(self._happened("delivered_us", message["key"], now_us))
            seen = number
        if number <= seen:
            shown = {
                "kind": "delivered",
                "number": number,
                "incarnation": message["incarnation"],
                "receiver": incarnation(self._ports),
                "key": message["key"],
                "from": sender,
                "to": self._me,
            }
            effects.append(Send(self._relay, shown))
        return effects

    def _read(self, op_id: int, now_us: int) -> Sequence[Effect]:
        first = (self._store.get("read") or 0) + 1
        last = self._store.get("place") or 0
        new = [self._store.get(f"in {place:012d}") for place in range(first, last + 1)]
        if new:
            self._store.put("read", last)
        result = [{"from": message["from"], "text": message["text"]} for message in new]
        read = [self._happened("read_us", message["key"], now_us) for message in new]
        return (*read, Complete(op_id, result))

    def _happened(self, what: str, item: str, now_us: int) -> Record:
        return Record("deliveries", {"item": item, "receiver": self._me, what: now_us})

    # -- being heard

    def _hello(self, now_us: int, *, must: bool = False) -> Sequence[Effect]:
        """Say hello: until it is heard, if it must be, or says what the relay may not know."""
        said = (self._store.get("hello") or 0) + 1
        self._store.put("hello", said)
        first = next(iter(self._outbox), (self._store.get("number") or 0) + 1)
        hello = {
            "kind": "hello",
            "number": said,
            "incarnation": incarnation(self._ports),
            "device": self._me,
            "busy": bool(self._store.get("busy")),
            "first": first,
        }
        if not must and _HELLO not in self._deadlines and self._store.get("told") == self._state():
            return (Send(self._relay, hello),)
        self._store.delete("told")  # until it has heard this, nobody knows which of them it has heard
        hello["answer"] = True
        if self._nonce is not None:
            hello["nonce"] = self._nonce
        return Send(self._relay, hello), *self._deadlines.set(_HELLO, now_us, 0)

    def _state(self) -> dict[str, Any]:
        """Give what the relay has to know to deliver."""
        return {"address": self._address, "busy": bool(self._store.get("busy"))}

    def _welcome(self, number: int) -> Sequence[Effect]:
        if number != self._store.get("hello"):  # it has heard an older one
            return ()
        self._store.put("told", self._state())
        self._nonce = None
        return self._deadlines.met(_HELLO)

    def _send_from(self, now_us: int, first: int) -> Sequence[Effect]:
        """Send the outbox from a number on."""
        effects: list[Effect] = []
        for number, message in self._outbox.items():
            if number >= first:
                effects += self._send(now_us, number, message)
        return effects

    def _send(self, now_us: int, number: int, message: Any) -> Sequence[Effect]:
        return Send(self._relay, message), *self._deadlines.set(number, now_us, size_bytes(message))

    def _overdue(self, now_us: int) -> Sequence[Effect]:
        late = self._deadlines.overdue(now_us)
        effects: list[Effect] = []
        if _HELLO in late:
            effects += self._hello(now_us, must=True)
        messages = [number for number in late if number != _HELLO]
        if messages:
            effects += self._send_from(now_us, min(messages))
        return [*effects, *self._deadlines.fired(now_us)]

    def _failed(self, now_us: int, message: Any) -> Sequence[Effect]:
        """Say again later what did not reach the relay; what it has to hear of a delivery, it asks for."""
        kind = message["kind"]
        if kind == "hello":
            return self._deadlines.set(_HELLO, now_us, 0)
        if kind == "send" and message["number"] in self._outbox:
            return self._deadlines.set(message["number"], now_us, 0)
        return ()
