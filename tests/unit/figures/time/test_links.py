import numpy as np
import pandas as pd
import pytest

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.base.clock import NO_TIME, TimeAxis, as_us, times_us
from mudkit.figures.time.links import MAX_LABELLED, share, stretches, strip
from mudkit.trace.schema import LINKS

T0 = pd.Timestamp("2008-05-18 08:00:05", tz="UTC")


def at(second):
    return T0 + pd.Timedelta(seconds=second)


def links(*rows):
    """Rows of (device, second, up) or (device, second, up, down_kbps)."""
    full = [(*row, np.nan)[:4] for row in rows]
    return pd.DataFrame(
        [(name, at(t), up, kbps, np.nan, np.nan) for name, t, up, kbps in full], columns=LINKS.names
    )


TWO = links(
    ("car10", 0, True), ("car10", 60, False), ("car10", 90, True), ("car9", 20, False), ("car9", 50, True)
)


def trace(figure, name):
    (result,) = [one for one in figure.data if one.name == name]
    return result


def boxes(result):
    """Rectangles of a trace: (from, to, row)."""
    x, y = np.asarray(result.x, float), np.asarray(result.y, float)
    return [(x[a], x[a + 1], (y[a] + y[a + 2]) / 2) for a in range(0, len(x), 5)]


def test_a_state_holds_until_the_next_row_of_the_device():
    table = stretches(TWO.sample(frac=1, random_state=3), end_us=as_us(at(100), "end"))
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


def test_what_lies_beyond_the_end_is_left_out():
    table = stretches(TWO, end_us=as_us(at(55), "end"))
    assert table["end_us"].max() == as_us(at(55), "end")
    assert len(table) == 3


def test_a_row_a_device_with_its_share():
    figure = strip(TWO, end=at(100))
    assert list(figure.layout.yaxis.ticktext) == ["car9", "car10"]  # and not by letters
    assert boxes(trace(figure, "down")) == [(60, 90, 1), (20, 50, 0)]
    assert boxes(trace(figure, "up")) == [(0, 60, 1), (90, 100, 1), (50, 100, 0)]
    (text,) = [one.text for one in figure.data if one.mode == "text"]
    assert list(text) == [" 38 % down", " 30 % down"]
    assert figure.layout.xaxis.title.text == "virtual time since 08:00:05, s"
    assert "at most 38 %" in figure.layout.title.subtitle.text


def test_down_is_higher_than_up():
    figure = strip(TWO)
    up, down = (
        np.nanmax(trace(figure, name).y) - np.nanmin(trace(figure, name).y) for name in ("up", "down")
    )
    assert down > up


def test_what_was_measured_is_darker_the_more_it_was():
    figure = strip(
        links(
            ("a", 0, True, 50),
            ("a", 10, True, 500),
            ("a", 20, True, 5000),
            ("a", 30, True),
            ("a", 40, False),
            ("a", 50, True),
        )
    )
    names = [one.name for one in figure.data if one.fill]
    assert names == ["up", "up, 30–100 kbit/s", "up, 300–1,000 kbit/s", "up, 3,000–10,000 kbit/s", "down"]
    light = [int(trace(figure, name).fillcolor[1:3], 16) for name in names[1:4]]
    assert light == sorted(light, reverse=True)


def test_throughput_over_many_decades_has_few_classes():
    figure = strip(links(*[("a", 10 * n, True, 0.5 * 4**n) for n in range(10)], ("a", 200, False)))
    names = [one.name for one in figure.data if one.fill]
    assert len(names) <= 7
    assert names[0] == "up, 0–1 kbit/s"
    assert names[-1] == "up, 100,000 and more kbit/s"


def test_devices_are_chosen_in_order():
    assert list(strip(TWO, devices=["car10", "car9"]).layout.yaxis.ticktext) == ["car10", "car9"]
    assert list(strip(TWO, devices=["car10"]).layout.yaxis.ticktext) == ["car10"]
    with pytest.raises(ParameterError, match="car11"):
        strip(TWO, devices=["car9", "car11"])


def test_a_large_fleet_has_no_names_and_stays_a_few_shapes():
    number = 200
    table = links(
        *[(f"d{n}", t, up) for n in range(number) for t, up in ((0, True), (100 - n / 4, False), (100, True))]
    )
    figure = strip(table, end=at(200))
    assert number > MAX_LABELLED
    assert figure.layout.yaxis.showticklabels is False
    assert "most time down at the top" in figure.layout.yaxis.title.text
    assert len(figure.data) == 3
    assert figure.layout.height < 1100
    longest = max(boxes(trace(figure, "down")), key=lambda box: box[1] - box[0])
    assert longest[2] == 0


def test_a_single_row_needs_an_end():
    with pytest.raises(TraceContentError, match="end="):
        strip(links(("a", 0, False)))
    assert "100 % down" in str(strip(links(("a", 0, False)), end=at(5)).data[-1].text)
    with pytest.raises(TraceContentError):
        strip(TWO.iloc[:0])
    with pytest.raises(ParameterError, match="lacks columns: up"):
        strip(TWO.drop(columns="up"))


def test_a_long_time_is_told_by_the_clock():
    figure = strip(TWO, end=at(7200))
    assert figure.layout.xaxis.title.text == "virtual time, UTC"
    assert trace(figure, "down").x[0] == "2008-05-18T08:01:05.000"
    assert trace(figure, "down").x[4] is None


def test_shares():
    assert [share(part) for part in (0.0, 0.0004, 0.041, 0.38, 0.997, 1.0)] == [
        "0 %",
        "under 0.1 %",
        "4.1 %",
        "38 %",
        "99.7 %",
        "100 %",
    ]


def test_times_of_any_kind():
    origin = as_us("2008-05-18 08:00:05", "t")
    assert (
        as_us(T0, "t") == as_us(np.datetime64("2008-05-18T08:00:05"), "t") == origin == 1_211_097_605_000_000
    )
    for unit in ("s", "ms", "us", "ns"):
        table = pd.DataFrame({"ts": pd.Series([T0, pd.NaT]).dt.as_unit(unit)})
        assert times_us(table, "ts", "x").tolist() == [origin, NO_TIME]
    assert times_us(pd.DataFrame({"ts": [None, None]}), "ts", "x").tolist() == [NO_TIME, NO_TIME]
    axis = TimeAxis(origin, origin + 10_000_000)
    assert np.isnan(axis.values([NO_TIME, origin])).tolist() == [True, False]
