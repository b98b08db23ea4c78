"""The relay of store and forward: a queue for each device, and the last message accepted of each sender.

Its rules:

===============  ===================================================================================
send             the next of its sender: into the receiver's queue, accepted; an old one is accepted
                 again; one that is too early will come again
hello            deliver the device's queue, unless its user is busy
delivered        out of the queue
timer            deliver again what was not acknowledged, as long as the device is there
send failed      the device is away until it says hello
===============  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mudkit.events import Effect, Event, Ports, Received, Send, SendFailed, SetTimer, TimerFired

__all__ = ["AGAIN_US", "Relay"]

AGAIN_US: Final = 5_000_000


class Relay:
    """The server's machine.

    Its queues are in its store; which devices are there is not: they say hello again.

    Parameters
    ----------
    ports : Ports
    """

    def __init__(self, ports: Ports) -> None:
        self._store = ports.store
        self._there: set[str] = set()

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(message={"kind": "send"} as message):
                return self._accept(message)
            case Received(message={"kind": "delivered", "to": device, "from": sender, "number": number}):
                self._store.delete(_key(device, sender, number))
            case Received(message={"kind": "hello", "device": device, "busy": busy}):
                if not busy:
                    self._there.add(device)
                    return self._deliver(device)
                self._there.discard(device)
            case TimerFired(name=device) if device in self._there:
                return self._deliver(device)
            case SendFailed(to=device):
                self._there.discard(device)
        return ()

    def _accept(self, message: Any) -> Sequence[Effect]:
        sender, device, number = message["from"], message["to"], message["number"]
        last = self._store.get(f"last {sender}") or 0
        effects: list[Effect] = []
        if number == last + 1:
            kept = {**message, "kind": "deliver", "after": self._store.get(f"last {sender}\n{device}") or 0}
            self._store.put(f"last {sender}", number)
            self._store.put(f"last {sender}\n{device}", number)
            self._store.crash_point("accepted, not in the queue")
            self._store.put(_key(device, sender, number), kept)
            if device in self._there:
                effects += [Send(device, kept), SetTimer(device, AGAIN_US)]
            last = number
        if number <= last:
            effects.append(Send(sender, {"kind": "accepted", "number": number}))
        return effects

    def _deliver(self, device: str) -> Sequence[Effect]:
        waiting = [Send(device, message) for _, message in self._store.items(f"for {device}\n")]
        return [*waiting, SetTimer(device, AGAIN_US)] if waiting else ()


def _key(device: str, sender: str, number: int) -> str:
    return f"for {device}\n{sender}\n{number:012d}"
