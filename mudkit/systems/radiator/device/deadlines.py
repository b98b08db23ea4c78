"""When what waits for an answer is sent again: a deadline for each item, and one timer for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.events import CancelTimer, Effect, SetTimer

__all__ = ["MOST_US", "RETRY_US", "RETRY_US_PER_BYTE", "Deadlines"]

RETRY_US: Final = 5_000_000
"""So long an answer may take, at first; each time that an item has to be sent again twice as long."""
MOST_US: Final = 60_000_000
RETRY_US_PER_BYTE: Final = 400
"""The slowest link has less: what was sent before leaves before."""


class Deadlines:
    """Items that wait for an answer, each with a deadline that nothing but the item itself moves.

    Where answers take long, though they come (the server's link is saturated), the deadlines of what is sent
    later are later: twice the time that the last answer has taken is added.

    Parameters
    ----------
    timer : str
        The name of the timer.
    """

    def __init__(self, timer: str) -> None:
        self._timer = timer
        self._due_us: dict[int, int] = {}
        self._sent_us: dict[int, int] = {}
        """When each was sent first."""
        self._times: dict[int, int] = {}
        """How often each was sent."""
        self._left_us = 0
        """When all that was sent has left the device, over the slowest link."""
        self._took_us = 0
        self._set_us: int | None = None

    def sent(self, now_us: int, item: int, size_bytes: int) -> None:
        """Take note that an item was sent, perhaps again."""
        times = self._times.get(item, 0)
        self._times[item] = times + 1
        self._sent_us.setdefault(item, now_us)
        self._left_us = max(self._left_us, now_us) + RETRY_US_PER_BYTE * size_bytes
        wait_us = min(RETRY_US << min(times, 10), MOST_US)
        self._due_us[item] = self._left_us + wait_us + 2 * self._took_us

    def answered(self, now_us: int, item: int) -> None:
        """Take note that an item was answered; the others wait as before."""
        if item not in self._due_us:
            return
        if self._times[item] == 1:  # of one that was sent twice nobody knows which was answered
            self._took_us = now_us - self._sent_us[item]
        for each in (self._due_us, self._sent_us, self._times):
            del each[item]

    def overdue(self, now_us: int) -> list[int]:
        """Give the items whose deadline has passed, when the timer has fired."""
        self._set_us = None
        return [item for item, due_us in self._due_us.items() if due_us <= now_us]

    def forget(self) -> None:
        """Wait for nothing any more."""
        for each in (self._due_us, self._sent_us, self._times):
            each.clear()
        self._left_us = 0

    def timer(self, now_us: int) -> Sequence[Effect]:
        """Set the timer to the first deadline, if it is not; stop it when nothing waits."""
        first_us = min(self._due_us.values()) if self._due_us else None
        if first_us == self._set_us:
            return ()
        self._set_us = first_us
        if first_us is None:
            return (CancelTimer(self._timer),)
        return (SetTimer(self._timer, max(first_us - now_us, 0)),)
