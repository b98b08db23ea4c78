"""The relay of store and forward: a queue for each device, and the last message accepted of each sender.

Its rules:

===============  ===================================================================================
send             the next of its sender's incarnation: into the receiver's queue, accepted; an old one is
                 accepted again; one that is too early will come again: its sender is told from which on
hello            the device is at the address that it said hello from; deliver its queue, unless its
                 user is busy; say welcome if asked to; one that is older than the last changes nothing;
                 of another incarnation than before: ask who lives there now (identify)
delivered        out of the queue
timer            deliver again what is overdue, and of its sender what came after it (the device has
                 taken none of that); other messages wait for deadlines of their own
send failed      the device is away until it says hello, or acknowledges what it is sent now and then
started          devices are where they were: deliver
===============  ===================================================================================

Numbers hold in one incarnation of a sender: a device that was wiped begins anew, and late copies of what it
has sent before are known. A receiver that was wiped gets what waits and what comes; what its former
incarnation has acknowledged is gone. **A relay that was wiped** has lost what waited in it. It goes on: a
sender's hello says which of its numbers comes first, and the relay notes in the incidents (``began anew``)
that it does not know the ones before. It finds devices when they say hello, and asks those for it that it
hears of otherwise; one that says nothing and keeps its network it cannot find.

Who has sent a message is what the network says. Whatever else is no message of a client is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mudkit.events import (
    Effect,
    Event,
    LinkUp,
    Ports,
    Received,
    Record,
    Send,
    SendFailed,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.systems.receiving import dropped
from mudkit.systems.store_and_forward.messages import FROM_CLIENT
from mudkit.systems.store_and_forward.servers.device_queue import FIRST_TRY_US, DeviceQueue

__all__ = ["RelayMachine"]

_LAST_TRY_US: Final = 1_800_000_000
"""A device that is away says hello when it is back; the hello may be lost. So it is tried, twice as late each
time, up to this."""


class RelayMachine:
    """The server's machine.

    Its queues, and where devices are, are in its store.

    Parameters
    ----------
    ports : Ports
    """

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._store = ports.store
        self._missed: dict[str, tuple[str, int]] = {}  # the last number that each sender was told is missing
        self._devices: dict[str, DeviceQueue] = {}
        self._at: dict[str, DeviceQueue] = {}
        for key, known in self._store.items("at "):
            device = self._devices[key[3:]] = DeviceQueue(key[3:], {}, known)
            if device.address is not None:
                self._at[device.address] = device
        for key, message in self._store.items("for "):
            self._device(message["to"]).queue[key] = message

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source):
                return self._received(now_us, source, event)
            case TimerFired(name=name):
                return self._overdue(now_us, self._devices[name])
            case SendFailed(to=address):
                return self._away(address)
            case LinkUp():
                waiting = (each for each in self._devices.values() if each.is_there and each.queue)
                return [effect for each in waiting for effect in self._deliver(now_us, each)]
        return ()

    def _received(self, now_us: int, source: str, event: Received) -> Sequence[Effect]:
        """Take what a client may say of itself; else drop it."""
        message, sender = event.message, event.sender
        if FROM_CLIENT(message):
            kind = message["kind"]
            if kind == "send" and message["from"] == sender:
                return self._accept(now_us, source, message)
            if kind == "delivered" and message["to"] == sender:
                return self._delivered(now_us, source, message)
            if kind == "hello" and message["device"] == sender:
                return self._hello(now_us, source, message)
        return dropped(event)

    def _device(self, name: str) -> DeviceQueue:
        return self._devices.get(name) or self._devices.setdefault(name, DeviceQueue(name, {}))

    # -- what senders say

    def _accept(self, now_us: int, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        sender, incarnation, number = message["from"], message["incarnation"], message["number"]
        numbered = f"last {sender}\n{incarnation}"
        last = self._store.get(numbered) or 0
        effects: list[Effect] = []
        if number == last + 1:
            device = self._device(message["to"])
            last_there = f"{numbered}\n{device.name}"
            kept = {
                "kind": "deliver",
                "number": number,
                "incarnation": incarnation,
                "key": message["key"],
                "from": sender,
                "to": device.name,
                "text": message["text"],
                "after": self._store.get(last_there) or 0,
            }
            key = _key(kept)
            self._store.put(numbered, number)
            self._store.put(last_there, number)
            self._store.crash_point("accepted, not in the queue")
            self._store.put(key, kept)
            device.queue[key] = kept
            if device.is_there:
                effects += self._send(now_us, device, [key])
            elif device.is_away and len(device.queue) == 1:
                effects.append(SetTimer(device.name, device.try_us))
            last = number
        if number <= last:
            answer = {"kind": "accepted", "number": number, "incarnation": incarnation, "key": message["key"]}
            effects.append(Send(source, answer))
        elif self._missed.get(sender) != (incarnation, last + 1):  # once: all that are too early say the same
            self._missed[sender] = incarnation, last + 1
            effects.append(Send(source, {"kind": "missing", "number": last + 1, "incarnation": incarnation}))
        return [*effects, *self._ask_unknown(self._device(sender), source)]

    def _ask_unknown(self, device: DeviceQueue, source: str) -> Sequence[Effect]:
        """Ask a device for its hello that should have said one."""
        return self._identify(device, source) if device.address is None else ()

    def _identify(self, device: DeviceQueue, source: str) -> Sequence[Effect]:
        if device.nonce is None:
            device.nonce = self._ports.entropy(4).hex()
        return (Send(source, {"kind": "identify", "nonce": device.nonce}),)

    # -- what receivers say

    def _hello(self, now_us: int, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        device, incarnation, said = self._device(message["device"]), message["incarnation"], message["number"]
        is_other = device.incarnation not in ("", incarnation)
        if is_other and (device.nonce is None or message.get("nonce") != device.nonce):
            return self._identify(device, source)
        answer = {"kind": "welcome", "number": said, "incarnation": incarnation}
        effects: list[Effect] = [Send(source, answer)] if message.get("answer") else []
        if incarnation == device.incarnation and said <= device.hello:
            return effects
        effects += self._begin_anew(message)
        if is_other:
            for key, _ in self._store.items(f"seen {device.name}\n"):
                self._store.delete(key)
        self._move(device, source)
        device.incarnation, device.nonce = incarnation, None
        device.hello, device.is_busy = said, message["busy"]
        self._store.put(f"at {device.name}", device.known())
        self._reached(device)
        return effects if device.is_busy else [*effects, *self._deliver(now_us, device)]

    def _begin_anew(self, message: Mapping[str, Any]) -> Sequence[Effect]:
        """Go on at the number at which a sender is, if the store does not know those before."""
        numbered = f"last {message['device']}\n{message['incarnation']}"
        last = self._store.get(numbered) or 0
        if message["first"] - 1 <= last:
            return ()
        self._store.put(numbered, message["first"] - 1)
        detail = f"messages of {message['device']} up to number {message['first'] - 1} are not known here"
        return (Record("incidents", {"incident": "began anew", "detail": detail}),)

    def _delivered(self, now_us: int, source: str, message: Mapping[str, Any]) -> Sequence[Effect]:
        device = self._device(message["to"])
        if message["receiver"] != device.incarnation:  # of a former one; or of the next, whose hello comes
            return self._ask_unknown(device, source)
        numbered, number = _seen(message), message["number"]
        if number > (self._store.get(numbered) or 0):
            self._store.put(numbered, number)
        key = _key(message)
        if device.queue.pop(key, None) is not None:
            self._store.delete(key)
        effects = device.deadlines.met(key)
        if device.is_away and device.address == source:
            self._reached(device)
            return [*effects, *self._deliver(now_us, device)]
        return effects

    # -- delivering

    def _deliver(self, now_us: int, device: DeviceQueue) -> list[Effect]:
        """Deliver all that waits."""
        device.deadlines.clear()
        return self._send(now_us, device, sorted(device.queue))

    def _send(self, now_us: int, device: DeviceQueue, keys: Iterable[str]) -> list[Effect]:
        effects: list[Effect] = []
        for key in keys:
            message = self._after_what_it_has(device, device.queue[key])
            effects.append(Send(str(device.address), message))
            effects += device.deadlines.set(key, now_us, size_bytes(message))
        return effects

    def _after_what_it_has(self, device: DeviceQueue, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Let a message follow what this incarnation of its receiver has, if the one before is gone."""
        after = message["after"]
        if after == 0 or _key({**message, "number": after}) in device.queue:
            return message
        seen = self._store.get(_seen(message)) or 0
        return message if seen == after else {**message, "after": seen}

    def _overdue(self, now_us: int, device: DeviceQueue) -> Sequence[Effect]:
        if device.is_away and device.queue:
            device.try_us = min(2 * device.try_us, _LAST_TRY_US)
            message = self._after_what_it_has(device, device.queue[min(device.queue)])
            return Send(str(device.address), message), SetTimer(device.name, device.try_us)
        if not device.is_there:
            return ()
        late, streams, again = set(device.deadlines.overdue(now_us)), set(), []
        for key in sorted(device.queue) if late else ():
            stream = key.rpartition("\n")[0]
            if key in late or stream in streams:
                streams.add(stream)
                again.append(key)
        return [*self._send(now_us, device, again), *device.deadlines.fired(now_us)]

    def _away(self, address: str) -> Sequence[Effect]:
        device = self._at.get(address)
        if device is None or device.is_away:
            return ()
        device.is_away = True
        device.deadlines.clear()
        return (SetTimer(device.name, device.try_us),) if device.queue else ()

    def _reached(self, device: DeviceQueue) -> None:
        device.is_away, device.try_us = False, FIRST_TRY_US

    def _move(self, device: DeviceQueue, address: str) -> None:
        """Let a device be at an address from now on; who was there before is there no more."""
        if device.address is not None and self._at.get(device.address) is device:
            del self._at[device.address]
        before = self._at.get(address)
        if before is not None:
            before.address = None
            self._store.put(f"at {before.name}", before.known())
        device.address = address
        self._at[address] = device


def _key(message: Mapping[str, Any]) -> str:
    """Give the key of a message in the queue of its receiver."""
    stream = f"{message['to']}\n{message['from']}\n{message['incarnation']}"
    return f"for {stream}\n{message['number']:019d}"


def _seen(message: Mapping[str, Any]) -> str:
    """Give the key of the last number that its receiver has acknowledged."""
    return f"seen {message['to']}\n{message['from']}\n{message['incarnation']}"
