"""Access points without state: publish-subscribe as the paper found it (SUBLIM, sections 1 and 2).

A server keeps the address of a subscriber and a predicate over the message, and nothing else: what cannot be
delivered now is lost. They work beside SUBLIM (section 2, incremental deployment): access points with
SUBLIM serve subscribers of this kind too, and those who have a state are served from afar, over the wired
network, where only access points without SUBLIM are near.

==========  ==========================================================================================
hello       a subscriber is at this address, and wants messages for which its predicate is TRUE
bye         it does not want them from here any more
messages    each new one at once to those who want it
==========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from mudkit.delivery.records import delivery
from mudkit.delivery.session import Follower, Lineage, last_start, shared_seq
from mudkit.display import View
from mudkit.errors import PredicateError
from mudkit.events import (
    Call,
    Complete,
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
)
from mudkit.predicates import Language, Predicate
from mudkit.systems.receiving import dropped
from mudkit.systems.sublim.messages import (
    FROM_PLAIN_CLIENT,
    FROM_PUBLISHER,
    Bye,
    Have,
    Hello,
    Join,
    Messages,
    Plain,
)

__all__ = ["LANGUAGE", "PlainAccessPointMachine", "PlainService"]

LANGUAGE: Final = Language(("message",), bound=())
"""Of their predicates: the message, and no state."""
_JOIN_US: Final = 5_000_000
_JOIN: Final = "join"


class PlainService:
    """What an access point does for subscribers without state."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[str, Predicate]] = {}
        """By subscriber: its address, and its predicate."""
        self._log = Follower()
        self._last = 0

    def heard(self, source: str, message: Hello | Bye) -> None:
        """Take what a subscriber says."""
        match message:
            case Hello(subscriber=name, filter=text):
                try:
                    self._wanted[name] = source, Predicate.parse(text, language=LANGUAGE)
                except PredicateError:  # the client has checked it: whoever sent this is none
                    self._wanted.pop(name, None)
            case Bye(subscriber=name):
                self._wanted.pop(name, None)

    def is_away(self, address: str) -> None:
        """Take note that nobody is at an address."""
        self._wanted = {name: each for name, each in self._wanted.items() if each[0] != address}

    def flood(self, announced: Messages) -> Sequence[Effect]:
        """Send what is new to those who want it."""
        lineage: Lineage = {} if announced.lineage is UNSET else announced.lineage
        before = self._log.lineage
        if not self._log.hear(lineage, announced.last):
            return ()
        if lineage != before:
            self._last = shared_seq(before, self._last, lineage, announced.last)
        effects: list[Effect] = []
        for message in announced.messages:
            if message.seq <= self._last:
                continue
            self._last = message.seq
            sent = Plain(message.seq, message.item, message.body)
            for name, (address, predicate) in list(self._wanted.items()):
                try:
                    is_wanted = predicate(message.body) is True
                except PredicateError as error:  # a lookup, say: there is nothing to look up in
                    del self._wanted[name]
                    detail = f"predicate of {name}: {error.summary}"
                    effects.append(Record("incidents", {"incident": "failed", "detail": detail}))
                    continue
                if is_wanted:
                    created = delivery(message.item, name, created_us=message.created_us)
                    effects += [created, Send(address, sent)]
        return effects


class PlainAccessPointMachine:
    """The machine of an access point without SUBLIM.

    Parameters
    ----------
    ports : Ports
    server : str
        Address of the publish server.
    """

    def __init__(self, ports: Ports, server: str) -> None:
        self._server = server
        self._service = PlainService()
        self._has_joined = False

    def overview(self) -> View:
        """Return its server, as a display shows it."""
        return View("", {"server": self._server, "joined": self._has_joined})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source) if source == self._server:
                messages = FROM_PUBLISHER.decode(event.message)
                if messages is None:
                    return dropped(event)
                self._has_joined = True
                have = Have(messages.last)
                if messages.lineage is not UNSET:
                    have = Have(messages.last, last_start(messages.lineage))
                return [*self._service.flood(messages), Send(self._server, have)]
            case Received(source=source):
                message = FROM_PLAIN_CLIENT.decode(event.message)
                if message is None or message.subscriber != event.sender:
                    return dropped(event)
                self._service.heard(source, message)
            case SendFailed(to=to, message=Plain()):
                self._service.is_away(to)
            case LinkUp() | TimerFired() if not self._has_joined:
                return Send(self._server, Join()), SetTimer(_JOIN, _JOIN_US)
            case Call(op_id=op_id):
                return (Complete(op_id),)  # it keeps no state of anybody
        return ()
