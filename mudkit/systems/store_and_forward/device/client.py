"""The client of store and forward: an outbox, an inbox, and the last message seen of each sender.

Its rules:

===============  ===================================================================================
send (call)      into the outbox, durably, with the next number; sent when there is a link
accepted         out of the outbox; the call is answered
deliver          the next of its sender's incarnation: into the inbox, the application is told, the relay
                 too; an old one is acknowledged only; one that is too early will come again
read (call)      what has come into the inbox since the last read
link up          say hello (the relay then delivers), send the outbox
context changed  tell the relay whether the user is busy: it delivers, or waits
hello            what the relay may not know yet (an incarnation, an address, whether the user is busy) is
                 said until the relay says welcome; a server, whose network does not come up again, always
                 says hello until then
missing          send the outbox from there on; if that has gone long ago, the relay was restored from an old
                 backup: say hello, which tells it from where to go on
identify         say hello, with the nonce: the relay does not know who lives here
timer            each hello and each message has a deadline of its own: what is overdue is said again, of
                 the messages those after it, too (the relay has taken none of them)
===============  ===================================================================================

Whatever does not come from the relay's address, or is nothing that a relay says, is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mudkit.delivery.inbox import Inbox
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
    SendFailed,
    TimerFired,
    size_bytes,
)
from mudkit.events import Send as SendTo
from mudkit.systems.receiving import dropped
from mudkit.systems.store_and_forward.messages import (
    FROM_RELAY,
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
from mudkit.systems.store_and_forward.operations import Read, Submit

__all__ = ["APP", "ClientMachine"]

APP: Final = "messages"
"""The application that is told of what comes."""
_RETRY: Final = "retry"
_HELLO: Final = 0
"""The key of a hello among what waits for an answer; messages begin with 1."""
_SERVER: Final = "server"
"""The network of a server, see :class:`mudkit.events.LinkUp`."""


class _Kept(msgspec.Struct, frozen=True):
    """A message in the inbox."""

    key: str
    sender: str = msgspec.field(name="from")
    text: str


class _Known(msgspec.Struct, frozen=True):
    """What the relay has to know to deliver."""

    incarnation: str
    address: str
    busy: bool


class ClientMachine:
    """One device's machine.

    Parameters
    ----------
    ports : Ports
    me : str
        Its name, which stays when its address changes.
    relay : str
        The relay's address.
    """

    def __init__(self, ports: Ports, me: str, relay: str) -> None:
        self._store = ports.store
        self._me = me
        self._relay = relay
        self._has_link = self._is_server = False
        self._address = ports.address
        self._nonce: str | None = None  # what the relay has last asked for a hello with
        self._outbox = Outbox(ports, Send)
        self._inbox = Inbox(self._store)
        self._lacks_us: dict[tuple[str, str, int], int] = {}
        """Time of the last report to the relay on the messages of a sender."""
        self._calls: dict[int, int] = {}  # op_id by sequence number: callers do not outlive the machine
        self._unanswered: RetransmitTimer[int] = RetransmitTimer(_RETRY)

    def overview(self) -> View:
        """Return its relay and what waits, as a display shows it."""
        return View("", {"relay": self._relay, "waiting to be sent": len(self._outbox)})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Call(op_id=op_id, operation=Submit() as asked):
                return self._take(op_id, asked, now_us)
            case Call(op_id=op_id, operation=Read()):
                return self._read(op_id, now_us)
            case Call(op_id=op_id):
                error = LookupError(f"there is no operation {event.name!r}, only send and read")
                return (Complete(op_id, error=error),)
            case Received(source=source) if source == self._relay:
                return self._received(now_us, event)
            case Received():
                return dropped(event)
            case LinkUp(address=address, network=network):
                self._has_link, self._address = True, address
                self._is_server = network == _SERVER
                return [*self._hello(now_us, must=self._is_server), *self._send_from(now_us, 0)]
            case LinkDown():
                self._has_link = False
                self._unanswered.clear()
                return (CancelTimer(_RETRY),)
            case SendFailed(message=Hello()) if self._has_link:
                return self._unanswered.sent(now_us, _HELLO)
            case SendFailed(message=Send(incarnation=life, seq=number)) if self._has_link:
                seq = self._outbox.seq(life, number)
                return self._unanswered.sent(now_us, seq) if seq in self._outbox else ()
            case TimerFired():
                return self._overdue(now_us)
            case ContextChanged(context=context):
                self._store.put("busy", bool(context.get("busy", False)))
                return self._hello(now_us) if self._has_link else ()
        return ()

    def is_next(self, seen: int, message: Deliver) -> bool:
        """Say whether a message is the one after those that are in the inbox.

        A relay that has lost its store does not know what this device has had: then ``after`` is lower than
        ``seen``.

        Parameters
        ----------
        seen : int
            Sequence number of the last message of this sender in the inbox, 0 before the first.
        message : Deliver
            ``seq`` is its own, ``after`` the one of the message that the sender sent here before it.
        """
        return message.after <= seen < message.seq

    def _received(self, now_us: int, event: Received) -> Sequence[Effect]:
        match FROM_RELAY.decode(event.message):
            case Deliver(to=to) as message if to == self._me:
                return self._deliver(message, now_us)
            case Identify(nonce=nonce):
                is_said = _HELLO in self._unanswered and nonce == self._nonce
                self._nonce = nonce
                return self._hello(now_us, must=True) if self._has_link and not is_said else ()
            case None | Deliver():
                return dropped(event)
            case Accepted(incarnation=life, seq=number):
                return self._accepted(now_us, self._outbox.seq(life, number))
            case Welcome(incarnation=life, seq=seq):
                return self._welcome(now_us, seq) if life == self._outbox.incarnation else ()
            case Missing(incarnation=life, seq=number):
                seq = self._outbox.seq(life, number)
                return self._missing(now_us, seq) if self._has_link and seq else ()

    def _missing(self, now_us: int, seq: int) -> Sequence[Effect]:
        """Send from a number on; a relay that asks for what it has had was restored from an old backup."""
        is_restored = seq < self._outbox.first_seq
        greeting = self._hello(now_us, must=True) if is_restored and _HELLO not in self._unanswered else ()
        return [*greeting, *self._send_from(now_us, seq)]

    def _take(self, op_id: int, asked: Submit, now_us: int) -> Sequence[Effect]:
        seq = self._outbox.last_seq + 1
        life, number = self._outbox.name(seq)
        item = asked.item or f"{self._me} {life} {number}"
        message = Send(seq=number, incarnation=life, key=item, sender=self._me, to=asked.to, text=asked.text)
        try:
            self._outbox.add(message)
        except OutboxFull as error:
            return (Complete(op_id, error=error),)
        self._calls[seq] = op_id
        created = delivery(item, asked.to, created_us=now_us)
        return (created, *self._send_from(now_us, seq)) if self._has_link else (created,)

    def _accepted(self, now_us: int, seq: int) -> Sequence[Effect]:
        accepted = self._outbox.ack(seq)
        if accepted is None:
            return ()
        effects = [*self._unanswered.answered(now_us, seq)]
        if seq in self._calls:
            effects.insert(0, Complete(self._calls.pop(seq), seq))
        is_next_batch = self._outbox.name(self._outbox.first_seq).incarnation != accepted.incarnation
        return [*effects, *self._send_from(now_us, 0)] if is_next_batch and self._has_link else effects

    def _deliver(self, message: Deliver, now_us: int) -> Sequence[Effect]:
        seen = self._inbox.last_seq(message.sender, message.incarnation)
        effects: list[Effect] = []
        if self.is_next(seen, message):
            last = (self._store.get("place", int) or 0) + 1
            self._store.put("place", last)
            self._inbox.take(message.sender, message.incarnation, message.seq)
            self._store.crash_point("seen, not in the inbox")
            kept = _Kept(key=message.key, sender=message.sender, text=message.text)
            self._store.put(f"in {last:012d}", kept)
            effects.append(Notify(APP, {"from": message.sender, "text": message.text}))
            effects.append(delivery(message.key, self._me, delivered_us=now_us))
            seen = message.seq
        if message.seq > seen:  # one before it is missing
            return self._lacks(now_us, message, seen)
        answer = Delivered(
            seq=message.seq,
            incarnation=message.incarnation,
            receiver=self._outbox.incarnation,
            key=message.key,
            sender=message.sender,
            to=self._me,
        )
        return [*effects, SendTo(self._relay, answer)]

    def _lacks(self, now_us: int, message: Deliver, seen: int) -> Sequence[Effect]:
        """Report to the relay the last message of a sender in order, once per retransmission timeout."""
        last = message.sender, message.incarnation, seen
        if now_us - self._lacks_us.get(last, -DEFAULT_TIMEOUT_US) < DEFAULT_TIMEOUT_US:
            return ()
        self._lacks_us = {last: now_us}
        lacks = Lacks(
            seq=seen,
            incarnation=message.incarnation,
            receiver=self._outbox.incarnation,
            sender=message.sender,
            to=self._me,
        )
        return (SendTo(self._relay, lacks),)

    def _read(self, op_id: int, now_us: int) -> Sequence[Effect]:
        first = (self._store.get("read", int) or 0) + 1
        last = self._store.get("place", int) or 0
        kept = (self._store.get(f"in {place:012d}", _Kept) for place in range(first, last + 1))
        new = [message for message in kept if message is not None]
        if new:
            self._store.put("read", last)
        result = [{"from": message.sender, "text": message.text} for message in new]
        read = [delivery(message.key, self._me, read_us=now_us) for message in new]
        return (*read, Complete(op_id, result))

    # -- being heard

    def _hello(self, now_us: int, *, must: bool = False) -> Sequence[Effect]:
        """Say hello: until it is heard, if it must be, or says what the relay may not know."""
        seq = (self._store.get("hello", int) or 0) + 1
        self._store.put("hello", seq)
        known = self._known()
        oldest, first = self._outbox.name(self._outbox.first_seq)
        is_news = must or _HELLO in self._unanswered or self._store.get("told", _Known) != known
        hello = Hello(
            seq=seq,
            incarnation=known.incarnation,
            device=self._me,
            busy=known.busy,
            first=first,
            oldest=msgspec.UNSET if oldest == known.incarnation else oldest,
            answer=True if is_news else msgspec.UNSET,
            nonce=self._nonce if is_news and self._nonce is not None else msgspec.UNSET,
        )
        if not is_news:
            return (SendTo(self._relay, hello),)
        self._store.delete("told")  # until it has heard this, nobody knows which of them it has heard
        return SendTo(self._relay, hello), *self._unanswered.sent(now_us, _HELLO)

    def _known(self) -> _Known:
        return _Known(self._outbox.incarnation, self._address, self._store.get("busy", bool) or False)

    def _welcome(self, now_us: int, seq: int) -> Sequence[Effect]:
        if seq != self._store.get("hello", int):  # it has heard an older one
            return ()
        self._store.put("told", self._known())
        self._nonce = None
        return self._unanswered.answered(now_us, _HELLO)

    def _send_from(self, now_us: int, first_seq: int) -> Sequence[Effect]:
        """Send the current batch of the outbox from a sequence number on."""
        waiting = self._outbox.batch(first_seq)
        return [effect for seq, message in waiting for effect in self._send(now_us, seq, message)]

    def _send(self, now_us: int, seq: int, message: Send) -> Sequence[Effect]:
        return SendTo(self._relay, message), *self._unanswered.sent(now_us, seq, size_bytes(message))

    def _overdue(self, now_us: int) -> Sequence[Effect]:
        late = self._unanswered.overdue(now_us)
        effects: list[Effect] = []
        if _HELLO in late:
            effects += self._hello(now_us, must=True)
        messages = [seq for seq in late if seq != _HELLO]
        if messages:
            effects += self._send_from(now_us, min(messages))
        return [*effects, *self._unanswered.fired(now_us)]
