"""MUD tables (Mobius): one logical table over devices and cloud.

A client writes into its own store and the cloud; readers see what matches their predicate and the writer's.
Read types differ in what they promise: see :mod:`mudkit.systems.mud.device.read_path` and
:mod:`mudkit.consistency`.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.mud.api import BlockingClient, Client, PubSub
    from mudkit.systems.mud.device.policy_slot import ShippedPolicy
    from mudkit.systems.mud.policies.artefact import Artefact, Density
    from mudkit.systems.mud.policies.policies import (
        AlwaysRemote,
        Freshness,
        Habits,
        NearAndRecent,
        Now,
        PrefetchPolicy,
        ReadPolicy,
        WritePolicy,
    )
    from mudkit.systems.mud.policies.utility import (
        Plan,
        Utility,
        bandwidth,
        bias,
        completeness,
        cost_matrix,
        energy,
        freshness,
        latency,
    )
    from mudkit.systems.mud.result import Change, Conflict, ReadResult
    from mudkit.systems.mud.servers.cloud import Cloud
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "AlwaysRemote",
    "Artefact",
    "BlockingClient",
    "Change",
    "Client",
    "Cloud",
    "Conflict",
    "Density",
    "Freshness",
    "Habits",
    "NearAndRecent",
    "Now",
    "Plan",
    "PrefetchPolicy",
    "PubSub",
    "ReadPolicy",
    "ReadResult",
    "ShippedPolicy",
    "Utility",
    "WritePolicy",
    "bandwidth",
    "bias",
    "completeness",
    "cost_matrix",
    "energy",
    "freshness",
    "latency",
]
