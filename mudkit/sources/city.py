"""Parameters of a town of commuters: its places, its roads and the habits of its drivers.

Places are street corners of a square grid around the town's centre, counted in blocks to the east and to
the north. What is drawn for a car depends on the seed and the car's number only.

The defaults describe a large American city. Where one rests on a survey it is the National Household
Travel Survey of the USA, 2001 and 2009 (NHTS); the others are choices, and say why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mudkit.checks import Range, check_arguments, whole_number
from mudkit.errors import ParameterError
from mudkit.sources.streams import Stream
from mudkit.units import KM_PER_DEGREE

MAX_TOWNS = 400
_MAX_LAT = 75.0


class Corners(NamedTuple):
    """Street corners: blocks east and north of the town's centre, integers of one shape."""

    east: NDArray[np.int64]
    north: NDArray[np.int64]


@check_arguments(types=False)
@dataclass(frozen=True)
class CommuterTown:
    """Every rate of the model; raises ParameterError on a value that is out of range."""

    # -- where and when
    lat: Annotated[float, Range(-60.0, 60.0)] = 35.47
    """Centre of the first town, degrees: Oklahoma City, whose arterials do lie a mile apart. CarTel's cars
    drove in Boston, where half of a square town would be sea."""
    lon: Annotated[float, Range(-180.0, 180.0)] = -97.52
    """Centre of the first town, degrees."""
    utc_offset_h: Annotated[float, Range(-12.0, 14.0)] = -6.0
    """Local time minus UTC, hours, all year: the standard time there; without daylight saving no local hour
    is missing or doubled."""
    town_spacing_km: Annotated[float, Range(100.0, 500.0)] = 150.0
    """Distance of neighbouring towns' centres: no 20 km box holds points of two."""

    # -- places
    edge_km: Annotated[float, Range(2.0, 45.0)] = 24.0
    """Half the side of the town: a metropolitan area inside its outer ring road."""
    home_spread_km: Annotated[float, Range(0.5, 45.0)] = 10.0
    """Standard deviation of homes around the centre, along each axis; with ``work_spread_km`` it gives
    commutes of about 12 miles (NHTS: 12.2)."""
    work_spread_km: Annotated[float, Range(0.5, 45.0)] = 6.5
    """Standard deviation of workplaces around the centre: work is more central than homes."""
    errand_spread_km: Annotated[float, Range(0.5, 45.0)] = 6.0
    """Standard deviation of a car's errands around its home, along each axis: 6 miles by road (NHTS: 6.5
    to 6.8 for shopping and family business)."""
    errand_places: Annotated[int, Range(2, 50)] = 6
    """Places a car runs errands to; the first is the most visited. People go back to the same few."""

    # -- roads
    block_km: Annotated[float, Range(0.05, 0.5)] = 0.1
    """Distance of streets: blocks of American cities are 80 to 200 m long."""
    blocks_per_arterial: Annotated[int, Range(2, 100)] = 16
    """Number of streets between arterials: a mile, the grid of American land surveys."""
    arterials_per_expressway: Annotated[int, Range(2, 20)] = 5
    """Number of arterials between expressways: 8 km, of the order of a city's motorway grid."""
    detour_share: Annotated[float, Range(0.0, 2.0)] = 0.35
    """A faster road is taken if the way gets longer by at most this share of the trip's longer side."""
    street_mps: Annotated[float, Range(2.0, 30.0)] = 9.0
    """Mean speed on a street without congestion, stops between the corners included: 20 mph."""
    arterial_mps: Annotated[float, Range(2.0, 30.0)] = 13.5
    """The same on an arterial with traffic lights: 30 mph."""
    expressway_mps: Annotated[float, Range(2.0, 40.0)] = 27.0
    """The same on an expressway: 60 mph."""
    street_slowdown: Annotated[float, Range(0.0, 0.8)] = 0.15
    """Share of the speed that is lost on a street at the height of a peak: little, few drive there."""
    arterial_slowdown: Annotated[float, Range(0.0, 0.8)] = 0.35
    """The same on an arterial."""
    expressway_slowdown: Annotated[float, Range(0.0, 0.8)] = 0.5
    """The same on an expressway. Over whole trips the peak then costs a third to a half more time, as
    congestion reports find for large cities."""
    morning_peak_h: Annotated[float, Range(0.0, 24.0)] = 8.0
    """Local hour at which roads are slowest in the morning of a working day."""
    evening_peak_h: Annotated[float, Range(0.0, 24.0)] = 17.5
    """The same in the evening."""
    peak_width_h: Annotated[float, Range(0.1, 6.0)] = 1.0
    """Standard deviation of both peaks: congested for two to three hours."""
    weekend_peak_h: Annotated[float, Range(0.0, 24.0)] = 14.0
    """Local hour at which roads are slowest at weekends: one flat peak, early in the afternoon."""
    weekend_peak_width_h: Annotated[float, Range(0.1, 6.0)] = 2.5
    """Standard deviation of that peak."""
    weekend_slowdown: Annotated[float, Range(0.0, 1.0)] = 0.4
    """Height of that peak, as a share of a working day's."""
    speed_spread: Annotated[float, Range(0.0, 0.3)] = 0.12
    """Standard deviation of a trip's speed around the mean, relative, cut off at 2.5 times that: drivers and
    days differ."""
    turn_wait_s: Annotated[float, Range(0.0, 120.0)] = 12.0
    """Mean wait where the way turns into another road, uniform from 0 to twice that: traffic lights."""

    # -- habits
    commuter_share: Annotated[float, Range(0.0, 1.0)] = 0.85
    """Share of the cars whose drivers go to work: people who use a traffic application mostly do."""
    attendance_share: Annotated[float, Range(0.0, 1.0)] = 0.9
    """Share of working days on which they go: the rest is leave, illness and work at home."""
    leave_home_h: Annotated[float, Range(4.5, 12.0)] = 7.6
    """Local hour of leaving for work, mean over cars: half an hour to arrive shortly after 8."""
    leave_home_spread_h: Annotated[float, Range(0.0, 4.0)] = 0.8
    """Standard deviation of that habit over cars."""
    leave_home_jitter_h: Annotated[float, Range(0.0, 4.0)] = 0.25
    """Standard deviation of one car's leaving over days: habits are firmer than populations."""
    work_h: Annotated[float, Range(0.5, 14.0)] = 8.8
    """Mean time at work: eight hours and a break."""
    work_spread_h: Annotated[float, Range(0.0, 4.0)] = 0.7
    """Standard deviation of the time at work."""
    errand_after_work_share: Annotated[float, Range(0.0, 1.0)] = 0.3
    """Share of ways home from work with an errand on them."""
    workday_outing_share: Annotated[float, Range(0.0, 1.0)] = 0.25
    """Share of working days with an outing in the evening."""
    workday_outing_h: Annotated[float, Range(4.5, 22.5)] = 19.25
    """Local hour of that outing: after dinner."""
    outing_shares: Annotated[tuple[float, float, float], Range(0.0, 1.0)] = (0.6, 0.45, 0.25)
    """Shares of free days with an outing in the morning, in the afternoon and in the evening; together with
    the shares above this makes about 3 trips a day (NHTS)."""
    outing_hours: Annotated[tuple[float, float, float], Range(4.5, 22.5)] = (10.5, 14.5, 19.0)
    """Local hours of those outings: shops are open, errands are run before or after lunch."""
    outing_spread_h: Annotated[float, Range(0.0, 4.0)] = 1.3
    """Standard deviation of the hours of outings, on free days and working days."""
    weekend_outing_factor: Annotated[float, Range(0.0, 3.0)] = 1.0
    """Outings at weekends relative to other free days: the same, which makes as many trips as a working day
    has, at other hours and to other places."""
    second_stop_share: Annotated[float, Range(0.0, 1.0)] = 0.3
    """Share of outings that go to a second place before they go home."""
    liveliness_spread: Annotated[float, Range(0.0, 1.0)] = 0.5
    """Cars differ in their outings and errands by a factor, uniform from 1 minus this to 1 plus this."""
    errand_stay_h: Annotated[float, Range(0.05, 6.0)] = 0.5
    """Median stay at an errand."""
    errand_stay_spread: Annotated[float, Range(0.0, 1.5)] = 0.7
    """Standard deviation of the logarithm of that stay: most are short, a visit takes hours."""
    shortest_stay_s: Annotated[float, Range(60.0, 1800.0)] = 300.0
    """No stay is shorter; a shorter one would be part of the trip."""


