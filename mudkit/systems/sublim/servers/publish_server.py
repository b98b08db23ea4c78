"""The publish server: numbers the messages and floods them to the access points (SUBLIM, section 3).

The paper's is "a simple router"; this one also keeps the last messages, for access points that were away and
for subscribers that come late from one. Its rules:

=============  =======================================================================================
publish        the next number; kept; to all access points
join           an access point is there: it learns the last number
replay         messages from a number on, some at a time; what is no longer kept is skipped, and said
have           an access point has heard of all messages up to a number
start          of a store that is not empty: the log continues with another start in its lineage; tell the
               access points, which may know messages that an old backup had not seen
timer          tell the last number to whoever has not said that it has heard of it
=============  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from mudkit.delivery.session import Incarnation, Lineage, continued, last_start
from mudkit.display import View
from mudkit.events import Call, Complete, Effect, Event, LinkUp, Ports, Received, Send, SetTimer, TimerFired
from mudkit.systems.receiving import dropped
from mudkit.systems.sublim.messages import TO_PUBLISHER, Have, Join, Messages, Publish, Published, Replay
from mudkit.systems.sublim.sites import Site

__all__ = ["AT_ONCE", "KEPT", "PublishServerMachine"]

KEPT: Final = 10_000
"""Messages that are kept for those who come late."""
AT_ONCE: Final = 50
"""Messages that are replayed together."""
AGAIN_US: Final = 5_000_000
_AGAIN: Final = "again"


class PublishServerMachine:
    """The server's machine.

    Parameters
    ----------
    ports : Ports
    start_us : int
        What time 0 is, in µs since 1970.
    sites : sequence of Site
        The access points, as they are put up: nobody else is told of messages.
    kept : int
        The number of messages that are kept.
    """

    def __init__(self, ports: Ports, start_us: int, sites: Sequence[Site], kept: int = KEPT) -> None:
        self._store = ports.store
        self._start_us = start_us
        self._sites = sites
        self._kept = kept
        self._last: int = ports.store.get("last", int) or 0
        points: list[str] | None = ports.store.get("points", list)
        self._points: dict[str, int] = {}
        """Access points by address, and the last number that they have acknowledged in this start."""
        self._lineage: Lineage = ports.store.get("lineage", dict[str, int]) or {}
        self._restart: Incarnation | None = None
        """True for a start that continues an existing log, until it has handled an event."""
        if points is not None or self._last:
            self._restart = Incarnation(ports)
            self._points = dict.fromkeys([*(points or []), *(site.address for site in sites)], -1)
        self._is_waiting = False

    def overview(self) -> View:
        """Return what was published, as a display shows it."""
        behind = sum(last < self._last for last in self._points.values())
        return View("", {"messages published": self._last, "access points behind": behind or None})

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """See :class:`mudkit.events.Machine`."""
        if self._restart is not None:  # what a backup had not seen is no part of this log
            self._lineage = continued(self._lineage, self._last, self._restart.id)
            self._store.put("lineage", self._lineage)
            self._restart = None
        match event:
            case Call(op_id=op_id, operation=Publish() as asked):
                return self._publish(now_us, op_id, asked)
            case Received():
                return self._received(event)
            case LinkUp():
                late = [each for each, last in self._points.items() if last < self._last]
                return [*(Send(each, self._announcement()) for each in late), *self._timer(now_us, late)]
            case TimerFired():
                late = [each for each, last in self._points.items() if self._left_us(now_us, last) == 0]
                return [*(Send(each, self._announcement()) for each in late), *self._timer(now_us, late)]
        return ()

    def _received(self, event: Received) -> Sequence[Effect]:
        source, message = event.source, TO_PUBLISHER.decode(event.message)
        match message:
            case _ if message is None or all(site.address != source for site in self._sites):
                return dropped(event)
            case Join():
                if source not in self._points:
                    self._points[source] = 0
                    self._store.put("points", list(self._points))
                return (Send(source, self._announcement()),)
            case Replay(first=first):
                return (Send(source, self._replayed(first)),)
            case Have(last=last, start=start):
                if (start or "") == last_start(self._lineage):  # else it is about another log
                    self._points[source] = max(self._points.get(source, 0), last)
        return ()

    def _left_us(self, now_us: int, last: int) -> int | None:
        """Say how long an access point still has to say that it has heard of the message after its last."""
        if last >= self._last:
            return None
        kept = self._store.get(_key(last + 1), Published)
        return 0 if kept is None else max(kept.created_us + AGAIN_US - now_us, 0)

    def _timer(self, now_us: int, names: Sequence[str]) -> Sequence[Effect]:
        """Set the timer for who has to be told next: each at its time, whatever is published meanwhile."""
        left = [
            AGAIN_US if each in names else left_us
            for each, last in self._points.items()
            if (left_us := self._left_us(now_us, last)) is not None
        ]
        self._is_waiting = bool(left)
        return (SetTimer(_AGAIN, max(min(left), 1)),) if left else ()

    def _publish(self, now_us: int, op_id: int, asked: Publish) -> Sequence[Effect]:
        self._last += 1
        item = asked.item or f"message {self._last}"
        at_s = (self._start_us + now_us) / 1e6
        kept = Published(self._last, item, now_us, at_s, asked.body)
        self._store.put("last", self._last)
        self._store.crash_point("numbered, not kept")
        self._store.put(_key(self._last), kept)
        self._store.delete(_key(self._last - self._kept))
        flooded = replace(self._announcement(), messages=[kept])
        sent = [Send(each, flooded) for each in self._points]
        timer = [] if self._is_waiting else [SetTimer(_AGAIN, AGAIN_US)]
        self._is_waiting = True
        return [*sent, *timer, Complete(op_id, self._last)]

    def _replayed(self, first: int) -> Messages:
        begin = max(first, self._last - self._kept + 1)
        seqs = range(begin, min(begin + AT_ONCE, self._last + 1))
        entries = (self._store.get(_key(each), Published) for each in seqs)
        return replace(self._announcement(), messages=[each for each in entries if each is not None])

    def _announcement(self) -> Messages:
        lineage = self._lineage or UNSET
        return Messages(self._last, max(self._last - self._kept + 1, 1), [], lineage)


def _key(number: int) -> str:
    return f"message {number:012d}"
