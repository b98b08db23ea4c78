"""Simulated devices in virtual time: the kernel that runs machines, links, radios, faults and one bill.

A machine decides, and the :class:`World` carries out its effects: messages over links, timers, answers and
records. Modules, each of which imports only those above it:

* ``clock``: virtual time and its event queue
* ``bill``, ``energy``, ``link``: charges, radios, and the two directions of a device's link
* ``store``: transactional stores of machines, in memory or in SQLite
* ``load``: workers and queue of a server whose events take time
* ``nearby``: short-range links between devices
* ``host``: hosts, the machines on them, and calls to these
* ``device``: hosts with a link, a battery and a course
* ``kernel``: the world: addresses, messages, events, effects and failures
* ``unpacking``, ``exposure``: what each party could read of what it received or stored
* ``recorder``: the tables of a run's trace
* ``reasons``: reasons of messages, by which a bill can be split
* ``scheduled``: calls that a user schedules
* ``transport``: connections over which messages travel, and what they cost
* ``coverage``: access points, which devices use while they are in range
* ``group``: parameters, mobility, outages and measured links of new devices
* ``faults``: injected faults
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.fleet.device import Device
    from mudkit.fleet.energy import RADIOS, Radio, RadioProfile
    from mudkit.fleet.faults import Faults
    from mudkit.fleet.host import Host, Process
    from mudkit.fleet.kernel import World
    from mudkit.fleet.link import LINKS, Link, LinkProfile
    from mudkit.fleet.load import ServerProfile
    from mudkit.fleet.scheduled import ScheduledCall
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "LINKS",
    "RADIOS",
    "Device",
    "Faults",
    "Host",
    "Link",
    "LinkProfile",
    "Process",
    "Radio",
    "RadioProfile",
    "ScheduledCall",
    "ServerProfile",
    "World",
]
