"""Opening of data that is packed without a key: a party that holds it can read it.

Compressed bytes (gzip, zlib, deflate, bzip2, xz), JSON, MessagePack, and texts in base64, base32 or
hexadecimal digits are opened, also nested. Encrypted data and unknown encodings stay closed.
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

MAX_BYTES: Final = 1 << 24
"""Maximum size of the opened content of one value: a few kilobytes of gzip can expand to gigabytes."""
_MAX_LAYERS: Final = 8
_MIN_DECODED: Final = 16
"""Minimum decoded size; shorter data decodes by chance."""
MIN_PACKED: Final = 22
"""Minimum length of an encoded text, JSON apart: 16 bytes in base64."""
_CODED: Final = re.compile(rb"[A-Za-z0-9+/_-]{%d,}={0,6}" % MIN_PACKED)
_HEX: Final = re.compile(rb"(?:[0-9a-f]{2}|[0-9A-F]{2})+")
_BASE32: Final = re.compile(rb"[A-Z2-7]+=*")
_DECOMPRESSORS: Final[tuple[tuple[bytes, Callable[[], Any]], ...]] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lzma.LZMADecompressor),
    (b"x", zlib.decompressobj),
)
"""Magic numbers of compressed data, and their decompressors."""
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


class Budget:
    """Remaining limits for one value: bytes, and layers of nesting."""

    __slots__ = ("bytes", "layers")

    def __init__(self) -> None:
        self.bytes, self.layers = MAX_BYTES, _MAX_LAYERS


class Unpacked(NamedTuple):
    """Content of packed data: bytes, JSON or MessagePack; ``is_all`` unless text surrounds it."""

    value: Any
    is_all: bool


def unpack(data: bytes, budget: Budget) -> Unpacked | None:
    """Open one layer of packed data; return None if there is nothing to open, or no budget.

    Text is passed as UTF-8. ``budget`` is reduced.

    Examples
    --------
    >>> import gzip
    >>> unpack(gzip.compress(b'{"to": "bob"}'), Budget())
    Unpacked(value={'to': 'bob'}, is_all=True)
    >>> unpack(b"to bob", Budget()) is None
    True
    """
    if len(data) < 2 or not budget.layers or budget.bytes <= 0:
        return None
    if _is_text(data):
        return _unpack_text(data, budget)
    inflated = _decompress(data, budget)
    if inflated is not None:
        value = _decode_json(inflated)
        return Unpacked(inflated if value is None else value, True)
    value = _decode_msgpack(data)
    return None if value is None else Unpacked(value, True)


def _unpack_text(text: bytes, budget: Budget) -> Unpacked | None:
    """Open a text: JSON, one encoded run, or the encoded runs in it; None: it has none of these."""
    if value := _decode_json(text):
        budget.bytes -= len(text)
        return Unpacked(value, True)
    parts = []
    for run in _CODED.finditer(text):
        decoded = _decode_run(run[0], budget)
        if decoded is not None:
            if len(run[0]) == len(text.strip()):
                return Unpacked(decoded, True)
            parts.append(decoded)
    budget.bytes -= sum(map(len, parts))
    return Unpacked(parts, False) if parts else None


def _decode_run(run: bytes, budget: Budget) -> bytes | None:
    """Return the content of a run of letters in base64, base32 or hexadecimal; None: it means nothing."""
    for decoded in _decodings(run):
        if len(decoded) >= _MIN_DECODED and (_is_text(decoded) or unpack(decoded, budget) is not None):
            return decoded
    return None


def _decodings(run: bytes) -> Iterator[bytes]:
    """Yield the content of a run of letters in all encodings that have these letters."""
    letters = run.rstrip(b"=")
    if _HEX.fullmatch(letters):
        yield binascii.unhexlify(letters)
    if _BASE32.fullmatch(run):
        with suppress(binascii.Error):
            yield base64.b32decode(letters + b"=" * (-len(letters) % 8))
    if len(letters) % 4 != 1:
        yield base64.b64decode(letters.translate(_URL_SAFE) + b"=" * (-len(letters) % 4))


_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def _decompress(data: bytes, budget: Budget) -> bytes | None:
    """Return the content of compressed data by its magic number, or of deflate; None: it is neither."""
    for magic, inflater in _DECOMPRESSORS:
        if data.startswith(magic) and (inflated := _decompress_by(inflater(), data, budget)) is not None:
            return inflated
    inflated = _decompress_by(zlib.decompressobj(-15), data, budget)
    means = (
        inflated is not None
        and len(inflated) >= _MIN_DECODED
        and (_is_text(inflated) or unpack(inflated, budget) is not None)
    )
    return inflated if means else None


def _decompress_by(inflate: Any, data: bytes, budget: Budget) -> bytes | None:
    """Return what one decompressor makes of the data, cut at the budget, which is reduced by it.

    None: the data are of another format, are truncated, or are followed by others.
    """
    try:
        out: bytes = inflate.decompress(data, budget.bytes)
    except (zlib.error, lzma.LZMAError, OSError, EOFError):
        return None
    if inflate.eof or len(out) >= budget.bytes:
        budget.bytes -= len(out)
        return None if inflate.eof and inflate.unused_data else out
    return None


def _decode_json(text: bytes) -> Any:
    """Decode a JSON object or list, or return None."""
    if text.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _decode_msgpack(data: bytes) -> Any:
    """Decode a MessagePack map or list that has a text in it, or return None."""
    if len(data) < 2 or (data[0] & 0xE0 != 0x80 and data[0] not in (0xDC, 0xDD, 0xDE, 0xDF)):
        return None
    try:
        value = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError):
        return None
    return value if not is_too_deep(value) and any(len(text) > 1 for text in _strings(value)) else None


def _strings(value: Any) -> Iterator[bytes]:
    """Yield all texts and bytes in a nested value, as bytes."""
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
    """Return whether bytes are printable UTF-8."""
    try:
        return _CONTROLS.search(data.decode()) is None
    except UnicodeDecodeError:
        return False
