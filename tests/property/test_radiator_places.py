"""Places around the globe: whoever shifts all longitudes shifts what is made of them, over the date line, too."""

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


def shifted(lon, by):
    return (lon + by + 180) % 360 - 180


@given(places, lons)
def test_a_shift_shifts_the_box(those, by):
    south, west, north, east = box(those)
    width = (east - west) % 360
    moved = [(lat, shifted(lon, by)) for lat, lon in those]
    result = box(moved)
    assert (result[3] - result[1]) % 360 == width, "as wide, wherever it is"
    assert [result[0], result[2]] == [south, north]
    assert in_box([lat for lat, _ in moved], [lon for _, lon in moved], Box(*result)).all()
    around = sorted({lon for _, lon in those})
    gaps = sorted(
        ((after - before) % 360 or 360)
        for before, after in zip(around, [*around[1:], around[0]], strict=True)
    )
    assert width == 360 - gaps[-1], "all but the widest gap"
    if len(gaps) == 1 or gaps[-1] > gaps[-2]:
        assert result == [south, shifted(west, by), north, shifted(east, by)]


@given(places, lons)
def test_joins_give_that_box(those, by):
    moved = [
        Context({str(i)}, {"loc": [lat, shifted(lon, by)], "speed_kmh": i})
        for i, (lat, lon) in enumerate(those)
    ]
    wanted = box([context["loc"] for context in moved])
    assert joins.mean(moved)["box"] == joins.bounding_box(moved)["box"] == wanted
    assert joins.people_count(moved, k=1, loc="loc")["box"] == wanted


@given(places.map(lambda those: those[:1]), lons, st.sampled_from([0.5, 2.0, 50.0]))
def test_a_cell_is_where_its_places_are(those, by, km):
    ((lat, lon),) = those
    place = lat, shifted(lon, by)
    where = cell(place, km=km)
    assert distance_km(place, where.centre) <= 0.5**0.5 * km * 1.01
    assert cell(where.centre, km=km) == where
    assert where.is_beside(where)


@given(st.integers(-80, 80).map(float), lons, st.sampled_from([-1, 0, 1]), st.floats(-0.99, 0.99))
def test_neighbours_are_neighbours_everywhere(lat, lon, north, east):
    here, height = cell((lat, lon), km=5.0), 0.0449  # a little less than it is
    assert here.is_beside(cell((lat + north * height, lon), km=5.0)), "the next row"
    width = height / math.cos(math.radians(lat))
    if abs(lon) < 179:  # cells at the date line are narrower: it cuts them off
        assert here.is_beside(cell((lat, lon + east * width), km=5.0)), "the next column"


@pytest.mark.parametrize("by", [0.0, 90.0, 180.0, 277.7])
def test_means_over_cells_are_the_same_everywhere_but_for_the_grid(by):
    said = [
        Context({str(i)}, {"loc": (0.001, shifted(i / 1000, by)), "speed_kmh": 10.0 * i})
        for i in range(-3, 4)
    ]
    whole = joins.mean_per_cell(said, km=50.0)
    assert sum(each[2] * each[3] for each in whole["cells"]) == pytest.approx(0.0)
    assert sum(each[3] for each in whole["cells"]) == 7
    assert len(whole["cells"]) <= 2
