"""Sites of access points, and the choice of one by a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mudkit.places import Place, choose_in_range
from mudkit.units import apart_km


class Site(NamedTuple):
    """Access point as devices know it. ``at``: degrees; None: in range everywhere."""

    address: str
    at: Place | None
    range_m: float
    is_stateful: bool

    def distance_m(self, loc: Place | None) -> float:
        """Return its distance from a place; 0 if either is unknown."""
        if loc is None or self.at is None:
            return 0.0
        return 1000.0 * apart_km(loc, self.at)


def choose_access_point(sites: Sequence[Site], loc: Place | None, current: str | None) -> str | None:
    """Return the address of the access point whose network a roaming device uses (``choose_in_range``).

    Out of every range it is the current one, which serves from afar, or else the nearest; without sites None.
    """
    points = [(site.address, site.distance_m(loc), site.range_m) for site in sites]
    chosen = choose_in_range(points, current) or current
    if chosen is not None or not points:
        return chosen
    return min(points, key=lambda point: point[1])[0]
