"""Store and forward in experiments: the baselines, and the uplink of other systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from mudkit.events import Installed
from mudkit.experiment.tasks import TASKS, Item, called
from mudkit.experiment.testbed import Testbed
from mudkit.systems.store_and_forward import Client, DirectMachine, Relay
from mudkit.systems.store_and_forward.api import NAME
from mudkit.systems.store_and_forward.operations import Read, Submit

__all__ = ["Direct", "StoreAndForward", "ToEveryone", "Uplink"]

_BRIDGE: Final = "desk"
_DIRECT: Final = "direct"


class StoreAndForward:
    """The system as :func:`mudkit.experiment.run` runs it: a relay, and a client on each device."""

    name: Final = NAME

    def __init__(self, testbed: Testbed) -> None:
        relay = Relay(testbed.lab)
        self._clients = {name: Client(device, relay) for name, device in testbed.lab.devices.items()}

    def publish(self, item: Item) -> None:
        """Send an item to each of its receivers."""
        for receiver in item.about["to"]:
            self._clients[item.sender].send(receiver, item.filler, item.name)

    def moved(self, phone: str) -> None:
        """Do nothing: places do not matter."""

    def look(self, phone: str) -> None:
        """Read what has arrived."""
        self._clients[phone].read()


class Direct:
    """The baseline as :func:`mudkit.experiment.run` runs it: a machine on each device, and no server."""

    name: Final = _DIRECT

    def __init__(self, testbed: Testbed) -> None:
        self._machines: dict[str, Installed] = {
            name: device.install(_DIRECT, partial(DirectMachine, me=name), name=_DIRECT)
            for name, device in testbed.lab.devices.items()
        }

    def publish(self, item: Item) -> None:
        """Send an item to each of its receivers."""
        for receiver in item.about["to"]:
            self._machines[item.sender].call(Submit(receiver, item.filler, item.name))

    def moved(self, phone: str) -> None:
        """Do nothing: places do not matter."""

    def look(self, phone: str) -> None:
        """Read what has arrived."""
        self._machines[phone].call(Read())


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


class Uplink:
    """Takes items to a server.

    Parameters
    ----------
    testbed : Testbed
    came : callable
        Called with each item when it has got there.
    """

    def __init__(self, testbed: Testbed, came: Callable[[Item], Any]) -> None:
        relay = Relay(testbed.lab, "uplink")
        self._clients = {name: Client(testbed.lab.devices[name], relay) for name in testbed.senders}
        self._came = came
        self._under_way: dict[str, Item] = {}
        bridge = Client(testbed.lab.server(_BRIDGE), relay)
        bridge.on_message(self._arrived)

    def send(self, item: Item) -> None:
        """Send an item up."""
        self._under_way[item.name] = item
        self._clients[item.sender].send(_BRIDGE, item.text, item.name)

    def _arrived(self, message: dict[str, Any]) -> None:
        self._came(self._under_way.pop(called(message["text"])))
