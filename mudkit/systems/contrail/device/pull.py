"""How a module fetches what waits for it at one cloud provider (Contrail 4.1, pull).

=======  =================  ==================================================================
state    what happens       then
=======  =================  ==================================================================
asleep   the interval ends  ask; asked
asked    messages come      take them, say so and ask for more; asked
asked    nothing waits      with an idle timeout: open; without: asleep
asked    no answer          ask again; asked
open     there is more      ask; asked
open     nothing for long   say good-bye; asleep
any      no network         asleep; when there is one again, what was due happens at once
any      nobody there       asleep, for a while
=======  =================  ==================================================================
"""

from __future__ import annotations

from typing import Any, Final

from mudkit.events import CancelTimer, Send, SetTimer
from mudkit.systems.contrail.device.core import Core

__all__ = ["PULL", "Pull"]

PULL: Final = "pull "
_RETRY_US: Final = 20_000_000
"""A page takes 7 s over a slow link, and others may be in front."""
_LOST_US: Final = 1_000_000


class Pull:
    """The pull component for one provider.

    Parameters
    ----------
    core : Core
    relay : int
    """

    def __init__(self, core: Core, relay: int) -> None:
        self._core, self._relay = core, relay
        self.gateway = ""
        self.is_up = False
        self.interval_us: int | None = None
        """None: no application wants anything."""
        self.idle_us = 0
        self._state = "asleep"
        self._visit = 0
        self._is_held = False
        """Whether the relay was asked to keep the connection when nothing waits."""
        self._got: list[int] = []
        self._from_us: int | None = None
        """When it has gone to sleep; None: it has not asked yet."""

    @property
    def is_asleep(self) -> bool:
        """Whether there is no connection."""
        return self._state == "asleep"

    def settle(self) -> None:
        """Do what the network and the applications' parameters ask for now."""
        if self._state != "asleep":
            if not self.is_up:
                self._state = "asleep"
                self._from_us = None
                self._core.effects.append(CancelTimer(self._timer))
        elif self.is_up and self.interval_us is not None:
            since_us = 0 if self._from_us is None else self._from_us
            due_us = self._core.now_us if self._from_us is None else since_us + self.interval_us
            if due_us <= self._core.now_us:
                self.ask()
            else:
                self._core.effects.append(SetTimer(self._timer, due_us - self._core.now_us))
        else:
            self._core.effects.append(CancelTimer(self._timer))

    def ask(self) -> None:
        """Connect, or go on."""
        if self._state == "asleep":
            self._visit += 1
            self._got = []
        self._state, self._is_held = "asked", self.idle_us > 0
        message = {
            "kind": "pull",
            "device": self._core.me,
            "visit": self._visit,
            "got": self._got,
            "hold": self._is_held,
        }
        self._core.effects += [Send(self.gateway, message), SetTimer(self._timer, _RETRY_US)]

    def came(self, message: Any) -> list[Any]:
        """Take a page, and give the messages on it."""
        page = [each for each in message["page"] if _is_numbered(each)]
        if self._state != "asked" or message["visit"] != self._visit:
            return []  # late: what was not confirmed comes again
        self._got = [number for number, _ in page]
        if page or (self.idle_us > 0 and not self._is_held):
            self.ask()
        elif self.idle_us > 0:
            self._state = "open"
            self._core.effects.append(SetTimer(self._timer, self.idle_us))
        else:
            self._sleep()
        return [each for _, each in page]

    def early(self) -> None:
        """Fetch what waits before it is time, when there is a connection anyway."""
        if self._state == "asleep" and self.is_up and self.interval_us:
            self.ask()

    def filled(self) -> None:
        """Fetch what has come while the connection is open."""
        if self._state == "open":
            self._got = []
            self.ask()

    def fired(self) -> None:
        """Take note that its timer has run out."""
        if self._state == "open":
            self._core.effects.append(Send(self.gateway, {"kind": "bye", "device": self._core.me}))
            self._sleep()
        elif self._state == "asked":
            self.ask()
        else:
            self.settle()

    def failed(self) -> None:
        """Wait a while: nobody is there."""
        if self._state != "asleep" and self.is_up:
            self._state, self._from_us = "asleep", self._core.now_us
            wait_us = max(self.interval_us or 0, _LOST_US)
            self._core.effects.append(SetTimer(self._timer, wait_us))

    def _sleep(self) -> None:
        self._state, self._from_us = "asleep", self._core.now_us
        if self.interval_us is not None:
            self._core.effects.append(SetTimer(self._timer, self.interval_us))

    @property
    def _timer(self) -> str:
        return f"{PULL}{self._relay}"


def _is_numbered(each: Any) -> bool:
    return isinstance(each, list) and len(each) == 2 and type(each[0]) is int
