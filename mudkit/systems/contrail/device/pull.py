"""Pull component of a module for one cloud provider (Contrail 4.1).

=======  =================  ==================================================================
state    event              action, next state
=======  =================  ==================================================================
asleep   interval over      ask; asked
asked    page with entries  take them, acknowledge them and ask for more; asked
asked    empty page         with an idle timeout: open; without: asleep
asked    timeout            ask again; asked
open     filled             ask; asked
open     idle timeout       say bye; asleep
any      link down          asleep; at link up, what was due happens at once
any      send failed        asleep for a while
=======  =================  ==================================================================
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, UnsetType

from mudkit.events import CancelTimer, Effect, Send, SetTimer
from mudkit.systems.contrail.device.core import Core
from mudkit.systems.contrail.messages import Bye, Deliver, Unread
from mudkit.systems.contrail.messages import Pull as Ask

__all__ = ["PULL", "Pull"]

PULL: Final = "pull "
_TIMEOUT_US: Final = 20_000_000
"""A page takes 7 s over a slow link, and others may be in front."""
_MIN_FAILED_US: Final = 1_000_000
"""Shortest sleep after the provider was unreachable."""


class Pull:
    """The pull component for one provider; ``relay`` is its index.

    Attributes
    ----------
    gateway : str
        The address that it asks.
    is_up : bool
        Whether there is a network.
    interval_us : int or None
        Polling interval; None: no port is open.
    idle_us : int
        Idle timeout.
    """

    def __init__(self, core: Core, relay: int) -> None:
        self._core, self._timer = core, f"{PULL}{relay}"
        self.gateway = ""
        self.is_up = False
        self.interval_us: int | None = None
        self.idle_us = 0
        self._state = "asleep"
        self._visit = core.first
        self._is_held = False
        """Whether the provider was asked to keep the connection when nothing waits."""
        self._got: list[int] = []
        self._start: str | UnsetType = UNSET
        """Start of the storage that has delivered them."""
        self._from_us: int | None = None
        """When it fell asleep; None: it has not asked since the link is up."""

    @property
    def is_asleep(self) -> bool:
        """Whether there is no connection."""
        return self._state == "asleep"

    def link(self, *, is_up: bool) -> list[Effect]:
        """Follow the network: a connection over another one, or from another address, is closed."""
        self.is_up = is_up
        if not self.is_asleep:
            self._state, self._from_us = "asleep", None
        return self.settle()

    def settle(self) -> list[Effect]:
        """Follow the parameters of ports."""
        if not self.is_asleep:
            return []
        if self.is_up and self.interval_us is not None:
            if self._from_us is None:
                return self.ask()
            left_us = self._from_us + self.interval_us - self._core.now_us
            return self.ask() if left_us <= 0 else [SetTimer(self._timer, left_us)]
        return [CancelTimer(self._timer)]

    def ask(self) -> list[Effect]:
        """Connect, or continue: acknowledge what was received and ask for more."""
        if self.is_asleep:
            self._visit += 1
            self._got = []
        self._state, self._is_held = "asked", self.idle_us > 0
        ask = Ask(self._core.me, self._visit, self._got, self._is_held, self._start if self._got else UNSET)
        return [Send(self.gateway, ask), SetTimer(self._timer, _TIMEOUT_US)]

    def came(self, message: Deliver) -> tuple[list[Unread], list[Effect]]:
        """Take a page; return the messages on it, not decoded yet."""
        if self._state != "asked" or message.visit != self._visit:
            return [], []  # late: what was not acknowledged comes again
        self._got, self._start = [number for number, _ in message.page], message.start
        messages = [each for _, each in message.page]
        if messages or (self.idle_us > 0 and not self._is_held):
            return messages, self.ask()
        if self.idle_us > 0:
            self._state = "open"
            return messages, [SetTimer(self._timer, self.idle_us)]
        return messages, self._sleep()

    def early(self) -> list[Effect]:
        """Ask before the interval is over, because there is a connection anyway."""
        return self.ask() if self.is_asleep and self.is_up and self.interval_us else []

    def filled(self) -> list[Effect]:
        """Ask for what has arrived while the connection is open."""
        if self._state != "open":
            return []
        self._got = []
        return self.ask()

    def fired(self) -> list[Effect]:
        """Handle the end of the interval, of the timeout or of the idle time."""
        if self._state == "open":
            return [Send(self.gateway, Bye(self._core.me, self._visit)), *self._sleep()]
        return self.ask() if self._state == "asked" else self.settle()

    def failed(self) -> list[Effect]:
        """Sleep for a while: the provider is unreachable."""
        if self.is_asleep or not self.is_up:
            return []
        self._state, self._from_us = "asleep", self._core.now_us
        return [SetTimer(self._timer, max(self.interval_us or 0, _MIN_FAILED_US))]

    def _sleep(self) -> list[Effect]:
        self._state, self._from_us = "asleep", self._core.now_us
        return [] if self.interval_us is None else [SetTimer(self._timer, self.interval_us)]
