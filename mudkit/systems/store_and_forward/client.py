"""The client of store and forward: an outbox, an inbox, and the last message seen of each sender.

Its rules:

===============  ===================================================================================
send (call)      into the outbox, durably, with the next number; sent when there is a link
accepted         out of the outbox; the call is answered
deliver          the next of its sender: into the inbox, the application is told, the relay too;
                 an old one is acknowledged only; one that is too early will come again
link up          say hello (the relay then delivers), send the outbox
timer, failure   the same again, as long as there is a link and something waits
context changed  tell the relay whether the user is busy: it delivers, or waits
===============  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
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
)

__all__ = ["RETRY_US", "Client"]

RETRY_US: Final = 5_000_000
_RETRY: Final = SetTimer("retry", RETRY_US)


class Client:
    """One device's machine.

    Parameters
    ----------
    ports : Ports
    relay : str
        Its address.
    app : str
        Who is told of messages.
    """

    def __init__(self, ports: Ports, relay: str, app: str = "messages") -> None:
        self._store = ports.store
        self._me = ports.address
        self._relay = relay
        self._app = app
        self._has_link = False
        self._calls: dict[int, int] = {}  # op_id by number: callers do not outlive the machine

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation="send", arguments=arguments):
                return self._take(op_id, arguments, now_us)
            case Call(op_id=op_id, operation="inbox"):
                return (Complete(op_id, [message for _, message in self._store.items("in ")]),)
            case Call(op_id=op_id, operation=operation):
                error = LookupError(f"there is no operation {operation!r}, only send and inbox")
                return (Complete(op_id, error=error),)
            case Received(message={"kind": "accepted", "number": number}):
                return self._accepted(number)
            case Received(message={"kind": "deliver"} as message):
                return self._deliver(message, now_us)
            case LinkUp():
                self._has_link = True
                return self._hello()
            case LinkDown():
                self._has_link = False
                return (CancelTimer(_RETRY.name),)
            case SendFailed():
                return (_RETRY,) if self._has_link else ()
            case TimerFired():
                return self._hello()
            case ContextChanged(context=context):
                self._store.put("busy", bool(context.get("busy", False)))
                return self._hello() if self._has_link else ()
        return ()

    def _take(self, op_id: int, arguments: Any, now_us: int) -> Sequence[Effect]:
        number = (self._store.get("number") or 0) + 1
        self._store.put("number", number)
        message = {
            "kind": "send", "number": number, "from": self._me, "to": arguments["to"],
            "text": arguments["text"], "created_us": now_us,
        }  # fmt: skip
        self._store.crash_point("numbered, not in the outbox")
        self._store.put(f"out {number:012d}", message)
        self._calls[number] = op_id
        return (Send(self._relay, message), _RETRY) if self._has_link else ()

    def _accepted(self, number: int) -> Sequence[Effect]:
        self._store.delete(f"out {number:012d}")
        effects: list[Effect] = []
        if number in self._calls:
            effects.append(Complete(self._calls.pop(number), number))
        if not self._store.items("out "):
            effects.append(CancelTimer(_RETRY.name))
        return effects

    def _deliver(self, message: Any, now_us: int) -> Sequence[Effect]:
        sender, number = message["from"], message["number"]
        seen = self._store.get(f"seen {sender}") or 0
        effects: list[Effect] = []
        if message["after"] == seen:
            place = (self._store.get("place") or 0) + 1
            self._store.put("place", place)
            self._store.put(f"seen {sender}", number)
            self._store.crash_point("seen, not in the inbox")
            self._store.put(f"in {place:012d}", {"from": sender, "text": message["text"]})
            effects.append(Notify(self._app, {"from": sender, "text": message["text"]}))
            item = {"item": f"{sender} {number}", "receiver": self._me}
            times = {"created_us": message["created_us"], "delivered_us": now_us}
            effects.append(Record("deliveries", item | times))
            seen = number
        if number <= seen:
            told = {"kind": "delivered", "from": sender, "to": self._me, "number": number}
            effects.append(Send(self._relay, told))
        return effects

    def _hello(self) -> Sequence[Effect]:
        hello = {"kind": "hello", "device": self._me, "busy": bool(self._store.get("busy"))}
        waiting = [Send(self._relay, message) for _, message in self._store.items("out ")]
        return [Send(self._relay, hello), *waiting, *([_RETRY] if waiting else [])]
