"""Smallest machine on `mudkit.delivery`; two of them send each other texts directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mudkit.delivery.inbox import Inbox, ItemOrder
from mudkit.delivery.notices import FieldsWithId, Notices
from mudkit.delivery.outbox import Outbox
from mudkit.delivery.records import delivery
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import HelloVerdict, Peer
from mudkit.events import (
    Call,
    Complete,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Notify,
    Ports,
    Received,
    Send,
    SendFailed,
    TimerFired,
    size_bytes,
)


class Put(msgspec.Struct, frozen=True, tag_field="operation", tag="put"):
    """Send a text."""

    text: str


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """Start of a session, retransmitted until acknowledged; ``nonce`` answers an `Ask`.

    ``oldest`` is the incarnation of the first pending item.
    """

    seq: int
    incarnation: str
    oldest: str
    nonce: str | None


class Welcome(msgspec.Struct, frozen=True, tag_field="kind", tag="welcome"):
    """Acknowledgement of a hello."""

    seq: int
    incarnation: str


class Ask(msgspec.Struct, frozen=True, tag_field="kind", tag="ask"):
    """Request of a hello with this nonce, to a new incarnation of a known name."""

    nonce: str


class Item(msgspec.Struct, frozen=True, tag_field="kind", tag="item"):
    """Text with its number, for one incarnation of the receiver.

    Items before ``first`` were received, maybe by a former incarnation.
    """

    seq: int
    incarnation: str
    receiver: str
    first: int
    text: str


class Ack(msgspec.Struct, frozen=True, tag_field="kind", tag="ack"):
    """Cumulative acknowledgement up to a sequence number."""

    seq: int
    incarnation: str


class Shown(msgspec.Struct, frozen=True):
    """Text that the application is notified of; ``id`` is the name of its item."""

    id: str
    text: str

    def notify(self) -> Notify:
        return Notify("post", FieldsWithId({"text": self.text}, self.id))


_HELLO = 0


class Post:
    """Machine that sends texts to one other machine, each once and in order."""

    def __init__(self, ports: Ports, name: str, other: str, address: str) -> None:
        self.ports, self.store, self.name, self.other, self.address = ports, ports.store, name, other, address
        self.outbox = Outbox(ports, Item)
        self.inbox = Inbox(ports.store)
        self.timer: RetransmitTimer[int] = RetransmitTimer("again")
        stored_peer = ports.store.get("peer", list) or ["", 0, address, ""]
        self.peer = Peer(stored_peer[0], stored_peer[1])
        self.address, self.oldest = stored_peer[2:]
        self.nonce: str | None = None
        self.is_up = False
        self.notices = Notices(ports.store, Shown)

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        return [*self.notices.repeat(Shown.notify), *self.handle_event(now_us, event)]

    def handle_event(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
            case TimerFired(name=Notices.TIMER):
                self.notices.clear()
            case Call(op_id=op_id, operation=Put(text=text)):
                incarnation, number = self.outbox.item_id(self.outbox.last_seq + 1)
                seq = self.outbox.add(Item(number, incarnation, "", number, text))
                created = delivery(f"{self.name} {incarnation} {number}", self.other, created_us=now_us)
                return [
                    created,
                    Complete(op_id, seq),
                    *(self.send_pending(now_us, seq) if self.is_up else ()),
                ]
            case LinkUp():
                self.is_up = True
                return [*self.send_hello(now_us), *self.send_pending(now_us)]
            case LinkDown():
                self.is_up = False
                return self.timer.clear()
            case TimerFired() if self.is_up:
                overdue = self.timer.overdue(now_us)
                effects = [
                    effect for seq in overdue if seq in self.outbox for effect in self.send_item(now_us, seq)
                ]
                hello_effects = self.send_hello(now_us) if _HELLO in overdue else ()
                return [*hello_effects, *effects, *self.timer.restart(now_us)]
            case SendFailed(message=Item(seq=number, incarnation=incarnation)) if self.is_up:
                seq = self.outbox.seq_of(incarnation, number)
                return self.timer.start(now_us, seq) if seq in self.outbox else ()
            case SendFailed(message=Hello()) if self.is_up:
                return self.timer.start(now_us, _HELLO)
            case Received(source=source, message=message):
                return self.handle_message(now_us, source, message)
        return ()

    def handle_message(self, now_us: int, source: str, message: Any) -> Sequence[Effect]:
        match message:
            case Hello(seq=seq, incarnation=incarnation, oldest=oldest, nonce=nonce):
                heard = self.peer.judge_hello(incarnation, seq, nonce)
                if heard is HelloVerdict.STRANGER:
                    return (self.question(source),)
                if heard is HelloVerdict.NEWS:
                    self.peer.accept_hello(incarnation, seq)
                    self.address, self.oldest = source, oldest
                    self.store.put("peer", [incarnation, seq, source, oldest])
                resent = self.send_pending(now_us) if heard is HelloVerdict.NEWS and self.is_up else ()
                return [Send(source, Welcome(seq, incarnation)), *resent]
            case Ask(nonce=nonce):
                is_in_flight = _HELLO in self.timer and nonce == self.nonce
                self.nonce = nonce
                return self.send_hello(now_us) if self.is_up and not is_in_flight else ()
            case Welcome(seq=seq, incarnation=incarnation):
                if (incarnation, seq) != (self.outbox.incarnation, self.store.get("hello", int)):
                    return ()
                is_begun, self.nonce = self.nonce is not None, None
                resent = self.send_pending(now_us) if is_begun and self.is_up else ()
                return [*self.timer.settle(now_us, _HELLO), *resent]
            case Item():
                return self.handle_item(now_us, source, message)
            case Ack(seq=number, incarnation=incarnation):
                acknowledged = self.outbox.ack_up_to(self.outbox.seq_of(incarnation, number))
                effects = [effect for seq, _ in acknowledged for effect in self.timer.settle(now_us, seq)]
                oldest = self.outbox.item_id(self.outbox.first_seq).incarnation
                if not acknowledged or not self.is_up or oldest == incarnation:
                    return effects
                is_expected = oldest == self.outbox.incarnation
                hello_effects = () if is_expected else self.send_hello(now_us)
                return [*effects, *hello_effects, *self.send_pending(now_us)]
        return ()

    def handle_item(self, now_us: int, source: str, item: Item) -> Sequence[Effect]:
        is_for_this_start = item.receiver == self.outbox.incarnation
        if not is_for_this_start or item.incarnation not in (self.peer.incarnation, self.oldest):
            # A late copy; or the hello of either side is on its way, or was lost in a restore.
            greeting = self.send_hello(now_us) if self.is_up and _HELLO not in self.timer else ()
            return [*greeting, self.question(source)]
        self.inbox.mark_taken(self.other, item.incarnation, item.first - 1)
        effects: list[Effect] = []
        if self.inbox.classify(self.other, item.incarnation, item.seq) is ItemOrder.NEXT:
            place = (self.store.get("place", int) or 0) + 1
            self.store.put("place", place)
            self.inbox.mark_taken(self.other, item.incarnation, item.seq)
            self.store.crash_point("seen, not in the inbox")
            self.store.put(f"in {place:09d}", [item.incarnation, item.text])
            name = f"{self.other} {item.incarnation} {item.seq}"
            shown = Shown(name, item.text)
            is_delivered = delivery(name, self.name, delivered_us=now_us)
            effects = [shown.notify(), self.notices.add(shown), is_delivered]
        last = self.inbox.last_number(self.other, item.incarnation)
        # A restored store may lack the last hello, and a moved peer says none by itself.
        question = () if source == self.address else (self.question(source),)
        return [*effects, Send(source, Ack(last, item.incarnation)), *question]

    def question(self, source: str) -> Send:
        return Send(source, Ask(self.peer.open_question(self.ports.entropy)))

    def send_hello(self, now_us: int) -> Sequence[Effect]:
        seq = (self.store.get("hello", int) or 0) + 1
        self.store.put("hello", seq)
        oldest = self.outbox.item_id(self.outbox.first_seq).incarnation
        hello = Hello(seq, self.outbox.incarnation, oldest, self.nonce)
        return Send(self.address, hello), *self.timer.start(now_us, _HELLO)

    def send_pending(self, now_us: int, first_seq: int = 0) -> Sequence[Effect]:
        return [
            effect
            for seq, _ in self.outbox.sendable_items(first_seq)
            for effect in self.send_item(now_us, seq)
        ]

    def send_item(self, now_us: int, seq: int) -> Sequence[Effect]:
        first = self.outbox.item_id(self.outbox.first_seq).number
        item = msgspec.structs.replace(self.outbox[seq], receiver=self.peer.incarnation, first=first)
        return Send(self.address, item), *self.timer.start(now_us, seq, size_bytes(item))
