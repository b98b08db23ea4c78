"""Simulated devices in virtual time: the kernel that runs machines, links, radios, faults and one bill."""

from mudkit.fleet.energy import RADIOS, Radio, RadioProfile
from mudkit.fleet.faults import Faults
from mudkit.fleet.host import Device, Host, Process
from mudkit.fleet.kernel import World
from mudkit.fleet.link import LINKS, Link, LinkProfile

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
