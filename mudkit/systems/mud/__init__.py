"""MUD tables (Mobius): one logical table over devices and cloud.

A client writes into its own store and the cloud; readers see what matches their predicate and the writer's.
Read types differ in what they promise: see :mod:`mudkit.systems.mud.asking` and :mod:`mudkit.consistency`.
"""

from mudkit.systems.mud.blocking import BlockingClient
from mudkit.systems.mud.front import Client, Cloud
from mudkit.systems.mud.policies import AlwaysRemote, Freshness, NearAndRecent, Now, ReadPolicy, WritePolicy
from mudkit.systems.mud.problems import Conflict
from mudkit.systems.mud.pubsub import PubSub
from mudkit.systems.mud.result import Change, ReadResult
from mudkit.systems.mud.utility import Plan, Utility, freshness

__all__ = [
    "AlwaysRemote",
    "BlockingClient",
    "Change",
    "Client",
    "Cloud",
    "Conflict",
    "Freshness",
    "NearAndRecent",
    "Now",
    "Plan",
    "PubSub",
    "ReadPolicy",
    "ReadResult",
    "Utility",
    "WritePolicy",
    "freshness",
]
