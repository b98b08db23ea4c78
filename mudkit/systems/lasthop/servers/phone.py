"""What the spooling server knows of a device: its sessions, what it asked for, what has to be sent again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from mudkit.events import size_bytes
from mudkit.systems.lasthop.servers.server_subscription import ServerSubscription
from mudkit.systems.stream import Outgoing

__all__ = ["AGAIN_US", "AGAIN_US_PER_BYTE", "Phone"]

AGAIN_US: Final = 5_000_000
AGAIN_US_PER_BYTE: Final = 400
"""Nothing is sent again while it may still be on its way: a slow link takes 100 µs a byte."""
_MOST_ASKED: Final = 64
"""So many numbers of reads behind the last one are told apart."""
_MOST_FORMER: Final = 64
"""So many incarnations of a device are known as such."""


@dataclass
class Phone:
    """A device, and the incarnation of it that has its name now."""

    number: int
    """In the order in which the server heard of them."""
    session: tuple[str, int, int] = ("", 0, 0)
    former: list[str] = field(default_factory=list)
    """Incarnations that it had before this one."""
    address: str | None = None
    stream: Outgoing | None = None
    """None: nobody knows what it has."""
    due_us: dict[int, int] = field(default_factory=dict)
    """When what waits in the stream is sent again, by number: what comes later moves none of these."""
    is_there: bool = False
    claimed: tuple[str, int, int] | None = None
    """The session of another incarnation than this one that was asked who it is."""
    facts_heard: int = 0
    """Number of the last fact that it told."""
    asked: set[int] = field(default_factory=set)
    """Numbers of the reads that were asked for, or are over, in this session: the last ones."""
    room: float = float("inf")
    topics: dict[str, ServerSubscription] = field(default_factory=dict)

    def is_over(self, session: tuple[Any, ...]) -> bool:
        """Say whether another session has come after this one: what belongs to it is a late copy."""
        return session[0] in self.former or (session[0] == self.session[0] and session < self.session)

    def was_wiped(self) -> None:
        """Take note that another incarnation has the name from now on: it has been told nothing."""
        if self.session[0]:
            self.former = [*self.former, self.session[0]][-_MOST_FORMER:]
        self.session, self.claimed, self.facts_heard, self.stream = ("", 0, 0), None, 0, None

    def is_alive(self, session: tuple[Any, ...]) -> bool:
        """Say whether another incarnation has answered who it is: a late copy of what one said does not."""
        claimed = self.claimed
        return claimed is not None and claimed[0] == session[0] and claimed < session

    def asks(self, number: int) -> bool:
        """Say whether a read asks for the first time, and take note of it."""
        if number in self.asked or number <= max(self.asked, default=0) - _MOST_ASKED:
            return False
        self.asked.add(number)
        if len(self.asked) > _MOST_ASKED:
            self.asked.discard(min(self.asked))
        return True

    def overdue(self, now_us: int) -> frozenset[int]:
        """Say what in the stream has to be sent again now, and take note that it is.

        Each message has a time of its own: as long as it and what goes before it may take on a slow link.
        """
        late, before_bytes, due_us = [], 0, {}
        for number, added_us, body in () if self.stream is None else self.stream.waiting:
            before_bytes += size_bytes(body)
            may_take_us = AGAIN_US + AGAIN_US_PER_BYTE * before_bytes
            due_us[number] = self.due_us.get(number, added_us + may_take_us)
            if due_us[number] <= now_us:
                late.append(number)
                due_us[number] = now_us + may_take_us
        self.due_us = due_us
        return frozenset(late)
