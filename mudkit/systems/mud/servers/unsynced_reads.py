"""Continuous reads of a processor that may lack what was committed before they were registered.

The back end sends new entries at once, but it may be down, or a message lost. So the end of its first
state is sent to a read only when the back end has answered a question that was sent after the registration
came, and all entries of the answer have come. One question at a time is open, for all reads that wait; it is
repeated at growing intervals until it is answered. A back end that has started again announces itself, and is
asked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mudkit.delivery.retransmit import DEFAULT_MAX_TIMEOUT_US, RetransmitTimer
from mudkit.events import Effect
from mudkit.systems.mud.servers.log_follower import LogFollower
from mudkit.systems.mud.servers.matching import ReadKey

POSITION: Final = "position"
"""Name of the timer while a question is not answered."""
_ASK_US: Final = 200_000


class UnsyncedReads:
    """Reads that are not told yet that their first state is complete."""

    def __init__(self) -> None:
        self._came_us: dict[ReadKey, int] = {}
        """Time at which the registration of each read came, in order."""
        self._question: RetransmitTimer[str] = RetransmitTimer(POSITION, _ASK_US, DEFAULT_MAX_TIMEOUT_US, 0)

    def add(self, now_us: int, read_key: ReadKey, log: LogFollower) -> Sequence[Effect]:
        """Add a read whose registration comes now, and ask for the position of the log."""
        self._came_us.pop(read_key, None)
        self._came_us[read_key] = now_us
        return () if log.is_asking and POSITION in self._question else self._ask(now_us, log)

    def discard(self, read_key: ReadKey) -> None:
        """Remove a read that has ended, if it is there."""
        self._came_us.pop(read_key, None)

    def clear(self) -> Sequence[Effect]:
        """Remove all reads, and ask nothing more."""
        self._came_us.clear()
        return self._question.clear()

    def take_synced(self, log: LogFollower) -> list[ReadKey]:
        """Remove and return the reads that lack nothing, in the order of their registrations."""
        confirmed_us = log.confirmed_us
        synced: list[ReadKey] = []
        for read_key, came_us in self._came_us.items():
            if confirmed_us is None or came_us > confirmed_us:
                break
            synced.append(read_key)
        for read_key in synced:
            del self._came_us[read_key]
        return synced

    def ask_next(self, now_us: int, log: LogFollower) -> Sequence[Effect]:
        """Ask for the reads that still wait after an answer; ask nothing more if none does."""
        if not self._came_us:
            return self._question.settle(now_us, POSITION)
        return () if log.is_asking else self._ask(now_us, log)

    def ask_again(self, now_us: int, log: LogFollower) -> Sequence[Effect]:
        """Repeat the question after the timer fired, unless no read waits for its answer any more."""
        if not self._came_us:
            return self._question.settle(now_us, POSITION)
        effects = self._ask(now_us, log) if self._question.overdue(now_us) else ()
        return [*effects, *self._question.restart(now_us)]

    def _ask(self, now_us: int, log: LogFollower) -> Sequence[Effect]:
        """Ask for the position of the log."""
        return log.ask_position(now_us), *self._question.start(now_us, POSITION)
