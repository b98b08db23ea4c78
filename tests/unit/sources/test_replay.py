import datetime as dt
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from replay_traces import EIGHT, TRACE, build_positions

from mudkit.errors import ParameterError
from mudkit.sources.courses import Mobility
from mudkit.sources.mobility import mobility_of
from mudkit.sources.replay import Replay

US = 1_000_000


def get_lat_lon(course, s):
    places = course.at(round(s * US))
    return list(zip(places.lat.tolist(), places.lon.tolist(), strict=True))


def test_devices_move_like_those_of_the_trace():
    replay = Replay(TRACE)
    assert isinstance(replay, Mobility)
    assert mobility_of(replay) is replay
    assert replay.devices == Replay(SimpleNamespace(positions=TRACE)).devices == 2
    assert replay.until_us == 2000 * US
    course = replay.course(7, ["x", "y"], 0)
    assert get_lat_lon(course, 0) == [(0.0, 20.0), (1.0, 10.0)]
    assert np.isnan(course.at(0).speed_mps[1])
    assert course.at(50 * US).speed_mps[0] == 0
    places = course.at(150 * US)
    assert places.lat[0] == pytest.approx(0.1)
    assert places.speed_mps[0] == pytest.approx(0.2 * 111_195 / 100, rel=1e-4)
    # The gap of b is too long, and a's trace is over.
    assert get_lat_lon(course, 999) == [(0.2, 20.0), (1.0, 10.0)]
    assert np.isnan(course.at(999 * US).speed_mps).all()
    assert get_lat_lon(course, 2000) == [(0.2, 20.0), (1.0, 11.0)]
    with pytest.raises(ParameterError, match=r"no longer(.|\n)*to 2000 s"):
        course.at(2000 * US + 1)


@pytest.mark.parametrize(
    "start",
    [
        "2010-03-01T08:02:30",
        "2010-03-01T08:02:30Z",
        "2010-03-01T10:02:30+02:00",
        EIGHT + dt.timedelta(seconds=150),
    ],
)
def test_run_starts_anywhere_in_the_trace(start):
    replay = Replay(TRACE, start)
    assert replay.until_us == 1850 * US
    assert get_lat_lon(replay.course(7, ["x"], 0), 0) == [pytest.approx((0.1, 20.0))]


def test_date_line_is_crossed_the_short_way():
    course = Replay(build_positions(("a", 0, 0.0, 179.0), ("a", 100, 0.0, -179.0))).course(7, ["x"], 0)
    assert get_lat_lon(course, 25)[0][1] == 179.5
    assert get_lat_lon(course, 75)[0][1] == -179.5
    assert course.at(75 * US).speed_mps[0] == pytest.approx(2 * 111_195 / 100, rel=1e-4)


def test_last_of_two_simultaneous_reports_counts():
    course = Replay(build_positions(("a", 0, 0, 0), ("a", 9, 1, 1), ("a", 9, 2, 2), ("a", 18, 2, 2))).course(
        7, ["x"], 0
    )
    assert get_lat_lon(course, 9) == [(2.0, 2.0)]


def test_naive_times_are_utc():
    naive = TRACE.set_column(1, "ts", TRACE["ts"].cast(pa.timestamp("ns")))
    assert Replay(naive, EIGHT).until_us == 2000 * US