class Residents(NamedTuple):
    """Constants of each car, of shape (cars,), errands (cars, errand_places); centre of its town, degrees."""

    car: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    home: Corners
    work: Corners
    errands: Corners
    commutes: NDArray[np.bool_]
    leave_home_h: NDArray[np.float64]
    liveliness: NDArray[np.float64]


def residents(town: CommuterTown, seed: int, car: NDArray[np.int64], towns: int = 1) -> Residents:
    """Settle cars, given by number in any order: car ``i`` lives in town ``i % towns``."""
    lat, lon = town_centres(town, towns)
    slots = np.arange(town.errand_places)
    home = _scattered(town, seed, "home", town.home_spread_km, car, 0)
    away = _scattered(town, seed, "errand", town.errand_spread_km, car[:, None], slots)
    edge = int(town.edge_km / town.block_km)
    spread = town.liveliness_spread
    return Residents(
        car=car,
        lat=lat[car % towns],
        lon=lon[car % towns],
        home=home,
        work=_scattered(town, seed, "work", town.work_spread_km, car, 0),
        errands=Corners(
            np.clip(home.east[:, None] + away.east, -edge, edge),
            np.clip(home.north[:, None] + away.north, -edge, edge),
        ),
        commutes=Stream(seed, "commutes").chance(car, 0, town.commuter_share),
        leave_home_h=Stream(seed, "leave home").normal(
            car, 0, town.leave_home_h, town.leave_home_spread_h, within=2.5
        ),
        liveliness=Stream(seed, "liveliness").uniform(car, 0, 1.0 - spread, 1.0 + spread),
    )


