"""The relay: one queue per device, and the last message accepted from each sender.

Rules:

===============  ===================================================================================
Send             the successor of the last one of its sender's incarnation: append to the receiver's
                 queue, acknowledge (Accepted). A duplicate: acknowledge. After a gap: Missing, once
Hello            of a new incarnation: Identify. Older than the last hello: ignore. Else store the address
                 that it comes from, and deliver the queue unless the user is busy. Welcome if requested
Delivered        remove from the queue
Lacks            the receiver's store is older than what it has acknowledged: deliver from there
timer            retransmit overdue deliveries, and later ones of the same sender, which the device cannot
                 have taken; other deliveries keep their deadlines
send failed      the device is away until its next hello, or until it acknowledges a probe
start            deliver to the stored addresses; Identify
===============  ===================================================================================

Sequence numbers are scoped to an incarnation of the sender: a wiped device starts again at 1, and late copies
of its former messages are recognized. A wiped receiver gets what is in the queue and what arrives later; what
its former incarnation has acknowledged is lost to it. **A wiped relay** has lost its queues. It resumes: the
hello of a sender carries the first number of its outbox, and the relay records in the incidents (``began
anew``) that it does not know the messages before. It finds devices by their hellos, and sends Identify to
those whose other messages arrive; it cannot find a device that sends nothing and keeps its link.

The network identifies the sender of a message. Anything that is not a valid message of a client is dropped
and recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mudkit.delivery.inbox import Inbox, Place
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Heard, Peer, rolled_back
from mudkit.display import View, first_rows
from mudkit.events import (
    Effect,
    Event,
    LinkUp,
    Ports,
    Received,
    Record,
    SendFailed,
    SetTimer,
    TimerFired,
    size_bytes,
)
from mudkit.events import Send as SendTo
from mudkit.systems.receiving import dropped
from mudkit.systems.store_and_forward.messages import (
    FROM_CLIENT,
    Accepted,
    Deliver,
    Delivered,
    Hello,
    Identify,
    Lacks,
    Missing,
    Send,
    Welcome,
)

__all__ = ["RelayMachine"]

_MIN_PROBE_US: Final = 60_000_000
"""Delay of the first probe of a device that is away; doubles with each probe."""
_MAX_PROBE_US: Final = 1_800_000_000
"""Upper bound of the delay. Probing recovers from the loss of the hello of a device that came back."""
_IDENTIFY: Final = ""
"""Key of an :class:`Identify` among a device's unacknowledged items; deliveries have non-empty keys."""


class _Last(msgspec.Struct, frozen=True):
    """Last message of a sender to a receiver. ``batch`` ranks its incarnation among the sender's."""

    incarnation: str
    batch: int
    seq: int


class _Stored(msgspec.Struct, frozen=True):
    """Stored state of a device: the address and content of its last hello."""

    address: str | None
    incarnation: str
    hello: int
    busy: bool


