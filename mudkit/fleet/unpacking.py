"""What is only packed is in clear: whoever holds it can open it, without a key.

Compressed bytes (gzip, zlib, deflate, bzip2, xz), JSON, MessagePack, and texts in base64, base32 or
hexadecimal digits are opened, one in another, too. What is sealed with a key stays closed, and so does what
is packed in a way that nobody else knows.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from mudkit.wire import is_too_deep

__all__ = ["LEAST_PACKED", "MOST_BYTES", "Opened", "Room", "opened"]

MOST_BYTES: Final = 1 << 24
"""So much is made of one value that somebody holds: of a few kilobytes gzip can make gigabytes."""
_DEEPEST: Final = 8
_LEAST: Final = 16
"""Of fewer bytes, texts and other codes mean something by chance."""
LEAST_PACKED: Final = 22
"""In fewer letters nothing is packed, but for JSON: 16 bytes are so many in base64."""
_CODED: Final = re.compile(rb"[A-Za-z0-9+/_-]{%d,}={0,6}" % LEAST_PACKED)
_HEX: Final = re.compile(rb"(?:[0-9a-f]{2}|[0-9A-F]{2})+")
_BASE32: Final = re.compile(rb"[A-Z2-7]+=*")
_INFLATES: Final[tuple[tuple[bytes, Callable[[], Any]], ...]] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lzma.LZMADecompressor),
    (b"x", zlib.decompressobj),
)
"""How compressed bytes begin, and what opens them."""
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


class Room:
    """How much may still be made of one value, and how often what came out may be opened again."""

    __slots__ = ("bytes", "layers")

    def __init__(self) -> None:
        self.bytes, self.layers = MOST_BYTES, _DEEPEST


class Opened(NamedTuple):
    """What was in something packed.

    Parameters
    ----------
    value : object
        Bytes, or what JSON or MessagePack hold.
    is_all : bool
        Whether there was nothing else; else the rest can be read as it is.
    """

    value: Any
    is_all: bool


def opened(data: bytes, room: Room) -> Opened | None:
    """Open one layer of what is packed.

    Parameters
    ----------
    data : bytes
        A text is given as UTF-8.
    room : Room
        It becomes less.

    Returns
    -------
    Opened or None
        None if there is nothing to open, or no room.

    Examples
    --------
    >>> import gzip
    >>> opened(gzip.compress(b'{"to": "bob"}'), Room())
    Opened(value={'to': 'bob'}, is_all=True)
    >>> opened(b"to bob", Room()) is None
    True
    """
    if len(data) < 2 or not room.layers or room.bytes <= 0:
        return None
    if _is_text(data):
        return _opened_text(data, room)
    inflated = _inflated(data, room)
    if inflated is not None:
        value = _json(inflated)
        return Opened(inflated if value is None else value, True)
    value = _msgpack(data)
    return None if value is None else Opened(value, True)


def _opened_text(text: bytes, room: Room) -> Opened | None:
    if value := _json(text):
        room.bytes -= len(text)
        return Opened(value, True)
    parts = []
    for run in _CODED.finditer(text):
        decoded = _decoded(run[0], room)
        if decoded is not None:
            if len(run[0]) == len(text.strip()):
                return Opened(decoded, True)
            parts.append(decoded)
    room.bytes -= sum(map(len, parts))
    return Opened(parts, False) if parts else None


def _decoded(run: bytes, room: Room) -> bytes | None:
    """Give what a run of letters stands for, if that means something."""
    for decoded in _codes(run):
        if len(decoded) >= _LEAST and (_is_text(decoded) or opened(decoded, room) is not None):
            return decoded
    return None


def _codes(run: bytes) -> Iterator[bytes]:
    """Give what letters stand for, in all codes that have these letters."""
    letters = run.rstrip(b"=")
    if _HEX.fullmatch(letters):
        yield binascii.unhexlify(letters)
    if _BASE32.fullmatch(run):
        with suppress(binascii.Error):
            yield base64.b32decode(letters + b"=" * (-len(letters) % 8))
    if len(letters) % 4 != 1:
        yield base64.b64decode(letters.translate(_URL_SAFE) + b"=" * (-len(letters) % 4))


_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def _inflated(data: bytes, room: Room) -> bytes | None:
    for magic, inflater in _INFLATES:
        if data.startswith(magic) and (inflated := _inflated_by(inflater(), data, room)) is not None:
            return inflated
    inflated = _inflated_by(zlib.decompressobj(-15), data, room)
    means = (
        inflated is not None
        and len(inflated) >= _LEAST
        and (_is_text(inflated) or opened(inflated, room) is not None)
    )
    return inflated if means else None


def _inflated_by(inflate: Any, data: bytes, room: Room) -> bytes | None:
    """Give what comes out: all of it, or as much as there is room for."""
    try:
        out: bytes = inflate.decompress(data, room.bytes)
    except (zlib.error, lzma.LZMAError, OSError, EOFError):
        return None
    if inflate.eof or len(out) >= room.bytes:
        room.bytes -= len(out)
        return None if inflate.eof and inflate.unused_data else out
    return None


def _json(text: bytes) -> Any:
    """Give the object or list that a text is in JSON."""
    if text.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _msgpack(data: bytes) -> Any:
    """Give the map or list with a text in it that bytes are in MessagePack."""
    if len(data) < 2 or (data[0] & 0xE0 != 0x80 and data[0] not in (0xDC, 0xDD, 0xDE, 0xDF)):
        return None
    try:
        value = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError):
        return None
    return value if not is_too_deep(value) and any(len(each) > 1 for each in _strings(value)) else None


def _strings(value: Any) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _strings(name)
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, str):
        yield value.encode(errors="replace")
    elif isinstance(value, bytes):
        yield value


def _is_text(data: bytes) -> bool:
    """Say whether bytes are letters that somebody can read."""
    try:
        return _CONTROLS.search(data.decode()) is None
    except UnicodeDecodeError:
        return False
