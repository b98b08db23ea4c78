"""Comparisons of policies and systems."""

import math

import numpy as np
import pandas as pd
import pytest

from mudkit import figures
from mudkit.figures import comparisons
from mudkit.figures.labels import text_px


def make_table(conditions=("generated", "recorded"), policies=("on-line", "buffer")):
    rows = [
        (condition, policy, 0.1 * i, 0.08 * i, 0.15 * i, 0.2, np.nan, np.nan)
        for condition in conditions
        for i, policy in enumerate(policies, start=1)
    ]
    names = ["waste", "waste_low", "waste_high", "loss", "loss_low", "loss_high"]
    return pd.DataFrame(rows, columns=["condition", "policy", *names])


def test_waste_and_loss_mark_each_condition_with_its_interval():
    figure = figures.waste_and_loss(make_table(), title="Conditions")
    assert [(trace.name, trace.showlegend) for trace in figure.data] == [
        ("generated", True),
        ("generated", False),
        ("recorded", True),
        ("recorded", False),
    ]
    waste = figure.data[0]
    assert list(waste.x) == pytest.approx([10, 20])
    assert list(waste.error_x.array) == pytest.approx([5, 10])
    assert list(waste.error_x.arrayminus) == pytest.approx([2, 4])
    assert list(figure.layout.yaxis.ticktext) == ["on-line", "buffer"]
    assert "%" in figure.layout.xaxis.title.text
    assert "%" in figure.layout.xaxis2.title.text


def test_whiskers_stay_in_their_row_and_within_the_axis():
    figure = figures.waste_and_loss(make_table(tuple("abcde")), title="")
    rows = np.round([trace.y for trace in figure.data])
    assert (rows == [0, 1]).all()
    assert len({trace.y[0] for trace in figure.data}) == 5
    assert np.mean([trace.y for trace in figure.data], axis=0) == pytest.approx([0, 1]), "around their policy"
    assert figure.layout.xaxis.range[1] > 30


TREES = pd.DataFrame({"sent_share": [0.9, 0.5, 0.7], "stale_share": [0.0, 0.4, 0.1]})


BOUND = pd.DataFrame({"sent_share": [0.8, 0.6], "stale_share": [0.0, 0.1]})


POLICIES = pd.DataFrame({"policy": ["rule", "always"], "sent_share": [0.75, 1.0], "stale_share": [0.05, 0.0]})


def test_frontier_without_stale_answers_has_a_scale():
    tables = [shares.assign(stale_share=0.0, sent_share=1.0) for shares in (TREES, BOUND, POLICIES)]
    figure = figures.frontier(*tables, title="T", max_stale_share=0.0)
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert axis.range[0] < axis.range[1] <= 100


def test_frontier_axis_ends_at_all_reads():
    figure = figures.frontier(TREES, BOUND, POLICIES, title="T", max_stale_share=1.01)
    assert figure.layout.yaxis.range[1] == 100


def test_frontier_lines_are_ordered_and_points_named():
    figure = figures.frontier(TREES, BOUND, POLICIES, title="T", max_stale_share=0.2)
    bound, trees, rule, always = figure.data
    assert list(trees.x) == [90, 70, 50]
    assert list(trees.y) == [0, 10, 40]
    assert list(bound.x) == [80, 60]
    assert (rule.name, rule.x[0], rule.y[0]) == ("rule", 75, 5)
    assert always.marker.symbol != rule.marker.symbol
    assert figure.layout.yaxis.range[1] == 20
    assert "% of reads" in figure.layout.xaxis.title.text


TABLE = pd.DataFrame({"system": ["a"] * 3 + ["b"], "latency_s": [4.0, 1.0, 200.0, 0.0]})


def get_line(figure, name):
    (result,) = [trace for trace in figure.data if trace.name == name]
    return list(zip(result.x, result.y, strict=True))


