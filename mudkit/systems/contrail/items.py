"""Items of applications, results of publishing, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from mudkit.errors import MudkitError, ParameterError, brief
from mudkit.wire import Fields, Value, is_too_deep

MAX_BYTES: Final = 1 << 20
"""Limit of an item: metadata and payload."""
_MAX_NAME: Final = 200
_LENGTH: Final = 4
_HEAD: Final = 6
"""Bytes of the header: length of the metadata, length of the delivery name."""

Endpoint = tuple[str, str]
"""A device and one of its ports."""
Metadata: TypeAlias = Fields
"""Metadata of an item: a mapping that JSON can hold."""
_read: Final = msgspec.json.Decoder(dict[str, Value]).decode


class KeysChanged(MudkitError, RuntimeError):
    """A friend has new keys: its device was wiped or replaced."""


class QueueFull(MudkitError, RuntimeError):
    """A queue on this device or at the relay is full; the operation was not started."""


class TamperedMessage(MudkitError, ValueError):
    """A message that failed authentication and was dropped (Contrail 3.3)."""


class Item(msgspec.Struct, frozen=True):
    """An item (Contrail 3.1): a payload, and metadata for filters.

    Parameters
    ----------
    metadata : mapping
        Values by name, as JSON can hold them; a point is a pair of degrees.
    payload : bytes
    source : (str, str), optional
        Sending device and port of a received item.
    item_id : str, optional
    number : int
        Number of a received item, unique on this device.

    Examples
    --------
    >>> Item({"loc": (37.5, -122.0)}, payload=b"a photograph").payload
    b'a photograph'
    """

    metadata: Metadata
    payload: bytes = b""
    source: Endpoint | None = None
    item_id: str | None = None
    number: int = 0


class Published(msgspec.Struct, frozen=True):
    """Result of publishing: a relay accepted the item for all receivers.

    Parameters
    ----------
    destinations : tuple of (str, str)
        Devices and ports whose filters it matched.
    uploaded : bool
        Whether its content was sent to a relay; False: no filter matched, or the relay had it cached.
    """

    destinations: tuple[Endpoint, ...]
    uploaded: bool


class Backlogged(msgspec.Struct, frozen=True):
    """Result of publishing: a receiver's queue is full (Contrail 3.5); publish again later.

    Parameters
    ----------
    destinations : tuple of (str, str)
        Endpoints for which it was refused.
    accepted : tuple of (str, str)
        Endpoints for which it was accepted.
    """

    destinations: tuple[Endpoint, ...]
    accepted: tuple[Endpoint, ...] = ()


def pack(item: Item | Value, called: str | None = None) -> bytes:
    """Encode an item with its delivery name; raise ParameterError if it is invalid or too large."""
    if not isinstance(item, Item) or not isinstance(item.metadata, Mapping):
        raise ParameterError(
            "Expected an item.",
            where="item",
            found=brief(item, 200),
            expected='Item({"name": value, …}, payload=b"…")',
        )
    if not isinstance(item.payload, bytes):
        raise ParameterError(
            "Expected a payload of bytes.",
            where="payload",
            found=type(item.payload).__name__,
            expected="bytes",
        )
    try:
        metadata = msgspec.json.encode(item.metadata)
        _decode_metadata(metadata)
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(
            "JSON cannot hold the metadata of this item.",
            where="metadata",
            found=str(error),
            expected="a mapping of names to values that JSON can hold",
        ) from error
    if len(metadata) + len(item.payload) > MAX_BYTES:
        raise ParameterError(
            "This item is too large.",
            where="item",
            found=f"{len(metadata) + len(item.payload):,} bytes",
            expected=f"at most {MAX_BYTES:,}",
            remedy="publish it in parts, or a smaller version of it",
        )
    name = (called or "").encode()
    lengths = len(metadata).to_bytes(_LENGTH, "big") + len(name).to_bytes(_HEAD - _LENGTH, "big")
    return lengths + name + metadata + item.payload


def unpack(data: bytes) -> tuple[Metadata, bytes]:
    """Decode metadata and payload; raise ValueError if :func:`pack` did not encode them."""
    begin = _HEAD + int.from_bytes(data[_LENGTH:_HEAD], "big")
    end = begin + int.from_bytes(data[:_LENGTH], "big")
    return _decode_metadata(data[begin:end]), data[end:]


def _decode_metadata(metadata: bytes) -> Metadata:
    """Decode metadata; raise ValueError if it is no JSON mapping, or nested too deeply."""
    try:
        decoded = _read(metadata)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if is_too_deep(decoded):
        raise ValueError("it is nested too deeply")
    return decoded


def delivery_name(source: Endpoint, item: str, seq: int, data: bytes) -> str:
    """Return the delivery name of an item: its publisher's, or origin and sequence number."""
    called = data[_HEAD : _HEAD + int.from_bytes(data[_LENGTH:_HEAD], "big")].decode(errors="replace")
    return called or f"{source[0]}/{source[1]}/{item} {seq}"


def check_name(what: str, name: Value) -> str:
    """Return a valid name of a port, item, group or device; raise ParameterError otherwise."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise ParameterError(
            f"This cannot be the name of {what}.",
            where=what,
            found=brief(name, 200),
            expected=f"a text of 1 to {_MAX_NAME} printable characters",
        )
    return name
