"""Joins of contexts, and grid cells."""

from __future__ import annotations

from functools import partial

import pytest

from mudkit.systems.radiator import Context, cell, distance_km, joins
from mudkit.units import distance_km as spherical_km

ANN = Context({"ann"}, {"loc": (38.70, -9.10), "speed_kmh": 10, "doing": "dancing"}, (1, 5))
BOB = Context({"bob"}, {"loc": (38.72, -9.14), "speed_kmh": 40}, (3, 9))
CY = Context({"cy", "ann"}, {"loc": (38.7001, -9.1001), "speed_kmh": 100}, (4, 4))


def test_concatenation_joins_people_times_and_attributes():
    joined = joins.concatenation([ANN, BOB, CY])
    assert joined == Context(
        {"ann", "bob", "cy"},
        {"loc": [ANN["loc"], BOB["loc"], CY["loc"]], "speed_kmh": [10, 40, 100], "doing": ["dancing"]},
        (1, 9),
    )
    assert joins.concatenation([BOB])["speed_kmh"] == [40], "lists, also of one"


def test_bounding_box_encloses_all_places():
    joined = joins.bounding_box([ANN, BOB, CY])
    assert joined["box"] == [38.70, -9.14, 38.72, -9.10]
    assert joined["messages"] == 3
    assert "loc" not in joined.attributes
    assert joined["speed_kmh"] == [10, 40, 100]
    across_date_line = joins.bounding_box(
        [Context(attributes={"loc": (0, 179.5)}), Context(attributes={"loc": (1, -179.0)})]
    )
    assert across_date_line["box"] == [0, 179.5, 1, -179.0], "over the date line"


def test_mean_averages_numbers():
    joined = joins.mean([ANN, BOB, CY])
    assert (joined["speed_kmh"], joined["messages"]) == (50, 3)
    assert joined.people == {"ann", "bob", "cy"}


def test_count_per_cell_counts_people():
    joined = joins.count_per_cell([ANN, BOB, CY], km=1.0)
    assert [row[2:] for row in joined["cells"]] == [[2, 2, 0.0], [1, 1, 0.0]]
    assert not joined.people
    frequent = joins.count_per_cell([ANN, BOB, CY], km=1.0, least=2)
    assert [row[2] for row in frequent["cells"]] == [2]
    assert frequent["elsewhere"] == 1
    lat, lon, *_ = joined["cells"][0]
    assert distance_km((lat, lon), ANN["loc"]) < 1


def test_mean_per_cell_averages_and_removes_people():
    joined = partial(joins.mean_per_cell, km=1.0)([ANN, BOB, CY])
    assert sorted(row[2:] for row in joined["cells"]) == [[40.0, 1, 0.0], [55.0, 2, 0.0]]
    assert not joined.people


def test_cells_have_the_mean_time_of_their_contexts():
    reports = [("a", 30.0041, 10.0, 5), ("b", 30.0042, 20.04, 8), ("c", 30.2, 50.0, 9)]
    contexts = [
        Context({name}, {"loc": [lat, -97.0], "speed_kmh": speed}, (t_s * 1_000_000, t_s * 1_000_000))
        for name, lat, speed, t_s in reports
    ]
    joined = joins.mean_per_cell(contexts)
    assert [row[2:] for row in joined["cells"]] == [[15.0, 2, 6.5], [50.0, 1, 9.0]]
    assert joined.span_us == (5_000_000, 9_000_000)
    assert [row[2:] for row in joins.count_per_cell(contexts)["cells"]] == [[2, 2, 6.5], [1, 1, 9.0]]


def test_top_k_keeps_the_highest_values():
    joined = joins.top_k([ANN, BOB, CY], by="speed_kmh", k=2)
    assert joined["speed_kmh"] == [100, 40]
    assert joined.people == {"cy", "ann", "bob"}
    equal = [Context({"dee"}, {"speed_kmh": 40, "age": age}, (at, at)) for at, age in ((10, 1), (11, 2))]
    joined = joins.top_k([BOB, *equal, CY], by="speed_kmh", k=3)  # the oldest first
    assert (joined["speed_kmh"], joined["age"]) == ([100, 40, 40], [1])


def test_cell_centres_and_distances_are_consistent():
    for loc in [(0.0, 0.0), (38.7, -9.1), (-33.9, 151.2), (89.99, 10.0), (-0.001, -0.001)]:
        place = cell(loc, km=2.0)
        assert cell(place.centre, km=2.0) == place
        assert distance_km(loc, place.centre) <= 2**0.5 + 1e-6
    assert distance_km((38.7, -9.1), (41.1, -8.6)) == pytest.approx(
        float(spherical_km(38.7, -9.1, 41.1, -8.6))
    )


@pytest.mark.parametrize(
    ("lons", "west", "east"),
    [
        ([179.5, -179.5], 179.5, -179.5),
        ([100.0, -100.0, 10.0], -100.0, 100.0),
        ([-170.0, 0.0, 171.0], 171.0, 0.0),
        ([350.0, 10.0], -10.0, 10.0),
        ([180.0, -180.0], -180.0, -180.0),
        ([0.0, 180.0], -180.0, 0.0),
        ([5.0], 5.0, 5.0),
        ([170.0, -170.0, 180.0, -179.0], 170.0, -170.0),
    ],
)
def test_boxes_have_the_smallest_width(lons, west, east):
    contexts = [Context({f"n{i}"}, {"loc": [i, lon], "speed_kmh": 1}) for i, lon in enumerate(lons)]
    expected = [0, west, len(lons) - 1, east]
    assert joins.bounding_box(contexts)["box"] == expected
    assert joins.mean(contexts)["box"] == expected
    assert joins.people_count(contexts, k=1, loc="loc")["box"] == expected


def test_cells_across_the_date_line_are_adjacent():
    for km in (0.5, 3.0, 500.0):
        for lat in (0.01, 38.7, -71.3):
            west, east = cell((lat, 179.9999), km=km), cell((lat, -179.9999), km=km)
            assert west != east
            assert west.is_beside(east)
            assert east.is_beside(west)
            assert cell((lat, 180.0), km=km) == east == cell((lat, -180.0), km=km)
            assert cell(west.centre, km=km) == west
            assert -180 <= west.centre[1] < 180


def test_adjacent_cells_are_recognised():
    for lon in (-97.7, 0.0, 12.3, 179.8):
        centre = cell((30.27, lon), km=5.0)
        around = [
            (30.27 + north, lon + east)
            for north, east in ((-0.045, 0), (0, 0), (0.045, 0), (0, -0.05), (0, 0.05))
        ]
        assert all(centre.is_beside(cell(place, km=5.0)) for place in around), lon
        assert not centre.is_beside(cell((30.27, lon + 0.16), km=5.0))
        assert not centre.is_beside(cell((30.27 + 0.1, lon), km=5.0))
        assert not centre.is_beside(cell((30.27, lon), km=1.0))
