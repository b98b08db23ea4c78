import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit import units
from mudkit.units import KM_PER_DEGREE, Box, box_bounds, distance_km, in_box, middle


@pytest.mark.parametrize(
    ("a", "b", "km"),
    [
        ((0, 0), (0, 0), 0.0),
        ((0, 0), (0, 1), 111.195),
        ((0, 0), (1, 0), 111.195),
        ((60, 0), (60, 1), 55.597),
        ((0, 179.5), (0, -179.5), 111.195),
        ((90, 0), (-90, 0), 20015.1),
        # San Francisco to New York, from a published great-circle table
        ((37.7749, -122.4194), (40.7128, -74.0060), 4129.1),
    ],
)
def test_distance(a, b, km):
    assert distance_km(*a, *b) == pytest.approx(km, rel=1e-4)


def test_distance_broadcasts():
    assert distance_km(np.zeros((3, 1)), 0, 0, np.arange(4)).shape == (3, 4)


def test_box_has_the_given_side():
    box = box_bounds(37.77, -122.4, 20)
    assert distance_km(box.south, -122.4, box.north, -122.4) == pytest.approx(20)
    # along the parallel, which is a little longer than the great circle
    assert (box.east - box.west) * KM_PER_DEGREE * np.cos(np.radians(37.77)) == pytest.approx(20)


def test_edges_are_inside_the_box():
    box = box_bounds(10.0, 20.0, 2.0)
    for lat, lon in ((box.south, 20.0), (box.north, 20.0), (10.0, box.west), (10.0, box.east)):
        assert in_box(lat, lon, box)
    assert not in_box(np.nextafter(box.north, 90), 20.0, box)
    assert not in_box(10.0, np.nextafter(box.west, -180), box)


HALF = 10 / KM_PER_DEGREE


@pytest.mark.parametrize(
    ("box", "inside", "outside"),
    [
        *(
            (box_bounds(0.0, centre, 20), [180.0, -180.0, 179.95, -179.95], [179.0, -179.0, 0.0])
            for centre in (179.99, -179.99, 180.0, -180.0)
        ),
        (Box(-HALF, 180 - HALF, HALF, -180.0), [180.0, -180.0, 179.99], [-179.99]),
        (Box(-1.0, -180.0, 1.0, -179.0), [180.0, -180.0, -179.5], [179.99]),
    ],
)
def test_boxes_at_the_date_line(box, inside, outside):
    box = Box(*map(np.asarray, box))
    assert in_box(0.0, inside, box).all()
    assert not in_box(0.0, outside, box).any()


@pytest.mark.parametrize(
    ("lons", "lon"),
    [
        ([9.0, 10.0, 12.0], 10.0),
        ([-9.5], -9.5),
        ([179.5, -179.5, -179.0], -179.5),
        ([179.0, 179.5, -179.5], 179.5),
        ([179.5, -179.5], -180.0),
    ],
)
def test_middle_lies_among_the_places(lons, lon):
    assert middle([1.0] * len(lons), lons) == (1.0, lon)


@pytest.mark.parametrize("lat", [89.0, -89.0])
def test_box_that_just_reaches_a_pole_spans_all_longitudes(lat):
    box = box_bounds(lat, 17.0, 2 * KM_PER_DEGREE)
    assert {abs(float(box.south)), abs(float(box.north))} == {88.0, 90.0}
    assert (float(box.west), float(box.east)) == (-180.0, 180.0)


@pytest.mark.parametrize("lat", [*range(-85, 90, 17)])
def test_box_that_goes_around_its_parallel_spans_all_longitudes(lat):
    around_km = 360 * KM_PER_DEGREE * np.cos(np.radians(lat))
    assert tuple(box_bounds(lat, 17.0, around_km))[1::2] == (-180.0, 180.0)


@pytest.mark.parametrize("lat", [89.99, -89.99, 90.0, -90.0])
def test_box_at_a_pole_spans_all_longitudes(lat):
    box = box_bounds(lat, 17.0, 20)
    assert in_box(lat, [-180.0, -90.0, 0.0, 90.0, 180.0], box).all()
    assert -90 <= box.south <= box.north <= 90


@examples(100)
@given(
    st.floats(-70, 70), st.floats(-179, 179), st.floats(0.1, 30), st.floats(0.1, 30),
    st.floats(-0.3, 0.3), st.floats(-0.3, 0.3),
)  # fmt: skip
def test_covered_share_of_a_square_is_that_of_points_in_both(lat, lon, box_km, other_km, north, east):
    """By a grid of points in the first square, of which the second has some."""
    here, other = units.box_bounds(lat, lon, box_km), (lat + north * 0.1, lon + east * 0.1)
    steps = (np.arange(40) + 0.5) / 40
    lats = here.south + steps * (here.north - here.south)
    width = (here.east - here.west) % 360.0
    lons = (here.west + steps * width + 180.0) % 360.0 - 180.0
    is_in = units.in_box(lats[:, None], lons[None, :], units.box_bounds(*other, other_km))
    share = units.covered_share(lat, lon, box_km, *other, other_km)
    assert share == pytest.approx(is_in.mean(), abs=0.06)


@pytest.mark.parametrize("cut", [-180.0, 0.0, 180.0])
def test_longitude_just_before_the_end_of_a_turn_stays_in_it(cut):
    """One unit in the last place below: the quotient of its distance from the cut and a turn is rounded to 1."""
    for lon in (np.nextafter(cut + 360.0, 0.0), np.nextafter(cut, -1e9), cut, cut + 360.0):
        assert cut <= units.unwrap(lon, cut) <= cut + 360.0


def test_covered_share_over_the_date_line():
    assert units.covered_share(0.0, 179.999, 10.0, 0.0, -179.999, 10.0) == pytest.approx(1.0, abs=0.03)
    assert units.covered_share(0.0, 0.0, 10.0, 0.0, 180.0, 10.0) == 0.0
