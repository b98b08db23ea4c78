import datetime as dt

import numpy as np
import pytest

from mudkit.sources.city import CommuterTown, residents
from mudkit.sources.phones import PhoneUse, check_plausible, fixes, queries
from mudkit.sources.trips import trips
from mudkit.units import distance_km

TOWN, PHONE = CommuterTown(), PhoneUse()
MONDAY = (dt.date(2010, 3, 1) - dt.date(1970, 1, 1)).days
CARS = 300


@pytest.fixture(scope="module")
def driven():
    return trips(TOWN, 7, residents(TOWN, 7, np.arange(CARS)), MONDAY)


def find_trips(seen, driven, slack_s):
    """Return the trip of each sighting, by car and time."""
    result = np.full(len(seen.car), -1)
    for i in range(len(driven.car)):
        first, last = driven.start_s[i] - slack_s, driven.start_s[i] + max(driven.duration_s[i], slack_s)
        mine = (seen.car == driven.car[i]) & (seen.t_s >= first) & (seen.t_s <= last)
        assert np.all(result[mine] == -1)
        result[mine] = i
    assert np.all(result >= 0)
    return result


def test_fixes_are_reported_at_the_interval_from_departure_to_arrival(driven):
    seen = fixes(driven, PHONE, 7)
    trip = find_trips(seen, driven, 0)
    for i in range(len(driven.car)):
        t_s = seen.t_s[trip == i]
        assert np.array_equal(t_s, np.arange(driven.start_s[i], t_s[-1] + 1, 15))
        assert 0 <= driven.start_s[i] + driven.duration_s[i] - t_s[-1] < 15


def test_fixes_deviate_by_the_receiver_error(driven):
    seen = fixes(driven, PHONE, 7)
    exact = fixes(driven, PhoneUse(gps_error_m=0.0), 7)
    off_m = 1000 * distance_km(seen.lat, seen.lon, exact.lat, exact.lon)
    assert off_m.max() < 3 * 7.0 + 0.2
    assert abs(np.median(off_m) - 8.2) < 0.2
    bearing_east = np.sign(seen.lon - exact.lon)
    assert abs(bearing_east.mean()) < 0.02
    assert np.array_equal(seen.lat, seen.lat.round(6))


def test_fix_speeds_match_the_road(driven):
    steady = fixes(driven, PhoneUse(speed_jitter=0.0), 7)
    assert steady.speed_mps.max() <= 35.1
    assert 0.01 < np.mean(steady.speed_mps == 0) < 0.15
    seen = fixes(driven, PHONE, 7)
    moving = steady.speed_mps > 5
    ratio = seen.speed_mps[moving] / steady.speed_mps[moving]
    assert abs(ratio.mean() - 1) < 0.01
    assert ratio.max() < 1.32
    # The distance between fixes matches the speed.
    i = np.flatnonzero(
        (np.diff(steady.car) == 0) & (np.diff(steady.t_s) == 15) & (np.diff(steady.speed_mps) == 0)
    )
    exact = fixes(driven, PhoneUse(gps_error_m=0.0, speed_jitter=0.0), 7)
    moved_m = 1000 * distance_km(exact.lat[i], exact.lon[i], exact.lat[i + 1], exact.lon[i + 1])
    assert np.median(np.abs(moved_m - 15 * steady.speed_mps[i])) < 2.0


def test_queries_occur_around_trip_starts_and_during_trips(driven):
    seen = queries(driven, PHONE, 7)
    trip = find_trips(seen, driven, 150)
    after_s = seen.t_s - driven.start_s[trip]
    first = np.zeros(len(trip), dtype=bool)
    for i in np.unique(trip):
        mine = np.flatnonzero(trip == i)
        mine = mine[np.argsort(seen.t_s[mine])]
        first[mine[0]] = True
        assert np.all(np.diff(seen.t_s[mine]) >= 10)
    assert np.abs(after_s[first]).max() <= 150
    assert 0.4 < np.mean(after_s[first] < 0) < 0.6
    assert 0.6 < first.mean() < 0.9
    assert np.all(after_s[~first] < driven.duration_s[trip[~first]])
    assert abs(first.sum() / len(driven.car) - 0.65) < 0.05


def test_query_positions_match_the_car(driven):
    seen = queries(driven, PhoneUse(gps_error_m=0.0), 7)
    trip = find_trips(seen, driven, 150)
    east_km, north_km, _ = driven.at(trip, (seen.t_s - driven.start_s[trip]).astype(float))
    lat, lon = driven.degrees(trip, east_km, north_km)
    assert distance_km(lat, lon, seen.lat, seen.lon).max() < 0.001


def test_users_differ_in_their_query_share():
    always = PhoneUse(query_share_low=1.0, query_share_high=1.0, look_again_share=0.0)
    days = [trips(TOWN, 7, residents(TOWN, 7, np.arange(CARS)), MONDAY + i) for i in range(10)]
    trip_counts = np.bincount(np.concatenate([day.car for day in days]), minlength=CARS)
    query_counts = np.bincount(np.concatenate([queries(day, always, 7).car for day in days]), minlength=CARS)
    assert np.array_equal(trip_counts, query_counts)
    query_counts = np.bincount(
        np.concatenate([queries(day, PhoneUse(look_again_share=0.0), 7).car for day in days]), minlength=CARS
    )
    share = (query_counts / trip_counts)[trip_counts > 20]
    assert share.std() > 0.15


def test_zero_query_share_yields_no_queries(driven):
    silent = PhoneUse(query_share_low=0.0, query_share_high=0.0)
    assert len(queries(driven, silent, 7).car) == 0


def test_plausibility_check_accepts_the_limits():
    check_plausible(TOWN, PHONE)
    check_plausible(TOWN, PhoneUse(interval_s=2))
    check_plausible(TOWN, PhoneUse(interval_s=1, gps_error_m=4.0))
