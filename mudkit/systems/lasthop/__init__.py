"""Last hop: volume limits and prefetching, for notifications by rank and expiration.

A publisher assigns each message of a topic a rank and an expiration. A user subscribes with limits: how many
messages per read (``max``), from which rank (``threshold``), and when. A policy decides which messages the
server forwards before the user reads them: too many are waste, too few are loss during an outage.

D. Zagorodnov and D. Johansen, The last hop of global notification delivery to mobile users: matching
preferences, context, and device constraints. Section and figure numbers in this package are of this paper.

Roles
    :class:`Publisher`: a publisher on a device (``device/publisher.py``), which has a :class:`Topic` for what
    it publishes. :class:`Publications`: the server of a lab (``servers/spooling_server.py``), where tests
    have a :class:`Topic`, too. It keeps a spool (``spool/spool.py``, Figure 7) for each device and topic
    (``servers/server_subscription.py``); ``servers/indexer.py`` matches queries, which are topics, too.
    :class:`Subscriber`: the user's device (``device/machine.py``) with its queue (``device/queue.py``).

Messages
    ``messages.py``. A device sends Hello to begin a session, facts (subscriptions, reads, messages shown and
    dropped), and read requests. The server answers with a stream of items: forwarded messages, rank changes,
    retractions. A publisher submits messages and changes of ranks (:mod:`mudkit.delivery.submission`). All
    retransmit until they get an acknowledgement.

Durable state
    Server: subscriptions, waiting messages, messages below the threshold, recent reads, devices and their
    addresses, the last submission taken of each publisher. Publisher: its outbox. Device: subscriptions, its
    queue, facts that are not acknowledged and the last ones that are, and an incarnation.

Guarantees
    What a publisher has stored is published once, in order, or refused, or expires in the outbox; a late copy
    has no effect. A user gets a message at most once, and never after its expiration, also under loss,
    repetition and restarts. Facts are handled once, in order. A message lost in flight waits again after the
    next Hello. A device with an empty store is another device: the subscriptions of the old one end. A store
    restored from a backup is recognised by what its peer has, and the loss is an incident; of messages that
    no device had when the server was restored nobody else knows. The device sends a restored server the facts
    again that it has forgotten, so that no message that was read comes twice. What a device has committed
    reaches its application; only a kill between a commit and its callbacks repeats a message, with the same
    id.

``study/``: :func:`simulate` runs the same spool on presorted events without a network; over a link of kind
``ideal`` both give the same results. Beyond the paper are push services (:class:`Push`), your own logs
(:func:`read_logs`), and the search for a prefetch limit (:func:`size_prefetch`, :func:`score_policies`).
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.lasthop.api import Publications, Publisher, Subscriber, Topic
    from mudkit.systems.lasthop.servers.indexer import query
    from mudkit.systems.lasthop.spool.policies import LEARNT, Forwarding, Item, Situation
    from mudkit.systems.lasthop.spool.push import Push
    from mudkit.systems.lasthop.spool.spool import PaperSpool, Spool
    from mudkit.systems.lasthop.study.logs import read_logs
    from mudkit.systems.lasthop.study.message_lifecycles import Lifelines, lifelines, message_lifecycles
    from mudkit.systems.lasthop.study.scenario import Expiration, RankChanges, Scenario
    from mudkit.systems.lasthop.study.simulation import Outcome, Simulated, expected_waste, play, simulate
    from mudkit.systems.lasthop.study.sizing import Prices, add_outages, score_policies, size_prefetch
    from mudkit.systems.lasthop.study.sweeping import FIGURES, RecordedEvents, compare_policies, simulate_grid
    from mudkit.systems.lasthop.subscription import Subscription
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "FIGURES",
    "LEARNT",
    "Expiration",
    "Forwarding",
    "Item",
    "Lifelines",
    "Outcome",
    "PaperSpool",
    "Prices",
    "Publications",
    "Publisher",
    "Push",
    "RankChanges",
    "RecordedEvents",
    "Scenario",
    "Simulated",
    "Situation",
    "Spool",
    "Subscriber",
    "Subscription",
    "Topic",
    "add_outages",
    "compare_policies",
    "expected_waste",
    "lifelines",
    "message_lifecycles",
    "play",
    "query",
    "read_logs",
    "score_policies",
    "simulate",
    "simulate_grid",
    "size_prefetch",
]
