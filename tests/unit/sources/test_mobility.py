import pytest

from mudkit.errors import ParameterError
from mudkit.sources.commute import Commute
from mudkit.sources.courses import Mobility, device_numbers, flat_to_degrees, normal_longitude
from mudkit.sources.grid import ManhattanGrid
from mudkit.sources.mobility import MOBILITIES, mobility_of
from mudkit.sources.streams import device_number
from mudkit.sources.waypoint import RandomWaypoint


def test_mobility_of_accepts_names_and_models():
    assert mobility_of("waypoint") == RandomWaypoint()
    assert mobility_of("manhattan") == ManhattanGrid()
    assert mobility_of("commute") == Commute()
    assert all(isinstance(model, Mobility) for model in MOBILITIES.values())
    slow = RandomWaypoint(speed_low_mps=0.5, speed_high_mps=1.5)
    assert mobility_of(slow) is slow


@pytest.mark.parametrize("model", MOBILITIES.values(), ids=MOBILITIES)
def test_courses_of_every_model(model):
    course = model.course(7, ["a", "b"], 0)
    assert course.until_us is None
    first = course.at(0)
    lat = first.lat.copy()
    first.lat[:] = first.lon[:] = first.speed_mps[:] = 99
    assert (course.at(0).lat == lat).all(), "the caller may write to the places"
    course.at(5)
    course.at(5)
    for earlier in (lambda: course.at(4), lambda: model.course(7, ["a"], 0).at(-1)):
        with pytest.raises(ParameterError, match="earlier moment"):
            earlier()
    with pytest.raises(ParameterError, match=r"named twice(.|\n)*'b'"):
        model.course(7, ["a", "b", "b"], 0)
    assert model.course(7, [], 0).at(0).lat.shape == (0,)


def test_device_numbers_match_those_of_streams():
    assert [int(n) % 2**64 for n in device_numbers(["a", "b"])] == [device_number("a"), device_number("b")]


def test_longitudes_are_normalized():
    assert normal_longitude([-180.0, 180.0, 181.0, -181.0, 0.1]).tolist() == [-180, -180, -179, 179, 0.1]
    lat, lon = flat_to_degrees(0.0, 179.99, [5.0], [0.0])
    assert lat[0] == 0
    assert lon[0] == pytest.approx(-179.965, abs=1e-3)
