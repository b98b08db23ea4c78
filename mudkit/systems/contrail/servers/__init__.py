"""Cloud of Contrail: stores and relays ciphertext (Contrail 4.2).

Three tiers: a gateway terminates the connections of devices, stateless compute instances execute requests,
and storage holds a queue for each device, an item cache, and groups. An import contract keeps predicates and
cryptography out of this package: the cloud can neither filter nor read.
"""

from mudkit.systems.contrail.servers.compute import Compute
from mudkit.systems.contrail.servers.gateway import Gateway
from mudkit.systems.contrail.servers.storage import Storage

__all__ = ["Compute", "Gateway", "Storage"]
