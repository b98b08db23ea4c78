"""Deadlines: until when each thing that was sent should have been answered, and one timer for all of them.

Each has its own: what is sent later does not move it, and an answer to one thing touches only that.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Final, Generic, TypeVar

from mudkit.events import CancelTimer, Effect, SetTimer

__all__ = ["RETRY_US", "RETRY_US_PER_BYTE", "Deadlines"]

RETRY_US: Final = 5_000_000
RETRY_US_PER_BYTE: Final = 400
"""Nobody asks again while what was sent may still be on its way: a slow link takes 100 µs a byte, and others
may be in front."""

_K = TypeVar("_K", bound=Hashable)


class Deadlines(Generic[_K]):
    """What waits for an answer.

    Parameters
    ----------
    timer : str
        Name of the machine's timer for it.
    """

    __slots__ = ("_set_us", "_timer", "_waiting", "size_bytes")

    def __init__(self, timer: str) -> None:
        self._timer = timer
        self._waiting: dict[_K, tuple[int, int]] = {}
        """When each is due, in µs, and its bytes."""
        self._set_us: int | None = None
        """For when the timer is set; it may fire before anything is due, and is set again then."""
        self.size_bytes = 0
        """Of all that waits."""

    def __contains__(self, key: _K) -> bool:
        return key in self._waiting

    def set(self, key: _K, now_us: int, size_bytes: int) -> Sequence[Effect]:
        """Let one thing have been sent now.

        Parameters
        ----------
        key : hashable
        now_us : int
        size_bytes : int
            The bytes that now wait for a link; 0: it needs none.
        """
        self._forget(key)
        self.size_bytes += size_bytes
        wait_us = RETRY_US + RETRY_US_PER_BYTE * self.size_bytes
        self._waiting[key] = now_us + wait_us, size_bytes
        if self._set_us is not None and self._set_us <= now_us + wait_us:
            return ()
        self._set_us = now_us + wait_us
        return (SetTimer(self._timer, wait_us),)

    def met(self, key: _K) -> Sequence[Effect]:
        """Let one thing have been answered."""
        self._forget(key)
        if self._waiting or self._set_us is None:
            return ()
        self._set_us = None
        return (CancelTimer(self._timer),)

    def overdue(self, now_us: int) -> Collection[_K]:
        """Give what should have been answered."""
        return [key for key, (due_us, _) in self._waiting.items() if due_us <= now_us]

    def fired(self, now_us: int) -> Sequence[Effect]:
        """Set the timer anew, when it has fired and what was overdue has been sent again."""
        if not self._waiting:
            self._set_us = None
            return ()
        self._set_us = min(due_us for due_us, _ in self._waiting.values())
        return (SetTimer(self._timer, max(self._set_us - now_us, 0)),)

    def clear(self) -> None:
        """Forget all of it, and that the timer is set."""
        self._waiting.clear()
        self._set_us, self.size_bytes = None, 0

    def _forget(self, key: _K) -> None:
        self.size_bytes -= self._waiting.pop(key, (0, 0))[1]
