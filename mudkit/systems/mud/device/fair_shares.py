"""Fair shares of a device's link: an app that sends much waits for its own answers, not other apps for it.

While several apps are attached, each has a window of unanswered requests. What does not fit waits in a queue
of the app, in order. So at most a window of each other app is before a request on the link.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct, field

from mudkit.events import size_bytes
from mudkit.systems.mud.messages.requests import Ask, AskBatch

MAX_BYTES: Final = 16 * 1024
"""Bytes of an app's unanswered requests, beyond which its next ones wait: 1.6 s of a link of 10 kB/s."""
MAX_REQUESTS: Final = 16
"""Unanswered messages of an app, beyond which its next ones wait: their answers share the link down."""
_FORGOTTEN_US: Final = 60_000_000
"""Time since its last transmission after which an unanswered message does not count any more.

An app sends what it waits for again each ten seconds; what it does not, it has withdrawn.
"""

Message: TypeAlias = Ask | AskBatch


class _Sent(Struct):
    """Message that was sent: the requests in it that have no answer, its size, and its last transmission."""

    open_ids: set[str]
    size_bytes: int
    sent_us: int


class _Queue(Struct):
    """Messages of one app: those that were sent, and those that wait, in order."""

    sent: list[_Sent] = field(default_factory=list)
    waiting: list[Message] = field(default_factory=list)


class FairShares:
    """Windows and queues of the apps of a device."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    def offer(self, now_us: int, app: str, message: Message) -> list[Message]:
        """Add a message of an app; return those of the app that are to be sent now.

        A retransmission takes the place of what waits; of what was sent, it is sent again, and counts on. One
        that has other requests, too, waits for room, before all others.
        """
        queue, ids = self._queues.setdefault(app, _Queue()), set(_ids(message))
        sent_before = [sent for sent in queue.sent if sent.open_ids & ids]
        if sent_before and ids <= set[str]().union(*(sent.open_ids for sent in sent_before)):
            for sent in sent_before:
                sent.sent_us = now_us
            return [message]
        places = [place for place, other in enumerate(queue.waiting) if ids.issuperset(_ids(other))]
        if places:
            queue.waiting = [other for place, other in enumerate(queue.waiting) if place not in places]
            queue.waiting.insert(places[0], message)
        else:
            queue.waiting.insert(0 if sent_before else len(queue.waiting), message)
        return self._take(now_us, queue)

    def settle(self, now_us: int, app: str, identity: str) -> list[Message]:
        """Note the answer to a request of an app; return the messages of the app that are to be sent now."""
        queue = self._queues.get(app)
        if queue is None:
            return []
        for sent in queue.sent:
            sent.open_ids.discard(identity)
        return self._take(now_us, queue)

    def clear(self) -> None:
        """Forget all messages: without a link nothing is sent, and the apps send again over the next one."""
        self._queues.clear()

    def _take(self, now_us: int, queue: _Queue) -> list[Message]:
        """Remove and return the waiting messages for which the window has room; they count as sent now.

        An empty window has room for a message of any size. Answered messages, and those sent too long ago,
        leave it; so does one all of whose requests are sent again with others.
        """
        queue.sent = [sent for sent in queue.sent if sent.open_ids and now_us < sent.sent_us + _FORGOTTEN_US]
        taken: list[Message] = []
        while queue.waiting:
            message = queue.waiting[0]
            size, ids = size_bytes(message), set(_ids(message))
            kept = [sent for sent in queue.sent if not sent.open_ids <= ids]
            used = sum(sent.size_bytes for sent in kept)
            if kept and (len(kept) >= MAX_REQUESTS or used + size > MAX_BYTES):
                break
            for sent in kept:
                sent.open_ids -= ids
            queue.sent = [*kept, _Sent(ids, size, now_us)]
            taken.append(queue.waiting.pop(0))
        return taken


def _ids(message: Message) -> list[str]:
    """Return the identifiers of the requests in a message."""
    return [ask.id for ask in message.asks] if isinstance(message, AskBatch) else [message.id]
