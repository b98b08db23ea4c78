"""The smallest machine on `mudkit.delivery`: two of them send each other texts, and nothing is between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mudkit.delivery.inbox import Inbox, Place
from mudkit.delivery.outbox import Outbox
from mudkit.delivery.records import delivery
from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Heard, Peer
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

__all__ = ["Post", "Put"]


class Put(msgspec.Struct, frozen=True, tag_field="operation", tag="put"):
    """Send a text."""

    text: str


class Hello(msgspec.Struct, frozen=True, tag_field="kind", tag="hello"):
    """I am here; until you have heard it, I say it again. ``nonce``: you have asked."""

    seq: int
    incarnation: str
    nonce: str | None


class Welcome(msgspec.Struct, frozen=True, tag_field="kind", tag="welcome"):
    """I have heard your hello."""

    seq: int
    incarnation: str


class Ask(msgspec.Struct, frozen=True, tag_field="kind", tag="ask"):
    """I know another one of your name: say hello with this."""

    nonce: str


class Item(msgspec.Struct, frozen=True, tag_field="kind", tag="item"):
    """The text of this name; what is before ``first`` you have had, or a former life of you."""

    seq: int
    incarnation: str
    first: int
    text: str


class Ack(msgspec.Struct, frozen=True, tag_field="kind", tag="ack"):
    """I have all up to this number."""

    seq: int
    incarnation: str


_HELLO = 0


class Post:
    """Sends texts to one other machine, each once and in order."""

    def __init__(self, ports: Ports, me: str, other: str, at: str) -> None:
        self.ports, self.store, self.me, self.other, self.at = ports, ports.store, me, other, at
        self.outbox = Outbox(ports, Item)
        self.inbox = Inbox(ports.store)
        self.unanswered: RetransmitTimer[int] = RetransmitTimer("again")
        known = ports.store.get("peer", list) or ["", 0, at]
        self.peer = Peer(known[0], known[1])
        self.at = known[2]
        self.nonce: str | None = None
        self.is_up = False

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        match event:
            case Call(op_id=op_id, operation=Put(text=text)):
                life, number = self.outbox.name(self.outbox.last_seq + 1)
                seq = self.outbox.add(Item(number, life, number, text))
                created = delivery(f"{self.me} {life} {number}", self.other, created_us=now_us)
                return [created, Complete(op_id, seq), *(self.send_from(now_us, seq) if self.is_up else ())]
            case LinkUp():
                self.is_up = True
                return [*self.hello(now_us), *self.send_from(now_us)]
            case LinkDown():
                self.is_up = False
                return self.unanswered.clear()
            case TimerFired() if self.is_up:
                late = self.unanswered.overdue(now_us)
                effects = [each for seq in late if seq in self.outbox for each in self.send(now_us, seq)]
                greeting = self.hello(now_us) if _HELLO in late else ()
                return [*greeting, *effects, *self.unanswered.fired(now_us)]
            case SendFailed(message=Item(seq=number, incarnation=life)) if self.is_up:
                seq = self.outbox.seq(life, number)
                return self.unanswered.sent(now_us, seq) if seq in self.outbox else ()
            case SendFailed(message=Hello()) if self.is_up:
                return self.unanswered.sent(now_us, _HELLO)
            case Received(source=source, message=message):
                return self.received(now_us, source, message)
        return ()

    def received(self, now_us: int, source: str, message: Any) -> Sequence[Effect]:
        match message:
            case Hello(seq=seq, incarnation=life, nonce=nonce):
                heard = self.peer.hear(life, seq, nonce)
                if heard is Heard.STRANGER:
                    return (Send(source, Ask(self.peer.ask(self.ports.entropy))),)
                if heard is Heard.NEWS:
                    self.peer.take(life, seq)
                    self.at = source
                    self.store.put("peer", [life, seq, source])
                again = self.send_from(now_us) if heard is Heard.NEWS and self.is_up else ()
                return [Send(source, Welcome(seq, life)), *again]
            case Ask(nonce=nonce):
                is_said = _HELLO in self.unanswered and nonce == self.nonce
                self.nonce = nonce
                return self.hello(now_us) if self.is_up and not is_said else ()
            case Welcome(seq=seq, incarnation=life):
                if (life, seq) != (self.outbox.incarnation, self.store.get("hello", int)):
                    return ()
                self.nonce = None
                return self.unanswered.answered(now_us, _HELLO)
            case Item():
                return self.take(now_us, source, message)
            case Ack(seq=number, incarnation=life):
                gone = self.outbox.acked(self.outbox.seq(life, number))
                over = [each for seq, _ in gone for each in self.unanswered.answered(now_us, seq)]
                is_next_batch = self.is_up and self.outbox.name(self.outbox.first_seq).incarnation != life
                return [*over, *self.send_from(now_us)] if gone and is_next_batch else over
        return ()

    def take(self, now_us: int, source: str, item: Item) -> Sequence[Effect]:
        self.inbox.take(self.other, item.incarnation, item.first - 1)
        effects: list[Effect] = []
        if self.inbox.place(self.other, item.incarnation, item.seq) is Place.NEXT:
            place = (self.store.get("place", int) or 0) + 1
            self.store.put("place", place)
            self.inbox.take(self.other, item.incarnation, item.seq)
            self.store.crash_point("seen, not in the inbox")
            self.store.put(f"in {place:09d}", [item.incarnation, item.text])
            name = f"{self.other} {item.incarnation} {item.seq}"
            effects = [Notify("post", item.text), delivery(name, self.me, delivered_us=now_us)]
        last = self.inbox.last_seq(self.other, item.incarnation)
        return [*effects, Send(source, Ack(last, item.incarnation))]

    def hello(self, now_us: int) -> Sequence[Effect]:
        seq = (self.store.get("hello", int) or 0) + 1
        self.store.put("hello", seq)
        return Send(self.at, Hello(seq, self.outbox.incarnation, self.nonce)), *self.unanswered.sent(
            now_us, _HELLO
        )

    def send_from(self, now_us: int, first_seq: int = 0) -> Sequence[Effect]:
        return [each for seq, _ in self.outbox.batch(first_seq) for each in self.send(now_us, seq)]

    def send(self, now_us: int, seq: int) -> Sequence[Effect]:
        first = self.outbox.name(self.outbox.first_seq).number
        item = msgspec.structs.replace(self.outbox[seq], first=first)
        return Send(self.at, item), *self.unanswered.sent(now_us, seq, size_bytes(item))
