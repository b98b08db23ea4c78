"""Charts of tables."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

import mudkit.worlds.inboxes  # noqa: F401  # the label of its column
from mudkit import figures
from mudkit.errors import ParameterError
from mudkit.figures.style import GREY
from mudkit.figures.times import TimeAxis


def test_rows_over_time_has_panels_in_local_time():
    table = pd.DataFrame({"start": [dt.datetime(2020, 1, 1)], "positions": [3], "reads": [1]})
    figure = figures.rows_over_time(table, title="t", tz="Asia/Tokyo")
    assert [list(trace.y) for trace in figure.data] == [[3], [1]]
    assert "Asia/Tokyo" in figure.layout.xaxis2.title.text


def test_histogram_names_its_bins():
    table = pd.DataFrame({"from_s": [0.0, 1.0], "to_s": [1.0, 2.0], "intervals": [5, 7]})
    figure = figures.histogram(table, title="t", unit="seconds")
    assert list(figure.data[0].x) == ["0 s", "1 s"]
    assert list(figure.data[0].y) == [5, 7]


def test_bar_beside_which_no_other_is_seen_is_a_number():
    """Bars are as long as their numbers (form.md): one that hides the others is left out, and said to be."""
    table = pd.DataFrame({"from_s": [0.0, 1.0, 2.0], "to_s": [1.0, 2.0, 3.0], "intervals": [5, 35_014, 7]})
    figure = figures.histogram(table, title="t", unit="seconds")
    drawn = list(figure.data[0].y)
    assert (drawn[0], drawn[2]) == (5, 7)
    assert np.isnan(drawn[1])
    (note,) = figure.layout.annotations
    assert (note.x, note.text) == ("1 s", "35,014:<br>not drawn")
    assert list(figure.layout.xaxis.categoryarray) == ["0 s", "1 s", "2 s"]


def test_policies_are_points_with_intervals():
    row = {"policy": "rule", "sent_share": 0.5, "sent_share_low": 0.4, "sent_share_high": 0.6,
           "stale_share": 0.1, "stale_share_low": float("nan"), "stale_share_high": float("nan")}  # fmt: skip
    figure = figures.policy_scatter(pd.DataFrame([row, row | {"policy": "bound, 0% stale"}]), title="t")
    first, bound = figure.data
    assert (first.x[0], first.y[0]) == (50, 10)
    assert abs(first.error_x.array[0] - 10) < 1e-9
    assert not first.error_y.visible
    assert bound.marker.color == GREY != first.marker.color
    for axis, high in ((figure.layout.xaxis, 60), (figure.layout.yaxis, 10)):
        assert axis.range[0] == 0
        assert high < axis.range[1] < 1.2 * high, "there is room for a policy at the edge"


def test_growth_draws_a_line_per_group_on_logarithmic_axes():
    table = pd.DataFrame(
        {
            "n": [1, 10, 1, 10],
            "µs_a_record": [1.0, 9.0, 2.0, 2.5],
            "way": ["the paper", "the paper", "index", "index"],
        }
    )
    figure = figures.growth(table, title="t", x="n", y="µs_a_record", by="way")
    paper, index = figure.data
    assert [list(line.y) for line in figure.data] == [[1, 9], [2, 2.5]]
    assert (paper.name, index.name) == ("the paper", "index")
    assert paper.marker.color == GREY != index.marker.color
    assert paper.line.dash == "dash" != index.line.dash
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis.title.text == "µs a record"


def test_growth_titles_and_scales_axes_by_column_labels():
    table = pd.DataFrame({"n": [1, 10], "sent_bytes": [1000.0, 9000.0], "way": ["a", "a"]})
    figure = figures.growth(table, title="t", x="n", y="sent_bytes", by="way")
    assert list(figure.data[0].y) == [1, 9]
    assert figure.layout.yaxis.title.text == "sent, kB"


TABLE = pd.DataFrame({"way": ["a", "b"], "kB": [1234.5, 2.0], "wait": [0.25, 0.0], "bad": [False, True]})


MEASURES = {"kB": "sent, kB", "wait": "mean wait, s"}


def draw_panels(table):
    return figures.bar_panels(table, MEASURES, title="cost", y="way")


@pytest.mark.parametrize("cost", [-1e-9, float("inf")])
def test_crossover_refuses_negative_and_infinite_costs(cost):
    table = pd.DataFrame({"n": [1, 2], "system": ["a", "a"], "cost": [1.0, cost]})
    with pytest.raises(ParameterError, match="measure cannot be drawn") as caught:
        figures.crossover(table, x="n", y="cost", title="t")
    assert caught.value.where == "column 'cost'"


def test_bar_without_a_value_has_a_dash():
    table = pd.DataFrame({"way": ["near", "far"], "delay_s": [2.0, float("nan")]})
    figure = figures.bar_panels(table, {"delay_s": "delay, s"}, title="Delays", y="way")
    assert list(figure.data[0].text) == ["2", "–"]


def test_each_measure_has_a_panel_with_its_unit():
    figure = draw_panels(TABLE)
    assert [tuple(trace.x) for trace in figure.data] == [(1234.5, 2.0), (0.25, 0.0)]
    assert (figure.layout.xaxis.title.text, figure.layout.xaxis2.title.text) == ("sent, kB", "mean wait, s")
    assert [trace.text for trace in figure.data] == [("1,234", "2"), ("0.25", "0")]
    assert figure.layout.yaxis.autorange == "reversed"
    assert figure.layout.xaxis.range[1] > 1234.5
    assert draw_panels(TABLE.head(0)).layout.xaxis.range == (0, 1)
    assert draw_panels(TABLE.tail(1)).layout.xaxis2.range == (0, 1)
    assert draw_panels(TABLE.assign(kB=[99.9, 9.96])).data[0].text == ("99.9", "10.0")


def test_signals_cover_the_same_time():
    figure = figures.signals(
        {"whole": [0.0] * 500, "four times smaller": [1.0] * 125}, hz=250, y="mV", title="Two"
    )
    whole, small = figure.data
    assert (whole.x[0], whole.x[-1]) == pytest.approx((0.002, 1.998))
    assert (small.x[0], small.x[-1]) == pytest.approx((0.008, 1.992))
    assert list(figure.layout.xaxis.range) == [0, 2.0]
    assert [note.text for note in figure.layout.annotations] == ["whole", "four times smaller"]
    assert figure.layout.xaxis2.title.text == "seconds"
    assert list(figure.layout.yaxis.range) == pytest.approx([-0.05, 1.05])
    assert (whole.mode, figure.layout.yaxis.title.text) == ("lines", "mV")


def test_axis_of_signals_has_a_margin_of_a_twentieth():
    figure = figures.signals({"one": [3.0, 1.0, 2.0]}, hz=1, y="mV", title="")
    assert list(figure.layout.yaxis.range) == pytest.approx([0.9, 3.1])


def test_signals_are_cut_and_few_samples_are_marked():
    figure = figures.signals({"few": [0.0, 1.0, 0.5]}, hz=1, y="mV", title="", seconds=2.0)
    assert list(figure.layout.xaxis.range) == [0, 2.0]
    assert figure.data[0].mode == "lines+markers"


def test_crossover_is_marked_where_mean_lines_cross():
    rows = [
        {"offline_share": share, "system": system, "seed": seed, "j_per_read": value + seed}
        for share, one, other in [(0.0, 1.0, 3.0), (0.5, 3.0, 1.0)]
        for system, value in (("direct", one), ("relay", other))
        for seed in (0, 2)
    ]
    figure = figures.crossover(pd.DataFrame(rows), x="offline_share", y="j_per_read", title="t")
    direct, relay = (trace for trace in figure.data if trace.name)
    assert (list(direct.x), list(direct.y), list(relay.y)) == ([0, 50], [2, 4], [4, 2])
    (note,) = figure.layout.annotations
    assert (note.x, note.y) == (25, 3)
    assert "equal at 25" in note.text
    assert figure.layout.title.subtitle.text == "direct is lower below 25\u202f%, relay above it."
    assert figure.layout.xaxis.title.text == "time without a network, %"
    assert figure.layout.yaxis.range[0] == 0


@pytest.mark.parametrize(("third", "is_above"), [(4.4, False), (9.0, True)])
def test_label_of_a_crossing_is_off_the_other_lines(third, is_above):
    rows = [
        {"cost": cost, "system": system, "y": y}
        for cost, one, other in [(1.0, 2.0, 4.0), (2.0, 4.0, 2.0)]
        for system, y in (("a", one), ("b", other), ("c", third), ("d", 10.0))
    ]
    (note,) = figures.crossover(pd.DataFrame(rows), x="cost", y="y", title="t").layout.annotations
    assert (note.ay < 0) == is_above


def draw_crossover(values, x="cost", **options):
    """Draw the crossover of two systems a and b with these values at each x."""
    rows = [
        {x: at, "system": name, "y": y}
        for at, pair in values.items()
        for name, y in zip("ab", pair, strict=True)
    ]
    return figures.crossover(pd.DataFrame(rows), x=x, y="y", title="t", **options)


def test_crossover_on_logarithmic_axis_is_marked_where_lines_cross():
    figure = draw_crossover({1: (1.0, 3.0), 100: (3.0, 1.0), 10_000: (3.0, 5.0)}, is_log=True)
    assert [round(note.x, 9) for note in figure.layout.annotations] == [1.0, 3.0]  # decades
    assert figure.layout.yaxis.range[1] >= 5, "the axis holds both lines"
    assert figure.layout.title.subtitle.text == "a is lower at first; a and b are equal at 10 and 1,000."


@pytest.mark.parametrize(
    ("x", "equal"), [("article_minutes", "10\u202fmin"), ("outages_per_day", "10\u202fa day"), ("x", "10")]
)
def test_crossover_is_described_with_its_unit(x, equal):
    figure = draw_crossover({1: (1.0, 3.0), 100: (3.0, 1.0)}, x, is_log=True)
    assert figure.layout.title.subtitle.text == f"a is lower below {equal}, b above it."
    assert figure.layout.annotations[0].text == f"equal at {equal}"


@pytest.mark.parametrize(
    ("pairs", "marks", "sentence"),
    [
        ([(0, 1), (2, 2), (4, 3)], ["20"], "a is lower below 20, b above it."),
        ([(0, 1), (2, 2), (3, 3), (5, 4)], ["20 to 30"], "a is lower below 20, b above 30."),
        ([(0, 1), (0.1 + 0.2, 0.3), (1, 0)], ["20"], "a is lower below 20, b above it."),
        ([(0, 0), (1, 1), (3, 2)], [], "a and b are equal up to 20, b is lower above it."),
        ([(0, 0), (1, 2), (2, 3)], [], "a and b are equal at 10, a is lower above it."),
        (
            [(0, 0), (0, 0), (0, 1), (2, 2), (4, 3)],
            ["40"],
            "Equal up to 20, then a is lower below 40, b above it.",
        ),
        ([(0, 1), (2, 2), (3, 4)], [], "a is nowhere higher than b."),
        ([(0, 1), (2, 2), (3, 3)], [], "a is lower than b; both are equal from 20."),
    ],
)
def test_crossover_with_ties_is_described(pairs, marks, sentence):
    figure = draw_crossover({10 * place: pair for place, pair in enumerate(pairs, start=1)}, x="x")
    assert [note.text for note in figure.layout.annotations] == [f"equal at {mark}" for mark in marks]
    assert figure.layout.title.subtitle.text == sentence


def test_lines_that_do_not_cross_have_no_mark():
    figure = draw_crossover({1: (1.0, 2.0), 10: (1.0, 2.0)}, is_log=True)
    assert not figure.layout.annotations
    assert figure.layout.title.subtitle.text == "a is lower than b throughout."
    assert list(figure.layout.xaxis.ticktext) == ["1", "10"]
    assert draw_crossover({1: (1.0, 1.0), 10: (1.0, 1.0)}).layout.title.subtitle.text is None


def test_load_of_servers_is_drawn_minute_by_minute_with_the_idle_ones():
    """A minute that is missing in the table is one in which nothing happened."""
    start = pd.to_datetime(["2010-03-01T13:00", "2010-03-01T13:02", "2010-03-01T13:01"], utc=True)
    table = pd.DataFrame(
        {"server": ["one", "one", "two"], "start": start, "served": [3, 1, 2], "lost": [0, 7, 0],
         "busy_share": [0.5, 0.25, 1.0], "mean_wait_s": [0.0, 1.0, 0.0], "max_wait_s": [0.0, 2.0, 0.0],
         "max_waiting": [0, 4, 0]}
    )  # fmt: skip
    figure = figures.server_load(table)
    drawn = {(line.name, line.yaxis): list(line.y) for line in figure.data}
    assert drawn["one", "y"] == [0.5, 0, 0.25]
    assert drawn["two", "y"] == [0, 1.0, 0]
    assert drawn["one", "y2"] == [0, 0, 4]
    assert drawn["one", "y3"] == [0, 0, 2.0]
    assert "7 messages did not fit into a queue" in figure.layout.title.text


def test_bars_of_hours_on_separate_days_stand_in_the_middle_of_their_hour():
    """Sparse days stand side by side; an hour reaches from its beginning to the next one."""
    starts = [dt.datetime(2020, 1, 1, 5), dt.datetime(2020, 3, 1, 7)]
    table = pd.DataFrame({"start": pd.to_datetime(starts, utc=True), "positions": [3, 4], "reads": [1, 2]})
    figure = figures.rows_over_time(table, title="t", tz="UTC")
    starts_us = np.array([start.replace(tzinfo=dt.UTC).timestamp() for start in starts]) * 10**6
    axis = TimeAxis.of(starts_us.astype(np.int64), zone="UTC")
    middles = axis.values((starts_us + 1800 * 10**6).astype(np.int64))
    assert list(figure.data[0].x) == pytest.approx(list(middles))
