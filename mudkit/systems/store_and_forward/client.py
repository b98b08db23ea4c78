"""The client of store and forward: an outbox, an inbox, and the last message seen of each sender.

Its rules:

===============  ===================================================================================
send (call)      into the outbox, durably, with the next number; sent when there is a link
accepted         out of the outbox; the call is answered
deliver          the next of its sender: into the inbox, the application is told, the relay too;
                 an old one is acknowledged only; one that is too early will come again
read (call)      what has come into the inbox since the last read
link up          say hello (the relay then delivers), send the outbox; a server, whose network does not
                 come up again, says hello until the relay says welcome
missing          send the outbox from there on
timer, failure   the same again, as long as there is a link and something waits
context changed  tell the relay whether the user is busy: it delivers, or waits
===============  ===================================================================================
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
    SetTimer,
    TimerFired,
    size_bytes,
)

__all__ = ["APP", "RETRY_US", "RETRY_US_PER_BYTE", "ClientMachine"]

APP: Final = "messages"
"""The application that is told of what comes."""
RETRY_US: Final = 5_000_000
RETRY_US_PER_BYTE: Final = 400
"""Nobody asks again while what was sent may still be on its way: a slow link takes 100 µs a byte, and others
may be in front."""
_RETRY: Final = "retry"
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
        self._store = ports.store
        self._me = me
        self._relay = relay
        self._has_link = self._is_unheard = False
        self._calls: dict[int, int] = {}  # op_id by number: callers do not outlive the machine
        self._unanswered: dict[int, int] = {}  # bytes of what is on its way, by number
        self._due_us: dict[int, int] = {}  # until when each of them should be accepted

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
            case Received(message={"kind": "accepted", "number": number}):
                return self._accepted(number)
            case Received(message={"kind": "missing", "number": first}) if self._has_link:
                return self._send_from(now_us, first)
            case Received(message={"kind": "deliver"} as message):
                return self._deliver(message, now_us)
            case Received(message={"kind": "welcome"}):
                self._is_unheard = False
                return self._rest()
            case LinkUp(network=network):
                self._has_link, self._is_unheard = True, network == _SERVER
                return self._hello(now_us)
            case LinkDown():
                self._has_link = False
                return (CancelTimer(_RETRY),)
            case SendFailed(message=message):
                self._forget(message.get("number", 0))
                return (self._retry(),) if self._has_link else ()
            case TimerFired():
                return self._hello(now_us)
            case ContextChanged(context=context):
                self._store.put("busy", bool(context.get("busy", False)))
                return self._hello(now_us) if self._has_link else ()
        return ()

    def is_next(self, seen: int, message: Mapping[str, Any]) -> bool:
        """Say whether a message is the one after those that are in the inbox.

        Parameters
        ----------
        seen : int
            Number of the last message of this sender in the inbox, 0 before the first.
        message : mapping
            ``number`` is its own, ``after`` the one of the message that the sender sent here before it.
        """
        return bool(message["after"] == seen)

    def _take(self, op_id: int, arguments: Any, now_us: int) -> Sequence[Effect]:
        number = (self._store.get("number") or 0) + 1
        self._store.put("number", number)
        item = arguments.get("item") or f"{self._me} {number}"
        message = {
            "kind": "send", "number": number, "key": item, "from": self._me, "to": arguments["to"],
            "text": arguments["text"],
        }  # fmt: skip
        self._store.crash_point("numbered, not in the outbox")
        self._store.put(f"out {number:012d}", message)
        self._calls[number] = op_id
        taken = Record("deliveries", {"item": item, "receiver": arguments["to"], "created_us": now_us})
        if not self._has_link:
            return (taken,)
        # What is sent now puts off the timer, but not what is late.
        is_late = now_us >= next(iter(self._due_us.values()), now_us + 1)
        return taken, *(self._hello(now_us) if is_late else self._send(now_us, number, message))

    def _accepted(self, number: int) -> Sequence[Effect]:
        self._store.delete(f"out {number:012d}")
        self._forget(number)
        effects: list[Effect] = []
        if number in self._calls:
            effects.append(Complete(self._calls.pop(number), number))
        return [*effects, *self._rest()]

    def _deliver(self, message: Any, now_us: int) -> Sequence[Effect]:
        sender, number = message["from"], message["number"]
        seen = self._store.get(f"seen {sender}") or 0
        effects: list[Effect] = []
        if self.is_next(seen, message):
            place = (self._store.get("place") or 0) + 1
            self._store.put("place", place)
            self._store.put(f"seen {sender}", number)
            self._store.crash_point("seen, not in the inbox")
            kept = {"key": message["key"], "from": sender, "text": message["text"]}
            self._store.put(f"in {place:012d}", kept)
            effects.append(Notify(APP, {"from": sender, "text": message["text"]}))
            effects.append(self._happened("delivered_us", message["key"], now_us))
            seen = number
        if number <= seen:
            told = {"kind": "delivered", "key": message["key"], "from": sender, "to": self._me}
            effects.append(Send(self._relay, told | {"number": number}))
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

    def _rest(self) -> Sequence[Effect]:
        """Stop the timer if nothing is to be said again."""
        return () if self._is_unheard or self._store.items("out ") else (CancelTimer(_RETRY),)

    def _hello(self, now_us: int) -> Sequence[Effect]:
        hello = {"kind": "hello", "device": self._me, "busy": bool(self._store.get("busy"))}
        asks = {"answer": True} if self._is_unheard else {}
        again = [self._retry()] if self._is_unheard else []
        return [Send(self._relay, {**hello, **asks}), *again, *self._send_from(now_us, 0)]

    def _send_from(self, now_us: int, first: int) -> Sequence[Effect]:
        """Send the outbox from a number on."""
        effects: list[Effect] = []
        for _, message in self._store.items("out "):
            if message["number"] >= first:
                effects += self._send(now_us, message["number"], message)
        return effects

    def _send(self, now_us: int, number: int, message: Any) -> Sequence[Effect]:
        self._unanswered[number] = size_bytes(message)
        retry = self._retry()
        self._due_us[number] = now_us + retry.delay_us
        return Send(self._relay, message), retry

    def _forget(self, number: int) -> None:
        self._unanswered.pop(number, None)
        self._due_us.pop(number, None)

    def _retry(self) -> SetTimer:
        return SetTimer(_RETRY, RETRY_US + RETRY_US_PER_BYTE * sum(self._unanswered.values()))
