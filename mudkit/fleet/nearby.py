"""Short-range links: messages between devices that are near each other, without a network.

What a device sends to another one goes over their short-range radios if both have one of the same kind, are
on, and are in range of each other when it is sent; all else goes over the network. No transport concerns it:
there is no connection to open, and everybody who is near is let in. Each end pays for the bytes.

Left out: the search for devices, listening, pairing and interference; a message has the range of its
beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mudkit.checks import one_of
from mudkit.fleet.bill import Bill
from mudkit.fleet.link import Draws, Link, LinkProfile
from mudkit.units import apart_km

if TYPE_CHECKING:
    from mudkit.fleet.host import Host

SHORT_RANGES: Final = {
    profile.name: (profile, range_m)
    for profile, range_m in (
        (LinkProfile("bluetooth", 10.0, 0.4, 685.0, float("inf")), 10.0),
        (LinkProfile("wifi_direct", 4.0, 0.4, 5_000.0, float("inf")), 91.0),
    )
}
"""The kinds of short-range link, and their ranges in metres.

Rates are those at which Aalborg University has measured the energy of downloads on phones ("Energy
measurements on mobile phones": Bluetooth 2.0 at 650 to 850 kbit/s, Wi-Fi at 2 to 5 Mbit/s, 3 to 5 m away).
10 m is the range of class 2 of Bluetooth, that of phones; 91 m that of the access points of
:mod:`mudkit.fleet.coverage`. Latencies, half of them at each end, are choices. The sender limits the rate;
the receiver hears a message as it is sent.
"""


def short_range_of(name: str) -> LinkProfile:
    """Return a kind of short-range link by name, or raise ParameterError."""
    one_of("short_range", name, [*SHORT_RANGES], "There is no such short-range link.")
    return SHORT_RANGES[name][0]


def build_nearby_link(profile: LinkProfile, device: str, bill: Bill, draws: tuple[Draws, Draws]) -> Link:
    """Build the short-range link of a device; its rows of the bill are ``near up`` and ``near down``."""
    return Link(profile, device, bill, *draws, prefix="near ")


def are_near(one: Host, other: Host) -> bool:
    """Return whether a device has another one in range of its short-range radio now."""
    if one.nearby is None or other.nearby is None or one is other or not (one.is_on and other.is_on):
        return False
    profile = one.nearby.profile
    if profile is not other.nearby.profile or one.loc is None or other.loc is None:
        return False
    return 1000.0 * apart_km(one.loc, other.loc) <= SHORT_RANGES[profile.name][1]
