"""Number of Hypothesis examples of a test, scaled by the profile of the run."""

from __future__ import annotations

from hypothesis import settings

DEFAULT_EXAMPLES = 100
"""Default of Hypothesis, to which the counts of tests are relative."""


def examples(count: int) -> settings:
    """Return settings with this many examples per 100 examples of the profile's default."""
    return settings(max_examples=max(1, count * settings.default.max_examples // DEFAULT_EXAMPLES))
