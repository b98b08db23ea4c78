"""Last hop: which notifications go to a device, and when, given rank, expiration and how much is read.

The spool is one algorithm with two drivers: :func:`simulate` runs it on a presorted list of events.
"""

from mudkit.systems.lasthop.paper import FIGURES
from mudkit.systems.lasthop.policies import LEARNT, Forwarding
from mudkit.systems.lasthop.push import Push
from mudkit.systems.lasthop.scenario import Expiration, Scenario
from mudkit.systems.lasthop.simulation import Outcome, Simulated, expected_waste, simulate
from mudkit.systems.lasthop.spool import Spool
from mudkit.systems.lasthop.sweeping import sweep

__all__ = [
    "FIGURES",
    "LEARNT",
    "Expiration",
    "Forwarding",
    "Outcome",
    "Push",
    "Scenario",
    "Simulated",
    "Spool",
    "expected_waste",
    "simulate",
    "sweep",
]
