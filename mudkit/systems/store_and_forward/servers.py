"""The relay: one queue per device, and the last message accepted from each sender.

Rules:

===============  ===================================================================================
Upload           from the sender's incarnation, or that of its oldest message, and the successor of the last
                 one: append to the receiver's queue, acknowledge (UploadAck). A duplicate: acknowledge.
                 After a gap: UploadGap, once. Of another incarnation: ignore
Hello            of a new incarnation, or from the address of another device: Identify. Older than the last
                 hello: ignore. Else store the address that it comes from, and deliver the queue unless the
                 user is busy. Welcome if requested. Identify to a device that loses its address
DeliveryAck      remove from the queue
DeliveryGap      the receiver's store is older than what it has acknowledged: record what is
                 lost, and send its queue again
timer            retransmit overdue deliveries, and later ones of the same sender, which the device cannot
                 have taken; other deliveries keep their deadlines
send failed      the device is away until its next hello, or until it acknowledges a probe. So is one that
                 has lost its address: it is probed there with Identify
start            Identify to the stored addresses. Nothing of a device is believed, and nothing is delivered
                 to it, before it has answered
===============  ===================================================================================

Sequence numbers are scoped to an incarnation of the sender: a wiped device starts again at 1, and late copies
of its former messages are recognized. A wiped receiver gets what is in the queue and what arrives later; what
its former incarnation has acknowledged is lost to it. Messages to a device that has had another incarnation
name the present one, so that a late copy of a delivery to the former one has no effect. **A wiped relay** has
lost its queues. It resumes: the hello of a sender carries the first number of its outbox, and the relay
records in the incidents (``began anew``) that it does not know the messages before. It finds devices by their
hellos, and sends Identify to those whose other messages arrive; it cannot find a device that sends nothing
and keeps its link, and it takes a late copy of a hello for the first one until the device sends its own. That
a device has had another incarnation it learns from the hello; if the device was wiped, too, nobody knows it,
and a late copy of a delivery counts: both are as at their first start, when messages name no incarnation.

The network identifies the sender of a message. Anything that is not a valid message of a client is dropped
and recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from mudkit.delivery.inbox import MAX_INCARNATIONS, Inbox, ItemOrder
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import HelloVerdict, Peer, rollback_incident
from mudkit.display import View, first_rows
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
from mudkit.systems.receiving import record_dropped
from mudkit.systems.store_and_forward.messages import (
    FROM_CLIENT,
    Deliver,
    DeliveryAck,
    DeliveryGap,
    Hello,
    Identify,
    Upload,
    UploadAck,
    UploadGap,
    Welcome,
)

_MIN_PROBE_US: Final = 60_000_000
"""Delay of the first probe of a device that is away; doubles with each probe."""
_MAX_PROBE_US: Final = 1_800_000_000
"""Upper bound of the delay. Probing recovers from the loss of the hello of a device that came back."""
_IDENTIFY: Final = ""
"""Key of an :class:`Identify` among a device's unacknowledged items; deliveries have non-empty keys."""


_AT: Final = "at "
"""Prefix of the store keys of addresses."""


class _LastIncarnation(msgspec.Struct, frozen=True):
    """Last incarnation of a sender that has sent to a receiver; ``batch`` ranks it among the sender's."""

    incarnation: str
    batch: int


class _PendingBatch(NamedTuple):
    """Pending deliveries of one incarnation of a sender: its rank, their count, the number of the last."""

    batch: int
    total: int
    last_number: int


