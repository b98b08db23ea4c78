"""The rows of the lab itself."""

from __future__ import annotations

from typing import Final

from mudkit.reproduce import compiling, kernel
from mudkit.reproduce.row import Required, Row

__all__ = ["ROWS"]

ROWS: Final = (
    Row(
        name="F1",
        source="the lab",
        paper="None: how many events of devices the kernel handles, and how large a fleet it holds.",
        required=(
            Required("handled events/s", "at least", 200_000),
            Required("MB at the peak, large fleet", "below", 1000),
            # What a fleet of 10,000 does in a day, a report each ten minutes and a position each minute.
            Required("positions", "at least", 10_000 * 24 * 60),
            Required("messages", "at least", 10_000 * (24 * 6 - 1) * 2),
        ),
        measure=kernel.measure,
        is_speed=True,
    ),
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
