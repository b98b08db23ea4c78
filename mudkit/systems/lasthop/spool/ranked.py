"""A queue by rank from which anything may be taken out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

import msgspec

__all__ = ["FOREVER_US", "NOWHERE", "Entry", "Message", "Ranked", "Take"]

FOREVER_US: Final = 1 << 62
"""The expiration of what does not expire."""
NOWHERE: Final = -1
"""The place of a message that is in no queue."""
_MAX_DEAD: Final = 64


class Message(msgspec.Struct, gc=False, eq=False):
    """A message, as long as somebody keeps it.

    Parameters
    ----------
    identity : hashable
    rank : float
    order : int
        Which it was of all that came.
    arrived_us, expires_us : int
    place : int
        The number of the queue that it is in.
    """

    identity: Hashable
    rank: float
    order: int
    arrived_us: int
    expires_us: int
    place: int = NOWHERE

    def __lt__(self, other: Message) -> bool:
        """Put two in order of which rank and number are the same: whoever numbers them may begin anew."""
        return str(self.identity) < str(other.identity)


Entry = tuple[float, int, Message]
"""``(-rank, order, message)``: sorted, the highest rank comes first, of equals the one that came first."""


Take: TypeAlias = Callable[[Message], None]
"""Function that takes a message that is forwarded, retracted or finished."""


class Ranked:
    """Messages by rank.

    A message is in one queue at a time, and knows in which. What was taken out from the middle, or has
    another rank now, leaves an entry that is dead until it comes to the top, or until too many are.

    Parameters
    ----------
    place : int
        Its number.

    Attributes
    ----------
    size : int
        Messages that are in it.
    """

    __slots__ = ("_heap", "_place", "size")

    def __init__(self, place: int) -> None:
        self._place = place
        self._heap: list[Entry] = []
        self.size = 0

    def __iter__(self) -> Iterator[Message]:
        """Give them, the first one first."""
        return (entry[2] for entry in sorted(self._alive()))

    def add(self, message: Message) -> None:
        """Put a message in that is in no queue."""
        message.place = self._place
        self.size += 1
        heappush(self._heap, (-message.rank, message.order, message))

    def rerank(self, message: Message, rank: float) -> None:
        """Give a message that is in it another rank."""
        if rank != message.rank:
            message.rank = rank
            heappush(self._heap, (-rank, message.order, message))
            self._clean()

    def remove(self, message: Message) -> None:
        """Take out a message that is in it."""
        message.place = NOWHERE
        self.size -= 1
        self._clean()

    def first(self) -> Entry | None:
        """Give the first entry without taking it out."""
        heap, place = self._heap, self._place
        while heap:
            entry = heap[0]
            if entry[2].place == place and entry[2].rank == -entry[0]:
                return entry
            heappop(heap)
        return None

    def pop(self) -> Message:
        """Take the first one out; there must be one."""
        heap, place = self._heap, self._place
        while True:
            rank, _, message = heappop(heap)
            if message.place == place and message.rank == -rank:
                message.place = NOWHERE
                self.size -= 1
                return message

    def take(self, most: float) -> list[Message]:
        """Take out so many, the first one first, or all that there are."""
        heap, place = self._heap, self._place
        taken: list[Message] = []
        count = min(most, self.size)
        while len(taken) < count:
            rank, _, message = heappop(heap)
            if message.place == place and message.rank == -rank:
                message.place = NOWHERE
                taken.append(message)
        self.size -= len(taken)
        return taken

    def pass_first(self, to: Ranked) -> Message:
        """Take the first one out and put it into another queue; there must be one."""
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

    def _alive(self) -> set[Entry]:
        place = self._place
        return {entry for entry in self._heap if entry[2].place == place and entry[2].rank == -entry[0]}

    def _clean(self) -> None:
        if len(self._heap) > 2 * self.size + _MAX_DEAD:
            self._heap = list(self._alive())
            heapify(self._heap)
