"""The baseline of store and forward: a message goes straight to its receiver, once, and nobody keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.events import Call, Complete, Effect, Event, Ports, Received, Record, Send
from mudkit.systems.receiving import dropped
from mudkit.systems.store_and_forward.messages import FROM_PEER

__all__ = ["DirectMachine"]

_NAME: Final = "direct"
_PORT: Final = "direct"


class DirectMachine:
    """One device's machine: what cannot be sent now is lost.

    Parameters
    ----------
    ports : Ports
    me : str
        Its name, which begins its address as long as the device does not move.
    """

    def __init__(self, ports: Ports, me: str) -> None:
        self._me = me
        self._unread: list[str] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation="send", arguments={"to": to, "text": text, "item": item}):
                created = self._happened("created_us", item, to, now_us)
                return (
                    created,
                    Send(f"{to}/{_PORT}", {"kind": "message", "key": item, "text": text}),
                    Complete(op_id),
                )
            case Call(op_id=op_id, operation="read"):
                read = [self._happened("read_us", item, self._me, now_us) for item in self._unread]
                self._unread.clear()
                return (*read, Complete(op_id, len(read)))
            case Received(source=source, message=message):
                if not source.endswith(f"/{_PORT}") or not FROM_PEER(message):
                    return dropped(event)
                item = message["key"]
                self._unread.append(item)
                return (self._happened("delivered_us", item, self._me, now_us),)
        return ()

    def _happened(self, what: str, item: str, receiver: str, now_us: int) -> Record:
        return Record("deliveries", {"item": item, "receiver": receiver, what: now_us})
