"""Cloud of Contrail: gateways, stateless compute instances, storage; it relays ciphertext (Contrail 4.2).

An import contract keeps predicates and cryptography out of this package: the cloud can neither filter nor
read.
"""

from mudkit.systems.contrail.servers.compute import Compute
from mudkit.systems.contrail.servers.gateway import Gateway
from mudkit.systems.contrail.servers.storage import Storage

__all__ = ["Compute", "Gateway", "Storage"]
