"""Searches for a rule, drawn as a grid."""

import pandas as pd

from mudkit import figures
from mudkit.learning import FixedRule


def test_allowed_rules_show_what_they_send_and_the_others_what_is_stale():
    rows = [(1.0, 5.0, 0.9, 0.0, True), (1.0, 10.0, 0.5, 0.02, True), (2.0, 5.0, 0.4, 0.3, False)]
    table = pd.DataFrame(rows, columns=["km", "minutes", "sent_share", "stale_share", "is_allowed"])
    drawn = figures.rule_search(table, rule=FixedRule(1.0, 5.0), best=FixedRule(1.0, 10.0), title="Rules")
    texts = [each.text for each in drawn.layout.annotations]
    assert texts[:3] == ["90", "50", "(30 stale)"]
    assert [shape.line.dash for shape in drawn.layout.shapes] == ["dot", "solid"]
    assert list(drawn.data[0].x) == ["5 min", "10 min"]


def test_colours_of_equal_shares_end_at_100_percent():
    rows = [(km, age, 1.0, 0.0, True) for km in (1.0, 2.0) for age in (5.0, 10.0)]
    table = pd.DataFrame(rows, columns=["km", "minutes", "sent_share", "stale_share", "is_allowed"])
    rule = FixedRule(1.0, 5.0)
    drawn = figures.rule_search(table, rule=rule, best=rule, title="Rules").data[0]
    assert (drawn.zmin, drawn.zmax) == (99, 100)
