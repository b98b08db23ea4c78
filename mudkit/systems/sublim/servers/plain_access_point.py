"""Access points without state: publish-subscribe before SUBLIM (sections 1 and 2).

It stores the address and the predicate of each subscriber in memory; a message that cannot be delivered now
is lost. Both kinds work side by side (section 2, incremental deployment): access points with SUBLIM serve
plain subscribers too, and subscribers with state are served remotely, over the wired network, where only
plain access points are near.

==========  ==========================================================================================
Hello       subscribe: send messages for which the predicate is TRUE to this address, and no others
Bye         unsubscribe
Messages    send each new message to the subscribers whose predicate is TRUE
==========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.records import delivery
from mudkit.delivery.session import (
    Follower,
    Lineage,
    incarnation_at,
    last_incarnation,
    resume_lsn,
    shared_lsn,
    taken_by_incarnation,
)
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
from mudkit.systems.receiving import record_dropped
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

LANGUAGE: Final = Language(("message",), bound=())
"""Language of their predicates: fields of the message, without state."""
_JOIN_INTERVAL_US: Final = 5_000_000
_JOIN: Final = "join"


class PlainService:
    """Subscribers without state at one access point."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, tuple[str, Predicate]] = {}
        """Address and predicate by subscriber."""
        self._lineage: Lineage = {}
        self._last = 0
        self._taken: dict[str, int] = {}
        """Last number sent of each start of the log."""

    def subscribe(self, source: str, message: Hello | Bye) -> None:
        """Subscribe or unsubscribe."""
        match message:
            case Hello(subscriber=name, filter=text):
                self.remove_address(source)
                try:
                    self._subscriptions[name] = source, Predicate.parse(text, language=LANGUAGE)
                except PredicateError:  # not from a client, which would have checked it
                    self._subscriptions.pop(name, None)
            case Bye(subscriber=name):
                self._subscriptions.pop(name, None)

    def remove_address(self, address: str) -> None:
        """Remove the subscribers at an address."""
        self._subscriptions = {
            name: subscription
            for name, subscription in self._subscriptions.items()
            if subscription[0] != address
        }

    def flood(self, announced: Messages, lineage: Lineage) -> Sequence[Effect]:
        """Send new messages of the present log to the subscribers whose predicate matches."""
        if lineage != self._lineage:
            shared = shared_lsn(self._lineage, self._last, lineage, announced.last)
            self._taken = taken_by_incarnation(self._lineage, self._last, self._taken)
            self._last = resume_lsn(shared, self._taken, lineage, announced.last)
            self._lineage = lineage
        effects: list[Effect] = []
        for message in announced.messages:
            if message.seq <= self._last:
                continue
            self._last = message.seq
            sent = Plain(
                message.seq, message.item, message.body, incarnation_at(lineage, message.seq) or UNSET
            )
            for name, (address, predicate) in list(self._subscriptions.items()):
                try:
                    is_wanted = predicate(message.body) is True
                except PredicateError as error:  # for instance a lookup: there are no tables
                    del self._subscriptions[name]
                    detail = f"predicate of {name}: {error.summary}"
                    effects.append(Record("incidents", {"incident": "failed", "detail": detail}))
                    continue
                if is_wanted:
                    created = delivery(message.item, name, created_us=message.created_us)
                    effects += [created, Send(address, sent)]
        return effects


class PlainAccessPointMachine:
    """Machine of an access point without SUBLIM. ``server`` is the publish server's address."""

    def __init__(self, ports: Ports, server: str) -> None:
        self._server = server
        self._entropy = ports.entropy
        self._log = Follower()
        self._service = PlainService()
        self._has_joined = False

    def overview(self) -> View:
        """Return the publish server for the display."""
        return View("", {"server": self._server, "joined": self._has_joined})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        match event:
            case Received(source=source) if source == self._server:
                messages = FROM_PUBLISHER.decode(event.message)
                if messages is None:
                    return record_dropped(event)
                self._has_joined = True
                lineage: Lineage = {} if messages.lineage is UNSET else messages.lineage
                is_current = self._log.hear(lineage, messages.last, messages.nonce or None)
                have = Have(self._log.last_lsn or 0, last_incarnation(self._log.lineage) or UNSET)
                if not is_current:
                    return (Send(self._server, replace(have, nonce=self._log.ask(self._entropy))),)
                return [*self._service.flood(messages, lineage), Send(self._server, have)]
            case Received(source=source):
                message = FROM_PLAIN_CLIENT.decode(event.message)
                if message is None or message.subscriber != event.sender:
                    return record_dropped(event)
                self._service.subscribe(source, message)
            case SendFailed(to=to, message=Plain()):
                self._service.remove_address(to)
            case LinkUp() | TimerFired() if not self._has_joined:
                return Send(self._server, Join()), SetTimer(_JOIN, _JOIN_INTERVAL_US)
            case Call(op_id=op_id):
                return (Complete(op_id),)  # no state
        return ()
