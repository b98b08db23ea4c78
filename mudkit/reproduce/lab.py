"""The rows of the lab itself."""

from __future__ import annotations

from typing import Final

from mudkit.reproduce import compiling
from mudkit.reproduce.row import Required, Row

__all__ = ["ROWS"]

ROWS: Final = (
    Row(
        name="F5",
        source="the lab",
        paper="None: a predicate is parsed and compiled once a text.",
        required=(
            Required("µs for a new text", "below", 500),
            Required("µs for a new text of a new structure", "below", 500),
            Required("µs for a known shape with new :parameters", "below", 10),
            Required("µs for a known shape with new :parameters, near the reader", "below", 10),
            Required("µs a record", "below", 3),
        ),
        measure=compiling.measure,
        is_speed=True,
    ),
)