class DeviceQueue:
    """Queue of a device, its address, and its unacknowledged deliveries."""

    __slots__ = (
        "_batches", "address", "is_away", "is_busy", "name", "peer", "probe_us", "queue", "unanswered",
    )  # fmt: skip

    def __init__(self, name: str, stored: _Stored | None = None) -> None:
        self.name = name
        self.queue: dict[str, Deliver] = {}
        """Pending deliveries by store key, which sorts by sender, batch and number."""
        self._batches: dict[str, dict[str, tuple[int, int]]] = {}
        """Batch and number of pending deliveries, by sender and incarnation."""
        self.unanswered: RetransmitTimer[str] = RetransmitTimer(name)
        self.peer = Peer()
        self.address: str | None = None
        self.is_busy = self.is_away = False
        self.probe_us = _MIN_PROBE_US
        """Delay of the next probe while the device is away."""
        if stored is not None:
            self.address, self.is_busy = stored.address, stored.busy
            self.peer.take(stored.incarnation, stored.hello)

    @property
    def is_reachable(self) -> bool:
        """True if the device has an address and is neither busy nor away."""
        return self.address is not None and not self.is_busy and not self.is_away

    def stored_state(self) -> _Stored:
        """Return the state to be stored."""
        return _Stored(self.address, self.peer.incarnation, self.peer.seq, self.is_busy)

    def put(self, message: Deliver, batch: int) -> str:
        """Append a delivery; return its key.

        ``batch`` ranks the incarnation among those of its sender, unless some of it are already pending.
        """
        batches = self._batches.setdefault(message.sender, {})
        batch, count = batches.get(message.incarnation, (batch, 0))
        batches[message.incarnation] = batch, count + 1
        key = self.key(message)
        self.queue[key] = message
        return key

    def pop(self, key: str) -> Sequence[str]:
        """Remove a delivery; return the keys of those that become deliverable."""
        message = self.queue.pop(key)
        batches = self._batches[message.sender]
        batch, count = batches[message.incarnation]
        if count > 1:
            batches[message.incarnation] = batch, count - 1
            return ()
        del batches[message.incarnation]
        return [other for other in sorted(self.queue) if self.queue[other].sender == message.sender]

    def key(self, message: Deliver | Delivered, seq: int | None = None) -> str:
        """Return the store key of a message, or of another one of the same incarnation."""
        batch, _ = self._batches.get(message.sender, {}).get(message.incarnation, (0, 0))
        seq = message.seq if seq is None else seq
        return f"for {self.name}\n{message.sender}\n{batch:09d}\n{seq:019d}"

    def deliverable(self, keys: Iterable[str]) -> list[str]:
        """Filter keys: of each sender, only its oldest pending incarnation is deliverable."""
        deliverable = []
        for key in keys:
            message = self.queue[key]
            batches = self._batches[message.sender]
            if len(batches) == 1 or batches[message.incarnation][0] == min(batches.values())[0]:
                deliverable.append(key)
        return deliverable


