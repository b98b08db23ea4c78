"""Contrail: the receiver's filter runs at the sender, and the cloud relays ciphertext.

Stuedi, Mohamed, Balakrishnan, Mao, Ramasubramanian, Wobber: The Cloud is the Router (MSR-TR-2010-89).
"""

from mudkit.systems.contrail.api import Group, Module, Port
from mudkit.systems.contrail.device.core import KeyUse
from mudkit.systems.contrail.items import Backlogged, Item, Published, QueueFull, TamperedMessage
from mudkit.systems.contrail.relay import Relay

__all__ = [
    "Backlogged",
    "Group",
    "Item",
    "KeyUse",
    "Module",
    "Port",
    "Published",
    "QueueFull",
    "Relay",
    "TamperedMessage",
]
