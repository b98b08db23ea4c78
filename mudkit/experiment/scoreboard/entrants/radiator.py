"""A task as Radiator does it: every item is a context for all, and what nobody waits for waits (2.2, 3.1).

Who wants an item gets it at once; to all others it goes with what has come in ten minutes, as one message.
Nothing is left out: that everyone gets everything in the end is what Radiator promises, and on this
scoreboard it is waste.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from mudkit.experiment.scoreboard.task import SETTLE_S, Item
from mudkit.experiment.scoreboard.tasks import TASKS
from mudkit.experiment.scoreboard.testbed import Testbed
from mudkit.systems.radiator import Client, Context, Server, Time, Volume
from mudkit.systems.radiator.aggregation.thresholds import Threshold

__all__ = ["LATER_S", "Radiator"]

LATER_S: Final = SETTLE_S
"""So long a message waits for those who have not asked for it. A run settles as long, so it is all billed."""
_ME: Final = "me "


class Radiator:
    """The server with an aggregability function made of the want, and its clients.

    Parameters
    ----------
    stage : Testbed
    """

    name: Final = "Radiator"
    cannot: Final[Mapping[str, str]] = dict.fromkeys(
        TASKS, "Everyone gets everything in the end: what nobody wanted comes later, put together."
    )
    """What its paper cannot say, by the name of the task."""

    def __init__(self, stage: Testbed) -> None:
        self._stage = stage
        want = stage.task.want

        def when(sender: Context, receiver: Context) -> Threshold:
            about = {name: sender.get(name) for name in want.of_item}
            me = {name: receiver.get(f"{_ME}{name}") for name in want.of_me}
            return Volume(1) if want.holds(about, me) else Time(LATER_S)

        # No chains: phones cannot be reached from outside.
        server = Server(stage.lab, when, chain=0.0, max_retention_s=2 * LATER_S)
        self._clients = {}
        for name, device in stage.lab.devices.items():
            receive = partial(self._come, name) if name in set(stage.phones) else None
            attributes = self._attributes(name) if name in set(stage.phones) else {}
            self._clients[name] = Client(device, server, receive=receive, attributes=attributes)

    def publish(self, item: Item) -> None:
        """Propagate it."""
        about = {**item.about, "called": item.name, "text": item.content}
        self._clients[item.sender].propagate_context(Context(frozenset((item.sender,)), about))

    def moved(self, phone: str) -> None:
        """Say where it is now."""
        self._clients[phone].register(self._attributes(phone))

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._stage.show(phone)

    def _attributes(self, phone: str) -> dict[str, Any]:
        return {f"{_ME}{name}": value for name, value in self._stage.about(phone).items()}

    def _come(self, phone: str, context: Context) -> None:
        for name in context["called"]:
            self._stage.arrived(phone, name)
