"""Links, radio, places that left a device, and fleets."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mudkit import Lab, figures
from mudkit.errors import TraceContentError
from mudkit.figures.devices import MAX_LABELLED, link_states
from mudkit.figures.times import NO_TIME, TimeAxis, as_us, times_us
from mudkit.trace.schema import LINKS, POSITIONS, timestamps

T0 = pd.Timestamp("2008-05-18 08:00:05", tz="UTC")


def at(second):
    return T0 + pd.Timedelta(seconds=second)


def make_links(*rows):
    """Build a link table from rows of (device, second, up) or (device, second, up, down_kbps)."""
    full = [(*row, np.nan)[:4] for row in rows]
    return pd.DataFrame(
        [(name, at(t), up, kbps, np.nan, np.nan) for name, t, up, kbps in full], columns=LINKS.names
    )


TWO_CARS = make_links(
    ("car10", 0, True), ("car10", 60, False), ("car10", 90, True), ("car9", 20, False), ("car9", 50, True)
)


def get_trace(figure, name):
    (result,) = [trace for trace in figure.data if trace.name == name]
    return result


def get_boxes(result):
    """Return the rectangles of a trace: (from, to, row)."""
    x, y = np.asarray(result.x, float), np.asarray(result.y, float)
    return [(x[a], x[a + 1], (y[a] + y[a + 2]) / 2) for a in range(0, len(x), 5)]


def test_link_states_last_until_the_next_row_of_the_device():
    table = link_states(TWO_CARS.sample(frac=1, random_state=3), end_us=as_us(at(100), "end"))
    begin = as_us(T0, "t")
    rows = [
        (row.device, (row.start_us - begin) / 1e6, (row.end_us - begin) / 1e6, row.up)
        for row in table.itertuples()
    ]
    assert rows == [
        ("car10", 0, 60, True),
        ("car10", 60, 90, False),
        ("car10", 90, 100, True),
        ("car9", 20, 50, False),
        ("car9", 50, 100, True),
    ]
    cut = link_states(TWO_CARS, end_us=as_us(at(55), "end"))
    assert (len(cut), cut["end_us"].max()) == (3, as_us(at(55), "end")), (
        "what lies beyond the end is left out"
    )


def test_link_strip_has_a_row_per_device_with_its_share():
    figure = figures.link_strip(TWO_CARS, end=at(100))
    assert list(figure.layout.yaxis.ticktext) == ["car9", "car10"]  # in natural order
    assert get_boxes(get_trace(figure, "down")) == [(60, 90, 1), (20, 50, 0)]
    assert get_boxes(get_trace(figure, "up")) == [(0, 60, 1), (90, 100, 1), (50, 100, 0)]
    (text,) = [trace.text for trace in figure.data if trace.mode == "text"]
    assert list(text) == [" 38 % down", " 30 % down"]
    assert figure.layout.xaxis.title.text == "virtual time since 08:00:05, s"
    assert "at most 38 %" in figure.layout.title.subtitle.text
    up, down = (np.ptp(np.array(get_trace(figure, name).y[:4], float)) for name in ("up", "down"))
    assert down > up, "down is higher than up"
    assert {trace.name for trace in figure.data if trace.showlegend is not False} <= {"up", "down"}


def test_higher_throughput_is_darker():
    figure = figures.link_strip(
        make_links(
            ("a", 0, True, 50),
            ("a", 10, True, 500),
            ("a", 20, True, 5000),
            ("a", 30, True),
            ("a", 40, False),
            ("a", 50, True),
        )
    )
    labels = [trace.name for trace in figure.data if trace.fill]
    assert labels == ["up", "up, 30–100 kbit/s", "up, 300–1,000 kbit/s", "up, 3–10 Mbit/s", "down"]
    brightness = [int(get_trace(figure, name).fillcolor[1:3], 16) for name in labels[1:4]]
    assert brightness == sorted(brightness, reverse=True)


def test_throughput_over_many_decades_has_few_classes():
    figure = figures.link_strip(
        make_links(*[("a", 10 * n, True, 0.5 * 4**n) for n in range(10)], ("a", 200, False))
    )
    labels = [trace.name for trace in figure.data if trace.fill]
    assert len(labels) <= 7
    assert labels[0] == "up, 0–1 kbit/s"
    assert labels[-1] == "up, over 100 Mbit/s"


def test_link_strip_draws_chosen_devices_in_order():
    assert list(figures.link_strip(TWO_CARS, devices=["car10", "car9"]).layout.yaxis.ticktext) == [
        "car10",
        "car9",
    ]
    assert list(figures.link_strip(TWO_CARS, devices=["car10"]).layout.yaxis.ticktext) == ["car10"]


def test_link_strip_of_a_large_fleet_has_few_traces_and_no_names():
    number = 200
    table = make_links(
        *[(f"d{n}", t, up) for n in range(number) for t, up in ((0, True), (100 - n / 4, False), (100, True))]
    )
    figure = figures.link_strip(table, end=at(200))
    assert number > MAX_LABELLED
    assert figure.layout.yaxis.showticklabels is False
    assert "most time down at the top" in figure.layout.yaxis.title.text
    assert len(figure.data) == 3
    assert figure.layout.height < 1100
    longest = max(get_boxes(get_trace(figure, "down")), key=lambda box: box[1] - box[0])
    assert longest[2] == 0


def test_single_row_needs_an_end():
    with pytest.raises(TraceContentError, match="end="):
        figures.link_strip(make_links(("a", 0, False)))
    shares = figures.link_strip(make_links(("a", 0, False)), end=at(5)).data[-1]
    assert "100 % down" in str(shares.text)
    assert shares.cliponaxis is False, "they stand beyond the end of the axis"


def test_long_times_are_shown_as_clock_times():
    figure = figures.link_strip(TWO_CARS, end=at(7200))
    assert figure.layout.xaxis.title.text == "virtual time, UTC"
    assert get_trace(figure, "down").x[0] == "2008-05-18T08:01:05.000"
    assert get_trace(figure, "down").x[4] is None


def test_times_of_any_type_are_converted():
    origin = as_us("2008-05-18 08:00:05", "t")
    assert (
        as_us(T0, "t") == as_us(np.datetime64("2008-05-18T08:00:05"), "t") == origin == 1_211_097_605_000_000
    )
    for unit in ("s", "ms", "us", "ns"):
        table = pd.DataFrame({"ts": pd.Series([T0, pd.NaT]).dt.as_unit(unit)})
        assert times_us(table, "ts", "x").tolist() == [origin, NO_TIME]
    assert times_us(pd.DataFrame({"ts": [None, None]}), "ts", "x").tolist() == [NO_TIME, NO_TIME]
    assert times_us(pd.DataFrame({"ts": ["2008-05-18 08:00:05", None]}), "ts", "x").tolist() == [
        origin,
        NO_TIME,
    ]
    axis = TimeAxis(origin, origin + 10_000_000)
    assert np.isnan(axis.values([NO_TIME, origin])).tolist() == [True, False]


def make_timeline(*rows):
    """Build a radio timeline from rows of (state, from, to, mW)."""
    return pd.DataFrame(
        [(at(a), at(b), state, float(mw)) for state, a, b, mw in rows],
        columns=["start", "end", "state", "power_mw"],
    )


LTE = make_timeline(
    ("promotion", 4, 4.26, 1210.7), ("active", 4.26, 5, 1288), ("tail", 5, 16.576, 1060), ("idle", 0, 4, 0)
)


def get_names(figure):
    return [trace.name for trace in figure.data if trace.showlegend is not False]


def test_radio_timeline_legend_has_energy_by_state():
    figure = figures.radio_timeline(LTE)
    assert get_names(figure) == [
        "idle: 0 J",
        "ramp: 0.315 J (2 %)",
        "active: 0.953 J (7 %)",
        "tail: 12.3 J (91 %)",
    ]
    assert figure.layout.title.subtitle.text.startswith("13.5 J in all")
    assert list(figure.layout.yaxis.ticktext) == ["idle", "ramp", "active", "tail"]
    assert figure.layout.yaxis2.title.text == "power, mW"
    assert figure.layout.xaxis2.title.text == "virtual time since 08:00:05, s"


def test_power_line_has_the_same_energy():
    (line,) = [trace for trace in figures.radio_timeline(LTE).data if trace.name == "power"]
    joules = float(np.sum(np.diff(line.x) * (np.asarray(line.y)[1:] + np.asarray(line.y)[:-1]) / 2)) / 1e3
    assert joules == pytest.approx(0.26 * 1.2107 + 0.74 * 1.288 + 11.576 * 1.06)


def test_power_is_zero_in_a_gap():
    (line,) = [
        trace
        for trace in figures.radio_timeline(make_timeline(("active", 0, 1, 500), ("tail", 3, 4, 100))).data
        if trace.name == "power"
    ]
    assert list(line.x) == [0, 1, 1, 3, 3, 4]
    assert list(line.y) == [500, 500, 0, 0, 100, 100]


AREA = (37.0, -122.1, 37.2, -121.9)


@pytest.fixture
def places():
    at = pd.date_range("2010-03-01 13:00", periods=4, freq="min", tz="UTC")
    return pd.DataFrame(
        {
            "at": at,
            "lat": [37.1, 37.3, 37.1, 37.0],
            "lon": [-122.0, -122.0, -121.8, -122.0],
            "is_away": [False, True, True, False],
            "is_sent": [False, True, False, False],
        }
    )


def test_location_exposure_draws_each_place_as_stayed_or_left(places):
    area, stayed, left, away, sent = figures.location_exposure(places, AREA, title="A day").data
    assert (stayed.name, left.name) == ("stayed on the device: 3", "left the device: 1")
    assert list(left.text) == ["13:01"]
    assert left.y[0] == pytest.approx(0.2 * 111.19, abs=0.1)
    assert left.x[0] == pytest.approx(0.0)
    assert max(area.y) == pytest.approx(0.1 * 111.19, abs=0.1)
    assert max(area.x) == pytest.approx(0.1 * 111.19 * 0.7976, abs=0.1)
    assert [time.minute for time in pd.to_datetime(away.x)] == [1, 2]
    assert [time.minute for time in pd.to_datetime(sent.x)] == [1]


def test_times_of_places_have_a_date_if_they_are_of_several_days(places):
    def axis_of_times(table):
        return next(axis for axis in figures.location_exposure(table, AREA).select_xaxes() if axis.tickformat)

    one_day = axis_of_times(places)
    assert (one_day.title.text, one_day.tickformat) == ("01 March 2010, UTC", "%H:%M")
    two_days = axis_of_times(places.assign(at=places["at"] + pd.to_timedelta([0, 0, 1, 1], unit="D")))
    assert (two_days.title.text, two_days.tickformat) == ("time, UTC", "%d %b<br>%H:%M")


FLEET_T0 = 1_211_100_000_000_000


def make_positions(*rows):
    """Build a position table from rows of (device, seconds, latitude)."""
    device, t, lat = zip(*rows, strict=True)
    columns = [pa.array(device), timestamps(FLEET_T0 + np.array(t) * 1_000_000), pa.array(lat), pa.array(lat)]
    return pa.table([*columns, pa.nulls(len(t), pa.float64())], schema=POSITIONS)


FLEET = figures.Fleet.from_tables(
    make_positions(("b", 0, 1.0), ("b", 100, 2.0), ("a", 50, 5.0), ("b", 5000, 3.0))
)


@pytest.mark.parametrize(
    ("second", "expected"),
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
def test_devices_are_at_their_last_reported_place(second, expected):
    lat, lon, devices = FLEET.at(FLEET_T0 + second * 1_000_000)
    assert dict(zip(devices, lat.tolist(), strict=True)) == expected
    assert lon.tolist() == lat.tolist()


def test_fleet_figure_has_devices_and_axis_units():
    figure = FLEET.figure(FLEET_T0 + 100_000_000)
    assert list(figure.data[1].text) == ["a", "b"]
    assert "°" in figure.layout.xaxis.title.text
    assert "°" in figure.layout.yaxis.title.text
    assert FLEET.at(FLEET.busiest_us())[2] == ["a", "b"]


def test_axes_of_a_fleet_hold_ranges_of_access_points_and_devices_on_the_edge():
    """A disc that is cut, or a device half outside, would say that it ends there; stray fixes stay outside."""
    lab = Lab(seed=1)
    lab.access_point("beyond", (5.5, 5.0), 111_195)
    rows = [("a", t, t / 500) for t in range(2000)]
    table = make_positions(*rows, ("b", 0, 80.0))
    fleet = figures.Fleet.from_tables(table, access_points=lab.access_points.values())
    figure = fleet.figure(FLEET_T0)
    south, north = figure.layout.yaxis.range
    west, east = figure.layout.xaxis.range
    assert (south < -0.05, west < -0.05) == (True, True)
    assert (6.5 < north < 8, 6.0 < east < 8) == (True, True)


def test_axes_of_a_fleet_that_stays_have_a_length():
    figure = figures.Fleet.from_tables(make_positions(("a", 0, 1.0), ("a", 60, 1.0))).figure(FLEET_T0)
    for low, high in (figure.layout.xaxis.range, figure.layout.yaxis.range):
        assert low < 1.0 < high


def test_fleet_figure_has_enough_places_of_all_to_see_the_streets(monkeypatch):
    monkeypatch.setattr("mudkit.figures.devices._MAX_STREET_POINTS", 10)
    fleet = figures.Fleet.from_tables(make_positions(*(("a", t, t / 100) for t in range(45))))
    shown = fleet.figure(FLEET_T0).data[0].y
    assert 10 <= len(shown) < 20
    assert max(np.diff(sorted(shown))) < 0.1, "from all over"


def test_format_moment_uses_the_time_zone():
    assert FLEET.format_moment(FLEET_T0) == "2008-05-18 08:40 UTC"
    assert (
        figures.Fleet.from_tables(TRIP, tz="America/Chicago").format_moment(FLEET_T0)
        == "2008-05-18 03:40 America/Chicago"
    )


def make_fleet_links(*rows):
    """Build a link table from rows of (device, second, up)."""
    device, t, up = zip(*rows, strict=True)
    nothing = pa.nulls(len(t), pa.float64())
    columns = [pa.array(device), timestamps(FLEET_T0 + np.array(t) * 1_000_000), pa.array(up)]
    return pa.table([*columns, nothing, nothing, nothing], schema=LINKS)


TRIP = make_positions(*[(name, t, 1.0 + t / 1000) for name in "abc" for t in range(0, 1000, 100)])


STATES = make_fleet_links(("c", 500, True), ("a", 200, False), ("c", 300, False), ("elsewhere", 0, False))


@pytest.mark.parametrize(
    ("second", "down"),
    [(199, ""), (200, "a"), (299, "a"), (300, "ac"), (499, "ac"), (500, "a"), (900, "a")],
)
def test_link_state_is_that_of_the_last_row(second, down):
    fleet = figures.Fleet.from_tables(TRIP, STATES)
    assert fleet.down(FLEET_T0 + second * 1_000_000, list("abc")).tolist() == [name in down for name in "abc"]


def test_links_of_a_fleet_are_device_time_and_state():
    """Throughput is not needed."""
    fleet = figures.Fleet.from_tables(TRIP, STATES.select(["device", "ts", "up"]))
    assert fleet.down(FLEET_T0 + 300_000_000, list("abc")).tolist() == [True, False, True]


def test_devices_without_a_link_differ_in_colour_symbol_text_and_title():
    fleet = figures.Fleet.from_tables(TRIP, STATES)
    figure = fleet.figure(FLEET_T0 + 300_000_000)
    devices = figure.data[1]
    assert list(devices.text) == ["a, no link", "b", "c, no link"]
    assert devices.marker.symbol[0] == devices.marker.symbol[2] != devices.marker.symbol[1]
    assert devices.marker.color[0] == devices.marker.color[2] != devices.marker.color[1]
    assert figure.layout.title.text == "3 devices, 2 without a link, 2008-05-18 08:45 UTC"
    assert [trace.name for trace in figure.data[2:]] == ["with a link", "without a link"]
    fleet.move(figure, FLEET_T0 + 600_000_000)
    assert list(figure.data[1].text) == ["a, no link", "b", "c"]
    assert figure.layout.title.text == "3 devices, 1 without a link, 2008-05-18 08:50 UTC"


def test_fleet_without_links_omits_link_states():
    figure = figures.Fleet.from_tables(TRIP).figure(FLEET_T0)
    assert figure.layout.title.text == "3 devices, 2008-05-18 08:40 UTC"
    assert len(figure.data) == 2
    assert set(figure.data[1].marker.symbol) == {"circle"}
    assert (
        figures.Fleet.from_tables(TRIP, LINKS.empty_table()).headline(FLEET_T0)
        == "3 devices, 0 without a link, 2008-05-18 08:40 UTC"
    )


def test_link_strip_of_a_lab_ends_at_the_present():
    lab = Lab(seed=3)
    lab.device("ann", outage=0.5)
    lab.run(hours=3)
    figure = figures.link_strip(lab)
    assert figure.to_json() == figures.link_strip(lab.frame("links"), end=lab.now).to_json()
    assert figure.to_json() != figures.link_strip(lab, end=lab.now - pd.Timedelta(hours=1)).to_json()


def test_stretches_of_a_link_are_told_with_their_length():
    figure = figures.link_strip(TWO_CARS, end=at(100))
    (hover,) = [trace for trace in figure.data if trace.name == "stretches"]
    assert any(text.startswith("car10: link down for 30 s") for text in hover.text)


def test_states_and_power_have_one_time_axis():
    """Enlarging a part of one panel enlarges the same part of the other."""
    figure = figures.radio_timeline(LTE)
    assert figure.layout.xaxis.matches == "x2"
