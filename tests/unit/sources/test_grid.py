import numpy as np
import pytest
from scipy.stats import kstest

from mudkit.sources.grid import ManhattanGrid
from mudkit.units import KM_PER_DEGREE

US = 1_000_000
FLEET = [f"d{i}" for i in range(3000)]


def convert_to_blocks(model, places):
    """Return blocks from the south-west corner, shape (2, devices)."""
    east = (places.lon - model.lon) * KM_PER_DEGREE * np.cos(np.radians(model.lat))
    north = (places.lat - model.lat) * KM_PER_DEGREE
    return np.stack([east, north]) * 1000 / model.block_m + model.blocks / 2


def collect_turns(model, steps=60):
    """Return the crossings, streets and turns of devices that need 10 s for each block."""
    course = model.course(7, FLEET, 0)
    seen = np.stack([convert_to_blocks(model, course.at(k * 10 * US)) for k in range(steps)], axis=1)
    before, after = seen[:, :-1], seen[:, 1:]
    # The offset of the first sample from a crossing gives the street; samples at a crossing are dropped.
    off = np.abs(before - np.rint(before))
    along = off.argmax(axis=0)
    clear = off.max(axis=0) > 0.01
    step = after - before
    first = np.take_along_axis(step, along[None], 0)[0]
    other = np.take_along_axis(step, 1 - along[None], 0)[0]
    place = np.take_along_axis(before, along[None], 0)[0]
    street = np.take_along_axis(before, 1 - along[None], 0)[0]
    crossing = np.where(first > 0, np.ceil(place), np.floor(place))
    turned = np.abs(other) > 1e-4
    # Left: from east to north, from north to west.
    left = np.where(along == 0, np.sign(first) == np.sign(other), np.sign(first) != np.sign(other))
    return crossing[clear], np.rint(street[clear]), turned[clear], (turned & left)[clear]


def test_turn_probabilities_match_the_paper():
    model = ManhattanGrid(edge_km=2, block_m=100, speed_low_mps=10, speed_high_mps=10)
    crossing, street, turned, left = collect_turns(model)
    inside = (crossing > 0) & (crossing < 20) & (street > 0) & (street < 20)
    assert inside.sum() > 100_000
    assert turned[inside].mean() == pytest.approx(0.5, abs=0.005)
    assert left[inside].mean() == pytest.approx(0.25, abs=0.005)
    at_edge = (crossing == 0) | (crossing == 20)
    assert turned[at_edge].all()
    middle = at_edge & (street > 0) & (street < 20)
    assert left[middle].mean() == pytest.approx(0.5, abs=0.02)
    along_edge = ~at_edge & ((street == 0) | (street == 20))
    assert turned[along_edge].mean() == pytest.approx(0.5, abs=0.02)


def test_run_is_stationary_from_its_start():
    model = ManhattanGrid(edge_km=0.8, block_m=200, speed_low_mps=2, speed_high_mps=20)
    course = model.course(7, FLEET, 0)
    for t_s in (0, 3600, 36_000):
        places = course.at(t_s * US)
        assert kstest(np.log10(places.speed_mps / 2), "uniform").pvalue > 0.001
        blocks = convert_to_blocks(model, places)
        on_street = np.abs(blocks - np.rint(blocks)) < 1e-6
        # 5 equal streets in each direction: 4 of 10 lie at the edge.
        edge = (on_street & ((np.rint(blocks) == 0) | (np.rint(blocks) == 4))).any(axis=0)
        assert edge.mean() == pytest.approx(0.4, abs=0.035)
        assert on_street[0].mean() == pytest.approx(0.5, abs=0.035)


def test_devices_drive_around_a_single_block():
    model = ManhattanGrid(edge_km=0.1, block_m=100, speed_low_mps=10, speed_high_mps=10)
    course = model.course(7, FLEET[:20], 0)
    first, round_later = convert_to_blocks(model, course.at(0)), convert_to_blocks(model, course.at(40 * US))
    assert np.abs(first - round_later).max() < 1e-4
