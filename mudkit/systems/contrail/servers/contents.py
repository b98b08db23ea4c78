"""Durable contents of a storage: queues, item cache, groups of publishers (Contrail 3.4, 4.2.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from mudkit.events import Opaque, Store, size_bytes
from mudkit.systems.contrail.messages import CacheItem, Data, DeviceMessage, Filter, FindItem, QueueEntry

MAX_CONTROLS: Final = 10_000
"""Capacity of a queue, in filters and keys."""
_BITS: Final = 32
"""Bits of an entry number after the version of the queue: no number is reused after a move."""
MAX_FILTERS: Final = 1000
"""Capacity of a group by device, in filters; expired, then oldest ones are evicted."""


class _IndexEntry(NamedTuple):
    """Fields of an entry that decide on its replacement, expiry, capacity and withdrawal."""

    slot: str
    seq: int
    expires_us: int | None
    is_item: bool
    source: str
    number: int


class Queue:
    """Queue of a device, oldest entry first, one entry per slot; only the index is in memory."""

    def __init__(self, store: Store, device: str) -> None:
        self._store, self._device = store, device
        self._waiting: dict[int, _IndexEntry] = {}
        self._slots: dict[str, int] = {}
        self._items = 0
        for key, entry in store.items(self._store_key(), QueueEntry):
            self._add_to_index(int(key.rpartition("\n")[2]), entry)

    def append(self, now_us: int, entry: QueueEntry, max_items: int) -> str:
        """Append an entry, replacing its slot; return 'ok', 'backlogged', or 'obsolete' if it is older."""
        is_item = isinstance(entry.message, Data)
        before = self._slots.get(entry.slot)
        if before is not None and self._waiting[before].seq > entry.seq:
            return "obsolete"
        if before is None and self._is_full(is_item, max_items):
            self._drop_expired(now_us)
            if self._is_full(is_item, max_items):
                return "backlogged"
        if before is not None:
            self.drop(before)
        moves = self._store.get(f"version {self._device}", int) or 0
        number = max(self._store.get(f"next {self._device}", int) or 0, moves << _BITS) + 1
        self._store.put(f"next {self._device}", number)
        self._store.put(self._store_key(number), entry)
        self._add_to_index(number, entry)
        return "ok"

    def read(self, now_us: int, max_bytes: int) -> tuple[list[tuple[int, DeviceMessage]], bool]:
        """Return the first entries as (number, message) up to a size, and whether more follow.

        Expired entries are removed first.
        """
        self._drop_expired(now_us)
        page: list[tuple[int, DeviceMessage]] = []
        for number, entry in self._stored_entries():
            max_bytes -= size_bytes(entry.message)
            if page and max_bytes < 0:
                return page, True
            page.append((number, entry.message))
        return page, False

    def drop(self, number: int) -> None:
        """Remove an entry by its number in the queue; do nothing if it is gone already."""
        entry = self._waiting.pop(number, None)
        if entry is not None:
            del self._slots[entry.slot]
            self._items -= entry.is_item
            self._store.delete(self._store_key(number))

    def withdraw(self, source: str, number: int) -> None:
        """Remove the entries of a sender up to a ``number`` of its own count."""
        for at, entry in list(self._waiting.items()):
            if entry.source == source and entry.number <= number:
                self.drop(at)

    def clear(self) -> list[QueueEntry]:
        """Remove all entries and return them, oldest first, to be moved to another storage."""
        entries = [entry for _, entry in self._stored_entries()]
        for number in list(self._waiting):
            self.drop(number)
        return entries

    def __len__(self) -> int:
        return len(self._waiting)

    def _stored_entries(self) -> Iterator[tuple[int, QueueEntry]]:
        """Iterate over (number, entry), oldest first, reading each entry from the store."""
        for number in self._waiting:
            entry = self._store.get(self._store_key(number), QueueEntry)
            assert entry is not None
            yield number, entry

    def _add_to_index(self, number: int, entry: QueueEntry) -> None:
        """Record a stored entry in memory, as the last of the queue and the one of its slot."""
        is_item, source = isinstance(entry.message, Data), entry.message.source
        self._waiting[number] = _IndexEntry(
            entry.slot, entry.seq, entry.expires_us, is_item, source, entry.number
        )
        self._slots[entry.slot] = number
        self._items += is_item

    def _is_full(self, is_item: bool, max_items: int) -> bool:
        """Return whether the queue has no room for another item, or for another filter or key."""
        return self._items >= max_items if is_item else len(self._waiting) - self._items >= MAX_CONTROLS

    def _drop_expired(self, now_us: int) -> None:
        """Remove the entries that have expired."""
        for number, entry in list(self._waiting.items()):
            if entry.expires_us is not None and entry.expires_us <= now_us:
                self.drop(number)

    def _store_key(self, number: int | None = None) -> str:
        """Return the store key of an entry; without a number, the prefix of all keys of the queue."""
        return f"queue {self._device}\n" + ("" if number is None else f"{number:018d}")


class _CachedItem(msgspec.Struct, frozen=True):
    """A cached item; ``number`` orders the uploads of its device."""

    number: int
    seq: int
    epoch: int
    body: Opaque


class ItemCache:
    """Bodies of items by device, port and name (Contrail 3.4.1): the newest ``max_items`` of a device."""

    def __init__(self, store: Store, max_items: int) -> None:
        self._store, self._max = store, max_items
        self._in_order: dict[str, dict[int, str]] = {}
        """Store keys by device and number, oldest first."""
        for place, key in store.items("cached ", str):
            source, number = place.removeprefix("cached ").rsplit("\n", 1)
            self._in_order.setdefault(source, {})[int(number)] = key

    def put(self, upload: CacheItem) -> None:
        """Store an upload in place of an older one of its name; evict the oldest.

        No effect if it is older itself.
        """
        source, key = upload.source, _cache_key(upload)
        in_order = self._in_order.setdefault(source, {})
        before = self._store.get(key, _CachedItem)
        if before is not None:
            if (before.seq, before.epoch) > (upload.seq, upload.epoch):
                return
            self._evict(source, before.number)
        number = next(reversed(in_order), 0) + 1
        self._store.put(key, _CachedItem(number, upload.seq, upload.epoch, upload.body))
        self._store.put(f"cached {source}\n{number:012d}", key)
        in_order[number] = key
        while len(in_order) > self._max:
            self._evict(source, next(iter(in_order)))

    def get(self, item: FindItem) -> bytes | None:
        """Return the body of an item if the cache has exactly this copy of it, else None."""
        kept = self._store.get(_cache_key(item), _CachedItem)
        is_meant = kept is not None and (kept.seq, kept.epoch) == (item.seq, item.epoch)
        return kept.body if kept is not None and is_meant else None

    def _evict(self, source: str, number: int) -> None:
        """Remove an item of a device by its place in the order of uploads."""
        self._store.delete(self._in_order[source].pop(number))
        self._store.delete(f"cached {source}\n{number:012d}")


def _cache_key(item: FindItem) -> str:
    """Return the store key of a cached item; later uploads of the same name have the same key."""
    return f"item {item.source}\n{item.port}\n{item.item}"


class _StoredMembership(msgspec.Struct, frozen=True):
    """Membership of a device in a group, with the ``number`` of its last request."""

    joins: bool
    number: int


class PublisherGroups:
    """Members and filters of groups of publishers (Contrail 3.4.3)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def join(self, now_us: int, group: str, member: str, number: int) -> list[Filter]:
        """Add a member to a group; return copies of the group's unexpired filters for it.

        Empty, without effect, if a later request of the member is stored.
        """
        if not self._store_membership(group, member, _StoredMembership(joins=True, number=number)):
            return []
        return _copies_for([kept for _, kept in self._expire_filters(now_us, group)], {member})

    def leave(self, group: str, member: str, number: int) -> None:
        """Remove a member from a group, unless a later request has joined it again."""
        self._store_membership(group, member, _StoredMembership(joins=False, number=number))

    def _store_membership(self, group: str, member: str, state: _StoredMembership) -> bool:
        """Store a membership; return False if a later one is stored."""
        key = f"member {group}\n{member}"
        known = self._store.get(key, _StoredMembership)
        if known is not None and known.number > state.number:
            return False
        self._store.put(key, state)
        return True

    def add_filter(self, now_us: int, group: str, message: Filter) -> list[Filter]:
        """Store a filter of a group; return a copy for each member among its destinations.

        Empty, without effect, if a later one of its slot is stored.
        """
        mine = f"filter {group}\n{message.source}\n"
        key = f"{mine}{message.port}\n{message.slot}"
        before = self._store.get(key, Filter)
        if before is not None and before.number > message.number:
            return []
        self._store.put(key, message)
        if len(self._store.keys(mine)) > MAX_FILTERS:
            self._expire_filters(now_us, group)
            left = sorted((kept.number, key) for key, kept in self._store.items(mine, Filter))
            for _, oldest in left[: max(len(left) - MAX_FILTERS, 0)]:
                self._store.delete(oldest)
        prefix = f"member {group}\n"
        members = self._store.items(prefix, _StoredMembership)
        return _copies_for([message], {key.removeprefix(prefix) for key, member in members if member.joins})

    def _expire_filters(self, now_us: int, group: str) -> list[tuple[str, Filter]]:
        """Delete the expired filters of a group; return the others with their store keys."""
        live = []
        for key, kept in self._store.items(f"filter {group}\n", Filter):
            if kept.expires_us is not None and kept.expires_us <= now_us:
                self._store.delete(key)
            else:
                live.append((key, kept))
        return live


def _copies_for(filters: Sequence[Filter], members: Collection[str]) -> list[Filter]:
    """Return a copy of each filter for each of its destinations that is among the members."""
    return [replace(message, to=[to]) for message in filters for to in message.to if to.device in members]
