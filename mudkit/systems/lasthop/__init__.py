"""Last hop: which notifications go to a device, and when, given rank, expiration and how much is read.

The spool is one algorithm with two drivers: :func:`simulate` runs it on a presorted list of events.
"""

from mudkit.systems.lasthop.lives import lives
from mudkit.systems.lasthop.paper import FIGURES
from mudkit.systems.lasthop.policies import LEARNT, Forwarding
from mudkit.systems.lasthop.printed import PrintedSpool
from mudkit.systems.lasthop.rules import Item, Told
from mudkit.systems.lasthop.scenario import Expiration, Scenario
from mudkit.systems.lasthop.simulation import Outcome, Simulated, expected_waste, play, simulate
from mudkit.systems.lasthop.spool import Spool
from mudkit.systems.lasthop.sweeping import sweep

__all__ = [
    "FIGURES",
    "LEARNT",
    "Expiration",
    "Forwarding",
    "Item",
    "Outcome",
    "PrintedSpool",
    "Scenario",
    "Simulated",
    "Spool",
    "Told",
    "expected_waste",
    "lives",
    "play",
    "simulate",
    "sweep",
]
