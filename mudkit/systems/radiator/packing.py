"""How messages go over the network: as JSON, by default compressed (Radiator 4.3, 4.4), requests included."""

from __future__ import annotations

import gzip
import zlib
from typing import Final

import msgspec

from mudkit.errors import ParameterError
from mudkit.wire import Value

__all__ = ["LEVEL", "MAX_BYTES", "check_size", "inflated", "pack", "unpack"]

LEVEL: Final = 6
"""gzip's usual one."""
MAX_BYTES: Final = 1 << 24
"""As JSON, no message is larger: of a few kilobytes gzip can make gigabytes."""
_ROOM_BYTES: Final = 1 << 20
"""Of a message, for what is sent beside a context."""
_MAGIC: Final = b"\x1f\x8b"

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def pack(message: Value | msgspec.Struct, compress: bool) -> bytes:
    """Encode a message for the network.

    Parameters
    ----------
    message : object
        Plain data that JSON can encode.
    compress : bool
        Whether the bytes are compressed.

    Raises
    ------
    TypeError
        JSON cannot hold it.
    """
    text = _encode(message)
    return gzip.compress(text, LEVEL, mtime=0) if compress else text


def unpack(sent: bytes) -> Value:
    """Decode what :func:`pack` encoded, with lists for tuples; None if the bytes are no such message.

    It raises for no bytes at all, and makes no more than :data:`MAX_BYTES` of them.

    Parameters
    ----------
    sent : object
        What arrived from the network.
    """
    try:
        text = inflated(sent)
        return None if text is None else _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def inflated(sent: bytes) -> bytes | None:
    """Give the JSON of what was sent; None if it is too large, or was not compressed as :func:`pack` does."""
    if sent[:2] == _MAGIC:
        inflate = zlib.decompressobj(31)
        try:
            text = inflate.decompress(sent, MAX_BYTES)
        except zlib.error:
            return None
        return text if inflate.eof and not inflate.unused_data else None
    return sent if len(sent) <= MAX_BYTES else None


def check_size(where: str, text: bytes) -> None:
    """Refuse what nobody would take.

    Raises
    ------
    ParameterError
    """
    if len(text) > MAX_BYTES - _ROOM_BYTES:
        raise ParameterError(
            "This is too large to be sent.",
            where=where,
            found=f"{len(text):,} bytes as JSON",
            expected=f"{MAX_BYTES - _ROOM_BYTES:,} at most",
        )
