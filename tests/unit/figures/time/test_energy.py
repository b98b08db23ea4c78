import numpy as np
import pandas as pd
import pytest

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.time.energy import MAX_LINES, STATES, battery, radio

T0 = pd.Timestamp("2008-05-18 08:00:05", tz="UTC")


def at(second):
    return T0 + pd.Timedelta(seconds=second)


def timeline(*rows):
    """Rows of (state, from, to, mW)."""
    return pd.DataFrame(
        [(at(a), at(b), state, float(mw)) for state, a, b, mw in rows],
        columns=["start", "end", "state", "power_mw"],
    )


LTE = timeline(
    ("promotion", 4, 4.26, 1210.7), ("active", 4.26, 5, 1288), ("tail", 5, 16.576, 1060), ("idle", 0, 4, 0)
)


def names(figure):
    return [one.name for one in figure.data if one.showlegend is not False]


def test_the_legend_holds_the_energy_of_each_state():
    figure = radio(LTE)
    assert names(figure) == [
        "idle: 0 J (0 %)",
        "promotion: 0.3148 J (2 %)",
        "active: 0.9531 J (7 %)",
        "tail: 12.27 J (91 %)",
    ]
    assert figure.layout.title.subtitle.text.startswith("13.54 J in all")
    assert list(figure.layout.yaxis.ticktext) == list(STATES)


def test_the_line_of_power_has_the_same_energy():
    (line,) = [one for one in radio(LTE).data if one.name == "power"]
    joules = float(np.sum(np.diff(line.x) * (np.asarray(line.y)[1:] + np.asarray(line.y)[:-1]) / 2)) / 1e3
    assert joules == pytest.approx(0.26 * 1.2107 + 0.74 * 1.288 + 11.576 * 1.06)


def test_power_is_nothing_in_a_gap():
    (line,) = [
        one for one in radio(timeline(("active", 0, 1, 500), ("tail", 3, 4, 100))).data if one.name == "power"
    ]
    assert list(line.x) == [0, 1, 1, 3, 3, 4]
    assert list(line.y) == [500, 500, 0, 0, 100, 100]


def test_axes_have_units():
    figure = radio(LTE)
    assert figure.layout.yaxis2.title.text == "power, mW"
    assert figure.layout.xaxis2.title.text == "virtual time since 08:00:05, s"
    assert battery(levels({"a": [(0, 5)]})).layout.yaxis.title.text == "left in the battery, J"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "has no row"),
        ([("active", 0, 2, 1), ("tail", 1, 3, 1)], "overlap"),
        ([("active", 2, 1, 1)], "end before they start"),
        ([("asleep", 0, 1, 1)], "asleep"),
    ],
)
def test_what_is_no_timeline(rows, says):
    with pytest.raises(TraceContentError, match=says):
        radio(timeline(*rows))


def test_missing_columns():
    with pytest.raises(ParameterError, match="power_mw"):
        radio(LTE.drop(columns="power_mw"))
    with pytest.raises(ParameterError, match="battery_j"):
        battery(LTE.rename(columns={"start": "ts", "state": "device"}))


def levels(devices):
    return pd.DataFrame(
        [(at(t), name, float(joules)) for name, rows in devices.items() for t, joules in rows],
        columns=["ts", "device", "battery_j"],
    )


def test_a_line_a_device_told_apart_by_colour_and_dash():
    figure = battery(levels({f"p{n}": [(0, 10), (9, 5 - n / 4)] for n in range(MAX_LINES)}))
    assert [one.name for one in figure.data] == [f"p{n}" for n in range(MAX_LINES)]
    assert len({(one.line.color, one.line.dash) for one in figure.data}) == MAX_LINES
    assert list(figure.data[0].y) == [10, 5]


def test_many_devices_are_a_median_and_a_band():
    figure = battery(levels({f"p{n:02}": [(0, 100 + n), (10, n)] for n in range(21)}))
    band, middle = figure.data
    assert (band.name, middle.name) == ("10th to 90th percentile", "median")
    assert middle.y[0] == pytest.approx(110)
    assert middle.y[-1] == pytest.approx(10)
    half = len(band.y) // 2
    assert (band.y[0], band.y[-1]) == pytest.approx((102, 118))
    assert (band.y[half - 1], band.y[half]) == pytest.approx((2, 18))


def test_a_battery_counts_from_its_first_level_on_and_after_its_last():
    devices = {f"p{n:02}": [(0, 100), (10, 100)] for n in range(12)} | {"late": [(5, 0)]}
    band = battery(levels(devices)).data[0]
    low = band.y[: len(band.y) // 2]
    assert low.min() == pytest.approx(100)  # one of thirteen lies below the 10th percentile
    devices |= {f"late{n}": [(5, 0), (6, 0)] for n in range(3)}
    low = battery(levels(devices)).data[0].y[:400]
    assert low[0] == pytest.approx(100)
    assert low[-1] == pytest.approx(0)


def test_no_battery():
    with pytest.raises(TraceContentError):
        battery(levels({"a": [(0, np.nan)]}))
    with pytest.raises(TraceContentError):
        battery(levels({}))
