"""Places around the globe: a shift of all longitudes shifts the results, also over the date line."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.radiator import Context, cell, distance_km, joins
from mudkit.systems.radiator.places import box
from mudkit.units import Box, in_box

# In steps of 1/64 degree: sums are exact.
lons = st.integers(-180 * 64, 180 * 64 - 1).map(lambda step: step / 64)
places = st.lists(st.tuples(st.integers(-80, 80).map(float), lons), min_size=1, max_size=8)


def shift(lon, by):
    return (lon + by + 180) % 360 - 180


@given(places, lons)
def test_box_shifts_with_its_places(points, by):
    south, west, north, east = box(points)
    width = (east - west) % 360
    moved = [(lat, shift(lon, by)) for lat, lon in points]
    result = box(moved)
    assert (result[3] - result[1]) % 360 == width, "as wide, wherever it is"
    assert [result[0], result[2]] == [south, north]
    assert in_box([lat for lat, _ in moved], [lon for _, lon in moved], Box(*result)).all()
    around = sorted({lon for _, lon in points})
    gaps = sorted(
        ((after - before) % 360 or 360)
        for before, after in zip(around, [*around[1:], around[0]], strict=True)
    )
    assert width == 360 - gaps[-1], "all but the widest gap"
    if len(gaps) == 1 or gaps[-1] > gaps[-2]:
        assert result == [south, shift(west, by), north, shift(east, by)]


@given(places, lons)
def test_joins_return_the_same_box(points, by):
    moved = [
        Context({str(i)}, {"loc": [lat, shift(lon, by)], "speed_kmh": i})
        for i, (lat, lon) in enumerate(points)
    ]
    expected = box([context["loc"] for context in moved])
    assert joins.mean(moved)["box"] == joins.bounding_box(moved)["box"] == expected
    assert joins.people_count(moved, k=1, loc="loc")["box"] == expected


@given(places.map(lambda points: points[:1]), lons, st.sampled_from([0.5, 2.0, 50.0]))
def test_cell_is_around_its_places(points, by, km):
    ((lat, lon),) = points
    place = lat, shift(lon, by)
    home = cell(place, km=km)
    assert distance_km(place, home.centre) <= 0.5**0.5 * km * 1.01
    assert cell(home.centre, km=km) == home
    assert home.is_beside(home)


@given(st.integers(-80, 80).map(float), lons, st.sampled_from([-1, 0, 1]), st.floats(-0.99, 0.99))
def test_adjacent_cells_are_neighbours_everywhere(lat, lon, north, east):
    home, height = cell((lat, lon), km=5.0), 0.0449  # slightly less than the real height
    assert home.is_beside(cell((lat + north * height, lon), km=5.0)), "the next row"
    width = height / math.cos(math.radians(lat))
    if abs(lon) < 179:  # cells at the date line are narrower: it cuts them off
        assert home.is_beside(cell((lat, lon + east * width), km=5.0)), "the next column"


@pytest.mark.parametrize("by", [0.0, 90.0, 180.0, 277.7])
def test_means_over_cells_do_not_depend_on_longitude(by):
    contexts = [
        Context({str(i)}, {"loc": (0.001, shift(i / 1000, by)), "speed_kmh": 10.0 * i}) for i in range(-3, 4)
    ]
    means = joins.mean_per_cell(contexts, km=50.0)
    assert sum(row[2] * row[3] for row in means["cells"]) == pytest.approx(0.0)
    assert sum(row[3] for row in means["cells"]) == 7
    assert len(means["cells"]) <= 2
