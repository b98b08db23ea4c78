"""Radiator: hold and aggregate by the context of both sides, pass along chains of recipients.

P. Alves and P. Ferreira, Radiator - efficient message propagation in context-aware systems (JISA 2014).
Everyone who is registered gets every message in the end, once; when, and how far aggregated, is what a
function of the programmer's says of the current contexts of sender and receiver.

To very many clients there is :func:`broadcast`, without a fleet; :class:`Tally` makes the run's tables of it:
a row for each batch and group with the number of its receivers, and rows by receiver up to a limit.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.radiator.aggregation import joins
    from mudkit.systems.radiator.aggregation.places import cell, distance_km
    from mudkit.systems.radiator.aggregation.thresholds import (
        Aggregability,
        People,
        Time,
        Volume,
        aggregability,
    )
    from mudkit.systems.radiator.api import NAME, Client, Server
    from mudkit.systems.radiator.context import Context
    from mudkit.systems.radiator.device.client import ClientMachine
    from mudkit.systems.radiator.engines.client_arrays import ClientArrays, engine_for_many
    from mudkit.systems.radiator.engines.groups import Groups
    from mudkit.systems.radiator.engines.literal import ClientLists, Entry
    from mudkit.systems.radiator.engines.pending import Batch, Message, Pending
    from mudkit.systems.radiator.engines.shares import Share, Shares
    from mudkit.systems.radiator.packing import pack, unpack
    from mudkit.systems.radiator.servers.server import ServerMachine
    from mudkit.systems.radiator.study.applications import APPLICATIONS, Application, friends_nearby
    from mudkit.systems.radiator.study.broadcast import Aggregate, broadcast
    from mudkit.systems.radiator.study.played import Played, play
    from mudkit.systems.radiator.study.tally import BATCHES, Tally
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "APPLICATIONS",
    "BATCHES",
    "NAME",
    "Aggregability",
    "Aggregate",
    "Application",
    "Batch",
    "Client",
    "ClientArrays",
    "ClientLists",
    "ClientMachine",
    "Context",
    "Entry",
    "Groups",
    "Message",
    "Pending",
    "People",
    "Played",
    "Server",
    "ServerMachine",
    "Share",
    "Shares",
    "Tally",
    "Time",
    "Volume",
    "aggregability",
    "broadcast",
    "cell",
    "distance_km",
    "engine_for_many",
    "friends_nearby",
    "joins",
    "pack",
    "play",
    "unpack",
]