class RelayMachine:
    """Machine of the relay.

    Parameters
    ----------
    ports : Ports
        Store and entropy of the host. The store holds the queues and the addresses of devices.
    """

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._store = ports.store
        self._accepted = Inbox(self._store, "last")
        self._delivered = Inbox(self._store, "seen")
        self._missed: dict[str, tuple[str, int]] = {}  # last Missing sent to each sender
        self._devices: dict[str, DeviceQueue] = {}
        self._at: dict[str, DeviceQueue] = {}
        for key, stored in self._store.items("at ", _Stored):
            device = self._devices[key[3:]] = DeviceQueue(key[3:], stored)
            if device.address is not None:
                self._at[device.address] = device
        for key, message in self._store.items("for ", Deliver):
            self._device(message.to).put(message, int(key.split("\n")[2]))

    def overview(self) -> View:
        """Return the queues for the display."""
        rows = (
            (device.name, device.address, device.is_reachable, len(device.queue))
            for device in self._devices.values()
        )
        columns = ("device", "address", "reached", "waiting")
        return View("", {"devices": len(self._devices)}, [first_rows(columns, rows, len(self._devices))])

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received():
                return self._received(now_us, event)
            case TimerFired(name=name):
                return self._retransmit(now_us, self._devices[name])
            case SendFailed(to=address):
                return self._send_failed(address)
            case LinkUp():
                return [
                    effect for device in self._devices.values() for effect in self._resume(now_us, device)
                ]
        return ()

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        source, sender = event.source, event.sender
        match FROM_CLIENT.decode(event.message):
            case Send(sender=name) as message if name == sender:
                return self._accept(now_us, source, message)
            case Delivered(to=name) as message if name == sender:
                return self._delivered_to(now_us, source, message)
            case Lacks(to=name) as message if name == sender:
                return self._redeliver(now_us, source, message)
            case Hello(device=name) as message if name == sender:
                return self._greeted(now_us, source, message)
        return dropped(event)

    def _device(self, name: str) -> DeviceQueue:
        return self._devices.get(name) or self._devices.setdefault(name, DeviceQueue(name))

    def _resume(self, now_us: int, device: DeviceQueue) -> Sequence[Effect]:
        """Deliver to the stored address of a device, and identify it: the store may be outdated."""
        delivered = self._deliver_all(now_us, device) if device.is_reachable else ()
        return [*delivered, *self._identify_until_answered(now_us, device)]

    def _identify_until_answered(self, now_us: int, device: DeviceQueue) -> Sequence[Effect]:
        if device.address is None:
            return ()
        return [*self._identify(device, device.address), *device.unanswered.sent(now_us, _IDENTIFY)]

    # -- from senders

    def _accept(self, now_us: int, source: str, message: Send) -> Sequence[Effect]:
        sender, life, seq = message.sender, message.incarnation, message.seq
        place = self._accepted.place(sender, life, seq)
        effects: list[Effect] = []
        if place is Place.NEXT:
            effects += self._enqueue(now_us, message)
        if place is not Place.EARLY:
            effects.append(SendTo(source, Accepted(seq=seq, incarnation=life, key=message.key)))
        else:
            next_seq = self._accepted.last_seq(sender, life) + 1
            if self._missed.get(sender) != (life, next_seq):  # once for all messages after the gap
                self._missed[sender] = life, next_seq
                effects.append(SendTo(source, Missing(seq=next_seq, incarnation=life)))
        device = self._device(sender)
        return [*effects, *self._identify(device, source)] if device.address != source else effects

    def _enqueue(self, now_us: int, message: Send) -> Sequence[Effect]:
        """Append the next message of a sender to the queue of its receiver."""
        device = self._device(message.to)
        last_there = f"sent {message.sender}\n{device.name}"
        last = self._store.get(last_there, _Last) or _Last("", 0, 0)
        if last.incarnation != message.incarnation:
            last = _Last(message.incarnation, last.batch + 1, 0)
        kept = Deliver(
            seq=message.seq,
            incarnation=message.incarnation,
            key=message.key,
            sender=message.sender,
            to=device.name,
            text=message.text,
            after=last.seq,
        )
        self._accepted.take(message.sender, message.incarnation, message.seq)
        self._store.put(last_there, msgspec.structs.replace(last, seq=message.seq))
        self._store.crash_point("accepted, not in the queue")
        key = device.put(kept, last.batch)
        self._store.put(key, kept)
        if device.is_reachable:
            return self._send(now_us, device, [key])
        return (SetTimer(device.name, device.probe_us),) if device.is_away and len(device.queue) == 1 else ()

    def _identify(self, device: DeviceQueue, source: str) -> Sequence[Effect]:
        return (SendTo(source, Identify(device.peer.ask(self._ports.entropy))),)

    # -- from receivers

    def _greeted(self, now_us: int, source: str, message: Hello) -> Sequence[Effect]:
        device, life, seq = self._device(message.device), message.incarnation, message.seq
        heard = device.peer.hear(life, seq, None if message.nonce is msgspec.UNSET else message.nonce)
        if heard is Heard.STRANGER:
            return self._identify(device, source)
        is_asked = message.answer is not msgspec.UNSET and message.answer
        effects: list[Effect] = [SendTo(source, Welcome(seq=seq, incarnation=life))] if is_asked else []
        if heard is Heard.STALE:
            return effects
        effects += self._resume_sender(message)
        self._move(device, source)
        device.peer.take(life, seq)
        device.is_busy = message.busy
        self._store.put(f"at {device.name}", device.stored_state())
        self._reached(device)
        return effects if device.is_busy else [*effects, *self._deliver_all(now_us, device)]

    def _resume_sender(self, message: Hello) -> Sequence[Effect]:
        """Resume at the sender's first pending number if this store lacks the ones before."""
        before = message.first - 1
        oldest = message.incarnation if message.oldest is msgspec.UNSET else message.oldest
        if before <= self._accepted.last_seq(message.device, oldest):
            return ()
        self._accepted.take(message.device, oldest, before)
        detail = f"messages of {message.device} up to number {before} are not known here"
        return (Record("incidents", {"incident": "began anew", "detail": detail}),)

    def _delivered_to(self, now_us: int, source: str, message: Delivered) -> Sequence[Effect]:
        device = self._device(message.to)
        if message.receiver != device.peer.incarnation:  # a former incarnation, or one whose hello is late
            return self._identify(device, source)
        self._delivered.take(*_stream(message), message.seq)
        key = device.key(message)
        effects = [*device.unanswered.answered(now_us, key)]
        following: Sequence[str] = ()
        if key in device.queue:
            following = device.pop(key)
            self._store.delete(key)
        if device.is_away and device.address == source:
            self._reached(device)
            return [*effects, *self._deliver_all(now_us, device)]
        return [*effects, *self._send(now_us, device, following)] if device.is_reachable else effects

    def _redeliver(self, now_us: int, source: str, message: Lacks) -> Sequence[Effect]:
        """Redeliver what follows the last message in the receiver's store."""
        device = self._device(message.to)
        if message.receiver != device.peer.incarnation:
            return self._identify(device, source)
        last_seq = self._delivered.last_seq(*_stream(message))
        if last_seq <= message.seq:
            return ()  # the predecessor is in flight, with its own deadline
        self._delivered.rewind(*_stream(message), message.seq)
        lost = f"messages of {message.sender} from number {message.seq + 1} to {last_seq} are gone"
        return [
            rolled_back(device.name, lost),
            *(self._deliver_all(now_us, device) if device.is_reachable else ()),
        ]

    # -- delivering

    def _deliver_all(self, now_us: int, device: DeviceQueue) -> list[Effect]:
        stop = device.unanswered.clear()
        sent = self._send(now_us, device, sorted(device.queue))
        return sent or list(stop)

    def _send(self, now_us: int, device: DeviceQueue, keys: Iterable[str]) -> list[Effect]:
        effects: list[Effect] = []
        for key in device.deliverable(keys):
            message = self._with_predecessor(device, device.queue[key])
            effects.append(SendTo(str(device.address), message))
            effects += device.unanswered.sent(now_us, key, size_bytes(message))
        return effects

    def _with_predecessor(self, device: DeviceQueue, message: Deliver) -> Deliver:
        """Set the predecessor to the last delivered message if the original is gone."""
        after = message.after
        if after == 0 or device.key(message, after) in device.queue:
            return message
        seen = self._delivered.last_seq(*_stream(message))
        return message if seen == after else msgspec.structs.replace(message, after=seen)

    def _retransmit(self, now_us: int, device: DeviceQueue) -> Sequence[Effect]:
        if device.is_away and device.queue:
            device.probe_us = min(2 * device.probe_us, _MAX_PROBE_US)
            message = self._with_predecessor(device, device.queue[min(device.queue)])
            return SendTo(str(device.address), message), SetTimer(device.name, device.probe_us)
        if device.address is None:
            return ()
        late = set(device.unanswered.overdue(now_us))
        identify = self._identify_until_answered(now_us, device) if _IDENTIFY in late else ()
        streams, again = set(), []
        for key in sorted(device.queue) if late and device.is_reachable else ():
            stream = key.rpartition("\n")[0]
            if key in late or stream in streams:
                streams.add(stream)
                again.append(key)
        return [*identify, *self._send(now_us, device, again), *device.unanswered.fired(now_us)]

    def _send_failed(self, address: str) -> Sequence[Effect]:
        device = self._at.get(address)
        if device is None or device.is_away:
            return ()
        device.is_away = True
        device.unanswered.clear()
        return (SetTimer(device.name, device.probe_us),) if device.queue else ()

    def _reached(self, device: DeviceQueue) -> None:
        device.is_away, device.probe_us = False, _MIN_PROBE_US

    def _move(self, device: DeviceQueue, address: str) -> None:
        """Assign an address to a device; its previous owner loses it."""
        if device.address is not None and self._at.get(device.address) is device:
            del self._at[device.address]
        before = self._at.get(address)
        if before is not None:
            before.address = None
            self._store.put(f"at {before.name}", before.stored_state())
        device.address = address
        self._at[address] = device


def _stream(message: Deliver | Delivered | Lacks) -> tuple[str, str]:
    """Return receiver and sender, and the sender's incarnation: the scope of sequence numbers."""
    return f"{message.to}\n{message.sender}", message.incarnation
