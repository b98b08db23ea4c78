"""Stops and trips of devices, and the places where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mudkit.figures import tiles
from mudkit.report.recording import BREAK, silent_us
from mudkit.trace.derive import moved_from
from mudkit.units import US_PER_S, distance_km

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.report.source import TraceSource

MIN_STOP_S: Final = 300
"""A device that stays within 50 m for this long stops."""

SILENCE_S: Final = 1800
"""A longer time without a row ends a stop and a trip: nothing is known of it."""

MIN_TRIP_KM: Final = 0.5
"""Shorter movements between two stops are no trips."""

PLACE_ZOOM: Final = 16
"""Level of the cells that stops are joined in; about 600 m at the equator."""


class Stays(NamedTuple):
    """Stops and trips, a row each.

    Attributes
    ----------
    stops : pandas.DataFrame
        ``device`` (number), ``start_us``, ``stop_s``, ``lat``, ``lon`` (where it stood first).
    trips : pandas.DataFrame
        ``device`` (number), ``start_us``, ``trip_s``, ``trip_km``, ``speed_mps`` (length by duration),
        ``stop_ends`` (0 to 2: how many of its ends are stops, not silences).
    """

    stops: pd.DataFrame
    trips: pd.DataFrame


def find_stays(source: TraceSource) -> Stays:
    """Find the stops and trips of a trace.

    A device stands while it stays within 50 m of where it last moved to. It stops if its rows show it there
    for at least :data:`MIN_STOP_S`. A trip is what lies between two stops or silences, if it is
    :data:`MIN_TRIP_KM` long.
    """
    import pandas as pd  # loading it takes longer than loading all of mudkit

    device, t_us = source.device, source.t_us
    lat, lon = (source.positions[name].to_numpy() for name in ("lat", "lon"))
    step_us = np.diff(t_us)
    # The first row after a silence is a place of its own, as that of another device is.
    is_new = np.append(True, (np.diff(device) != 0) | (step_us > SILENCE_S * US_PER_S))[: len(t_us)]
    place = np.flatnonzero(moved_from(lat, lon, is_new))
    last = np.append(place[1:] - 1, len(t_us) - 1)[: len(place)]
    stop_us = t_us[last] - t_us[place]
    is_stop = stop_us >= MIN_STOP_S * US_PER_S
    at = place[is_stop]
    stops = pd.DataFrame(
        {
            "device": device[at],
            "start_us": t_us[at],
            "stop_s": stop_us[is_stop] / US_PER_S,
            "lat": lat[at],
            "lon": lon[at],
        }
    )
    # Steps within a stop, and those that begin with a silence or another device, belong to no trip.
    is_still = np.zeros(len(t_us) + 1, dtype=np.int64)
    np.add.at(is_still, place[is_stop] + 1, 1)
    np.add.at(is_still, last[is_stop] + 1, -1)
    is_step = ~is_new & (np.cumsum(is_still)[:-1] == 0)
    way_km = np.zeros(len(t_us))
    way_km[1:] = distance_km(lat[:-1], lon[:-1], lat[1:], lon[1:])
    rows = np.flatnonzero(is_step)
    begins = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    if not len(rows):
        trips = pd.DataFrame(
            {
                name: np.zeros(0)
                for name in ("device", "start_us", "trip_s", "trip_km", "speed_mps", "stop_ends")
            }
        )
        return Stays(stops, trips)
    ends = rows[np.append(begins[1:], len(rows)) - 1]
    first = rows[begins] - 1
    trip_km = np.add.reduceat(way_km[rows], begins)
    trip_s = (t_us[ends] - t_us[first]) / US_PER_S
    is_after_stop, is_before_stop = np.isin(first, last[is_stop]), np.isin(ends, place[is_stop])
    trips = pd.DataFrame(
        {
            "device": device[first],
            "start_us": t_us[first],
            "trip_s": trip_s,
            "trip_km": trip_km,
            "speed_mps": 1000 * trip_km / trip_s,
            "stop_ends": is_after_stop.astype(np.int64) + is_before_stop,
        }
    )
    return Stays(stops, trips[trip_km >= MIN_TRIP_KM].reset_index(drop=True))


def silences(source: TraceSource) -> pd.DataFrame:
    """List the times without a row that end stops and trips, but not those between stretches of days.

    ``silence_s``, and ``moved_km`` from the last row before to the first row after.
    """
    import pandas as pd

    lat, lon = (source.positions[name].to_numpy() for name in ("lat", "lon"))
    step_us = np.diff(source.t_us)
    at = np.flatnonzero((np.diff(source.device) == 0) & (step_us > SILENCE_S * US_PER_S))
    breaks = source.recording.of_kind(BREAK)
    begin, end = breaks["start_us"].to_numpy(), breaks["end_us"].to_numpy()
    at = at[silent_us(begin, end, source.t_us[at], source.t_us[at + 1]) == 0]
    moved_km = distance_km(lat[at], lon[at], lat[at + 1], lon[at + 1])
    return pd.DataFrame({"silence_s": step_us[at] / US_PER_S, "moved_km": moved_km})


def places(stops: pd.DataFrame) -> pd.DataFrame:
    """Return the places of stops, those with most time first.

    ``lat, lon`` (mean of the stops, weighted by their time), ``stops, devices, stop_s``.
    """
    x, y = tiles(PLACE_ZOOM, stops["lat"].to_numpy(), stops["lon"].to_numpy())
    weighed = stops.assign(
        cell=x * 2**PLACE_ZOOM + y,
        lat=stops["lat"] * stops["stop_s"],
        lon=stops["lon"] * stops["stop_s"],
    )
    joined = weighed.groupby("cell").agg(
        lat=("lat", "sum"),
        lon=("lon", "sum"),
        stops=("stop_s", "size"),
        devices=("device", "nunique"),
        stop_s=("stop_s", "sum"),
    )
    joined["lat"] /= joined["stop_s"]
    joined["lon"] /= joined["stop_s"]
    return joined.sort_values("stop_s", ascending=False).reset_index(drop=True)
