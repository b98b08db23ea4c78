"""What the store of the spooling server keeps of a subscription, and what a device has missed of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mudkit.delivery.stream import Outgoing
from mudkit.systems.lasthop.messages import Body, Content, Forwarded, Ranks, Retracts, Wanted

__all__ = ["Kept", "Low", "Missed", "State", "Waiting"]


class Kept(msgspec.Struct, frozen=True):
    """A subscription as the store keeps it, with the number of the fact by which it began."""

    run: int
    wanted: Wanted


class Waiting(msgspec.Struct, frozen=True):
    """A message that waits, or is on the device, as the store keeps it."""

    rank: float
    order: int
    arrived_us: int
    expires_us: int
    content: Content


class Low(msgspec.Struct, frozen=True):
    """A message whose rank is below the threshold, and may rise."""

    rank: float
    expires_us: int
    content: Content


class State(msgspec.Struct, frozen=True):
    """What outlives the machine besides messages.

    Parameters
    ----------
    reads : list of (int, int)
        When the last reads were, in µs, and how many messages each took.
    day, shown : int
        How many were shown on which day.
    due : float or None
        How many may be shown since the last hour of delivery; None: any number.
    last : int
        The order of the last message.
    """

    reads: list[tuple[int, int]] = []
    day: int = 0
    shown: int = 0
    due: float | None = 0
    last: int = 0


class Missed(NamedTuple):
    """What became of what a device had not confirmed when it went away, of one subscription.

    Parameters
    ----------
    came, lost : list of str
        Messages.
    said : list of Ranks or Retracts
        What else it was told, and has not heard.
    """

    came: list[str]
    lost: list[str]
    said: list[Ranks | Retracts]

    @classmethod
    def of(cls, stream: Outgoing[Body], last_seq: int, topic: str, run: int) -> Missed:
        """Sort what waits in a stream of which the device has all up to a number."""
        missed = cls([], [], [])
        for seq, _, body in stream.waiting:
            if body.topic != topic or body.run != run:
                continue
            if isinstance(body, Forwarded):
                (missed.came if seq <= last_seq else missed.lost).append(body.id)
            elif seq > last_seq and isinstance(body, Ranks | Retracts):
                missed.said.append(body)
        return missed
