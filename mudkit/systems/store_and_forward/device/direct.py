"""The baseline of store and forward: a message goes straight to its receiver, once, and nobody keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.delivery.records import delivery
from mudkit.display import View
from mudkit.events import Call, Complete, Effect, Event, Ports, Received, Send
from mudkit.systems.receiving import dropped
from mudkit.systems.store_and_forward.messages import FROM_PEER, Message
from mudkit.systems.store_and_forward.operations import Read, Submit

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

    def overview(self) -> View:
        """Return what was not read, as a display shows it."""
        return View("", {"not read": len(self._unread)})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation=Submit(to=to, text=text, item=str(item))):
                sent = Send(f"{to}/{_PORT}", Message(key=item, text=text))
                return delivery(item, to, created_us=now_us), sent, Complete(op_id)
            case Call(op_id=op_id, operation=Read()):
                read = [delivery(item, self._me, read_us=now_us) for item in self._unread]
                self._unread.clear()
                return (*read, Complete(op_id, len(read)))
            case Received(source=source):
                message = FROM_PEER.decode(event.message)
                if message is None or not source.endswith(f"/{_PORT}"):
                    return dropped(event)
                self._unread.append(message.key)
                return (delivery(message.key, self._me, delivered_us=now_us),)
        return ()
