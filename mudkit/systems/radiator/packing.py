"""How messages go over the network: as JSON, by default compressed (Radiator 4.3, 4.4), requests included."""

from __future__ import annotations

import gzip
import zlib
from typing import Any, Final

import msgspec

__all__ = ["LEVEL", "pack", "unpack"]

LEVEL: Final = 6
"""gzip's usual one."""
_MAGIC: Final = b"\x1f\x8b"

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def pack(message: Any, compress: bool) -> bytes:
    """Give a message as it is sent.

    Raises
    ------
    TypeError
        JSON cannot hold it.
    """
    text = _encode(message)
    return gzip.compress(text, LEVEL, mtime=0) if compress else text


def unpack(sent: bytes) -> Any:
    """Give what :func:`pack` was given, with lists for tuples."""
    return _decode(zlib.decompress(sent, 31) if sent[:2] == _MAGIC else sent)
