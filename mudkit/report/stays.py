"""Stops and trips of devices, and the places where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from mudkit.figures import tiles
from mudkit.report.recording import BREAK, silent_us
from mudkit.trace import profile
from mudkit.trace.movement import SILENCE_S
from mudkit.trace.schema import epoch_us
from mudkit.trace.summaries import summarise
from mudkit.units import US_PER_S, distance_km

if TYPE_CHECKING:
    import pandas as pd

    from mudkit.report.source import TraceSource

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

    They are those of :func:`mudkit.trace.stops` and :func:`mudkit.trace.trips`, by the defaults.
    """
    stops, trips = profile.Stays.divided(summarise(source.positions, {"stays": profile.Stays})["stays"])
    stop_frame = _numbered(source, stops).rename(columns={"duration_s": "stop_s"})
    trip_frame = _numbered(source, trips).rename(columns={"duration_s": "trip_s", "distance_km": "trip_km"})
    trip_frame["speed_mps"] = 1000 * trip_frame["trip_km"] / trip_frame["trip_s"]
    trip_frame["stop_ends"] = trip_frame["from_stop"].astype("int64") + trip_frame["to_stop"].astype("int64")
    columns = ["device", "start_us", "trip_s", "trip_km", "speed_mps", "stop_ends"]
    return Stays(stop_frame[["device", "start_us", "stop_s", "lat", "lon"]], trip_frame[columns])


def _numbered(source: TraceSource, table: pa.Table) -> pd.DataFrame:
    """Return a table as a DataFrame, with the number of each device and the begin in microseconds."""
    frame: pd.DataFrame = table.drop_columns(["start_ts", "end_ts", "is_stop"]).to_pandas()
    return frame.assign(device=source.numbers(table["device"]), start_us=epoch_us(table["start_ts"]))


def silences(source: TraceSource) -> pd.DataFrame:
    """List the times without a row that end stops and trips, but not those between stretches of days.

    ``silence_s``, and ``moved_km`` from the last row before to the first row after.
    """
    import pandas as pd

    steps = source.long_steps()
    start_us, end_us = steps["start_us"].to_numpy(), steps["end_us"].to_numpy()
    breaks = source.recording.of_kind(BREAK)
    at = silent_us(breaks["start_us"].to_numpy(), breaks["end_us"].to_numpy(), start_us, end_us) == 0
    at &= end_us - start_us > SILENCE_S * US_PER_S
    ends = [steps[name].to_numpy()[at] for name in ("lat", "lon", "next_lat", "next_lon")]
    silence_s = (end_us - start_us)[at] / US_PER_S
    return pd.DataFrame({"silence_s": silence_s, "moved_km": distance_km(*ends)})


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
