import datetime as dt

import numpy as np
import pytest

from mudkit.sources.city import CommuterTown, residents
from mudkit.sources.roads import ways
from mudkit.sources.trips import Trips, _Draws, _longest_s, day_start_s, is_weekend, trips
from mudkit.units import KM_PER_DEGREE

TOWN = CommuterTown()
MONDAY = (dt.date(2010, 3, 1) - dt.date(1970, 1, 1)).days
SATURDAY = MONDAY + 5


def drive_day(day, cars=300, town=TOWN, seed=7):
    return trips(town, seed, residents(town, seed, np.arange(cars)), day)


def compute_hours(driven, day, town=TOWN):
    return (driven.start_s - day_start_s(town, day)) / 3600 + 4


@pytest.mark.parametrize(
    ("town", "start"), [(TOWN, "2010-03-01T10:00"), (CommuterTown(utc_offset_h=5.5), "2010-02-28T22:30")]
)
def test_day_starts_at_four_local_time(town, start):
    assert dt.datetime.fromtimestamp(day_start_s(town, MONDAY), dt.UTC).isoformat()[:16] == start
    assert [is_weekend(MONDAY + i) for i in range(7)] == [False] * 5 + [True] * 2


def test_days_begin_and_end_at_home():
    people = residents(TOWN, 7, np.arange(300))
    for day in (MONDAY, SATURDAY):
        driven = trips(TOWN, 7, people, day)
        for car in np.unique(driven.car):
            mine = np.flatnonzero(driven.car == car)
            mine = mine[np.argsort(driven.start_s[mine])]
            home = people.home.east[car] * TOWN.block_km, people.home.north[car] * TOWN.block_km
            assert (driven.east_km[mine[0], 0], driven.north_km[mine[0], 0]) == home
            assert (driven.east_km[mine[-1], -1], driven.north_km[mine[-1], -1]) == home


def test_stops_of_a_tour_are_two_different_places():
    """Find trips of a Saturday from one errand to another: nobody works, and no trip stays where it begins."""
    people = residents(TOWN, 7, np.arange(300))
    driven = trips(TOWN, 7, people, SATURDAY)
    home_km = np.stack([people.home.east, people.home.north], axis=1)[driven.car] * TOWN.block_km
    begin_km, end_km = (np.stack([driven.east_km[:, i], driven.north_km[:, i]], axis=1) for i in (0, -1))
    is_away = ((begin_km != home_km) & (end_km != home_km)).any(axis=1)
    assert is_away.mean() > 0.05
    assert (begin_km != end_km).any(axis=1).all()


def test_knot_times_are_monotonic_and_speeds_are_limited():
    driven = drive_day(MONDAY)
    assert np.all(np.diff(driven.knot_s, axis=1) >= 0)
    assert np.all(driven.knot_s[:, 0] == 0)
    assert np.all(driven.duration_s > 0)
    moved_km = np.abs(np.diff(driven.east_km, axis=1)) + np.abs(np.diff(driven.north_km, axis=1))
    duration_s = np.diff(driven.knot_s, axis=1)
    speed_mps = 1000 * moved_km[moved_km > 0] / duration_s[moved_km > 0]
    assert speed_mps.max() <= TOWN.expressway_mps * 1.3
    assert speed_mps.min() >= TOWN.street_mps * 0.85 * 0.7
    waits_s = duration_s[:, 1::2]
    assert np.all(moved_km[:, 1::2] == 0)
    assert waits_s.max() <= 2 * TOWN.turn_wait_s
    assert abs(waits_s[waits_s > 0].mean() - TOWN.turn_wait_s) < 1.0


def test_no_way_takes_longer_than_the_bound_by_which_cars_leave():
    """Drive home from work at the worst hour: the bound holds whatever is drawn, so that all are back in time."""
    people = residents(TOWN, 7, np.arange(300))
    way, draws = ways(TOWN, people.work, people.home), _Draws(TOWN, 7, people, MONDAY)
    takes_s = np.stack([draws.knots(way, np.full(300, 17.5 * 3600), step)[:, -1] for step in range(50)])
    assert (takes_s <= _longest_s(TOWN, way)).all()


def test_at_interpolates_along_the_way():
    driven = Trips(
        car=np.array([5]),
        start_s=np.array([1000]),
        lat=np.array([0.0]),
        lon=np.array([179.99]),
        knot_s=np.array([[0, 0, 0, 100, 120, 220, 220, 220, 220, 220]], dtype=float),
        east_km=np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1, 1]], dtype=float),
        north_km=np.array([[0, 0, 0, 0, 0, -2, -2, -2, -2, -2]], dtype=float),
    )
    after_s = np.array([-5.0, 0.0, 50.0, 110.0, 170.0, 220.0, 999.0])
    trip = np.zeros(len(after_s), dtype=np.int64)
    east_km, north_km, speed_mps = driven.at(trip, after_s)
    assert east_km.tolist() == [0, 0, 0.5, 1, 1, 1, 1]
    assert north_km.tolist() == [0, 0, 0, 0, -1, -2, -2]
    assert speed_mps.tolist() == [10, 10, 10, 0, 20, 0, 0]
    lat, lon = driven.degrees(trip, 2.0 + east_km, north_km)
    assert lat == pytest.approx(north_km / KM_PER_DEGREE)
    assert lon == pytest.approx(179.99 + (2.0 + east_km) / KM_PER_DEGREE - 360)


