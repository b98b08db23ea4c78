"""When what was not answered is sent again: a deadline for each item, and one timer for all of them.

New traffic never moves the deadline of an older item, and an answer to one item touches only that item.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from mudkit.events import CancelTimer, Effect, SetTimer

__all__ = ["FIRST_US", "MOST_US", "US_PER_BYTE", "RetransmitTimer"]

FIRST_US: Final = 5_000_000
"""So long an answer may take, at first; each time that an item has to be sent again, twice as long."""
MOST_US: Final = 60_000_000
"""The longest wait, before what the link needs is added."""
US_PER_BYTE: Final = 400
"""Nobody asks again while what was sent may still be on its way: a slow link takes 100 µs a byte, and others
may be in front."""

_K = TypeVar("_K", bound=Hashable)


class _Waiting(msgspec.Struct):
    due_us: int
    sent_us: int
    times: int
    size_bytes: int


class RetransmitTimer(Generic[_K]):
    """Items that wait for an answer, each with a deadline that nothing but the item itself moves.

    An item is due when the link has had time for all that waits, and then for an answer: ``first_us``, twice
    as long each time that it is sent, up to ``most_us``. Where answers take long, though they come (a
    server's link is saturated), what is sent later waits longer: twice the time that the last answer has
    taken is added.

    Parameters
    ----------
    name : str
        The name of the machine's timer.
    first_us : int
        How long the first answer may take, in µs.
    most_us : int
        The longest that an answer may take, in µs.
    us_per_byte : int
        How long the slowest link takes for a byte that waits, in µs.
    """

    __slots__ = ("_first_us", "_most_us", "_set_us", "_took_us", "_us_per_byte", "_waiting", "name",
                 "size_bytes")  # fmt: skip

    def __init__(
        self, name: str, first_us: int = FIRST_US, most_us: int = MOST_US, us_per_byte: int = US_PER_BYTE
    ) -> None:
        self.name = name
        self._first_us = first_us
        self._most_us = max(most_us, first_us)
        self._us_per_byte = us_per_byte
        self._waiting: dict[_K, _Waiting] = {}
        self._set_us: int | None = None
        """For when the timer is set; it may fire before anything is due, and is set again then."""
        self._took_us = 0
        self.size_bytes = 0
        """Of all that waits."""

    def __contains__(self, key: _K) -> bool:
        return key in self._waiting

    def __iter__(self) -> Iterator[_K]:
        return iter(list(self._waiting))

    def __len__(self) -> int:
        return len(self._waiting)

    def sent(self, now_us: int, key: _K, size_bytes: int = 0) -> Sequence[Effect]:
        """Take note that an item was sent, perhaps again, and see that the timer is set.

        Parameters
        ----------
        now_us : int
        key : hashable
            What the item is known by.
        size_bytes : int
            The bytes of it that wait for a link; 0: it needs none.
        """
        before = self._waiting.get(key)
        times, since_us = (0, now_us) if before is None else (before.times, before.sent_us)
        self.size_bytes += size_bytes - (0 if before is None else before.size_bytes)
        wait_us = min(self._first_us << min(times, 10), self._most_us)
        due_us = now_us + wait_us + self._us_per_byte * self.size_bytes + 2 * self._took_us
        self._waiting[key] = _Waiting(due_us, since_us, times + 1, size_bytes)
        if self._set_us is not None and self._set_us <= due_us:
            return ()
        self._set_us = due_us
        return (SetTimer(self.name, due_us - now_us),)

    def hurry(self, now_us: int, key: _K, within_us: int) -> Sequence[Effect]:
        """Let an item that did not arrive be due soon, if it is not due before.

        Parameters
        ----------
        now_us : int
        key : hashable
        within_us : int
            From now, in µs.
        """
        waiting = self._waiting.get(key)
        if waiting is None or waiting.due_us <= now_us + within_us:
            return ()
        waiting.due_us = now_us + within_us
        if self._set_us is not None and self._set_us <= waiting.due_us:
            return ()
        self._set_us = waiting.due_us
        return (SetTimer(self.name, within_us),)

    def answered(self, now_us: int, key: _K) -> Sequence[Effect]:
        """Forget an item that was answered; the others wait as before."""
        before = self._waiting.pop(key, None)
        if before is not None:
            self.size_bytes -= before.size_bytes
            if before.times == 1:  # of one that was sent twice nobody knows which was answered
                self._took_us = now_us - before.sent_us
        if self._waiting or self._set_us is None:
            return ()
        self._set_us = None
        return (CancelTimer(self.name),)

    def overdue(self, now_us: int) -> list[_K]:
        """Give what should have been answered, in the order in which it was sent first."""
        return [key for key, each in self._waiting.items() if each.due_us <= now_us]

    def fired(self, now_us: int) -> Sequence[Effect]:
        """Set the timer anew, when it has fired and what was overdue has been sent again.

        What is overdue and was not sent again waits as if it had been: the timer does not fire for ever.
        """
        for key in self.overdue(now_us):
            self.sent(now_us, key, self._waiting[key].size_bytes)
        if not self._waiting:
            self._set_us = None
            return ()
        self._set_us = min(each.due_us for each in self._waiting.values())
        return (SetTimer(self.name, max(self._set_us - now_us, 0)),)

    def clear(self) -> Sequence[Effect]:
        """Wait for nothing any more, as without a link."""
        self._waiting.clear()
        self.size_bytes = 0
        if self._set_us is None:
            return ()
        self._set_us = None
        return (CancelTimer(self.name),)
