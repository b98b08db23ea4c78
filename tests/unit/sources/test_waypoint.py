import math

import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest

from mudkit.sources.streams import Stream, device_number
from mudkit.sources.waypoint import RandomWaypoint
from mudkit.units import KM_PER_DEGREE

US = 1_000_000
FLEET = [f"d{i}" for i in range(4000)]
MODEL = RandomWaypoint(edge_km=4, speed_low_mps=2, speed_high_mps=20, pause_s=120)


def to_km(model, places):
    east = (places.lon - model.lon) * KM_PER_DEGREE * np.cos(np.radians(model.lat))
    return east, (places.lat - model.lat) * KM_PER_DEGREE


def test_run_is_stationary_from_its_start():
    course = MODEL.course(7, FLEET, 0)
    first, later = course.at(0), course.at(6 * 3600 * US)
    assert np.mean(first.speed_mps == 0) == pytest.approx(MODEL.resting_share(), abs=0.025)
    assert np.mean(later.speed_mps == 0) == pytest.approx(MODEL.resting_share(), abs=0.025)
    moving = [places.speed_mps[places.speed_mps > 0] for places in (first, later)]
    for speed in moving:  # the law of 1 / speed
        assert kstest(np.log(speed / 2) / math.log(10), "uniform").pvalue > 0.001
    for one, other in zip(to_km(MODEL, first), to_km(MODEL, later), strict=True):
        assert ks_2samp(one, other).pvalue > 0.001
        # Denser in the middle: of a uniform square half the devices are in the middle half.
        assert np.mean(np.abs(one) < 1) > 0.55


def test_first_legs_are_length_biased():
    model = RandomWaypoint(edge_km=2, speed_low_mps=10, speed_high_mps=10, pause_s=0)
    course = model.course(7, [f"d{i}" for i in range(20_000)], 0)
    first, later = (np.hypot(*to_km(model, course.at(t_s * US))) for t_s in (0, 1200))
    assert ks_2samp(first, later).pvalue > 0.001


def test_initial_pauses_are_stationary():
    course = RandomWaypoint(pause_s=86_400).course(7, FLEET, 0)
    first, later = course.at(0), course.at(43_200 * US)
    assert np.mean(first.speed_mps == 0) > 0.95
    # The remaining pause is uniform: after half a pause half of the devices have left.
    assert np.mean(first.lat == later.lat) == pytest.approx(0.5, abs=0.03)


def test_legs_go_straight_to_the_drawn_place():
    """Follow a device after its first leg, from the draws of this device only."""
    course = MODEL.course(3, FLEET[:5], 0)
    number = device_number("d2")
    place, speed = Stream(3, "waypoint place"), Stream(3, "waypoint speed")

    def draw_leg(leg):
        east, north = (float(u) for u in place.pair(number, leg))
        return (east - 0.5) * 4, (north - 0.5) * 4, float(speed.uniform(number, leg, 2.0, 20.0))

    # The first leg ends where the second begins: wait for the pause, second by second.
    t_s, seen = 0, []
    while len(seen) < 2 or seen[-1] != seen[-2] or math.dist(seen[-1], draw_leg(1)[:2]) == 0:
        places = course.at(t_s * US)
        seen.append(tuple(float(axis[2]) for axis in to_km(MODEL, places)))
        t_s += 1
    while places.speed_mps[2] == 0:
        t_s += 1
        places = course.at(t_s * US)
    position, start_s = seen[-1], t_s
    for leg in (1, 2, 3):
        *target, v_mps = draw_leg(leg)
        duration_s = 1000 * math.dist(position, target) / v_mps
        for part in (0.3, 0.9):
            places = course.at(int((start_s + part * duration_s) * US))
            result = [float(axis[2]) for axis in to_km(MODEL, places)]
            expected = [a + part * (b - a) for a, b in zip(position, target, strict=True)]
            # The start is known to a second.
            assert math.dist(result, expected) < 1.1 * v_mps / 1000
            assert places.speed_mps[2] == pytest.approx(v_mps)
        start_s += duration_s + 120
        position = target
        places = course.at(int((start_s - 60) * US))
        assert math.dist([float(axis[2]) for axis in to_km(MODEL, places)], position) < 1e-9
        assert places.speed_mps[2] == 0


def test_constant_speed_without_pause():
    model = RandomWaypoint(speed_low_mps=3, speed_high_mps=3, pause_s=0)
    assert model.resting_share() == 0
    assert (model.course(1, FLEET[:50], 0).at(7200 * US).speed_mps == 3).all()


def test_mean_leg_matches_the_unit_square():
    closed = (2 + math.sqrt(2) + 5 * math.asinh(1)) / 15
    model = RandomWaypoint(edge_km=1, speed_low_mps=10, speed_high_mps=10, pause_s=1)
    assert model.resting_share() == pytest.approx(1 / (1 + 100 * closed))
