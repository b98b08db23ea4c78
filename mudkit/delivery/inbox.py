"""Received numbers of each sender: the next one, duplicates and early items.

Numbers are scoped to (sender, incarnation): a restarted, restored or wiped sender counts anew, and a
late copy of what it sent before is a duplicate.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from mudkit.events import Store

MAX_INCARNATIONS: Final = 64
"""Incarnations of a sender that are remembered; the one that began first is evicted."""


class Place(Enum):
    """Position of an item among those of its sender's incarnation."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    EARLY = "early"


class Inbox:
    """The last number that was taken of each incarnation of each sender, stored under ``name``."""

    def __init__(self, store: Store, name: str = "seen") -> None:
        self._store = store
        self._name = name

    def last_number(self, sender: str, incarnation: str) -> int:
        """Return the number of the last item that was taken; 0 before the first."""
        return self._store.get(self._key(sender, incarnation), int) or 0

    def place(self, sender: str, incarnation: str, number: int, after_number: int | None = None) -> Place:
        """Return the position of an item at this receiver.

        ``after_number`` precedes it here, for a sender that numbers the items of several receivers together;
        None: ``number - 1``.
        """
        last = self.last_number(sender, incarnation)
        if number <= last:
            return Place.DUPLICATE
        return Place.NEXT if (number - 1 if after_number is None else after_number) <= last else Place.EARLY

    def take(self, sender: str, incarnation: str, number: int) -> None:
        """Mark all items up to a number as taken; a lower number changes nothing."""
        last = self.last_number(sender, incarnation)
        if number <= last:
            return
        known: list[str] = [] if last else self._store.get(self._list(sender), list[str]) or []
        if not last and incarnation not in known:
            known.append(incarnation)
            for former in known[:-MAX_INCARNATIONS]:
                self._store.delete(self._key(sender, former))
            self._store.put(self._list(sender), known[-MAX_INCARNATIONS:])
        self._store.put(self._key(sender, incarnation), number)

    def rewind(self, sender: str, incarnation: str, number: int) -> None:
        """Mark the items after a number as not taken: their receiver has lost them."""
        self._store.put(self._key(sender, incarnation), number)

    def _list(self, sender: str) -> str:
        return f"{self._name} {sender}"

    def _key(self, sender: str, incarnation: str) -> str:
        return f"{self._name} {sender}\n{incarnation}"
