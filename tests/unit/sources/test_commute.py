import datetime as dt
import functools

import numpy as np
import pytest

from mudkit.sources.city import CommuterTown, residents
from mudkit.sources.commute import AUSTIN, Commute, town_day
from mudkit.sources.courses import device_numbers
from mudkit.sources.trips import day_start_s, trips
from mudkit.units import KM_PER_DEGREE

US = 1_000_000
NAMES = [f"phone-{i}" for i in range(40)]
MONDAY = (dt.date(2010, 3, 1) - dt.date(1970, 1, 1)).days


@functools.cache
def draw_trips(town, seed, name, day):
    people = residents(town, seed, device_numbers([name]))
    return people, trips(town, seed, people, day)


def compute_place(town, seed, name, epoch_s):
    """Return the position and speed of a device, from its own trips one by one."""
    people, driven = draw_trips(town, seed, name, town_day(town, round(epoch_s * US)))
    east_km = town.block_km * people.home.east[0]
    north_km = town.block_km * people.home.north[0]
    speed_mps = 0.0
    for i in sorted(range(len(driven.car)), key=lambda i: driven.start_s[i]):
        after_s = epoch_s - driven.start_s[i]
        if after_s < 0:
            break
        knots = driven.knot_s[i]
        if after_s >= knots[-1]:
            east_km, north_km, speed_mps = driven.east_km[i, -1], driven.north_km[i, -1], 0.0
            continue
        k = max(k for k in range(9) if knots[k] <= after_s)
        east_km, north_km = (np.interp(after_s, knots, axis[i]) for axis in (driven.east_km, driven.north_km))
        leg_km = abs(np.diff(driven.east_km[i])[k]) + abs(np.diff(driven.north_km[i])[k])
        speed_mps = 1000 * leg_km / (knots[k + 1] - knots[k])
    lat = town.lat + north_km / KM_PER_DEGREE
    return lat, town.lon + east_km / (KM_PER_DEGREE * np.cos(np.radians(town.lat))), speed_mps


def test_positions_of_devices_follow_their_trips():
    start_s = day_start_s(AUSTIN, MONDAY)
    course = Commute().course(7, NAMES, start_s * US)
    moving = 0
    for t_s in [*range(0, 2 * 86_400, 2711), 5 * 86_400 + 50_000]:
        result = course.at(t_s * US)
        for i, name in enumerate(NAMES):
            lat, lon, speed_mps = compute_place(AUSTIN, 7, name, start_s + t_s)
            assert result.lat[i] == pytest.approx(lat, abs=1e-9)
            assert result.lon[i] == pytest.approx(lon, abs=1e-9)
            assert result.speed_mps[i] == pytest.approx(speed_mps)
            moving += speed_mps > 0
    assert moving > 50


def test_run_may_start_in_the_middle_of_a_day():
    noon_us = (day_start_s(AUSTIN, MONDAY) + 8 * 3600) * US
    early = Commute().course(7, NAMES, noon_us - 8 * 3600 * US).at(8 * 3600 * US)
    late = Commute().course(7, NAMES, noon_us).at(0)
    assert all((a == b).all() for a, b in zip(early, late, strict=True))


def test_working_days_have_two_peaks():
    course = Commute().course(
        7, [f"d{i}" for i in range(1000)], (day_start_s(AUSTIN, MONDAY) - 4 * 3600) * US
    )
    road = [np.mean(course.at(round(h * 3600 * US)).speed_mps > 0) for h in (3, 8, 11.5, 17, 23.9)]
    assert road[1] > 2 * road[2]
    assert road[3] > 2 * road[2]
    assert road[0] == 0


def test_town_day_starts_at_four():
    assert town_day(AUSTIN, day_start_s(AUSTIN, MONDAY) * US) == MONDAY
    assert town_day(AUSTIN, day_start_s(AUSTIN, MONDAY) * US - 1) == MONDAY - 1
    india = CommuterTown(utc_offset_h=5.5)
    assert town_day(india, day_start_s(india, MONDAY) * US) == MONDAY