def test_working_days_have_two_peaks_and_weekends_one():
    working = np.concatenate([compute_hours(drive_day(day), day) for day in range(MONDAY, MONDAY + 5)])
    free = np.concatenate([compute_hours(drive_day(day), day) for day in (SATURDAY, SATURDAY + 1)])

    def compute_rate(hours, first, last):
        return np.mean((hours >= first) & (hours < last)) / (last - first)

    assert compute_rate(working, 6.5, 8.5) > 2 * compute_rate(working, 10, 14)
    assert compute_rate(working, 16, 18.5) > 2 * compute_rate(working, 10, 14)
    assert compute_rate(free, 10, 15) > 5 * compute_rate(free, 6.5, 8.5)
    assert compute_rate(free, 10, 15) > 1.5 * compute_rate(free, 17, 22)


def test_trip_count_and_duration_match_the_survey():
    days = [drive_day(day) for day in range(MONDAY, MONDAY + 7)]
    car_days = 7 * 300
    assert 2.6 < sum(len(day.car) for day in days) / car_days < 3.4
    minutes = sum(day.duration_s.sum() for day in days) / 60 / car_days
    assert 45 < minutes < 60


def test_peak_trips_take_a_third_to_a_half_more_time():
    driven = drive_day(MONDAY, cars=2000)
    hour = compute_hours(driven, MONDAY)
    km = (np.abs(np.diff(driven.east_km, axis=1)) + np.abs(np.diff(driven.north_km, axis=1))).sum(axis=1)
    at_peak = np.abs(hour - 17.5) < 0.5
    at_night = hour > 21
    minutes_per_km = [driven.duration_s[mask].sum() / km[mask].sum() for mask in (at_peak, at_night)]
    assert 1.2 < minutes_per_km[0] / minutes_per_km[1] < 1.6


def test_cars_without_work_or_outings_stay_at_home():
    still = CommuterTown(commuter_share=0.0, outing_shares=(0.0, 0.0, 0.0))
    driven = drive_day(MONDAY, town=still)
    assert len(driven.car) == 0
    assert driven.knot_s.shape == (0, 10)


def test_commuters_go_to_work_and_back():
    town = CommuterTown(
        commuter_share=1.0, attendance_share=1.0, workday_outing_share=0.0, errand_after_work_share=0.0
    )
    people = residents(town, 7, np.arange(200))
    driven = trips(town, 7, people, MONDAY)
    assert np.array_equal(np.bincount(driven.car, minlength=200), np.full(200, 2))
    outward_s, return_s = driven.start_s[:200], driven.start_s[200:]
    assert np.array_equal(driven.car[:200], driven.car[200:])
    assert np.allclose(driven.east_km[:200, -1], people.work.east * town.block_km)
    stay_h = (return_s - outward_s - driven.duration_s[:200]) / 3600
    assert abs(stay_h.mean() - town.work_h) < 0.2
    assert stay_h.std() < 1.0


def test_trip_may_cross_midnight():
    late = CommuterTown(outing_hours=(10.5, 14.5, 22.0), outing_shares=(0.0, 0.0, 1.0), commuter_share=0.0)
    driven = drive_day(MONDAY, town=late)
    arrive_h = compute_hours(driven, MONDAY, late) + driven.duration_s / 3600
    crossing = (compute_hours(driven, MONDAY, late) < 24) & (arrive_h > 24)
    assert crossing.any()
    next_day = drive_day(MONDAY + 1, town=late)
    assert not set(zip(driven.car.tolist(), driven.start_s.tolist(), strict=True)) & set(
        zip(next_day.car.tolist(), next_day.start_s.tolist(), strict=True)
    )


def test_trips_of_a_car_follow_each_other_and_end_with_the_day_even_when_it_leaves_late():
    late = CommuterTown(
        outing_hours=(10.5, 20.0, 22.5), outing_shares=(1.0, 1.0, 1.0), commuter_share=0.0,
        edge_km=45.0, street_mps=3.0, arterial_mps=3.0, expressway_mps=3.0,
    )  # fmt: skip
    driven = drive_day(MONDAY, town=late)
    order = np.lexsort((driven.start_s, driven.car))
    car, start_s, end_s = (
        driven.car[order],
        driven.start_s[order],
        (driven.start_s + driven.duration_s)[order],
    )
    same = car[1:] == car[:-1]
    assert same.sum() > 100
    assert (start_s[1:] >= end_s[:-1])[same].all()
    assert end_s.max() <= day_start_s(late, MONDAY + 1)
