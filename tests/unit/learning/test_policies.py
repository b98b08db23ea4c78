"""Policies in words."""

from __future__ import annotations

import math

import pytest

from mudkit.learning import FixedRule
from mudkit.learning.policies import describe_policy


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (FixedRule(1.0, 10.0), "from within 1 km and at most 10 min old"),
        (FixedRule(math.inf, 90.0), "at most 1 h 30 min old"),
        (
            FixedRule(math.inf, (120.0,) * 6 + (5.0,) * 16 + (120.0,) * 2),
            "at most 5 min old from 06:00 to 22:00, else at most 2 h old",
        ),
        (
            FixedRule(0.25, (0.0,) * 8 + (30.0,) * 16),
            "from within 250 m and at most 30 min old from 08:00 to 24:00, else never used",
        ),
        (
            FixedRule(math.inf, (9.0,) * 17 + (60.0,) * 20 + (9.0,) * 35),
            "at most 1 h old from 05:40 to 12:20, else at most 9 min old",
        ),
        (FixedRule(math.inf, (5.0,) * 48), "at most 5 min old"),
        (FixedRule(math.inf, tuple(map(float, range(24)))), "at most 0 s to 23 min old, by the time of day"),
    ],
)
def test_rules_are_described_in_words(rule, text):
    assert describe_policy(rule) == text
