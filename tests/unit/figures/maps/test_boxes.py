"""Squares are where they were asked for, and the point that is missing is marked."""

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.maps.boxes import boxes

TABLE = pd.DataFrame(
    [("before", 1.0, 0.0, 4.0, False), ("now", 0.0, 2.0, 2.0, True)],
    columns=["name", "x_km", "y_km", "box_km", "is_asked"],
)


def test_squares_and_a_point():
    figure = boxes(TABLE, title="T", lacking=(-1.0, 3.0, "may be missing"))
    before, _, now, _, point = figure.data
    assert (min(before.x), max(before.x), min(before.y), max(before.y)) == (-1, 3, -2, 2)
    assert (min(now.x), max(now.x), min(now.y), max(now.y)) == (-1, 1, 1, 3)
    assert (point.x[0], point.y[0], point.name) == (-1, 3, "may be missing")
    assert before.line.dash != now.line.dash
    assert figure.layout.yaxis.scaleanchor == "x"


def test_nothing_is_missing():
    assert len(boxes(TABLE, title="T").data) == 4
    with pytest.raises(ParameterError, match="box_km"):
        boxes(TABLE.drop(columns="box_km"), title="T")
