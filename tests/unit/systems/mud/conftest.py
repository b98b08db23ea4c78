"""What the tests of MUD tables share."""

from __future__ import annotations

import pytest
from mud_place import Place


@pytest.fixture
def place():
    return Place()
