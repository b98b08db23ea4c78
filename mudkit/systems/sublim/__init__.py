"""SUBLIM: the server keeps state per subscriber, and the subscriber's policy rewrites each message by it.

SUBLIM, on stateful publish-subscribe for mobile environments. Section numbers in this package are of this
paper, whose section 4 models a community {S, C, ST, P, M}: a server S, subscribers C, per subscriber a state
of variables ST and a policy P, and messages M. Here the access points are the servers, each for the
subscribers attached to it.

Roles: publishers on devices (:mod:`.device`) submit messages to one publish server, which floods them to all
access points (:mod:`.servers.publish_server`). An access point, with SUBLIM or plain without state, keeps an
agent per attached subscriber (:mod:`.servers.agent`), which applies the policy and queues the result for the
client (:mod:`.device`). A client attaches to the nearest access point in range; the agent moves there
(:mod:`.servers.handover`).

Messages (:mod:`.messages`; those of publishers are of :mod:`mudkit.delivery.submission`)::

    publish server      access point                 client
      | -- Messages -------> |  <---------- Attach -- |
      | <---- MessagesAck -- |  -- Attached --------> |
      | <- ReplayRequest --- |  <-- Report, SetPolicy |
                             |  -- Deliver ---------> |
      other access point     |  <----- DeliveryAck -- |
      | <-- StateRequest --- |
      | -- StateTransfer --> |

Policies (:mod:`._policy.policy`) are ordered rules or, in a trusted notebook, Python functions. Declarative
policies are checked when they are set (:mod:`.check.checker`).

Durable state: a publisher stores its outbox. The publish server stores the last submission of each publisher,
the last 10,000 messages, its access points, the addresses of their subscribers, and the lineage by which a
restored store is recognised; an access point its agents (variables, policy, queue, position in the log) and
the transfers in progress; a client its attachment, its inbox and its last policy.

Guarantees: what a publisher has stored is published once, in order, or refused. State, policy and queue of a
subscriber move between access points exactly once; if one of them crashes meanwhile, the move resumes after
its restart. No other access point takes over for one that is down: its subscribers wait until it is back. A
message published while the subscriber is attached is decided exactly once and, if its policy sends it,
delivered exactly once and in order, with two limits: of a device that is away only the last 5,000 deliveries
are kept, and an access point that was down for long misses what is older than the last 10,000 messages
(``skipped`` counts these). The application gets each message once; only a kill of the device between its
commit and the callback may repeat one, with the same ``id``. A store restored from a backup, or emptied,
loses what it had not recorded, and repeats nothing; the incidents say so (``rolled back``), except for a
message that no access point had heard of when the publish server was restored: nobody else knows of it. A
copy of a message that arrives late, after any of these or after a change of address, has no effect.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.sublim._policy.function import FunctionPolicy, policy
    from mudkit.systems.sublim._policy.message import compress, create_message, expand, method, resize
    from mudkit.systems.sublim._policy.policy import Policy, Rule, decision_table
    from mudkit.systems.sublim._policy.state import State
    from mudkit.systems.sublim._policy.text import PolicyError
    from mudkit.systems.sublim._policy.verdict import Explanation, Verdict
    from mudkit.systems.sublim.api import (
        AccessPoint,
        PlainSubscriber,
        Publisher,
        PublishServer,
        Subscriber,
        explain,
    )
    from mudkit.systems.sublim.check.checker import Finding, findings, validate
    from mudkit.systems.sublim.study import disaster_policy, shared_timestamp_policy, stock_policy
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "AccessPoint",
    "Explanation",
    "Finding",
    "FunctionPolicy",
    "PlainSubscriber",
    "Policy",
    "PolicyError",
    "PublishServer",
    "Publisher",
    "Rule",
    "State",
    "Subscriber",
    "Verdict",
    "compress",
    "create_message",
    "decision_table",
    "disaster_policy",
    "expand",
    "explain",
    "findings",
    "method",
    "policy",
    "resize",
    "shared_timestamp_policy",
    "stock_policy",
    "validate",
]
