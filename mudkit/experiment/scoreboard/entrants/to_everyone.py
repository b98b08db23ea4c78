"""The baseline: every item goes to every phone at once, and the application there decides.

This is what a plain push service costs that knows nothing of anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mudkit.experiment.scoreboard.task import Item, called
from mudkit.experiment.scoreboard.tasks import TASKS
from mudkit.experiment.scoreboard.testbed import Testbed
from mudkit.systems.store_and_forward import Client, Relay

__all__ = ["ToEveryone"]

_DESK: Final = "desk"


class ToEveryone:
    """Store and forward, to all: an item goes up to a desk once, and from there to every phone.

    Parameters
    ----------
    stage : Testbed
    """

    name: Final = "to everyone"
    cannot: Final[Mapping[str, str]] = dict.fromkeys(
        TASKS, "Nothing is chosen on the way: what nobody wanted is sent all the same."
    )
    """What its paper cannot say, by the name of the task."""

    def __init__(self, stage: Testbed) -> None:
        self._stage = stage
        relay = Relay(stage.lab)
        self._clients = {name: Client(device, relay) for name, device in stage.lab.devices.items()}
        self._desk = Client(stage.lab.server(_DESK), relay)
        self._desk.on_message(self._pass_on)
        for phone in stage.phones:
            self._clients[phone].on_message(partial(self._come, phone))

    def publish(self, item: Item) -> None:
        """Send it to the desk."""
        self._clients[item.sender].send(_DESK, item.text, item.name)

    def moved(self, phone: str) -> None:
        """Nobody needs to know."""

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._stage.show(phone)

    def _pass_on(self, message: dict[str, Any]) -> None:
        name, sender = called(message["text"]), message["from"]
        for phone in self._stage.phones:
            if phone != sender:
                self._desk.send(phone, message["text"], name)

    def _come(self, phone: str, message: dict[str, Any]) -> None:
        self._stage.arrived(phone, called(message["text"]))
