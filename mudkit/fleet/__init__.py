"""Simulated devices in virtual time: the kernel that runs machines, links, radios, faults and one bill."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.fleet.device import Device
    from mudkit.fleet.energy import RADIOS, Radio, RadioProfile
    from mudkit.fleet.faults import Faults
    from mudkit.fleet.host import Host, Process
    from mudkit.fleet.kernel import World
    from mudkit.fleet.link import LINKS, Link, LinkProfile
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
    "World",
]
