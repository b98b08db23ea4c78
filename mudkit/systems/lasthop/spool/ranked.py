"""Priority queue by rank from which any message may be removed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

import msgspec

FOREVER_US: Final = 1 << 62
"""Expiration of messages that never expire."""
NOWHERE: Final = -1
"""Place of a message that is in no queue."""
_MAX_DEAD: Final = 64


class Message(msgspec.Struct, gc=False, eq=False):
    """A message in a spool or on a device; ``order`` numbers arrivals, ``place`` is its queue."""

    identity: Hashable
    rank: float
    order: int
    arrived_us: int
    expires_us: int
    place: int = NOWHERE

    def __lt__(self, other: Message) -> bool:
        """Order messages of equal rank and number, which a restarted publisher may assign again."""
        return str(self.identity) < str(other.identity)


Entry = tuple[float, int, Message]
"""``(-rank, order, message)``: sorts by rank, highest first, then by arrival."""


Take: TypeAlias = Callable[[Message], None]
"""Callback for a message that is forwarded, retracted or finished."""


class Ranked:
    """Messages by rank, each in one queue at a time; ``size`` is their number.

    A removed or re-ranked message leaves a dead entry in the heap until it is at the top or too many are
    dead.
    """

    __slots__ = ("_heap", "_place", "size")

    def __init__(self, place: int) -> None:
        self._place = place
        self._heap: list[Entry] = []
        self.size = 0

    def __iter__(self) -> Iterator[Message]:
        """Iterate in order of rank."""
        return (entry[2] for entry in sorted(self._live_entries()))

    def add(self, message: Message) -> None:
        """Add a message that is in no queue."""
        message.place = self._place
        self.size += 1
        heappush(self._heap, (-message.rank, message.order, message))

    def rerank(self, message: Message, rank: float) -> None:
        """Change the rank of a message that is in the queue."""
        if rank != message.rank:
            message.rank = rank
            heappush(self._heap, (-rank, message.order, message))
            self._drop_dead_entries()

    def remove(self, message: Message) -> None:
        """Remove a message that is in the queue."""
        message.place = NOWHERE
        self.size -= 1
        self._drop_dead_entries()

    def first(self) -> Entry | None:
        """Return the first entry without removing it; None: the queue is empty."""
        heap, place = self._heap, self._place
        while heap:
            entry = heap[0]
            if entry[2].place == place and entry[2].rank == -entry[0]:
                return entry
            heappop(heap)
        return None

    def pop(self) -> Message:
        """Remove and return the first message; there must be one."""
        heap, place = self._heap, self._place
        while True:
            rank, _, message = heappop(heap)
            if message.place == place and message.rank == -rank:
                message.place = NOWHERE
                self.size -= 1
                return message

    def take(self, max_messages: float) -> list[Message]:
        """Remove and return up to ``max_messages`` messages in order."""
        heap, place = self._heap, self._place
        taken: list[Message] = []
        count = min(max_messages, self.size)
        while len(taken) < count:
            rank, _, message = heappop(heap)
            if message.place == place and message.rank == -rank:
                message.place = NOWHERE
                taken.append(message)
        self.size -= len(taken)
        return taken

    def move_first(self, to: Ranked) -> Message:
        """Move the first message to another queue and return it; there must be one."""
        heap, place = self._heap, self._place
        while True:
            entry = heappop(heap)
            rank, _, message = entry
            if message.place == place and message.rank == -rank:
                self.size -= 1
                message.place = to._place
                to.size += 1
                heappush(to._heap, entry)
                return message

    def _live_entries(self) -> set[Entry]:
        """Return the entries of messages that are in the queue with this rank."""
        place = self._place
        return {entry for entry in self._heap if entry[2].place == place and entry[2].rank == -entry[0]}

    def _drop_dead_entries(self) -> None:
        """Rebuild the heap if most of its entries are dead."""
        if len(self._heap) > 2 * self.size + _MAX_DEAD:
            self._heap = list(self._live_entries())
            heapify(self._heap)
