"""A queue of a device in storage: what waits for it, the oldest first, and the newest of each slot only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mudkit.events import Store, size_bytes

__all__ = ["MOST_CONTROLS", "Queue"]

MOST_CONTROLS: Final = 10_000
"""Filters and keys in the queue of a device; above, they are refused as items are."""

_BITS: Final = 32
"""After each move numbers are others: a device that confirms old ones confirms nothing else."""


@dataclass(frozen=True)
class _Waiting:
    slot: str
    seq: int
    expires_us: int | None
    is_item: bool
    source: str
    number: int


class Queue:
    """The queue of one device, in the store of whoever holds it.

    What waits is in the store; in memory is only what is looked at to keep it in order. Who makes it for a
    store in which something waits tells it by :meth:`note`.

    Parameters
    ----------
    store : Store
    device : str
    """

    def __init__(self, store: Store, device: str) -> None:
        self._store, self._device = store, device
        self._waiting: dict[int, _Waiting] = {}
        self._slots: dict[str, int] = {}
        self._items = 0

    def append(self, now_us: int, entry: Mapping[str, Any], most: int) -> str:
        """Add an entry at the end.

        Parameters
        ----------
        now_us : int
        entry : mapping
            ``slot, seq, expires_us, message, number``: it replaces its slot's, unless that is newer.
        most : int
            The largest number of items that wait.

        Returns
        -------
        {'ok', 'obsolete', 'backlogged'}
        """
        before = self._slots.get(entry["slot"])
        if before is not None and self._waiting[before].seq > entry["seq"]:
            return "obsolete"
        if before is None and self._is_full(entry["message"]["kind"] == "data", most):
            self._expire(now_us)
            if self._is_full(entry["message"]["kind"] == "data", most):
                return "backlogged"
        if before is not None:
            self.drop(before)
        moves = self._store.get(f"version {self._device}") or 0
        number = max(self._store.get(f"next {self._device}") or 0, moves << _BITS) + 1
        self._store.put(f"next {self._device}", number)
        self._store.put(self._key(number), dict(entry))
        self.note(number, entry)
        return "ok"

    def read(self, now_us: int, most_bytes: int) -> tuple[list[tuple[int, Any]], bool]:
        """Give what waits as numbers and messages, up to a size, and say whether there is more."""
        self._expire(now_us)
        page: list[tuple[int, Any]] = []
        for number in self._waiting:
            message = self._store.get(self._key(number))["message"]
            most_bytes -= size_bytes(message)
            if page and most_bytes < 0:
                return page, True
            page.append((number, message))
        return page, False

    def drop(self, number: int) -> None:
        """Take an entry out; nothing happens when it is not there."""
        entry = self._waiting.pop(number, None)
        if entry is not None:
            del self._slots[entry.slot]
            self._items -= entry.is_item
            self._store.delete(self._key(number))

    def withdraw(self, source: str, number: int) -> None:
        """Take out what a device has sent up to a number."""
        for each in [at for at, w in self._waiting.items() if w.source == source and w.number <= number]:
            self.drop(each)

    def entries(self) -> Iterator[dict[str, Any]]:
        """Give all entries, the oldest first."""
        for number in self._waiting:
            yield self._store.get(self._key(number))

    def clear(self) -> None:
        """Take everything out."""
        for number in list(self._waiting):
            self.drop(number)

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, number: int, entry: Mapping[str, Any]) -> None:
        """Take note of an entry that is in the store."""
        is_item = entry["message"]["kind"] == "data"
        self._waiting[number] = _Waiting(
            entry["slot"],
            entry["seq"],
            entry["expires_us"],
            is_item,
            entry["message"]["from"],
            entry["number"],
        )
        self._slots[entry["slot"]] = number
        self._items += is_item

    def _is_full(self, is_item: bool, most: int) -> bool:
        return self._items >= most if is_item else len(self._waiting) - self._items >= MOST_CONTROLS

    def _expire(self, now_us: int) -> None:
        over = [
            number
            for number, each in self._waiting.items()
            if each.expires_us is not None and each.expires_us <= now_us
        ]
        for number in over:
            self.drop(number)

    def _key(self, number: int) -> str:
        return f"queue {self._device}\n{number:018d}"
