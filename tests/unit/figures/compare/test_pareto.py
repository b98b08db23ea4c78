"""The front is a line, what is beaten is told apart without colour, and what has no value is named."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.compare.pareto import fill, pareto

TABLE = pd.DataFrame(
    {
        "system": ["all", "some", "few", "bad", "none", "twin"],
        "J": [90.0, 20.0, 5.0, 60.0, math.nan, 20.0],
        "share": [1.0, 0.9, 0.4, 0.3, 0.0, 0.9],
        "is_best": [True, True, True, False, False, True],
    }
)
WAYS = {"x": "J", "y": "share", "labels": ("radios, J", "useful"), "title": "Price"}


def traces(figure):
    return {each.name: each for each in figure.data}


def test_the_front_is_drawn_in_order():
    figure = pareto(TABLE, **WAYS)
    line, best, beaten = figure.data
    assert (line.x, line.y) == ((5, 20, 90), (0.4, 0.9, 1.0))
    assert dict(zip(best.text, best.x, strict=True)) == {"all": 90, "some, twin": 20, "few": 5}
    assert (beaten.text, beaten.y) == (("bad",), (0.3,))
    assert best.marker.symbol != beaten.marker.symbol
    assert figure.layout.title.subtitle.text == "without a value: none"
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("radios, J", "useful")
    assert figure.layout.xaxis.range[1] > 90


def test_another_table_takes_its_place():
    figure = pareto(TABLE, **WAYS)
    fill(figure, TABLE[TABLE["system"] == "bad"], **WAYS | {"title": "One"})
    line, best, beaten = figure.data
    assert (line.x, best.x, beaten.text) == ((), (), ("bad",))
    assert (figure.layout.title.text, figure.layout.title.subtitle.text) == ("One", "")
    fill(figure, TABLE.head(0), **WAYS)
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
    figure = pareto(near, **WAYS)
    answer = [
        (text, place)
        for each in figure.data[1:]
        for text, place in zip(each.text, each.textposition, strict=True)
    ]
    assert answer == [
        ("one of them", "top center"),
        ("another", "bottom center"),
        ("a third<br> ", "top center"),
        (" <br>the last", "bottom center"),
    ]
    assert figure.data[2].customdata[1].startswith("a third<br>91")


def test_what_cannot_be_drawn():
    with pytest.raises(ParameterError, match="is_best"):
        pareto(TABLE.drop(columns="is_best"), **WAYS)
