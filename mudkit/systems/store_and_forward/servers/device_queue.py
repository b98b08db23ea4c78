"""What the relay knows of a device: its queue, where it is, and what has to be delivered again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mudkit.systems.store_and_forward.deadlines import Deadlines

__all__ = ["FIRST_TRY_US", "DeviceQueue"]

FIRST_TRY_US: Final = 60_000_000
"""After which a device that is away is tried for the first time."""


class DeviceQueue:
    """What the relay knows of a device.

    Parameters
    ----------
    name : str
    queue : dict
        What waits for it, by key, of each sender the first first.
    known : mapping, optional
        What is in the store of its hello; without, it has never said one.
    """

    __slots__ = (
        "address", "deadlines", "hello", "incarnation", "is_away", "is_busy", "name", "nonce", "queue",
        "try_us",
    )  # fmt: skip

    def __init__(self, name: str, queue: dict[str, Any], known: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.queue = queue
        self.deadlines: Deadlines[str] = Deadlines(name)
        self.address: str | None = None
        self.incarnation: str = ""
        self.nonce: str | None = None
        """What it was asked to say hello with, and has not."""
        self.hello = 0
        """Number of the last one."""
        self.is_busy = self.is_away = False
        self.try_us = FIRST_TRY_US
        """After which time one that is away is tried next."""
        if known is not None:
            self.address, self.incarnation = known["address"], known["incarnation"]
            self.hello, self.is_busy = known["hello"], known["busy"]

    @property
    def is_there(self) -> bool:
        """Whether something can be delivered."""
        return self.address is not None and not self.is_busy and not self.is_away

    def known(self) -> dict[str, Any]:
        """Give what is kept of its hello."""
        return {
            "address": self.address,
            "incarnation": self.incarnation,
            "hello": self.hello,
            "busy": self.is_busy,
        }
