"""Hashes of values, by which the history of a run tells them apart."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

__all__ = ["value_hash"]

_encode = msgspec.json.Encoder(order="sorted").encode


def value_hash(data: Mapping[str, Any] | None) -> str | None:
    """Give 16 hexadecimal digits of a record's columns; None for no record."""
    if data is None:
        return None
    return blake2b(_encode(data), digest_size=8).hexdigest()
