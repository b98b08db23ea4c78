"""Figure of the days of a cloud that learns."""

import pandas as pd
import pytest

from mudkit import figures
from mudkit.errors import ParameterError


def build_days(policies, reports, sent=0.5):
    days = range(1, len(policies) + 1)
    shares = {"sent_share": sent, "stale_share": 0.1, "radio_j": 5000.0}
    return pd.DataFrame({"day": days, "policy_in_use": policies, "reports": reports, **shares})


def draw(**more):
    reports = ["while driving", "while driving", "at any time"]
    runs = {
        "own": build_days(["own rule"] * 3, reports, 0.9),
        "learns": build_days(["own rule", "age", "age"], reports),
    }
    return figures.learning_days({**runs, **more}, max_stale_share=0.15, title="Days")


def test_policy_is_named_where_it_changes_and_only_of_the_fleet_that_learns():
    texts = {(note.text, note.x) for note in draw().layout.annotations}
    assert {("own rule", 1), ("age", 2)} <= texts
    assert sum(text == "age" for text, _ in texts) == 1


def test_change_of_the_reports_is_marked_between_two_days():
    figure = draw()
    assert ("cars report at any time", 2.5) in {(note.text, note.x) for note in figure.layout.annotations}
    assert 2.5 in {line.x0 for line in figure.layout.shapes}


def test_limit_is_drawn_in_percent_in_the_panel_of_stale_answers():
    limits = [line for line in draw().layout.shapes if line.y0 == line.y1 == 15.0]
    assert [line.yref for line in limits] == ["y2"]


def test_panels_have_percent_and_kilojoules():
    figure = draw()
    assert [list(trace.y) for trace in figure.data[:3]] == [[90.0] * 3, [10.0] * 3, [5.0] * 3]


def test_other_than_two_fleets_are_refused():
    with pytest.raises(ParameterError, match="two fleets"):
        draw(third=build_days(["age"], ["at any time"]))
