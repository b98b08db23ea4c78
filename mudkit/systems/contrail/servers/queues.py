"""Queue of a device in storage: oldest entry first, only the newest of each slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mudkit.events import Store, size_bytes
from mudkit.systems.contrail.messages import Data, DeviceMessage, QueueEntry

__all__ = ["MAX_CONTROLS", "Queue"]

MAX_CONTROLS: Final = 10_000
"""Capacity of a queue for filters and keys."""
_BITS: Final = 32
"""Entries are renumbered after each move: an acknowledgement of an old number removes nothing else."""


class _Index(NamedTuple):
    """Fields of an entry that order the queue."""

    slot: str
    seq: int
    expires_us: int | None
    is_item: bool
    source: str
    number: int


class Queue:
    """Queue of one device; entries are in the store, in memory is only their index."""

    def __init__(self, store: Store, device: str) -> None:
        self._store, self._device = store, device
        self._waiting: dict[int, _Index] = {}
        self._slots: dict[str, int] = {}
        self._items = 0
        for key, entry in store.items(self._key(), QueueEntry):
            self._note(int(key.rpartition("\n")[2]), entry)

    def append(self, now_us: int, entry: QueueEntry, max_items: int) -> str:
        """Append an entry in place of an older one of its slot; return 'ok', 'obsolete' or 'backlogged'."""
        is_item = isinstance(entry.message, Data)
        before = self._slots.get(entry.slot)
        if before is not None and self._waiting[before].seq > entry.seq:
            return "obsolete"
        if before is None and self._is_full(is_item, max_items):
            self._expire(now_us)
            if self._is_full(is_item, max_items):
                return "backlogged"
        if before is not None:
            self.drop(before)
        moves = self._store.get(f"version {self._device}", int) or 0
        number = max(self._store.get(f"next {self._device}", int) or 0, moves << _BITS) + 1
        self._store.put(f"next {self._device}", number)
        self._store.put(self._key(number), entry)
        self._note(number, entry)
        return "ok"

    def read(self, now_us: int, max_bytes: int) -> tuple[list[tuple[int, DeviceMessage]], bool]:
        """Return the first entries as (number, message), up to a size, and whether there are more."""
        self._expire(now_us)
        page: list[tuple[int, DeviceMessage]] = []
        for number, entry in self._entries():
            max_bytes -= size_bytes(entry.message)
            if page and max_bytes < 0:
                return page, True
            page.append((number, entry.message))
        return page, False

    def drop(self, number: int) -> None:
        """Remove an entry, if it is there."""
        entry = self._waiting.pop(number, None)
        if entry is not None:
            del self._slots[entry.slot]
            self._items -= entry.is_item
            self._store.delete(self._key(number))

    def withdraw(self, source: str, number: int) -> None:
        """Remove what a device has sent up to a number."""
        for each in [at for at, w in self._waiting.items() if w.source == source and w.number <= number]:
            self.drop(each)

    def clear(self) -> list[QueueEntry]:
        """Remove all entries and return them, oldest first."""
        entries = [entry for _, entry in self._entries()]
        for number in list(self._waiting):
            self.drop(number)
        return entries

    def __len__(self) -> int:
        return len(self._waiting)

    def _entries(self) -> Iterator[tuple[int, QueueEntry]]:
        for number in self._waiting:
            entry = self._store.get(self._key(number), QueueEntry)
            assert entry is not None
            yield number, entry

    def _note(self, number: int, entry: QueueEntry) -> None:
        is_item, source = isinstance(entry.message, Data), entry.message.source
        self._waiting[number] = _Index(entry.slot, entry.seq, entry.expires_us, is_item, source, entry.number)
        self._slots[entry.slot] = number
        self._items += is_item

    def _is_full(self, is_item: bool, max_items: int) -> bool:
        return self._items >= max_items if is_item else len(self._waiting) - self._items >= MAX_CONTROLS

    def _expire(self, now_us: int) -> None:
        for number, each in list(self._waiting.items()):
            if each.expires_us is not None and each.expires_us <= now_us:
                self.drop(number)

    def _key(self, number: int | None = None) -> str:
        return f"queue {self._device}\n" + ("" if number is None else f"{number:018d}")
