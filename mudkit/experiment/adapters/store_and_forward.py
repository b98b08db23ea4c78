"""Store and forward in experiments: the baseline."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

from mudkit.checks import check_arguments
from mudkit.experiment.adapters.system import System
from mudkit.experiment.tasks import TASKS, Item, called
from mudkit.experiment.testbed import Testbed
from mudkit.systems.store_and_forward import Client, Relay

_BRIDGE: Final = "desk"


@check_arguments(types=False)
class StoreAndForward(System):
    """A relay, and a client on each device.

    An item goes up to a bridge once, and from there to every phone: the cost of a plain push service that
    knows nothing of its users.

    Parameters
    ----------
    testbed : Testbed
    """

    label: ClassVar = "to everyone"
    unsupported: ClassVar = dict.fromkeys(
        TASKS, "Nothing is chosen on the way: what nobody wanted is sent all the same."
    )

    def __init__(self, testbed: Testbed) -> None:
        super().__init__(testbed)
        relay = Relay(self._lab)
        self._clients = {name: Client(device, relay) for name, device in self._lab.devices.items()}
        self._bridge = Client(self._lab.server(_BRIDGE), relay)
        self._bridge.on_message(self._pass_on)
        for phone in testbed.phones:
            self._clients[phone].on_message(partial(self._receive, phone))

    def publish(self, item: Item) -> None:
        """Send an item to the bridge."""
        self._clients[item.sender].send(_BRIDGE, item.text, item.name)

    def _pass_on(self, message: dict[str, Any]) -> None:
        """Send an item that came to the bridge to all phones but its sender."""
        name, sender = called(message["text"]), message["from"]
        for phone in self._testbed.phones:
            if phone != sender:
                self._bridge.send(phone, message["text"], name)

    def _receive(self, phone: str, message: Any) -> None:
        """Record the arrival of the item in a message."""
        self._testbed.record_arrival(phone, called(message["text"]))
