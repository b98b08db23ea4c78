"""What the relay knows of a device: its queue, where it is, and what has to be delivered again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.session import Peer
from mudkit.systems.store_and_forward.messages import Deliver, Delivered

__all__ = ["FIRST_TRY_US", "QUESTION", "DeviceQueue", "Known"]

FIRST_TRY_US: Final = 60_000_000
"""After which a device that is away is tried for the first time."""
QUESTION: Final = ""
"""Key of the question who a device is, among what it has not answered."""


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
    known : Known, optional
        What is in the store of its hello; without, it has never said one.
    """

    __slots__ = (
        "_batches", "address", "is_away", "is_busy", "name", "peer", "queue", "try_us", "unanswered",
    )  # fmt: skip

    def __init__(self, name: str, known: Known | None = None) -> None:
        self.name = name
        self.queue: dict[str, Deliver] = {}
        """Pending deliveries by their keys in the store, which sort by sender, batch and number."""
        self._batches: dict[str, dict[str, tuple[int, int]]] = {}
        """Batch and count of pending deliveries by sender and incarnation."""
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
        """Return what is kept of its hello."""
        return Known(self.address, self.peer.incarnation, self.peer.seq, self.is_busy)

    def put(self, message: Deliver, batch: int) -> str:
        """Append a delivery, and return its key.

        Parameters
        ----------
        message : Deliver
        batch : int
            Rank of the incarnation among those of its sender, unless some of it are pending already.
        """
        batches = self._batches.setdefault(message.sender, {})
        batch, count = batches.get(message.incarnation, (batch, 0))
        batches[message.incarnation] = batch, count + 1
        key = self.key(message)
        self.queue[key] = message
        return key

    def pop(self, key: str) -> Sequence[str]:
        """Remove a delivery; return the keys of those that may be delivered now that it is gone."""
        message = self.queue.pop(key)
        batches = self._batches[message.sender]
        batch, count = batches[message.incarnation]
        if count > 1:
            batches[message.incarnation] = batch, count - 1
            return ()
        del batches[message.incarnation]
        return [each for each in sorted(self.queue) if self.queue[each].sender == message.sender]

    def key(self, message: Deliver | Delivered, seq: int | None = None) -> str:
        """Return the key of a message, or of another one of its sender's incarnation."""
        batch, _ = self._batches.get(message.sender, {}).get(message.incarnation, (0, 0))
        seq = message.seq if seq is None else seq
        return f"for {self.name}\n{message.sender}\n{batch:09d}\n{seq:019d}"

    def deliverable(self, keys: Iterable[str]) -> list[str]:
        """Return those that may be delivered: of each sender, the oldest incarnation with pending ones."""
        deliverable = []
        for key in keys:
            message = self.queue[key]
            batches = self._batches[message.sender]
            if len(batches) == 1 or batches[message.incarnation][0] == min(batches.values())[0]:
                deliverable.append(key)
        return deliverable
