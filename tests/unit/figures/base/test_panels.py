"""Bars of several measures: each has its panel, and its unit at the axis."""

from __future__ import annotations

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.base.panels import panels

TABLE = pd.DataFrame({"way": ["a", "b"], "kB": [1234.5, 2.0], "wait": [0.25, 0.0], "bad": [False, True]})
MEASURES = {"kB": "sent, kB", "wait": "mean wait, s"}


def test_each_measure_has_a_panel_with_its_unit():
    figure = panels(TABLE, MEASURES, title="cost", y="way")
    assert [tuple(trace.x) for trace in figure.data] == [(1234.5, 2.0), (0.25, 0.0)]
    assert (figure.layout.xaxis.title.text, figure.layout.xaxis2.title.text) == ("sent, kB", "mean wait, s")
    assert figure.data[0].text == ("1,234", "2")
    assert figure.data[1].text == ("0.25", "0")
    assert figure.layout.yaxis.autorange == "reversed"
    assert figure.layout.xaxis.range[1] > 1234.5


def test_what_is_marked_is_told_apart_without_colour():
    figure = panels(TABLE, MEASURES, title="cost", y="way", marked="bad")
    assert figure.data[0].y == ("a", "✗ b")
    assert figure.data[0].marker.pattern.shape == ("", "/")


def test_nothing_may_be_missing():
    with pytest.raises(ParameterError, match="mJ"):
        panels(TABLE, {"mJ": "energy, mJ"}, title="cost", y="way")


def test_zeros_and_nothing_are_drawn():
    assert panels(TABLE.head(0), MEASURES, title="", y="way").layout.xaxis.range == (0, 1)
    assert panels(TABLE.tail(1), MEASURES, title="", y="way").layout.xaxis2.range == (0, 1)


def test_nearly_a_hundred_is_a_hundred():
    assert panels(TABLE.assign(kB=[99.9, 9.96]), MEASURES, title="", y="way").data[0].text == ("100", "10")
