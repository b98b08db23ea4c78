"""Waste and loss of policies under conditions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.compare.conditions import MAX_CONDITIONS, waste_and_loss


def table(conditions=("generated", "recorded"), policies=("on-line", "buffer")):
    rows = [
        (condition, policy, 0.1 * i, 0.08 * i, 0.15 * i, 0.2, np.nan, np.nan)
        for condition in conditions
        for i, policy in enumerate(policies, start=1)
    ]
    names = ["waste", "waste_low", "waste_high", "loss", "loss_low", "loss_high"]
    return pd.DataFrame(rows, columns=["condition", "policy", *names])


def test_a_mark_for_each_condition_with_its_interval():
    figure = waste_and_loss(table(), title="Conditions")
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
    figure = waste_and_loss(table(tuple("abcde")), title="")
    rows = np.round([trace.y for trace in figure.data])
    assert (rows == [0, 1]).all()
    assert len({trace.y[0] for trace in figure.data}) == 5
    assert figure.layout.xaxis.range[1] > 30


def test_what_cannot_be_drawn():
    with pytest.raises(ParameterError, match="loss_low"):
        waste_and_loss(table().drop(columns="loss_low"), title="")
    with pytest.raises(ParameterError, match=str(MAX_CONDITIONS)):
        waste_and_loss(table(tuple("abcdef")), title="")
