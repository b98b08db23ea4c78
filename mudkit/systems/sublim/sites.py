"""Sites of access points, and the choice of one by a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from mudkit.units import distance_km

MARGIN_M: Final = 5.0
"""Hysteresis: another access point must be this much nearer, to avoid flapping between two."""


class Site(NamedTuple):
    """Access point as devices know it. ``at``: degrees; None: in range everywhere."""

    address: str
    at: tuple[float, float] | None
    range_m: float
    is_stateful: bool

    def distance_m(self, loc: tuple[float, float] | None) -> float:
        """Return its distance from a place; 0 if either is unknown."""
        if loc is None or self.at is None:
            return 0.0
        return 1000.0 * float(distance_km(loc[0], loc[1], self.at[0], self.at[1]))


def choose_access_point(
    sites: Sequence[Site], loc: tuple[float, float] | None, current: str | None
) -> str | None:
    """Return the address of the nearest access point in range, preferring the current one.

    Out of every range it is the current one, which serves from afar, or else the nearest; without sites None.
    """
    distances_m = {site.address: site.distance_m(loc) for site in sites}
    in_range = [site for site in sites if distances_m[site.address] <= site.range_m]
    if not in_range:
        return current if current is not None else min(distances_m, key=distances_m.__getitem__, default=None)
    nearest = min(in_range, key=lambda site: distances_m[site.address])
    stays = any(
        site.address == current and distances_m[site.address] - distances_m[nearest.address] < MARGIN_M
        for site in in_range
    )
    return current if stays else nearest.address