def test_latencies_are_drawn_as_cumulative_shares():
    figure = figures.latencies(TABLE, {"a": 4, "b": 4, "c": 4}, title="Soon")
    assert get_line(figure, "a") == [(0.001, 0), (1, 25), (4, 50), (200, 75), (200, 75)]
    assert get_line(figure, "b") == [(0.001, 0), (0.001, 25), (200, 25)]
    assert get_line(figure, "c") == [(0.001, 0), (200, 0)]
    assert len({(trace.line.color, trace.line.dash) for trace in figure.data}) == 3
    assert figure.layout.xaxis.ticktext[:5] == ("1 ms", "10 ms", "100 ms", "1 s", "10 s")
    assert figure.layout.yaxis.title.text.startswith("useful, %")


def test_latencies_of_many_deliveries_are_thinned():
    many = pd.DataFrame({"system": "a", "latency_s": [float(latency_s) for latency_s in range(5000)]})
    result = get_line(figures.latencies(many, {"a": 10_000}, title=""), "a")
    assert len(result) < 250
    assert result[-1] == (4999, 50)
    assert all(y == pytest.approx((x + 1) / 100) for x, y in result[3:-1])


PARETO_TABLE = pd.DataFrame(
    {
        "system": ["all", "some", "few", "bad", "none", "twin"],
        "J": [90.0, 20.0, 5.0, 60.0, math.nan, 20.0],
        "share": [1.0, 0.9, 0.4, 0.3, 0.0, 0.9],
        "is_best": [True, True, True, False, False, True],
    }
)


OPTIONS = {"x": "J", "y": "share", "labels": ("radios, J", "useful"), "title": "Price"}


def test_pareto_front_is_drawn_in_order():
    figure = figures.pareto(PARETO_TABLE, **OPTIONS)
    front, best, dominated = figure.data
    assert (front.x, front.y) == ((5, 20, 90), (0.4, 0.9, 1.0))
    assert dict(zip(best.text, best.x, strict=True)) == {"all": 90, "some, twin": 20, "few": 5}
    assert (dominated.text, dominated.y) == (("bad",), (0.3,))
    assert best.marker.symbol != dominated.marker.symbol
    assert figure.layout.title.subtitle.text == "without a value: none"
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("radios, J", "useful")
    assert figure.layout.xaxis.range[1] > 90


def test_update_pareto_replaces_the_table():
    figure = figures.pareto(PARETO_TABLE, **OPTIONS)
    figures.update_pareto(figure, PARETO_TABLE[PARETO_TABLE["system"] == "bad"], **OPTIONS | {"title": "One"})
    front, best, dominated = figure.data
    assert (front.x, best.x, dominated.text) == ((), (), ("bad",))
    assert (figure.layout.title.text, figure.layout.title.subtitle.text) == ("One", "")
    figures.update_pareto(figure, PARETO_TABLE.head(0), **OPTIONS)
    assert tuple(figure.layout.xaxis.range) == (0, 1)


def test_every_share_is_within_the_axis():
    table = SIZING_TABLE.assign(waste=0.3, loss=0.4)
    for ends in (["waste_low", "loss_low"], ["waste_high", "loss_high"]):
        table[ends] = table[["waste", "loss"]]
    figure = figures.tradeoff(table, x="limit", best=4, title="", unit="messages")
    assert 40 <= figure.layout.yaxis.range[1] <= 45, "and the largest is near its end"


def test_name_of_a_best_value_at_the_edge_stays_within_the_figure():
    table = pd.concat([SIZING_TABLE] * 3, ignore_index=True).assign(limit=[*map(str, range(8)), "all"])
    last = figures.tradeoff(table, x="limit", best="all", title="", unit="messages")
    middle = figures.tradeoff(table, x="limit", best="3", title="", unit="messages")
    anchors = [figure.layout.annotations[0].xanchor for figure in (last, middle)]
    assert anchors == ["right", "center"]


