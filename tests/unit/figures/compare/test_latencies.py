"""Lines end at what was useful of what was wanted."""

from __future__ import annotations

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.compare.latencies import latencies

TABLE = pd.DataFrame({"system": ["a"] * 3 + ["b"], "latency_s": [4.0, 1.0, 200.0, 0.0]})


def line(figure, name):
    (result,) = [each for each in figure.data if each.name == name]
    return list(zip(result.x, result.y, strict=True))


def test_a_line_says_how_much_was_there_by_when():
    figure = latencies(TABLE, {"a": 4, "b": 4, "c": 4}, title="Soon")
    assert line(figure, "a") == [(0.001, 0), (1, 25), (4, 50), (200, 75), (200, 75)]
    assert line(figure, "b") == [(0.001, 0), (0.001, 25), (200, 25)]
    assert line(figure, "c") == [(0.001, 0), (200, 0)]
    assert len({(each.line.color, each.line.dash) for each in figure.data}) == 3
    assert figure.layout.xaxis.title.text.endswith(", s")
    assert figure.layout.yaxis.title.text.startswith("useful, %")


def test_many_deliveries_are_a_line_of_some_points():
    many = pd.DataFrame({"system": "a", "latency_s": [float(each) for each in range(5000)]})
    result = line(latencies(many, {"a": 10_000}, title=""), "a")
    assert len(result) < 250
    assert result[-1] == (4999, 50)
    assert all(y == pytest.approx((x + 1) / 100) for x, y in result[3:-1])


def test_what_cannot_be_drawn():
    with pytest.raises(ParameterError, match="latency_s"):
        latencies(TABLE[["system"]], {"a": 1}, title="")
    with pytest.raises(ParameterError, match="b"):
        latencies(TABLE, {"a": 1}, title="")
