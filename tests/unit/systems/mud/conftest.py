"""Fixtures shared by the tests of MUD tables."""

from __future__ import annotations

import pytest
from mud_place import Place


@pytest.fixture
def place():
    return Place()
