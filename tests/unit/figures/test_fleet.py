import numpy as np
import pyarrow as pa
import pytest

from mudkit.errors import TraceContentError
from mudkit.figures.fleet import Fleet, moment
from mudkit.trace.schema import POSITIONS, timestamps

T0 = 1_211_100_000_000_000


def positions(*rows):
    """Rows of (device, seconds, latitude)."""
    device, t, lat = zip(*rows, strict=True)
    columns = [pa.array(device), timestamps(T0 + np.array(t) * 1_000_000), pa.array(lat), pa.array(lat)]
    return pa.table([*columns, pa.nulls(len(t), pa.float64())], schema=POSITIONS)


FLEET = Fleet.of(positions(("b", 0, 1.0), ("b", 100, 2.0), ("a", 50, 5.0), ("b", 5000, 3.0)))


@pytest.mark.parametrize(
    ("second", "where"),
    [
        (-1, {}),
        (0, {"b": 1.0}),
        (99, {"b": 1.0, "a": 5.0}),
        (100, {"b": 2.0, "a": 5.0}),
        (650, {"b": 2.0, "a": 5.0}),
        (651, {"b": 2.0}),
        (701, {}),  # silent for more than ten minutes
        (5000, {"b": 3.0}),
    ],
)
def test_devices_are_where_they_were_last_heard_of(second, where):
    lat, lon, names = FLEET.at(T0 + second * 1_000_000)
    assert dict(zip(names, lat.tolist(), strict=True)) == where
    assert lon.tolist() == lat.tolist()


def test_figure_holds_the_devices_and_its_axes_have_units():
    figure = FLEET.figure(T0 + 100_000_000)
    assert list(figure.data[1].text) == ["a", "b"]
    assert "°" in figure.layout.xaxis.title.text
    assert "°" in figure.layout.yaxis.title.text


def test_the_busiest_moment_has_devices():
    assert FLEET.at(FLEET.busiest_us())[2] == ["a", "b"]


def test_no_positions():
    with pytest.raises(TraceContentError):
        Fleet.of(POSITIONS.empty_table())


def test_moment():
    assert moment(T0) == "2008-05-18 08:40 UTC"
