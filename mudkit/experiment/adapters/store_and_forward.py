"""Store and forward as experiments run it, and the baselines of all others.

On a task, every item goes to every phone at once, and the application there decides: this is what a plain
push service costs that knows nothing of anybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from mudkit.events import Installed, Network
from mudkit.experiment.tasks import TASKS, Item, Testbed
from mudkit.experiment.tasks.task import called
from mudkit.systems.store_and_forward import Client, DirectMachine, Relay
from mudkit.systems.store_and_forward.api import NAME
from mudkit.systems.store_and_forward.operations import Read, Submit

__all__ = ["Direct", "StoreAndForward", "ToEveryone"]

_BRIDGE: Final = "desk"
_DIRECT: Final = "direct"


class StoreAndForward:
    """The system as :func:`mudkit.experiment.run` runs it: a relay, and a client on each device."""

    name: Final = NAME

    def __init__(self, lab: Network) -> None:
        relay = Relay(lab)
        self._clients = {name: Client(device, relay) for name, device in lab.devices.items()}

    def publish(self, item: str, sender: str, receivers: Sequence[str], size_bytes: int) -> None:
        """Let a device send an item of a size to others."""
        for receiver in receivers:
            self._clients[sender].send(receiver, "x" * size_bytes, item)

    def read(self, device: str) -> None:
        """Let the user of a device read."""
        self._clients[device].read()


class Direct:
    """The baseline as :func:`mudkit.experiment.run` runs it: a machine on each device, and no server."""

    name: Final = _DIRECT

    def __init__(self, lab: Network) -> None:
        self._machines: dict[str, Installed] = {
            name: device.install(_DIRECT, partial(DirectMachine, me=name), name=_DIRECT)
            for name, device in lab.devices.items()
        }

    def publish(self, item: str, sender: str, receivers: Sequence[str], size_bytes: int) -> None:
        """Let a device send an item of a size to others."""
        for receiver in receivers:
            self._machines[sender].call(Submit(receiver, "x" * size_bytes, item))

    def read(self, device: str) -> None:
        """Let the user of a device read."""
        self._machines[device].call(Read())


class ToEveryone:
    """Store and forward, to all: an item goes up to a bridge once, and from there to every phone.

    Parameters
    ----------
    testbed : Testbed
        The phones, and who wants what.
    """

    name: Final = "to everyone"
    cannot: Final[Mapping[str, str]] = dict.fromkeys(
        TASKS, "Nothing is chosen on the way: what nobody wanted is sent all the same."
    )
    """What its paper cannot say, by the name of the task."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        relay = Relay(testbed.lab)
        self._clients = {name: Client(device, relay) for name, device in testbed.lab.devices.items()}
        self._bridge = Client(testbed.lab.server(_BRIDGE), relay)
        self._bridge.on_message(self._pass_on)
        for phone in testbed.phones:
            self._clients[phone].on_message(partial(self._come, phone))

    def publish(self, item: Item) -> None:
        """Send it to the bridge."""
        self._clients[item.sender].send(_BRIDGE, item.text, item.name)

    def moved(self, phone: str) -> None:
        """Nobody needs to know."""

    def look(self, phone: str) -> None:
        """Show what has come."""
        self._testbed.show(phone)

    def _pass_on(self, message: dict[str, Any]) -> None:
        name, sender = called(message["text"]), message["from"]
        for phone in self._testbed.phones:
            if phone != sender:
                self._bridge.send(phone, message["text"], name)

    def _come(self, phone: str, message: dict[str, Any]) -> None:
        self._testbed.arrived(phone, called(message["text"]))
