"""Evidence that an item has arrived: the messages that have carried its content.

All of an item's content must stand in one message that came over the phone's link since the item was
published, and must have left its sender over the sender's link in the same way before. It may stand there as
it is, among others, or packed as :mod:`mudkit.fleet.unpacking` can open it. A ciphertext counts as an item if
it is at least as long as the content can be written (six bits a letter); none of its bytes counts for two
items.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec
import msgspec.inspect
import numpy as np

from mudkit.errors import ParameterError
from mudkit.events import Ciphertext
from mudkit.experiment.tasks import Item
from mudkit.fleet import World
from mudkit.fleet.exposure import leaves
from mudkit.fleet.link import Transfer

_KEY: Final = 8
"""Length of the prefix by which a content is looked up, in bytes."""
_BITS: Final = 20
"""Size of the table of marks: an entry for each hash of this many bits."""
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: multiplicative hashing (Knuth, Art of Computer Programming, 6.4)."""
_SHIFT: Final = np.uint64(64 - _BITS)
_MAX_CACHED: Final = 256
"""Texts whose items are cached, since one text goes to many phones."""


class Carried:
    """Evidence of arrival: the items found in messages over the devices' links."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: dict[str, tuple[Item, int]] = {}
        self._needles: dict[bytes, list[tuple[str, bytes]]] = {}
        self._marks = np.zeros(1 << _BITS, dtype=bool)
        self._short: dict[str, bytes] = {}
        """Contents that are shorter than a key."""
        self._min_bytes = 1 << 62
        """Smallest size of an item; shorter parts of messages are skipped."""
        self._read: dict[str | bytes, frozenset[str]] = {}
        self._left: set[str] = set()
        self._arrived: dict[str, set[str]] = {}
        self._sealed: dict[tuple[str, str], list[list[int]]] = {}
        """Ciphertexts by device and direction: time, and bytes that count for no item yet."""
        before = world.on_fate

        def fate(transfer: Transfer, what: str) -> None:
            if before is not None:
                before(transfer, what)
            if self._items and what in ("arrived", "repeated"):
                self._look(transfer)

        world.on_fate = fate

    def publish(self, item: Item) -> None:
        """Look for an item from now on."""
        self._items[item.name] = item, self._world.now_us
        content = item.content.encode()
        self._min_bytes = min(self._min_bytes, _min_size(item))
        whole = len(content) // 4 * 4
        forms = [content, base64.b64decode(content[:whole])]
        if any(len(form) < _KEY for form in forms):
            self._short[item.name] = content
            return
        for form in forms:
            self._needles.setdefault(form[:_KEY], []).append((item.name, form))
            self._marks[_places(form[:_KEY])] = True

    def check(self, phone: str, name: str) -> None:
        """Raise a ParameterError if an item has not left its sender, or has not come to this phone."""
        item, since_us = self._items[name]
        if not (name in self._left or self._takes(item.sender, "up", item, since_us)):
            raise ParameterError(
                "An item cannot have arrived: its content has not left its sender over a link.",
                where=f"record_arrival({phone!r}, {name!r})",
                found=f"no message from {item.sender} that has it has come anywhere yet",
                expected=_EXPECTED,
                remedy="let a machine on its sender send it",
            )
        self._left.add(name)
        if not (name in self._arrived.get(phone, ()) or self._takes(phone, "down", item, since_us)):
            raise ParameterError(
                "An item was said to have arrived that has not come over the phone's link.",
                where=f"record_arrival({phone!r}, {name!r})",
                found=f"no message to {phone} since it was published has its content",
                expected=_EXPECTED,
                remedy="send it to a machine on this phone, and call record_arrival() when that has it",
            )

    def _takes(self, device: str, direction: str, item: Item, since_us: int) -> bool:
        """Use up the oldest ciphertext that can hold an item; return whether there was one."""
        size_bytes, sealed = _min_size(item), self._sealed.get((device, direction), [])
        # The oldest possible one: a later one may be needed for an item that was published later.
        for ciphertext in sealed[bisect_left(sealed, [since_us]) :]:
            if ciphertext[1] >= size_bytes:
                ciphertext[1] -= size_bytes
                return True
        return False

    def _look(self, transfer: Transfer) -> None:
        """Record which items a transfer carries over links, and its ciphertexts."""
        if transfer.size_bytes < self._min_bytes:
            return
        source, target = transfer.sender.host, self._world.at_address[transfer.to].host
        if source is target:
            return
        ends = [(source, "up"), (target, "down")]
        ways = [(host.name, direction) for host, direction in ends if host.link is not None]
        if not ways:
            return
        parts: list[str | bytes] = []
        _collect(transfer.message, self._min_bytes, parts)
        items: set[str] = set()
        for part in parts:
            if isinstance(part, Ciphertext):
                for way in ways:
                    self._sealed.setdefault(way, []).append([self._world.now_us, len(part)])
            items |= self._items_in(part)
        self._left.update(name for name in items if self._items[name][0].sender == source.name)
        if items and target.link is not None:
            self._arrived.setdefault(target.name, set()).update(items)

    def _items_in(self, part: str | bytes) -> frozenset[str]:
        """Return the names of the items whose content stands in a text or in bytes, also encoded."""
        known = self._read.get(part)
        if known is None:
            if len(self._read) >= _MAX_CACHED:
                self._read.clear()
            known = frozenset(name for _, _, data in leaves(part) for name in self._contents_in(data))
            self._read[part] = known
        return known

    def _contents_in(self, data: bytes) -> Iterator[str]:
        """Yield the names of the items whose content stands in bytes."""
        yield from (name for name, content in self._short.items() if content in data)
        if len(data) < _KEY:
            return
        for at in np.flatnonzero(self._marks[_places(data)]).tolist():
            for name, needle in self._needles.get(data[at : at + _KEY], ()):
                if data.startswith(needle, at):
                    yield name


_EXPECTED: Final = (
    "all of its content in one message: as it is, among others, packed (JSON, gzip, base64, …), or sealed "
    "(events.Ciphertext)"
)


def _min_size(item: Item) -> int:
    """Return the smallest size of an item's content in any encoding, in bytes."""
    return -(-item.size_bytes * 3 // 4)


def _places(data: bytes) -> Any:
    """Return the position of each eight bytes of a text in the table of marks."""
    words = np.ndarray((len(data) - _KEY + 1,), "<u8", data, 0, (1,))
    return (words * _MULTIPLIER) >> _SHIFT


def _collect(value: Any, min_length: int, parts: list[str | bytes]) -> None:
    """Append the texts and bytes of a message that have at least some length."""
    if isinstance(value, str | bytes):
        if len(value) >= min_length:
            parts.append(value)
    elif isinstance(value, msgspec.Struct):
        for name in _text_fields(type(value)):
            _collect(getattr(value, name), min_length, parts)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            _collect(name, min_length, parts)
            _collect(inner, min_length, parts)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            _collect(inner, min_length, parts)
    elif isinstance(value, bytearray | memoryview):
        _collect(bytes(value), min_length, parts)


@cache
def _text_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of a type of messages that can hold texts or bytes, by their annotations."""
    try:
        info: Any = msgspec.inspect.type_info(kind)
    except (NameError, TypeError):  # annotations that only a type checker resolves
        return kind.__struct_fields__
    return tuple(field.name for field in info.fields if _can_hold_text(field.type, frozenset({kind})))


def _can_hold_text(info: Any, seen: frozenset[type]) -> bool:
    """Return whether a type can hold texts or bytes."""
    match info:
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType() | msgspec.inspect.BoolType():
            return False
        case msgspec.inspect.NoneType() | msgspec.inspect.LiteralType() | msgspec.inspect.EnumType():
            return False
        case msgspec.inspect.UnionType(types=inner) | msgspec.inspect.TupleType(item_types=inner):
            return any(_can_hold_text(part, seen) for part in inner)
        case msgspec.inspect.StructType(cls=kind, fields=fields):
            return kind in seen or any(_can_hold_text(field.type, seen | {kind}) for field in fields)
        case msgspec.inspect.Metadata(type=inner) | msgspec.inspect.CollectionType(item_type=inner):
            return _can_hold_text(inner, seen)
    return True
