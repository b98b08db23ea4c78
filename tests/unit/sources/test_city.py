import numpy as np
import pytest

from mudkit.sources.city import CommuterTown, residents, town_centres
from mudkit.units import distance_km


def test_places_lie_in_town_with_the_given_spread():
    town = CommuterTown(edge_km=10.0, home_spread_km=4.0, work_spread_km=2.0, errand_spread_km=8.0)
    people = residents(town, 1, np.arange(5_000))
    for places in (people.home, people.work, people.errands):
        for blocks in places:
            assert np.abs(blocks).max() <= 100
    assert np.abs(people.errands.east).max() == 100  # some are as far as the edge of the town
    # A normal of 4 km cut off at 2.5 standard deviations.
    assert abs(people.home.east.std() * town.block_km - 3.8) < 0.1
    assert abs(people.work.north.std() * town.block_km - 2.0) < 0.1
    assert abs(people.home.east.mean()) * town.block_km < 0.2
    assert people.errands.east.shape == (5_000, 6)
    assert abs(people.commutes.mean() - 0.85) < 0.02
    assert np.corrcoef(people.home.east, people.work.east)[0, 1] < 0.05
    assert np.corrcoef(people.home.east, people.home.north)[0, 1] < 0.05
    assert people.liveliness.min() >= 0.5
    assert people.liveliness.max() < 1.5


def test_commute_length_matches_the_survey():
    people = residents(CommuterTown(), 7, np.arange(5_000))
    ways = np.abs(people.home.east - people.work.east) + np.abs(people.home.north - people.work.north)
    assert 0.85 < ways.mean() * 0.1 / (12.2 * 1.609) < 1.15


def test_towns_are_far_apart_and_do_not_move_when_more_are_added():
    town = CommuterTown()
    lat, lon = town_centres(town, 100)
    fewer = town_centres(town, 7)
    assert np.array_equal(lat[:7], fewer[0])
    assert np.array_equal(lon[:7], fewer[1])
    assert (lat[0], lon[0]) == (town.lat, pytest.approx(town.lon))
    apart = distance_km(lat[:, None], lon[:, None], lat, lon) + 1e6 * np.eye(100)
    assert apart.min() > 0.99 * town.town_spacing_km


def test_cars_are_assigned_to_towns_in_turn():
    town = CommuterTown()
    lat, lon = town_centres(town, 3)
    people = residents(town, 7, np.arange(8), towns=3)
    assert people.lat.tolist() == [lat[i % 3] for i in range(8)]
    assert people.lon.tolist() == [lon[i % 3] for i in range(8)]


def test_longitudes_of_towns_wrap_at_the_date_line():
    lat, lon = town_centres(CommuterTown(lon=179.9), 9)
    assert lon.min() >= -180
    assert lon.max() < 180
    assert distance_km(lat[0], lon[0], lat[1], lon[1]) == pytest.approx(150, rel=1e-3)
