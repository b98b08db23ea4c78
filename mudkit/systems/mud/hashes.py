"""Hashes of values, by which the history of a run tells them apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["value_hash"]


def value_hash(data: Mapping[str, Any] | None) -> str | None:
    """Give 16 hexadecimal digits of a record's columns; None for no record."""
    if data is None:
        return None
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()[:16]
