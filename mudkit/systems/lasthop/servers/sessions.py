"""The server's sessions with devices: who is there, and what is sent again until it is confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mudkit.delivery.session import Incarnation
from mudkit.delivery.stream import StreamItem
from mudkit.events import Effect, Ports, Send, size_bytes
from mudkit.systems.lasthop.messages import Ack, Body, Identify, Session, Stream
from mudkit.systems.lasthop.servers.phone import Phone

__all__ = ["Sessions"]

_WHO: Final = 0
"""The question who a device is, among what it has not answered; items of its stream begin with 1."""


class _Kept(msgspec.Struct, frozen=True):
    """What outlives the server of a phone."""

    session: Session
    former: list[list[str | int]]
    address: str | None
    told: int


class Sessions:
    """Keeps what is known of each phone, and sends again what nobody has confirmed.

    Parameters
    ----------
    ports : Ports
    """

    def __init__(self, ports: Ports) -> None:
        self._store = ports.store
        self._start = Incarnation(ports)
        self._phones: dict[str, Phone] = {}
        self._now_us = 0

    def _acked(self, message: Ack) -> Sequence[Effect]:
        """Take note of what has come, and send again what the device misses."""
        phone = self._phones.get(message.device)
        if phone is None or phone.stream is None or phone.stream.name != message.stream:
            return ()
        effects: list[Effect] = []
        for seq in [each.seq for each in phone.stream.waiting if each.seq <= message.seq]:
            effects += phone.unanswered.answered(self._now_us, seq)
        phone.stream.acked(message.seq)
        missing = () if message.missing is msgspec.UNSET else frozenset(message.missing)
        return [*effects, *self._stream(phone, phone.stream.missing(missing))]

    def _check(self, source: str, phone: Phone, session: Session) -> tuple[bool, Sequence[Effect]]:
        """Say whether this is the session that goes on; a device that believes so is asked who it is."""
        goes_on = session == phone.session and phone.is_there
        if goes_on or phone.is_over(session):
            return goes_on, ()
        return goes_on, (Send(source, Identify(phone.name, session)),)

    def _phone(self, device: str) -> Phone:
        if device not in self._phones:
            self._phones[device] = Phone(device)
        return self._phones[device]

    def _take_up(self) -> None:
        """Take up the phones that another life has left."""
        for key, kept in self._store.items("phone ", _Kept):
            phone = self._phone(key.removeprefix("phone "))
            phone.session = kept.session
            phone.former = [(str(store), int(life)) for store, life in kept.former]
            phone.address, phone.facts_heard = kept.address, kept.told

    def _keep(self, phone: Phone) -> None:
        former: list[list[str | int]] = [[store, life] for store, life in phone.former]
        kept = _Kept(phone.session, former, phone.address, phone.facts_heard)
        self._store.put(f"phone {phone.name}", kept)

    def _ask_who(self, phone: Phone) -> Sequence[Effect]:
        """Ask a device that was there in another life who it is, until it says hello."""
        if phone.address is None:
            return ()
        question = Identify(phone.name, phone.session, self._start.id)
        return Send(phone.address, question), *phone.unanswered.sent(self._now_us, _WHO)

    def _stream(self, phone: Phone, items: Iterable[StreamItem[Body]]) -> Sequence[Effect]:
        """Send a device items of its stream, if it is there; again until it has confirmed them."""
        effects: list[Effect] = []
        if phone.is_there and phone.address is not None:
            for item in items:
                message = Stream(item.stream, item.seq, item.first, item.body, phone.name)
                due = phone.unanswered.sent(self._now_us, item.seq, size_bytes(message))
                effects += (Send(phone.address, message), *due)
        return effects

    def _again(self, phone: Phone) -> Sequence[Effect]:
        """Send again what a device should have confirmed by now, and ask again who it is."""
        late = phone.unanswered.overdue(self._now_us)
        asked = self._ask_who(phone) if _WHO in late else ()
        items = () if phone.stream is None else phone.stream.missing(frozenset(late))
        return [*asked, *self._stream(phone, items), *phone.unanswered.fired(self._now_us)]
