"""Every measure has a label and a direction, and the front follows both."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.experiment.scoreboard import MEASURES
from mudkit.experiment.scoreboard.axes import GAINS, LABELS, front

TABLE = pd.DataFrame(
    {
        "system": ["a", "b", "c", "d", "e"],
        "useful_share": [1.0, 0.5, 0.5, 0.9, 1.0],
        "battery_h": [10.0, 40.0, 30.0, 20.0, math.nan],
        "radio_j": [9.0, 1.0, 2.0, 10.0, 5.0],
        "lost": [0.0, 5.0, 6.0, 1.0, 0.0],
    }
)


def best(x, y):
    result = front(TABLE, x, y)
    return set(result.loc[result["is_best"], "system"])


def test_each_measure_has_a_label():
    assert set(LABELS) == set(MEASURES)
    assert set(MEASURES) > GAINS
    assert len(set(LABELS.values())) == len(LABELS)


def test_a_gain_against_a_cost_either_way_round():
    assert best("radio_j", "useful_share") == best("useful_share", "radio_j") == {"b", "e"}


def test_two_gains_and_two_costs():
    assert best("battery_h", "useful_share") == {"a", "b", "d"}, "e has no value"
    assert best("radio_j", "lost") == {"b", "e"}


@pytest.mark.parametrize(("x", "y"), [("radio_j", "radio_j"), ("up_kb", "radio_j"), ("system", "radio_j")])
def test_what_are_no_two_measures(x, y):
    with pytest.raises(ParameterError, match="useful_share"):
        front(TABLE, x, y)
