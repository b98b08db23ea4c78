"""Machines of a device: the client of the relay, and the baseline that sends directly.

Rules of the client:

===============  ===================================================================================
SendText (call)  store in the outbox under the next sequence number; send if connected
UploadAck        remove from the outbox; complete the call
Deliver          the successor of the last one of its sender's incarnation: store in the inbox, notify the
                 application, acknowledge. A duplicate: acknowledge. After a gap: send DeliveryGap
Read (call)      return the inbox entries added since the last read; delete them when they were returned
start            notify the application again of what it may not have got
link up          send Hello, which triggers delivery, and the outbox
context changed  send Hello if connected: it carries whether the user is busy
hello            retransmit until Welcome if it has news for the relay (incarnation, address, busy), or
                 on a server, whose link does not come up again
UploadGap        send the outbox from that number on. If that is gone, the relay's store was restored from
                 a backup: send Hello, which says where the outbox begins
Identify         send Hello with its nonce; after Welcome, send the outbox
other session    ignore UploadAck, UploadGap and Deliver for an earlier incarnation
timer            retransmit an overdue hello; retransmit an overdue message and all later ones, which the
                 relay cannot have accepted
===============  ===================================================================================

The client drops and records anything that is not a valid message from the relay's address. The inbox has a
capacity, beyond which the oldest message is deleted, and recorded (``inbox full``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from mudkit.delivery.inbox import Inbox
from mudkit.delivery.notices import FieldsWithId, Notices
from mudkit.delivery.outbox import Outbox
from mudkit.delivery.records import delivery
from mudkit.delivery.retransmit import DEFAULT_TIMEOUT_US, RetransmitTimer
from mudkit.display import View
from mudkit.errors import OutboxFull
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
    size_bytes,
)
from mudkit.systems.receiving import record_dropped
from mudkit.systems.store_and_forward.messages import (
    FROM_PEER,
    FROM_RELAY,
    Deliver,
    DeliveryAck,
    DeliveryGap,
    Hello,
    Identify,
    Message,
    Read,
    SendText,
    Upload,
    UploadAck,
    UploadGap,
    Welcome,
)

APP: Final = "messages"
"""Name of the application that is notified of new messages."""
MAX_UNREAD: Final = 65_536
"""Capacity of the inbox, in messages."""
_RETRY: Final = "retry"
_HELLO: Final = 0
"""Key of the hello among the unacknowledged items; messages have keys from 1 on."""
_SERVER: Final = "server"
"""Network of a server, see :class:`mudkit.events.LinkUp`."""
DIRECT: Final = "direct"
"""Name of the system without a relay, and suffix of its addresses."""


class _StoredMessage(msgspec.Struct, frozen=True):
    """Message in the inbox, which the application has not read."""

    key: str
    sender: str = msgspec.field(name="from")
    text: str
    id: str

    def for_application(self) -> FieldsWithId:
        """Return the message as the application gets it: sender and text, with an attribute ``id``."""
        return FieldsWithId({"from": self.sender, "text": self.text}, self.id)


class _DeviceState(msgspec.Struct, frozen=True):
    """State of the device that its hello carries; one that has changed is retransmitted until welcome."""

    incarnation: str
    address: str
    busy: bool


class ClientMachine:
    """Client of the relay.

    Parameters
    ----------
    ports : Ports
        Store, address and entropy of the host.
    me : str
        Name of the device, which stays when its address changes.
    relay : str
        Address of the relay.
    """

    def __init__(self, ports: Ports, me: str, relay: str) -> None:
        self._store = ports.store
        self._me = me
        self._relay = relay
        self._has_link = self._is_server = False
        self._is_welcome = False
        """True if the relay has welcomed this incarnation."""
        self._address = ports.address
        self._nonce: str | None = None  # of the relay's last Identify
        self._outbox = Outbox(ports, Upload)
        self._inbox = Inbox(self._store)
        self._notices = Notices(self._store, _StoredMessage)
        self._unread = deque(self._store.keys("in "))
        """Store keys of the messages in the inbox."""
        self._returned: list[str] = []
        """Store keys of the messages that a read has returned since."""
        self._gap_reported_us: dict[tuple[str, str, int], int] = {}
        """Time of the last report of a gap, by sender, incarnation and last number."""
        self._calls: dict[int, int] = {}  # op_id by sequence number; callers do not outlive the machine
        self._in_flight: RetransmitTimer[int] = RetransmitTimer(_RETRY)

    def overview(self) -> View:
        """Return the relay and the length of the outbox for the display."""
        return View("", {"relay": self._relay, "waiting to be sent": len(self._outbox)})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        return [*self._notices.repeat(_build_notification), *self._handle_event(now_us, event)]

    def _handle_event(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Handle one event; :meth:`handle` puts the notifications that a restart repeats before it."""
        match event:
            case Call(op_id=op_id, operation=SendText() as submitted):
                return self._send_text(op_id, submitted, now_us)
            case Call(op_id=op_id, operation=Read()):
                return self._read(op_id, now_us)
            case Call(op_id=op_id):
                error = LookupError(f"there is no operation {event.name!r}, only send and read")
                return (Complete(op_id, error=error),)
            case Received(source=source) if source == self._relay:
                return self._receive_message(now_us, event)
            case Received():
                return record_dropped(event)
            case LinkUp(address=address, network=network):
                self._has_link, self._address = True, address
                self._is_server = network == _SERVER
                return [*self._send_hello(now_us, must=self._is_server), *self._send_from(now_us, 0)]
            case LinkDown():
                self._has_link = False
                self._in_flight.clear()
                return (CancelTimer(_RETRY),)
            case SendFailed(message=Hello()) if self._has_link:
                return self._in_flight.start(now_us, _HELLO)
            case SendFailed(message=Upload(incarnation=incarnation, number=number)) if self._has_link:
                seq = self._outbox.seq_of(incarnation, number)
                return self._in_flight.start(now_us, seq) if seq in self._outbox else ()
            case TimerFired(name=Notices.TIMER):
                self._notices.clear()
                self._delete_returned()
            case TimerFired():
                return self._retransmit_overdue(now_us)
            case ContextChanged(context=context):
                self._store.put("busy", bool(context.get("busy", False)))
                return self._send_hello(now_us) if self._has_link else ()
        return ()

    def is_next(self, seen: int, message: Deliver) -> bool:
        """Return whether a message follows ``seen``, its sender's last number in the inbox (0: none).

        ``message.after`` is the number of its predecessor, lower than ``seen`` if the relay has lost its
        store and does not know what this device has.
        """
        return message.after <= seen < message.number

    def _receive_message(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Handle a message of the relay; ignore one that is for an earlier incarnation."""
        match FROM_RELAY.decode(event.message):
            case Deliver(to=to) if to != self._me:
                return record_dropped(event)
            case (Deliver() | UploadAck() | UploadGap()) as message if not self._is_for_this_start(message):
                return ()  # a late copy
            case Deliver() as message:
                return self._receive_delivery(message, now_us)
            case Identify(nonce=nonce):
                is_said = _HELLO in self._in_flight and nonce == self._nonce
                self._nonce = nonce
                return self._send_hello(now_us, must=True) if self._has_link and not is_said else ()
            case None:
                return record_dropped(event)
            case UploadAck(incarnation=incarnation, number=number):
                return self._receive_upload_ack(now_us, self._outbox.seq_of(incarnation, number))
            case Welcome(incarnation=incarnation) as welcome:
                return (
                    self._receive_welcome(now_us, welcome) if incarnation == self._outbox.incarnation else ()
                )
            case UploadGap(incarnation=incarnation, number=number):
                seq = self._outbox.seq_of(incarnation, number)
                return self._retransmit_from(now_us, seq) if self._has_link and seq else ()

    def _is_for_this_start(self, message: Deliver | UploadAck | UploadGap) -> bool:
        """Return whether a message names this incarnation, or none although there was no other."""
        if message.receiver is msgspec.UNSET:
            return self._is_welcome and not self._has_other
        return message.receiver == self._outbox.incarnation

    @property
    def _has_other(self) -> bool:
        """True if the relay has said that there was another incarnation; a wiped one learns it from here."""
        return self._store.get("another", bool) or False

    def _retransmit_from(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Send the outbox again from a number on; say hello if that is gone: the relay was restored."""
        is_restored = seq < self._outbox.first_seq
        greeting = (
            self._send_hello(now_us, must=True) if is_restored and _HELLO not in self._in_flight else ()
        )
        return [*greeting, *self._send_from(now_us, seq)]

    def _send_text(self, op_id: int, submitted: SendText, now_us: int) -> Sequence[Effect]:
        """Store a text in the outbox, and send it if connected; the operation waits for the relay."""
        seq = self._outbox.last_seq + 1
        incarnation, number = self._outbox.item_id(seq)
        item = submitted.item or f"{self._me} {incarnation} {number}"
        message = Upload(
            number=number,
            incarnation=incarnation,
            key=item,
            sender=self._me,
            to=submitted.to,
            text=submitted.text,
        )
        try:
            self._outbox.add(message)
        except OutboxFull as error:
            return (Complete(op_id, error=error),)
        self._calls[seq] = op_id
        created = delivery(item, submitted.to, created_us=now_us)
        return (created, *self._send_from(now_us, seq)) if self._has_link else (created,)

    def _receive_upload_ack(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Remove a message that the relay has stored from the outbox, and complete its operation."""
        accepted = self._outbox.ack(seq)
        if accepted is None:
            return ()
        effects = [*self._in_flight.settle(now_us, seq)]
        if seq in self._calls:
            effects.insert(0, Complete(self._calls.pop(seq), seq))
        next_incarnation = self._outbox.item_id(self._outbox.first_seq).incarnation
        if next_incarnation == accepted.incarnation or not self._has_link:
            return effects
        if next_incarnation != self._outbox.incarnation:  # the relay does not expect its messages
            effects += self._send_hello(now_us, must=True)
        return [*effects, *self._send_from(now_us, 0)]

    def _receive_delivery(self, message: Deliver, now_us: int) -> Sequence[Effect]:
        """Store a message in the inbox and notify if it is the next one; acknowledge it, or report a gap."""
        seen = self._inbox.last_number(message.sender, message.incarnation)
        effects: list[Effect] = []
        if self.is_next(seen, message):
            last = (self._store.get("place", int) or 0) + 1
            self._store.put("place", last)
            self._inbox.mark_taken(message.sender, message.incarnation, message.number)
            self._store.crash_point("seen, not in the inbox")
            identifier = f"{message.incarnation} {message.number}"
            stored = _StoredMessage(key=message.key, sender=message.sender, text=message.text, id=identifier)
            effects += self._store_message(f"in {last:012d}", stored)
            effects += [_build_notification(stored), self._notices.add(stored)]
            effects.append(delivery(message.key, self._me, delivered_us=now_us))
            seen = message.number
        if message.number > seen:  # its predecessor is missing
            return self._report_gap(now_us, message, seen)
        answer = DeliveryAck(
            number=message.number,
            incarnation=message.incarnation,
            receiver=self._outbox.incarnation,
            key=message.key,
            sender=message.sender,
            to=self._me,
        )
        return [*effects, Send(self._relay, answer)]

    def _store_message(self, key: str, stored: _StoredMessage) -> Sequence[Effect]:
        """Append a message to the inbox; delete the oldest beyond the capacity."""
        self._store.put(key, stored)
        self._unread.append(key)
        if len(self._unread) <= MAX_UNREAD:
            return ()
        self._store.delete(self._unread.popleft())
        detail = f"{self._me}: {MAX_UNREAD:,} messages are not read, the oldest is deleted"
        return (Record("incidents", {"incident": "inbox full", "detail": detail}),)

    def _report_gap(self, now_us: int, message: Deliver, seen: int) -> Sequence[Effect]:
        """Send a DeliveryGap with the last number in order, at most once per retransmission timeout."""
        last = message.sender, message.incarnation, seen
        if now_us - self._gap_reported_us.get(last, -DEFAULT_TIMEOUT_US) < DEFAULT_TIMEOUT_US:
            return ()
        self._gap_reported_us = {last: now_us}
        lacks = DeliveryGap(
            number=seen,
            incarnation=message.incarnation,
            receiver=self._outbox.incarnation,
            hello=self._store.get("hello", int) or 1,
            sender=message.sender,
            to=self._me,
        )
        return (Send(self._relay, lacks),)

    def _read(self, op_id: int, now_us: int) -> Sequence[Effect]:
        """Complete a read with the unread messages; a timer deletes them once the application has them."""
        keys, self._unread = list(self._unread), deque()
        self._returned += keys
        new = [message for key in keys if (message := self._store.get(key, _StoredMessage)) is not None]
        read = [delivery(message.key, self._me, read_us=now_us) for message in new]
        timer = [SetTimer(Notices.TIMER, 0)] if new else []
        return [*read, Complete(op_id, [message.for_application() for message in new]), *timer]

    def _delete_returned(self) -> None:
        """Delete the messages that reads have returned."""
        for key in self._returned:
            self._store.delete(key)
        self._returned = []

    # -- hello and outbox

    def _send_hello(self, now_us: int, *, must: bool = False) -> Sequence[Effect]:
        """Send a hello; retransmit it until acknowledged if it must be, or has news for the relay."""
        seq = (self._store.get("hello", int) or 0) + 1
        self._store.put("hello", seq)
        known = self._device_state()
        oldest, first = self._outbox.item_id(self._outbox.first_seq)
        is_news = must or _HELLO in self._in_flight or self._store.get("told", _DeviceState) != known
        hello = Hello(
            seq=seq,
            incarnation=known.incarnation,
            device=self._me,
            busy=known.busy,
            first=first,
            oldest=msgspec.UNSET if oldest == known.incarnation else oldest,
            answer=True if is_news else msgspec.UNSET,
            nonce=self._nonce if is_news and self._nonce is not None else msgspec.UNSET,
            another=True if self._has_other else msgspec.UNSET,
        )
        if not is_news:
            return (Send(self._relay, hello),)
        self._store.delete("told")  # unknown until the welcome
        return Send(self._relay, hello), *self._in_flight.start(now_us, _HELLO)

    def _device_state(self) -> _DeviceState:
        """Return the present state that a hello carries."""
        return _DeviceState(self._outbox.incarnation, self._address, self._store.get("busy", bool) or False)

    def _receive_welcome(self, now_us: int, welcome: Welcome) -> Sequence[Effect]:
        """Stop retransmitting the hello that this answers; send the outbox if the relay had asked."""
        if welcome.seq != self._store.get("hello", int):  # answers an older hello
            return ()
        self._is_welcome = True
        if welcome.another is True:
            self._store.put("another", True)
        self._store.put("told", self._device_state())
        is_begun, self._nonce = self._nonce is not None, None
        answered = self._in_flight.settle(now_us, _HELLO)
        # The relay has refused what it got before it knew this incarnation.
        return [*answered, *self._send_from(now_us, 0)] if is_begun and self._has_link else answered

    def _send_from(self, now_us: int, first_seq: int) -> Sequence[Effect]:
        """Send the current batch of the outbox, starting at a sequence number."""
        waiting = self._outbox.sendable_items(first_seq)
        return [effect for seq, message in waiting for effect in self._send_upload(now_us, seq, message)]

    def _send_upload(self, now_us: int, seq: int, message: Upload) -> Sequence[Effect]:
        """Send one message of the outbox, and start its deadline."""
        return Send(self._relay, message), *self._in_flight.start(now_us, seq, size_bytes(message))

    def _retransmit_overdue(self, now_us: int) -> Sequence[Effect]:
        """Retransmit an overdue hello, and the outbox from the first overdue message on."""
        late = self._in_flight.overdue(now_us)
        effects: list[Effect] = []
        if _HELLO in late:
            effects += self._send_hello(now_us, must=True)
        messages = [seq for seq in late if seq != _HELLO]
        if messages:
            effects += self._send_from(now_us, min(messages))
        return [*effects, *self._in_flight.restart(now_us)]


def _build_notification(stored: _StoredMessage) -> Notify:
    """Return the effect that notifies the application of a message."""
    return Notify(APP, stored.for_application())


class DirectMachine:
    """Baseline without a relay: a message that cannot be sent now is lost.

    Parameters
    ----------
    ports : Ports
        Unused: the machine stores nothing.
    me : str
        Name of the device; its address begins with it while the device does not move.
    """

    def __init__(self, ports: Ports, me: str) -> None:
        self._me = me
        self._unread: list[str] = []

    def overview(self) -> View:
        """Return the number of unread messages for the display."""
        return View("", {"not read": len(self._unread)})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation=SendText(to=to, text=text, item=str(item))):
                sent = Send(f"{to}/{DIRECT}", Message(key=item, text=text))
                return delivery(item, to, created_us=now_us), sent, Complete(op_id)
            case Call(op_id=op_id, operation=Read()):
                read = [delivery(item, self._me, read_us=now_us) for item in self._unread]
                self._unread.clear()
                return (*read, Complete(op_id, len(read)))
            case Received(source=source):
                message = FROM_PEER.decode(event.message)
                if message is None or not source.endswith(f"/{DIRECT}"):
                    return record_dropped(event)
                self._unread.append(message.key)
                return (delivery(message.key, self._me, delivered_us=now_us),)
        return ()
