import numpy as np
import pytest

from mudkit.sources.city import CommuterTown, Corners
from mudkit.sources.roads import ARTERIAL, EXPRESSWAY, STREET, slowdown, speeds_mps, ways

TOWN = CommuterTown()  # arterials every 16 blocks, expressways every 80


def make_corners(*places):
    east, north = np.array(places, dtype=np.int64).T
    return Corners(east, north)


def find_way(start, end, town=TOWN):
    result = ways(town, make_corners(start), make_corners(end))
    stretches = zip(result.length_blocks()[0].tolist(), result.road[0].tolist(), strict=True)
    ends = list(zip(result.east[0].tolist(), result.north[0].tolist(), strict=True))
    return ends, [(length, road) for length, road in stretches if length]


def draw_corners(n=2_000, seed=1):
    rng = np.random.default_rng(seed)
    return Corners(*rng.integers(-240, 241, (2, n))), Corners(*rng.integers(-240, 241, (2, n)))


def test_ways_join_start_and_end_along_the_grid():
    start, end = draw_corners()
    result = ways(TOWN, start, end)
    assert np.array_equal(result.east[:, 0], start.east)
    assert np.array_equal(result.north[:, 0], start.north)
    assert np.array_equal(result.east[:, -1], end.east)
    assert np.array_equal(result.north[:, -1], end.north)
    assert not np.any((np.diff(result.east, axis=1) != 0) & (np.diff(result.north, axis=1) != 0))


def test_road_kinds_match_the_lines_of_the_grid():
    result = ways(TOWN, *draw_corners())
    d_east, d_north = np.diff(result.east, axis=1), np.diff(result.north, axis=1)
    line = np.where(d_east != 0, result.north[:, :-1], result.east[:, :-1])
    driven = (d_east != 0) | (d_north != 0)
    kind = np.where(line % 80 == 0, EXPRESSWAY, np.where(line % 16 == 0, ARTERIAL, STREET))
    assert np.array_equal(result.road[driven], kind[driven])
    assert set(result.road[driven].tolist()) == {STREET, ARTERIAL, EXPRESSWAY}


def test_detours_are_bounded():
    start, end = draw_corners()
    d_east, d_north = np.abs(end.east - start.east), np.abs(end.north - start.north)
    detour = ways(TOWN, start, end).length_blocks().sum(axis=1) - d_east - d_north
    assert detour.min() >= 0
    assert np.all(detour <= TOWN.detour_share * np.maximum(d_east, d_north))
    assert detour.max() > 0
    straight = CommuterTown(detour_share=0.0)
    assert np.array_equal(ways(straight, start, end).length_blocks().sum(axis=1), d_east + d_north)


@pytest.mark.parametrize(
    ("share", "stretches"),
    [(0.5, [(4, ARTERIAL), (16, ARTERIAL), (4, ARTERIAL)]), (0.49, [(16, STREET)])],
)
def test_detour_there_and_back_may_take_the_whole_share_of_the_way(share, stretches):
    """The arterial is 4 blocks away: 8 more for 16 blocks, half of them, see ``CommuterTown.detour_share``."""
    assert find_way((32, 20), (48, 20), CommuterTown(detour_share=share))[1] == stretches


UP_AND_DOWN = [(11, STREET), (10, ARTERIAL), (128, EXPRESSWAY), (13, ARTERIAL), (6, STREET)]


@pytest.mark.parametrize(
    ("start", "end", "corners", "stretches"),
    [
        ((5, 10), (150, -13), [(16, 10), (16, 0), (144, 0), (144, -13)], UP_AND_DOWN),
        ((10, 5), (-13, 150), [(10, 16), (0, 16), (0, 144), (-13, 144)], UP_AND_DOWN),
        ((1, 1), (6, 4), None, [(5, STREET), (3, STREET)]),
        ((3, 4), (3, 4), None, []),
    ],
)
def test_ways_change_to_faster_roads_and_back(start, end, corners, stretches):
    ends, actual = find_way(start, end)
    assert actual == stretches
    assert corners is None or ends == [start, *corners, end]


def test_medium_way_takes_the_nearby_arterial():
    # 40 blocks east; the expressway at 0 is 30 blocks away, the arterial at 32 two.
    assert find_way((1, 30), (41, 30))[1][2] == (16, ARTERIAL)
    assert EXPRESSWAY not in [road for _, road in find_way((1, 30), (41, 30))[1]]


@pytest.mark.parametrize(
    ("hour", "weekend", "expected"),
    [
        (3.0, False, 0.0),
        (8.0, False, 1.0),
        (17.5, False, 1.0),
        (9.0, False, np.exp(-0.5)),
        (27.0, False, 0.0),
        (32.0, False, 1.0),
        (8.0, True, 0.01),
        (14.0, True, 0.4),
    ],
)
def test_slowdown(hour, weekend, expected):
    result = slowdown(TOWN, np.array([hour]), weekend)[0]
    assert result == pytest.approx(expected, abs=0.08 if expected == 0.01 else 1e-5)


def test_speeds():
    free, peak = speeds_mps(TOWN, np.array([0.0, 1.0]))
    assert free.tolist() == [9.0, 13.5, 27.0]
    assert peak.tolist() == pytest.approx([9.0 * 0.85, 13.5 * 0.65, 13.5])
