"""Report trace_profile: times between positions."""

import numpy as np
import pyarrow as pa
from report_traces import draw_reads, source

from mudkit import figures
from mudkit.report.defects import find_defects
from mudkit.report.profiling import cells, first_screen, intervals, over_time, time_answer
from mudkit.report.stays import find_stays


def profile(trace):
    return first_screen(trace, find_defects(trace), find_stays(trace))


def test_intervals_are_counted_in_readable_bins():
    """Count intervals of a minute, two years, and a second."""
    trace = source([0, 60, 120, 63_072_120, 63_072_121], draw_reads(3, 24, 5), window_s=600)
    table = intervals(trace)
    assert table["intervals"].sum() == 4
    assert table["from_s"].iloc[0] == 1.0
    assert table["to_s"].iloc[-1] == np.inf
    assert table.set_index("from_s").loc[60.0, "intervals"] == 2
    figure = figures.histogram(table, title="t", unit="u")
    assert figure.data[0].x[-1] == "7 d"
    assert figure.data[0].customdata[-1] == "7 d or more"
    assert not any("e+" in label for label in figure.data[0].x)


def test_single_position_has_no_interval():
    assert intervals(source([0], draw_reads(3, 24, 5), window_s=600)).empty


def test_median_interval_is_labelled_median():
    """Report a median, not a half: of regular intervals none is shorter than the median."""
    screen = profile(source([0, 60, 120, 180], draw_reads(3, 24, 5), window_s=600))
    assert screen.tiles[1] == ("1 min", "is the median time between two positions of a device")
    assert "half of" not in screen._repr_html_()


def test_busiest_hours_are_named_only_above_six_hours():
    answer = time_answer(source([0, 60, 3660], draw_reads(3, 24, 5), window_s=600))
    assert answer.title == "All positions lie in 2 hours of the day"
    all_hours = time_answer(source(range(0, 20 * 3600, 600), draw_reads(3, 24, 5), window_s=600))
    assert all_hours.title.startswith("The six busiest hours of the day hold 30 %")


def test_cells_hold_all_positions_at_their_mean():
    """A place beyond the edge of the square map lies in the last row, and no mean lies off its rows."""
    trace = source(range(0, 600, 60), draw_reads(3, 24, 5), window_s=600)
    for lat, lon in ((89.5, 10.0), (-86.0, 179.99), (37.7, -122.4)):
        places = trace.positions.set_column(2, "lat", pa.array(np.full(10, lat)))
        places = places.set_column(3, "lon", pa.array(np.full(10, lon)))
        moved = type(trace)(trace.name, places, trace.reads, trace.rows, trace.tz)
        (cell,) = cells(moved, 10).to_pylist()
        assert (cell["positions"], cell["devices"]) == (10, 1)
        assert np.allclose([cell["lat"], cell["lon"]], [lat, lon])


def test_years_are_shown_by_day_and_week():
    day_s = 86_400
    for days, unit in ((10, "hour"), (200, "day"), (900, "week")):
        trace = source([day * day_s for day in range(days)], draw_reads(3, 24, 5), window_s=600)
        table, which = over_time(trace)
        assert which == unit
        assert table["positions"].sum() == days
