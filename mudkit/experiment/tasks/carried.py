"""What messages have carried: the evidence that an item has come to a phone.

An item has come to a phone if all of its content stands in one message that came over the phone's link since
the item was published, and if it has left its sender over the sender's link in the same way before. It may
stand there as it is, among others, or packed as :mod:`mudkit.fleet.unpacking` can open it.

What is sealed nobody can read. A ciphertext counts as an item if it is at least as long as the content can be
written (six bits a letter); none of its bytes counts for two items.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from mudkit.errors import ParameterError
from mudkit.events import Ciphertext
from mudkit.experiment.tasks.task import Item
from mudkit.fleet import World
from mudkit.fleet.exposure import leaves
from mudkit.fleet.link import Transfer
from mudkit.fleet.runtime import Site
from mudkit.wire import wire_fields

__all__ = ["Carried"]

_KEY: Final = 8
"""By so many first bytes a content is looked for."""
_BITS: Final = 20
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(64 - _BITS)
_MOST_READ: Final = 256
"""Texts whose items are remembered: one text goes to many phones."""


class Carried:
    """Looks into every message that comes over a device's link.

    Parameters
    ----------
    world : World
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: dict[str, tuple[Item, int]] = {}
        self._needles: dict[bytes, list[tuple[str, bytes]]] = {}
        self._marks = np.zeros(1 << _BITS, dtype=bool)
        self._short: dict[str, bytes] = {}
        """Contents of too few letters to have a key."""
        self._least_bytes = 1 << 62
        """In fewer bytes stands no item."""
        self._read: dict[str | bytes, frozenset[str]] = {}
        self._left: set[str] = set()
        self._came: dict[str, set[str]] = {}
        self._sealed: dict[tuple[str, str], list[list[int]]] = {}
        """Ciphertexts by device and direction: when they came, and how many bytes have not counted."""
        self._messages: dict[str, list[int]] = {}
        """When each device got one: for who is told that an item was in none."""
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
        self._least_bytes = min(self._least_bytes, _least(item))
        whole = len(content) // 4 * 4
        forms = [content, base64.b64decode(content[:whole])]
        if any(len(form) < _KEY for form in forms):
            self._short[item.name] = content
            return
        for form in forms:
            self._needles.setdefault(form[:_KEY], []).append((item.name, form))
            self._marks[_places(form[:_KEY])] = True

    def check(self, phone: str, name: str) -> None:
        """Refuse an item of which there is no evidence that it has come.

        Raises
        ------
        ParameterError
            It has not come to this phone, or has not left its sender.
        """
        item, since_us = self._items[name]
        if not (name in self._left or self._takes(item.sender, "up", item, since_us)):
            raise ParameterError(
                "An item cannot have arrived: its content has not left its sender over a link.",
                where=f"arrived({phone!r}, {name!r})",
                found=f"no message from {item.sender} that has it has come anywhere yet",
                expected=_EXPECTED,
                remedy="let a machine on its sender send it",
            )
        self._left.add(name)
        if not (name in self._came.get(phone, ()) or self._takes(phone, "down", item, since_us)):
            count = sum(at_us >= since_us for at_us in self._messages.get(phone, ()))
            raise ParameterError(
                "An item was said to have arrived that has not come over the phone's link.",
                where=f"arrived({phone!r}, {name!r})",
                found=f"{count} messages to {phone} since it was published, and in none of them its content",
                expected=_EXPECTED,
                remedy="send it to a machine on this phone, and call arrived() when that has it",
            )

    def _takes(self, device: str, direction: str, item: Item, since_us: int) -> bool:
        """Let a ciphertext count for an item, if there is one that can hold it."""
        need, sealed = _least(item), self._sealed.get((device, direction), [])
        # The oldest that can be: a later one may be all there is for an item that was published later.
        for each in sealed[bisect_left(sealed, [since_us]) :]:
            if each[1] >= need:
                each[1] -= need
                return True
        return False

    def _look(self, transfer: Transfer) -> None:
        source, target = transfer.sender.host, self._world.at_address[transfer.to].host
        if source is target:
            return
        ends = [(source, "up"), (target, "down")]
        ways = [(host.name, direction) for host, direction in ends if host.link is not None]
        if not ways:
            return
        items: set[str] = set()
        for part in _parts(transfer.message):
            if len(part) < self._least_bytes:
                continue
            if isinstance(part, Ciphertext):
                for way in ways:
                    self._sealed.setdefault(way, []).append([self._world.now_us, len(part)])
            items |= self._items_in(part)
        self._note(source, target, items)

    def _note(self, source: Site, target: Site, items: set[str]) -> None:
        self._left.update(name for name in items if self._items[name][0].sender == source.name)
        if target.link is not None:
            self._messages.setdefault(target.name, []).append(self._world.now_us)
            self._came.setdefault(target.name, set()).update(items)

    def _items_in(self, part: str | bytes) -> frozenset[str]:
        known = self._read.get(part)
        if known is None:
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            known = frozenset(name for _, _, data in leaves(part) for name in self._contents_in(data))
            self._read[part] = known
        return known

    def _contents_in(self, data: bytes) -> Iterator[str]:
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


def _least(item: Item) -> int:
    """Give in how many bytes a content can be written."""
    return -(-item.size_bytes * 3 // 4)


def _places(data: bytes) -> Any:
    """Give for each eight bytes of a text where they stand in the table of marks."""
    words = np.ndarray((len(data) - _KEY + 1,), "<u8", data, 0, (1,))
    return (words * _MIX) >> _SHIFT


def _parts(message: Any) -> Iterator[str | bytes]:
    """Give all texts and bytes of a message."""
    if isinstance(message, str | bytes):
        yield message
    elif isinstance(message, Mapping):
        for name, inner in message.items():
            yield from _parts(name)
            yield from _parts(inner)
    elif isinstance(message, list | tuple | set | frozenset):
        for inner in message:
            yield from _parts(inner)
    elif isinstance(message, msgspec.Struct):
        yield from _parts(wire_fields(message))
    elif isinstance(message, bytearray | memoryview):
        yield bytes(message)
