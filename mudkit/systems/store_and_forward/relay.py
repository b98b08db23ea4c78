"""The relay of store and forward: a queue for each device, and the last message accepted of each sender.

Its rules:

===============  ===================================================================================
send             the next of its sender: into the receiver's queue, accepted; an old one is accepted
                 again; one that is too early will come again: its sender is told from which on
hello            the device is at the address that it said hello from; deliver its queue, unless its
                 user is busy; say welcome if asked to
delivered        out of the queue
timer            deliver again what was not acknowledged, as long as the device is there; what comes in
                 meanwhile puts it off, but not what is late
send failed      the device is away until it says hello
===============  ===================================================================================
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
        self._due_us: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """Until when each of them should be acknowledged, by key, the first first."""
        self._missed: dict[str, int] = {}  # the last number that each sender was told to be missing

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source, message={"kind": "send"} as message):
                return self._accept(now_us, source, message)
            case Received(message={"kind": "delivered", "to": device, "from": sender, "number": number}):
                self._taken(device, _key(device, sender, number))
            case Received(source=source, message={"kind": "hello", "device": device} as message):
                return self._hello(now_us, source, device, message)
            case TimerFired(name=device) if device in self._addresses:
                return self._deliver(now_us, device)
            case SendFailed(to=address):
                for device in [each for each, where in self._addresses.items() if where == address]:
                    del self._addresses[device]
        return ()

    def _accept(self, now_us: int, source: str, message: Any) -> Sequence[Effect]:
        sender, device, number = message["from"], message["to"], message["number"]
        last = self._store.get(f"last {sender}") or 0
        effects: list[Effect] = []
        if number == last + 1:
            kept = {**message, "kind": "deliver", "after": self._store.get(f"last {sender}\n{device}") or 0}
            key = _key(device, sender, number)
            self._store.put(f"last {sender}", number)
            self._store.put(f"last {sender}\n{device}", number)
            self._store.crash_point("accepted, not in the queue")
            self._store.put(key, kept)
            if self._is_late(now_us, device):
                effects += self._deliver(now_us, device)
            elif device in self._addresses:
                self._under_way[device] += size_bytes(kept)
                again = self._again(device)
                self._due_us[device][key] = now_us + again.delay_us
                effects += [Send(self._addresses[device], kept), again]
            last = number
        if number <= last:
            effects.append(Send(source, {"kind": "accepted", "key": message["key"], "number": number}))
        elif self._missed.get(sender) != last + 1:  # told once: the others that are too early say the same
            self._missed[sender] = last + 1
            effects.append(Send(source, {"kind": "missing", "number": last + 1}))
        return effects

    def _hello(self, now_us: int, source: str, device: str, message: Any) -> Sequence[Effect]:
        welcome = [Send(source, {"kind": "welcome"})] if message.get("answer") else []
        if message["busy"]:
            self._addresses.pop(device, None)
            return welcome
        self._addresses[device] = source
        return [*welcome, *self._deliver(now_us, device)]

    def _deliver(self, now_us: int, device: str) -> Sequence[Effect]:
        address = self._addresses[device]
        waiting = self._store.items(f"for {device}\n")
        self._under_way[device] = sum(size_bytes(message) for _, message in waiting)
        again = self._again(device)
        self._due_us[device] = dict.fromkeys((key for key, _ in waiting), now_us + again.delay_us)
        return [*(Send(address, message) for _, message in waiting), again] if waiting else ()

    def _taken(self, device: str, key: str) -> None:
        message = self._store.get(key)
        if message is not None:
            self._store.delete(key)
            self._under_way[device] = max(self._under_way[device] - size_bytes(message), 0)
            self._due_us[device].pop(key, None)

    def _is_late(self, now_us: int, device: str) -> bool:
        """Say whether something should have been acknowledged by now."""
        return device in self._addresses and now_us >= next(iter(self._due_us[device].values()), now_us + 1)

    def _again(self, device: str) -> SetTimer:
        return SetTimer(device, AGAIN_US + AGAIN_US_PER_BYTE * self._under_way[device])


def _key(device: str, sender: str, number: int) -> str:
    return f"for {device}\n{sender}\n{number:012d}"
