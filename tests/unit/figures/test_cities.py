"""Names of cities for places and maps."""

import numpy as np
import pytest

from mudkit.figures.cities import Cities, cities, cities_within, place_names


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
    monkeypatch.setattr("mudkit.figures.cities.cities", lambda: one)
    assert place_names([0.0, 0.0], [-179.9, 179.7]) == ["22 km east of Edge", "22 km west of Edge"]


def test_direction_is_right_far_from_the_equator(monkeypatch):
    one = Cities(("Edge",), np.array([-60.0]), np.array([20.0]), np.array([20_000]))
    monkeypatch.setattr("mudkit.figures.cities.cities", lambda: one)
    named = place_names([-60.2, -59.8, -60.0, -60.14], [20.0, 20.0, 20.4, 20.28])
    assert named == [
        "22 km south of Edge",
        "22 km north of Edge",
        "22 km east of Edge",
        "22 km south-east of Edge",
    ]
