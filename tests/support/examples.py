"""How many examples Hypothesis draws for a test, by the profile of the run."""

from __future__ import annotations

from hypothesis import settings

TYPICAL = 100
"""What Hypothesis itself draws: a test that needs more or fewer says how many beside it."""


def examples(count: int) -> settings:
    """Return settings for a test that draws this many where another draws 100."""
    return settings(max_examples=max(5, count * settings.default.max_examples // TYPICAL))
