import numpy as np
import pyarrow as pa
import pytest

from mudkit import Lab
from mudkit.trace.schema import LINKS, POSITIONS, timestamps
from mudkit.units import distance_km
from mudkit.widgets import FleetMap


@pytest.fixture
def positions():
    t_us = 1_211_100_000_000_000 + np.arange(20) * 300_000_000
    columns = [pa.array(["a"] * 20), timestamps(t_us), pa.array(np.arange(20.0)), pa.array(np.arange(20.0))]
    return pa.table([*columns, pa.nulls(20, pa.float64())], schema=POSITIONS)


def test_slider_moves_the_devices(positions):
    widget = FleetMap(positions, step_s=300)
    play, slider, _ = widget.children[0].children
    assert (play.min, play.max) == (slider.min, slider.max) == (0, 19)
    for step in (0, 7, 19):
        widget.slider.value = step
        assert list(widget.figure.data[1].y) == [step]
        assert widget.figure.layout.title.text.startswith("1 devices, 2008-05-18")


def test_devices_without_a_link_are_marked(positions):
    nothing = pa.nulls(2, pa.float64())
    t_us = 1_211_100_000_000_000 + np.array([7, 9]) * 300_000_000
    columns = [pa.array(["a", "a"]), timestamps(t_us), pa.array([False, True]), nothing, nothing, nothing]
    widget = FleetMap(positions, pa.table(columns, schema=LINKS), step_s=300)
    for step, down in ((6, 0), (7, 1), (8, 1), (9, 0)):
        widget.slider.value = step
        assert widget.figure.layout.title.text.startswith(f"1 devices, {down} without a link, 2008-05-18")
        assert list(widget.figure.data[1].text) == ["a, no link" if down else "a"]
        assert list(widget.figure.data[1].marker.symbol) == ["x" if down else "circle"]


def test_access_points_are_drawn_with_their_ranges(positions):
    lab = Lab(seed=1)
    lab.access_point("cafe", (60.0, 10.0), 500)
    lab.access_point("library", (0.0, 10.0), 100)
    widget = FleetMap(positions, access_points=lab.access_points.values())
    discs = widget.figure.data[-1]
    assert set(discs.text) == {"cafe, range 500 m", "library, range 100 m"}
    lat, lon = np.array(discs.y), np.array(discs.x)
    cafe = np.arange(len(lat)) < np.flatnonzero(np.isnan(lat))[0]
    for rows, place, range_m in ((cafe, (60.0, 10.0), 500), (~cafe & ~np.isnan(lat), (0.0, 10.0), 100)):
        away_m = 1000 * distance_km(*place, lat[rows], lon[rows])
        assert np.allclose(away_m, range_m, rtol=1e-3)
