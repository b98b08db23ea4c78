"""What the spooling server knows of a device: its sessions, what it asked for, what has to be sent again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.stream import Outgoing
from mudkit.systems.lasthop.messages import Body, Session
from mudkit.systems.lasthop.servers.server_subscription import ServerSubscription

__all__ = ["AGAIN", "AGAIN_US", "Phone"]

AGAIN: Final = "again "
"""With the name of a device: the timer by which it is told again what it has not confirmed."""

AGAIN_US: Final = 5_000_000
"""What was overtaken so long ago is not on its way any more."""
_MAX_ASKED: Final = 64
"""So many numbers of reads behind the last one are told apart."""
_MAX_FORMER: Final = 64
"""Former starts of a device that are known as such."""


@dataclass
class Phone:
    """A device, and the start of it that has its name now."""

    name: str
    session: Session = ("", 0, 0)
    former: list[tuple[str, int]] = field(default_factory=list)
    """Starts of its machine before this one: store and start of their sessions."""
    address: str | None = None
    stream: Outgoing[Body] | None = None
    """None: nobody knows what it has."""
    unanswered: RetransmitTimer[int] = field(init=False)
    """What it has not confirmed: items of the stream by number, and, as 0, the question who it is."""
    is_there: bool = False
    claimed: Session | None = None
    """The session of another start than this one that was asked who it is."""
    facts_heard: int = 0
    """Number of the last fact that it told."""
    asked: set[int] = field(default_factory=set)
    """Numbers of the reads that were asked for, or are over, in this session: the last ones."""
    room: float = float("inf")
    topics: dict[str, ServerSubscription] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.unanswered = RetransmitTimer(f"{AGAIN}{self.name}")

    def is_over(self, session: Session) -> bool:
        """Say whether another session has come after this one: what belongs to it is a late copy."""
        return session[:2] in self.former or (session[:2] == self.session[:2] and session < self.session)

    def has_started(self) -> None:
        """Start anew with another incarnation of the phone."""
        if self.session[0]:
            self.former = [*self.former, self.session[:2]][-_MAX_FORMER:]
        self.session, self.claimed, self.stream = ("", 0, 0), None, None

    def is_alive(self, session: Session) -> bool:
        """Return whether another start has identified itself; a late copy of its hello does not count."""
        claimed = self.claimed
        return claimed is not None and claimed[:2] == session[:2] and claimed < session

    def asks(self, number: int) -> bool:
        """Say whether a read asks for the first time, and take note of it."""
        if number in self.asked or number <= max(self.asked, default=0) - _MAX_ASKED:
            return False
        self.asked.add(number)
        if len(self.asked) > _MAX_ASKED:
            self.asked.discard(min(self.asked))
        return True
