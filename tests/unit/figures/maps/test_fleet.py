import numpy as np
import pyarrow as pa
import pytest

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.maps.fleet import Fleet, fleet_map, moment, move
from mudkit.trace.schema import LINKS, POSITIONS, timestamps

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
    assert moment(T0, "America/Chicago") == "2008-05-18 03:40 America/Chicago"


def links(*rows):
    """Rows of (device, second, up)."""
    device, t, up = zip(*rows, strict=True)
    nothing = pa.nulls(len(t), pa.float64())
    columns = [pa.array(device), timestamps(T0 + np.array(t) * 1_000_000), pa.array(up)]
    return pa.table([*columns, nothing, nothing, nothing], schema=LINKS)


TRIP = positions(*[(name, t, 1.0 + t / 1000) for name in "abc" for t in range(0, 1000, 100)])
STATES = links(("c", 500, True), ("a", 200, False), ("c", 300, False), ("elsewhere", 0, False))


@pytest.mark.parametrize(
    ("second", "down"),
    [(199, ""), (200, "a"), (299, "a"), (300, "ac"), (499, "ac"), (500, "a"), (900, "a")],
)
def test_a_link_is_as_its_last_row_says(second, down):
    fleet = Fleet.of(TRIP, STATES)
    assert fleet.down(T0 + second * 1_000_000, list("abc")).tolist() == [name in down for name in "abc"]


def test_devices_without_a_link_differ_in_colour_symbol_text_and_title():
    fleet = Fleet.of(TRIP, STATES)
    figure = fleet.figure(T0 + 300_000_000)
    devices = figure.data[1]
    assert list(devices.text) == ["a, no link", "b", "c, no link"]
    assert devices.marker.symbol[0] == devices.marker.symbol[2] != devices.marker.symbol[1]
    assert devices.marker.color[0] == devices.marker.color[2] != devices.marker.color[1]
    assert figure.layout.title.text == "3 devices, 2 without a link, 2008-05-18 08:45 UTC"
    assert [one.name for one in figure.data[2:]] == ["with a link", "without a link"]
    move(figure, fleet, T0 + 600_000_000)
    assert list(figure.data[1].text) == ["a, no link", "b", "c"]
    assert figure.layout.title.text == "3 devices, 1 without a link, 2008-05-18 08:50 UTC"


def test_without_links_nothing_is_said_of_them():
    figure = Fleet.of(TRIP).figure(T0)
    assert figure.layout.title.text == "3 devices, 2008-05-18 08:40 UTC"
    assert len(figure.data) == 2
    assert set(figure.data[1].marker.symbol) == {"circle"}
    assert (
        Fleet.of(TRIP, LINKS.empty_table()).headline(T0)
        == "3 devices, 0 without a link, 2008-05-18 08:40 UTC"
    )


def test_a_title_of_ones_own_stays():
    assert Fleet.of(TRIP).figure(T0, title="mine").layout.title.text == "mine"


@pytest.mark.parametrize("table", [STATES.drop_columns(["up"]), STATES.to_pandas()])
def test_what_is_no_table_of_links(table):
    with pytest.raises(ParameterError, match="device, ts, up"):
        Fleet.of(TRIP, table)


def test_the_map_of_a_fleet_tells_links_by_text_and_colour():
    page = fleet_map(TRIP, STATES, "2008-05-18 08:45").get_root().render()
    assert '"3 devices, 2 without a link, 2008-05-18 08:45 UTC"' in page
    assert '[1.3,1.3,7,1,"a, no link"],[1.3,1.3,5,0,"b, link up"],[1.3,1.3,7,1,"c, no link"]' in page
    assert "ground drawn from the trace, 30 positions" in page


def test_the_map_without_links_or_moment():
    page = fleet_map(TRIP).get_root().render()
    assert '5,0,"b"]' in page
    assert "without a link" not in page


def test_a_moment_with_nobody():
    with pytest.raises(TraceContentError, match="2008-05-18 08:40 UTC to 2008-05-18 08:55 UTC"):
        fleet_map(TRIP, at="2009-01-01")
    with pytest.raises(ParameterError, match="at"):
        fleet_map(TRIP, at=7)
