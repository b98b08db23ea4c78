"""Stops and trips of devices, and the places where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mudkit.figures import tiles
from mudkit.report.recording import BREAK, silent_us
from mudkit.trace.movement import SILENCE_S, stops_and_trips
from mudkit.trace.schema import epoch_us
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
    stops, trips = stops_and_trips(source.positions)
    stop_frame = _numbered(source, stops).rename(columns={"duration_s": "stop_s"})
    trip_frame = _numbered(source, trips).rename(columns={"duration_s": "trip_s", "distance_km": "trip_km"})
    trip_frame["speed_mps"] = 1000 * trip_frame["trip_km"] / trip_frame["trip_s"]
    trip_frame["stop_ends"] = trip_frame["from_stop"].astype("int64") + trip_frame["to_stop"].astype("int64")
    columns = ["device", "start_us", "trip_s", "trip_km", "speed_mps", "stop_ends"]
    return Stays(stop_frame[["device", "start_us", "stop_s", "lat", "lon"]], trip_frame[columns])


def _numbered(source: TraceSource, table: pa.Table) -> pd.DataFrame:
    """Return a table as a DataFrame, with the number of each device and the begin in microseconds."""
    frame: pd.DataFrame = table.drop_columns(["start_ts", "end_ts"]).to_pandas()
    numbers = pc.index_in(table["device"], value_set=pa.array(source.devices, pa.string()))
    return frame.assign(device=numbers.to_numpy().astype(np.int64), start_us=epoch_us(table["start_ts"]))


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
