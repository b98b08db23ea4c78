"""The relay of store and forward: a queue for each device, and the last message accepted of each sender.

Its rules:

===============  ===================================================================================
send             the next of its sender: into the receiver's queue, accepted; an old one is accepted
                 again; one that is too early will come again
hello            the device is at the address that it said hello from; deliver its queue, unless its
                 user is busy
delivered        out of the queue
timer            deliver again what was not acknowledged, as long as the device is there
send failed      the device is away until it says hello
===============  ===================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from mudkit.events import Effect, Event, Ports, Received, Send, SendFailed, SetTimer, TimerFired, size_bytes

__all__ = ["AGAIN_US", "AGAIN_US_PER_BYTE", "RelayMachine"]

AGAIN_US: Final = 5_000_000
AGAIN_US_PER_BYTE: Final = 400
"""As for the client: nothing is delivered again while it may still be on its way."""


class RelayMachine:
    """The server's machine.

    Its queues are in its store; which devices are where is not: they say hello again.

    Parameters
    ----------
    ports : Ports
    """

    def __init__(self, ports: Ports) -> None:
        self._store = ports.store
        self._addresses: dict[str, str] = {}
        self._under_way: Counter[str] = Counter()  # bytes sent to each device and not acknowledged

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source, message={"kind": "send"} as message):
                return self._accept(source, message)
            case Received(message={"kind": "delivered", "to": device, "from": sender, "number": number}):
                self._taken(device, _key(device, sender, number))
            case Received(source=source, message={"kind": "hello", "device": device, "busy": busy}):
                if not busy:
                    self._addresses[device] = source
                    return self._deliver(device)
                self._addresses.pop(device, None)
            case TimerFired(name=device) if device in self._addresses:
                return self._deliver(device)
            case SendFailed(to=address):
                for device in [each for each, where in self._addresses.items() if where == address]:
                    del self._addresses[device]
        return ()

    def _accept(self, source: str, message: Any) -> Sequence[Effect]:
        sender, device, number = message["from"], message["to"], message["number"]
        last = self._store.get(f"last {sender}") or 0
        effects: list[Effect] = []
        if number == last + 1:
            kept = {**message, "kind": "deliver", "after": self._store.get(f"last {sender}\n{device}") or 0}
            self._store.put(f"last {sender}", number)
            self._store.put(f"last {sender}\n{device}", number)
            self._store.crash_point("accepted, not in the queue")
            self._store.put(_key(device, sender, number), kept)
            if device in self._addresses:
                self._under_way[device] += size_bytes(kept)
                effects += [Send(self._addresses[device], kept), self._again(device)]
            last = number
        if number <= last:
            effects.append(Send(source, {"kind": "accepted", "key": message["key"], "number": number}))
        return effects

    def _deliver(self, device: str) -> Sequence[Effect]:
        address = self._addresses[device]
        waiting = [message for _, message in self._store.items(f"for {device}\n")]
        self._under_way[device] = sum(map(size_bytes, waiting))
        return [*(Send(address, message) for message in waiting), self._again(device)] if waiting else ()

    def _taken(self, device: str, key: str) -> None:
        message = self._store.get(key)
        if message is not None:
            self._store.delete(key)
            self._under_way[device] = max(self._under_way[device] - size_bytes(message), 0)

    def _again(self, device: str) -> SetTimer:
        return SetTimer(device, AGAIN_US + AGAIN_US_PER_BYTE * self._under_way[device])


def _key(device: str, sender: str, number: int) -> str:
    return f"for {device}\n{sender}\n{number:012d}"
