"""What a policy may use: whoever goes beyond is stopped, and nobody else notices."""

from __future__ import annotations

from typing import Final

__all__ = [
    "MAX_ACTIONS",
    "MAX_BOOKS_BYTES",
    "MAX_CPU_S",
    "MAX_KEYS",
    "MAX_LINES",
    "MAX_MESSAGE_BYTES",
    "MAX_RULES",
    "MAX_STATE_BYTES",
    "MAX_TEXT",
    "MAX_VARIABLES",
]

MAX_TEXT: Final = 65_536
"""Characters of a policy's text."""
MAX_RULES: Final = 64
MAX_ACTIONS: Final = 16
"""Of a rule."""
MAX_VARIABLES: Final = 64
"""Manual ones of a subscriber, without the books of rate limits and summaries."""
MAX_STATE_BYTES: Final = 65_536
"""Of all manual variables of a subscriber, as JSON, without the books of rate limits and summaries."""
MAX_MESSAGE_BYTES: Final = 262_144
"""Of a message that a policy makes, as it is sent."""
MAX_KEYS: Final = 1_000
"""For so many values of ``per`` a rate limit or a summary keeps books; beyond, it forgets the oldest."""
MAX_BOOKS_BYTES: Final = 131_072
"""Of all books of a policy, as JSON: they forget their oldest keys, and stop no message for want of room."""
MAX_LINES: Final = 20_000
"""Lines of Python that a policy function, or a registered method, may run for one message."""
MAX_CPU_S: Final = 2.0
"""Processor time that it may take: of a call into a library no lines are counted."""