class DeviceQueue:
    """Queue of a device, its address, and its unacknowledged deliveries."""

    __slots__ = (
        "_batches", "acked", "address", "has_other", "in_flight", "is_away", "is_busy", "name",
        "oldest", "peer", "probe_us", "queue",
    )  # fmt: skip

    def __init__(self, name: str, address: str | None = None) -> None:
        self.name = name
        self.address = address
        self.queue: dict[str, Deliver] = {}
        """Pending deliveries by store key, which sorts by sender, batch and number."""
        self._batches: dict[str, dict[str, _PendingBatch]] = {}
        """Pending deliveries by sender and incarnation."""
        self.in_flight: RetransmitTimer[str] = RetransmitTimer(name)
        self.peer = Peer()
        self.oldest = ""
        """Incarnation of its oldest message, as of its last hello."""
        self.has_other = False
        """True if it may have had another incarnation."""
        self.acked: dict[str, dict[str, int]] = {}
        """Last delivery that this incarnation has acknowledged, by sender and its last incarnations."""
        self.is_busy = self.is_away = False
        self.probe_us = _MIN_PROBE_US
        """Delay of the next probe while the device is away."""

    @property
    def is_known(self) -> bool:
        """True if an incarnation of the device has identified itself since the start of the relay."""
        return bool(self.peer.incarnation)

    @property
    def receiver(self) -> str | msgspec.UnsetType:
        """Incarnation that messages to the device name; UNSET: it has had no other."""
        return self.peer.incarnation if self.has_other else msgspec.UNSET

    @property
    def is_reachable(self) -> bool:
        """True if the device is known, has an address, and is neither busy nor away."""
        return self.is_known and self.address is not None and not self.is_busy and not self.is_away

    def append(self, message: Deliver, batch: int) -> str:
        """Append a delivery; return its store key.

        ``batch`` ranks the incarnation among those of its sender, unless some of it are already pending.
        """
        batches = self._batches.setdefault(message.sender, {})
        pending = batches.get(message.incarnation, _PendingBatch(batch, 0, 0))
        batches[message.incarnation] = _PendingBatch(pending.batch, pending.total + 1, message.number)
        key = self.store_key(message)
        self.queue[key] = message
        return key

    def record_ack(self, delivered: DeliveryAck) -> None:
        """Record that this incarnation of the device has acknowledged a delivery."""
        acked = self.acked.setdefault(delivered.sender, {})
        acked[delivered.incarnation] = max(acked.get(delivered.incarnation, 0), delivered.number)
        if len(acked) > MAX_INCARNATIONS:
            del acked[next(iter(acked))]

    def last_number(self, sender: str, incarnation: str) -> int:
        """Return the number of the last pending delivery of a sender's incarnation; 0: none."""
        pending = self._batches.get(sender, {}).get(incarnation)
        return 0 if pending is None else pending.last_number

    def remove(self, key: str) -> Sequence[str]:
        """Remove a delivery; return the sender's keys if its next incarnation becomes deliverable."""
        message = self.queue.pop(key)
        batches = self._batches[message.sender]
        pending = batches[message.incarnation]
        if pending.total > 1:
            batches[message.incarnation] = pending._replace(total=pending.total - 1)
            return ()
        del batches[message.incarnation]
        return [other for other in sorted(self.queue) if self.queue[other].sender == message.sender]

    def store_key(self, message: Deliver | DeliveryAck, number: int | None = None) -> str:
        """Return the store key of a message, or of another one of its incarnation, if any is pending."""
        pending = self._batches.get(message.sender, {}).get(message.incarnation)
        batch = 0 if pending is None else pending.batch
        number = message.number if number is None else number
        return f"for {self.name}\n{message.sender}\n{batch:09d}\n{number:019d}"

    def filter_deliverable(self, keys: Iterable[str]) -> list[str]:
        """Return those keys that may be sent: of each sender, those of its oldest pending incarnation."""
        deliverable = []
        for key in keys:
            message = self.queue[key]
            batches = self._batches[message.sender]
            if len(batches) == 1 or batches[message.incarnation].batch == min(batches.values()).batch:
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
        self._missed: dict[str, tuple[str, int]] = {}  # last UploadGap sent to each sender
        self._devices: dict[str, DeviceQueue] = {}
        self._at: dict[str, DeviceQueue] = {}
        self._is_restarted: bool = self._store.get("started", bool) or False
        for key, address in self._store.items(_AT, str):
            self._at[address] = self._find_or_create_device(key.removeprefix(_AT))
            self._at[address].address = address
        for key, message in self._store.items("for ", Deliver):
            self._find_or_create_device(message.to).append(message, int(key.split("\n")[2]))

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
                return self._receive_message(now_us, event)
            case TimerFired(name=name):
                return self._retransmit(now_us, self._devices[name])
            case SendFailed(to=address):
                return self._receive_send_failed(address)
            case LinkUp():
                self._store.put("started", True)
                devices = list(self._devices.values())
                return [
                    effect for device in devices for effect in self._identify_until_answered(now_us, device)
                ]
        return ()

    def _receive_message(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Handle a message of a client; drop one that names another device than its sender."""
        source, sender = event.source, event.sender
        match FROM_CLIENT.decode(event.message):
            case Upload(sender=name) as message if name == sender:
                return self._receive_upload(now_us, source, message)
            case DeliveryAck(to=name) as message if name == sender:
                return self._receive_delivery_ack(now_us, source, message)
            case DeliveryGap(to=name) as message if name == sender:
                return self._receive_delivery_gap(now_us, source, message)
            case Hello(device=name) as message if name == sender:
                return self._receive_hello(now_us, source, message)
        return record_dropped(event)

    def _find_or_create_device(self, name: str) -> DeviceQueue:
        """Return the queue of a device, a new one if it is not known."""
        device = self._devices.get(name)
        if device is None:
            device = self._devices[name] = DeviceQueue(name)
            if self._is_restarted:  # it may have been known before
                device.has_other = True
                device.peer.open_question(self._ports.entropy)
        return device

    def _identify_until_answered(self, now_us: int, device: DeviceQueue) -> Sequence[Effect]:
        """Send a device an Identify at its stored address, until it says hello."""
        if device.address is None:
            return ()
        return [*self._send_identify(device, device.address), *device.in_flight.start(now_us, _IDENTIFY)]

    # -- from senders

    def _receive_upload(self, now_us: int, source: str, message: Upload) -> Sequence[Effect]:
        """Queue a message if it is the next one of its sender; acknowledge it, or report a gap."""
        sender, incarnation, number = message.sender, message.incarnation, message.number
        device = self._find_or_create_device(sender)
        if incarnation not in (device.peer.incarnation, device.oldest):
            return self._identify_if_unknown(device, source)
        place = self._accepted.classify(sender, incarnation, number)
        effects = self._add_to_queue(now_us, message) if place is ItemOrder.NEXT else ()
        if place is not ItemOrder.EARLY:
            accepted = UploadAck(
                number=number, incarnation=incarnation, key=message.key, receiver=device.receiver
            )
            return *effects, Send(source, accepted)
        next_number = self._accepted.last_number(sender, incarnation) + 1
        if self._missed.get(sender) == (incarnation, next_number):  # once for all messages after the gap
            return ()
        self._missed[sender] = incarnation, next_number
        return (
            Send(source, UploadGap(number=next_number, incarnation=incarnation, receiver=device.receiver)),
        )

    def _add_to_queue(self, now_us: int, message: Upload) -> Sequence[Effect]:
        """Append the next message of a sender to the queue of its receiver."""
        device = self._find_or_create_device(message.to)
        last_there = f"sent {message.sender}\n{device.name}"
        last = self._store.get(last_there, _LastIncarnation) or _LastIncarnation("", 0)
        if last.incarnation != message.incarnation:
            last = _LastIncarnation(message.incarnation, last.batch + 1)
            self._store.put(last_there, last)
        stream = message.sender, message.incarnation
        delivery = Deliver(
            number=message.number,
            incarnation=message.incarnation,
            key=message.key,
            sender=message.sender,
            to=device.name,
            text=message.text,
            after=device.last_number(*stream)
            or self._delivered.last_number(f"{device.name}\n{stream[0]}", stream[1]),
        )
        self._accepted.mark_taken(*stream, message.number)
        self._store.crash_point("accepted, not in the queue")
        key = device.append(delivery, last.batch)
        self._store.put(key, delivery)
        if device.is_reachable:
            return self._send_deliveries(now_us, device, [key])
        return (SetTimer(device.name, device.probe_us),) if device.is_away and len(device.queue) == 1 else ()

    def _identify_if_unknown(self, device: DeviceQueue, source: str) -> Sequence[Effect]:
        """Send an Identify, unless the device is known: then the message is ignored as a late copy."""
        return () if device.is_known else self._send_identify(device, source)

    def _send_identify(self, device: DeviceQueue, source: str) -> Sequence[Effect]:
        """Send an Identify to an address: the device there is to say hello with its nonce."""
        return (Send(source, Identify(device.peer.open_question(self._ports.entropy))),)

    # -- from receivers

    def _receive_hello(self, now_us: int, source: str, message: Hello) -> Sequence[Effect]:
        """Store the address of a device, and deliver its queue, unless the hello may be a late copy."""
        device = self._find_or_create_device(message.device)
        incarnation, seq = message.incarnation, message.seq
        is_elsewhere = self._at.get(source, device) is not device
        nonce = None if message.nonce is msgspec.UNSET else message.nonce
        heard = device.peer.judge_hello(incarnation, seq, nonce, is_elsewhere=is_elsewhere)
        if heard is HelloVerdict.STRANGER:
            if device.is_known or is_elsewhere:
                return self._send_identify(device, source)
            self._assign_address(device, source)  # its stored address may be outdated
            return self._identify_until_answered(now_us, device)
        if incarnation != device.peer.incarnation:
            device.has_other |= device.is_known
            device.acked.clear()
        device.has_other |= message.another is True
        effects: list[Effect] = []
        if message.answer is True:
            another: Literal[True] | msgspec.UnsetType = True if device.has_other else msgspec.UNSET
            effects.append(Send(source, Welcome(seq=seq, incarnation=incarnation, another=another)))
        if heard is HelloVerdict.STALE:
            return effects
        effects += self._resume_sender(message)
        effects += self._assign_address(device, source)
        self._store.put(_AT + device.name, source)
        device.peer.accept_hello(incarnation, seq)
        device.oldest = incarnation if message.oldest is msgspec.UNSET else message.oldest
        device.is_busy = message.busy
        if device.is_busy:
            return [*effects, *device.in_flight.settle(now_us, _IDENTIFY)]
        return [*effects, *self._deliver_all(now_us, device)]

    def _resume_sender(self, message: Hello) -> Sequence[Effect]:
        """Continue at the first number in a sender's outbox if this store lacks earlier ones: an incident."""
        before = message.first - 1
        oldest = message.incarnation if message.oldest is msgspec.UNSET else message.oldest
        if before <= self._accepted.last_number(message.device, oldest):
            return ()
        self._accepted.mark_taken(message.device, oldest, before)
        detail = f"messages of {message.device} up to number {before} are not known here"
        return (Record("incidents", {"incident": "began anew", "detail": detail}),)

    def _receive_delivery_ack(self, now_us: int, source: str, message: DeliveryAck) -> Sequence[Effect]:
        """Remove a delivery from the queue; the device is reached again if it was away."""
        device = self._find_or_create_device(message.to)
        if message.receiver != device.peer.incarnation:  # a former incarnation, or one whose hello is late
            return self._identify_if_unknown(device, source)
        self._delivered.mark_taken(*_stream_of(message), message.number)
        device.record_ack(message)
        key = device.store_key(message)
        effects = [*device.in_flight.settle(now_us, key)]
        following: Sequence[str] = ()
        if key in device.queue:
            following = device.remove(key)
            self._store.delete(key)
        if device.is_away and self._at.get(source) is device:
            self._mark_reached(device)
            return [*effects, *self._deliver_all(now_us, device)]
        if not device.is_reachable:
            return effects
        return [*effects, *self._send_deliveries(now_us, device, following)]

    def _receive_delivery_gap(self, now_us: int, source: str, message: DeliveryGap) -> Sequence[Effect]:
        """Send the queue of a receiver again that lacks what it has acknowledged: its store was restored.

        What it lacks is recorded as lost. Otherwise the gap means that the predecessor is in flight.
        """
        device = self._find_or_create_device(message.to)
        if message.receiver != device.peer.incarnation:
            return self._identify_if_unknown(device, source)
        if message.number < device.acked.get(message.sender, {}).get(message.incarnation, 0):
            return ()  # a late copy
        last_number = self._delivered.last_number(*_stream_of(message))
        if last_number <= message.number or message.hello < device.peer.seq:
            return ()  # the predecessor is in flight, with its own deadline; or a late copy
        self._delivered.rewind(*_stream_of(message), message.number)
        lost = f"messages of {message.sender} from number {message.number + 1} to {last_number} are gone"
        return [
            rollback_incident(device.name, lost),
            *(self._deliver_all(now_us, device) if device.is_reachable else ()),
        ]

    # -- delivering

    def _deliver_all(self, now_us: int, device: DeviceQueue) -> list[Effect]:
        """Send all deliverable messages of a queue again."""
        stop = device.in_flight.clear()
        sent = self._send_deliveries(now_us, device, sorted(device.queue))
        return sent or list(stop)

    def _send_deliveries(self, now_us: int, device: DeviceQueue, keys: Iterable[str]) -> list[Effect]:
        """Send those deliveries that may be sent, and start their deadlines."""
        effects: list[Effect] = []
        for key in device.filter_deliverable(keys):
            message = self._update_delivery(device, device.queue[key])
            effects.append(Send(str(device.address), message))
            effects += device.in_flight.start(now_us, key, size_bytes(message))
        return effects

    def _update_delivery(self, device: DeviceQueue, message: Deliver) -> Deliver:
        """Return a delivery with the present incarnation of the receiver, and the predecessor that it has."""
        after = message.after
        if after and device.store_key(message, after) not in device.queue:
            after = self._delivered.last_number(*_stream_of(message))
        if (after, device.receiver) == (message.after, message.receiver):
            return message
        return msgspec.structs.replace(message, after=after, receiver=device.receiver)

    def _retransmit(self, now_us: int, device: DeviceQueue) -> Sequence[Effect]:
        """Probe a device that is away; else retransmit overdue messages and all later ones of the senders."""
        if device.is_away and device.queue:
            device.probe_us = min(2 * device.probe_us, _MAX_PROBE_US)
            timer = SetTimer(device.name, device.probe_us)
            if not device.is_known or self._at.get(str(device.address)) is not device:
                return *self._send_identify(device, str(device.address)), timer
            message = self._update_delivery(device, device.queue[min(device.queue)])
            return Send(str(device.address), message), timer
        if device.address is None:
            return ()
        late = set(device.in_flight.overdue(now_us))
        identify = self._identify_until_answered(now_us, device) if _IDENTIFY in late else ()
        streams, again = set(), []
        for key in sorted(device.queue) if late and device.is_reachable else ():
            stream = key.rpartition("\n")[0]
            if key in late or stream in streams:
                streams.add(stream)
                again.append(key)
        return [*identify, *self._send_deliveries(now_us, device, again), *device.in_flight.restart(now_us)]

    def _receive_send_failed(self, address: str) -> Sequence[Effect]:
        """Mark the device at an address as away."""
        device = self._at.get(address)
        return () if device is None or device.is_away else self._mark_away(device)

    def _mark_away(self, device: DeviceQueue) -> Sequence[Effect]:
        """Stop sending to a device; probe it while its queue is not empty."""
        device.is_away = True
        device.in_flight.clear()
        return (SetTimer(device.name, device.probe_us),) if device.queue else ()

    def _mark_reached(self, device: DeviceQueue) -> None:
        """Record that a device is not away; the next probe has the shortest delay again."""
        device.is_away, device.probe_us = False, _MIN_PROBE_US

    def _assign_address(self, device: DeviceQueue, address: str) -> Sequence[Effect]:
        """Assign an address to a device; its previous owner loses it.

        The hello may have been sent before the previous owner's, so that one is asked whether it is there.
        """
        if device.address is not None and self._at.get(device.address) is device:
            del self._at[device.address]
        before = self._at.get(address)
        device.address = address
        self._at[address] = device
        self._mark_reached(device)
        if before is None:
            return ()
        self._store.delete(_AT + before.name)
        return *self._send_identify(before, address), *self._mark_away(before)


def _stream_of(message: Deliver | DeliveryAck | DeliveryGap) -> tuple[str, str]:
    """Return receiver and sender, and the sender's incarnation: the scope of sequence numbers."""
    return f"{message.to}\n{message.sender}", message.incarnation
