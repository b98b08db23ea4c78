"""Checks of arguments of the systems' APIs: values that machines store and send."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

MAX_VALUE_DEPTH: Final = 64
"""Maximum nesting of lists and mappings in an application's value."""


def is_storable(value: Any, deepest: int = MAX_VALUE_DEPTH, *, has_bytes: bool = False) -> bool:
    """Return whether a store returns a value unchanged and a message can carry it.

    ``deepest`` is the allowed nesting of lists and mappings. ``has_bytes`` allows bytes, which JSON cannot
    hold: machines of one lab send them, and stores keep them.
    """
    kind = type(value)
    if kind is str:
        return value.isascii() or _is_text(value)
    if kind is int:
        return bool(-(1 << 63) <= value < 1 << 63)
    if kind is float:
        return isfinite(value)
    if value is None or kind is bool or (kind is bytes and has_bytes):
        return True
    if not deepest:
        return False
    if kind is dict:
        return all(
            type(name) is str and is_storable(name) and is_storable(item, deepest - 1, has_bytes=has_bytes)
            for name, item in value.items()
        )
    return kind is list and all(is_storable(item, deepest - 1, has_bytes=has_bytes) for item in value)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        return False
    return True
