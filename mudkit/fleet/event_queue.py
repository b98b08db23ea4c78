"""What is to come, in order: a heap of what comes soon, and the rest unsorted in buckets of time.

In one heap each message, which takes milliseconds, would be sifted past every timer of the fleet, which wait
for minutes. Buckets: R. Brown, "Calendar queues", Communications of the ACM 31 (10), 1988.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

__all__ = ["Entry", "EventQueue"]

Entry: TypeAlias = tuple[int, int, int, Callable[[Any], None], Any]
"""Time in µs, priority, number, what to do and with what; the number is the order of adding."""

_BITS: Final = 22
"""A bucket is 2**22 µs, about 4 s: long beside a message's way, short beside a timer."""


class EventQueue:
    """Entries in the order of ``(t_us, priority, number)``."""

    __slots__ = ("_begins", "_buckets", "_number", "_until_us", "near")

    def __init__(self) -> None:
        self.near: list[Entry] = []
        """A heap; empty only when nothing is to come, or until :meth:`refill`."""
        self._until_us = 0
        """Everything before this time is in ``near``."""
        self._buckets: dict[int, list[Entry]] = {}
        self._begins: list[int] = []
        """A heap of the buckets' keys."""
        self._number = 0

    def __len__(self) -> int:
        return len(self.near) + sum(map(len, self._buckets.values()))

    def __iter__(self) -> Iterator[Entry]:
        """Give what is to come, in no order."""
        yield from self.near
        for bucket in self._buckets.values():
            yield from bucket

    def add(self, t_us: int, priority: int, action: Callable[[Any], None], argument: Any) -> None:
        """Add an entry; ``t_us`` is not before the last that was taken."""
        self._number = number = self._number + 1
        if t_us < self._until_us:
            heappush(self.near, (t_us, priority, number, action, argument))
            return
        key = t_us >> _BITS
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = []
            heappush(self._begins, key)
        bucket.append((t_us, priority, number, action, argument))

    def is_due(self, now_us: int) -> bool:
        """Say whether something is to come that is not later than this."""
        near = self.near
        return bool(near or self.refill()) and near[0][0] <= now_us

    def refill(self) -> bool:
        """Go on to the next bucket when ``near`` is empty, and say whether anything is to come."""
        if not self.near and self._begins:
            key = heappop(self._begins)
            self.near += self._buckets.pop(key)
            heapify(self.near)
            self._until_us = key + 1 << _BITS
        return bool(self.near)
