"""Area of a query: the middle and the size of what its records lie in (Mobius 6: features of the area)."""

from __future__ import annotations

import functools
import math
from typing import Final, NamedTuple

from mudkit.predicates.containment import facts_of
from mudkit.predicates.predicate import Predicate
from mudkit.units import KM_PER_DEGREE

_LAT_COLUMNS: Final = tuple(repr(("record", name)) for name in ("lat", "latitude"))
_YEAR_S: Final = 366 * 86_400.0
_LON_COLUMNS: Final = tuple(repr(("record", name)) for name in ("lon", "lng", "longitude"))


class Area(NamedTuple):
    """Area of a query.

    Parameters
    ----------
    lat, lon : float
        Its middle, in degrees.
    box_km : float
        Side of a square of the same size.
    since : float or None
        The lower bound of the only other column that has one and no upper one, as of a time; None: there is
        no such column, or there are several.
    """

    lat: float
    lon: float
    box_km: float
    since: float | None = None

    def window_s(self, now_s: float) -> float | None:
        """Return how far back the query asks, if ``since`` may be a time of the clock that shows ``now_s``.

        It may lie up to a year before the clock began.
        """
        if self.since is None:
            return None
        window_s = now_s - self.since
        return window_s if 0.0 < window_s <= max(now_s, _YEAR_S) else None


@functools.lru_cache(maxsize=1024)
def area_of(predicate: Predicate | None) -> Area | None:
    """Return the area of a query; None: it has none, or several.

    It follows from ``within_km``, ``within_box``, ``distance_km`` up to a constant, or bounds of the columns
    ``lat`` and ``lon`` (``latitude``; ``lng``, ``longitude``), in a conjunction.
    """
    cases = facts_of(predicate)
    if len(cases) != 1:
        return None
    facts = cases[0]
    open_ = [
        allowed.low for allowed in facts.ranges.values() if allowed.low is not None and allowed.high is None
    ]
    since = open_[0] if len(open_) == 1 and isinstance(open_[0], float) else None
    if len(facts.circles) == 1:
        (lat, lon), km = facts.circles[0].centre, facts.circles[0].km
        return Area(lat, lon, math.sqrt(math.pi) * km, since)
    lats = [of for of in facts.ranges if of in _LAT_COLUMNS or of.startswith("latitude of ")]
    lons = [of for of in facts.ranges if of in _LON_COLUMNS or of.startswith("longitude of ")]
    if len(lats) != 1 or len(lons) != 1:
        return None
    edges = [edge for of in (lats[0], lons[0]) for edge in (facts.ranges[of].low, facts.ranges[of].high)]
    if not all(isinstance(edge, float) for edge in edges):
        return None
    south, north, west, east = edges
    if not (-90.0 <= south < north <= 90.0 and -180.0 <= west < east <= 180.0):
        return None
    lat = (south + north) / 2
    width_km = (east - west) * math.cos(math.radians(lat))
    return Area(lat, (west + east) / 2, float(math.sqrt((north - south) * width_km) * KM_PER_DEGREE), since)
