"""What the relay knows of a device: its queue, where it is, and what has to be delivered again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Peer
from mudkit.systems.store_and_forward.messages import Deliver

__all__ = ["FIRST_TRY_US", "DeviceQueue", "Known"]

FIRST_TRY_US: Final = 60_000_000
"""After which a device that is away is tried for the first time."""


class Known(msgspec.Struct, frozen=True):
    """What the store keeps of the last hello of a device."""

    address: str | None
    incarnation: str
    hello: int
    busy: bool


class DeviceQueue:
    """What the relay knows of a device.

    Parameters
    ----------
    name : str
        The device's name.
    queue : mapping
        What waits for it, by key, of each sender the first first.
    known : Known, optional
        What is in the store of its hello; without, it has never said one.
    """

    __slots__ = ("address", "is_away", "is_busy", "name", "peer", "queue", "try_us", "unanswered")

    def __init__(self, name: str, queue: Mapping[str, Deliver], known: Known | None = None) -> None:
        self.name = name
        self.queue = dict(queue)
        self.unanswered: RetransmitTimer[str] = RetransmitTimer(name)
        self.peer = Peer()
        self.address: str | None = None
        self.is_busy = self.is_away = False
        self.try_us = FIRST_TRY_US
        """After which time one that is away is tried next."""
        if known is not None:
            self.address, self.is_busy = known.address, known.busy
            self.peer.take(known.incarnation, known.hello)

    @property
    def is_there(self) -> bool:
        """Whether something can be delivered."""
        return self.address is not None and not self.is_busy and not self.is_away

    def known(self) -> Known:
        """Give what is kept of its hello."""
        return Known(self.address, self.peer.incarnation, self.peer.seq, self.is_busy)
