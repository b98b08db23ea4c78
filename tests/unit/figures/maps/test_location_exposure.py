"""The figure of a day: each place once, by whether it left; two strips over the same time; the area to scale."""

from __future__ import annotations

import pandas as pd
import pytest

from mudkit.errors import ParameterError, TraceContentError
from mudkit.figures.maps.location_exposure import location_exposure

AREA = (37.0, -122.1, 37.2, -121.9)


@pytest.fixture
def places():
    at = pd.date_range("2010-03-01 13:00", periods=4, freq="min", tz="UTC")
    return pd.DataFrame(
        {
            "at": at,
            "lat": [37.1, 37.3, 37.1, 37.0],
            "lon": [-122.0, -122.0, -121.8, -122.0],
            "away": [False, True, True, False],
            "left": [False, True, False, False],
        }
    )


def test_each_place_is_drawn_once_by_whether_it_left(places):
    area, stayed, left, away, came = location_exposure(places, AREA, title="A day").data
    assert (stayed.name, left.name) == ("stayed on the device: 3", "left the device: 1")
    assert list(left.text) == ["13:01"]
    assert left.y[0] == pytest.approx(0.2 * 111.19, abs=0.1)
    assert left.x[0] == pytest.approx(0.0)
    assert max(area.y) == pytest.approx(0.1 * 111.19, abs=0.1)
    assert max(area.x) == pytest.approx(0.1 * 111.19 * 0.7976, abs=0.1)
    assert [each.minute for each in pd.to_datetime(away.x)] == [1, 2]
    assert [each.minute for each in pd.to_datetime(came.x)] == [1]


def test_bad_tables_are_told(places):
    with pytest.raises(ParameterError, match="away"):
        location_exposure(places.drop(columns="away"), AREA)
    with pytest.raises(TraceContentError, match="no place"):
        location_exposure(places[:0], AREA)
