"""Access points without state: publish-subscribe before SUBLIM (sections 1 and 2).

It stores the address and the predicate of each subscriber in memory; a message that cannot be delivered now
is lost. Both kinds work side by side (section 2, incremental deployment): access points with SUBLIM serve
plain subscribers too, and subscribers with state are served remotely, over the wired network, where only
plain access points are near. A Hello has no number: a late copy counts until the next Hello, a minute later.

==========  ==========================================================================================
Hello       subscribe: send messages for which the predicate is TRUE to this address, and no others. Name
            a new address to the publish server, again with the next Hello until it has noted it
Bye         unsubscribe
Messages    send each new message to the subscribers whose predicate is TRUE. Remove those whose address is
            taken at another access point
==========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    AddressesNoted,
    Bye,
    Hello,
    Join,
    Messages,
    MessagesAck,
    PlainMessage,
    Whereabouts,
)

LANGUAGE: Final = Language(("message",), bound=())
"""Language of their predicates: fields of the message, without state."""
_JOIN_INTERVAL_US: Final = 5_000_000
_JOIN: Final = "join"


class PlainService:
    """Subscriptions of the subscribers without state at one access point of either kind."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, tuple[str, Predicate]] = {}
        """Address and predicate by subscriber."""
        self._name_at: dict[str, str] = {}
        """Subscriber by address."""
        self._moved: dict[str, Whereabouts] = {}
        """New addresses that the publish server may not have noted."""
        self._lineage: Lineage = {}
        self._last_lsn = 0
        self._taken: dict[str, int] = {}
        """Last position sent of each incarnation of the log."""

    @property
    def moved(self) -> Mapping[str, Whereabouts]:
        """New addresses that the publish server may not have noted, by subscriber."""
        return self._moved

    def record_noted(self, noted: Mapping[str, Whereabouts]) -> None:
        """Remove the addresses that the publish server has noted from :attr:`moved`."""
        for name, where in noted.items():
            if self._moved.get(name) == where:
                del self._moved[name]

    def update_subscription(self, source: str, message: Hello | Bye) -> bool:
        """Subscribe or unsubscribe; return whether the publish server has to note the address."""
        name, where = message.subscriber, Whereabouts(source, "")
        is_known = self._name_at.get(source) == name and self._moved.get(name) != where
        self._remove_subscriber(name)
        if isinstance(message, Bye):
            return False
        self.remove_address(source)
        try:
            self._subscriptions[name] = source, Predicate.parse(message.filter, language=LANGUAGE)
        except PredicateError:  # not from a client, which would have checked it
            return False
        self._name_at[source] = name
        if not is_known:
            self._moved[name] = where
        return not is_known

    def remove_address(self, address: str, name: str | None = None) -> None:
        """Remove the subscriber at an address; with ``name``, only if it is this one."""
        at = self._name_at.get(address)
        if at is not None and name in (None, at):
            self._remove_subscriber(at)

    def _remove_subscriber(self, name: str) -> None:
        """Remove a subscription, and its address."""
        subscription = self._subscriptions.pop(name, None)
        if subscription is not None:
            del self._name_at[subscription[0]]
        self._moved.pop(name, None)

    def send_messages(self, announced: Messages, lineage: Lineage) -> Sequence[Effect]:
        """Send new messages of the present log to the subscribers whose predicate matches."""
        if lineage != self._lineage:
            shared = shared_lsn(self._lineage, self._last_lsn, lineage, announced.last_lsn)
            self._taken = taken_by_incarnation(self._lineage, self._last_lsn, self._taken)
            self._last_lsn = resume_lsn(shared, self._taken, lineage, announced.last_lsn)
            self._lineage = lineage
        effects: list[Effect] = []
        for message in announced.messages:
            if message.lsn <= self._last_lsn:
                continue
            self._last_lsn = message.lsn
            sent = PlainMessage(
                message.lsn, message.item, message.body, incarnation_at(lineage, message.lsn) or UNSET
            )
            for name, (address, predicate) in list(self._subscriptions.items()):
                try:
                    is_wanted = predicate(message.body) is True
                except PredicateError as error:  # for instance a lookup: there are no tables
                    self._remove_subscriber(name)
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
                match FROM_PUBLISHER.decode(event.message):
                    case None:
                        return record_dropped(event)
                    case AddressesNoted(subscribers=noted):
                        self._service.record_noted(noted)
                    case Messages() as messages:
                        return self._receive_messages(messages)
            case Received(source=source):
                message = FROM_PLAIN_CLIENT.decode(event.message)
                if message is None or message.subscriber != event.sender:
                    return record_dropped(event)
                if self._service.update_subscription(source, message) and self._has_joined:
                    return (Send(self._server, self._build_ack()),)
            case SendFailed(to=to, message=PlainMessage()):
                self._service.remove_address(to)
            case LinkUp() | TimerFired() if not self._has_joined:
                return Send(self._server, Join()), SetTimer(_JOIN, _JOIN_INTERVAL_US)
            case Call(op_id=op_id):
                return (Complete(op_id),)  # no state
        return ()

    def _receive_messages(self, message: Messages) -> Sequence[Effect]:
        """Follow the log of the publish server: send new messages to subscribers, acknowledge."""
        self._has_joined = True
        lineage: Lineage = {} if message.lineage is UNSET else message.lineage
        if not self._log.accept_lineage(lineage, message.last_lsn, message.nonce or None):
            nonce = self._log.open_question(self._entropy)
            return (Send(self._server, replace(self._build_ack(), nonce=nonce)),)
        taken = {} if message.taken is UNSET else message.taken
        for name, address in taken.items():
            self._service.remove_address(address, name)
        flooded = self._service.send_messages(message, lineage)
        return [*flooded, Send(self._server, replace(self._build_ack(), lost=list(taken) or UNSET))]

    def _build_ack(self) -> MessagesAck:
        """Return the acknowledgement of messages; name the subscribers whose address must be noted."""
        moved = dict(self._service.moved)
        return MessagesAck(
            self._log.last_lsn or 0, last_incarnation(self._log.lineage) or UNSET, moved or UNSET
        )
