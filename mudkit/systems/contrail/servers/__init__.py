"""The cloud of Contrail: it holds and passes on what it cannot read (Contrail 4.2).

Three tiers, each a machine: a gateway talks with devices, compute instances without a memory do what it asks
for, storage holds a queue for each device, a cache of items, and groups. Nothing here may import the
predicates or the cryptography of mudkit.
"""

from mudkit.systems.contrail.servers.compute import Compute
from mudkit.systems.contrail.servers.gateway import Gateway
from mudkit.systems.contrail.servers.storage import Storage

__all__ = ["Compute", "Gateway", "Storage"]
