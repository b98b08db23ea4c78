"""Radiator: hold and aggregate messages by the context of both sides, and pass them along chains.

P. Alves and P. Ferreira, Radiator - efficient message propagation in context-aware systems (JISA 2014).

Roles
    A :class:`Client` on each device propagates its context; the :class:`Server` sends it to every other
    registered client. For each pair, the user's aggregability function decides from both contexts how long to
    wait: for a number of messages, of people, or for a time. A join merges the released messages.
Messages
    Client to server: Register, Unregister, Propagate, DeliveryAck, Unreachable. Server to client: Registered,
    Unregistered, RegistrationRefused, Identify, ContextAck, Unknown, Push. Peer to peer: PassedPush, along a
    chain of ``p2p_enabled`` recipients. See :mod:`mudkit.systems.radiator.messages`.
Durable state
    A client stores its registration, its outbox, and the ids of the last 4,096 aggregates. The server keeps
    everything in memory: a restart loses the clients and the messages pending there. A client registers again
    when its next message, or acknowledgement, is answered with Unknown, and when its link comes up; one that
    only receives is not known to a restarted server until then.
Guarantees
    Contexts of a client are processed in order, and exactly once while the server runs; after its restart one
    whose acknowledgement was lost may be processed again. An aggregate is pushed until the client
    acknowledges it, unregisters, or has been silent for ``silence_s``; the client shows it once. A kill
    between the client's commit and its callback may repeat a context, with the same ``id``; so may a restart
    of the server that processes it again, with another ``id``. What a restarted server has lost of a client
    that has sent contexts before is an incident (``began anew``). A copy of a
    message that arrives after a wipe or a restart of the client has no effect. No message waits longer than
    ``max_retention_s``: it is then sent, or dropped if it waits for people.

Modules: ``thresholds`` (the aggregability function), ``joins`` and ``engines`` (Algorithm 3: one literal
engine, and three for many receivers), ``chains``, ``servers``, ``device``, and ``study`` (the paper's
applications, and :func:`broadcast` to many clients without a fleet).
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.radiator import joins
    from mudkit.systems.radiator.api import NAME, Client, Server
    from mudkit.systems.radiator.context import Context
    from mudkit.systems.radiator.device import ClientMachine
    from mudkit.systems.radiator.engines.client_arrays import ClientArrays, engine_for_many
    from mudkit.systems.radiator.engines.groups import Groups
    from mudkit.systems.radiator.engines.literal import ClientLists, Entry
    from mudkit.systems.radiator.engines.pending import Batch, Message, Pending
    from mudkit.systems.radiator.engines.shares import Share, Shares
    from mudkit.systems.radiator.messages import pack, unpack
    from mudkit.systems.radiator.places import cell, distance_km
    from mudkit.systems.radiator.servers import ServerMachine
    from mudkit.systems.radiator.study.applications import APPLICATIONS, Application, friends_nearby
    from mudkit.systems.radiator.study.broadcast import Aggregate, broadcast
    from mudkit.systems.radiator.study.played import Played, play
    from mudkit.systems.radiator.study.tally import BATCHES, Tally
    from mudkit.systems.radiator.thresholds import (
        Aggregability,
        People,
        Time,
        Volume,
        aggregability,
    )
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
