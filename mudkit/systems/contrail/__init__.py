"""Contrail: the receiver's filter runs at the sender, and the cloud only passes on what it cannot read.

Stuedi, Mohamed, Balakrishnan, Mao, Ramasubramanian, Wobber: The Cloud is the Router (MSR-TR-2010-89).
"""

from mudkit.systems.contrail.api import Module
from mudkit.systems.contrail.device.core import KeyUse
from mudkit.systems.contrail.items import Backlogged, Item, Published
from mudkit.systems.contrail.port import Group, Port
from mudkit.systems.contrail.problems import QueueFull, TamperedMessage
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
