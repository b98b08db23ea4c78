"""Last hop: which notifications go to a device, and when, given rank, expiration and how much is read.

The spool is one algorithm with two drivers: :func:`simulate` runs it on a presorted list of events, and
:class:`Publications` on a server of a lab, whose devices have a :class:`Subscriber`.
Beyond the paper are what push services do (:class:`Push`), recorded conditions (``recorded``), devices that
share a cache (``sharing``), and one's own logs (``logs``) and how much to prefetch by them (``sizing``).
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.systems.lasthop.api import Publications, Subscriber, Topic
    from mudkit.systems.lasthop.servers.indexer import query
    from mudkit.systems.lasthop.spool.paper_figure7 import PaperSpool
    from mudkit.systems.lasthop.spool.policies import LEARNT, Forwarding
    from mudkit.systems.lasthop.spool.push import Push
    from mudkit.systems.lasthop.spool.rules import Item, Situation
    from mudkit.systems.lasthop.spool.spool import Spool
    from mudkit.systems.lasthop.study.comparing import RecordedEvents, compare
    from mudkit.systems.lasthop.study.logs import read_logs
    from mudkit.systems.lasthop.study.message_lifecycles import Lifelines, lifelines, message_lifecycles
    from mudkit.systems.lasthop.study.paper import FIGURES
    from mudkit.systems.lasthop.study.recorded import Link, Unlocks, conditions
    from mudkit.systems.lasthop.study.scenario import Expiration, Scenario
    from mudkit.systems.lasthop.study.sharing import compare_sharing
    from mudkit.systems.lasthop.study.simulation import Outcome, Simulated, expected_waste, play, simulate
    from mudkit.systems.lasthop.study.sizing import add_outages, size_prefetch
    from mudkit.systems.lasthop.study.sweeping import sweep
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
    "Link",
    "Outcome",
    "PaperSpool",
    "Publications",
    "Push",
    "RecordedEvents",
    "Scenario",
    "Simulated",
    "Situation",
    "Spool",
    "Subscriber",
    "Subscription",
    "Topic",
    "Unlocks",
    "add_outages",
    "compare",
    "compare_sharing",
    "conditions",
    "expected_waste",
    "lifelines",
    "message_lifecycles",
    "play",
    "query",
    "read_logs",
    "simulate",
    "size_prefetch",
    "sweep",
]