def town_centres(town: CommuterTown, towns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the centres of towns, degrees: a square spiral around the first, so that more move none."""
    steps = np.array(_spiral(whole_number("towns", towns, 1, MAX_TOWNS)), dtype=np.float64)
    lat = town.lat + steps[:, 1] * town.town_spacing_km / KM_PER_DEGREE
    if np.abs(lat).max() > _MAX_LAT:
        raise ParameterError(
            "The towns reach too far from the equator.",
            where="towns, lat, town_spacing_km",
            found=f"{towns} towns from {lat.min():.1f} to {lat.max():.1f} degrees of latitude",
            expected=f"all within {_MAX_LAT:g} degrees of the equator",
            remedy="fewer towns, closer to each other, or around a centre nearer the equator",
        )
    lon = town.lon + steps[:, 0] * town.town_spacing_km / KM_PER_DEGREE / np.cos(np.radians(lat))
    return lat, (lon + 180.0) % 360.0 - 180.0


def _scattered(
    town: CommuterTown,
    seed: int,
    what: str,
    spread_km: float,
    car: NDArray[np.int64],
    slot: NDArray[np.int64] | int,
) -> Corners:
    """Draw corners normally around the centre, within the town's edge."""
    east, north = (
        Stream(seed, f"{what}.{axis}").normal(car, slot, 0.0, spread_km, within=town.edge_km / spread_km)
        for axis in Corners._fields
    )
    return Corners(_corner(east / town.block_km), _corner(north / town.block_km))


def _corner(blocks: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the corners nearest to places given in blocks."""
    return np.asarray(np.rint(blocks), dtype=np.int64)


def _spiral(count: int) -> list[tuple[int, int]]:
    """Return the points of the square spiral around the origin, in order."""
    points, x, y, dx, dy, side = [(0, 0)], 0, 0, 1, 0, 1
    while len(points) < count:
        for _ in range(2):
            for _ in range(side):
                x, y = x + dx, y + dy
                points.append((x, y))
            dx, dy = -dy, dx
        side += 1
    return points[:count]
