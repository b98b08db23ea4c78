"""Last hop: which notifications go to a device, and when, given rank, expiration and how much is read.

The spool is one algorithm with two drivers: :func:`simulate` runs it on a presorted list of events, and
:class:`Publications` on a server of a lab, whose devices have a :class:`Subscriber`.
"""

from mudkit.systems.lasthop.front import LastHop, Publications, Subscriber, Topic
from mudkit.systems.lasthop.indexer import query
from mudkit.systems.lasthop.lives import lives
from mudkit.systems.lasthop.paper import FIGURES
from mudkit.systems.lasthop.policies import LEARNT, Forwarding
from mudkit.systems.lasthop.printed import PrintedSpool
from mudkit.systems.lasthop.rules import Item, Told
from mudkit.systems.lasthop.scenario import Expiration, Scenario
from mudkit.systems.lasthop.simulation import Outcome, Simulated, expected_waste, play, simulate
from mudkit.systems.lasthop.spool import Spool
from mudkit.systems.lasthop.subscription import Subscription
from mudkit.systems.lasthop.sweeping import sweep

__all__ = [
    "FIGURES",
    "LEARNT",
    "Expiration",
    "Forwarding",
    "Item",
    "LastHop",
    "Outcome",
    "PrintedSpool",
    "Publications",
    "Scenario",
    "Simulated",
    "Spool",
    "Subscriber",
    "Subscription",
    "Told",
    "Topic",
    "expected_waste",
    "lives",
    "play",
    "query",
    "simulate",
    "sweep",
]
