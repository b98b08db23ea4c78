"""Waste and loss over the limit are drawn in percent, zero at the lower edge, and follow what is brought in."""

from __future__ import annotations

from mudkit.figures.compare.limits import LEAST, curve, limits

POINTS = [(1, 0.0, 0.8), (16, 0.003, 0.01), (64, 0.0108, 0.0)]


def lines(figure):
    return {each.name: (list(each.x), list(each.y)) for each in figure.data}


def test_points_and_where_one_stands():
    figure = limits(POINTS, (16, 0.003, 0.01), title="a year")
    result = lines(figure)
    assert result["waste"] == ([1, 16, 64], [LEAST, 0.3, 1.08])
    assert result["loss"] == ([1, 16, 64], [80.0, 1.0, LEAST])
    assert result["waste now"] == ([16], [0.3])
    assert result["loss now"] == ([16], [1.0])
    assert figure.data[0].customdata[0] == 0.0, "the pointer shows what it is"
    assert figure.layout.title.text == "a year"
    assert "%" in figure.layout.yaxis.title.text


def test_what_has_no_limit_is_a_level():
    result = lines(limits(POINTS, (None, 0.5, 0.0), title=""))
    assert result["waste now"] == ([1, 64], [50.0, 50.0])
    assert result["loss now"] == ([1, 64], [LEAST, LEAST])
    assert lines(limits([], (None, 0.5, 0.0), title=""))["waste now"] == ([], [])


def test_another_curve_takes_its_place():
    figure = limits(POINTS, (16, 0.003, 0.01), title="a")
    curve(figure, POINTS[:2], (1, 0.5, 0.25), title="b")
    assert lines(figure) == lines(limits(POINTS[:2], (1, 0.5, 0.25), title="b"))
    assert figure.layout.title.text == "b"