def test_front_of_one_point_has_no_entry_in_the_legend():
    figure = figures.pareto(PARETO_TABLE, **OPTIONS)
    assert [trace.showlegend for trace in figure.data] == [True, True, True]
    one = PARETO_TABLE[PARETO_TABLE["system"] == "few"]
    figures.update_pareto(figure, one, **OPTIONS)
    assert [trace.showlegend for trace in figure.data] == [False, True, False]


def test_cost_that_decides_is_drawn_below_what_goes_wrong():
    table = SIZING_TABLE.assign(cost_per_day=[5.0, 4.0, 3.0, 4.5][: len(SIZING_TABLE)])
    table = table.assign(
        cost_per_day_low=table["cost_per_day"] - 1, cost_per_day_high=table["cost_per_day"] + 1
    )
    figure = figures.tradeoff(table, x="limit", best=table["limit"].iloc[1], title="t", unit="messages")
    (cost,) = (trace for trace in figure.data if trace.name == "cost a day")
    assert list(cost.y) == table["cost_per_day"].tolist()
    assert cost.yaxis == "y2"
    assert figure.layout.yaxis2.title.text == "cost a day"
    assert {shape.xref for shape in figure.layout.shapes} == {"x", "x2"}, (
        "the recommended one is marked in both"
    )
    assert any(trace.name == "cost a day, 95 % interval" for trace in figure.data)


def test_fate_that_never_happens_is_not_in_the_legend():
    table = pd.DataFrame(
        {"task": "a", "system": ["x", "y"], "useful": [1.0, 0.5], "late": 0.0, "lost": [0.0, 0.5]}
    )
    figure = figures.fates(table, {"useful": "in time", "late": "late", "lost": "lost"}, title="t")
    assert [trace.name for trace in figure.data if trace.showlegend] == ["in time", "lost"]


def test_panel_of_a_task_has_the_fates_of_its_items():
    rows = [("a", "x", 0.6, 0.4), ("a", "y", 0.5, 0.5), ("b", "x", 0.2, 0.8)]
    table = pd.DataFrame(rows, columns=["task", "system", "useful", "lost"])
    figure = figures.fates(table, {"useful": "in time", "lost": "lost"}, title="t")
    bars = {(trace.meta, trace.name): dict(zip(trace.y, trace.x, strict=True)) for trace in figure.data}
    assert bars == {
        ("a", "in time"): {"x": 60.0, "y": 50.0},
        ("a", "lost"): {"x": 40.0, "y": 50.0},
        ("b", "in time"): {"x": 20.0},
        ("b", "lost"): {"x": 80.0},
    }


def test_labels_of_systems_keep_off_whiskers_and_near_their_own_marker():
    """Three systems nearly alike in time, with long whiskers: each name is nearest to its own point."""
    table = pd.DataFrame(
        {"system": ["SUBLIM", "Last hop", "Radiator"], "J": [63.0, 77.0, 154.0], "is_best": [True, False, False],
         "share_percent": [71.0, 69.0, 69.0], "share_percent_low": 52.0, "share_percent_high": 85.0}
    )  # fmt: skip
    figure = figures.pareto(table, **OPTIONS | {"y": "share_percent"})
    left, right = figure.layout.xaxis.range
    assert left == 0, "as for the other tasks"
    low, high = figure.layout.yaxis.range
    shares = [
        (x / right, (y - low) / (high - low)) for x, y in zip(table["J"], table["share_percent"], strict=True)
    ]
    whiskers = [(x / right, [(end - low) / (high - low) for end in (52.0, 85.0)]) for x in table["J"]]
    for note, (x, y) in zip(figure.layout.annotations, shares, strict=True):
        wide, tall = text_px(note.text)
        begin = (
            450 * x
            + note.ax
            - (wide / 2 if note.xanchor == "center" else wide if note.xanchor == "right" else 0)
        )
        middle = 270 * (1 - y) + note.ay
        for at, ends in whiskers:
            is_across = begin < 450 * at < begin + wide
            assert not (is_across and 270 * (1 - ends[1]) < middle < 270 * (1 - ends[0])), note.text
        apart = [
            max(begin - 450 * at[0], 450 * at[0] - begin - wide, 0)
            + max(abs(270 * (1 - at[1]) - middle) - tall, 0)
            for at in shares
        ]
        assert apart.index(min(apart)) == shares.index((x, y)), note.text


