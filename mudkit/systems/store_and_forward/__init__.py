"""Store and forward: a relay keeps messages for devices that are away. The smallest system, and the template.

A message that a client took is in the inbox of its receiver once, and in the order of its sender, whatever
is cut, lost, repeated, moved, killed and restarted meanwhile, as soon as both have had a network for long
enough.
"""

from mudkit.systems.store_and_forward.client import ClientMachine
from mudkit.systems.store_and_forward.direct import Direct, DirectMachine
from mudkit.systems.store_and_forward.front import Client, Relay, StoreAndForward
from mudkit.systems.store_and_forward.relay import RelayMachine

__all__ = ["Client", "ClientMachine", "Direct", "DirectMachine", "Relay", "RelayMachine", "StoreAndForward"]
