"""Comparisons of policies and systems."""

import math

import numpy as np
import pandas as pd
import pytest

from mudkit import figures


def table(conditions=("generated", "recorded"), policies=("on-line", "buffer")):
    rows = [
        (condition, policy, 0.1 * i, 0.08 * i, 0.15 * i, 0.2, np.nan, np.nan)
        for condition in conditions
        for i, policy in enumerate(policies, start=1)
    ]
    names = ["waste", "waste_low", "waste_high", "loss", "loss_low", "loss_high"]
    return pd.DataFrame(rows, columns=["condition", "policy", *names])


def test_a_mark_for_each_condition_with_its_interval():
    figure = figures.waste_and_loss(table(), title="Conditions")
    assert [(each.name, each.showlegend) for each in figure.data] == [
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


def test_whiskers_stay_in_the_row_of_their_policy_and_in_the_picture():
    figure = figures.waste_and_loss(table(tuple("abcde")), title="")
    rows = np.round([trace.y for trace in figure.data])
    assert (rows == [0, 1]).all()
    assert len({trace.y[0] for trace in figure.data}) == 5
    assert figure.layout.xaxis.range[1] > 30


TREES = pd.DataFrame({"sent_share": [0.9, 0.5, 0.7], "stale_share": [0.0, 0.4, 0.1]})


BOUND = pd.DataFrame({"sent_share": [0.8, 0.6], "stale_share": [0.0, 0.1]})


POLICIES = pd.DataFrame({"policy": ["rule", "always"], "sent_share": [0.75, 1.0], "stale_share": [0.05, 0.0]})


def test_a_frontier_without_a_stale_answer_has_a_scale():
    tables = [table.assign(stale_share=0.0, sent_share=1.0) for table in (TREES, BOUND, POLICIES)]
    figure = figures.frontier(*tables, title="T", max_stale_share=0.0)
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert axis.range[0] < axis.range[1] <= 100


def test_lines_are_in_order_and_points_are_named():
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


def line(figure, name):
    (result,) = [each for each in figure.data if each.name == name]
    return list(zip(result.x, result.y, strict=True))


def test_a_line_says_how_much_was_there_by_when():
    figure = figures.latencies(TABLE, {"a": 4, "b": 4, "c": 4}, title="Soon")
    assert line(figure, "a") == [(0.001, 0), (1, 25), (4, 50), (200, 75), (200, 75)]
    assert line(figure, "b") == [(0.001, 0), (0.001, 25), (200, 25)]
    assert line(figure, "c") == [(0.001, 0), (200, 0)]
    assert len({(each.line.color, each.line.dash) for each in figure.data}) == 3
    assert figure.layout.xaxis.ticktext[:5] == ("1 ms", "10 ms", "100 ms", "1 s", "10 s")
    assert figure.layout.yaxis.title.text.startswith("useful, %")


def test_many_deliveries_are_a_line_of_some_points():
    many = pd.DataFrame({"system": "a", "latency_s": [float(each) for each in range(5000)]})
    result = line(figures.latencies(many, {"a": 10_000}, title=""), "a")
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


WAYS = {"x": "J", "y": "share", "labels": ("radios, J", "useful"), "title": "Price"}


def test_the_front_is_drawn_in_order():
    figure = figures.pareto(PARETO_TABLE, **WAYS)
    line, best, beaten = figure.data
    assert (line.x, line.y) == ((5, 20, 90), (0.4, 0.9, 1.0))
    assert dict(zip(best.text, best.x, strict=True)) == {"all": 90, "some, twin": 20, "few": 5}
    assert (beaten.text, beaten.y) == (("bad",), (0.3,))
    assert best.marker.symbol != beaten.marker.symbol
    assert figure.layout.title.subtitle.text == "without a value: none"
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("radios, J", "useful")
    assert figure.layout.xaxis.range[1] > 90


def test_another_table_takes_its_place():
    figure = figures.pareto(PARETO_TABLE, **WAYS)
    figures.update_pareto(figure, PARETO_TABLE[PARETO_TABLE["system"] == "bad"], **WAYS | {"title": "One"})
    line, best, beaten = figure.data
    assert (line.x, best.x, beaten.text) == ((), (), ("bad",))
    assert (figure.layout.title.text, figure.layout.title.subtitle.text) == ("One", "")
    figures.update_pareto(figure, PARETO_TABLE.head(0), **WAYS)
    assert tuple(figure.layout.xaxis.range) == (0, 1)


def test_names_of_near_points_do_not_meet():
    near = pd.DataFrame(
        {
            "system": ["one of them", "another", "a third", "the last"],
            "J": [90.0, 90.5, 91.0, 91.5],
            "share": [0.9, 0.9, 0.9, 0.9],
            "is_best": [True, False, False, False],
        }
    )
    figure = figures.pareto(near, **WAYS)
    assert [note.text for note in figure.layout.annotations] == near["system"].tolist()
    assert figure.data[2].customdata[1].startswith("a third<br>91")


SIZING_TABLE = pd.DataFrame(
    [(0, 0.0, 0.0, 0.0, 0.9), (4, 0.1, 0.05, 0.2, 0.5), (16, 0.2, 0.1, 0.4, 0.0)],
    columns=["limit", "waste", "waste_low", "waste_high", "loss"],
).assign(loss_low=np.nan, loss_high=np.nan)


def draw(table=SIZING_TABLE, **given):
    return figures.tradeoff(table, **{"x": "limit", "best": 4, "title": "Limits", "unit": "messages"} | given)


def test_values_stand_at_even_distances_and_the_best_is_marked():
    figure = draw()
    lines = {each.name: each for each in figure.data}
    assert list(lines["waste"].y) == pytest.approx([0, 10, 20])
    assert list(lines["loss"].y) == pytest.approx([90, 50, 0])
    assert list(lines["loss"].x) == [0, 1, 2]
    assert list(figure.layout.xaxis.ticktext) == ["0", "4", "16"]
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("messages", "%")
    assert figure.layout.shapes[0].x0 == figure.layout.shapes[0].x1 == 1
    assert figure.layout.annotations[0].text == "recommended: 4"


def test_a_band_where_there_are_intervals_and_none_where_not():
    bands = [each for each in draw().data if each.fill == "toself"]
    assert [each.name for each in bands] == ["waste, 95 % interval"]
    assert list(bands[0].y) == pytest.approx([0, 20, 40, 10, 5, 0])


def test_the_legend_keeps_off_the_name_of_the_best_value():
    assert draw(best=0).layout.legend.xanchor == "right"
    assert draw(best=16).layout.legend.xanchor == "left"
