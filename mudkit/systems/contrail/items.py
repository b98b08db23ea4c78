"""What applications hand over and get: items, and what became of one that was published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mudkit.errors import ParameterError, brief
from mudkit.wire import is_too_deep

__all__ = [
    "MOST_BYTES",
    "MOST_NAME",
    "Backlogged",
    "Endpoint",
    "Item",
    "Published",
    "check_name",
    "delivery",
    "pack",
    "unpack",
]

MOST_BYTES: Final = 1 << 20
"""Of an item: its metadata and its payload."""
MOST_NAME: Final = 200
_LENGTH: Final = 4
_HEAD: Final = 6
"""Bytes that say how long the metadata are, and then what the deliveries call the item."""

Endpoint = tuple[str, str]
"""A device and one of its ports."""


class Item(msgspec.Struct, frozen=True):
    """An item (Contrail 3.1): a payload, and what filters look at.

    Parameters
    ----------
    metadata : mapping of str to object
        What JSON can hold; a point is a pair of degrees.
    payload : bytes
    source : (str, str), optional
        The device and port that it came from; of a received item.
    item_id : str, optional
        The name of a received item.
    number : int
        The number of a received item on this device.

    Examples
    --------
    >>> Item({"loc": (37.5, -122.0)}, payload=b"a photograph").payload
    b'a photograph'
    """

    metadata: Mapping[str, Any]
    payload: bytes = b""
    source: Endpoint | None = None
    item_id: str | None = None
    number: int = 0


class Published(msgspec.Struct, frozen=True):
    """An item is on its way, if anybody has asked for it.

    Parameters
    ----------
    destinations : tuple of (str, str)
        Devices and ports whose filters it matched.
    uploaded : bool
        Whether its content went to a relay; False: nobody wanted it, or a relay had it.
    """

    destinations: tuple[Endpoint, ...]
    uploaded: bool


class Backlogged(msgspec.Struct, frozen=True):
    """Too much waits for somebody already (Contrail 3.5): publish again later.

    Parameters
    ----------
    destinations : tuple of (str, str)
        The endpoints for which it was not taken.
    taken : tuple of (str, str)
        The endpoints for which it was taken.
    """

    destinations: tuple[Endpoint, ...]
    taken: tuple[Endpoint, ...] = ()


def pack(item: Any, called: str | None = None) -> bytes:
    """Write an item as bytes.

    Parameters
    ----------
    item : Item
    called : str, optional
        What the deliveries call it.

    Raises
    ------
    ParameterError
        It is none, JSON cannot hold its metadata, or it is too large.
    """
    if not isinstance(item, Item) or not isinstance(item.metadata, Mapping):
        raise ParameterError(
            "This is no item.",
            where="item",
            found=brief(item, 200),
            expected='Item({"name": value, …}, payload=b"…")',
        )
    if not isinstance(item.payload, bytes):
        raise ParameterError(
            "The payload of an item is bytes.",
            where="payload",
            found=type(item.payload).__name__,
            expected="bytes",
        )
    try:
        metadata = msgspec.json.encode(item.metadata)
        if is_too_deep(msgspec.json.decode(metadata, type=dict[str, Any])):
            raise ValueError("it is nested too deeply")
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(
            "The metadata of an item cannot be sent.",
            where="metadata",
            found=str(error),
            expected="a mapping of names to what JSON can hold",
        ) from error
    if len(metadata) + len(item.payload) > MOST_BYTES:
        raise ParameterError(
            "This item is too large.",
            where="item",
            found=f"{len(metadata) + len(item.payload):,} bytes",
            expected=f"at most {MOST_BYTES:,}",
            remedy="publish it in parts, or a smaller version of it",
        )
    name = (called or "").encode()
    lengths = len(metadata).to_bytes(_LENGTH, "big") + len(name).to_bytes(_HEAD - _LENGTH, "big")
    return lengths + name + metadata + item.payload


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Give the metadata and the payload back.

    Raises
    ------
    ValueError
        This was not written by :func:`pack`.
    """
    begin = _HEAD + int.from_bytes(data[_LENGTH:_HEAD], "big")
    end = begin + int.from_bytes(data[:_LENGTH], "big")
    metadata = msgspec.json.decode(data[begin:end], type=dict[str, Any])
    if is_too_deep(metadata):
        raise ValueError("it is nested too deeply")
    return metadata, data[end:]


def delivery(source: Endpoint, item: str, seq: int, data: bytes) -> str:
    """Say what the deliveries call an item: what its publisher said, or where it is from and its number."""
    called = data[_HEAD : _HEAD + int.from_bytes(data[_LENGTH:_HEAD], "big")].decode(errors="replace")
    return called or f"{source[0]}/{source[1]}/{item} {seq}"


def check_name(what: str, name: Any) -> str:
    """Give the name of a port, an item, a group or a device, if it is one.

    Raises
    ------
    ParameterError
    """
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or not name.isprintable():
        raise ParameterError(
            f"This is no name of {what}.",
            where=what,
            found=brief(name, 200),
            expected=f"a text of 1 to {MOST_NAME} printable characters",
        )
    return name
