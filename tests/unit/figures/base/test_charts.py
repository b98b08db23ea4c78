import datetime as dt

import pandas as pd

from mudkit.figures.base import charts


def test_rows_over_time():
    table = pd.DataFrame({"start": [dt.datetime(2020, 1, 1)], "positions": [3], "reads": [1]})
    figure = charts.rows_over_time(table, title="t", tz="Asia/Tokyo")
    assert [list(trace.y) for trace in figure.data] == [[3], [1]]
    assert "Asia/Tokyo" in figure.layout.xaxis2.title.text


def test_histogram_names_its_bins():
    table = pd.DataFrame({"from_s": [0.0, 1.0], "to_s": [1.0, 2.0], "intervals": [5, 7]})
    figure = charts.histogram(table, title="t", unit="seconds")
    assert list(figure.data[0].x) == ["0–1", "1–2"]
    assert list(figure.data[0].y) == [5, 7]


def test_policies_are_points_with_intervals():
    row = {"policy": "rule", "sent_share": 0.5, "sent_share_low": 0.4, "sent_share_high": 0.6,
           "stale_share": 0.1, "stale_share_low": float("nan"), "stale_share_high": float("nan")}  # fmt: skip
    figure = charts.policies(pd.DataFrame([row, row | {"policy": "bound, 0% stale"}]), title="t")
    first, bound = figure.data
    assert (first.x[0], first.y[0]) == (50, 10)
    assert abs(first.error_x.array[0] - 10) < 1e-9
    assert not first.error_y.visible
    assert bound.marker.color == charts.GREY != first.marker.color


def test_growth_draws_a_line_for_each_way_on_logarithmic_axes():
    table = pd.DataFrame(
        {
            "n": [1, 10, 1, 10],
            "µs_a_record": [1.0, 9.0, 2.0, 2.5],
            "way": ["the paper", "the paper", "index", "index"],
        }
    )
    figure = charts.growth(table, title="t", x="n", y="µs_a_record", by="way")
    paper, index = figure.data
    assert [list(line.y) for line in figure.data] == [[1, 9], [2, 2.5]]
    assert (paper.name, index.name) == ("the paper", "index")
    assert paper.marker.color == charts.GREY != index.marker.color
    assert paper.line.dash == "dash" != index.line.dash
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis.title.text == "µs a record"


def test_shares_are_bars_in_percent_from_top_to_bottom():
    table = pd.DataFrame({"model": ["strong", "weak"], "share_that_meets_it": [0.25, 1.0]})
    figure = charts.shares(table, title="t", x="share_that_meets_it", y="model")
    [bars] = figure.data
    assert (list(bars.x), list(bars.y), list(bars.text)) == ([25, 100], ["strong", "weak"], ["25 %", "100 %"])
    assert figure.layout.xaxis.title.text == "share that meets it, %"
    assert figure.layout.yaxis.autorange == "reversed"
