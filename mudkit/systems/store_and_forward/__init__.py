"""Store and forward: a relay keeps messages for devices that are away. The smallest system, and the template.

A message that a client took is in the inbox of its receiver once, and in the order of its sender, whatever
is cut, lost, repeated, moved, killed and restarted meanwhile, as soon as both have had a network for long
enough.

Once and in order is meant of an incarnation: a device that comes back with an empty store has forgotten what
it had, and begins anew (see :mod:`~mudkit.systems.store_and_forward.servers.relay`, also for a relay that
lost its store). Long enough is some 10 s after the last message was lost, and up to 30 minutes if what was
lost is the hello of a device that came back and then says nothing.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.store_and_forward.api import Client, Relay
    from mudkit.systems.store_and_forward.device.client import ClientMachine
    from mudkit.systems.store_and_forward.device.direct import DirectMachine
    from mudkit.systems.store_and_forward.servers.relay import RelayMachine
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Client",
    "ClientMachine",
    "DirectMachine",
    "Relay",
    "RelayMachine",
]
