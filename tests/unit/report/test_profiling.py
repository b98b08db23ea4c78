"""What the report trace_profile says of the times between positions."""

import numpy as np
from report_traces import looks, source

from mudkit import figures
from mudkit.report.profiling import first_screen, intervals, time_answer


def test_times_between_positions_are_counted_in_bins_that_a_person_reads():
    """A minute, two years, and half a second apart."""
    made = source([0, 60, 120, 63_072_120, 63_072_121], looks(3, 24, 5), window_s=600)
    table = intervals(made)
    assert table["intervals"].sum() == 4
    assert table["from_s"].iloc[0] == 1.0
    assert table["to_s"].iloc[-1] == np.inf
    assert table.set_index("from_s").loc[60.0, "intervals"] == 2
    figure = figures.histogram(table, title="t", unit="u")
    assert figure.data[0].x[-1] == "7 d"
    assert figure.data[0].customdata[-1] == "7 d or more"
    assert not any("e+" in label for label in figure.data[0].x)


def test_a_single_position_has_no_interval():
    assert intervals(source([0], looks(3, 24, 5), window_s=600)).empty


def test_a_median_is_called_one():
    """Of regular reports no half takes less time than the median."""
    screen = first_screen(source([0, 60, 120, 180], looks(3, 24, 5), window_s=600))
    assert screen.tiles[1] == ("1 min", "is the median time between two positions of a device")
    assert "half of" not in screen._repr_html_()


def test_six_hours_are_named_only_where_there_are_more():
    two = time_answer(source([0, 60, 3660], looks(3, 24, 5), window_s=600))
    assert two.title == "All positions lie in 2 hours of the day"
    every = time_answer(source(range(0, 20 * 3600, 600), looks(3, 24, 5), window_s=600))
    assert every.title.startswith("The six busiest hours of the day hold 30 %")
