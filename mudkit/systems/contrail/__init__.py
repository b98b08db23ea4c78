"""Contrail: the receiver's filter runs at the sender, and the cloud relays ciphertext.

Stuedi, Mohamed, Balakrishnan, Mao, Ramasubramanian, Wobber: The Cloud is the Router (MSR-TR-2010-89).
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.contrail.api import Group, Module, Port
    from mudkit.systems.contrail.device.core import KeyUse
    from mudkit.systems.contrail.items import Backlogged, Item, Published, QueueFull, TamperedMessage
    from mudkit.systems.contrail.relay import Relay
    from mudkit.systems.contrail.study.applications import (
        Aggregator,
        Alarm,
        Chat,
        Photos,
        Sensor,
        SharedLocation,
        Video,
    )
    from mudkit.systems.contrail.study.reliable import Inbound, Outbound
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Aggregator",
    "Alarm",
    "Backlogged",
    "Chat",
    "Group",
    "Inbound",
    "Item",
    "KeyUse",
    "Module",
    "Outbound",
    "Photos",
    "Port",
    "Published",
    "QueueFull",
    "Relay",
    "Sensor",
    "SharedLocation",
    "TamperedMessage",
    "Video",
]
