"""Phones in driving cars: they report their places and query the traffic around them.

Positions come at a regular interval from departure to arrival, as CarTel's did (Mobius 7.3). Queries are
the user's: most stand around the start of a trip, some are asked again during it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments
from mudkit.errors import ParameterError
from mudkit.sources.city import CommuterTown
from mudkit.sources.streams import Stream
from mudkit.sources.trips import SPEED_CUT, Trips

_MAX_SPEED_MPS = 70.0
_GPS_CUT = 3.0
_QUERY_CUT = 2.5
_JITTER_CUT = 2.0
_MAX_LOOKS = 6
_SHORTEST_BREAK_S = 10.0
_LAT_LON_DIGITS = 6
_SPEED_DIGITS = 1


@check_arguments(types=False)
@dataclass(frozen=True)
class PhoneUse:
    """Every rate of the model; raises ParameterError on a value that is out of range."""

    interval_s: Annotated[int, Range(1, 3600)] = 15
    """Seconds between two positions; with it, 51 minutes of driving a day (NHTS: 55 on the days of its
    survey) give the 3.7 million positions of Mobius 7.3 for 600 cars in 30 days."""
    gps_error_m: Annotated[float, Range(0.0, 100.0)] = 7.0
    """Standard deviation of a fix along each axis, cut off at a circle of 3 times that: a median error of
    8 m, as Zandbergen (Transactions in GIS 13, 2009) measured with assisted GPS on the iPhone 3G. Errors of
    different fixes are independent; real ones drift over minutes."""
    speed_jitter: Annotated[float, Range(0.0, 0.5)] = 0.15
    """Standard deviation of the speed at a fix around that of its stretch of road, relative, cut off at 2
    times that: cars brake and accelerate. It does not move the car."""
    query_share_low: Annotated[float, Range(0.0, 1.0)] = 0.3
    """Users differ in how often they ask at the start of a trip: the share of trips is uniform over users,
    from this, the user who looks when it matters, …"""
    query_share_high: Annotated[float, Range(0.0, 1.0)] = 1.0
    """… to this, the user who starts the application with the engine."""
    query_spread_s: Annotated[float, Range(0.0, 600.0)] = 60.0
    """Standard deviation of the time between departure and that query, cut off at 2.5 times that: before
    leaving or just after."""
    look_again_share: Annotated[float, Range(0.0, 0.95)] = 0.35
    """Share of queries after which the user asks again before the trip is over, if it lasts long enough."""
    look_soon_share: Annotated[float, Range(0.0, 1.0)] = 0.5
    """Share of those that are a reload or a second look; the others ask what lies ahead now."""
    look_soon_s: Annotated[float, Range(1.0, 3600.0)] = 60.0
    """Mean time to a second look, exponential, over 10 s: at the next red light."""
    look_later_s: Annotated[float, Range(1.0, 7200.0)] = 600.0
    """Mean time to a later one, exponential, over 10 s: the scale on which traffic changes."""
    box_km: Annotated[float, Range(0.001, 2000.0)] = 20.0
    """Side of the box that a query asks for (Mobius 7.3)."""
    window_s: Annotated[float, Range(1.0, 604_800.0)] = 7200.0
    """Age up to which a query asks for reports (Mobius 7.3)."""

    def __post_init__(self) -> None:
        if self.query_share_low > self.query_share_high:
            raise ParameterError(
                "The range of the users' shares of queries is empty.",
                where="query_share_low",
                found=f"{self.query_share_low:g}, with query_share_high={self.query_share_high:g}",
                expected=f"a number from 0 to {self.query_share_high:g}",
            )


class Sightings(NamedTuple):
    """Places and times of devices, in the order of the trips, of shape (n,), rounded as receivers do."""

    car: NDArray[np.int64]
    t_s: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    speed_mps: NDArray[np.float64]


def check_plausible(town: CommuterTown, phone: PhoneUse) -> None:
    """Raise ParameterError if fixes of a car could be over 70 m/s apart, which loaders would reject.

    Stays must also be long enough for the queries around the starts of trips.
    """
    limits = max(town.street_mps, town.arterial_mps, town.expressway_mps)
    fastest_mps = limits * (1.0 + SPEED_CUT * town.speed_spread)
    # 2 % are left for the flat map (45 km from its centre at latitude 60: 1.3 %) and for rounding.
    room_m = (_MAX_SPEED_MPS / 1.02 - fastest_mps) * min(phone.interval_s, town.shortest_stay_s)
    most_m = max(room_m, 0.0) / (2.0 * _GPS_CUT)
    if phone.gps_error_m > most_m or room_m < 0.0:
        raise ParameterError(
            "Positions would contradict each other.",
            where="gps_error_m",
            found=f"{phone.gps_error_m:g} m with interval_s={phone.interval_s}, up to {fastest_mps:.0f} m/s",
            expected=f"from 0 to {most_m:.3g} m, so that no two fixes are more than 70 m/s apart",
            remedy="a longer interval, a smaller error, or slower cars",
        )
    most_s = town.shortest_stay_s / 2.0 / _QUERY_CUT
    if phone.query_spread_s > most_s:
        raise ParameterError(
            "Queries of one trip could be asked during another.",
            where="query_spread_s",
            found=f"{phone.query_spread_s:g} s with shortest_stay_s={town.shortest_stay_s:g}",
            expected=f"from 0 to {most_s:g} s",
            remedy="a smaller spread, or a longer shortest stay",
        )


def fixes(trips: Trips, phone: PhoneUse, seed: int) -> Sightings:
    """Return positions of the cars while they drive: at departure and every ``interval_s`` until arrival."""
    count = (trips.duration_s // phone.interval_s).astype(np.int64) + 1
    trip = np.repeat(np.arange(len(count)), count)
    first = np.cumsum(count) - count
    after_s = phone.interval_s * (np.arange(len(trip)) - first[trip])
    return _seen(trips, trip, after_s, phone, seed, "fix")


def queries(trips: Trips, phone: PhoneUse, seed: int) -> Sightings:
    """Return places and times at which users ask for the traffic around them."""
    car, start_s, duration_s = trips.car, trips.start_s, trips.duration_s
    share = Stream(seed, "query share").uniform(car, 0, phone.query_share_low, phone.query_share_high)
    asks = Stream(seed, "query").chance(car, start_s, share)
    after_s = Stream(seed, "query time").normal(car, start_s, 0.0, phone.query_spread_s, within=_QUERY_CUT)
    again, soon_draws, pause = (Stream(seed, f"query {name}") for name in ("again", "soon", "pause"))
    trip, at_s = [], []
    for look in range(_MAX_LOOKS):
        trip.append(np.flatnonzero(asks))
        at_s.append(np.floor(after_s[asks]))
        step = start_s * _MAX_LOOKS + look
        is_repeated = soon_draws.chance(car, step, phone.look_soon_share)
        mean_s = np.where(is_repeated, phone.look_soon_s, phone.look_later_s)
        after_s = after_s + _SHORTEST_BREAK_S + pause.exponential(car, step, mean_s)
        asks = asks & again.chance(car, step, phone.look_again_share) & (after_s < duration_s)
    return _seen(trips, np.concatenate(trip), np.concatenate(at_s).astype(np.int64), phone, seed, "query")


def _seen(
    trips: Trips, trip: NDArray[np.int64], after_s: NDArray[np.int64], phone: PhoneUse, seed: int, name: str
) -> Sightings:
    """Return the places and speeds that the receivers report."""
    car, t_s = trips.car[trip], trips.start_s[trip] + after_s
    east_km, north_km, speed_mps = trips.at(trip, after_s.astype(np.float64))
    # The radius of a two-dimensional normal error, by inversion, cut off.
    u, turn = Stream(seed, f"gps {name}").pair(car, t_s)
    radius_km = phone.gps_error_m / 1000.0 * np.sqrt(-2.0 * np.log1p(u * np.expm1(-0.5 * _GPS_CUT**2)))
    angle = 2.0 * np.pi * turn
    lat, lon = trips.degrees(trip, east_km + radius_km * np.cos(angle), north_km + radius_km * np.sin(angle))
    jitter = Stream(seed, f"speed {name}").normal(car, t_s, 1.0, phone.speed_jitter, within=_JITTER_CUT)
    lat, lon = lat.round(_LAT_LON_DIGITS), lon.round(_LAT_LON_DIGITS)
    return Sightings(car, t_s, lat, lon, (speed_mps * jitter).round(_SPEED_DIGITS))