def test_intervals_of_points_are_drawn_from_zero():
    """Shares from 68 to 74 %, each with an interval of 30 points: the axis does not enlarge them."""
    table = pd.DataFrame(
        {"system": ["a", "b"], "J": [50.0, 60.0], "share_percent": [74.0, 68.0], "is_best": [True, False]}
    ).assign(share_percent_low=[59.0, 53.0], share_percent_high=[89.0, 83.0])
    figure = figures.pareto(table, **OPTIONS | {"y": "share_percent"})
    assert figure.layout.yaxis.range[0] == 0
    assert figure.layout.yaxis.range[1] >= 89
    _, best, beaten = figure.data
    assert (best.error_y.array[0], best.error_y.arrayminus[0]) == (15, 15)
    assert beaten.error_y.array[0] == 15
    assert best.error_x.array is None


def test_labels_take_the_colour_of_the_page():
    assert all(note.font.color is None for note in figures.pareto(PARETO_TABLE, **OPTIONS).layout.annotations)


def test_labels_of_near_points_are_all_drawn():
    near = pd.DataFrame(
        {
            "system": ["one of them", "another", "a third", "the last"],
            "J": [90.0, 90.5, 91.0, 91.5],
            "share": [0.9, 0.9, 0.9, 0.9],
            "is_best": [True, False, False, False],
        }
    )
    figure = figures.pareto(near, **OPTIONS)
    assert [note.text for note in figure.layout.annotations] == near["system"].tolist()
    assert figure.data[2].customdata[1].startswith("a third<br>91")


SIZING_TABLE = pd.DataFrame(
    [(0, 0.0, 0.0, 0.0, 0.9), (4, 0.1, 0.05, 0.2, 0.5), (16, 0.2, 0.1, 0.4, 0.0)],
    columns=["limit", "waste", "waste_low", "waste_high", "loss"],
).assign(loss_low=np.nan, loss_high=np.nan)


def draw(limits=SIZING_TABLE, **options):
    return figures.tradeoff(
        limits, **{"x": "limit", "best": 4, "title": "Limits", "unit": "messages"} | options
    )


def test_tradeoff_spaces_values_evenly_and_marks_the_best():
    figure = draw()
    lines = {trace.name: trace for trace in figure.data}
    assert list(lines["waste"].y) == pytest.approx([0, 10, 20])
    assert list(lines["loss"].y) == pytest.approx([90, 50, 0])
    assert list(lines["loss"].x) == [0, 1, 2]
    assert list(figure.layout.xaxis.ticktext) == ["0", "4", "16"]
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("messages", "%")
    assert figure.layout.shapes[0].x0 == figure.layout.shapes[0].x1 == 1
    assert figure.layout.annotations[0].text == "recommended: 4"


def test_tradeoff_draws_bands_only_for_intervals():
    bands = [trace for trace in draw().data if trace.fill == "toself"]
    assert [trace.name for trace in bands] == ["waste, 95 % interval"]
    assert list(bands[0].y) == pytest.approx([0, 20, 40, 10, 5, 0])


def test_tradeoff_legend_avoids_the_label_of_the_best_value():
    assert draw(best=0).layout.legend.xanchor == "right"
    assert draw(best=16).layout.legend.xanchor == "left"


@pytest.mark.parametrize("values", [[-10.0, 5.0], [-10.0, -2.0], [3.0, 5.0], [0.95, 0.98], [0.2, 0.99]])
def test_axis_holds_all_values_and_shares_end_at_the_whole(values):
    low, high = comparisons._axis_range(values)
    assert low <= min(values)
    assert max(values) <= high
    assert low < min(values) or low == 0.0, "a value below zero is not drawn on the edge"
    if 0.9 < max(values) <= 1.0:
        assert high == 1.0
