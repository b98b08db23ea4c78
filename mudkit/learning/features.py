"""Features known to a policy at its decision, without the answer that is not fetched yet.

==================  ===============================================================================
``paper``           time and place of the query and of the one whose answer is cached (Mobius 7.3)
``extended``        these, and how far apart they are in time and space, the weekday, and how many
                    points the cached answer holds: how densely that place is written to
``dense``           these, and how densely the cell of the query is written to at that hour, by a table that
                    is learnt from writes before, and shipped: see :mod:`mudkit.learning.density`
``asked``           those of ``extended``, and the size of the query's area and its window, and which share of
                    the area the cached answer's area covers: for queries of several sizes
``of a write``      its place and time (Mobius 7.3), and the weekday
==================  ===============================================================================
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mudkit.errors import ParameterError
from mudkit.learning.density import densities
from mudkit.learning.pairs import Pairs
from mudkit.systems.mud.policies.artefact import Density
from mudkit.units import covered_share, solar_time

Features: TypeAlias = Literal["paper", "extended", "dense", "asked"]

_PAPER: Final = ("lat", "lon", "hour", "cached_lat", "cached_lon", "cached_hour")
_EXTENDED: Final = (*_PAPER, "distance", "age", "weekday", "held")
FEATURE_SETS: Final[dict[Features, tuple[str, ...]]] = {
    "paper": _PAPER,
    "extended": _EXTENDED,
    "dense": (*_EXTENDED, "density"),
    "asked": (*_EXTENDED, "box", "window", "covered"),
}
"""Names as :data:`mudkit.systems.mud.policies.artefact.FEATURES` has them, with their units."""
WRITE_FEATURES: Final = ("lat", "lon", "hour", "weekday")


def read_features(pairs: Pairs, names: Features, density: Density | None = None) -> NDArray[np.float32]:
    """Describe pairs of a read and an earlier answer, of shape (pairs, features); NaN: unknown.

    Without the ``density`` that a device has, each read knows what was written on the days before its own.
    """
    if names not in FEATURE_SETS:
        raise ParameterError(
            "There is no such set of features.",
            where="features",
            found=repr(names),
            expected=", ".join(FEATURE_SETS),
        )
    hour, weekday = solar_time(pairs.t_us, pairs.lon)
    q, p = pairs.read, pairs.cached
    known = {
        "lat": pairs.lat[q],
        "lon": pairs.lon[q],
        "hour": hour[q],
        "weekday": weekday[q],
        "cached_lat": pairs.lat[p],
        "cached_lon": pairs.lon[p],
        "cached_hour": hour[p],
        "distance": pairs.distance_km,
        "age": pairs.age_s,
        "held": pairs.points[p],
    }
    if names == "asked":
        lat, lon, box_km = pairs.lat, pairs.lon, pairs.box_km
        covered = covered_share(lat[q], lon[q], box_km[q], lat[p], lon[p], box_km[p])
        known |= {"box": box_km[q], "window": pairs.window_s[q], "covered": covered}
    if names == "dense":
        place = pairs.t_us, pairs.lat, pairs.lon
        if density is not None:
            known["density"] = densities(density, *place)[q]
        elif pairs.written is not None:
            known["density"] = pairs.written.before(*place)[q]
        else:
            raise ParameterError(
                "How densely places are written to is not known.",
                where="features",
                found="reads only",
                expected="positions, too",
                remedy="give positions=, or take features='extended'",
            )
    return np.column_stack([known[name] for name in FEATURE_SETS[names]]).astype(np.float32)


def write_features(
    t_us: NDArray[np.int64], lat: NDArray[np.float64], lon: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Describe writes by :data:`WRITE_FEATURES`, of shape (writes, 4)."""
    return np.column_stack([lat, lon, *solar_time(t_us, lon)]).astype(np.float32)
