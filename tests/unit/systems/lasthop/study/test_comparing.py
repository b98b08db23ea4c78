"""Policies on the same events: means over seeds, and their intervals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mudkit.errors import ParameterError
from mudkit.systems.lasthop import Forwarding, Push
from mudkit.systems.lasthop.study.comparing import compare, interval
from mudkit.systems.lasthop.study.scenario import Scenario


def test_policies_are_compared_on_the_same_events():
    table = compare(
        {"few": Scenario(days=20), "none": replace(Scenario(days=20), user_frequency=0.0)},
        {"on-line": Forwarding("on-line"), "on-demand": Forwarding("on-demand"), "push": Push()},
        seeds=range(3),
    )
    assert table[["condition", "policy"]].agg(" ".join, axis=1).tolist() == [
        f"{condition} {policy}"
        for condition in ("few", "none")
        for policy in ("on-line", "on-demand", "push")
    ]
    assert (table["runs"] == 3).all()
    rows = table.set_index(["condition", "policy"])
    assert (rows.loc[(slice(None), "on-line"), "loss"] == 0.0).all()
    assert (rows.loc[(slice(None), "on-demand"), "waste"] == 0.0).all()
    assert rows.loc[("none", "on-line"), "waste"] == 1.0
    few = rows.loc[("few", "on-line")]
    assert 0.4 < few["waste_low"] < few["waste"] < few["waste_high"] < 0.6


def test_intervals_lie_within_what_was_seen():
    values = np.array([0.2, 0.3, 0.25, 0.4])
    assert interval("x", values) == pytest.approx({"x": 0.2875, "x_low": 0.2, "x_high": 0.4})
    of_many = interval("x", np.array([0.0, 0.1, 0.0, 0.2, 0.0, 0.1]))
    assert 0.0 <= of_many["x_low"] < of_many["x"] < of_many["x_high"] < 0.2
    one = interval("x", values[:1])
    assert one["x"] == 0.2
    assert one["x_low"] != one["x_low"]


def test_nothing_to_compare():
    with pytest.raises(ParameterError, match="0 policies"):
        compare({"a": Scenario()}, {})
    for wrong in ({"max": -1}, {"threshold": math.nan}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            compare({"a": Scenario()}, {"b": Forwarding("on-line")}, **wrong)
