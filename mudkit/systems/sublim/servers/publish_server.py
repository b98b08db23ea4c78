"""Publish server: numbers the messages and floods them to the access points (SUBLIM, section 3).

The paper's is "a simple router". This one also stores the last messages, for access points that were away.

=============  =======================================================================================
publish        assign the next number, store, send to all access points
Submission     the same for a publisher on a device, once and in order; acknowledge, or refuse what cannot
               be stored
Join           register the access point; send it the last number, and where its subscribers were
ReplayRequest  send stored messages starting at a number, a batch at a time; skip deleted ones
MessagesAck    record that the access point has all messages up to a number; store where its subscribers are
               for an access point that comes back from a backup, and acknowledge it. A subscriber of another
               access point had this address: tell that one (taken), until it does not send there any more
start          with a store that is not empty: add an incarnation to the log's lineage; announce it to the
               access points, which may know messages that a restored backup lacks
timer          announce the last number to access points that have not acknowledged it
=============  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from mudkit.delivery.session import Incarnation, Lineage, continue_lineage, last_incarnation
from mudkit.delivery.submission import Refusal, Submission, Submissions
from mudkit.display import View
from mudkit.errors import ParameterError
from mudkit.events import Call, Complete, Effect, Event, LinkUp, Ports, Received, Send, SetTimer, TimerFired
from mudkit.systems.receiving import record_dropped
from mudkit.systems.sublim._policy.state import LimitExceeded, check_bytes
from mudkit.systems.sublim.messages import (
    SUBMITTED,
    TO_PUBLISHER,
    AddressesNoted,
    Body,
    FromPublisher,
    Join,
    Messages,
    MessagesAck,
    Publish,
    PublishedMessage,
    ReplayRequest,
    Whereabouts,
)
from mudkit.systems.sublim.sites import Site

MAX_STORED: Final = 10_000
"""Number of messages stored for replay."""
REPLAY_BATCH: Final = 50
"""Messages in a replay batch."""
_TIMEOUT_US: Final = 5_000_000
_ANNOUNCE: Final = "again"
_AT: Final = "at "


class _Location(Struct, frozen=True):
    """Address and store id of a subscriber, and the access point that has named them."""

    point: str
    where: Whereabouts


class PublishServerMachine:
    """Machine of the publish server. ``start_us`` is time 0, in µs since 1970."""

    def __init__(self, ports: Ports, start_us: int, sites: Sequence[Site], kept: int = MAX_STORED) -> None:
        self._store = ports.store
        self._submissions = Submissions(ports)
        self._start_us = start_us
        self._sites = sites
        self._kept = kept
        self._last_lsn: int = ports.store.get("last", int) or 0
        points: list[str] | None = ports.store.get("points", list)
        self._points: dict[str, int] = {}
        """Last position acknowledged since this start, by address of the access point."""
        self._lineage: Lineage = ports.store.get("lineage", dict[str, int]) or {}
        self._restart: Incarnation | None = None
        """Incarnation that continues an existing log, until the first event."""
        if points is not None or self._last_lsn:
            self._restart = Incarnation(ports)
            self._points = dict.fromkeys([*(points or []), *(site.address for site in sites)], -1)
        self._owners: dict[str, str] = {}
        """Subscriber that was the last to attach from an address."""
        self._taken: dict[str, dict[str, str]] = {}
        """Subscribers of an access point whose address is another one's elsewhere, and the address."""
        for key, at in ports.store.items(_AT, _Location):
            name = key.removeprefix(_AT)
            if self._record_owner(name, at):  # it is not known any more which of them is there
                self._taken.setdefault(at.point, {})[name] = at.where.address
        self._is_waiting = False

    def overview(self) -> View:
        """Return the number of messages for the display."""
        behind = sum(last_lsn < self._last_lsn for last_lsn in self._points.values())
        return View("", {"messages published": self._last_lsn, "access points behind": behind or None})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if self._restart is not None:  # later messages of the log, if any, are lost
            self._lineage = continue_lineage(self._lineage, self._last_lsn, self._restart.id)
            self._store.put("lineage", self._lineage)
            self._restart = None
        match event:
            case Call(op_id=op_id, operation=Publish() as request):
                sent = self._publish(now_us, request.body, request.item or f"message {self._last_lsn + 1}")
                return [*sent, Complete(op_id, self._last_lsn)]
            case Received(message=message):
                submitted = SUBMITTED.decode(message)
                if submitted is not None:
                    return self._receive_submission(now_us, event, submitted)
                return self._receive_message(now_us, event)
            case LinkUp():
                late = [point for point, last_lsn in self._points.items() if last_lsn < self._last_lsn]
                return self._announce(now_us, late)
            case TimerFired():
                late = [
                    point
                    for point, last_lsn in self._points.items()
                    if self._remaining_us(now_us, last_lsn) == 0
                ]
                return self._announce(now_us, late)
        return ()

    def _announce(self, now_us: int, late: Sequence[str]) -> Sequence[Effect]:
        """Announce the last number to access points that are late, or are to be told of a taken address."""
        points = list(dict.fromkeys([*late, *self._taken]))
        return [
            *(Send(point, self._build_announcement(point)) for point in points),
            *self._set_timer(now_us, points),
        ]

    def _receive_message(self, now_us: int, event: Received) -> Sequence[Effect]:
        """Handle a message of an access point: Join, ReplayRequest or MessagesAck."""
        source, message = event.source, TO_PUBLISHER.decode(event.message)
        match message:
            case _ if message is None or all(site.address != source for site in self._sites):
                return record_dropped(event)
            case Join(nonce=nonce):
                if source not in self._points:
                    self._points[source] = 0
                    self._store.put("points", list(self._points))
                served = self._list_subscribers(source) or UNSET
                return (Send(source, replace(self._build_announcement(source), served=served, nonce=nonce)),)
            case ReplayRequest(first_lsn=first_lsn):
                return (Send(source, self._build_replay(source, first_lsn)),)
            case MessagesAck(
                last_lsn=last_lsn, log_incarnation=incarnation, moved=moved, lost=lost, nonce=nonce
            ):
                if lost is not UNSET:
                    for name in self._taken.get(source, {}).keys() & lost:
                        self._record_lost(source, name)
                effects: list[Effect] = []
                if moved is not UNSET:
                    are_taken = [
                        self._record_location(name, _Location(source, where)) for name, where in moved.items()
                    ]
                    effects = [Send(source, AddressesNoted(moved))]
                    effects += self._announce(now_us, ()) if any(are_taken) else ()
                if (incarnation or "") == last_incarnation(self._lineage):  # else it refers to another log
                    self._points[source] = max(self._points.get(source, 0), last_lsn)
                if nonce is not UNSET:
                    return [*effects, Send(source, replace(self._build_announcement(source), nonce=nonce))]
                return effects

    def _record_location(self, name: str, at: _Location) -> bool:
        """Store where a subscriber is; return whether an access point has to stop sending elsewhere."""
        before = self._store.get(_AT + name, _Location)
        self._release_address(name)
        self._store.put(_AT + name, at)
        is_taken = self._record_owner(name, at)
        if before is None or before.point == at.point or before.where.store_id:
            return is_taken
        # A plain subscriber's Bye may be lost. State of others moves by a handover.
        self._taken.setdefault(before.point, {})[name] = before.where.address
        return True

    def _record_owner(self, name: str, at: _Location) -> bool:
        """Record who owns an address now; return whether another access point must stop sending there."""
        address = at.where.address
        former = self._owners.get(address, name)
        self._owners[address] = name
        before = self._store.get(_AT + former, _Location)
        if before is None or before.point == at.point:
            return False
        self._taken.setdefault(before.point, {})[former] = address
        return True

    def _release_address(self, name: str) -> None:
        """Forget that a subscriber owns its address, and that its access point has to stop sending there."""
        at = self._store.get(_AT + name, _Location)
        if at is None:
            return
        if self._owners.get(at.where.address) == name:
            del self._owners[at.where.address]
        taken = self._taken.get(at.point, {})
        if taken.pop(name, None) is not None and not taken:
            del self._taken[at.point]

    def _record_lost(self, point: str, name: str) -> None:
        """Record that an access point sends nothing more to a subscriber, as the announcement demanded."""
        at = self._store.get(_AT + name, _Location)
        if at is not None and at.point == point:
            self._release_address(name)
            self._store.delete(_AT + name)
        taken = self._taken.get(point, {})
        taken.pop(name, None)
        if not taken:
            self._taken.pop(point, None)

    def _list_subscribers(self, point: str) -> dict[str, Whereabouts]:
        """Return where the subscribers with state of an access point are, which may have lost them."""
        known = self._store.items(_AT, _Location)
        are_here = ((key.removeprefix(_AT), at.where) for key, at in known if at.point == point)
        return {name: where for name, where in are_here if where.store_id}

    def _remaining_us(self, now_us: int, last_lsn: int) -> int | None:
        """Return the time left to acknowledge the message after ``last_lsn``; None if there is none."""
        if last_lsn >= self._last_lsn:
            return None
        kept = self._store.get(_message_key(last_lsn + 1), PublishedMessage)
        return 0 if kept is None else max(kept.created_us + _TIMEOUT_US - now_us, 0)

    def _set_timer(self, now_us: int, announced: Sequence[str]) -> Sequence[Effect]:
        """Set the timer for the access point that is due first; ``announced`` ones have the whole timeout."""
        remaining_us = [
            _TIMEOUT_US if point in announced else left_us
            for point, last_lsn in self._points.items()
            if (left_us := self._remaining_us(now_us, last_lsn)) is not None
        ]
        remaining_us += [_TIMEOUT_US] if self._taken else []
        self._is_waiting = bool(remaining_us)
        return (SetTimer(_ANNOUNCE, max(min(remaining_us), 1)),) if remaining_us else ()

    def _receive_submission(self, now_us: int, event: Received, message: FromPublisher) -> Sequence[Effect]:
        """Publish what a publisher on a device submits, once; acknowledge or refuse it."""
        if message.device != event.sender:
            return record_dropped(event)
        answer, is_new = self._submissions.receive(event.source, message)
        if not is_new or not isinstance(message, Submission):
            return answer
        submitted = message.body
        try:
            check_bytes(submitted.body, "the message")
        except LimitExceeded as error:
            refusal = Refusal.of(
                ParameterError(
                    "A message cannot be stored.",
                    where="message",
                    found=str(error),
                    expected="what JSON can hold, and bytes",
                )
            )
            return [*answer, *self._submissions.settle(event.source, message, refusal)]
        item = submitted.item or f"message {self._submissions.submission_name(message)}"
        sent = self._publish(now_us, submitted.body, item)
        return [*answer, *sent, *self._submissions.settle(event.source, message)]

    def _publish(self, now_us: int, body: Body, item: str) -> Sequence[Effect]:
        """Assign the next number to a message, store it, and send it to all access points."""
        self._last_lsn += 1
        at_s = (self._start_us + now_us) / 1e6
        kept = PublishedMessage(self._last_lsn, item, now_us, at_s, body)
        self._store.put("last", self._last_lsn)
        self._store.crash_point("numbered, not kept")
        self._store.put(_message_key(self._last_lsn), kept)
        self._store.delete(_message_key(self._last_lsn - self._kept))
        sent = [
            Send(point, replace(self._build_announcement(point), messages=[kept])) for point in self._points
        ]
        timer = [] if self._is_waiting else [SetTimer(_ANNOUNCE, _TIMEOUT_US)]
        self._is_waiting = True
        return [*sent, *timer]

    def _build_replay(self, point: str, first_lsn: int) -> Messages:
        """Return up to REPLAY_BATCH stored messages, starting at ``first_lsn``."""
        begin = max(first_lsn, self._last_lsn - self._kept + 1)
        lsns = range(begin, min(begin + REPLAY_BATCH, self._last_lsn + 1))
        stored = (self._store.get(_message_key(lsn), PublishedMessage) for lsn in lsns)
        return replace(
            self._build_announcement(point), messages=[entry for entry in stored if entry is not None]
        )

    def _build_announcement(self, point: str) -> Messages:
        """Return the ends of the log without messages, and the addresses where an access point must stop."""
        first, taken = max(self._last_lsn - self._kept + 1, 1), self._taken.get(point)
        return Messages(
            self._last_lsn, first, [], self._lineage or UNSET, taken=UNSET if taken is None else dict(taken)
        )


def _message_key(lsn: int) -> str:
    """Return the store key of a message."""
    return f"message {lsn:012d}"
