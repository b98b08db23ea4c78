"""The server's link to the network: of finite capacity, what is sent waits for its turn (Radiator 5.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from mudkit.events import Effect, Send, SetTimer

__all__ = ["ServerLink"]


class ServerLink:
    """What leaves the server, first in, first out.

    Parameters
    ----------
    kbps : float or None
        Kilobits a second; None: without limit.
    """

    TIMER: Final = "link"

    def __init__(self, kbps: float | None) -> None:
        self._kbps = kbps
        self._waiting: deque[tuple[int, Send]] = deque()
        self.free_us = 0
        """When all that was sent has left."""
        self.bytes_sent = 0
        self.messages_sent = 0

    def send(self, now_us: int, to: str, message: bytes) -> Sequence[Effect]:
        """Send bytes now, or when they have wholly left after all that is before them."""
        self.messages_sent += 1
        self.bytes_sent += len(message)
        self.free_us = max(self.free_us, now_us)
        if self._kbps is None:
            return (Send(to, message),)
        self.free_us += max(round(8000 * len(message) / self._kbps), 1)
        self._waiting.append((self.free_us, Send(to, message)))
        return (self._next(now_us),) if len(self._waiting) == 1 else ()

    def fired(self, now_us: int) -> Sequence[Effect]:
        """Hand over what has wholly left, and wait for the next."""
        _, sent = self._waiting.popleft()
        return (sent, self._next(now_us)) if self._waiting else (sent,)

    def _next(self, now_us: int) -> SetTimer:
        return SetTimer(self.TIMER, self._waiting[0][0] - now_us)
