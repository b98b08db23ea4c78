"""MUD tables (Mobius): one logical table over devices and cloud.

B.-G. Chun, C. Curino, R. Sears, A. Shraer, S. Madden and R. Ramakrishnan, Mobius: Unified Messaging and Data
Serving for Mobile Apps (MobiSys 2012). Section numbers in this package are of this paper.

A record has a primary key, columns, and a writer predicate over the reader's data. A reader sees the records
that match its own predicate and whose writer predicates match its data.

Roles (section 2):

===================  =================================================================================
client               an app on a device (:mod:`.device.client`): local store, reads, writes, cache
service              of a device (:mod:`.device.service`): link, session, heartbeat and budget of all its apps
gateway              verifies tokens, finds the partitions of a request, returns the answers
processor            for some partitions: routes reads and writes, matches changes with continuous reads
back end             the master: commits every write as an entry of one log
replica              follows the log with a lag, and answers reads
notification server  knows the addresses of its devices, and sends them changes and policies
policy generator     learns policies from what clients report, and ships them
===================  =================================================================================

Messages (:mod:`.messages`). A request goes as ``Ask`` from client over the service of its device to a
gateway (those of several apps in an ``AppsBatch``), which follows the tables in the back end's log.
From there the same request goes in a ``Routed``, with its route and its verified sender: a read or write
through the processor of its partition to a replica or the back end, one about a continuous read to the
processors, one about a table to the back end; the answer returns to the gateway and the client. The back end
sends its log to followers (``Log``, ``LogAck``), to each of several processors what concerns its partitions.
A change for a reader goes as ``Tell`` on a numbered stream
from processor to notification server, and on another one to the device, whose address is known from the
``Hello`` of its service.

Durable state. Client: committed records up to a maximum, pending writes, log positions seen, continuous
reads, shipped policies, its last token. Back end: tables, rows, the log that followers lack, results of
writes. Generator: policies, usage. Notification server: addresses of its clients. Processors and notification
servers: their generation. All else is soft: processors lose continuous reads at a restart,
notification servers their sessions; clients then register again.

Guarantees:

* A write is durable on the device when the call returns, is applied once, and in order for each record. A
  conditional write applies only to the version that it was based on, else it raises :class:`Conflict`.
* A batch of writes of one partition is applied as a whole or not at all, and no answer of the cloud, nor a
  continuous read that is synced, has a part of it.
* Reads never go back: each read type returns non-decreasing versions of a record. ``uncommitted`` is
  fork-sequential, ``committed`` sequential; ``committed_wio`` follows this client's earlier writes (4.2).
* A continuous read delivers every change that its reader may see, once and in order, or ends with a
  reason. Only a kill between a commit and its callbacks repeats one, with the same ``id``. An own write is
  shown at once, as pending; when the store has decided, what it has committed, or what was there before.
* What a writer hides from a reader, neither data, errors nor version numbers reveal.
* A wiped device is another client. A store restored from a backup, of a client or the back end, is
  recognised: what is lost is an incident, and acknowledged entries are never answered wrongly.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.mud.api import Client
    from mudkit.systems.mud.continuous_read import ContinuousRead
    from mudkit.systems.mud.device.policy_slot import ShippedPolicy
    from mudkit.systems.mud.policies.artefact import Artefact, Density
    from mudkit.systems.mud.policies.learner import Learner, LearntPolicy
    from mudkit.systems.mud.policies.policies import (
        AlwaysRemote,
        Freshness,
        Habits,
        Later,
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
    from mudkit.systems.mud.tables.write_rules import rule
    from mudkit.systems.mud.wrappers import BlockingClient, PubSub
    from mudkit.systems.mud.write_batch import WriteBatch
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
    "ContinuousRead",
    "Density",
    "Freshness",
    "Habits",
    "Later",
    "Learner",
    "LearntPolicy",
    "NearAndRecent",
    "Now",
    "Plan",
    "PrefetchPolicy",
    "PubSub",
    "ReadPolicy",
    "ReadResult",
    "ShippedPolicy",
    "Utility",
    "WriteBatch",
    "WritePolicy",
    "bandwidth",
    "bias",
    "completeness",
    "cost_matrix",
    "energy",
    "freshness",
    "latency",
    "rule",
]
