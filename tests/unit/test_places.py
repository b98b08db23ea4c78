"""Names of cities for places and maps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import ParameterError
from mudkit.places import (
    Cities,
    cities,
    cities_within,
    parse_centres,
    parse_one_centre,
    parse_place,
    place_names,
    travel_us,
)
from mudkit.units import apart_km, distance_km

degrees = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


@given(origin=degrees, destination=degrees)
def test_way_is_the_great_circle_by_the_speed_in_fibre_and_a_detour(origin, destination):
    """5 µs a kilometre, by 2.1 (Bozkurt et al., 2018); as far there as back, nothing to where one is."""
    distance = float(distance_km(*origin, *destination))
    assert apart_km(origin, destination) == pytest.approx(distance, abs=1e-6)
    assert travel_us(origin, destination) == pytest.approx(distance * 5.0 * 2.1, abs=1)
    assert abs(travel_us(origin, destination) - travel_us(destination, origin)) <= 1
    assert travel_us(origin, origin) == 0


@pytest.mark.parametrize(
    ("name", "lat", "lon"),
    [
        ("frankfurt", 50.1, 8.7),  # am Main; the one at the Oder has fewer people
        ("Zürich", 47.4, 8.5),
        ("zurich", 47.4, 8.5),
        ("MÜNCHEN", 48.1, 11.6),  # Munich in the table
        ("San Jose", 37.3, -121.9),
    ],
)
def test_city_is_found_by_its_names(name, lat, lon):
    assert parse_place("at", name) == pytest.approx((lat, lon), abs=0.1)


@pytest.mark.parametrize("wrong", ["Frankfrut", "", (91, 0), (0, 181), (1,), (1, 2, 3), None, {"lat": 1}])
def test_value_that_is_no_place_is_refused(wrong):
    with pytest.raises(ParameterError, match="centre"):
        parse_place("centre", wrong)


def test_centres_are_cities_or_places_by_name():
    assert parse_centres(["Frankfurt", "tokyo"]).keys() == {"frankfurt", "tokyo"}
    assert parse_centres({"here": (1, 2), "there": "tokyo"})["here"] == (1.0, 2.0)
    assert parse_one_centre(None) is None
    assert parse_one_centre(["tokyo"]) == parse_place("at", "tokyo")


@pytest.mark.parametrize("wrong", [[], {}, "tokyo", ["tokyo", "Tokyo"], [3], {"": (1, 2)}, {1: (1, 2)}, 5])
def test_values_that_are_no_centres_are_refused(wrong):
    with pytest.raises(ParameterError, match="centres"):
        parse_centres(wrong)


def test_servers_of_one_centre_refuse_two():
    with pytest.raises(ParameterError, match="one data centre"):
        parse_one_centre(["tokyo", "zurich"])


def test_cities_are_ordered_by_people():
    known = cities()
    assert len(known.names) == len(known.lat) == len(known.lon) > 20_000
    assert (np.diff(known.people) <= 0).all()


def test_largest_cities_of_a_rectangle_come_first():
    named = cities_within(47.0, 10.0, 49.5, 13.0, 3)
    assert named[0][0] == "Munich"
    assert len(named) == 3
    assert all(47.0 <= lat <= 49.5 and 10.0 <= lon <= 13.0 for _, lat, lon in named)
    assert cities_within(0.0, -30.0, 1.0, -29.0, 5) == []


def test_rectangle_crosses_the_date_line():
    named = {name: lon for name, _, lon in cities_within(-19.0, 177.0, -13.0, 190.0, 20)}
    assert named["Suva"] == pytest.approx(178.44, abs=0.1)
    assert named["Apia"] == pytest.approx(188.23, abs=0.1)


@pytest.mark.parametrize(
    ("lat", "lon", "name"),
    [
        (48.137, 11.575, "Munich"),
        (48.30, 11.575, "18 km north of Munich"),
        (0.0, -30.0, ""),
        (90.0, 0.0, ""),
    ],
)
def test_place_is_named_by_the_nearest_city(lat, lon, name):
    (named,) = place_names(lat, lon)
    assert named == name


def test_direction_is_right_across_the_date_line(monkeypatch):
    one = Cities(("Edge",), np.array([0.0]), np.array([179.9]), np.array([20_000]))
    monkeypatch.setattr("mudkit.places.cities", lambda: one)
    assert place_names([0.0, 0.0], [-179.9, 179.7]) == ["22 km east of Edge", "22 km west of Edge"]


def test_direction_is_right_far_from_the_equator(monkeypatch):
    one = Cities(("Edge",), np.array([-60.0]), np.array([20.0]), np.array([20_000]))
    monkeypatch.setattr("mudkit.places.cities", lambda: one)
    named = place_names([-60.2, -59.8, -60.0, -60.14], [20.0, 20.0, 20.4, 20.28])
    assert named == [
        "22 km south of Edge",
        "22 km north of Edge",
        "22 km east of Edge",
        "22 km south-east of Edge",
    ]
