"""The way of an item from a phone to a system whose publishers are servers.

Last hop and SUBLIM begin at their server: how an item comes there their papers do not say. So that phones
that send are not free there, the item goes up by store and forward, and its bill stands under that name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mudkit.experiment.tasks import Item, Testbed
from mudkit.experiment.tasks.task import called
from mudkit.systems.store_and_forward import Client, Relay

__all__ = ["Uplink"]

_BRIDGE: Final = "desk"


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
