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

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mudkit.delivery.inbox import Inbox, Place
from mudkit.delivery.session import Heard, rolled_back
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
from mudkit.systems.store_and_forward.servers.device_queue import FIRST_TRY_US, QUESTION, DeviceQueue, Known

__all__ = ["RelayMachine"]

_LAST_TRY_US: Final = 1_800_000_000
"""A device that is away says hello when it is back; the hello may be lost. So it is tried, twice as late each
time, up to this."""


class _Last(msgspec.Struct, frozen=True):
    """The last message of a sender to a receiver.

    Parameters
    ----------
    incarnation : str
    batch : int
        Rank of the incarnation among those in which the sender has sent something to this receiver.
    seq : int
    """

    incarnation: str
    batch: int
    seq: int


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
        self._accepted = Inbox(self._store, "last")
        self._delivered = Inbox(self._store, "seen")
        self._missed: dict[str, tuple[str, int]] = {}  # the last number that each sender was told is missing
        self._devices: dict[str, DeviceQueue] = {}
        self._at: dict[str, DeviceQueue] = {}
        for key, known in self._store.items("at ", Known):
            device = self._devices[key[3:]] = DeviceQueue(key[3:], known)
            if device.address is not None:
                self._at[device.address] = device
        for key, message in self._store.items("for ", Deliver):
            self._device(message.to).put(message, int(key.split("\n")[2]))

    def overview(self) -> View:
        """Return the queues, as a display shows them."""
        rows = (
            (device.name, device.address, device.is_there, len(device.queue))
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
                return self._overdue(now_us, self._devices[name])
            case SendFailed(to=address):
                return self._away(address)
            case LinkUp():
                return [effect for each in self._devices.values() for effect in self._start(now_us, each)]
        return ()

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Take what a client may say of itself; else drop it."""
        source, sender = event.source, event.sender
        match FROM_CLIENT.decode(event.message):
            case Send(sender=name) as message if name == sender:
                return self._accept(now_us, source, message)
            case Delivered(to=name) as message if name == sender:
                return self._take_delivered(now_us, source, message)
            case Lacks(to=name) as message if name == sender:
                return self._lacks(now_us, source, message)
            case Hello(device=name) as message if name == sender:
                return self._hello(now_us, source, message)
        return dropped(event)

    def _device(self, name: str) -> DeviceQueue:
        return self._devices.get(name) or self._devices.setdefault(name, DeviceQueue(name))

    def _start(self, now_us: int, device: DeviceQueue) -> Sequence[Effect]:
        """Deliver to a device where it was, and ask it for a hello: this store may be an old one."""
        delivered = self._deliver(now_us, device) if device.is_there else ()
        return [*delivered, *self._question(now_us, device)]

    def _question(self, now_us: int, device: DeviceQueue) -> Sequence[Effect]:
        if device.address is None:
            return ()
        return [*self._identify(device, device.address), *device.unanswered.sent(now_us, QUESTION)]

    # -- what senders say

    def _accept(self, now_us: int, source: str, message: Send) -> Sequence[Effect]:
        sender, life, seq = message.sender, message.incarnation, message.seq
        place = self._accepted.place(sender, life, seq)
        effects: list[Effect] = []
        if place is Place.NEXT:
            effects += self._queue(now_us, message)
        if place is not Place.EARLY:
            effects.append(SendTo(source, Accepted(seq=seq, incarnation=life, key=message.key)))
        else:
            next_seq = self._accepted.last_seq(sender, life) + 1
            if self._missed.get(sender) != (life, next_seq):  # once: all that are too early say the same
                self._missed[sender] = life, next_seq
                effects.append(SendTo(source, Missing(seq=next_seq, incarnation=life)))
        device = self._device(sender)
        return [*effects, *self._identify(device, source)] if device.address != source else effects

    def _queue(self, now_us: int, message: Send) -> Sequence[Effect]:
        """Put the next message of a sender into the queue of its receiver."""
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
        if device.is_there:
            return self._send(now_us, device, [key])
        return (SetTimer(device.name, device.try_us),) if device.is_away and len(device.queue) == 1 else ()

    def _identify(self, device: DeviceQueue, source: str) -> Sequence[Effect]:
        return (SendTo(source, Identify(device.peer.ask(self._ports.entropy))),)

    # -- what receivers say

    def _hello(self, now_us: int, source: str, message: Hello) -> Sequence[Effect]:
        device, life, seq = self._device(message.device), message.incarnation, message.seq
        heard = device.peer.hear(life, seq, None if message.nonce is msgspec.UNSET else message.nonce)
        if heard is Heard.STRANGER:
            return self._identify(device, source)
        is_asked = message.answer is not msgspec.UNSET and message.answer
        effects: list[Effect] = [SendTo(source, Welcome(seq=seq, incarnation=life))] if is_asked else []
        if heard is Heard.STALE:
            return effects
        effects += self._begin_anew(message)
        self._move(device, source)
        device.peer.take(life, seq)
        device.is_busy = message.busy
        self._store.put(f"at {device.name}", device.known())
        self._reached(device)
        return effects if device.is_busy else [*effects, *self._deliver(now_us, device)]

    def _begin_anew(self, message: Hello) -> Sequence[Effect]:
        """Go on at the number at which a sender is, if the store does not know those before."""
        before = message.first - 1
        oldest = message.incarnation if message.oldest is msgspec.UNSET else message.oldest
        if before <= self._accepted.last_seq(message.device, oldest):
            return ()
        self._accepted.take(message.device, oldest, before)
        detail = f"messages of {message.device} up to number {before} are not known here"
        return (Record("incidents", {"incident": "began anew", "detail": detail}),)

    def _take_delivered(self, now_us: int, source: str, message: Delivered) -> Sequence[Effect]:
        device = self._device(message.to)
        if message.receiver != device.peer.incarnation:  # of a former one; or of the next, whose hello comes
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
            return [*effects, *self._deliver(now_us, device)]
        return [*effects, *self._send(now_us, device, following)] if device.is_there else effects

    def _lacks(self, now_us: int, source: str, message: Lacks) -> Sequence[Effect]:
        """Deliver what waits after the last message of a sender that a receiver has kept."""
        device = self._device(message.to)
        if message.receiver != device.peer.incarnation:
            return self._identify(device, source)
        last_seq = self._delivered.last_seq(*_stream(message))
        if last_seq <= message.seq:
            return ()  # what is before it waits for its own deadline
        self._delivered.rewind(*_stream(message), message.seq)
        lost = f"messages of {message.sender} from number {message.seq + 1} to {last_seq} are gone"
        return [rolled_back(device.name, lost), *(self._deliver(now_us, device) if device.is_there else ())]

    # -- delivering

    def _deliver(self, now_us: int, device: DeviceQueue) -> list[Effect]:
        """Deliver all that waits."""
        stop = device.unanswered.clear()
        sent = self._send(now_us, device, sorted(device.queue))
        return sent or list(stop)

    def _send(self, now_us: int, device: DeviceQueue, keys: Iterable[str]) -> list[Effect]:
        effects: list[Effect] = []
        for key in device.deliverable(keys):
            message = self._after_what_it_has(device, device.queue[key])
            effects.append(SendTo(str(device.address), message))
            effects += device.unanswered.sent(now_us, key, size_bytes(message))
        return effects

    def _after_what_it_has(self, device: DeviceQueue, message: Deliver) -> Deliver:
        """Make a message follow the last one of its receiver, if the one before is not in the queue."""
        after = message.after
        if after == 0 or device.key(message, after) in device.queue:
            return message
        seen = self._delivered.last_seq(*_stream(message))
        return message if seen == after else msgspec.structs.replace(message, after=seen)

    def _overdue(self, now_us: int, device: DeviceQueue) -> Sequence[Effect]:
        if device.is_away and device.queue:
            device.try_us = min(2 * device.try_us, _LAST_TRY_US)
            message = self._after_what_it_has(device, device.queue[min(device.queue)])
            return SendTo(str(device.address), message), SetTimer(device.name, device.try_us)
        if device.address is None:
            return ()
        late = set(device.unanswered.overdue(now_us))
        asked = self._question(now_us, device) if QUESTION in late else ()
        streams, again = set(), []
        for key in sorted(device.queue) if late and device.is_there else ():
            stream = key.rpartition("\n")[0]
            if key in late or stream in streams:
                streams.add(stream)
                again.append(key)
        return [*asked, *self._send(now_us, device, again), *device.unanswered.fired(now_us)]

    def _away(self, address: str) -> Sequence[Effect]:
        device = self._at.get(address)
        if device is None or device.is_away:
            return ()
        device.is_away = True
        device.unanswered.clear()
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


def _stream(message: Deliver | Delivered | Lacks) -> tuple[str, str]:
    """Return whose messages to whom these are, and of which incarnation of the sender."""
    return f"{message.to}\n{message.sender}", message.incarnation
