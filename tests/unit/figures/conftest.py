"""Examples of all kinds of figures, drawn once."""

from functools import cache

import pytest
from figure_gallery import FIGURES


@pytest.fixture(scope="session")
def gallery():
    """Return the example of a kind of figure; tests do not change it."""
    return cache(lambda name: FIGURES[name]())
