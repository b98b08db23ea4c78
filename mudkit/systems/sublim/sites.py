"""Where access points are, and which one a device goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from mudkit.units import distance_km

__all__ = ["MARGIN_M", "Site", "best"]

MARGIN_M: Final = 5.0
"""So much nearer another one must be: nobody goes to and fro between two."""


class Site(NamedTuple):
    """An access point, as devices know it.

    Parameters
    ----------
    address : str
    at : (float, float) or None
        Latitude and longitude, degrees; None: it is everywhere.
    range_m : float
    is_stateful : bool
        Whether it has SUBLIM.
    """

    address: str
    at: tuple[float, float] | None
    range_m: float
    is_stateful: bool

    def distance_m(self, loc: tuple[float, float] | None) -> float:
        """Say how far away it is."""
        if loc is None or self.at is None:
            return 0.0
        return 1000.0 * float(distance_km(loc[0], loc[1], self.at[0], self.at[1]))


def best(sites: Sequence[Site], loc: tuple[float, float] | None, now: str | None) -> str | None:
    """Choose an access point: the nearest in range.

    Out of every range it stays with the one that it has: this goes on serving it from afar. Having none, it
    takes the nearest.

    Parameters
    ----------
    sites : sequence of Site
        The sites of which it may choose.
    loc : (float, float) or None
        Where it is.
    now : str or None
        The address of the one that it has.

    Returns
    -------
    str or None
        None: there is none.
    """
    far = {site.address: site.distance_m(loc) for site in sites}
    near = [site for site in sites if far[site.address] <= site.range_m]
    if not near:
        return now if now is not None else min(far, key=far.__getitem__, default=None)
    first = min(near, key=lambda site: far[site.address])
    stays = any(site.address == now and far[site.address] - far[first.address] < MARGIN_M for site in near)
    return now if stays else first.address
