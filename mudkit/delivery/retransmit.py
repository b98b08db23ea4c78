"""Retransmission: a deadline for each unacknowledged item, and one timer for all of them.

New traffic never moves the deadline of an older item, and an answer to one item affects only that item.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from mudkit.events import CancelTimer, Effect, SetTimer

DEFAULT_TIMEOUT_US: Final = 5_000_000
"""Initial retransmission timeout; doubles after each retransmission."""
DEFAULT_MAX_TIMEOUT_US: Final = 60_000_000
"""Longest retransmission timeout, without the time that the link needs."""
DEFAULT_US_PER_BYTE: Final = 400
"""Link time added for each byte in flight: a slow link takes 100 µs a byte, and others may be in front."""

_K = TypeVar("_K", bound=Hashable)


class _InFlight(msgspec.Struct):
    """Item in flight: its deadline, first transmission, number of transmissions, and bytes on the link."""

    due_us: int
    sent_us: int
    times: int
    size_bytes: int


class RetransmitTimer(Generic[_K]):
    """Unacknowledged items, each with a deadline that only the item itself moves; ``name`` is the timer's.

    The timeout of an item is the link time of all items in flight (``us_per_byte``) plus ``timeout_us``,
    which doubles at each retransmission up to ``max_timeout_us``. Twice the last measured answer time is
    added, because answers take longer when a server's link is saturated.
    """

    __slots__ = (
        "_in_flight",
        "_max_timeout_us",
        "_round_trip_us",
        "_set_us",
        "_timeout_us",
        "_us_per_byte",
        "name",
        "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        timeout_us: int = DEFAULT_TIMEOUT_US,
        max_timeout_us: int = DEFAULT_MAX_TIMEOUT_US,
        us_per_byte: int = DEFAULT_US_PER_BYTE,
    ) -> None:
        self.name = name
        self._timeout_us = timeout_us
        self._max_timeout_us = max(max_timeout_us, timeout_us)
        self._us_per_byte = us_per_byte
        self._in_flight: dict[_K, _InFlight] = {}
        self._set_us: int | None = None
        """Time at which the timer fires; if no item is due then, it is set again."""
        self._round_trip_us = 0
        self.size_bytes = 0
        """Bytes of all items in flight."""

    def __contains__(self, key: _K) -> bool:
        return key in self._in_flight

    def __iter__(self) -> Iterator[_K]:
        return iter(list(self._in_flight))

    def __len__(self) -> int:
        return len(self._in_flight)

    def age_us(self, now_us: int, key: _K) -> int:
        """Return the time since the first transmission of an item; 0: it is not in flight."""
        item = self._in_flight.get(key)
        return 0 if item is None else now_us - item.sent_us

    def start(self, now_us: int, key: _K, size_bytes: int = 0) -> Sequence[Effect]:
        """Start the deadline of an item at each of its transmissions; set the timer if it is the earliest.

        ``size_bytes`` are its bytes on the link; 0: it was not sent over one.
        """
        return self._set_timer(now_us, self._record_sent(now_us, key, size_bytes))

    def start_together(self, now_us: int, sizes_bytes: Mapping[_K, int]) -> Sequence[Effect]:
        """Start the deadlines of items that are sent in one message, which is lost or arrives as a whole.

        All have that of the item whose deadline is last, so that they are overdue together.
        """
        due_us = max(self._record_sent(now_us, key, size_bytes) for key, size_bytes in sizes_bytes.items())
        for key in sizes_bytes:
            self._in_flight[key].due_us = due_us
        return self._set_timer(now_us, due_us)

    def _record_sent(self, now_us: int, key: _K, size_bytes: int) -> int:
        """Record a transmission of an item, and return its deadline."""
        before = self._in_flight.get(key)
        times, since_us = (0, now_us) if before is None else (before.times, before.sent_us)
        self.size_bytes += size_bytes - (0 if before is None else before.size_bytes)
        wait_us = min(self._timeout_us << min(times, 10), self._max_timeout_us)
        due_us = now_us + wait_us + self._us_per_byte * self.size_bytes + 2 * self._round_trip_us
        self._in_flight[key] = _InFlight(due_us, since_us, times + 1, size_bytes)
        return due_us

    def _set_timer(self, now_us: int, due_us: int) -> Sequence[Effect]:
        """Set the timer to a deadline, unless it fires earlier."""
        if self._set_us is not None and self._set_us <= due_us:
            return ()
        self._set_us = due_us
        return (SetTimer(self.name, due_us - now_us),)

    def expedite(self, now_us: int, key: _K, within_us: int) -> Sequence[Effect]:
        """Bring the deadline of a lost item forward to ``within_us`` from now, unless it is earlier.

        No effect for an item that is not in flight.
        """
        item = self._in_flight.get(key)
        if item is None:
            return ()
        item.due_us = min(item.due_us, now_us + within_us)
        if self._set_us is not None and self._set_us <= item.due_us:
            return ()
        self._set_us = item.due_us
        return (SetTimer(self.name, within_us),)

    def settle(self, now_us: int, key: _K) -> Sequence[Effect]:
        """Forget an item that needs no retransmission any more; cancel the timer with the last one.

        An item that was sent once measures the round trip.
        """
        before = self._in_flight.pop(key, None)
        if before is not None:
            self.size_bytes -= before.size_bytes
            if before.times == 1:  # after a retransmission it is unknown which was answered
                self._round_trip_us = now_us - before.sent_us
        if self._in_flight or self._set_us is None:
            return ()
        self._set_us = None
        return (CancelTimer(self.name),)

    def overdue(self, now_us: int) -> list[_K]:
        """Return the items whose deadline has passed, in the order of their first transmission."""
        return [key for key, item in self._in_flight.items() if item.due_us <= now_us]

    def restart(self, now_us: int) -> Sequence[Effect]:
        """Set the timer again after it has fired and overdue items were sent again.

        An overdue item that was not sent again gets a new deadline, so that the timer does not fire at once.
        """
        for key in self.overdue(now_us):
            self.start(now_us, key, self._in_flight[key].size_bytes)
        if not self._in_flight:
            return ()
        self._set_us = min(item.due_us for item in self._in_flight.values())
        return (SetTimer(self.name, self._set_us - now_us),)

    def clear(self) -> Sequence[Effect]:
        """Forget all items and cancel the timer, as when the link is down."""
        self._in_flight.clear()
        self.size_bytes = 0
        if self._set_us is None:
            return ()
        self._set_us = None
        return (CancelTimer(self.name),)
