"""Waste and loss over a setting."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.compare.sizing import tradeoff

TABLE = pd.DataFrame(
    {
        "limit": [0, 4, 16],
        "waste": [0.0, 0.1, 0.2],
        "waste_low": [0.0, 0.05, 0.1],
        "waste_high": [0.0, 0.2, 0.4],
        "loss": [0.9, 0.5, 0.0],
        "loss_low": [np.nan] * 3,
        "loss_high": [np.nan] * 3,
    }
)


def draw(table=TABLE, **given):
    return tradeoff(table, **{"x": "limit", "best": 4, "title": "Limits", "unit": "messages"} | given)


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


def test_what_cannot_be_drawn():
    with pytest.raises(ParameterError, match="loss_high"):
        draw(TABLE.drop(columns="loss_high"))
    with pytest.raises(ParameterError, match="5"):
        draw(best=5)
